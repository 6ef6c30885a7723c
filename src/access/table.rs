//! The access file as it is used: names, what proves them, and their rights.
//!
//! Owns the search for who has proven what. The first line that fits counts, but a token fits one line only.

use std::hint::black_box;
use std::sync::Arc;

use super::right::Rights;

/// What shows that a client has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proof {
    Nothing,
    /// A certificate for this name, signed by the authority that the server was given.
    Certificate(Box<str>),
    /// A token with this SHA-256.
    Token([u8; 32]),
    /// A process of this user, by number, at a Unix socket.
    User(u32),
    /// A process of this group, by number, at a Unix socket.
    Group(u32),
}

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name; `*` for those who prove nothing.
    pub name: Box<str>,
    /// The number of the line, from 1.
    pub line: usize,
    /// Each of them is enough.
    pub proofs: Vec<Proof>,
    pub rights: Rights,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessTable {
    entries: Vec<Arc<Entry>>,
}

impl AccessTable {
    pub fn new(entries: Vec<Entry>) -> AccessTable {
        AccessTable { entries: entries.into_iter().map(Arc::new).collect() }
    }

    /// All lines, in the order of the file.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The line of a name.
    pub fn name(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.iter().find(|entry| *entry.name == *name)
    }

    /// The first line that one of these proofs fits, and that proof.
    pub fn prove(&self, proofs: &[Proof]) -> Option<(&Arc<Entry>, Proof)> {
        let found = |entry: &Arc<Entry>| entry.proofs.iter().find(|proof| proofs.contains(proof)).cloned();
        self.entries.iter().find_map(|entry| Some((entry, found(entry)?)))
    }

    /// The line of a token, by its SHA-256. It takes the same time whatever the token is.
    pub fn token(&self, digest: &[u8; 32]) -> Option<&Arc<Entry>> {
        let mut found = None;
        for entry in &self.entries {
            for proof in &entry.proofs {
                if let Proof::Token(expected) = proof {
                    let wrong =
                        expected.iter().zip(digest).fold(0, |wrong, (left, right)| black_box(wrong | (left ^ right)));
                    found = if black_box(wrong) == 0 { Some(entry) } else { found };
                }
            }
        }
        found
    }
}
