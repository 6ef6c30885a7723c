//! Pending work: deadlines, work that verbs have left for other turns, and the steps of this turn.
//!
//! Owns these, and the kinds of deferred work. A verb does what fits into the steps of its turn, and defers the rest if
//! no connection can call the verb again. Deferred work refers to tubes and clients by handles, and is dropped if these
//! no longer exist.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{ClientHandle, Deadlines, JobId, LongCommand, OpenOperation, Outcome, Steps, TubeHandle};

#[derive(Debug)]
pub struct Agenda {
    pub(in crate::engine) deadlines: Deadlines,
    pub(in crate::engine) deferred: VecDeque<Deferred>,
    pub(in crate::engine) steps: Steps,
    /// Long commands in progress, by their numbers in the log.
    pub(in crate::engine) open: BTreeMap<u32, OpenOperation>,
}

impl Agenda {
    pub fn new() -> Agenda {
        Agenda {
            deadlines: Deadlines::default(),
            deferred: VecDeque::new(),
            steps: Steps::ENDLESS,
            open: BTreeMap::new(),
        }
    }
}

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
    /// Clients wait for the outcome of a finished job. The extras have outlived the job and stay until then.
    Notify {
        extras: u32,
        job: JobId,
        outcome: Arc<Outcome>,
        logged: bool,
    },
    /// Jobs whose waits for the group with this number have ended are still to be released.
    Release(u32),
    LongCommand(LongCommand),
}

/// The maximum number of commands in progress without clients. Further ones end with their clients.
pub const MAX_OPERATIONS: usize = 64;
