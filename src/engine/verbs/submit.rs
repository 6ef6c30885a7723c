//! Submissions of jobs.
//!
//! Owns the methods that submit jobs, and claims the memory and log space for the jobs. Must not decide what happens to
//! a job after the submission.
//!
//! Touches: clients, store, tubes.

use crate::engine::data::{
    priority_class, ClientId, CompletionPolicy, DedupKey, Details, Job, JobFlag, JobId, JobOptions, NewBody, NewJob,
    Span, Time, Waiting, ATTACHMENT_COST,
};
use crate::engine::log::{logged_options, Change};
use crate::engine::{Engine, JOB_COST};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    Draining,
    OutOfMemory,
    /// Another job has the same unique ID.
    Duplicate,
    QueueFull,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    pub id: JobId,
    /// `true` if the submission is a duplicate of an existing job.
    pub joined: bool,
}

impl Engine {
    pub fn put(&mut self, client: ClientId, new: NewJob<impl NewBody>, now: Time) -> Result<JobId, Refused> {
        self.mark_producer(client);
        let number = self.clients[client].used;
        let slot = self.take_in(number, new, None, now)?;
        self.serve(number, now);
        Ok(self.store.jobs.get(slot).id)
    }

    /// Applies even if the put is refused.
    pub fn mark_producer(&mut self, client: ClientId) {
        self.clients.mark_producer(client);
    }

    /// Creates the tube if necessary. A duplicate joins the existing job.
    pub fn submit(
        &mut self,
        client: ClientId,
        tube: &[u8],
        job: NewJob,
        mut options: JobOptions,
        now: Time,
    ) -> Result<Submitted, Refused> {
        self.mark_producer(client);
        if self.draining {
            return Err(Refused::Draining);
        }
        let attach = options.attach;
        if options.dedup_key == DedupKey::Body(None) {
            options.dedup_key = DedupKey::Body(Some(self.fingerprints().of(job.body.bytes())));
        }
        if let Some(slot) = self.find_duplicate(&options.dedup_key, tube, job.body.len())? {
            // The reply to this client will say that the existing job is stored.
            self.changed(Change::Promise(slot));
            if matches!(options.dedup_key, DedupKey::Id(_)) {
                return Err(Refused::Duplicate);
            }
            if attach && !self.has_memory(ATTACHMENT_COST) {
                return Err(Refused::OutOfMemory);
            }
            self.coalesce(slot, options.durable)?;
            if attach {
                self.attach(slot, client);
            }
            return Ok(Submitted { id: self.store.jobs.get(slot).id, joined: true });
        }
        let number = self.open_tube(client, tube).map_err(|_| Refused::OutOfMemory)?;
        let slot = self.take_in(number, job, Some(options), now).inspect_err(|_| self.close_tube_if_idle(number))?;
        if attach {
            self.attach(slot, client);
        }
        let id = self.store.jobs.get(slot).id;
        self.serve(number, now);
        Ok(Submitted { id, joined: false })
    }

    /// Submits a job and waits for its outcome. Without an outcome, the job is removed after `wait` or, if a worker has
    /// reserved it, at the end of the time to run.
    pub fn run(
        &mut self,
        client: ClientId,
        tube: &[u8],
        job: NewJob,
        dedup_key: [u8; 16],
        wait: Span,
        now: Time,
    ) -> Result<JobId, Refused> {
        let dedup_key = DedupKey::Id(dedup_key);
        let options = JobOptions {
            completion: CompletionPolicy::Keep,
            dedup_key,
            durable: false,
            attach: true,
            ..JobOptions::default()
        };
        // A worker may already have the job, but nothing reads `ephemeral` before this function returns.
        let submitted = self.submit(client, tube, job, options, now)?;
        let slot = self.store.jobs.find(submitted.id).expect("a job that was just put");
        let number = self.store.extras.of(slot);
        self.store.extras.get_mut(number).rare_mut().ephemeral = true;
        self.wait_for(client, Waiting { until: now + wait, outcome: number, run: true });
        Ok(submitted.id)
    }

    /// Claims memory and log space. The caller must serve the tube.
    pub(in crate::engine) fn take_in(
        &mut self,
        number: u32,
        new: NewJob<impl NewBody>,
        mut options: Option<JobOptions>,
        now: Time,
    ) -> Result<u32, Refused> {
        if self.draining {
            return Err(Refused::Draining);
        }
        let tube = self.tubes.get(number);
        if let Some(rules) = &tube.rules {
            let limit = rules.settings.max_jobs[priority_class(new.pri)];
            if tube.counts.all() - tube.counts.buried >= limit.into() {
                return Err(Refused::QueueFull);
            }
            if rules.settings.ttl > 0 {
                apply_ttl(&mut options, Span::from_secs(rules.settings.ttl.into()));
            }
        }
        let volatile = options.as_ref().is_some_and(|options| !options.durable);
        let own = new.body.len() + options.as_ref().map_or(0, logged_options);
        let bytes = tube.name.len() + own;
        if !self.has_memory(JOB_COST + own as u64) || !self.claim_put(bytes, volatile) {
            return Err(Refused::OutOfMemory);
        }
        self.store.last_id += 1;
        self.store.total += 1;
        let NewJob { pri, delay, ttr, body } = new;
        let start = options.as_ref().and_then(|options| options.start);
        let details = Details::new(start.map_or(delay, |start| start.since(now)), ttr);
        let body = body.store(&mut self.store.jobs.bodies);
        let mut job = Job::new(JobId(self.store.last_id), number, pri, details, body, now);
        job.due = start.unwrap_or(job.due);
        job.set(JobFlag::Volatile, volatile);
        let slot = self.store.jobs.insert(job);
        if let Some(options) = options {
            self.bind(slot, options, now);
        }
        self.tubes.get_mut(number).total_jobs += 1;
        self.changed_if(|| Change::Put(slot));
        self.enter(slot);
        Ok(slot)
    }

    fn bind(&mut self, slot: u32, options: JobOptions, now: Time) {
        let job = self.store.jobs.get_mut(slot);
        (job.completion, job.fails) = (options.completion, options.fails);
        let begin = options.start.unwrap_or(now);
        let expires = if options.ttl == Span::MAX { Time::NEVER } else { begin + options.ttl };
        let limits = options.max_attempts > 0 || options.max_fails > 0;
        let rare = options.reducer.is_some() || options.start.is_some() && options.completion == CompletionPolicy::Keep;
        if !options.groups.is_empty() {
            self.tie(slot, &options.groups);
        }
        let rare = rare || options.backoff > 0 || options.concurrency.is_some() || options.reason.is_some();
        let plain = options.dedup_key == DedupKey::None && options.ttl == Span::MAX;
        if plain && !limits && !rare {
            return;
        }
        let number = self.new_extras(slot, options.dedup_key, expires);
        self.store.extras.edit(number, |extras| {
            extras.max_attempts = options.max_attempts;
            extras.max_fails = options.max_fails;
            extras.ttl = options.ttl;
            extras.result_at = options.keep;
            if rare {
                let rare = extras.rare_mut();
                rare.backoff = options.backoff;
                rare.reason = options.reason;
                rare.reducer = options.reducer;
                rare.start = options.start.unwrap_or(Time::NEVER);
            }
        });
        if let Some((key, limit)) = options.concurrency {
            self.join_lane(slot, key, limit);
        }
    }

    /// The job must not have extras.
    pub(in crate::engine) fn new_extras(&mut self, slot: u32, dedup_key: DedupKey, expires: Time) -> u32 {
        let job = self.store.jobs.view(slot);
        // No key lookup finds an empty body. The job ID in the hash avoids a long chain of empty bodies.
        let is_empty = matches!(dedup_key, DedupKey::Body(_)) && job.body().is_empty();
        let empty = is_empty.then_some(job.id);
        let dedup_key = match dedup_key {
            DedupKey::Body(None) => DedupKey::Body(Some(self.fingerprints().of(job.body().bytes()))),
            other => other,
        };
        let hash = self.hash_dedup_key(&dedup_key, job.tube, empty);
        self.store.jobs.get_mut(slot).set(JobFlag::Bound, true);
        let number = self.store.extras.insert(slot, dedup_key, hash, expires);
        self.retime_extras();
        number
    }

    pub(in crate::engine) fn extras_of(&mut self, slot: u32) -> u32 {
        if self.store.jobs.get(slot).is_bound() {
            return self.store.extras.of(slot);
        }
        self.new_extras(slot, DedupKey::None, Time::NEVER)
    }

    pub(in crate::engine) fn attach(&mut self, slot: u32, client: ClientId) {
        let number = self.extras_of(slot);
        let list = &mut self.clients[client].attached;
        self.store.extras.attach(number, client.0, list);
    }

    pub(in crate::engine) fn unbind(&mut self, slot: u32) {
        if self.store.jobs.get(slot).is_bound() {
            self.leave_lane(slot);
            self.store.extras.remove(self.store.extras.of(slot));
            self.store.jobs.get_mut(slot).set(JobFlag::Bound, false);
            self.retime_extras();
        }
    }
}

/// Applies the tube's time to live unless the options contain a time to live.
fn apply_ttl(options: &mut Option<JobOptions>, ttl: Span) {
    let options = options.get_or_insert_default();
    if options.ttl == Span::MAX && options.completion != CompletionPolicy::Keep {
        options.ttl = ttl;
    }
}
