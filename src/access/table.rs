//! The access file in memory: names, their proofs, and their rights.
//!
//! Owns the lookup by proof. The first matching line counts. Must not parse the file.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::hint::black_box;
use std::sync::Arc;

use super::right::Rights;

/// The SHA-256 of a token. A comparison takes constant time, so that it does not reveal where two digests differ.
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
    /// The number of comparisons of digests on this thread.
    pub(super) static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A proof of a client's identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Proof {
    Nothing,
    /// A certificate for this name, signed by the configured authority.
    Certificate(Box<str>),
    /// A token with this SHA-256.
    Token(Digest),
    /// A process with this user ID on a Unix socket.
    User(u32),
    /// A process with this group ID on a Unix socket.
    Group(u32),
}

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name; `*` for clients without a proof.
    pub name: Box<str>,
    /// The number of the line, from 1.
    pub line: usize,
    /// Each of these is sufficient.
    pub proofs: Vec<Proof>,
    pub rights: Rights,
}

/// All lines, with indexes, so that a lookup takes constant time. The values of the indexes are positions in `entries`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessTable {
    entries: Vec<Arc<Entry>>,
    names: HashMap<Box<str>, usize>,
    proofs: HashMap<Proof, usize>,
}

impl AccessTable {
    /// Adds a line after the others. Its name and its proofs must be new.
    pub(super) fn add(&mut self, entry: Entry) {
        let place = self.entries.len();
        self.names.insert(entry.name.clone(), place);
        self.proofs.extend(entry.proofs.iter().map(|proof| (proof.clone(), place)));
        self.entries.push(Arc::new(entry));
    }

    /// Returns all lines, in the order of the file.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// Returns the line of a name.
    pub fn name(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(*self.names.get(name)?)
    }

    /// Returns the line with this proof.
    pub fn proof(&self, proof: &Proof) -> Option<&Arc<Entry>> {
        self.entries.get(*self.proofs.get(proof)?)
    }

    /// Returns the first line that one of these proofs matches, and that proof.
    pub fn prove(&self, proofs: &[Proof]) -> Option<(&Arc<Entry>, Proof)> {
        let found = proofs.iter().filter_map(|proof| Some((self.proof(proof)?, proof.clone())));
        found.min_by_key(|(entry, _)| entry.line)
    }
}
