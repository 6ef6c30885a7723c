//! Commands about many jobs that take several turns.
//!
//! Owns how far each of them is, and where it ends. The verbs in `verbs/flush.rs` and `verbs/moves.rs` carry them out.

use super::handle::TubeHandle;
use super::job::State;

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
    pub(in crate::engine) states: &'static [State],
    /// The last job that there was at the beginning; none before it begins.
    pub(in crate::engine) last: Option<u64>,
    /// The next slot to look at, for what stands in no queue of the tube.
    pub(in crate::engine) from: u32,
    /// How many jobs are gone.
    pub done: u64,
}

impl Flush {
    /// Of the tube with this name: its jobs in these states.
    pub fn new(tube: Box<[u8]>, states: &'static [State]) -> Flush {
        Flush { tube, states, last: None, from: 0, done: 0 }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        self.tube.len() as u64
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
    /// The number of jobs that have arrived.
    pub done: u64,
}

impl MoveJobs {
    /// Up to so many jobs, which are ready, delayed or buried.
    pub fn new(from: Box<[u8]>, to: Box<[u8]>, state: State, bound: u64) -> MoveJobs {
        MoveJobs { from, to, state, left: bound, origin: None, passed: 0, done: 0 }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        (self.from.len() + self.to.len()) as u64
    }
}
