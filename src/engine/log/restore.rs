//! Restores a queue from its log.
//!
//! Owns the effects of log records, which are applied in the order of writing. Restored jobs are not in a queue until
//! [`Engine::finish_restore`] queues every job. Methods that restore a change return the job's slot and its previous
//! [`Engine::logged_size`], or `None` if the job is unknown. Must not be used after [`Engine::finish_restore`].
//!
//! Touches: store, tubes.

use super::stored::{StoredChange, StoredJob};
use crate::engine::data::{
    Body, Cause, CompletionPolicy, Count, Details, History, Job, JobExtras, JobId, Pause, Priority, Span, State, Time,
    NIL,
};
use crate::engine::{Engine, NOBODY};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedJob<'a> {
    pub pri: Priority,
    pub delay: Span,
    /// The end of the delay, or a buried job's rank in the order of burying.
    pub due: Time,
    pub state: State,
    pub dead_from: Option<&'a [u8]>,
}

impl Engine {
    /// A newer record updates a restored job. `found.body` is only used if `body` is `None`.
    pub fn restore_job(&mut self, found: &StoredJob, body: Option<Body>) -> (u32, Option<usize>) {
        // The usual case: an ID greater than all earlier IDs belongs to a new job.
        let known = if found.id.0 > self.store.last_id { None } else { self.store.jobs.find(found.id) };
        self.store.last_id = self.store.last_id.max(found.id.0);
        let before = known.map(|slot| self.forget_more(slot));
        let tube = self.open_tube_unlimited(found.tube);
        let body = match body {
            Some(body) => self.store.jobs.bodies.add(body),
            None => self.store.jobs.bodies.copy(found.body),
        };
        let mut details = Details::new(found.delay, found.ttr);
        if found.history != History::default() {
            details.set_history(found.history);
        }
        let mut job =
            Job::new(found.id, tube, found.pri, details, body, found.created).restored(found.state, found.due);
        job.fails = found.fails;
        job.holder = found.dead_from.map_or(NIL, |origin| self.store.origins.add(origin));
        let slot = match known {
            Some(slot) => {
                self.store.jobs.replace(slot, job);
                slot
            }
            None => self.store.jobs.insert(job),
        };
        if let Some(options) = &found.options {
            self.restore_options(slot, options);
        }
        (slot, before)
    }

    pub fn restore_change(&mut self, id: JobId, change: StoredChange) -> Option<(u32, usize)> {
        let slot = self.store.jobs.find(id)?;
        let before = self.logged_size(slot);
        self.apply_change(slot, change);
        self.forget_waits(slot);
        Some((slot, before))
    }

    fn apply_change(&mut self, slot: u32, change: StoredChange) {
        let job = self.store.jobs.get_mut(slot);
        match change {
            StoredChange::Priority(pri) => return job.pri = pri,
            StoredChange::Scheduled { due, count } => {
                if job.state() == State::Scheduled {
                    job.due = due;
                    self.store.schedules.table.get_mut(job.holder).count = count;
                }
                return;
            }
            _ => {}
        }
        let is_leased = job.state() == State::Reserved;
        match job.state() {
            // This record is being read a second time.
            State::Finished | State::Scheduled => return,
            State::Reserved => {}
            // The job need not be reserved: some reservations are not logged, and a record can be read twice.
            State::Ready | State::Delayed | State::Buried | State::Held => {
                self.forget_origin(slot);
                self.store.jobs.get_mut(slot).transition(Cause::ReserveJob);
            }
        }
        let job = self.store.jobs.get_mut(slot);
        match change {
            StoredChange::Priority(_) | StoredChange::Scheduled { .. } => {}
            StoredChange::Retry { fails, delay, due } => {
                job.transition(if delay == Span::ZERO { Cause::Release } else { Cause::ReleaseLater });
                if delay != Span::ZERO {
                    job.details.set_delay(delay);
                    job.due = due;
                }
                job.fails = fails;
            }
            StoredChange::Reserve(count) => {
                job.transition(Cause::HangUp);
                job.details.set_count(Count::Reserves, count);
            }
            StoredChange::Expire(count) => {
                job.transition(Cause::Expire);
                job.details.set_count(Count::Timeouts, count);
            }
            StoredChange::Lease(count, until) => {
                job.due = until;
                job.details.set_count(Count::Reserves, count);
            }
            StoredChange::Kick(count) => {
                job.transition(Cause::Release);
                job.details.set_count(Count::Kicks, count);
                // A kick that ends a lease does not restore the tries.
                job.fails = if is_leased { job.fails } else { 0 };
            }
            StoredChange::Release { pri, delay, due, count, fails } => {
                job.fails = fails;
                job.transition(if delay == Span::ZERO { Cause::Release } else { Cause::ReleaseLater });
                job.details.set_count(Count::Releases, count);
                job.details.set_delay(delay);
                (job.pri, job.due) = (pri, due);
            }
            StoredChange::Bury { pri, order, count, fails } => {
                job.fails = fails;
                job.transition(Cause::Bury);
                job.details.set_count(Count::Buries, count);
                (job.pri, job.due) = (pri, Time::from_nanos(order));
            }
        }
    }

    pub fn restore_move(&mut self, id: JobId, tube: &[u8], to: &MovedJob) -> Option<(u32, usize)> {
        let slot = self.store.jobs.find(id)?;
        if matches!(self.store.jobs.get(slot).state(), State::Finished | State::Scheduled) {
            return None;
        }
        let before = self.logged_size(slot);
        let number = self.open_tube_unlimited(tube);
        self.restore_progress(self.store.jobs.get(slot).tube, tube);
        self.forget_origin(slot);
        let job = self.store.jobs.get_mut(slot);
        job.tube = number;
        if job.state() != State::Reserved {
            job.transition(Cause::ReserveJob);
        }
        match to.state {
            State::Delayed => job.transition(Cause::ReleaseLater),
            State::Buried => job.transition(Cause::Bury),
            State::Ready | State::Reserved | State::Held | State::Finished | State::Scheduled => {
                job.transition(Cause::Release);
            }
        }
        job.details.set_delay(to.delay);
        (job.pri, job.due) = (to.pri, to.due);
        job.holder = to.dead_from.map_or(NIL, |origin| self.store.origins.add(origin));
        self.forget_waits(slot);
        self.rebind(slot);
        Some((slot, before))
    }

    pub fn restore_reason(&mut self, id: JobId, reason: &[u8]) -> Option<(u32, usize)> {
        let slot = self.store.jobs.find(id).filter(|&slot| self.store.jobs.get(slot).state() != State::Scheduled)?;
        let before = self.logged_size(slot);
        let number = self.extras_of(slot);
        self.store.extras.edit(number, |extras| extras.rare_mut().reason = Some(reason.into()));
        Some((slot, before))
    }

    /// `done` is `None` for a failed try that is retried.
    pub fn restore_outcome(&mut self, id: JobId, done: Option<bool>, fails: u8, result: &[u8]) -> Option<(u32, usize)> {
        let slot = self.store.jobs.find(id)?;
        let before = self.logged_size(slot);
        let job = self.store.jobs.get(slot);
        if job.completion != CompletionPolicy::Keep || job.state() == State::Finished {
            return None;
        }
        if job.state() == State::Buried {
            self.forget_origin(slot);
        }
        let job = self.store.jobs.get_mut(slot);
        let cause = if done.is_some() { Some(Cause::Finish) } else { Cause::of_retry(job.state()) };
        if let Some(cause) = cause {
            job.transition(cause);
        }
        job.fails = fails;
        let length = job.body.len() as u32;
        if let Some(done) = done {
            let number = self.extras_of(slot);
            let extras = self.store.extras.get_mut(number);
            extras.done = done;
            extras.result_at = length;
            self.store.jobs.extend_body(slot, result);
        }
        Some((slot, before))
    }

    pub fn restore_delete(&mut self, id: JobId) -> Option<(u32, usize)> {
        let slot = self.store.jobs.find(id)?;
        let size = self.forget_more(slot);
        self.store.jobs.remove(slot);
        Some((slot, size))
    }

    /// The job must be in no queue. Returns the previous [`Engine::logged_size`].
    fn forget_more(&mut self, slot: u32) -> usize {
        let size = self.logged_size(slot);
        self.forget_schedule(slot);
        self.forget_ties(slot);
        self.unbind(slot);
        if self.store.jobs.get(slot).state() != State::Scheduled {
            self.forget_origin(slot);
        }
        size
    }

    /// Returns the tube, and `true` if the tube was already paused. `length` is zero at the end of a pause.
    pub fn restore_pause(&mut self, name: &[u8], length: Span, until: Time) -> (u32, bool) {
        let number = self.open_tube_unlimited(name);
        let before = self.tubes.get(number).pause.is_some();
        let pause = (length != Span::ZERO).then_some(Pause { length, until });
        self.set_pause(number, pause);
        (number, before)
    }

    /// New jobs get larger IDs than `last_id`.
    pub fn finish_restore(&mut self, last_id: u64, now: Time) {
        self.store.last_id = self.store.last_id.max(last_id);
        let (mut buried, mut started, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = self.store.jobs.slots.next_from(0);
        while let Some(slot) = next {
            next = self.store.jobs.slots.next_from(slot + 1);
            let lease = self.lease_of(self.store.jobs.get(slot));
            let job = self.store.jobs.get_mut(slot);
            match job.state() {
                State::Buried => {
                    buried.push((job.due, slot));
                    continue;
                }
                State::Held => {
                    held.push((job.id.0, slot));
                    continue;
                }
                State::Reserved => {
                    job.holder = NOBODY.0;
                    job.due = job.due.min(now + lease);
                    job.take((job.due - lease).min(now));
                }
                State::Delayed => self.restore_delay(slot, now),
                State::Scheduled => {
                    // The clock may have been set back in the meantime.
                    let recurrence = self.store.schedules.get(job.holder).recurrence();
                    job.due = recurrence.map_or(job.due, |recurrence| recurrence.bounded(job.due, now, job.delay()));
                }
                State::Ready | State::Finished => {}
            }
            let job = self.store.jobs.get(slot);
            match self.extras(job).and_then(JobExtras::start) {
                Some(start) if job.state() == State::Ready => started.push((start, job.id, slot)),
                _ => self.enter(slot),
            }
        }
        // Jobs whose start time has passed are ranked in the order of their start times.
        started.sort_unstable();
        started.into_iter().for_each(|(.., slot)| self.enter(slot));
        buried.sort_unstable();
        self.store.last_bury = self.store.last_bury.max(buried.last().map_or(0, |(order, _)| order.nanos()));
        buried.into_iter().for_each(|(_, slot)| self.enter(slot));
        self.restore_held(held, now);
        while self.store.ended_keys.next_end() <= now {
            self.key_due();
        }
        let tubes: Vec<u32> = self.tubes.iter().map(|(number, _)| number).collect();
        for number in tubes {
            self.update_closed(number);
            let pause = self.tubes.get(number).pause.as_deref().copied();
            let pause = pause.map(|pause| Pause { until: pause.until.min(now + pause.length), ..pause });
            match pause {
                Some(pause) if pause.until <= now => self.end_pause(number),
                pause => self.set_pause(number, pause),
            }
            self.close_tube_if_idle(number);
        }
        self.resume_operations();
    }

    /// Limits a restored delay to its full length, because the wall clock can be wrong after a restart. A start time
    /// that the producer requested is not limited.
    fn restore_delay(&mut self, slot: u32, now: Time) {
        let fixed = self.extras(self.store.jobs.get(slot)).is_some_and(|extras| extras.start().is_some());
        let job = self.store.jobs.get_mut(slot);
        if !fixed {
            job.due = job.due.min(now + job.delay());
        }
        if job.due <= now {
            job.transition(Cause::Due);
        }
    }
}
