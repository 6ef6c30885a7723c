//! Restores groups of jobs from a log.
//!
//! Owns the effects of the log records of groups. Before [`Engine::finish_restore`], memberships are not counted and
//! waits are not queued, because the records can be in any order. Must not be used after [`Engine::finish_restore`].
//!
//! Touches: store, tubes.

use super::change::LoggedGroup;
use super::stored::StoredTies;
use crate::engine::data::{GroupCount, JobFlag, Name, State, Time};
use crate::engine::Engine;

impl Engine {
    fn restore_name(&mut self, name: &[u8]) -> u32 {
        let name = Name::from(name);
        let hash = self.tubes.hash(name.key());
        let known = self.store.groups.find(&name, hash);
        known.unwrap_or_else(|| self.store.groups.insert(name, hash, GroupCount::default()))
    }

    pub(in crate::engine) fn restore_ties(&mut self, slot: u32, ties: StoredTies) {
        let mut ties: Vec<_> = ties.iter().collect();
        // Each tie is inserted at the head of the job's list, so start with the last tie.
        while let Some(tie) = ties.pop() {
            let (group, job) = (self.restore_name(&tie.name), self.store.jobs.get_mut(slot));
            job.set(JobFlag::Tied, true);
            let id = job.id.0;
            match tie.need {
                None => self.store.groups.join(slot, group),
                Some(need) => self.store.groups.add_wait(slot, id, group, need),
            }
        }
    }

    pub(in crate::engine) fn forget_ties(&mut self, slot: u32) {
        if self.store.jobs.get(slot).is_tied() {
            self.store.groups.leave(slot);
            self.store.groups.stop_waiting(slot);
            self.store.jobs.get_mut(slot).set(JobFlag::Tied, false);
        }
    }

    pub(in crate::engine) fn forget_waits(&mut self, slot: u32) {
        let job = self.store.jobs.get(slot);
        if job.is_tied() && !matches!(job.state(), State::Held | State::Scheduled) {
            self.store.groups.stop_waiting(slot);
            let is_member = self.store.groups.of_member(slot).next().is_some();
            self.store.jobs.get_mut(slot).set(JobFlag::Tied, is_member);
        }
    }

    /// Returns the number of the group, and `true` if an earlier record described the group.
    pub fn restore_group(&mut self, name: &[u8], count: GroupCount) -> (u32, bool) {
        let number = self.restore_name(name);
        let group = self.store.groups.get_mut(number);
        group.count = count;
        (number, std::mem::replace(&mut group.logged, true))
    }

    /// Queues the `held` jobs (IDs and slots) or releases them if their waits are over. Removes groups without jobs.
    pub(in crate::engine) fn restore_held(&mut self, mut held: Vec<(u64, u32)>, now: Time) {
        held.sort_unstable();
        for (_, slot) in held {
            self.enter(slot);
            if !self.store.groups.waits(slot) {
                self.release_held(slot, Some(now));
            }
        }
        let mut next = self.store.groups.table.items.next_from(0);
        while let Some(number) = next {
            // No client is served before the restore is complete, so the step budget is unlimited.
            let _ = self.release_some(number, Some(now));
            next = self.store.groups.table.items.next_from(number + 1);
        }
    }

    pub fn group_at(&self, number: u32) -> Option<LoggedGroup> {
        let group = self.store.groups.table.items.try_get(number)?;
        Some(LoggedGroup { number, name: group.name.clone(), count: group.count })
    }
}
