//! The parsed access file, and the permissions of one client.
//!
//! If several entries match a client, the first entry in the file applies. Must not parse the file or access sockets.

use std::hash::{Hash, Hasher};
use std::{collections::HashMap, hint::black_box, sync::Arc};

use super::right::{Need, Right, Rights, Scope};

/// SHA-256 of a token. Comparing digests takes constant time, so response times reveal nothing about a valid digest.
#[derive(Clone, Copy, Eq, Debug)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(token: &[u8]) -> Digest {
        Digest(hmac_sha256::Hash::hash(token))
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Digest) -> bool {
        #[cfg(test)]
        COMPARED.with(|count| count.set(count.get() + 1));
        let pairs = self.0.iter().zip(&other.0);
        black_box(pairs.fold(0, |wrong, (left, right)| black_box(wrong | (left ^ right)))) == 0
    }
}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[cfg(test)]
thread_local! {
    pub(super) static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Credential {
    Nothing,
    Certificate(Box<str>),
    Token(Digest),
    User(u32),
    Group(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The entry named `*` applies to clients without a matching credential.
    pub name: Box<str>,
    pub line: usize,
    /// One of these credentials is sufficient.
    pub credentials: Vec<Credential>,
    pub rights: Rights,
}

/// The entries in the order of the file. The maps contain indexes into `entries`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessTable {
    pub entries: Vec<Arc<Entry>>,
    names: HashMap<Box<str>, usize>,
    credentials: HashMap<Credential, usize>,
}

impl AccessTable {
    /// The caller must check that no other entry has the same name or credential.
    pub(super) fn add(&mut self, entry: Entry) {
        let index = self.entries.len();
        self.names.insert(entry.name.clone(), index);
        self.credentials.extend(entry.credentials.iter().map(|credential| (credential.clone(), index)));
        self.entries.push(Arc::new(entry));
    }

    pub fn name(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(*self.names.get(name)?)
    }

    pub fn credential(&self, credential: &Credential) -> Option<&Arc<Entry>> {
        self.entries.get(*self.credentials.get(credential)?)
    }

    /// Returns the first entry in the file that has one of `credentials`, and the matching credential.
    pub fn prove(&self, credentials: &[Credential]) -> Option<(&Arc<Entry>, Credential)> {
        let found = credentials.iter().filter_map(|own| Some((self.credential(own)?, own.clone())));
        found.min_by_key(|(entry, _)| entry.line)
    }
}

/// The permissions of a client. Exists only if the server has an access file; otherwise, every client has all rights.
#[derive(Debug)]
pub struct ClientAccess {
    table: Arc<AccessTable>,
    /// The identity that the connection itself proves, without a token.
    own: Option<(Arc<Entry>, Credential)>,
    known: Option<(Arc<Entry>, Credential)>,
    /// `true` if the client may send tokens, because nobody can eavesdrop on the connection.
    takes_tokens: bool,
    pub failed: bool,
    /// `true` once the right to take jobs has been checked for all watched tubes. `watch` checks each later tube.
    pub watched_are_checked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    Unknown,
    Forbidden,
}

impl ClientAccess {
    /// A client without a matching credential gets the entry `*` or, if this entry does not exist, no identity.
    pub fn new(table: Arc<AccessTable>, credentials: &[Credential], takes_tokens: bool) -> ClientAccess {
        let find = |credentials| table.prove(credentials).map(|(entry, credential)| (entry.clone(), credential));
        let known = find(credentials).or_else(|| find(&[Credential::Nothing]));
        ClientAccess { table, own: known.clone(), known, takes_tokens, failed: false, watched_are_checked: false }
    }

    pub fn name(&self) -> Option<&str> {
        self.known.as_ref().map(|(entry, _)| &*entry.name)
    }

    pub fn rights(&self) -> Option<&Rights> {
        self.known.as_ref().map(|(entry, _)| &entry.rights)
    }

    /// Adopts the token's identity. If the token is invalid or not accepted, removes the identity and returns `false`.
    pub fn authenticate(&mut self, digest: Digest) -> bool {
        let credential = Credential::Token(digest);
        let entry = self.table.credential(&credential).filter(|_| self.takes_tokens).cloned();
        self.known = entry.map(|entry| (entry, credential));
        self.failed = self.known.is_none();
        self.watched_are_checked = false;
        !self.failed
    }

    /// Restores the identity of the connection, because an HTTP token applies to a single request.
    pub fn withdraw_token(&mut self) {
        self.known = self.own.clone();
    }

    /// Returns `false` if the client must be disconnected because it has lost its name, its credential, or a right.
    pub fn renew(&mut self, table: &Arc<AccessTable>) -> bool {
        self.table = table.clone();
        let renewed = |(old, credential): &(Arc<Entry>, Credential)| {
            let new = table.credential(credential).filter(|new| new.name == old.name)?;
            Some((new.clone(), credential.clone()))
        };
        self.own = self.own.as_ref().and_then(renewed);
        let Some(known) = &self.known else { return true };
        let Some(new) = renewed(known).filter(|(new, _)| new.rights.cover(&known.0.rights)) else { return false };
        self.known = Some(new);
        true
    }

    pub fn check(&self, need: Need, tube: Option<&[u8]>) -> Result<(), Denied> {
        let rights = self.rights().ok_or(Denied::Unknown)?;
        let allowed = match need.scope {
            Scope::Open => true,
            Scope::AnyTube => rights.allow_somewhere(need.rights),
            Scope::AllTubes => rights.allow_everywhere(need.rights),
            _ => tube.is_some_and(|tube| rights.allow(need.rights, tube)),
        };
        allowed.then_some(()).ok_or(Denied::Forbidden)
    }

    pub fn sees(&self, tube: &[u8]) -> bool {
        self.rights().is_some_and(|rights| rights.allow(&[Right::Look], tube))
    }

    pub fn sees_all(&self) -> bool {
        self.rights().is_some_and(|rights| rights.allow_everywhere(&[Right::Look]))
    }
}
