//! Pending work: deadlines, work that verbs have left for other turns, and the work that one turn may do.
//!
//! Owns these, and the kinds of deferred work. A *step* is the work on one job, tube or watch, about 0.1 µs. The holder
//! of the engine's lock grants a number of steps to a turn. A verb that has more to do stops when they are used up and
//! reports it, or defers the rest if no connection can call the verb again. Steps are counted, not timed, so that the
//! same calls always stop at the same points. Deferred work refers to tubes and clients by handles, and is dropped if
//! these no longer exist.
//!
//! Promises: P22.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{ClientHandle, Deadlines, JobId, LongCommand, OpenOperation, Outcome, TubeHandle};

/// Steps for moving a job between queues: a few memory accesses that usually miss the CPU's cache.
pub const MOVE: u64 = 4;

pub const TUBE: u64 = 8;

/// Steps for notifying a client, including the later write to its socket by the same thread without the lock.
pub const NOTIFY: u64 = 32;

/// The number of notification bytes whose write to a socket takes one more step, and the most that one write takes.
const WRITTEN: usize = 512;
const MAX_WRITE: usize = 256 * 1024;

/// Returns the steps for a notification of this size.
pub fn notify_steps(bytes: usize) -> u64 {
    NOTIFY + (bytes.min(MAX_WRITE) / WRITTEN) as u64
}

#[derive(Clone, Copy, Debug)]
pub struct Steps {
    left: u64,
    used: u64,
}

impl Steps {
    /// An unlimited budget: every verb completes.
    pub const ENDLESS: Steps = Steps::new(u64::MAX);

    pub const fn new(left: u64) -> Steps {
        Steps { left, used: 0 }
    }

    /// Uses up steps. A verb does so before each piece of work, so it exceeds a budget by one piece at most.
    pub fn take(&mut self, steps: u64) {
        self.left = self.left.saturating_sub(steps);
        self.used = self.used.wrapping_add(steps);
    }

    pub fn left(self) -> u64 {
        self.left
    }

    /// Returns the number of steps taken since they were granted.
    pub fn used(self) -> u64 {
        self.used
    }

    pub fn are_used_up(self) -> bool {
        self.left == 0
    }
}

/// The progress of a verb that may need more than one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Progress {
    Done,
    /// The steps are used up: the same verb must be called again in another turn, before any other verb of this client.
    More,
}

impl Progress {
    /// Calls `reply` if it is done.
    pub fn then(self, reply: impl FnOnce()) -> Progress {
        if self == Progress::Done {
            reply();
        }
        self
    }
}

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
