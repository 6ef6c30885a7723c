//! Submissions of jobs and schedules: the verbs `put`, `submit` and `run`, and puts with tags. Must not decide what
//! happens to a job after its submission.
//! Touches: clients, draining, limits, store, tubes.

use crate::engine::data::*;
use crate::engine::log::{logged_schedule, Change};
use crate::engine::{Engine, Refused, JOB_COST};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    pub id: JobId,
    pub joined: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Tags {
    /// `None` means the tube that the client uses.
    pub tube: Option<Box<[u8]>>,
    /// The recurrence of a schedule, in the format of [`Recurrence::parse`](crate::engine::Recurrence::parse).
    pub recurs: Option<Name>,
    /// For a schedule, the options of its copies.
    pub options: JobOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tagged {
    New(JobId),
    // `raised` is the new priority of the existing job if the duplicate has raised it.
    Duplicate { id: JobId, state: State, raised: Option<Priority> },
    // The ID of an ended job whose key has not expired.
    Ended(JobId),
    Scheduled { id: JobId, replaced: bool },
}

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
}

impl Engine {
    pub fn put(&mut self, client: ClientId, new: NewJob<impl NewBody>, now: Time) -> Result<JobId, Refused> {
        self.mark_producer(client);
        let number = self.clients[client].used;
        let slot = self.take_in(number, new, None, now)?;
        self.serve(number, now);
        Ok(self.store.jobs.get(slot).id)
    }

    /// Counts `client` as a producer, even if the put is refused.
    pub fn mark_producer(&mut self, client: ClientId) {
        self.clients.mark_producer(client);
    }

    /// If a job with the same key exists, the submission joins that job, or is refused if the key is a `DedupKey::Id`.
    pub fn submit(
        &mut self,
        client: ClientId,
        tube: &[u8],
        job: NewJob,
        mut options: JobOptions,
        now: Time,
    ) -> Result<Submitted, Refused> {
        self.mark_producer(client);
        ensure!(!self.draining, Refused::Draining);
        let attach = options.attach;
        if options.dedup_key == DedupKey::Body(None) {
            options.dedup_key = DedupKey::Body(Some(self.fingerprints().of(job.body.bytes())));
        }
        if let Some(slot) = self.find_duplicate(&options.dedup_key, tube, job.body.len())? {
            // The reply to this client will say that the existing job is stored.
            self.changed(Change::Promise(slot));
            ensure!(!matches!(options.dedup_key, DedupKey::Id(_)), Refused::Duplicate);
            ensure!(!attach || self.has_memory(ATTACHMENT_COST), Refused::OutOfMemory);
            self.coalesce(slot, options.durable)?;
            if attach {
                self.attach(slot, client);
            }
            return Ok(Submitted { id: self.store.jobs.get(slot).id, joined: true });
        }
        let number = self.open_tube(client, tube)?;
        let slot = self.take_in(number, job, Some(options), now).inspect_err(|_| self.close_tube_if_idle(number))?;
        if attach {
            self.attach(slot, client);
        }
        let id = self.store.jobs.get(slot).id;
        self.serve(number, now);
        Ok(Submitted { id, joined: false })
    }

    /// Puts a job and starts the wait for its outcome. Removes the job if `wait` expires while the job is not reserved.
    pub fn run(
        &mut self,
        client: ClientId,
        tube: &[u8],
        job: NewJob,
        dedup_key: [u8; 16],
        wait: Span,
        now: Time,
    ) -> Result<JobId, Refused> {
        let keep = CompletionPolicy::Keep;
        let options = JobOptions { completion: keep, durable: false, attach: true, ..JobOptions::default() };
        let options = JobOptions { dedup_key: DedupKey::Id(dedup_key), ..options };
        // A worker may already have the job, but nothing reads `ephemeral` before this function returns.
        let submitted = self.submit(client, tube, job, options, now)?;
        let slot = self.store.jobs.find(submitted.id).expect("a job that was just put");
        let number = self.store.extras.of(slot);
        self.store.extras.get_mut(number).rare_mut().ephemeral = true;
        self.wait_for(client, Waiting { until: now + wait, outcome: number, run: true });
        Ok(submitted.id)
    }

    pub(in crate::engine) fn attach(&mut self, slot: u32, client: ClientId) {
        let number = self.extras_of(slot);
        self.store.extras.attach(number, client.0, &mut self.clients[client].attached);
    }

    pub fn put_tagged(&mut self, client: ClientId, new: NewJob, tags: Tags, now: Time) -> Result<Tagged, Refused> {
        self.mark_producer(client);
        self.put_unmarked(client, new, tags, now)
    }

    /// Like [`Engine::put_tagged`], but does not count `client` as a producer.
    pub fn put_unmarked(&mut self, client: ClientId, new: NewJob, tags: Tags, now: Time) -> Result<Tagged, Refused> {
        ensure!(!self.draining, Refused::Draining);
        if tags.recurs.is_some() {
            return self.put_schedule(client, new, tags, now);
        }
        let used = self.clients[client].used;
        let known = self.tube_of_tags(client, &tags);
        let Tags { tube, options, .. } = tags;
        if let DedupKey::Name(key) = &options.dedup_key {
            // Search even if the tube does not exist yet, because a key that too many tubes use must be refused.
            if let Some(slot) = self.find_keyed(&options.dedup_key, known.unwrap_or(NIL))? {
                return self.duplicate(slot, new.pri);
            }
            // `used` is valid only if the tags do not name a tube.
            let tube = tube.as_deref().unwrap_or_else(|| &self.tubes.get(used).name);
            if let Some(id) = self.find_ended(tube, key, now) {
                self.changed(Change::PromiseKey);
                return Ok(Tagged::Ended(id));
            }
        }
        let is_uncounted = options.fails > 0 && options.max_attempts == 0;
        let number = match (known, tube) {
            (None, Some(tube)) => self.open_tube(client, &tube)?,
            (known, _) => known.unwrap_or(used),
        };
        let large = new.body.len() > self.limits.largest_leased;
        if options.concurrency.as_ref().is_some_and(|(key, _)| !self.has_lane(key, number, large)) {
            self.close_tube_if_idle(number);
            return Err(Refused::OutOfMemory);
        }
        let slot = self.take_in(number, new, Some(options), now).inspect_err(|_| self.close_tube_if_idle(number))?;
        if is_uncounted && self.stored_options(&self.store.jobs.view(slot)).is_none() {
            // The record of a job without options contains no failure count.
            self.changed_claimed(Change::Retry(slot), false);
        }
        let id = self.store.jobs.get(slot).id;
        self.serve(number, now);
        Ok(Tagged::New(id))
    }

    fn tube_of_tags(&self, client: ClientId, tags: &Tags) -> Option<u32> {
        tags.tube.as_ref().map_or(Some(self.clients[client].used), |tube| self.tubes.find(tube))
    }

    pub fn persist_size_of_tagged(&mut self, client: ClientId, tags: &Tags) -> u64 {
        let number = self.tube_of_tags(client, tags).filter(|_| tags.options.dedup_key != DedupKey::None);
        let found = number.and_then(|number| self.find_keyed(&tags.options.dedup_key, number).ok()?);
        found.map_or(0, |slot| self.persist_size(slot))
    }

    fn duplicate(&mut self, slot: u32, pri: Priority) -> Result<Tagged, Refused> {
        self.changed(Change::Promise(slot));
        self.coalesce(slot, true)?;
        let raises = pri < self.store.jobs.get(slot).pri && self.claim_log_room(0);
        if raises {
            let is_queued = matches!(self.store.jobs.get(slot).state(), State::Ready | State::Delayed);
            if is_queued {
                self.leave(slot);
            }
            self.store.jobs.get_mut(slot).pri = pri;
            if is_queued {
                self.enter(slot);
            }
            self.changed(Change::Priority(slot));
        }
        let job = self.store.jobs.get(slot);
        Ok(Tagged::Duplicate { id: job.id, state: job.state(), raised: raises.then_some(pri) })
    }

    /// Creates or replaces a schedule. With an unchanged recurrence and no delay, the time of the next run is kept.
    fn put_schedule(&mut self, client: ClientId, new: NewJob, mut tags: Tags, now: Time) -> Result<Tagged, Refused> {
        let known = tags.tube.take();
        let Some(schedule) = NewSchedule::of(tags) else { return Err(Refused::OutOfMemory) };
        let tube = match known {
            Some(tube) => self.open_tube(client, &tube)?,
            None => self.clients[client].used,
        };
        let due = schedule.recurrence.first(now, new.delay);
        let before = self.find_schedule(tube, &schedule.name);
        let NewSchedule { name, when, tags, .. } = &schedule;
        let texts = name.length() + when.length() + tags.names();
        let own = new.body.len() + logged_schedule(texts, tags.groups.len());
        let bytes = own + self.tubes.get(tube).name.len();
        if !self.has_memory(JOB_COST + SCHEDULE_COST + own as u64) || !self.claim_put(bytes, false) {
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
        self.bind_schedule(slot, schedule.name, schedule.when, schedule.tags);
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
        // Keep the extras, because clients may wait for the end of the schedule.
        job.set(JobFlag::Bound, is_bound);
        self.store.jobs.replace(slot, job);
        let number = self.bind_schedule(slot, schedule.name, schedule.when, schedule.tags);
        self.store.schedules.table.get_mut(number).count = count;
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

    /// Returns `false` if a job has the schedule's key, or if the key of an ended job has not expired.
    pub(in crate::engine) fn run_now(&mut self, slot: u32, now: Time) -> Result<bool, Refused> {
        let (due, number) = (self.store.jobs.get(slot).due, self.store.jobs.get(slot).holder);
        // This run replaces a run that is already due.
        let next = match self.store.schedules.get(number).recurrence() {
            Some(recurrence) if due <= now => recurrence.after(due, now),
            _ => due,
        };
        self.run_schedule(slot, next, now)
    }
}
