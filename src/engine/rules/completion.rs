//! Completion of jobs: reported outcomes, lost workers, expired reservations, and records of ended jobs in the history.
//! Owns the meaning of [`CompletionPolicy`], and every permanent removal of a job. Must not assign jobs to clients.
//! Enforces promise P1 of beanpole-promises(7).
//! Touches: agenda, clients, limits, news, past, store, tubes.

use std::sync::Arc;

use crate::engine::data::*;
use crate::engine::log::{Change, MemberGone};
use crate::engine::rules::failures::Failed;
use crate::engine::Engine;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotCompleted {
    NotFound,
    /// The job already has its final outcome.
    Final,
    OutOfMemory,
}

impl Engine {
    pub fn finish(&mut self, client: ClientId, id: JobId, outcome: Outcome, now: Time) -> Result<(), NotCompleted> {
        let slot = self.held(client, id, now).ok_or(NotCompleted::NotFound)?;
        self.complete_slot(slot, outcome, now)
    }

    /// Completes a job even if its lease has expired: ending the lease first might hand the job to another client.
    pub fn complete(&mut self, id: JobId, outcome: Outcome, now: Time) -> Result<(), NotCompleted> {
        let slot = self.find_job(id, |job| job.state() != State::Scheduled);
        let slot = slot.filter(|&slot| !self.is_revoked(slot, None)).ok_or(NotCompleted::NotFound)?;
        if self.store.jobs.get(slot).state() == State::Finished {
            self.changed(Change::Promise(slot));
            return Err(NotCompleted::Final);
        }
        self.complete_slot(slot, outcome, now)
    }

    fn complete_slot(&mut self, slot: u32, outcome: Outcome, now: Time) -> Result<(), NotCompleted> {
        if self.store.jobs.get(slot).state() == State::Reserved {
            self.count_run(slot, now);
        }
        let completed = self.conclude(slot, outcome, now);
        self.serve_unblocked(now);
        completed
    }

    fn conclude(&mut self, slot: u32, outcome: Outcome, now: Time) -> Result<(), NotCompleted> {
        if let Outcome::Failed(text) | Outcome::Fault(text) = &outcome {
            if self.fail_within_limits(slot, text.bytes(), now)? {
                return Ok(());
            }
        }
        let job = self.store.jobs.get(slot);
        let done = matches!(outcome, Outcome::Done(_));
        match job.completion {
            CompletionPolicy::Drop if !done => return self.bury_in_any_state(slot, &outcome, now),
            CompletionPolicy::Drop => self.end_job(slot, outcome, now),
            CompletionPolicy::Keep if !self.rare_of(slot).is_some_and(|rare| rare.ephemeral) => {
                return self.complete_kept(slot, outcome, now);
            }
            CompletionPolicy::Keep | CompletionPolicy::Tell => self.remove_job(slot, outcome),
        }
        Ok(())
    }

    /// Returns `false` unless the job is reserved and has a try limit or (if durable with `Tell`) a dead-letter tube.
    fn fail_within_limits(&mut self, slot: u32, text: &[u8], now: Time) -> Result<bool, NotCompleted> {
        let job = self.store.jobs.get(slot);
        let notifies = job.completion == CompletionPolicy::Tell && !job.is_volatile();
        let is_lost = notifies && self.has_dead_tube(slot);
        if job.state() != State::Reserved || !is_lost && !self.has_try_limit(slot) {
            return Ok(false);
        }
        ensure!(self.claim_log_room(0), NotCompleted::OutOfMemory);
        if self.fail_try(slot, text, now).is_none() {
            self.note_reason(slot, text);
            self.abandon(slot, Cause::Bury, text.to_vec().into(), true);
        }
        Ok(true)
    }

    pub fn fail(&mut self, client: ClientId, id: JobId, pri: Priority, reason: &[u8], now: Time) -> Option<Failed> {
        let slot = self.held(client, id, now)?;
        self.count_run(slot, now);
        let job = self.store.jobs.get_mut(slot);
        if std::mem::replace(&mut job.pri, pri) != pri && job.completion == CompletionPolicy::Keep {
            // The record of the outcome does not contain the priority.
            self.changed_claimed(Change::Priority(slot), false);
        }
        let failed = self.fail_try(slot, reason, now).unwrap_or_else(|| self.fail_unbounded(slot, reason, now));
        self.serve_unblocked(now);
        self.store.jobs.find(id).into_iter().for_each(|slot| self.changed(Change::Promise(slot)));
        Some(failed)
    }

    fn fail_unbounded(&mut self, slot: u32, reason: &[u8], now: Time) -> Failed {
        self.note_reason(slot, reason);
        let job = self.store.jobs.get(slot);
        if job.completion == CompletionPolicy::Keep {
            let id = job.id;
            let outcome = Outcome::Failed(reason.to_vec().into());
            if self.complete_kept(slot, outcome, now).is_ok() && self.job(id).is_some() {
                return Failed::Retried(Span::ZERO);
            }
        }
        if self.store.jobs.slots.try_get(slot).is_some_and(|job| job.state() == State::Reserved) {
            self.abandon(slot, Cause::Bury, reason.to_vec().into(), true);
        }
        Failed::GivenUp
    }

    pub(in crate::engine) fn complete_deleted(&mut self, slot: u32, now: Time) {
        let done = || Outcome::Done(Body::default());
        // If there is no space for the outcome, remove the job. Nothing is lost, because the result is empty.
        if self.conclude(slot, done(), now).is_err() {
            self.remove_job(slot, done());
        }
    }

    pub(in crate::engine) fn complete_buried(&mut self, slot: u32, pri: Priority) {
        match self.store.jobs.get(slot).completion {
            CompletionPolicy::Drop => {}
            // No client will query the outcome of an orphaned job.
            CompletionPolicy::Keep if self.rare_of(slot).is_some_and(|rare| rare.orphaned) => {
                return self.remove_job(slot, Outcome::Gone)
            }
            CompletionPolicy::Keep => {
                self.count_failure(slot);
                self.changed_claimed(Change::Outcome { slot, result: 0 }, false);
            }
            CompletionPolicy::Tell => self.notify_outcome(slot, Outcome::Failed(Body::default())),
        }
        let is_reserved = self.store.jobs.get(slot).state() == State::Reserved;
        self.bury_last(slot, if is_reserved { Cause::Bury } else { Cause::Fail }, pri);
        self.changed(Change::Bury(slot));
    }

    fn complete_kept(&mut self, slot: u32, outcome: Outcome, now: Time) -> Result<(), NotCompleted> {
        let (done, result) = match outcome {
            Outcome::Done(result) => (true, result),
            Outcome::Failed(result) | Outcome::Fault(result) => (false, result),
            Outcome::Gone => (false, Body::default()),
        };
        let has_space = self.has_memory(result.len() as u64) && self.claim_result(slot, result.len());
        ensure!(has_space, NotCompleted::OutOfMemory);
        if !done {
            self.count_failure(slot);
            let job = self.store.jobs.get(slot);
            if job.fails < self.extras_at(slot).map_or(0, |extras| extras.max_fails) && !self.is_spent(slot) {
                if let Some(cause) = Cause::of_retry(job.state()) {
                    self.transfer(slot, cause);
                }
                self.changed(Change::Outcome { slot, result: 0 });
                self.serve(self.store.jobs.get(slot).tube, now);
                return Ok(());
            }
            if self.has_dead_tube(slot) && self.store.jobs.get(slot).state() == State::Reserved {
                self.note_reason(slot, result.bytes());
                self.abandon(slot, Cause::Bury, result, true);
                return Ok(());
            }
        }
        let length = result.len();
        self.keep_outcome(slot, done, result);
        self.changed(Change::Outcome { slot, result: length });
        Ok(())
    }

    /// The caller must log the change.
    pub(in crate::engine) fn keep_outcome(&mut self, slot: u32, done: bool, result: Body) {
        self.record_past(slot, if done { Verdict::Done } else { Verdict::Failed });
        self.transfer(slot, Cause::Finish);
        self.store_outcome(slot, done, result.bytes());
        self.notify_outcome(slot, if done { Outcome::Done(result) } else { Outcome::Failed(result) });
    }

    pub(in crate::engine) fn store_outcome(&mut self, slot: u32, done: bool, result: &[u8]) {
        let number = self.extras_of(slot);
        let extras = self.store.extras.get_mut(number);
        extras.keep_or_offset = self.store.jobs.get(slot).body.len() as u32;
        extras.done = done;
        self.store.jobs.extend_body(slot, result);
    }

    pub(in crate::engine) fn count_failure(&mut self, slot: u32) {
        let job = self.store.jobs.get_mut(slot);
        job.fails = job.fails.saturating_add(1);
    }

    fn bury_in_any_state(&mut self, slot: u32, outcome: &Outcome, now: Time) -> Result<(), NotCompleted> {
        let state = self.store.jobs.get(slot).state();
        if matches!(state, State::Buried | State::Finished) {
            return Ok(());
        }
        ensure!(self.claim_log_room(0), NotCompleted::OutOfMemory);
        self.note_reason(slot, outcome.body().map_or(&[], Body::bytes));
        self.abandon(slot, Cause::Fail, Body::default(), true);
        self.serve_unblocked(now);
        Ok(())
    }

    /// The caller must log the change.
    pub(in crate::engine) fn bury_last(&mut self, slot: u32, cause: Cause, pri: Priority) {
        self.store.last_bury += 1;
        self.record_past(slot, Verdict::Buried);
        self.count_event(slot, |events| &mut events.buries);
        let position = Time::from_nanos(self.store.last_bury);
        self.transfer_with(slot, cause, |job| {
            job.count(Count::Buries);
            (job.pri, job.due) = (pri, position);
        });
        let job = self.store.jobs.get(slot);
        if job.completion == CompletionPolicy::Drop && job.is_bound() {
            let id = job.id;
            self.store.extras.begin_report(self.store.extras.of(slot));
            if self.notify_buried(id) == Progress::More {
                self.agenda.deferred.push_back(Deferred::Buried(id));
            }
        }
    }

    pub(in crate::engine) fn notify_buried(&mut self, id: JobId) -> Progress {
        let Some(slot) = self.find_job(id, |job| job.state() == State::Buried) else { return Progress::Done };
        let logged = !self.store.jobs.get(slot).is_volatile();
        let outcome = Arc::new(Outcome::Failed(Body::default()));
        while let Some(number) = self.bound(slot) {
            let Some(client) = self.store.extras.next_to_notify(number).map(ClientId) else { break };
            let state = &self.clients[client];
            let waits = state.waiting.is_some_and(|waiting| waiting.outcome == number);
            if waits && state.reserve_policy == ReservePolicy::PerConnection {
                self.cancel_wait(client);
                self.news.events.push_back(Event::Outcome { client, job: id, outcome: outcome.clone(), logged });
            }
            self.agenda.steps.take(NOTIFY);
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
        }
        Progress::Done
    }

    pub(in crate::engine) fn is_spent(&self, slot: u32) -> bool {
        let job = self.store.jobs.get(slot);
        let limit = self.extras_at(slot).map_or(0, |extras| extras.max_attempts);
        job.completion == CompletionPolicy::Keep && limit > 0 && job.history().reserves >= limit.into()
    }

    fn rare_of(&self, slot: u32) -> Option<&RareExtras> {
        self.extras_at(slot)?.rare()
    }

    /// Returns `true` if the job ended. `claimed` is `true` if the caller has claimed log space for one change.
    pub(in crate::engine) fn ends_without_retry(&mut self, slot: u32, claimed: bool) -> bool {
        let job = self.store.jobs.get(slot);
        match job.completion {
            CompletionPolicy::Tell if job.is_volatile() && !self.is_awaited(slot) => {
                self.remove_job(slot, Outcome::Gone)
            }
            CompletionPolicy::Keep if self.rare_of(slot).is_some_and(|rare| rare.orphaned || rare.last_try) => {
                self.end_run(self.store.extras.of(slot));
            }
            CompletionPolicy::Keep if self.is_spent(slot) => {
                self.keep_outcome(slot, false, Body::default());
                self.changed_claimed(Change::Outcome { slot, result: 0 }, claimed);
            }
            CompletionPolicy::Drop | CompletionPolicy::Keep | CompletionPolicy::Tell => return false,
        }
        true
    }

    fn is_awaited(&self, slot: u32) -> bool {
        self.extras_at(slot).is_some_and(|extras| extras.submitters() > 0)
    }

    pub(in crate::engine) fn end_reservation(&mut self, slot: u32, cause: Cause, now: Time) {
        let job = self.store.jobs.get_mut(slot);
        let (tube, completion) = (job.tube, job.completion);
        let is_tell = completion == CompletionPolicy::Tell;
        if is_tell && cause != Cause::Expire {
            job.count(Count::Timeouts);
            self.changed(Change::Expire(slot));
        }
        let losses = self.store.jobs.get(slot).history().timeouts;
        if let Some(number) = self.bound(slot).filter(|_| is_tell) {
            self.store.extras.forget_progress(number);
        }
        let is_try = completion == CompletionPolicy::Drop || self.has_try_limit(slot);
        if (is_tell || !is_try) && self.ends_without_retry(slot, false) {
            // The job has ended.
        } else if is_try {
            self.end_try(slot, cause, now);
        } else if is_tell && self.limits.max_losses.is_some_and(|limit| losses >= limit) {
            self.abandon(slot, Cause::Bury, Body::default(), false);
        } else {
            self.transfer(slot, cause);
            self.serve(tube, now);
        }
        self.serve_unblocked(now);
    }

    /// Removes extras, or a job, that only the detached client needed.
    pub(in crate::engine) fn after_detach(&mut self, number: u32) {
        let extras = self.store.extras.get(number);
        if self.store.extras.is_left(number) || extras.submitters() > 0 {
            return;
        }
        let (slot, is_blank) = (extras.slot, extras.is_blank());
        let job = self.store.jobs.get(slot);
        if job.completion == CompletionPolicy::Tell && job.is_volatile() && job.state() != State::Reserved {
            self.remove_job(slot, Outcome::Gone);
        } else if job.completion == CompletionPolicy::Drop && is_blank {
            self.unbind(slot);
        }
    }

    /// Begins to notify the waiting clients; [`Engine::report_on`] continues.
    pub fn report(&mut self, client: ClientId, id: JobId, report: &Arc<Report>, now: Time) -> bool {
        let Some(slot) = self.held(client, id, now) else { return false };
        if let Report::Progress { done, total, .. } = **report {
            let number = self.extras_of(slot);
            self.store.extras.edit(number, |extras| extras.rare_mut().progress = (done, total));
        }
        if self.is_awaited(slot) {
            self.store.extras.begin_report(self.store.extras.of(slot));
            self.reply_shares(report.body());
        }
        true
    }

    pub fn report_on(&mut self, client: ClientId, id: JobId, report: &Arc<Report>, now: Time) -> Progress {
        let slot = self.held(client, id, now);
        let Some(number) = slot.and_then(|slot| self.bound(slot)) else { return Progress::Done };
        while let Some(client) = self.store.extras.next_to_notify(number).map(ClientId) {
            self.news.events.push_back(Event::Report { client, job: id, report: report.clone() });
            self.agenda.steps.take(notify_steps(report.body().len()));
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
        }
        Progress::Done
    }

    pub fn delete_in_any_state(&mut self, id: JobId, now: Time) -> bool {
        let slot = self.store.jobs.find(id);
        slot.map(|slot| self.end_job(slot, Outcome::Gone, now)).is_some()
    }

    /// A reserved job stays reserved. Returns `false` if the job is missing, finished, or reserved without `Tell`.
    pub fn cancel(&mut self, id: JobId, now: Time) -> bool {
        let Some(slot) = self.find_job(id, |job| job.state() != State::Finished) else { return false };
        let job = self.store.jobs.get(slot);
        if job.state() != State::Reserved {
            self.end_job(slot, Outcome::Gone, now);
            return true;
        }
        if job.completion != CompletionPolicy::Tell {
            // Another client may rely on the outcome that the worker will report.
            return false;
        }
        self.notify_outcome(slot, Outcome::Failed(Body::default()));
        let size = self.logged_size(slot);
        let job = self.store.jobs.get(slot);
        if !job.is_volatile() {
            // A restart must not restore the canceled job, so delete the job from the log.
            self.changed(Change::Delete { slot, id: job.id, size });
            self.store.jobs.get_mut(slot).set(JobFlag::Volatile, true);
        }
        if let Some(number) = self.bound(slot) {
            self.leave_family(slot, false);
            // A later submission must not join the canceled job, whose worker is processing the earlier submission.
            self.store.extras.forget_dedup_key(number);
        }
        true
    }

    pub(in crate::engine) fn remove_job(&mut self, slot: u32, outcome: Outcome) {
        let verdict = self.verdict_of(slot, &outcome);
        self.notify_outcome(slot, outcome);
        self.leave(slot);
        let size = if self.is_logged() { self.logged_size(slot) } else { 0 };
        if self.store.jobs.get(slot).is_tied() {
            return self.remove_member(slot, size, verdict);
        }
        let job = self.forget_job(slot, verdict);
        if !job.is_volatile() {
            let growth = self.forget_changes(slot);
            self.changed_if(|| Change::Delete { slot, id: job.id, size: size.saturating_add_signed(-growth) });
        }
        self.close_tube_if_idle(job.tube);
    }

    /// `size` is the previous logged size in bytes.
    #[inline(never)] // cold: few jobs are tied to groups
    fn remove_member(&mut self, slot: u32, size: usize, verdict: Option<Verdict>) {
        let groups = self.end_membership(slot);
        self.forget_schedule(slot);
        let job = self.forget_job(slot, verdict);
        let size = size.saturating_add_signed(-self.forget_changes(slot));
        let change = match groups.is_empty() {
            true => Change::Delete { slot, id: job.id, size },
            false => Change::MemberGone(Box::new(MemberGone { slot, id: job.id, size, groups: groups.clone() })),
        };
        self.changed(change);
        self.close_tube_if_idle(job.tube);
        self.settle_groups(&groups);
    }

    /// The job must be in no queue.
    #[inline]
    fn forget_job(&mut self, slot: u32, verdict: Option<Verdict>) -> Job {
        self.unbind(slot);
        self.store.jobs.remove_with(slot, |job, body| {
            let tube = self.tubes.get_mut(job.tube);
            tube.deletes += 1;
            if let (Some(verdict), false) = (verdict, job.is_over()) {
                self.past.record(job, body, &tube.name, verdict);
            }
        })
    }

    /// If the step budget runs out, the job gets new extras, and clients not notified yet stay in the old extras.
    pub(in crate::engine) fn notify_outcome(&mut self, slot: u32, outcome: Outcome) {
        let is_awaited = |&number: &u32| self.store.extras.get(number).submitters() > 0;
        let Some(number) = self.bound(slot).filter(is_awaited) else { return };
        let job = self.store.jobs.get(slot);
        let (id, logged) = (job.id, !job.is_volatile());
        outcome.body().into_iter().for_each(|body| self.reply_shares(body));
        let outcome = Arc::new(outcome);
        if self.notify_some(number, id, &outcome, logged) == Progress::More {
            self.store.extras.leave_to_waiters(number);
            self.agenda.deferred.push_back(Deferred::Notify { extras: number, job: id, outcome, logged });
        }
    }

    pub(in crate::engine) fn notify_some(
        &mut self,
        extras: u32,
        job: JobId,
        outcome: &Arc<Outcome>,
        logged: bool,
    ) -> Progress {
        let length = outcome.body().map_or(0, |body| body.len());
        while let Some((member, client)) = self.store.extras.first_attached(extras) {
            let client = ClientId(client);
            self.detach(member, client);
            if self.clients[client].waiting.is_some_and(|waiting| waiting.outcome == extras) {
                self.stop_waiting(client);
            }
            self.news.events.push_back(Event::Outcome { client, job, outcome: outcome.clone(), logged });
            self.agenda.steps.take(notify_steps(length));
            if self.agenda.steps.are_used_up() && self.store.extras.first_attached(extras).is_some() {
                return Progress::More;
            }
        }
        if self.store.extras.is_left(extras) {
            self.store.extras.remove(extras);
        }
        Progress::Done
    }

    pub fn keeps_outcome(&self, id: JobId) -> bool {
        self.find_job(id, |job| job.state() == State::Finished && !job.is_volatile()).is_some()
    }

    pub(in crate::engine) fn find_job(&self, id: JobId, accepts: impl FnOnce(&Job) -> bool) -> Option<u32> {
        self.store.jobs.find(id).filter(|&slot| accepts(self.store.jobs.get(slot)))
    }

    /// Returns the length of the submitted body, which precedes the result in a finished job.
    pub fn payload_len(&self, job: &JobView) -> usize {
        match (job.state(), self.extras(job)) {
            (State::Finished, Some(extras)) => extras.keep_or_offset as usize,
            _ => job.body.len(),
        }
    }

    pub fn outcome<'a>(&'a self, job: &JobView<'a>) -> Option<(bool, &'a [u8])> {
        let extras = self.extras(job).filter(|_| job.state() == State::Finished)?;
        Some((extras.done, &job.body.bytes()[extras.keep_or_offset as usize..]))
    }

    /// Returns the verdict for the history. Records a failure immediately, because the removal discards the reason.
    #[inline]
    fn verdict_of(&mut self, slot: u32, outcome: &Outcome) -> Option<Verdict> {
        match outcome {
            _ if !self.past.is_on() => None,
            Outcome::Done(_) => Some(Verdict::Done),
            Outcome::Gone => Some(Verdict::Deleted),
            Outcome::Failed(_) | Outcome::Fault(_) => {
                self.record_past(slot, Verdict::Failed);
                None
            }
        }
    }

    #[inline(never)] // cold: few jobs fail or keep an outcome
    fn record_past(&mut self, slot: u32, verdict: Verdict) {
        let job = self.store.jobs.view(slot);
        if job.is_over() || !self.past.is_on() {
            return;
        }
        self.past.record(&job, job.body().bytes(), &self.tubes.get(job.tube).name, verdict);
        if let Some(number) = self.bound(slot).filter(|_| verdict.is_failure()) {
            self.past.explain(self.store.extras.get(number).reason());
        }
    }
}
