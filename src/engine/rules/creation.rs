//! Creates jobs and the extras of jobs, and removes extras. Claims the memory and log space for new jobs.
//! Touches: draining, store, tubes.

use crate::engine::data::*;
use crate::engine::log::{logged_options, Change};
use crate::engine::{Engine, Refused, JOB_COST};

impl Engine {
    /// The caller must serve the tube.
    pub(in crate::engine) fn take_in(
        &mut self,
        number: u32,
        new: NewJob<impl NewBody>,
        mut options: Option<JobOptions>,
        now: Time,
    ) -> Result<u32, Refused> {
        ensure!(!self.draining, Refused::Draining);
        let tube = self.tubes.get(number);
        if let Some(rules) = &tube.rules {
            let limit = rules.settings.max_jobs[priority_class(new.pri)];
            ensure!(tube.counts.all() - tube.counts.buried < limit.into(), Refused::QueueFull);
            if rules.settings.ttl > 0 {
                let options = options.get_or_insert_default();
                if options.ttl == Span::MAX && options.completion != CompletionPolicy::Keep {
                    options.ttl = Span::from_secs(rules.settings.ttl.into());
                }
            }
        }
        let volatile = options.as_ref().is_some_and(|options| !options.durable);
        let own = new.body.len() + options.as_ref().map_or(0, logged_options);
        let bytes = tube.name.len() + own;
        ensure!(self.has_memory(JOB_COST + own as u64) && self.claim_put(bytes, volatile), Refused::OutOfMemory);
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
        if !options.groups.is_empty() {
            self.tie(slot, &options.groups);
        }
        let starts_later = options.start.is_some() && options.completion == CompletionPolicy::Keep;
        let is_extended = options.backoff > 0 || options.concurrency.is_some() || options.reason.is_some();
        let is_rare = starts_later || is_extended || options.reducer.is_some();
        let is_limited = options.max_attempts > 0 || options.max_fails > 0 || options.ttl != Span::MAX;
        if options.dedup_key == DedupKey::None && !is_limited && !is_rare {
            return;
        }
        let number = self.new_extras(slot, options.dedup_key, expires, false);
        self.store.extras.edit(number, |extras| {
            extras.max_attempts = options.max_attempts;
            extras.max_fails = options.max_fails;
            extras.ttl = options.ttl;
            extras.keep_or_offset = options.keep;
            if is_rare {
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

    /// The job must not have extras. Unless the job is `hidden`, no other job of its family may exist.
    pub(in crate::engine) fn new_extras(&mut self, slot: u32, dedup_key: DedupKey, expires: Time, hidden: bool) -> u32 {
        let job = self.store.jobs.view(slot);
        // No key lookup finds an empty body. The job ID in the hash avoids a long chain of empty bodies.
        let is_empty = matches!(dedup_key, DedupKey::Body(_)) && job.body().is_empty();
        let hidden = (is_empty || hidden).then_some(job.id);
        let dedup_key = match dedup_key {
            DedupKey::Body(None) => DedupKey::Body(Some(self.fingerprints().of(job.body().bytes()))),
            other => other,
        };
        let hash = self.hash_dedup_key(&dedup_key, job.tube, hidden);
        self.store.jobs.get_mut(slot).set(JobFlag::Bound, true);
        let number = self.store.extras.insert(slot, dedup_key, hash, expires);
        self.retime_extras();
        number
    }

    pub(in crate::engine) fn extras_of(&mut self, slot: u32) -> u32 {
        if self.store.jobs.get(slot).is_bound() {
            return self.store.extras.of(slot);
        }
        self.new_extras(slot, DedupKey::None, Time::NEVER, false)
    }

    pub(in crate::engine) fn unbind(&mut self, slot: u32) {
        if self.store.jobs.get(slot).is_bound() {
            self.leave_lane(slot);
            self.leave_family(slot, false);
            self.store.extras.remove(self.store.extras.of(slot));
            self.store.jobs.get_mut(slot).set(JobFlag::Bound, false);
            self.retime_extras();
        }
    }
}
