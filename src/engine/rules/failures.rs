//! Failures of jobs: tries, the delay before the next one, the reason, and dead letters.
//!
//! Owns the count of failed tries and the effect of the last one, by the limits of the job or of its tube, and the end
//! of a time to live. `completion` handles the reports of workers. Must not hand out jobs.
//!
//! Promises: P29.
//! Touches: agenda, news, store, tubes.

use crate::engine::data::{
    priority_class, Body, Cause, CompletionPolicy, Count, Event, Outcome, Span, State, Time, MOVE, NIL, NOBODY,
};
use crate::engine::log::{Change, ORIGIN_SIZE};
use crate::engine::Engine;

/// The maximum delay after a failed try, in seconds.
const MAX_BACKOFF: u64 = 24 * 3600;

/// The maximum length of a stored failure reason, in bytes.
pub const MAX_REASON: usize = 4096;

/// Bytes of account that the reason of a failure may take in addition to its own.
const REASON_COST: u64 = 256;

#[derive(Clone, Copy, Debug)]
struct Bounds {
    tries: u8,
    backoff: u32,
    /// The limits are those of the tube, whose delays vary slightly, to spread jobs that failed together.
    of_tube: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    Retried(Span),
    /// That was its last try: it is buried, or finished.
    GivenUp,
}

/// Returns the reason as it is stored: a longer text is cut after a whole character.
fn kept(reason: &[u8]) -> &[u8] {
    let Some(cut) = reason.get(..MAX_REASON).filter(|cut| cut.len() < reason.len()) else { return reason };
    match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => &cut[..error.valid_up_to()],
        _ => cut,
    }
}

impl Engine {
    /// Returns the limits of the job in `slot`, if it has some: its own, or else those of its tube.
    fn try_limits(&self, slot: u32) -> Option<Bounds> {
        let job = self.store.jobs.get(slot);
        if job.is_bound() {
            let extras = self.store.extras.get(self.store.extras.of(slot));
            let (tries, fails) = (extras.max_attempts, extras.max_fails);
            match job.completion {
                CompletionPolicy::Drop if tries > 0 => {
                    return Some(Bounds { tries, backoff: extras.backoff(), of_tube: false });
                }
                CompletionPolicy::Keep if tries > 0 || fails > 0 => return None,
                CompletionPolicy::Keep if extras.rare().is_some_and(|rare| rare.ephemeral) => return None,
                _ => {}
            }
        }
        let settings = &self.tubes.get(job.tube).rules.as_ref()?.settings;
        (settings.tries > 0).then_some(Bounds { tries: settings.tries, backoff: settings.backoff, of_tube: true })
    }

    /// Returns how many tries of a job are left, if they are limited.
    pub fn tries_left(&self, job: &crate::engine::Job) -> Option<u8> {
        let slot = self.store.jobs.find(job.id).filter(|_| job.state() != crate::engine::State::Scheduled)?;
        self.try_limits(slot).map(|bounds| bounds.tries.saturating_sub(job.fails))
    }

    /// Returns `true` if the failures of the job in `slot` are counted.
    pub(in crate::engine) fn is_tried(&self, slot: u32) -> bool {
        self.try_limits(slot).is_some()
    }

    /// Counts a failed try of the job in `slot`. Returns `true` if no tries are left.
    pub(in crate::engine) fn count_try(&mut self, slot: u32) -> bool {
        let Some(bounds) = self.try_limits(slot) else { return false };
        let job = self.store.jobs.get_mut(slot);
        job.fails = job.fails.saturating_add(1);
        job.fails >= bounds.tries
    }

    /// Returns the delay after the last failed try. With `spread`, it is up to a tenth longer.
    fn backoff(&mut self, slot: u32, spread: bool) -> Span {
        let Some(bounds) = self.try_limits(slot) else { return Span::ZERO };
        let doublings = u32::from(self.store.jobs.get(slot).fails.saturating_sub(1)).min(32);
        let seconds = (u64::from(bounds.backoff) << doublings).min(MAX_BACKOFF);
        let more = if spread || bounds.of_tube { self.roll(seconds * 100 + 1) } else { 0 };
        Span::from_millis(seconds * 1000 + more)
    }

    /// Ends the reservation of the job in `slot`, whose holder is lost.
    pub(in crate::engine) fn end_try(&mut self, slot: u32, cause: Cause, now: Time) {
        if self.count_try(slot) {
            self.abandon(slot, Cause::Bury, Body::default(), false);
            return self.serve_unblocked(now);
        }
        let backoff = self.backoff(slot, false);
        if backoff == Span::ZERO {
            self.transfer(slot, cause);
        } else {
            self.transfer_with(slot, Cause::ReleaseLater, |job| {
                job.details.set_delay(backoff);
                job.due = now + backoff;
            });
        }
        if self.is_tried(slot) {
            self.changed_unclaimed(Change::Retry(slot));
        }
        self.serve_living(slot, now);
    }

    /// Handles the failure of the job in `slot`, as reported by its worker, and counts it. Returns `None` if its tries
    /// are unlimited. The caller has claimed the log space for a change.
    pub(in crate::engine) fn fail_try(&mut self, slot: u32, reason: &[u8], now: Time) -> Option<Failed> {
        self.try_limits(slot)?;
        if self.count_try(slot) {
            self.note_reason(slot, reason);
            self.abandon(slot, Cause::Bury, reason.to_vec().into(), true);
            return Some(Failed::GivenUp);
        }
        let delay = self.backoff(slot, true);
        self.past.count_retry();
        self.count_event(slot, |events| &mut events.releases);
        self.note_reason(slot, reason);
        let cause = if delay == Span::ZERO { Cause::Release } else { Cause::ReleaseLater };
        self.transfer_with(slot, cause, |job| {
            job.due = now + delay;
            job.details.set_delay(delay);
            job.count(Count::Releases);
        });
        self.changed(Change::Release(slot));
        self.serve_living(slot, now);
        Some(Failed::Retried(delay))
    }

    /// Stores the reason of the last failure of the job in `slot`, if there is memory and log space for it.
    pub(in crate::engine) fn note_reason(&mut self, slot: u32, reason: &[u8]) {
        let reason = kept(reason);
        if reason.is_empty() || self.lacks_memory(REASON_COST + reason.len() as u64) {
            return;
        }
        if !self.store.jobs.get(slot).is_volatile() && !self.claim_log_room(reason.len()) {
            return;
        }
        let before = self.logged_size(slot);
        let number = self.extras_of(slot);
        self.store.extras.edit(number, |extras| extras.rare_mut().reason = Some(reason.into()));
        let sizes = (before, self.logged_size(slot));
        self.changed(Change::Reason { slot, sizes });
    }

    /// Gives up the job in `slot`: the server buries it, in the dead-letter tube if its tube has one. Clients that wait
    /// for its outcome are notified that it failed, with this text. `claimed`: the log space for one change is already
    /// claimed.
    pub(in crate::engine) fn abandon(&mut self, slot: u32, cause: Cause, text: Body, claimed: bool) {
        let job = self.store.jobs.get(slot);
        let (pri, volatile) = (job.pri, job.is_volatile());
        match job.completion {
            CompletionPolicy::Tell if volatile => return self.remove_job(slot, Outcome::Failed(text)),
            CompletionPolicy::Keep if !self.has_dead_tube(slot) => {
                let claimed = claimed && self.claim_result(slot, text.len());
                let result = if claimed { text } else { Body::default() };
                let change = Change::Outcome { slot, result: result.len() };
                self.keep_outcome(slot, false, result);
                return self.changed_claimed(change, claimed);
            }
            CompletionPolicy::Tell | CompletionPolicy::Keep => self.notify_outcome(slot, Outcome::Failed(text)),
            CompletionPolicy::Drop => {}
        }
        self.bury_last(slot, cause, pri);
        self.changed_claimed(Change::Bury(slot), claimed);
        self.send_to_dead_tube(slot);
    }

    /// Returns `true` if the server buries the job in `slot` in another tube.
    pub(in crate::engine) fn has_dead_tube(&self, slot: u32) -> bool {
        let rules = &self.tubes.get(self.store.jobs.get(slot).tube).rules;
        rules.as_ref().is_some_and(|rules| rules.settings.dead.is_some())
    }

    /// Moves the job in `slot`, which has just been buried, to the dead-letter tube of its tube.
    fn send_to_dead_tube(&mut self, slot: u32) {
        let job = self.store.jobs.get(slot);
        let (from, class, id) = (job.tube, priority_class(job.pri), job.id);
        let rules = self.tubes.get(from).rules.as_ref();
        let Some(dead) = rules.and_then(|rules| rules.settings.dead.clone()) else { return };
        self.agenda.steps.take(MOVE);
        let is_full = self.tubes.find(&dead).is_some_and(|number| {
            let tube = self.tubes.get(number);
            tube.rules.as_ref().is_some_and(|rules| tube.counts.all() >= rules.settings.most[class].into())
        });
        let to = if is_full || !self.may_move_lane(slot, &dead) { None } else { self.open_tube(NOBODY, &dead).ok() };
        let names = dead.len() + ORIGIN_SIZE + self.tubes.get(from).name.len();
        let Some(to) = to.filter(|_| self.claim_log_room(names)) else {
            to.into_iter().for_each(|to| self.close_tube_if_idle(to));
            let from = self.tubes.get(from).name.clone();
            return self.news.events.push_back(Event::DeadLetterStays { job: id, from, dead });
        };
        let origin = self.store.origins.add(&self.tubes.get(from).name);
        self.move_as_it_is(slot, to, origin);
    }

    /// Removes the origin of the job in `slot`, which is no longer a dead letter.
    pub(in crate::engine) fn forget_origin(&mut self, slot: u32) {
        let before = self.logged_size(slot);
        let job = self.store.jobs.get_mut(slot);
        self.store.origins.remove(std::mem::replace(&mut job.holder, NIL));
        let bytes = before - self.logged_size(slot);
        self.changed(Change::Shrunk { slot, bytes });
    }

    /// Serves the clients that wait for the job in `slot`, which may be ready again, unless its time to live has ended.
    pub(in crate::engine) fn serve_living(&mut self, slot: u32, now: Time) {
        let tube = self.store.jobs.get(slot).tube;
        if !self.end_if_expired(slot, now) {
            self.serve(tube, now);
        }
    }

    /// Returns the extras of a job whose time to live only counts while it waits, if it has some.
    fn extras_with_ttl(&self, slot: u32) -> Option<u32> {
        let job = self.store.jobs.get(slot);
        let mortal = job.completion != CompletionPolicy::Keep && job.is_bound();
        mortal.then(|| self.store.extras.of(slot))
    }

    /// Schedules the end of the time to live of the job in `slot`, which has extras, if the job waits from now on.
    pub(in crate::engine) fn count_life(&mut self, slot: u32) {
        let waits = matches!(self.store.jobs.get(slot).state(), State::Ready | State::Delayed | State::Held);
        if let Some(number) = self.extras_with_ttl(slot).filter(|_| waits) {
            self.store.extras.expose(number);
            self.retime_extras();
        }
    }

    /// Deletes the job in `slot` and returns `true` if it waits and its time to live has ended.
    fn end_if_expired(&mut self, slot: u32, now: Time) -> bool {
        let expired = |number: u32| self.store.extras.get(number).expires <= now;
        let waits = matches!(self.store.jobs.get(slot).state(), State::Ready | State::Delayed);
        let ends = waits && self.extras_with_ttl(slot).is_some_and(expired);
        if ends {
            self.expire_job(slot, now);
        }
        ends
    }

    /// Deletes the job in `slot`, whose time to live has ended.
    pub(in crate::engine) fn expire_job(&mut self, slot: u32, now: Time) {
        self.store.evicted += 1;
        self.end_job(slot, Outcome::Gone, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_ends_with_a_whole_character() {
        for (width, text) in [(1, "a"), (2, "é"), (3, "€"), (4, "🦀")] {
            for offset in 0..4 {
                let long = ["x".repeat(offset), text.repeat(MAX_REASON)].concat();
                let cut = kept(long.as_bytes());
                assert!(std::str::from_utf8(cut).is_ok(), "{width} {offset}");
                assert!((MAX_REASON - 3..=MAX_REASON).contains(&cut.len()));
            }
        }
        assert_eq!(kept(&[0x80; 5000]).len(), MAX_REASON);
        assert_eq!(kept(b"short"), b"short");
    }
}
