//! The permissions of one client.
//!
//! Owns the client's identity according to the access file, and the decision about a command whose tube is known. Must
//! not know sockets: the server passes the proofs.

use std::sync::Arc;

use super::right::{Need, Right, Rights, Scope};
use super::table::{AccessTable, Digest, Entry, Proof};

/// A client under an access file. Without an access file, there is no `ClientAccess`, and every client may do
/// everything.
#[derive(Debug)]
pub struct ClientAccess {
    table: Arc<AccessTable>,
    /// The identity that the connection proves, independently of tokens.
    own: Option<(Arc<Entry>, Proof)>,
    /// The identity and its proof, or `None` if the client must authenticate first.
    known: Option<(Arc<Entry>, Proof)>,
    /// The client may send tokens, because nobody can eavesdrop on the connection.
    takes_tokens: bool,
    failed: bool,
    /// The client may take jobs of all watched tubes. From now on, each tube is checked when the client watches it.
    pub watched_are_checked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    Unknown,
    /// The client lacks a right.
    Forbidden,
}

impl ClientAccess {
    /// Creates the permissions of a client with these proofs. With `takes_tokens`, it may send tokens as well.
    pub fn new(table: Arc<AccessTable>, proofs: &[Proof], takes_tokens: bool) -> ClientAccess {
        let find = |proofs| table.prove(proofs).map(|(entry, proof)| (entry.clone(), proof));
        let known = find(proofs).or_else(|| find(&[Proof::Nothing]));
        ClientAccess { table, own: known.clone(), known, takes_tokens, failed: false, watched_are_checked: false }
    }

    pub fn name(&self) -> Option<&str> {
        self.known.as_ref().map(|(entry, _)| &*entry.name)
    }

    pub fn rights(&self) -> Option<&Rights> {
        self.known.as_ref().map(|(entry, _)| &entry.rights)
    }

    /// Authenticates with the SHA-256 of a token. Returns `false` if the token is wrong. The client is unknown then.
    pub fn authenticate(&mut self, digest: Digest) -> bool {
        let proof = Proof::Token(digest);
        let entry = self.table.proof(&proof).filter(|_| self.takes_tokens).cloned();
        self.known = entry.map(|entry| (entry, proof));
        self.failed = self.known.is_none();
        self.watched_are_checked = false;
        !self.failed
    }

    /// Drops the identity that a token has proven. An HTTP token applies to one request.
    pub fn withdraw_token(&mut self) {
        self.known = self.own.clone();
    }

    /// Returns `true` if a token was wrong since the previous call.
    pub fn take_failure(&mut self) -> bool {
        std::mem::take(&mut self.failed)
    }

    /// Applies a new access file. Returns `false` if the client must be disconnected, because it has lost its name, its
    /// proof or a right.
    pub fn renew(&mut self, table: &Arc<AccessTable>) -> bool {
        self.table = table.clone();
        let renewed = |(old, proof): &(Arc<Entry>, Proof)| {
            let new = table.proof(proof).filter(|new| new.name == old.name)?;
            Some((new.clone(), proof.clone()))
        };
        self.own = self.own.as_ref().and_then(renewed);
        let Some(known) = &self.known else { return true };
        let Some(new) = renewed(known).filter(|(new, _)| new.rights.cover(&known.0.rights)) else { return false };
        self.known = Some(new);
        true
    }

    /// Checks whether the client has what a command needs, on a tube if the scope requires one.
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
        allowed.then_some(()).ok_or(Denied::Forbidden)
    }

    /// Returns `true` if the client may see the jobs and figures of a tube.
    pub fn sees(&self, tube: &[u8]) -> bool {
        self.rights().is_some_and(|rights| rights.allow(&[Right::Look], tube))
    }

    /// Returns `true` if the client may see the jobs and figures of all tubes.
    pub fn sees_all(&self) -> bool {
        self.rights().is_some_and(|rights| rights.allow_everywhere(&[Right::Look]))
    }
}
