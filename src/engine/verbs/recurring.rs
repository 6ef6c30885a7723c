//! Jobs that recur: puts with the tags `cron:` or `every:`.
//!
//! Owns the creation and replacement of schedules, and runs on request. Must not decide when a schedule is due:
//! `rules/schedules.rs` does.
//!
//! Touches: clients, store, tubes.

use super::tagged::{Tagged, Tags};
use crate::engine::data::{
    ClientId, CopyTags, DedupKey, Details, Job, JobFlag, JobId, JobOptions, Name, NewJob, Recurrence, Span, Time,
    SCHEDULE_COST,
};
use crate::engine::log::{logged_schedule, Change};
use crate::engine::{Engine, Refused, JOB_COST};

struct NewSchedule {
    name: Name,
    when: Name,
    recurrence: Recurrence,
    tags: CopyTags,
}

impl NewSchedule {
    fn of(tags: Tags) -> Option<NewSchedule> {
        let (when, options) = (tags.recurs?, tags.options);
        let JobOptions { ttl, max_attempts: tries, backoff, keep, concurrency, groups, .. } = options;
        let DedupKey::Name(name) = options.dedup_key else { return None };
        let recurrence = Recurrence::parse(when.key())?;
        Some(NewSchedule { name, when, recurrence, tags: CopyTags { ttl, tries, backoff, keep, concurrency, groups } })
    }

    fn logged_size(&self) -> usize {
        logged_schedule(self.name.length() + self.when.length() + self.tags.names(), self.tags.groups.len())
    }
}

impl Engine {
    /// The same recurrence keeps the time of the next run.
    pub(in crate::engine) fn put_schedule(
        &mut self,
        client: ClientId,
        new: NewJob,
        mut tags: Tags,
        now: Time,
    ) -> Result<Tagged, Refused> {
        let known = tags.tube.take();
        let Some(schedule) = NewSchedule::of(tags) else { return Err(Refused::OutOfMemory) };
        let tube = match known {
            Some(tube) => self.open_tube(client, &tube).map_err(|_| Refused::OutOfMemory)?,
            None => self.clients[client].used,
        };
        let due = schedule.recurrence.first(now, new.delay);
        let before = self.find_schedule(tube, &schedule.name);
        let own = new.body.len() + schedule.logged_size();
        let bytes = own + self.tubes.get(tube).name.len();
        let put = !self.has_memory(JOB_COST + SCHEDULE_COST + own as u64) || !self.claim_put(bytes, false);
        if put {
            self.close_tube_if_idle(tube);
            return Err(Refused::OutOfMemory);
        }
        match before {
            Some(number) => Ok(self.replace_schedule(number, new, schedule, due, now)),
            None => Ok(self.add_schedule(tube, new, schedule, due, now)),
        }
    }

    fn add_schedule(&mut self, tube: u32, new: NewJob, schedule: NewSchedule, due: Time, now: Time) -> Tagged {
        self.store.last_id += 1;
        self.store.total += 1;
        self.tubes.get_mut(tube).total_jobs += 1;
        let id = JobId(self.store.last_id);
        let job = self.schedule_job(id, tube, new, due, now);
        let slot = self.store.jobs.insert(job);
        self.bind_schedule(slot, schedule);
        self.changed_if(|| Change::Put(slot));
        self.enter(slot);
        Tagged::Scheduled { id, replaced: false }
    }

    fn replace_schedule(&mut self, number: u32, new: NewJob, schedule: NewSchedule, due: Time, now: Time) -> Tagged {
        let old = self.store.schedules.get(number);
        let (slot, count, is_same) = (old.slot, old.count, old.when == schedule.when);
        let job = self.store.jobs.get(slot);
        let (id, tube, is_bound) = (job.id, job.tube, job.is_bound());
        let is_kept = is_same && new.delay == Span::ZERO;
        let (due, delay) = if is_kept { (job.due, job.delay()) } else { (due, new.delay) };
        let new = NewJob { delay, ..new };
        let before = self.logged_size(slot);
        self.leave(slot);
        self.forget_schedule(slot);
        let mut job = self.schedule_job(id, tube, new, due, now);
        // Clients may wait for the end of the schedule.
        job.set(JobFlag::Bound, is_bound);
        self.store.jobs.replace(slot, job);
        self.bind_schedule(slot, schedule);
        self.store.schedules.table.get_mut(self.store.jobs.get(slot).holder).count = count;
        self.enter(slot);
        self.changed(Change::Replace { slot, before });
        Tagged::Scheduled { id, replaced: true }
    }

    fn schedule_job(&mut self, id: JobId, tube: u32, new: NewJob, due: Time, now: Time) -> Job {
        let body = self.store.jobs.bodies.add(new.body);
        let mut job = Job::new(id, tube, new.pri, Details::new(new.delay, new.ttr), body, now);
        job.schedule(due);
        job
    }

    fn bind_schedule(&mut self, slot: u32, new: NewSchedule) {
        let hash = self.hash_schedule(self.store.jobs.get(slot).tube, &new.name);
        let number = self.store.schedules.insert(slot, new.name, hash, new.when, new.tags);
        self.store.jobs.get_mut(slot).holder = number;
    }

    /// Returns `false` if the previous copy still exists or the copy is refused.
    pub(in crate::engine) fn run_now(&mut self, slot: u32, now: Time) -> bool {
        let (due, number) = (self.store.jobs.get(slot).due, self.store.jobs.get(slot).holder);
        // This run replaces a run that is already due.
        let next = match self.store.schedules.get(number).recurrence() {
            Some(recurrence) if due <= now => recurrence.after(due, now),
            _ => due,
        };
        self.run_schedule(slot, next, now).is_ok_and(|is_put| is_put)
    }
}
