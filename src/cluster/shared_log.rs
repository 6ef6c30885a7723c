//! The interface to the shared log of a cluster, which has a total order of entries and one writer at a time.

use std::{fmt, io};

/// The position of an entry, counted from 1. 0 means the start of the log.
pub type Seq = u64;
/// The term of a writer. Each claim increments the epoch.
pub type Epoch = u64;

#[derive(Debug)]
pub enum Fail {
    /// Another writer has claimed the log, so all later appends in this epoch fail as well.
    Fenced,
    /// The position is already used, the preceding entry is missing, or the writer has changed.
    Conflict,
    /// The log is full and has not appended the entry.
    Full,
    /// The entry may have been appended, or may still be appended later.
    Unknown(io::Error),
}

impl fmt::Display for Fail {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Fail::Fenced => formatter.write_str("another server has taken over"),
            Fail::Conflict => formatter.write_str("position already in use"),
            Fail::Full => formatter.write_str("the shared log is full"),
            Fail::Unknown(error) => error.fmt(formatter),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// 0 if the log was never claimed.
    pub epoch: Epoch,
    /// The claiming server's name, address, journal ID and services.
    pub note: Vec<u8>,
    /// Changes with each lease renewal.
    pub beat: u64,
    /// The queue's time in milliseconds at the last heartbeat.
    pub clock: Option<u64>,
    /// The server that an operator wants to become active, or empty.
    pub requested: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedSpace {
    pub used: u64,
    pub quota: u64,
}

impl SharedSpace {
    /// Returns the limit, in bytes, that the used space must not exceed after a segment is added.
    pub fn for_segments(&self) -> u64 {
        // A fifth of the quota is reserved for deletes, which also append entries.
        self.quota - self.quota / 5
    }
}

pub type Entries = Vec<(Seq, Vec<u8>)>;

/// An entry that replaces entries `first` to `last`.
#[derive(Debug, PartialEq, Eq)]
pub struct Merged {
    pub first: Seq,
    pub last: Seq,
    pub entry: Vec<u8>,
}

/// A log that survives the loss of a machine. Each method can block, but has a time limit.
pub trait SharedLog: Send + Sync {
    /// Becomes the writer by appending `entry`. Fails unless `after` is the end of the log and `known` is the last
    /// epoch. Only a claim proves where the log ends, because a read can return an older state.
    fn claim(&self, known: Epoch, after: Seq, note: &[u8], entry: &[u8]) -> Result<Epoch, Fail>;
    /// Appends after position `after`. Fails if `after` has no entry yet: concurrent appends can arrive out of order.
    fn append(&self, epoch: Epoch, after: Seq, entry: &[u8]) -> Result<(), Fail>;
    /// Reads up to `limit` entries from position `from`, and the writer's state. A full log can return `StorageFull`.
    fn read(&self, from: Seq, limit: usize) -> io::Result<(Entries, Tail)>;
    /// Returns the number of connections for renewals. With several connections, a hanging one does not end the lease.
    fn renewal_connections(&self) -> usize;
    /// Sends a heartbeat. `connection` is the index of the connection, and `clock` is the queue's time in milliseconds.
    /// Returns the name of the server that an operator wants to become active, or an empty name.
    fn renew(&self, connection: usize, epoch: Epoch, clock: u64) -> Result<Vec<u8>, Fail>;
    fn request_switch(&self, node: &[u8]) -> io::Result<()>;
    /// Publishes `state` (words separated by spaces) for the server `node`. Returns the previous state.
    fn publish(&self, node: &str, state: &str) -> io::Result<String>;
    fn nodes(&self) -> io::Result<Vec<(String, String)>>;
    fn retire(&self, node: &str) -> io::Result<()>;
    fn purge(&self, below: Seq) -> io::Result<()>;
    fn merge(&self, epoch: Epoch, merged: &Merged) -> Result<(), Fail>;
    fn space(&self) -> io::Result<SharedSpace>;
    fn compact(&self) -> io::Result<()>;
}
