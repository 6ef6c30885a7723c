//! The parsed access file.
//!
//! Owns the entries and their lookup by name and by credential. If several entries match a client, the first entry
//! in the file applies. Must not parse the file.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::hint::black_box;
use std::sync::Arc;

use super::right::Rights;

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
    /// `*` is the entry for clients without a matching credential.
    pub name: Box<str>,
    pub line: usize,
    /// One of these credentials is sufficient.
    pub credentials: Vec<Credential>,
    pub rights: Rights,
}

/// The maps contain indexes into `entries`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessTable {
    entries: Vec<Arc<Entry>>,
    names: HashMap<Box<str>, usize>,
    credentials: HashMap<Credential, usize>,
}

impl AccessTable {
    /// No other entry may have the same name or credential.
    pub(super) fn add(&mut self, entry: Entry) {
        let index = self.entries.len();
        self.names.insert(entry.name.clone(), index);
        self.credentials.extend(entry.credentials.iter().map(|credential| (credential.clone(), index)));
        self.entries.push(Arc::new(entry));
    }

    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    pub fn name(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(*self.names.get(name)?)
    }

    pub fn credential(&self, credential: &Credential) -> Option<&Arc<Entry>> {
        self.entries.get(*self.credentials.get(credential)?)
    }

    /// Returns the first entry in the file with one of `credentials`, and this credential.
    pub fn prove(&self, credentials: &[Credential]) -> Option<(&Arc<Entry>, Credential)> {
        let found = credentials.iter().filter_map(|own| Some((self.credential(own)?, own.clone())));
        found.min_by_key(|(entry, _)| entry.line)
    }
}
