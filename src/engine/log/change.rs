//! The engine's output: events for other clients, and changes to be made durable.
//!
//! Owns both queues. A verb appends changes; if the queue is logged, the caller takes them, in order, before the next
//! verb, and writes them to the log. Must not know how.
//!
//! Touches: news, store.

use std::collections::VecDeque;

use super::log_room::LogRoom;
use crate::engine::data::{Event, GroupCount, JobId, Name, OpenOperation};
use crate::engine::Engine;

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
    /// Its [`Engine::logged_size`] before the delete.
    pub size: usize,
    /// The new counts of its groups.
    pub groups: Vec<LoggedGroup>,
}

/// One change. Jobs are identified by slots, which remain valid until the next verb.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put(u32),
    Reserve(u32),
    /// A release of the job, which is ready or delayed now.
    Release(u32),
    Bury(u32),
    Kick(u32),
    /// A schedule was due, but its last copy still existed.
    Skip(u32),
    /// The end of the time to run, or a counted loss of the holder.
    Expire(u32),
    /// A lease: no client holds the job.
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
        /// The [`Engine::logged_size`] of the replaced schedule.
        before: usize,
    },
    MemberGone(Box<MemberGone>),
    /// A group with a new name was created.
    Group(Box<LoggedGroup>),
    /// The end of a group, which no job is a member of or waits for.
    GroupGone {
        number: u32,
        name: usize,
    },
    /// The pause of the tube with this number has begun.
    Pause {
        tube: u32,
        /// `true` if it was paused already.
        before: bool,
    },
    /// The pause was ended by a command, or the tube was closed.
    PauseEnded {
        tube: u32,
        name: Box<[u8]>,
        /// `true` if it was paused until then.
        before: bool,
    },
    PauseOver {
        tube: u32,
        name: usize,
    },
    Move {
        slot: u32,
        /// Its [`Engine::logged_size`] before and afterwards.
        sizes: (usize, usize),
    },
    /// A decrease of the full record, without a record: the origin of a dead letter, or a group it waited for.
    Shrunk {
        slot: u32,
        /// The decrease of its [`Engine::logged_size`] in bytes.
        bytes: usize,
    },
    /// A loss or release of a job whose tries are limited.
    Retry(u32),
    Priority(u32),
    /// The key with this number outlives its job from now on.
    KeyKept(u32),
    /// The key no longer outlives its job.
    KeyGone {
        number: u32,
        /// The length of the key and of the name of its tube in bytes.
        names: usize,
    },
    Settings {
        tube: u32,
        /// The length of the names in its previous settings, including its own; `None` if it had none.
        before: Option<usize>,
    },
    SettingsEnded {
        tube: u32,
        name: Box<[u8]>,
        /// The length of the names in its previous settings, including its own.
        names: usize,
    },
    /// The reason of a job's failure was stored.
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
    /// The command with this number is complete, or given up.
    Closed {
        number: u32,
        /// The length of the names of its tubes in bytes.
        names: usize,
    },
    /// A reply promises that this job is gone but its key is not: the log must store the key before the reply is sent.
    PromiseKey,
    /// A reply promises that this job or its result exists: the log must store it before the reply is sent.
    Promise(u32),
}

impl Change {
    /// Returns the slot of the changed job, if it still exists.
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
            _ => None,
        }
    }

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
    /// Starts keeping a list of changes, for a log.
    pub fn keep_changes(&mut self) {
        self.news.changes = Some(VecDeque::new());
    }

    pub(in crate::engine) fn is_logged(&self) -> bool {
        self.news.changes.is_some()
    }

    /// Appends a change that is computed only if there is a log.
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

    /// Appends a change to a job for which no log space was claimed. Without space it is omitted, and nothing depends
    /// on it: after a restart the job would come to the same end again.
    pub(in crate::engine) fn changed_unclaimed(&mut self, change: Change) {
        self.changed_claimed(change, false);
    }

    /// Appends a change, after claiming log space for it unless that is `claimed` already.
    pub(in crate::engine) fn changed_claimed(&mut self, change: Change, claimed: bool) {
        if claimed || self.claim_log_room(0) {
            self.changed(change);
        }
    }

    /// Drops the pending changes of the removed job in `slot`. Returns the bytes by which they increased its size.
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

    /// Records that a schedule has just put this copy of itself: the log stores both in one record.
    pub(in crate::engine) fn put_by_schedule(&mut self, slot: u32, schedule: u32) {
        let changes = self.news.changes.iter_mut().flatten().rev();
        if let Some(put) = changes.into_iter().find(|change| **change == Change::Put(slot)) {
            *put = Change::Run { slot, schedule };
        }
    }

    /// Returns the next change for the log.
    pub fn take_change(&mut self) -> Option<Change> {
        self.news.changes.as_mut()?.pop_front()
    }
}

#[derive(Debug)]
pub struct News {
    pub(in crate::engine) events: VecDeque<Event>,
    /// `None` if the queue has no log.
    pub(in crate::engine) changes: Option<VecDeque<Change>>,
    pub(in crate::engine) room: LogRoom,
    /// Bytes of log that a verb lacked and could not have requested before.
    pub(in crate::engine) lacking: u64,
}

impl News {
    pub const fn new() -> News {
        News { events: VecDeque::new(), changes: None, room: LogRoom::ENDLESS, lacking: 0 }
    }
}
