//! Failures of jobs: limits on tries, retry delays, failure reasons, dead letters, and expired times to live.
//! Must not assign jobs to clients, or handle reports from workers (see `completion.rs`).
//! Enforces promise P29 of beanpole-promises(7).
//! Touches: agenda, clients, news, past, store, tubes.

use crate::engine::data::*;
use crate::engine::log::{Change, ORIGIN_SIZE};
use crate::engine::Engine;

/// The maximum retry delay in seconds, excluding its random part. The delay doubles with each failed try.
const MAX_BACKOFF: u64 = 24 * 3600;
/// The maximum length of a stored failure reason in bytes.
pub const MAX_REASON: usize = 4096;
/// Bytes of memory for a stored failure reason, in addition to its text.
const REASON_COST: u64 = 256;

#[derive(Clone, Copy, Debug)]
struct Bounds {
    tries: u8,
    backoff: u32,
    /// `true` if the limits are tube settings. Delays then vary, so that simultaneous failures get different delays.
    of_tube: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    Retried(Span),
    GivenUp,
}

/// Returns at most `max` bytes, without an incomplete UTF-8 character at the end of a truncated text.
pub fn beginning(text: &[u8], max: usize) -> &[u8] {
    let Some(cut) = text.get(..max).filter(|cut| cut.len() < text.len()) else { return text };
    match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => &cut[..error.valid_up_to()],
        _ => cut,
    }
}

impl Engine {
    fn try_limits(&self, slot: u32) -> Option<Bounds> {
        let job = self.store.jobs.get(slot);
        if let Some(extras) = self.extras_at(slot) {
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

    pub fn tries_left(&self, job: &Job) -> Option<u8> {
        let slot = self.find_job(job.id, |job| job.state() != State::Scheduled)?;
        self.try_limits(slot).map(|bounds| bounds.tries.saturating_sub(job.fails))
    }

    pub(in crate::engine) fn has_try_limit(&self, slot: u32) -> bool {
        self.try_limits(slot).is_some()
    }

    /// Counts a failed try. Returns `true` if no tries are left.
    pub(in crate::engine) fn count_try(&mut self, slot: u32) -> bool {
        let Some(bounds) = self.try_limits(slot) else { return false };
        self.count_failure(slot);
        self.store.jobs.get(slot).fails >= bounds.tries
    }

    /// Returns the delay after a failed try, plus up to 10% at random if `of_tube` or `spread` is `true`.
    fn backoff(&mut self, slot: u32, spread: bool) -> Span {
        let Some(bounds) = self.try_limits(slot) else { return Span::ZERO };
        let doublings = u32::from(self.store.jobs.get(slot).fails.saturating_sub(1)).min(32);
        let seconds = (u64::from(bounds.backoff) << doublings).min(MAX_BACKOFF);
        let more = if spread || bounds.of_tube { self.roll(seconds * 100 + 1) } else { 0 };
        Span::from_millis(seconds * 1000 + more)
    }

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
        if self.has_try_limit(slot) {
            self.changed_claimed(Change::Retry(slot), false);
        }
        self.serve_living(slot, now);
    }

    /// Counts a failed try, or returns `None` if `try_limits` does. The caller must first claim log space for a change.
    pub(in crate::engine) fn fail_try(&mut self, slot: u32, reason: &[u8], now: Time) -> Option<Failed> {
        self.try_limits(slot)?;
        if self.count_try(slot) {
            self.note_reason(slot, reason);
            self.abandon(slot, Cause::Bury, reason.to_vec().into(), true);
            return Some(Failed::GivenUp);
        }
        let delay = self.backoff(slot, true);
        self.past.retries += 1;
        self.count_event(slot, |events| &mut events.releases);
        self.note_reason(slot, reason);
        self.release_slot(slot, self.store.jobs.get(slot).pri, delay, now);
        Some(Failed::Retried(delay))
    }

    pub(in crate::engine) fn release_slot(&mut self, slot: u32, pri: Priority, delay: Span, now: Time) {
        let cause = if delay == Span::ZERO { Cause::Release } else { Cause::ReleaseLater };
        self.transfer_with(slot, cause, |job| {
            (job.pri, job.due) = (pri, now + delay);
            job.details.set_delay(delay);
            job.count(Count::Releases);
        });
        self.changed(Change::Release(slot));
        self.serve_living(slot, now);
    }

    pub(in crate::engine) fn note_reason(&mut self, slot: u32, reason: &[u8]) {
        let reason = beginning(reason, MAX_REASON);
        if reason.is_empty() || !self.has_memory(REASON_COST + reason.len() as u64) {
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

    /// `claimed` is `true` if the caller has claimed log space for one change.
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

    pub(in crate::engine) fn has_dead_tube(&self, slot: u32) -> bool {
        let rules = &self.tubes.get(self.store.jobs.get(slot).tube).rules;
        rules.as_ref().is_some_and(|rules| rules.settings.dead.is_some())
    }

    fn send_to_dead_tube(&mut self, slot: u32) {
        let job = self.store.jobs.get(slot);
        let (from, class, id) = (job.tube, priority_class(job.pri), job.id);
        let rules = self.tubes.get(from).rules.as_ref();
        let Some(dead) = rules.and_then(|rules| rules.settings.dead.clone()) else { return };
        self.agenda.steps.take(MOVE);
        let is_full = self.tubes.find(&dead).is_some_and(|number| {
            let tube = self.tubes.get(number);
            tube.rules.as_ref().is_some_and(|rules| tube.counts.all() >= rules.settings.max_jobs[class].into())
        });
        let to = if is_full || !self.may_move_lane(slot, &dead) { None } else { self.open_tube(NOBODY, &dead).ok() };
        let names = dead.len() + ORIGIN_SIZE + self.tubes.get(from).name.len();
        let Some(to) = to.filter(|_| self.claim_log_room(names)) else {
            to.into_iter().for_each(|to| self.close_tube_if_idle(to));
            let from = self.tubes.get(from).name.clone();
            return self.news.events.push_back(Event::DeadLetterStays { job: id, from, dead });
        };
        let origin = self.store.origins.add(&self.tubes.get(from).name);
        self.move_unchanged(slot, to, origin);
    }

    pub(in crate::engine) fn forget_origin(&mut self, slot: u32) {
        let before = self.logged_size(slot);
        let job = self.store.jobs.get_mut(slot);
        self.store.origins.remove(std::mem::replace(&mut job.holder, NIL));
        let bytes = before - self.logged_size(slot);
        self.changed(Change::Shrunk { slot, bytes });
    }

    /// Deletes a job whose time to live expired during the reservation. Otherwise serves the tube.
    pub(in crate::engine) fn serve_living(&mut self, slot: u32, now: Time) {
        let job = self.store.jobs.get(slot);
        if matches!(job.state(), State::Ready | State::Delayed) && self.has_expired(slot, now) {
            self.expire_job(slot, now);
        } else {
            self.serve(job.tube, now);
        }
    }

    pub(in crate::engine) fn count_life(&mut self, slot: u32) {
        let job = self.store.jobs.get(slot);
        let waits = matches!(job.state(), State::Ready | State::Delayed | State::Held);
        let counts = waits && job.completion != CompletionPolicy::Keep;
        if let Some(number) = self.bound(slot).filter(|_| counts) {
            self.store.extras.expose(number);
            self.retime_extras();
        }
    }

    pub(in crate::engine) fn expire_job(&mut self, slot: u32, now: Time) {
        self.store.evicted += 1;
        self.end_job(slot, Outcome::Gone, now);
    }

    /// Returns `true` if the job was revoked (from the client `from`, if given), and has remained buried since then.
    pub(in crate::engine) fn is_revoked(&self, slot: u32, from: Option<ClientId>) -> bool {
        let job = self.store.jobs.get(slot);
        let revoked = self.extras_at(slot).and_then(|extras| extras.rare()?.revoked);
        revoked.is_some_and(|(connection, rank)| {
            let is_from = from.is_none_or(|client| self.clients[client].connection == connection);
            is_from && job.state() == State::Buried && job.due == rank
        })
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
                let cut = beginning(long.as_bytes(), MAX_REASON);
                assert!(std::str::from_utf8(cut).is_ok(), "{width} {offset}");
                assert!((MAX_REASON - 3..=MAX_REASON).contains(&cut.len()));
            }
        }
        assert_eq!(beginning(&[0x80; 5000], MAX_REASON).len(), MAX_REASON);
        assert_eq!(beginning(b"short", MAX_REASON), b"short");
    }
}
