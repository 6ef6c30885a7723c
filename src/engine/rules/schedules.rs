//! Runs of due schedules. The dedup key of each copy is the name of its schedule. No copy is put while the tube has a
//! job with this key, or while the key outlives such a job. Must not create schedules (see `verbs/submit.rs`).
//! Enforces promise P31 of beanpole-promises(7).
//! Touches: agenda, news, store, tubes.

use crate::engine::data::*;
use crate::engine::log::{logged_options, Change, CHANGE_SIZE, PUT_SIZE};
use crate::engine::{Engine, Refused};

/// The delay before a schedule tries again to put a copy that was refused.
const RETRY: Span = Span::from_secs(1);
/// The delay before the schedules try again while the log is making space for a copy.
const SPACE_RETRY: Span = Span::from_millis(1);
/// The number of body bytes that are copied per step.
const COPIED: u64 = 1024;

impl Engine {
    pub(in crate::engine) fn find_schedule(&self, tube: u32, name: &Name) -> Option<u32> {
        let is_meant = |slot: u32| self.store.jobs.get(slot).tube == tube;
        self.store.schedules.find(name, self.hash_schedule(tube, name), is_meant)
    }

    pub(in crate::engine) fn hash_schedule(&self, tube: u32, name: &Name) -> u32 {
        self.tubes.hash_in(name.key(), tube)
    }

    pub(in crate::engine) fn retime_schedules(&mut self) {
        self.agenda.deadlines.set(TimerKey::Schedules, self.store.schedules.first().map_or(Time::NEVER, |(at, _)| at));
    }

    /// Runs the first due schedule. Several missed runs count as one. A schedule that waits for log space stays first,
    /// so that smaller copies of other schedules cannot use up the space forever.
    pub(in crate::engine) fn schedule_due(&mut self, now: Time) {
        let (_, slot) = self.store.schedules.first().expect("a due schedule");
        let schedule = self.store.schedules.get(self.store.jobs.get(slot).holder);
        let due = self.store.jobs.get(slot).due;
        let next = schedule.recurrence().map_or(Time::NEVER, |recurrence| recurrence.after(due, now));
        let is_put = self.run_schedule(slot, next, now).is_ok();
        if !is_put && self.news.lacking > 0 {
            self.store.schedules.rests_until = now + SPACE_RETRY;
        } else if !is_put {
            self.store.schedules.retime(now + RETRY, slot, &mut self.store.jobs);
        }
        self.retime_schedules();
    }

    /// Returns `false` if the previous copy or its key still exists. Changes nothing if the copy is refused.
    pub(in crate::engine) fn run_schedule(&mut self, slot: u32, next: Time, now: Time) -> Result<bool, Refused> {
        let job = self.store.jobs.get(slot);
        let (tube, number) = (job.tube, job.holder);
        self.agenda.steps.take(2 * MOVE + job.body.len() as u64 / COPIED);
        let options = self.store.schedules.get(number).copy_options();
        if self.has_live_copy(tube, &options.dedup_key, now)? {
            self.store.schedules.note_run(number, false);
            self.set_next_run(slot, next);
            self.changed_claimed(Change::Skip(slot), false);
            return Ok(false);
        }
        let job = self.store.jobs.view(slot);
        let large = self.is_large(&job);
        let new = NewJob { pri: job.pri, delay: Span::ZERO, ttr: job.ttr(), body: Body::from(job.body().bytes()) };
        let has_no_lane = options.concurrency.as_ref().is_some_and(|(key, _)| !self.has_lane(key, tube, large));
        // The record of the copy also contains the time of the next run.
        ensure!(!has_no_lane && self.claim_log_room(0), Refused::OutOfMemory);
        let copy = self.take_in(tube, new, Some(options), now)?;
        self.store.schedules.note_run(number, true);
        self.set_next_run(slot, next);
        self.put_by_schedule(copy, slot);
        self.serve(tube, now);
        Ok(true)
    }

    pub fn run_size(&self, id: JobId) -> u64 {
        let slot = self.find_job(id, |job| job.state() == State::Scheduled);
        slot.map_or(0, |slot| {
            let job = self.store.jobs.get(slot);
            let options = self.store.schedules.get(job.holder).copy_options();
            let own = self.tubes.get(job.tube).name.len() + job.body.len() + logged_options(&options);
            PUT_SIZE + CHANGE_SIZE + own as u64
        })
    }

    fn has_live_copy(&mut self, tube: u32, key: &DedupKey, now: Time) -> Result<bool, Refused> {
        let DedupKey::Name(name) = key else { return Ok(false) };
        let found = self.find_keyed(key, tube)?;
        let tube = self.tubes.get(tube).name.clone();
        Ok(found.is_some() || self.find_ended(&tube, name, now).is_some())
    }

    fn set_next_run(&mut self, slot: u32, next: Time) {
        self.store.jobs.get_mut(slot).due = next;
        self.store.schedules.retime(next, slot, &mut self.store.jobs);
        self.retime_schedules();
    }

    /// Returns the numbers of copies put and runs skipped since startup, and of schedules whose last run was skipped.
    pub fn schedule_counts(&self) -> [u64; 3] {
        [self.store.schedules.total.0, self.store.schedules.total.1, self.store.schedules.late as u64]
    }

    /// Returns how late the earliest run is. A run is late only if its copy was refused.
    pub fn schedule_delay(&self, now: Time) -> Span {
        self.store.schedules.first().map_or(Span::ZERO, |(_, slot)| now.since(self.store.jobs.get(slot).due))
    }

    pub(in crate::engine) fn bind_schedule(&mut self, slot: u32, name: Name, when: Name, tags: CopyTags) -> u32 {
        let hash = self.hash_schedule(self.store.jobs.get(slot).tube, &name);
        let number = self.store.schedules.insert(slot, name, hash, when, tags);
        self.store.jobs.get_mut(slot).holder = number;
        number
    }

    /// The job must not be in a queue.
    pub(in crate::engine) fn forget_schedule(&mut self, slot: u32) {
        let job = self.store.jobs.get(slot);
        if job.state() == State::Scheduled {
            self.store.schedules.remove(job.holder);
        }
    }
}
