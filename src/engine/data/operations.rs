//! Commands about many jobs that take several turns.
//!
//! Owns how far each of them is, and where it ends. The verbs in `verbs/flush.rs` and `verbs/moves.rs` carry them out.

use super::handle::TubeHandle;
use super::job::State;

/// Commands that the log knows to be in progress at the same time. More are carried out as well, but a crash may leave
/// them half done.
pub const MOST_OPEN: u32 = 1024;

/// A command in progress, as the log knows it: after a crash it is completed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenOperation {
    /// The name of the tube whose jobs are deleted or moved.
    pub from: Box<[u8]>,
    /// The name of the tube that they are moved to; empty if they are deleted.
    pub to: Box<[u8]>,
    /// The states of these jobs.
    pub states: Box<[State]>,
    /// Delete: the last id that existed at the beginning. Move: the number of jobs that are still to be moved.
    pub bound: u64,
}

impl OpenOperation {
    /// Returns the bytes of the names of both tubes.
    pub fn names(&self) -> usize {
        self.from.len() + self.to.len()
    }

    /// Returns the command, which has this number in the log.
    pub(in crate::engine) fn resume(self, number: u32) -> LongCommand {
        if self.to.is_empty() {
            let flush = Flush { last: Some(self.bound), open: Some(number), ..Flush::new(self.from, &[]) };
            return LongCommand::Flush(Flush { states: self.states, ..flush });
        }
        let state = self.states.first().copied().unwrap_or(State::Ready);
        LongCommand::Move(MoveJobs { open: Some(number), ..MoveJobs::new(self.from, self.to, state, self.bound) })
    }
}

/// A command that completes although its client hangs up.
#[derive(Debug)]
pub enum LongCommand {
    Flush(Flush),
    Move(MoveJobs),
}

/// A tube that is being emptied.
#[derive(Debug)]
pub struct Flush {
    /// The name of the tube.
    pub(in crate::engine) tube: Box<[u8]>,
    /// The states of the jobs that go.
    pub(in crate::engine) states: Box<[State]>,
    /// The last job that there was at the beginning; none before it begins.
    pub(in crate::engine) last: Option<u64>,
    /// The next slot to look at, for what stands in no queue of the tube.
    pub(in crate::engine) from: u32,
    /// The number by which the log knows it.
    pub(in crate::engine) open: Option<u32>,
    /// How many jobs are gone.
    pub done: u64,
}

impl Flush {
    /// Of the tube with this name: its jobs in these states.
    pub fn new(tube: Box<[u8]>, states: &[State]) -> Flush {
        Flush { tube, states: states.into(), last: None, from: 0, open: None, done: 0 }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        2 * self.tube.len() as u64
    }
}

/// Jobs of one state that go to another tube.
#[derive(Debug)]
pub struct MoveJobs {
    pub(in crate::engine) from: Box<[u8]>,
    pub(in crate::engine) to: Box<[u8]>,
    pub(in crate::engine) state: State,
    /// How many at most are still to go.
    pub(in crate::engine) left: u64,
    /// The tube that they come from, once it has begun: another one that is opened later under that name has none of
    /// them.
    pub(in crate::engine) origin: Option<TubeHandle>,
    /// How many have to stay: the other tube has their keys.
    pub(in crate::engine) passed: usize,
    /// The number by which the log knows it.
    pub(in crate::engine) open: Option<u32>,
    /// The number of jobs that have arrived.
    pub done: u64,
}

impl MoveJobs {
    /// Up to so many jobs, which are ready, delayed or buried.
    pub fn new(from: Box<[u8]>, to: Box<[u8]>, state: State, bound: u64) -> MoveJobs {
        MoveJobs { from, to, state, left: bound, origin: None, passed: 0, open: None, done: 0 }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        2 * (self.from.len() + self.to.len()) as u64
    }
}
