//! The interface to the shared log, in which a cluster stores the binlog of its queue.
//!
//! Owns the contract: entries have a total order, and the log has one writer at a time. Must not depend on the contents
//! of entries.

use std::fmt;
use std::io;

/// The position of an entry in the shared log. The first entry has position 1. 0 means the start of the log.
pub type Seq = u64;

/// The term of a writer. Each successful claim increments the epoch.
pub type Epoch = u64;

#[derive(Debug)]
pub enum Fail {
    /// Another writer has claimed the log. All later appends in the old epoch fail as well.
    Fenced,
    /// An entry exists at the requested position, the preceding entry is missing, or the writer has changed.
    Conflict,
    /// The log has no free space. The entry was not appended.
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
    /// The epoch of the last claim, or 0 if the log was never claimed.
    pub epoch: Epoch,
    /// The note of the last claim: name, address, journal ID and services of the server.
    pub note: Vec<u8>,
    /// A heartbeat ID that changes with each lease renewal.
    pub beat: u64,
    /// The queue's time at the last heartbeat, in milliseconds since 1970.
    pub clock: Option<u64>,
    /// The name of the server that an operator wants to become active, or empty.
    pub requested: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedSpace {
    pub used: u64,
    pub quota: u64,
}

/// One fifth of the quota is reserved for deletes.
const RESERVE: u64 = 5;

impl SharedSpace {
    /// Returns the size of the shared log, in bytes, up to which new segments may be added.
    pub fn for_segments(&self) -> u64 {
        self.quota - self.quota / RESERVE
    }
}

pub type Entries = Vec<(Seq, Vec<u8>)>;

/// An entry that replaces all entries from position `first` to `last`.
#[derive(Debug, PartialEq, Eq)]
pub struct Merged {
    pub first: Seq,
    pub last: Seq,
    pub entry: Vec<u8>,
}

/// A log that survives the loss of a machine. Each method can block, but has a time limit.
pub trait SharedLog: Send + Sync {
    /// Becomes the writer by appending `entry` after position `after`. Fails unless `after` is the end of the log and
    /// `known` is the epoch of the last writer. Only a claim proves where the log ends, because a read can return an
    /// older state.
    fn claim(&self, known: Epoch, after: Seq, note: &[u8], entry: &[u8]) -> Result<Epoch, Fail>;
    /// Appends `entry` after position `after`, as the writer of `epoch`. Fails if the entry at `after` is missing:
    /// concurrent appends can arrive out of order.
    fn append(&self, epoch: Epoch, after: Seq, entry: &[u8]) -> Result<(), Fail>;
    /// Reads at most `limit` entries in order, starting at position `from`, and the state of the last writer. Omits
    /// purged entries. Can fail with `StorageFull` if the log is full.
    fn read(&self, from: Seq, limit: usize) -> io::Result<(Entries, Tail)>;
    /// Returns the number of connections for lease renewal. With several, a hanging connection does not end the lease.
    fn renewal_connections(&self) -> usize {
        1
    }
    /// Sends a heartbeat for the writer of `epoch`. `connection` is the index of the connection. `clock` is the queue's
    /// time in milliseconds since 1970. Returns the name of the server that an operator wants to become active, or an
    /// empty name.
    fn renew(&self, connection: usize, epoch: Epoch, clock: u64) -> Result<Vec<u8>, Fail>;
    fn request_switch(&self, node: &[u8]) -> io::Result<()>;
    /// Publishes the status of the server named `node`, as words, and returns the previous status.
    fn publish(&self, node: &str, state: &str) -> io::Result<String>;
    fn nodes(&self) -> io::Result<Vec<(String, String)>>;
    fn retire(&self, node: &str) -> io::Result<()>;
    fn purge(&self, below: Seq) -> io::Result<()>;
    /// Replaces entries by a merged entry, as the writer of `epoch`.
    fn merge(&self, epoch: Epoch, merged: &Merged) -> Result<(), Fail>;
    fn space(&self) -> io::Result<SharedSpace>;
    /// Frees the disk space of purged entries, and clears the out-of-space alarm.
    fn compact(&self) -> io::Result<()> {
        Ok(())
    }
}
