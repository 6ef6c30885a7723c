//! Puts of beanstalk clients with tags.
//!
//! Owns the reply to a duplicate, and the effect on the existing job. Must not decide what happens to a job after the
//! put.
//!
//! Touches: clients, limits, store, tubes.

use crate::engine::data::{ClientId, DedupKey, JobId, JobOptions, Name, NewJob, Priority, State, Time, NIL};
use crate::engine::log::Change;
use crate::engine::{Engine, Refused};

#[derive(Clone, Debug, Default)]
pub struct Tags {
    /// `None` means the tube that the client uses.
    pub tube: Option<Box<[u8]>>,
    /// The recurrence of a schedule, for [`Recurrence::parse`](crate::engine::Recurrence::parse).
    pub recurs: Option<Name>,
    /// For a schedule, the options of its copies.
    pub options: JobOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tagged {
    New(JobId),
    Duplicate {
        id: JobId,
        state: State,
        /// The priority of the duplicate, if it was more urgent.
        raised: Option<Priority>,
    },
    /// The ID of an ended job whose key has not expired.
    Ended(JobId),
    Scheduled {
        id: JobId,
        replaced: bool,
    },
}

impl Engine {
    pub fn put_tagged(&mut self, client: ClientId, new: NewJob, tags: Tags, now: Time) -> Result<Tagged, Refused> {
        self.mark_producer(client);
        self.put_unmarked(client, new, tags, now)
    }

    /// Like [`Engine::put_tagged`], but does not count `client` as a producer.
    pub fn put_unmarked(&mut self, client: ClientId, new: NewJob, tags: Tags, now: Time) -> Result<Tagged, Refused> {
        if self.draining {
            return Err(Refused::Draining);
        }
        if tags.recurs.is_some() {
            return self.put_schedule(client, new, tags, now);
        }
        let used = self.clients[client].used;
        let known = self.tube_of_tags(client, &tags);
        let Tags { tube, options, .. } = tags;
        if let DedupKey::Name(key) = &options.dedup_key {
            // Search before the tube exists, because a key in too many tubes must be refused.
            if let Some(slot) = self.find_keyed(&options.dedup_key, known.unwrap_or(NIL))? {
                return self.duplicate(slot, new.pri);
            }
            // `used` is only valid if the tags do not name a tube.
            let tube = tube.as_deref().unwrap_or_else(|| &self.tubes.get(used).name);
            if let Some(id) = self.find_ended(tube, key, now) {
                self.changed(Change::PromiseKey);
                return Ok(Tagged::Ended(id));
            }
        }
        let is_uncounted = options.fails > 0 && options.max_attempts == 0;
        let number = match (known, tube) {
            (None, Some(tube)) => self.open_tube(client, &tube).map_err(|_| Refused::OutOfMemory)?,
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

    pub fn adoption_of_tagged(&mut self, client: ClientId, tags: &Tags) -> u64 {
        let number = self.tube_of_tags(client, tags).filter(|_| tags.options.dedup_key != DedupKey::None);
        let found = number.and_then(|number| self.find_keyed(&tags.options.dedup_key, number).ok()?);
        found.map_or(0, |slot| self.adoption_size(slot))
    }

    /// Prefers a job that is not buried, and ignores dead letters.
    pub(in crate::engine) fn find_keyed(&mut self, dedup_key: &DedupKey, number: u32) -> Result<Option<u32>, Refused> {
        let hash = self.hash_dedup_key(dedup_key, number, None);
        let mut buried = None;
        let found = self.find_with_key(dedup_key, hash, |slot, job| {
            let here = job.tube == number && !job.is_dead_letter();
            if here && job.state() == State::Buried {
                buried = Some(slot);
            }
            here && job.state() != State::Buried
        })?;
        Ok(found.or(buried))
    }

    fn duplicate(&mut self, slot: u32, pri: Priority) -> Result<Tagged, Refused> {
        self.changed(Change::Promise(slot));
        self.coalesce(slot, true)?;
        let raises = pri < self.store.jobs.get(slot).pri && self.claim_log_room(0);
        if raises {
            self.set_priority(slot, pri);
            self.changed(Change::Priority(slot));
        }
        let job = self.store.jobs.get(slot);
        Ok(Tagged::Duplicate { id: job.id, state: job.state(), raised: raises.then_some(pri) })
    }

    fn set_priority(&mut self, slot: u32, pri: Priority) {
        if matches!(self.store.jobs.get(slot).state(), State::Ready | State::Delayed) {
            self.leave(slot);
            self.store.jobs.get_mut(slot).pri = pri;
            self.enter(slot);
        } else {
            self.store.jobs.get_mut(slot).pri = pri;
        }
    }
}
