//! Work that verbs have left for other turns.
//!
//! Owns its kinds. A verb does what fits into the steps of its turn, and adds the rest to the queue of deferred work if
//! no connection can call the verb again. Deferred work refers to tubes and clients by handles, and is dropped if these
//! no longer exist.

use std::sync::Arc;

use super::{ClientHandle, JobId, LongCommand, Outcome, TubeHandle};

#[derive(Debug)]
pub enum Deferred {
    /// A disconnected client still holds jobs or watches tubes.
    Disconnect(ClientHandle),
    /// A client waits or is idle, and its search is unfinished.
    Search(ClientHandle),
    /// A tube has ready jobs and waiting clients. Until all of these are served, no other client may take its jobs.
    Serve(TubeHandle),
    /// Clients wait for the outcome of this job, which was buried.
    Buried(JobId),
    /// Clients wait for the outcome of a finished job. The extras have outlived the job, and stay until all clients are
    /// notified.
    Tell { extras: u32, job: JobId, outcome: Arc<Outcome>, logged: bool },
    /// Jobs whose waits for the group with this number have ended are still to be released.
    Release(u32),
    /// A long command whose client has disconnected.
    LongCommand(LongCommand),
}

/// The maximum number of commands without clients in progress. Further ones end with their clients, so that no client
/// delays other work by disconnecting repeatedly.
pub const MOST_OPERATIONS: usize = 64;
