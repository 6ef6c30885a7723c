//! Restores a queue from records in the order of writing. [`Engine::finish_restore`] queues the jobs and must be last.
//! Methods for a job return its slot and previous [`Engine::logged_size`], or `None` if the change does not apply.
//! Enforces promise P39 of beanpole-promises(7).
//! Touches: agenda, store, tubes.

use super::change::LoggedGroup;
use super::stored::{StoredChange, StoredJob, StoredKey, StoredOptions, StoredSchedule, StoredTies};
use crate::engine::data::*;
use crate::engine::{Engine, NOBODY};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedJob<'a> {
    pub pri: Priority,
    pub delay: Span,
    /// When the delay expires, or a buried job's rank in the order of burial.
    pub due: Time,
    pub state: State,
    pub dead_from: Option<&'a [u8]>,
}

impl Engine {
    /// Creates a job, or replaces the job that an earlier record created. Uses `found.body` only if `body` is `None`.
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
                // A kick that ends a lease does not reset the number of failed tries.
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
        job.transition(match to.state {
            State::Delayed => Cause::ReleaseLater,
            State::Buried => Cause::Bury,
            State::Ready | State::Reserved | State::Held | State::Finished | State::Scheduled => Cause::Release,
        });
        job.details.set_delay(to.delay);
        (job.pri, job.due) = (to.pri, to.due);
        job.holder = to.dead_from.map_or(NIL, |origin| self.store.origins.add(origin));
        self.forget_waits(slot);
        self.change_lane(slot);
        Some((slot, before))
    }

    pub fn restore_reason(&mut self, id: JobId, reason: &[u8]) -> Option<(u32, usize)> {
        let slot = self.store.jobs.find(id).filter(|&slot| self.store.jobs.get(slot).state() != State::Scheduled)?;
        let before = self.logged_size(slot);
        let number = self.extras_of(slot);
        self.store.extras.edit(number, |extras| extras.rare_mut().reason = Some(reason.into()));
        Some((slot, before))
    }

    /// `done` is `None` if a try failed and the job is retried.
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
        cause.into_iter().for_each(|cause| job.transition(cause));
        job.fails = fails;
        if let Some(done) = done {
            self.store_outcome(slot, done, result);
        }
        Some((slot, before))
    }

    pub fn restore_delete(&mut self, id: JobId) -> Option<(u32, usize)> {
        let slot = self.store.jobs.find(id)?;
        let size = self.forget_more(slot);
        self.store.jobs.remove(slot);
        Some((slot, size))
    }

    /// Removes the schedule, groups, extras and origin of a job that is in no queue. Returns the previous logged size.
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

    /// Returns the tube, and `true` if the tube was already paused. A `length` of zero ends the pause.
    pub fn restore_pause(&mut self, name: &[u8], length: Span, until: Time) -> (u32, bool) {
        let number = self.open_tube_unlimited(name);
        let before = self.tubes.get(number).pause.is_some();
        self.set_pause(number, (length != Span::ZERO).then_some(Pause { length, until }));
        (number, before)
    }

    /// Queues the restored jobs, removes expired keys and pauses, and resumes long commands. New IDs exceed `last_id`.
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
                    self.join_family(slot, false);
                    continue;
                }
                State::Reserved => {
                    job.holder = NOBODY.0;
                    job.due = job.due.min(now + lease);
                    job.take((job.due - lease).min(now));
                }
                State::Delayed => self.restore_delay(slot, now),
                State::Scheduled => {
                    // The clock may have been set back while the server was not running.
                    let recurrence = self.store.schedules.get(job.holder).recurrence();
                    job.due = recurrence.map_or(job.due, |recurrence| recurrence.bounded(job.due, now, job.delay()));
                }
                State::Ready | State::Finished => {}
            }
            self.join_family(slot, false);
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
        // The log contains a job's key before the end of the job. A power failure can lose only the end.
        let is_over = |(_, key): &(u32, &EndedKey)| key.until <= now || self.store.jobs.find(key.id).is_some();
        let keys = self.store.ended_keys.table.items.iter().filter(is_over).map(|(number, _)| number);
        keys.collect::<Vec<u32>>().into_iter().for_each(|number| _ = self.forget_key(number));
        for number in self.tubes.iter().map(|(number, _)| number).collect::<Vec<u32>>() {
            self.update_closed(number);
            let pause = self.tubes.get(number).pause.as_deref();
            let pause = pause.map(|pause| Pause { until: pause.until.min(now + pause.length), ..*pause });
            match pause {
                Some(pause) if pause.until <= now => self.end_pause(number),
                pause => self.set_pause(number, pause),
            }
            self.close_tube_if_idle(number);
        }
        let open = self.agenda.open.iter().map(|(&number, operation)| operation.clone().resume(number));
        self.agenda.deferred.extend(open.map(Deferred::LongCommand));
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

    fn restore_name(&mut self, name: &[u8]) -> u32 {
        let name = Name::from(name);
        let hash = self.tubes.hash(name.key());
        let known = self.store.groups.find(&name, hash);
        known.unwrap_or_else(|| self.store.groups.insert(name, hash, GroupCount::default()))
    }

    fn restore_ties(&mut self, slot: u32, ties: StoredTies) {
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

    fn forget_ties(&mut self, slot: u32) {
        if self.store.jobs.get(slot).is_tied() {
            self.store.groups.leave(slot);
            self.store.groups.stop_waiting(slot);
            self.store.jobs.get_mut(slot).set(JobFlag::Tied, false);
        }
    }

    fn forget_waits(&mut self, slot: u32) {
        let job = self.store.jobs.get(slot);
        if job.is_tied() && !matches!(job.state(), State::Held | State::Scheduled) {
            self.store.groups.stop_waiting(slot);
            self.store.jobs.get_mut(slot).set(JobFlag::Tied, self.store.groups.of_member(slot).next().is_some());
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
    fn restore_held(&mut self, mut held: Vec<(u64, u32)>, now: Time) {
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

    fn restore_schedule(&mut self, slot: u32, options: &StoredOptions, schedule: &StoredSchedule) {
        let name = |key: StoredKey| match key.restored() {
            DedupKey::Name(name) => name,
            _ => Name::from(&[][..]),
        };
        let ties = options.ties.iter().map(|tie| GroupTag { name: Name::from(&*tie.name), tie: Tie::Member });
        let (key, limit) = options.concurrency;
        let tags = CopyTags {
            ttl: options.ttl,
            tries: options.max_attempts,
            backoff: options.backoff,
            keep: options.keep,
            concurrency: (key != StoredKey::None).then(|| (name(key), limit)),
            groups: ties.collect(),
        };
        self.store.jobs.get_mut(slot).schedule(schedule.due);
        let number = self.bind_schedule(slot, name(options.dedup_key), schedule.when.into(), tags);
        self.store.schedules.table.get_mut(number).count = schedule.count;
    }

    fn restore_options(&mut self, slot: u32, options: &StoredOptions) {
        if let Some(schedule) = &options.schedule {
            return self.restore_schedule(slot, options, schedule);
        }
        self.store.jobs.get_mut(slot).completion = options.completion;
        self.restore_ties(slot, options.ties);
        let rare = options.start != Time::NEVER || options.order != 0 || options.reducer.is_some();
        let rare = rare || options.backoff > 0 || options.concurrency.0 != StoredKey::None;
        let rare = rare || !options.reason.is_empty();
        let limits = options.max_attempts > 0 || options.max_fails > 0;
        let plain = options.dedup_key == StoredKey::None && options.ttl == Span::MAX && options.outcome.is_none();
        if plain && !rare && !limits {
            return;
        }
        let number = self.new_extras(slot, options.dedup_key.restored(), options.expires, true);
        self.store.extras.edit(number, |extras| {
            extras.ttl = options.ttl;
            (extras.max_attempts, extras.max_fails) = (options.max_attempts, options.max_fails);
            (extras.done, extras.keep_or_offset) = options.outcome.unwrap_or((false, options.keep));
            if rare {
                let rare = extras.rare_mut();
                (rare.start, rare.order) = (options.start, options.order);
                rare.reducer = options.reducer.map(Box::from);
                rare.backoff = options.backoff;
                rare.reason = Some(options.reason).filter(|reason| !reason.is_empty()).map(Box::from);
            }
        });
        if let DedupKey::Name(key) = options.concurrency.0.restored() {
            self.join_lane(slot, key, options.concurrency.1);
        }
    }
}
