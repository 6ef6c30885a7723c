//! The work that one turn may do.
//!
//! Owns the budget. A *step* is the work on one job, tube or watch, about 0.1 µs. The holder of the engine's lock
//! grants a number of steps to a turn, and a verb that has more to do stops when they are used up and reports it. Steps
//! are counted, not timed, so that the same calls always stop at the same places. Must not know what is done.
//!
//! Promises: P22.

/// Steps for moving a job between queues: a few memory accesses that usually miss the CPU's cache.
pub const MOVE: u64 = 4;

/// Steps of a tube that begins or ends.
pub const TUBE: u64 = 8;

/// Steps of a client that is told something: its news is written into its output, and behind the lock, by the same
/// thread, to its socket.
pub const TELL: u64 = 32;

/// Bytes of news that are a step more to write to a socket, and the most that one takes at a time.
const TOLD: usize = 512;
const TOLD_MOST: usize = 256 * 1024;

/// Steps of a client that is told so many bytes.
pub fn telling(bytes: usize) -> u64 {
    TELL + (bytes.min(TOLD_MOST) / TOLD) as u64
}

#[derive(Clone, Copy, Debug)]
pub struct Steps {
    left: u64,
    used: u64,
}

impl Steps {
    /// Without a bound: every verb does all it has to do.
    pub const ENDLESS: Steps = Steps::new(u64::MAX);

    pub const fn new(left: u64) -> Steps {
        Steps { left, used: 0 }
    }

    /// Takes some. A verb takes what it needs for its next piece of work and then looks whether it may go on, so a
    /// budget is exceeded by one piece at most.
    pub fn take(&mut self, steps: u64) {
        self.left = self.left.saturating_sub(steps);
        self.used = self.used.wrapping_add(steps);
    }

    pub fn left(self) -> u64 {
        self.left
    }

    /// How many were taken since they were granted.
    pub fn used(self) -> u64 {
        self.used
    }

    pub fn are_used_up(self) -> bool {
        self.left == 0
    }
}

/// How far a verb has come that may need more than one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Progress {
    Done,
    /// The steps are used up: the same verb must be called again in another turn, before any other of this client.
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
