//! Work that verbs have left for other turns.
//!
//! Owns the kinds of it. A verb whose work may be very long does what fits into the steps of its turn and leaves the
//! rest to the queue of deferred work, if no connection is there to call it again. What the rest is about may be gone
//! before its turn comes: it names tubes and clients by handles, and is dropped with them.

use std::sync::Arc;

use super::event::Outcome;
use super::handle::{ClientHandle, TubeHandle};
use super::job::JobId;
use super::operations::LongCommand;

/// Work that is not done.
#[derive(Debug)]
pub(in crate::engine) enum Deferred {
    /// A client has disconnected, and holds jobs or watches tubes.
    Disconnect(ClientHandle),
    /// A client waits or is idle, and its search is not over.
    Search(ClientHandle),
    /// A tube has ready jobs, and clients that wait; until all of them are served, nobody else may take its jobs.
    Serve(TubeHandle),
    /// Clients wait until this job is gone or set aside, and it was set aside.
    Buried(JobId),
    /// Clients wait for the outcome of a job that is over, by these extras, which has no job any more and stays until
    /// this is done.
    Tell { extras: u32, job: JobId, outcome: Arc<Outcome>, logged: bool },
    /// The client of this command is gone.
    LongCommand(LongCommand),
}

/// Commands without clients that are completed at the same time. More end with their clients, so that nobody delays
/// other work by hanging up again and again.
pub(in crate::engine) const MOST_OPERATIONS: usize = 64;

/// Every kind of it; tests go through all of them.
#[cfg(test)]
pub const DEFERRED: [&str; 6] = ["disconnect", "search", "serve", "buried", "tell", "operation"];
