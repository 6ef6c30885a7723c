//! Pending work: deadlines, long commands, deferred work, and the step budget. A *step* is the work on one job, tube or
//! watch, about 0.1 µs. Unlike measured time, counted steps are the same in every run of a test.
//! Enforces promise P22 of beanpole-promises(7).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{ClientId, Handle, Heap, JobId, Outcome, Positions, State, Time, NIL};

/// Costs in steps. The cost of a notification includes the write to the client's socket.
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

    /// Takes the steps for a piece of work from the budget. The last piece of work can exceed the budget.
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
    /// The long commands that the log records as in progress, by their numbers in the log.
    pub(in crate::engine) open: BTreeMap<u32, OpenOperation>,
}

/// Work that is deferred to a later turn, and dropped if its tube or client no longer exists. `Notify` keeps a finished
/// job's extras until all waiting clients have received the outcome. `Release` releases more jobs held for a group.
#[derive(Debug)]
pub enum Deferred {
    Disconnect(Handle<ClientId>),
    Search(Handle<ClientId>),
    Serve(Handle<u32>),
    Buried(JobId),
    Notify { extras: u32, job: JobId, outcome: Arc<Outcome>, logged: bool },
    Release(u32),
    LongCommand(LongCommand),
}

/// The maximum number of long commands that continue after their clients disconnect. Others are abandoned.
pub const MAX_OPERATIONS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKey {
    Client(u32),
    Tube(u32),
    Extras,
    Keys,
    Schedules,
}

/// Each timer has at most one entry, so the size of the heap does not depend on the number of jobs.
#[derive(Debug, Default)]
pub struct Deadlines {
    /// At equal times, clients' timers come last: a client can get a job that becomes ready just as its wait expires.
    pub heap: Heap<(Time, bool)>,
    pub positions: PositionTable,
}

/// The heap positions of the timers of clients, of tubes, and of other owners. [`NIL`] means no deadline.
#[derive(Clone, Debug, Default)]
pub struct PositionTable([Vec<u32>; 3]);

impl TimerKey {
    /// Encodes the table number in the low two bits, and the row number in the other bits.
    #[inline(always)] // for speed: most callers pass a constant variant
    const fn member(self) -> u32 {
        match self {
            TimerKey::Client(number) => number << 2,
            TimerKey::Tube(number) => number << 2 | 1,
            TimerKey::Extras => 2,
            TimerKey::Keys => 1 << 2 | 2,
            TimerKey::Schedules => 2 << 2 | 2,
        }
    }

    pub fn of(member: u32) -> TimerKey {
        match (member & 3, member >> 2) {
            (0, number) => TimerKey::Client(number),
            (1, number) => TimerKey::Tube(number),
            (_, 0) => TimerKey::Extras,
            (_, 1) => TimerKey::Keys,
            _ => TimerKey::Schedules,
        }
    }
}

impl PositionTable {
    #[inline(always)] // for speed: called at each move in the heap
    pub fn get(&mut self, member: u32) -> &mut u32 {
        let (table, row) = (&mut self.0[(member & 3) as usize], (member >> 2) as usize);
        if table.len() <= row {
            grow(table, row);
        }
        &mut table[row]
    }
}

#[cold]
fn grow(table: &mut Vec<u32>, row: usize) {
    table.resize(row + 1, NIL);
}

impl Positions for PositionTable {
    fn set_position(&mut self, member: u32, position: u32) {
        *self.get(member) = position;
    }
}

impl Deadlines {
    /// [`Time::NEVER`] removes the deadline of the timer.
    pub fn set(&mut self, owner: TimerKey, at: Time) {
        let (member, key) = (owner.member(), (at, matches!(owner, TimerKey::Client(_))));
        match (*self.positions.get(member), at) {
            (NIL, Time::NEVER) => {}
            (NIL, _) => self.heap.push(key, member, &mut self.positions),
            (position, Time::NEVER) => {
                self.heap.remove(position, &mut self.positions);
                *self.positions.get(member) = NIL;
            }
            (position, at) if self.heap.key_at(position).0 == at => {}
            (position, _) => self.heap.change(position, key, &mut self.positions),
        }
    }

    pub fn first(&self) -> Option<(Time, TimerKey)> {
        self.heap.first().map(|((at, _), member)| (at, TimerKey::of(member)))
    }
}

/// The maximum number of unfinished commands in the log. Additional commands are not resumed after a crash.
pub const MAX_OPEN: u32 = 1024;

/// A long command that is in progress. The server completes the command after a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenOperation {
    pub from: Box<[u8]>,
    /// The destination tube, or empty if the command deletes the jobs.
    pub to: Box<[u8]>,
    pub states: Box<[State]>,
    /// For a delete, the highest job ID when the operation began. For a move, the number of jobs still to be moved.
    pub bound: u64,
}

impl OpenOperation {
    pub fn names(&self) -> usize {
        self.from.len() + self.to.len()
    }

    pub(in crate::engine) fn resume(self, number: u32) -> LongCommand {
        if self.to.is_empty() {
            let flush = Flush::new(self.from, &self.states);
            return LongCommand::Flush(Flush { last: Some(self.bound), open: Some(number), ..flush });
        }
        let state = self.states.first().copied().unwrap_or(State::Ready);
        LongCommand::Move(MoveJobs { open: Some(number), ..MoveJobs::new(self.from, self.to, state, self.bound) })
    }
}

#[derive(Debug)]
pub enum LongCommand {
    Flush(Flush),
    Move(MoveJobs),
}

#[derive(Debug)]
pub struct Flush {
    pub tube: Box<[u8]>,
    pub(in crate::engine) states: Box<[State]>,
    /// The highest job ID when the flush began, or `None` if the flush has not begun.
    pub(in crate::engine) last: Option<u64>,
    /// The next slot to check. The flush checks slots, because some jobs of the tube are in none of the tube's queues.
    pub(in crate::engine) from: u32,
    /// `true` if the held jobs have been deleted. They are deleted first, because other deletes could release them.
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
    /// The tube `from`, or `None` if the move has not begun. Tubes created later with the same name are not affected.
    pub(in crate::engine) origin: Option<Handle<u32>>,
    /// The number of jobs skipped because they have expired or must not enter the destination tube.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tube_precedes_a_client_at_the_same_time() {
        let mut deadlines = Deadlines::default();
        deadlines.set(TimerKey::Client(0), Time::from_nanos(5));
        deadlines.set(TimerKey::Tube(9), Time::from_nanos(5));
        assert_eq!(deadlines.first(), Some((Time::from_nanos(5), TimerKey::Tube(9))));
    }

    #[test]
    fn a_timer_has_one_entry_which_moves_and_is_removed() {
        let at = Time::from_nanos;
        let mut deadlines = Deadlines::default();
        deadlines.set(TimerKey::Client(7), at(30));
        deadlines.set(TimerKey::Tube(7), at(20));
        deadlines.set(TimerKey::Client(7), at(10));
        assert_eq!(deadlines.first(), Some((at(10), TimerKey::Client(7))));
        deadlines.set(TimerKey::Client(7), Time::NEVER);
        deadlines.set(TimerKey::Client(7), Time::NEVER);
        assert_eq!(deadlines.first(), Some((at(20), TimerKey::Tube(7))));
        assert_eq!(deadlines.heap.len(), 1);
    }
}
