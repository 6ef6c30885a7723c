//! What must be made durable.
//!
//! Owns the list of changes that a log has to remember, and the room that the log has left. A verb appends changes; if the
//! queue is logged, whoever called it takes them, in order, before the next verb, and writes them down. Must not know how.

use std::collections::VecDeque;

use super::job::JobId;
use super::Engine;

/// One change. Jobs are named by their slots: until the next verb, the job is there to be looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A new job.
    Put(u32),
    /// It was reserved.
    Reserve(u32),
    /// It was released, ready or delayed.
    Release(u32),
    /// It was buried.
    Bury(u32),
    /// It was kicked.
    Kick(u32),
    /// Its time to run ended, or its holder was lost and that counts.
    Expire(u32),
    /// It was leased: reserved by nobody who could be lost.
    Lease(u32),
    /// No log knew it until now: it must be written down as it is.
    Adopt(u32),
    /// A worker said how it went: it is over, with its outcome, or to be tried again.
    Outcome {
        /// Where it is.
        slot: u32,
        /// Bytes of the result, by which its body has grown.
        result: usize,
    },
    /// It is gone.
    Delete {
        /// Where it was.
        slot: u32,
        /// Its number.
        id: JobId,
        /// Length of the name of its tube.
        tube: usize,
        /// Length of its body and of what its options take.
        body: usize,
    },
    /// The pause of the tube with this number has begun.
    Pause {
        /// The tube.
        tube: u32,
        /// It was paused already.
        before: bool,
    },
    /// It was ended by hand, or the tube is gone.
    PauseEnded {
        /// The number that the tube has or had.
        tube: u32,
        /// Its name.
        name: Box<[u8]>,
        /// It was paused.
        before: bool,
    },
    /// It is over, as was said when it began.
    PauseOver {
        /// The tube.
        tube: u32,
        /// Length of its name.
        name: usize,
    },
    /// It went to another tube.
    Move {
        /// Where it is.
        slot: u32,
        /// Length of the name of the tube that it was in.
        before: usize,
    },
    /// It was lost or released, and its producer bounded how often that may be.
    Retry(u32),
    /// It got another priority.
    Priority(u32),
    /// A key outlives its job from now on, by its number.
    KeyKept(u32),
    /// It does no longer.
    KeyGone {
        /// The number that it had.
        number: u32,
        /// Bytes of the key and of the name of its tube.
        names: usize,
    },
    /// A tube has a limit from now on.
    Limit {
        /// The tube.
        tube: u32,
        /// It had one already.
        before: bool,
    },
    /// It has none any more.
    LimitEnded {
        /// The number that the tube has or had.
        tube: u32,
        /// Its name.
        name: Box<[u8]>,
    },
    /// Nothing, but a reply promises that this job is gone, and its key is not: the log must have it before the reply leaves.
    PromiseKey,
    /// Nothing, but a reply promises that this job is there, or its result: the log must have it before the reply leaves.
    Promise(u32),
}

impl Change {
    /// The job that it happened to, while that is there.
    pub fn slot(&self) -> Option<u32> {
        match *self {
            Change::Put(slot)
            | Change::Reserve(slot)
            | Change::Release(slot)
            | Change::Bury(slot)
            | Change::Kick(slot)
            | Change::Expire(slot)
            | Change::Lease(slot)
            | Change::Adopt(slot)
            | Change::Promise(slot)
            | Change::Retry(slot)
            | Change::Priority(slot)
            | Change::Move { slot, .. }
            | Change::Outcome { slot, .. } => Some(slot),
            Change::Delete { .. }
            | Change::Pause { .. }
            | Change::PauseEnded { .. }
            | Change::PauseOver { .. }
            | Change::Limit { .. }
            | Change::LimitEnded { .. }
            | Change::KeyKept(_)
            | Change::KeyGone { .. }
            | Change::PromiseKey => None,
        }
    }
}

/// How much the log can still take. Without a log, there is no end to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRoom {
    /// Bytes that new jobs may take.
    pub puts: u64,
    /// Bytes that changes to jobs may take. Deletes are always taken: their room was kept when the job was put.
    pub changes: u64,
    /// Bytes of it that one command may take which changes many jobs, before it must come again for more.
    pub burst: u64,
    /// What a new job takes beside the name of its tube and its body.
    pub put: u64,
    /// What a change takes.
    pub change: u64,
    /// The last id that may be given.
    pub ids: u64,
}

impl LogRoom {
    /// Of a queue without a log.
    pub const ENDLESS: LogRoom =
        LogRoom { puts: u64::MAX, changes: u64::MAX, burst: u64::MAX, put: 0, change: 0, ids: u64::MAX };
}

impl Engine {
    /// Keeps a list of changes from now on, for a log.
    pub fn keep_changes(&mut self) {
        self.changes = Some(VecDeque::new());
    }

    pub(super) fn changed(&mut self, change: Change) {
        let Some(changes) = &mut self.changes else { return };
        if change.slot().is_none_or(|slot| !self.jobs.get(slot).is_volatile()) {
            changes.push_back(change);
        }
    }

    /// A change to a job for which nobody has taken the log's room. Without room it is left out, and nothing depends on it:
    /// after a restart the job would come to the same end once more.
    pub(super) fn changed_by_itself(&mut self, change: Change) {
        if self.claim_log_room(0) {
            self.changed(change);
        }
    }

    /// What happened to the job in `slot` in this verb or tick is not told any more, since the job is gone.
    pub(super) fn forget_changes(&mut self, slot: u32) {
        if let Some(changes) = &mut self.changes {
            changes.retain(|change| change.slot() != Some(slot));
        }
    }

    /// The next change that the log must have.
    pub fn take_change(&mut self) -> Option<Change> {
        self.changes.as_mut()?.pop_front()
    }

    /// How much the log can take before it is asked again.
    pub fn set_log_room(&mut self, room: LogRoom) {
        self.log_room = room;
    }

    /// Bytes that the log should have for whoever tries again what was refused just now; none, mostly.
    pub fn take_lacking(&mut self) -> u64 {
        std::mem::take(&mut self.lacking)
    }

    /// Takes the log's room for one change, to a job or with a name of `extra` bytes to a tube; false if there is none, and
    /// then the change must not be made.
    pub fn claim_log_room(&mut self, extra: usize) -> bool {
        let room = self.log_room.changes.checked_sub(self.log_room.change + extra as u64);
        self.log_room.changes = room.unwrap_or(self.log_room.changes);
        room.is_some()
    }
}
