//! The interface to a cluster's shared log, which has a total order of entries and one writer, and a server's reports.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io, sync::Arc};

use crate::shared::role::RoleBoard;

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

pub struct Member {
    pub log: Arc<dyn SharedLog>,
    pub board: Arc<RoleBoard>,
    pub name: String,
    pub address: String,
    /// Addresses for clients, by protocol: words like `http=HOST:PORT`, each preceded by a space.
    pub services: String,
    pub id: u64,
    pub has_reported: AtomicBool,
    pub is_space_hidden: AtomicBool,
}

impl Member {
    pub fn report(&self, role: &str, entry: Seq) {
        let Member { name, address, id, board, .. } = self;
        let (time, lag, ahead) = (board.queue_time(), board.figures().lag().as_millis(), board.ahead());
        let state = format!("{role} {entry} {address} {id:016x} {time} {lag} {ahead}");
        let Ok(before) = self.log.publish(name, &state) else { return };
        // After the first report, only another server with this name can have changed the state.
        let is_own = before.split(' ').nth(3).is_none_or(|word| u64::from_str_radix(word, 16) == Ok(*id));
        if self.has_reported.swap(true, Ordering::Relaxed) && !is_own {
            let other = before.split(' ').nth(2).unwrap_or_default();
            log::error!("journal: the server at {other} is named {name} too; set different names (--node)");
        }
    }

    pub fn query_space(&self) -> io::Result<SharedSpace> {
        let space = self.log.space().inspect_err(|error| {
            let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
            if is_denied && !self.is_space_hidden.swap(true, Ordering::Relaxed) {
                log::warn!("journal: cannot query the free space of etcd, so puts are not refused in time: {error}");
            }
        })?;
        self.board.note(|figures| (figures.used, figures.quota) = (space.used, space.quota));
        Ok(space)
    }
}
