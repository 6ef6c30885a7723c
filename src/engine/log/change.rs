//! Changes to be written to the log, and the long commands that the log records as in progress. The caller takes the
//! changes in order before the next call. After a restart, the server completes the long commands without their
//! clients. Must not depend on the format of the log, or execute commands.
//! Enforces promise P15 of beanpole-promises(7).
//! Touches: agenda, news, store, tubes.

use std::collections::VecDeque;

use super::log_room::LogRoom;
use crate::engine::data::*;
use crate::engine::Engine;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedGroup {
    pub number: u32,
    pub name: Name,
    pub count: GroupCount,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberGone {
    pub slot: u32,
    pub id: JobId,
    /// [`Engine::logged_size`] of the job before the delete.
    pub size: usize,
    pub groups: Vec<LoggedGroup>,
}

/// A change to be logged. Jobs are identified by slots, which remain valid until the engine is called again. Sizes are
/// the [`Engine::logged_size`] of the job, before and after the change. Lengths of names are totals in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put(u32),
    Reserve(u32),
    // The job was released, and is now ready or delayed.
    Release(u32),
    Bury(u32),
    Kick(u32),
    // The schedule in this slot was due, but its previous copy or its key still existed.
    Skip(u32),
    // The reservation ended without an outcome. The end counts as a timeout.
    Expire(u32),
    Lease(u32),
    // The log does not contain the job yet, and must store its current state.
    Persist(u32),
    // A try has an outcome, so the job has ended or is retried. The result is the last `result` bytes of its body.
    Outcome { slot: u32, result: usize },
    Delete { slot: u32, id: JobId, size: usize },
    // The job in `slot` is a copy that was put by `schedule`, which now has a new due time.
    Run { slot: u32, schedule: u32 },
    // A new schedule replaced a schedule that had the same ID and the size `before`.
    Replace { slot: u32, before: usize },
    MemberGone(Box<MemberGone>),
    Group(Box<LoggedGroup>),
    // The group has neither members nor waiting jobs, and was removed.
    GroupGone { number: u32, name: usize },
    // `before` is `true` if the tube was already paused.
    Pause { tube: u32, before: bool },
    // A command ended the pause, or the tube was closed.
    PauseEnded { tube: u32, name: Box<[u8]>, before: bool },
    PauseOver { tube: u32, name: usize },
    Move { slot: u32, sizes: (usize, usize) },
    // The job lost its dead-letter origin or a wait for a group, so its full record is now `bytes` bytes smaller.
    Shrunk { slot: u32, bytes: usize },
    // A reservation of a job with limited tries was lost, or the job was put with a nonzero number of failed tries.
    Retry(u32),
    Priority(u32),
    // The key with this number outlives its job.
    KeyKept(u32),
    // The key of an ended job was removed. `names` includes the name of its tube.
    KeyGone { number: u32, names: usize },
    // `before` is the length of the names in the replaced settings.
    Settings { tube: u32, before: Option<usize> },
    SettingsEnded { tube: u32, name: Box<[u8]>, names: usize },
    Reason { slot: u32, sizes: (usize, usize) },
    // A long command has begun. After a restart, the server completes the command unless `Closed` follows.
    Opened { number: u32, operation: Box<OpenOperation> },
    Closed { number: u32, names: usize },
    // A reply will reveal that other jobs, such as group members, have ended. The log must record their ends first.
    PromiseEnds,
    // A reply will refer to an ended job by its key. The log must store the key first.
    PromiseKey,
    // A reply will say that this job or its result exists. The log must store the job first.
    Promise(u32),
}

impl Change {
    pub fn slot(&self) -> Option<u32> {
        use Change::*;
        match *self {
            Put(slot) | Reserve(slot) | Release(slot) | Bury(slot) | Kick(slot) | Skip(slot) | Expire(slot)
            | Lease(slot) | Persist(slot) | Retry(slot) | Priority(slot) | Promise(slot) => Some(slot),
            Run { slot, .. } | Replace { slot, .. } | Outcome { slot, .. } => Some(slot),
            Move { slot, .. } | Reason { slot, .. } | Shrunk { slot, .. } => Some(slot),
            _ => None,
        }
    }

    /// Returns the change in the job's [`Engine::logged_size`], in bytes.
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
    pub fn keep_changes(&mut self) {
        self.news.changes = Some(VecDeque::new());
    }

    pub(in crate::engine) fn is_logged(&self) -> bool {
        self.news.changes.is_some()
    }

    #[inline(always)] // called for every change to a job
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

    /// Logs `change` if `claimed` is `true` or there is log space. An omitted change will occur again after a restart.
    pub(in crate::engine) fn changed_claimed(&mut self, change: Change, claimed: bool) {
        if claimed || self.claim_log_room(0) {
            self.changed(change);
        }
    }

    /// Drops the pending changes of a removed job. Returns their total [`Change::growth`].
    #[inline(always)] // does nothing without a log
    pub(in crate::engine) fn forget_changes(&mut self, slot: u32) -> isize {
        match &mut self.news.changes {
            Some(changes) => forget(changes, slot),
            None => 0,
        }
    }

    /// Merges the pending put of a copy with the run of `schedule`, because one record stores both.
    pub(in crate::engine) fn put_by_schedule(&mut self, slot: u32, schedule: u32) {
        let changes = self.news.changes.iter_mut().flatten().rev();
        if let Some(put) = changes.into_iter().find(|change| **change == Change::Put(slot)) {
            *put = Change::Run { slot, schedule };
        }
    }

    pub fn take_change(&mut self) -> Option<Change> {
        self.news.changes.as_mut()?.pop_front()
    }

    /// Returns `None` without a log, without log space, or with [`MAX_OPEN`] open operations.
    pub(in crate::engine) fn open_operation(&mut self, operation: OpenOperation) -> Option<u32> {
        if !self.is_logged() {
            return None;
        }
        let number = (0..MAX_OPEN).find(|number| !self.agenda.open.contains_key(number))?;
        if !self.claim_log_room(operation.names()) {
            return None;
        }
        self.changed(Change::Opened { number, operation: Box::new(operation.clone()) });
        self.agenda.open.insert(number, operation);
        Some(number)
    }

    pub(in crate::engine) fn close_operation(&mut self, open: &mut Option<u32>) {
        let Some(number) = open.take() else { return };
        if let Some(operation) = self.agenda.open.remove(&number) {
            self.changed(Change::Closed { number, names: operation.names() });
        }
    }

    /// Ends all operations. Returns what is left of them.
    pub fn abandon_operations(&mut self) -> Vec<OpenOperation> {
        let open = std::mem::take(&mut self.agenda.open);
        open.iter().for_each(|(&number, it)| self.changed(Change::Closed { number, names: it.names() }));
        open.into_values().collect()
    }

    pub fn operation_at(&self, number: u32) -> Option<&OpenOperation> {
        self.agenda.open.get(&number)
    }

    /// `None` closes the operation. Returns the length in bytes of the names in the previous operation.
    pub fn restore_operation(&mut self, number: u32, operation: Option<OpenOperation>) -> Option<usize> {
        let before = self.agenda.open.remove(&number);
        self.agenda.open.extend(operation.map(|operation| (number, operation)));
        before.map(|operation| operation.names())
    }

    /// Counts a restored move of a job as progress of the operations from `from` to `to`.
    pub(in crate::engine) fn restore_progress(&mut self, from: u32, to: &[u8]) {
        let from = &self.tubes.get(from).name;
        for operation in self.agenda.open.values_mut() {
            if *operation.from == **from && *operation.to == *to {
                operation.bound = operation.bound.saturating_sub(1);
            }
        }
    }
}

fn forget(changes: &mut VecDeque<Change>, slot: u32) -> isize {
    let mut growth = 0;
    changes.retain(|change| {
        let is_kept = change.slot() != Some(slot);
        growth += if is_kept { 0 } else { change.growth() };
        is_kept
    });
    growth
}

#[derive(Debug)]
pub struct News {
    pub(in crate::engine) events: VecDeque<Event>,
    pub(in crate::engine) changes: Option<VecDeque<Change>>,
    pub(in crate::engine) room: LogRoom,
    pub(in crate::engine) lacking: u64,
}
