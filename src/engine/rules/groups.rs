//! Groups of jobs and the jobs that wait for groups: the tags `grp:` and `aft:`. A group exists while any job is a
//! member or waits for the group. Deleted, flushed and expired members count as ended. Must not delete jobs.
//! Enforces promise P30 of beanpole-promises(7).
//! Touches: agenda, news, store, tubes.

use crate::engine::data::*;
use crate::engine::log::{Change, LoggedGroup};
use crate::engine::Engine;

impl Engine {
    pub(in crate::engine) fn find_group(&self, name: &Name) -> Option<u32> {
        self.store.groups.find(name, self.tubes.hash(name.key()))
    }

    /// Creates the group if necessary. A new group does not affect jobs with IDs up to `last`.
    fn open_group(&mut self, name: &Name, last: u64) -> u32 {
        if let Some(number) = self.find_group(name) {
            return number;
        }
        let count = GroupCount { ended: 0, complete_to: last, created_at: last };
        let number = self.store.groups.insert(name.clone(), self.tubes.hash(name.key()), count);
        if self.is_logged() {
            self.store.groups.get_mut(number).logged = true;
            self.changed(Change::Group(Box::new(self.logged_group(number))));
        }
        number
    }

    /// The job must be in no queue.
    pub(in crate::engine) fn tie(&mut self, slot: u32, tags: &[GroupTag]) {
        let id = self.store.jobs.get(slot).id.0;
        // Each tie is prepended to a chain, so start with the last tag.
        for tag in tags.iter().take(MAX_TIES).rev() {
            let known = self.find_group(&tag.name).map(|number| self.store.groups.get(number));
            let need = match tag.tie {
                Tie::Member => {
                    let number = self.open_group(&tag.name, id - 1);
                    self.store.groups.join(slot, number);
                    self.store.jobs.get_mut(slot).set(JobFlag::Tied, true);
                    continue;
                }
                Tie::After { even_if_new: true } => 0,
                Tie::After { .. } if known.is_some_and(|group| group.size() > 0) => 0,
                Tie::AfterCount(need) if known.is_none_or(|group| group.count.ended < need.into()) => need,
                Tie::After { .. } | Tie::AfterCount(_) => continue,
            };
            let number = self.open_group(&tag.name, id - 1);
            self.store.groups.add_wait(slot, id, number, need);
            let job = self.store.jobs.get_mut(slot);
            job.set(JobFlag::Tied, true);
            job.hold();
        }
    }

    pub(in crate::engine) fn enter_groups(&mut self, slot: u32) {
        let job = self.store.jobs.get(slot);
        if !job.is_tied() {
            return;
        }
        let state = job.state();
        self.store.groups.count(slot, state as usize, true);
        if state == State::Held {
            self.store.groups.enqueue(slot);
        }
    }

    #[inline(never)] // cold: few jobs are tied to groups
    pub(in crate::engine) fn leave_groups(&mut self, slot: u32) {
        let state = self.store.jobs.get(slot).state();
        self.store.groups.count(slot, state as usize, false);
        if state == State::Held && self.store.groups.waits(slot) {
            let before = self.logged_size(slot);
            let groups = self.store.groups.stop_waiting(slot);
            self.retie(slot, before);
            groups.into_iter().for_each(|number| self.close_group_if_idle(number));
        }
    }

    /// Updates [`JobFlag::Tied`], and logs the decrease of the job's logged size from `before`.
    fn retie(&mut self, slot: u32, before: usize) {
        let is_tied = self.store.groups.of_member(slot).next().is_some() || self.store.groups.waits(slot);
        self.store.jobs.get_mut(slot).set(JobFlag::Tied, is_tied);
        let bytes = before - self.logged_size(slot);
        self.changed(Change::Shrunk { slot, bytes });
    }

    /// Must be called before the job is removed. Returns the new counts for the log.
    pub(in crate::engine) fn end_membership(&mut self, slot: u32) -> Vec<LoggedGroup> {
        if !self.store.jobs.get(slot).is_tied() {
            return Vec::new();
        }
        let groups = self.store.groups.leave(slot);
        let last = self.store.last_id;
        for &number in &groups {
            let group = self.store.groups.get_mut(number);
            group.count.ended += 1;
            if group.size() == 0 {
                group.count.complete_to = last;
            }
        }
        groups.into_iter().map(|number| self.logged_group(number)).collect()
    }

    pub(in crate::engine) fn settle_groups(&mut self, groups: &[LoggedGroup]) {
        for LoggedGroup { number, .. } in groups {
            // Releasing the jobs of one group can remove another group in the list, but does not reuse its number.
            if self.store.groups.table.items.try_get(*number).is_none() {
                continue;
            }
            if self.release_some(*number, None) == Progress::More {
                let group = self.store.groups.get_mut(*number);
                if !std::mem::replace(&mut group.releasing, true) {
                    self.agenda.deferred.push_back(Deferred::Release(*number));
                }
            }
        }
    }

    pub(in crate::engine) fn release_on(&mut self, number: u32) -> Option<Progress> {
        self.store.groups.table.items.try_get(number).filter(|group| group.releasing)?;
        let progress = self.release_some(number, None);
        if progress == Progress::Done && self.store.groups.table.items.try_get(number).is_some() {
            self.store.groups.get_mut(number).releasing = false;
        }
        Some(progress)
    }

    pub(in crate::engine) fn release_some(&mut self, number: u32, now: Option<Time>) -> Progress {
        while let Some((wait, slot)) = self.store.groups.next_ended(number) {
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
            self.agenda.steps.take(2 * MOVE);
            let before = self.logged_size(slot);
            self.store.groups.end_wait(wait);
            self.retie(slot, before);
            if !self.store.groups.waits(slot) {
                let is_reported = now.is_none() && self.is_logged();
                self.store.jobs.get_mut(slot).set(JobFlag::Freed, is_reported);
                self.release_held(slot, now);
            }
        }
        self.close_group_if_idle(number);
        Progress::Done
    }

    /// If `now` is `None`, the next tick ends a delay that has expired.
    pub(in crate::engine) fn release_held(&mut self, slot: u32, now: Option<Time>) {
        let job = self.store.jobs.get(slot);
        let due = now.map_or(Time::NEVER, |now| now + job.delay()).min(job.created + job.delay());
        let is_over = job.delay() == Span::ZERO || now.is_some_and(|now| due <= now);
        let (number, cause) = (job.tube, if is_over { Cause::Free } else { Cause::FreeLater });
        self.transfer_with(slot, cause, |job| job.due = due);
        self.serve_at_end(number);
    }

    /// Delays the reply for a formerly held job until the log records that the group members have ended.
    pub(in crate::engine) fn report_freed(&mut self, slot: u32) {
        let job = self.store.jobs.get_mut(slot);
        if job.state() == State::Reserved && job.has(JobFlag::Freed) {
            job.set(JobFlag::Freed, false);
            self.news.events.push_back(Event::Freed { job: job.id });
            self.changed(Change::PromiseEnds);
        }
    }

    pub(in crate::engine) fn serve_at_end(&mut self, number: u32) {
        let tube = self.tubes.get(number);
        if !tube.serving && !tube.closed && !tube.has_no_waiters() && tube.counts.ready > 0 {
            self.serve_soon(number);
        }
    }

    /// Serves the tube at the end of the current call, or later if the call must serve many tubes.
    pub(in crate::engine) fn serve_soon(&mut self, number: u32) {
        self.serve_later(number);
        if self.store.lanes.unblocked.len() < MAX_LANES {
            self.store.lanes.unblocked.push(self.tubes.handle(number));
        }
    }

    fn close_group_if_idle(&mut self, number: u32) {
        let group = self.store.groups.get(number);
        if group.size() == 0 && group.waiting() == 0 {
            let group = self.store.groups.table.remove(number);
            if group.logged {
                self.changed(Change::GroupGone { number, name: group.name.length() });
            }
        }
    }

    fn logged_group(&self, number: u32) -> LoggedGroup {
        let group = self.store.groups.get(number);
        LoggedGroup { number, name: group.name.clone(), count: group.count }
    }
}

const _: () = assert!(State::Held as usize + 1 == State::UNFINISHED.len());
