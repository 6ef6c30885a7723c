//! Pending work: deadlines, long commands, deferred work, and the step budget. A *step* is the work on one job, tube or
//! watch, about 0.1 µs. Counted steps, unlike time, make every run of a test the same.
//! Enforces promise P22 of beanpole-promises(7).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{ClientHandle, Deadlines, JobId, LongCommand, OpenOperation, Outcome, TubeHandle};

/// Costs in steps: moving a job between queues, handling a tube, and notifying a client, including the write to its
/// socket.
pub const MOVE: u64 = 4;

pub const TUBE: u64 = 8;

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

    /// Called before each piece of work, so the last piece can exceed the budget.
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
    /// The step budget is used up. The caller must repeat the call before any other call for this client.
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
    /// By the number that identifies the command in the log.
    pub(in crate::engine) open: BTreeMap<u32, OpenOperation>,
}

#[derive(Debug)]
pub enum Deferred {
    Disconnect(ClientHandle),
    Search(ClientHandle),
    Serve(TubeHandle),
    Buried(JobId),
    Notify { extras: u32, job: JobId, outcome: Arc<Outcome>, logged: bool },
    Release(u32),
    LongCommand(LongCommand),
}

/// Additional commands are abandoned when their clients disconnect.
pub const MAX_OPERATIONS: usize = 64;
