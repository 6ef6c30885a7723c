//! What one client may do.
//!
//! Owns who a client is to the access file, from its first byte to its last, and the decision over a command whose tube
//! is known. Must not know sockets: the server says what was proven.

use std::sync::Arc;

use super::right::{Need, Right, Rights, Scope};
use super::table::{AccessTable, Digest, Entry, Proof};

/// A client under an access file. Without one, there is none of these, and everybody may do everything.
#[derive(Debug)]
pub struct ClientAccess {
    table: Arc<AccessTable>,
    /// Who it is by its connection, whatever tokens it gives.
    own: Option<(Arc<Entry>, Proof)>,
    /// Who it is, and how that was proven; none if it has to prove something first.
    known: Option<(Arc<Entry>, Proof)>,
    /// A token may be given: nobody on the way can read it.
    takes_tokens: bool,
    failed: bool,
    /// It may take jobs of all tubes that it watches; what it watches from now on is checked one by one.
    pub watched_are_checked: bool,
}

/// Why a client may not do something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// It has not proven who it is.
    Unknown,
    /// It is known, and has no right to this.
    Forbidden,
}

impl ClientAccess {
    /// A client that has proven this. `takes_tokens`: nobody on the way can read what it says.
    pub fn new(table: Arc<AccessTable>, proofs: &[Proof], takes_tokens: bool) -> ClientAccess {
        let find = |proofs| table.prove(proofs).map(|(entry, proof)| (entry.clone(), proof));
        let known = find(proofs).or_else(|| find(&[Proof::Nothing]));
        ClientAccess { table, own: known.clone(), known, takes_tokens, failed: false, watched_are_checked: false }
    }

    /// Its name, if it is known.
    pub fn name(&self) -> Option<&str> {
        self.known.as_ref().map(|(entry, _)| &*entry.name)
    }

    /// Its rights, if it is known.
    pub fn rights(&self) -> Option<&Rights> {
        self.known.as_ref().map(|(entry, _)| &entry.rights)
    }

    /// Gives a token, by its SHA-256. False: it is wrong, and the client is nobody any more.
    pub fn authenticate(&mut self, digest: Digest) -> bool {
        let proof = Proof::Token(digest);
        let entry = self.table.proof(&proof).filter(|_| self.takes_tokens).cloned();
        self.known = entry.map(|entry| (entry, proof));
        self.failed = self.known.is_none();
        self.watched_are_checked = false;
        !self.failed
    }

    /// It is who its connection proves: it gives no token with what it asks for now.
    pub fn withdraw_token(&mut self) {
        self.known = self.own.clone();
    }

    /// Whether a token was wrong since this was last asked.
    pub fn take_failure(&mut self) -> bool {
        std::mem::take(&mut self.failed)
    }

    /// There is a new file. False: the client must go, since its name, its proof or a right is not there any more.
    pub fn renew(&mut self, table: &Arc<AccessTable>) -> bool {
        self.table = table.clone();
        let still = |(old, proof): &(Arc<Entry>, Proof)| {
            let new = table.proof(proof).filter(|new| new.name == old.name)?;
            Some((new.clone(), proof.clone()))
        };
        self.own = self.own.as_ref().and_then(still);
        let Some(known) = &self.known else { return true };
        let Some(new) = still(known).filter(|(new, _)| new.rights.cover(&known.0.rights)) else { return false };
        self.known = Some(new);
        true
    }

    /// Whether it may do what needs this, on a tube if that matters; scopes that a tube decides need one.
    pub fn check(&self, need: Need, tube: Option<&[u8]>) -> Result<(), Denied> {
        let rights = self.rights().ok_or(Denied::Unknown)?;
        let allowed = match (need.scope, tube) {
            (Scope::Open, _) => true,
            (Scope::AnyTube, _) => rights.allow_somewhere(need.rights),
            (Scope::AllTubes, _) => rights.allow_everywhere(need.rights),
            (Scope::Used | Scope::Named | Scope::Job | Scope::OwnJob | Scope::Watched, tube) => {
                tube.is_some_and(|tube| rights.allow(need.rights, tube))
            }
        };
        if allowed {
            Ok(())
        } else {
            Err(Denied::Forbidden)
        }
    }

    /// Whether it may see the jobs and figures of a tube.
    pub fn sees(&self, tube: &[u8]) -> bool {
        self.rights().is_some_and(|rights| rights.allow(&[Right::Look], tube))
    }

    /// Whether it may see those of all tubes.
    pub fn sees_all(&self) -> bool {
        self.rights().is_some_and(|rights| rights.allow_everywhere(&[Right::Look]))
    }
}
