//! The interface between a queue on several machines and its storage.
//!
//! Owns the contract of a shared log: entries in one order, and one writer at a time. Must not know what the entries
//! mean.

use std::fmt;
use std::io;

/// The position of an entry in the shared log, counted from 1 without gaps. 0 is before the first entry.
pub type Seq = u64;

/// The term of a writer, which grows with each successful claim.
pub type Epoch = u64;

/// The reason for a failed append or claim.
#[derive(Debug)]
pub enum Fail {
    /// Another writer has claimed the log, so this writer has ended permanently.
    Fenced,
    /// The position has an entry already, or the writer has changed.
    Conflict,
    /// The log has no space. It does not have the entry.
    Full,
    /// The log may have the entry, or may still receive it.
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

/// The published state of the last writer, and its last heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// The epoch of the last claim, or 0 if there was none.
    pub epoch: Epoch,
    /// The note of that claim: the name and addresses of the server.
    pub note: Vec<u8>,
    /// Changes whenever the writer renews its lease.
    pub beat: u64,
    /// The queue's time of the last heartbeat, in milliseconds since 1970.
    pub clock: Option<u64>,
    /// The name of the server that should take over.
    pub requested: Vec<u8>,
}

/// The space of the shared log in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedSpace {
    pub used: u64,
    pub quota: u64,
}

/// The divisor for the part of the quota that is reserved for deletes.
const RESERVE: u64 = 5;

impl SharedSpace {
    /// Returns the number of bytes that may be in use when a segment is added.
    pub fn for_segments(&self) -> u64 {
        self.quota - self.quota / RESERVE
    }
}

pub type Entries = Vec<(Seq, Vec<u8>)>;

/// An entry that replaces all entries from `first` to `last`.
#[derive(Debug, PartialEq, Eq)]
pub struct Merged {
    pub first: Seq,
    pub last: Seq,
    pub entry: Vec<u8>,
}

/// Entries that survive the loss of a machine. Every call may block, within a time limit.
pub trait SharedLog: Send + Sync {
    /// Becomes the writer with this entry, if `after` is the end of the log and `known` is the epoch of the last
    /// writer. Only a claim proves where the end is, because reads may return an older state.
    fn claim(&self, known: Epoch, after: Seq, note: &[u8], entry: &[u8]) -> Result<Epoch, Fail>;
    /// Appends the entry that follows `after`, as the writer of this epoch. Fails if `after` does not exist yet, as
    /// entries of several threads may arrive out of order.
    fn append(&self, epoch: Epoch, after: Seq, entry: &[u8]) -> Result<(), Fail>;
    /// Reads up to `most` entries from `from` on, in order, and the last writer's state. Purged entries are missing. A
    /// full log may fail with `StorageFull`.
    fn read(&self, from: Seq, most: usize) -> io::Result<(Entries, Tail)>;
    /// Returns the number of connections over which the lease is renewed, so that one that hangs does not end it.
    fn ways(&self) -> usize {
        1
    }
    /// Sends a heartbeat of the writer of this epoch over one of the connections, with the queue's time. Returns the
    /// name of the server that should take over.
    fn renew(&self, way: usize, epoch: Epoch, clock: u64) -> Result<Vec<u8>, Fail>;
    /// Requests that the server of this name takes over.
    fn request_switch(&self, node: &[u8]) -> io::Result<()>;
    /// Publishes the state of the server with this name, in words, and returns its previous state.
    fn publish(&self, node: &str, state: &str) -> io::Result<String>;
    /// Returns the published states of the servers, by name.
    fn nodes(&self) -> io::Result<Vec<(String, String)>>;
    /// Removes the state of a server that no longer exists.
    fn retire(&self, node: &str) -> io::Result<()>;
    fn purge(&self, below: Seq) -> io::Result<()>;
    /// Replaces entries with a merged one, as the writer of this epoch.
    fn merge(&self, epoch: Epoch, merged: &Merged) -> Result<(), Fail>;
    fn space(&self) -> io::Result<SharedSpace>;
    /// Frees the space of purged entries, and clears the alarm of a log that was full.
    fn compact(&self) -> io::Result<()> {
        Ok(())
    }
}
