//! Long commands, which process many jobs in several calls, so that other clients are served in between.
//!
//! Owns the progress of each command. Must not execute commands: `verbs/flush.rs` and `verbs/moves.rs` do.

use super::{State, TubeHandle};

/// Additional commands are not resumed after a crash.
pub const MAX_OPEN: u32 = 1024;

/// The server completes these commands after a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenOperation {
    pub from: Box<[u8]>,
    /// Empty if the jobs are deleted.
    pub to: Box<[u8]>,
    pub states: Box<[State]>,
    /// For a delete, the highest job ID when the operation began. For a move, the number of jobs still to be moved.
    pub bound: u64,
}

impl OpenOperation {
    pub fn names(&self) -> usize {
        self.from.len() + self.to.len()
    }

    /// `number` identifies the operation in the log.
    pub(in crate::engine) fn resume(self, number: u32) -> LongCommand {
        if self.to.is_empty() {
            let flush = Flush { last: Some(self.bound), open: Some(number), ..Flush::new(self.from, &[]) };
            return LongCommand::Flush(Flush { states: self.states, ..flush });
        }
        let state = self.states.first().copied().unwrap_or(State::Ready);
        LongCommand::Move(MoveJobs { open: Some(number), ..MoveJobs::new(self.from, self.to, state, self.bound) })
    }
}

/// A command that continues after its client disconnects.
#[derive(Debug)]
pub enum LongCommand {
    Flush(Flush),
    Move(MoveJobs),
}

#[derive(Debug)]
pub struct Flush {
    pub tube: Box<[u8]>,
    pub(in crate::engine) states: Box<[State]>,
    /// The highest job ID at the start, or `None` before the start.
    pub(in crate::engine) last: Option<u64>,
    /// The next slot to check. Some jobs of the tube are in none of its queues.
    pub(in crate::engine) from: u32,
    /// Held jobs are deleted first, because deletes of other jobs could release them.
    pub(in crate::engine) held_done: bool,
    /// The command's number in the log.
    pub(in crate::engine) open: Option<u32>,
    pub done: u64,
}

impl Flush {
    pub fn new(tube: Box<[u8]>, states: &[State]) -> Flush {
        Flush { tube, states: states.into(), last: None, from: 0, held_done: false, open: None, done: 0 }
    }

    pub fn footprint(&self) -> u64 {
        2 * self.tube.len() as u64
    }
}

#[derive(Debug)]
pub struct MoveJobs {
    pub from: Box<[u8]>,
    pub to: Box<[u8]>,
    pub(in crate::engine) state: State,
    pub left: u64,
    /// `None` before the start. A later tube with the same name is not affected.
    pub(in crate::engine) origin: Option<TubeHandle>,
    /// Jobs skipped because the destination already has a job with the same key.
    pub(in crate::engine) passed: usize,
    pub(in crate::engine) open: Option<u32>,
    pub done: u64,
}

impl MoveJobs {
    pub fn new(from: Box<[u8]>, to: Box<[u8]>, state: State, bound: u64) -> MoveJobs {
        MoveJobs { from, to, state, left: bound, origin: None, passed: 0, open: None, done: 0 }
    }

    pub fn footprint(&self) -> u64 {
        2 * (self.from.len() + self.to.len()) as u64
    }
}
