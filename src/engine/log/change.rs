//! Changes to be made durable.
//!
//! Owns the list of changes that a log must store. A verb appends changes; if the queue is logged, the caller takes
//! them, in order, before the next verb, and writes them to the log. Must not know how.
//!
//! Touches: news, store.

use std::collections::VecDeque;

use crate::engine::data::groups::GroupCount;
use crate::engine::data::job::JobId;
use crate::engine::data::name::Name;
use crate::engine::data::operations::OpenOperation;
use crate::engine::Engine;

/// A group, as the log must store it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedGroup {
    pub number: u32,
    pub name: Name,
    pub count: GroupCount,
}

/// A member of groups that was deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberGone {
    pub slot: u32,
    pub id: JobId,
    /// Its [`Engine::logged_size`] while it was there.
    pub size: usize,
    /// What its groups count from now on.
    pub groups: Vec<LoggedGroup>,
}

/// One change. Jobs are identified by slots, which remain valid until the next verb.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put(u32),
    Reserve(u32),
    /// It was released, ready or delayed.
    Release(u32),
    Bury(u32),
    Kick(u32),
    /// A schedule was due, but its last copy still existed.
    Skip(u32),
    /// Its time to run ended, or its holder was lost and that counts.
    Expire(u32),
    /// It was leased: reserved by nobody who could be lost.
    Lease(u32),
    /// The job was not in the log: it must be written in its current state.
    Adopt(u32),
    /// A worker reported the outcome: the job has ended or is tried again.
    Outcome {
        slot: u32,
        /// Bytes of the result, by which its body has grown.
        result: usize,
    },
    Delete {
        slot: u32,
        id: JobId,
        /// Its [`Engine::logged_size`] while it was there.
        size: usize,
    },
    /// A schedule, which is due later from now on, put this copy of itself.
    Run {
        slot: u32,
        schedule: u32,
    },
    /// A schedule was replaced by another one with the same ID.
    Replace {
        slot: u32,
        /// The [`Engine::logged_size`] of the one that it replaced.
        before: usize,
    },
    /// A member of groups was deleted.
    MemberGone(Box<MemberGone>),
    /// No group had this name until now.
    Group(Box<LoggedGroup>),
    /// No job is a member of a group or waits for it any more.
    GroupGone {
        number: u32,
        name: usize,
    },
    /// The pause of the tube with this number has begun.
    Pause {
        tube: u32,
        /// Whether it was paused already.
        before: bool,
    },
    /// It was ended by hand, or the tube is gone.
    PauseEnded {
        tube: u32,
        name: Box<[u8]>,
        /// Whether it was paused until then.
        before: bool,
    },
    /// It is over, as was said when it began.
    PauseOver {
        tube: u32,
        name: usize,
    },
    /// It went to another tube.
    Move {
        slot: u32,
        /// Its [`Engine::logged_size`] before and afterwards.
        sizes: (usize, usize),
    },
    /// Something that its full record contained is gone, without a record: the tube that a dead letter came from, or a
    /// group that it waited for.
    Shrunk {
        slot: u32,
        /// Bytes by which its [`Engine::logged_size`] is smaller.
        bytes: usize,
    },
    /// It was lost or released, and its producer bounded how often that may be.
    Retry(u32),
    Priority(u32),
    /// A key outlives its job from now on, by its number.
    KeyKept(u32),
    /// The key no longer outlives its job.
    KeyGone {
        number: u32,
        /// Bytes of the key and of the name of its tube.
        names: usize,
    },
    /// A tube has other settings from now on.
    Settings {
        tube: u32,
        /// Bytes of the names in its settings until now, its own included; `None` if it had none.
        before: Option<usize>,
    },
    /// It has none any more.
    SettingsEnded {
        tube: u32,
        name: Box<[u8]>,
        /// Bytes of the names in its settings until now, its own included.
        names: usize,
    },
    /// It is known why a job failed.
    Reason {
        slot: u32,
        /// Its [`Engine::logged_size`] before and afterwards.
        sizes: (usize, usize),
    },
    /// A command about many jobs begins; until the next one with this number is closed, a restart completes it.
    Opened {
        number: u32,
        operation: Box<OpenOperation>,
    },
    /// The command that was opened under this number is complete, or given up.
    Closed {
        number: u32,
        /// Bytes of the names of its tubes.
        names: usize,
    },
    /// A reply promises that this job is gone but its key is not: the log must store the key before the reply is sent.
    PromiseKey,
    /// A reply promises that this job or its result exists: the log must store it before the reply is sent.
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
            | Change::Skip(slot)
            | Change::Run { slot, .. }
            | Change::Replace { slot, .. }
            | Change::Move { slot, .. }
            | Change::Reason { slot, .. }
            | Change::Shrunk { slot, .. }
            | Change::Outcome { slot, .. } => Some(slot),
            Change::Delete { .. }
            | Change::MemberGone(_)
            | Change::Group(_)
            | Change::GroupGone { .. }
            | Change::Pause { .. }
            | Change::PauseEnded { .. }
            | Change::PauseOver { .. }
            | Change::Settings { .. }
            | Change::SettingsEnded { .. }
            | Change::KeyKept(_)
            | Change::KeyGone { .. }
            | Change::Opened { .. }
            | Change::Closed { .. }
            | Change::PromiseKey => None,
        }
    }
}

impl Change {
    /// Returns the bytes by which it made the job's [`Engine::logged_size`] larger.
    fn growth(&self) -> isize {
        match *self {
            Change::Move { sizes: (before, after), .. } | Change::Reason { sizes: (before, after), .. } => {
                after as isize - before as isize
            }
            Change::Shrunk { bytes, .. } => -(bytes as isize),
            Change::Outcome { result, .. } => result as isize,
            _ => 0,
        }
    }
}

impl Engine {
    /// Keeps a list of changes from now on, for a log.
    pub fn keep_changes(&mut self) {
        self.news.changes = Some(VecDeque::new());
    }

    /// Whether a log wants to know of changes.
    pub(in crate::engine) fn is_logged(&self) -> bool {
        self.news.changes.is_some()
    }

    /// The same of a change that is made only if there is a log.
    #[inline(always)] // this runs at every step of a job's life
    pub(in crate::engine) fn changed_if(&mut self, change: impl FnOnce() -> Change) {
        if self.is_logged() {
            self.changed(change());
        }
    }

    pub(in crate::engine) fn changed(&mut self, change: Change) {
        let Some(changes) = &mut self.news.changes else { return };
        if change.slot().is_none_or(|slot| !self.store.jobs.get(slot).is_volatile()) {
            changes.push_back(change);
        }
    }

    /// A change to a job for which nobody has taken the log's room. Without room it is left out, and nothing depends on
    /// it: after a restart the job would come to the same end once more.
    pub(in crate::engine) fn changed_by_itself(&mut self, change: Change) {
        self.changed_claimed(change, false);
    }

    /// The same if the log's room is not `claimed` already.
    pub(in crate::engine) fn changed_claimed(&mut self, change: Change, claimed: bool) {
        if claimed || self.claim_log_room(0) {
            self.changed(change);
        }
    }

    /// Drops the pending changes of the job in `slot`, which is gone. Returns the bytes by which they made its
    /// [`Engine::logged_size`] larger, which the log does not learn.
    #[inline(always)] // without a log, there is nothing to do
    pub(in crate::engine) fn forget_changes(&mut self, slot: u32) -> isize {
        if self.is_logged() {
            self.forget_logged(slot)
        } else {
            0
        }
    }

    fn forget_logged(&mut self, slot: u32) -> isize {
        let Some(changes) = &mut self.news.changes else { return 0 };
        let mut growth = 0;
        changes.retain(|change| {
            let is_kept = change.slot() != Some(slot);
            growth += if is_kept { 0 } else { change.growth() };
            is_kept
        });
        growth
    }

    /// A schedule has just put this copy of itself: the log stores both in one record.
    pub(in crate::engine) fn put_by_schedule(&mut self, slot: u32, schedule: u32) {
        let changes = self.news.changes.iter_mut().flatten().rev();
        if let Some(put) = changes.into_iter().find(|change| **change == Change::Put(slot)) {
            *put = Change::Run { slot, schedule };
        }
    }

    /// The next change that the log must have.
    pub fn take_change(&mut self) -> Option<Change> {
        self.news.changes.as_mut()?.pop_front()
    }
}
