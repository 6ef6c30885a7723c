//! The seam between a queue that several machines keep and what they keep it in.
//!
//! Owns the words of a shared log: entries in one order, one writer at a time, and the proof of who that is. Must not
//! know what the entries mean.

use std::fmt;
use std::io;

/// The place of an entry in the shared log, counted from 1 without gaps; 0 is before the first.
pub type Seq = u64;

/// The number of a writer's turn: each claim that succeeds has a larger one than all before it.
pub type Epoch = u64;

/// Why an entry is not known to be in the log.
#[derive(Debug)]
pub enum Fail {
    /// Another writer has claimed the log; this one is over for good.
    Fenced,
    /// Its place is taken, or the writer is no longer the one: by whom, only reading tells.
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

/// What the last writer has said of itself, and of being alive.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// The epoch of the last claim; 0 if there was none.
    pub epoch: Epoch,
    /// What that claim noted: where clients find the server.
    pub note: Vec<u8>,
    /// Changes whenever the writer renews its lease.
    pub beat: u64,
    /// The queue's time then, in milliseconds since 1970.
    pub clock: Option<u64>,
    /// Somebody has asked for a switch.
    pub wanted: Vec<u8>,
}

/// How much space there is, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    pub used: u64,
    pub quota: u64,
}

/// The part of the quota that is kept free, so that deletes always find space: a fifth.
const KEPT: u64 = 5;

impl Room {
    /// The bytes that may be used when a segment is added.
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

/// Entries that survive the loss of a machine. Every call may take as long as the network likes, within a time-out.
pub trait SharedLog: Send + Sync {
    /// Becomes the writer with this entry, if `after` is exactly the end of the log and `known` is the epoch of the
    /// last writer. Only this proves what the end is: reading may be behind.
    fn claim(&self, known: Epoch, after: Seq, note: &[u8], entry: &[u8]) -> Result<Epoch, Fail>;
    /// Appends the entry that comes behind `after`, as the writer of this epoch. Fails if `after` is not there yet:
    /// several threads may append entries that follow each other, which may arrive in another order.
    fn append(&self, epoch: Epoch, after: Seq, entry: &[u8]) -> Result<(), Fail>;
    /// Reads up to `most` entries from `from` on, in order, and what the last writer has said. The first that is left
    /// may be a later one, if those before were purged. A log without space may refuse that too, as `StorageFull`.
    fn read(&self, from: Seq, most: usize) -> io::Result<(Entries, Tail)>;
    /// In how many ways at a time the lease can be renewed, so that one that hangs does not end it.
    fn ways(&self) -> usize {
        1
    }
    /// Says in one of the ways that the writer of this epoch is alive, and the queue's time; tells whether a switch is
    /// wanted.
    fn renew(&self, way: usize, epoch: Epoch, clock: u64) -> Result<Vec<u8>, Fail>;
    /// Asks the active server to hand over to the server of this name, or to any if it is empty.
    fn want(&self, node: &[u8]) -> io::Result<()>;
    /// Tells the others where the server of this name is, in words, and returns what was told before.
    fn tell(&self, node: &str, state: &str) -> io::Result<String>;
    /// What the servers have told, by name.
    fn nodes(&self) -> io::Result<Vec<(String, String)>>;
    /// Forgets a server that does not come back.
    fn retire(&self, node: &str) -> io::Result<()>;
    /// Forgets the entries before `below`.
    fn purge(&self, below: Seq) -> io::Result<()>;
    /// Replaces entries by one that stands for them, as the writer of this epoch.
    fn merge(&self, epoch: Epoch, merged: &Merged) -> Result<(), Fail>;
    /// How much space there is.
    fn room(&self) -> io::Result<Room>;
    /// Gives the space of purged entries back, and ends the alarm of a log that was full.
    fn tidy_up(&self) -> io::Result<()> {
        Ok(())
    }
}
