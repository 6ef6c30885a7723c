//! Pending work: deadlines, deferred work, and the step budget.
//!
//! Owns the deadlines, the step budget and the kinds of deferred work. A *step* is the work on one job, tube or watch,
//! about 0.1 µs. The thread that holds the engine's lock sets a budget of steps. When the budget is used up, a method
//! of the engine returns [`Progress::More`], or defers the remaining work if no connection can repeat the call. Counted
//! steps, unlike time, make every run of a test the same. Deferred work refers to tubes and clients by handles, and is
//! dropped if the tube or client no longer exists.
//!
//! Enforces promise P22 of beanpole-promises(7).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{ClientHandle, Deadlines, JobId, LongCommand, OpenOperation, Outcome, TubeHandle};

/// Steps for moving a job between queues, which usually causes a few CPU cache misses.
pub const MOVE: u64 = 4;

pub const TUBE: u64 = 8;

/// Steps for notifying a client, including the write to the client's socket after the lock is released.
pub const NOTIFY: u64 = 32;

/// A notification costs one more step per `WRITTEN` bytes, up to `MAX_WRITE` bytes.
const WRITTEN: usize = 512;
const MAX_WRITE: usize = 256 * 1024;

pub fn notify_steps(bytes: usize) -> u64 {
    NOTIFY + (bytes.min(MAX_WRITE) / WRITTEN) as u64
}

#[derive(Clone, Copy, Debug)]
pub struct Steps {
    left: u64,
    used: u64,
}

impl Steps {
    pub const ENDLESS: Steps = Steps::new(u64::MAX);

    pub const fn new(left: u64) -> Steps {
        Steps { left, used: 0 }
    }

    /// Takes steps from the budget. Called before each piece of work, so the last piece can exceed the budget.
    pub fn take(&mut self, steps: u64) {
        self.left = self.left.saturating_sub(steps);
        self.used = self.used.wrapping_add(steps);
    }

    pub fn left(self) -> u64 {
        self.left
    }

    pub fn used(self) -> u64 {
        self.used
    }

    pub fn are_used_up(self) -> bool {
        self.left == 0
    }
}

impl Default for Steps {
    fn default() -> Steps {
        Steps::ENDLESS
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Progress {
    Done,
    /// The step budget is used up. The same method must be called again later, before any other method for this client.
    More,
}

impl Progress {
    pub fn then(self, reply: impl FnOnce()) -> Progress {
        if self == Progress::Done {
            reply();
        }
        self
    }
}

#[derive(Debug, Default)]
pub struct Agenda {
    pub(in crate::engine) deadlines: Deadlines,
    pub(in crate::engine) deferred: VecDeque<Deferred>,
    pub(in crate::engine) steps: Steps,
    /// Long commands in progress, by the number that identifies the command in the log.
    pub(in crate::engine) open: BTreeMap<u32, OpenOperation>,
}

#[derive(Debug)]
pub enum Deferred {
    /// A disconnected client still holds jobs or watches tubes.
    Disconnect(ClientHandle),
    /// The search for a job for a waiting or idle client is unfinished.
    Search(ClientHandle),
    /// Waiting clients of the tube must be served before other clients get its ready jobs.
    Serve(TubeHandle),
    /// The job was buried, and clients that wait for the end of the job must be notified.
    Buried(JobId),
    /// Clients wait for the outcome of a finished job. The job's extras stay until every client has been notified.
    Notify {
        extras: u32,
        job: JobId,
        outcome: Arc<Outcome>,
        logged: bool,
    },
    /// The jobs that waited for the group with this number must be released.
    Release(u32),
    LongCommand(LongCommand),
}

/// The maximum number of commands that continue without a client. Additional commands are abandoned when their clients
/// disconnect.
pub const MAX_OPERATIONS: usize = 64;
