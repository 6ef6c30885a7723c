//! What other clients than the caller must be told.
//!
//! Owns the list of such news. A verb appends events; whoever called it takes them, in order, before it lets anybody else
//! at the engine, and tells each client in its own protocol.

use super::client::ClientId;
use super::job::JobId;

/// Why a client that asked for a job gets none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoJob {
    /// It waited as long as it wanted to.
    TimedOut,
    /// A reservation of its own is in its last second.
    DeadlineSoon,
}

/// News for a client that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Its wait is over: it has this job reserved.
    Reserved {
        /// Who waited.
        client: ClientId,
        /// What it got.
        job: JobId,
    },
    /// Its wait is over, without a job.
    NoJob {
        /// Who waited.
        client: ClientId,
        /// Why it gets nothing.
        why: NoJob,
    },
}

impl Event {
    /// Whom it concerns.
    pub fn client(self) -> ClientId {
        match self {
            Event::Reserved { client, .. } | Event::NoJob { client, .. } => client,
        }
    }
}
