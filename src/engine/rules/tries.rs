//! How often a job may be tried, and how long it may wait: `try:` and `ttl:` of jobs that are dropped when they are
//! done.
//!
//! Owns the count of lost and released reservations, the delay behind a lost one, and the end of a time to live. The
//! other completion policies have rules of their own, in `completion`. Must not hand out jobs.
//!
//! Touches: store.

use crate::engine::data::event::Outcome;
use crate::engine::data::job::{Cause, State};
use crate::engine::data::job_options::CompletionPolicy;
use crate::engine::data::time::{Span, Time};
use crate::engine::log::change::Change;
use crate::engine::Engine;

/// The longest delay behind a lost reservation, in seconds.
const LONGEST_BACKOFF: u64 = 24 * 3600;

impl Engine {
    /// The extras of a job that is dropped when it is done, if it has some.
    fn own_extras(&self, slot: u32) -> Option<u32> {
        let job = self.store.jobs.get(slot);
        let own = job.completion == CompletionPolicy::Drop && job.is_bound();
        own.then(|| self.store.extras.of(slot))
    }

    /// Whether it is counted how often the job in `slot` is lost or released.
    pub(in crate::engine) fn is_tried(&self, slot: u32) -> bool {
        self.own_extras(slot).is_some_and(|number| self.store.extras.get(number).max_attempts > 0)
    }

    /// One more reservation of the job in `slot` was lost or released; tells whether that was the last one.
    pub(in crate::engine) fn count_try(&mut self, slot: u32) -> bool {
        if !self.is_tried(slot) {
            return false;
        }
        let extras = self.store.extras.get_mut(self.store.extras.of(slot));
        extras.fails = extras.fails.saturating_add(1);
        extras.fails >= extras.max_attempts
    }

    /// Starts the count of lost tries again.
    pub(in crate::engine) fn forget_tries(&mut self, slot: u32) {
        if self.is_tried(slot) {
            self.store.extras.get_mut(self.store.extras.of(slot)).fails = 0;
        }
    }

    /// The delay behind the reservation that was lost last.
    fn backoff(&self, slot: u32) -> Span {
        let Some(number) = self.own_extras(slot) else { return Span::ZERO };
        let extras = self.store.extras.get(number);
        let doubled = u64::from(extras.backoff()).checked_shl(u32::from(extras.fails.saturating_sub(1)).min(32));
        Span::from_secs(doubled.unwrap_or(LONGEST_BACKOFF).min(LONGEST_BACKOFF))
    }

    /// The job in `slot`, which is dropped when it is done, is lost to whoever has it reserved.
    pub(in crate::engine) fn end_try(&mut self, slot: u32, cause: Cause, now: Time) {
        if self.count_try(slot) {
            self.set_aside(slot, Cause::Bury, self.store.jobs.get(slot).pri);
            self.changed_by_itself(Change::Bury(slot));
            return self.serve_unblocked(now);
        }
        let backoff = self.backoff(slot);
        if backoff == Span::ZERO {
            self.transfer(slot, cause);
        } else {
            self.transfer_with(slot, Cause::ReleaseLater, |job| {
                job.details.set_delay(backoff);
                job.due = now + backoff;
            });
        }
        self.counted_try(slot);
        self.serve_living(slot, now);
    }

    /// A lost or released try of the job in `slot` was counted, and was not the last one.
    pub(in crate::engine) fn counted_try(&mut self, slot: u32) {
        if self.is_tried(slot) {
            self.changed_by_itself(Change::Retry(slot));
        }
    }

    /// The job in `slot` may be ready again: it goes to who waits, unless its time to live is over.
    pub(in crate::engine) fn serve_living(&mut self, slot: u32, now: Time) {
        let tube = self.store.jobs.get(slot).tube;
        if !self.ends_expired(slot, now) {
            self.serve(tube, now);
        }
    }

    /// If the job in `slot`, which has extras, is ready or delayed from now on, the end of its time to live counts.
    pub(in crate::engine) fn count_life(&mut self, slot: u32) {
        let waits = matches!(self.store.jobs.get(slot).state(), State::Ready | State::Delayed);
        if let Some(number) = self.own_extras(slot).filter(|_| waits) {
            self.store.extras.expose(number);
            self.retime_extras();
        }
    }

    /// Deletes the job in `slot` if it waits and its time to live has ended while it was spared; tells whether it did.
    fn ends_expired(&mut self, slot: u32, now: Time) -> bool {
        let expired = |number: u32| self.store.extras.get(number).expires <= now;
        let waits = matches!(self.store.jobs.get(slot).state(), State::Ready | State::Delayed);
        let ends = waits && self.own_extras(slot).is_some_and(expired);
        if ends {
            self.expire_job(slot, now);
        }
        ends
    }

    /// The time to live of the job in `slot` has ended.
    pub(in crate::engine) fn expire_job(&mut self, slot: u32, now: Time) {
        self.store.evicted += 1;
        self.end_job(slot, Outcome::Gone, now);
    }
}
