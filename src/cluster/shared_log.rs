//! The interface between a queue on several machines and its storage.
//!
//! Owns the terms of a shared log: entries in one order, one writer at a time, and the proof of who that is. Must not
//! know what the entries mean.

use std::fmt;
use std::io;

/// The position of an entry in the shared log, counted from 1 without gaps; 0 is before the first.
pub type Seq = u64;

/// The number of a writer's term: each successful claim has a larger one than all before it.
pub type Epoch = u64;

/// The reason why an entry is not known to be in the log.
#[derive(Debug)]
pub enum Fail {
    /// Another writer has claimed the log; this one has ended permanently.
    Fenced,
    /// Its position is taken, or the writer has changed: only reading shows by whom.
    Conflict,
    /// The log has no space. It is certain that the entry is not in it.
    Full,
    /// It may or may not be in the log, and may still arrive there.
    Unknown(io::Error),
}

impl fmt::Display for Fail {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Fail::Fenced => formatter.write_str("another server has taken over"),
            Fail::Conflict => formatter.write_str("its place is taken"),
            Fail::Full => formatter.write_str("the shared log is full"),
            Fail::Unknown(error) => error.fmt(formatter),
        }
    }
}

/// What the last writer has published about itself, and its last sign of life.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// The epoch of the last claim; 0 if there was none.
    pub epoch: Epoch,
    /// The note of that claim: the addresses of the server for clients.
    pub note: Vec<u8>,
    /// Changes whenever the writer renews its lease.
    pub beat: u64,
    /// The queue's time then, in milliseconds since 1970.
    pub clock: Option<u64>,
    /// The requested server of a switch.
    pub wanted: Vec<u8>,
}

/// The amount of space in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    pub used: u64,
    pub quota: u64,
}

/// The part of the quota that is kept free, so that deletes always find space: a fifth.
const KEPT: u64 = 5;

impl Room {
    /// Returns the number of bytes that may be in use when a segment is added.
    pub fn for_segments(&self) -> u64 {
        self.quota - self.quota / KEPT
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

/// Entries that survive the loss of a machine. Every call may take as long as the network needs, within a time limit.
pub trait SharedLog: Send + Sync {
    /// Becomes the writer with this entry, if `after` is exactly the end of the log and `known` is the epoch of the
    /// last writer. Only this proves what the end is: reads may be behind.
    fn claim(&self, known: Epoch, after: Seq, note: &[u8], entry: &[u8]) -> Result<Epoch, Fail>;
    /// Appends the entry that follows `after`, as the writer of this epoch. Fails if `after` does not exist yet:
    /// several threads may append consecutive entries, which may arrive in another order.
    fn append(&self, epoch: Epoch, after: Seq, entry: &[u8]) -> Result<(), Fail>;
    /// Reads up to `most` entries starting at `from`, in order, and the last writer's state. The first remaining entry
    /// may be a later one, if those before were purged. A log without space may refuse this too, as `StorageFull`.
    fn read(&self, from: Seq, most: usize) -> io::Result<(Entries, Tail)>;
    /// Returns over how many connections at a time the lease can be renewed, so that a hanging one does not end it.
    fn ways(&self) -> usize {
        1
    }
    /// Reports over one of the connections that the writer of this epoch is alive, and the queue's time. Returns `true`
    /// if a switch is requested.
    fn renew(&self, way: usize, epoch: Epoch, clock: u64) -> Result<Vec<u8>, Fail>;
    /// Asks the active server to hand over to the server of this name, or to any if it is empty.
    fn want(&self, node: &[u8]) -> io::Result<()>;
    /// Publishes the state of the server with this name, in words, and returns its previous state.
    fn tell(&self, node: &str, state: &str) -> io::Result<String>;
    /// Returns the published states of the servers, by name.
    fn nodes(&self) -> io::Result<Vec<(String, String)>>;
    /// Removes a server that does not come back.
    fn retire(&self, node: &str) -> io::Result<()>;
    /// Removes the entries before `below`.
    fn purge(&self, below: Seq) -> io::Result<()>;
    /// Replaces entries with one that stands for them, as the writer of this epoch.
    fn merge(&self, epoch: Epoch, merged: &Merged) -> Result<(), Fail>;
    /// Returns the amount of space.
    fn room(&self) -> io::Result<Room>;
    /// Returns the space of purged entries, and clears the alarm of a log that was full.
    fn tidy_up(&self) -> io::Result<()> {
        Ok(())
    }
}
