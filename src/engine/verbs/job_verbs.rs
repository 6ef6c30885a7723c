//! Commands for single jobs, for all jobs of a client, and for the jobs of a tube. Also returns the measured times of
//! jobs. Must not decide which client gets which job, or what happens when a job ends (see `completion.rs`).
//! Touches: agenda, clients, job_times, store, tubes.

use crate::engine::data::*;
use crate::engine::log::{Change, ORIGIN_SIZE};
use crate::engine::{Engine, OverLimit, Refused};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kick {
    pub left: u64,
    /// The state of the jobs to kick. The first call chooses the state.
    pub of: Option<State>,
    pub done: u64,
}

const REVOKED: &[u8] = b"revoked";

/// The delay with which an import puts a job before it buries the job.
const IMPORT_DELAY: Span = Span::from_secs(u32::MAX as u64);

impl Kick {
    pub fn new(bound: u64) -> Kick {
        Kick { left: bound, of: None, done: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct TouchAll {
    begin: Time,
    /// The heap index of the next job to touch.
    at: usize,
    /// The number of reserved jobs after the last call. If it has changed, jobs may have moved in the heap.
    held: usize,
    skipped: usize,
}

impl TouchAll {
    pub fn new(begin: Time) -> TouchAll {
        TouchAll { begin, at: 0, held: 0, skipped: 0 }
    }
}

impl Engine {
    /// Returns `false` if the job is missing, finished, reserved by another client, or revoked from `client`.
    pub fn delete(&mut self, client: ClientId, id: JobId, now: Time) -> bool {
        let Some(slot) = self.store.jobs.find(id) else { return false };
        let job = self.store.jobs.get(slot);
        match job.state() {
            State::Finished => return false,
            State::Reserved if job.holder != client.0 => return false,
            State::Reserved => {
                self.count_run(slot, now);
                self.complete_deleted(slot, now);
            }
            State::Buried if self.is_revoked(slot, Some(client)) => return false,
            _ => self.end_job(slot, Outcome::Gone, now),
        }
        true
    }

    pub fn release(&mut self, client: ClientId, id: JobId, pri: Priority, delay: Span, now: Time) -> bool {
        let Some(slot) = self.held(client, id, now) else { return false };
        if self.ends_without_retry(slot, true) {
            return true;
        }
        self.count_event(slot, |events| &mut events.releases);
        if self.count_try(slot) {
            let job = self.store.jobs.get_mut(slot);
            job.count(Count::Releases);
            job.pri = pri;
            // This change records only the release count. `abandon` records the state of the job.
            self.changed_claimed(Change::Release(slot), false);
            self.abandon(slot, Cause::Bury, Body::default(), true);
            self.serve_unblocked(now);
            return true;
        }
        self.release_slot(slot, pri, delay, now);
        true
    }

    pub fn bury(&mut self, client: ClientId, id: JobId, pri: Priority, now: Time) -> bool {
        let Some(slot) = self.held(client, id, now) else { return false };
        self.complete_buried(slot, pri);
        self.serve_unblocked(now);
        true
    }

    /// Buries an imported job, and sets the delay in seconds, if any, and the origin of a dead letter. The job need not
    /// be reserved if its delay is [`IMPORT_DELAY`]: if it were reserved but not buried, workers could get it.
    pub fn bury_as(
        &mut self,
        client: ClientId,
        id: JobId,
        pri: Priority,
        (delay, from): (Option<u32>, Option<&[u8]>),
        now: Time,
    ) -> Result<bool, OverLimit> {
        if (delay, from) == (None, None) {
            return Ok(self.bury(client, id, pri, now));
        }
        let tube = self.store.jobs.find(id).map_or(0, |slot| self.tubes.get(self.store.jobs.get(slot).tube).name.len());
        ensure!(self.claim_log_room(tube + from.map_or(0, |from| ORIGIN_SIZE + from.len())), OverLimit);
        let waits =
            |job: &Job| matches!(job.state(), State::Delayed | State::Held) && job.details.delay() == IMPORT_DELAY;
        let found = self.find_job(id, waits).or_else(|| self.held(client, id, now));
        let Some(slot) = found else { return Ok(false) };
        self.complete_buried(slot, pri);
        self.serve_unblocked(now);
        let slot = self.store.jobs.find(id);
        if let Some(slot) = slot.filter(|&slot| self.store.jobs.get(slot).state() == State::Buried) {
            let before = self.logged_size(slot);
            let job = self.store.jobs.get_mut(slot);
            delay.into_iter().for_each(|delay| job.details.set_delay(Span::from_secs(delay.into())));
            if let Some(from) = from {
                self.leave_family(slot, true);
                self.store.jobs.get_mut(slot).holder = self.store.origins.add(from);
                self.join_family(slot, true);
            }
            let sizes = (before, self.logged_size(slot));
            self.changed(Change::Move { slot, sizes });
        }
        Ok(true)
    }

    /// The previous holder cannot use the job until the job is kicked.
    pub fn revoke(&mut self, id: JobId, pri: Priority, now: Time) -> bool {
        let Some(slot) = self.find_job(id, |job| job.state() == State::Reserved) else { return false };
        let holder = ClientId(self.store.jobs.get(slot).holder);
        let Some(slot) = self.held(holder, id, now) else { return false };
        self.note_reason(slot, REVOKED);
        self.complete_buried(slot, pri);
        if let Some(slot) = self.store.jobs.find(id) {
            let (number, rank) = (self.extras_of(slot), self.store.jobs.get(slot).due);
            let from = self.clients[holder].connection;
            self.store.extras.edit(number, |extras| extras.rare_mut().revoked = Some((from, rank)));
        }
        self.serve_unblocked(now);
        true
    }

    pub fn touch(&mut self, client: ClientId, id: JobId, now: Time) -> bool {
        let Some(slot) = self.held(client, id, now) else { return false };
        let job = self.store.jobs.get_mut(slot);
        job.due = now + job.ttr();
        let (position, key) = (job.position(), job.due_key());
        self.clients[client].reserved_mut().change(position, key, &mut self.store.jobs);
        self.retime_client(client.0);
        true
    }

    /// Kicks buried jobs (longest buried first) or, if no job is buried, delayed jobs (next due first). Returns
    /// [`Progress::Done`] if there is no log space or memory for more kicks.
    pub fn kick(&mut self, client: ClientId, kick: &mut Kick, now: Time) -> Progress {
        self.kick_tube(self.clients[client].used, kick, now)
    }

    fn kick_tube(&mut self, number: u32, kick: &mut Kick, now: Time) -> Progress {
        let tube = self.tubes.get_mut(number);
        let state = kick.of.unwrap_or(if tube.buried.is_empty() { State::Delayed } else { State::Buried });
        kick.left = kick.left.min(tube.counts.sum(&[state]));
        kick.of = Some(state);
        let most = self.claim_burst(kick.left.min((self.agenda.steps.left() / MOVE).max(1)));
        let mut kicked = 0;
        // Updating the dedup keys of dead letters costs additional steps.
        while kicked < most && (kicked == 0 || !self.agenda.steps.are_used_up()) {
            let first = self.first_in(number, state).expect("counted jobs");
            if self.lacks_memory_for_twin(first) {
                kick.left = kicked;
                break;
            }
            self.kick_slot(first, now);
            kicked += 1;
        }
        kick.left -= kicked;
        kick.done += kicked;
        if kicked > 0 && kick.left > 0 {
            return Progress::More;
        }
        Progress::Done
    }

    /// Kicks a buried, delayed or held job, ends a lease, or runs a schedule. Returns `false` for other jobs.
    pub fn kick_job(&mut self, id: JobId, now: Time) -> Result<bool, Refused> {
        let Some(slot) = self.store.jobs.find(id) else { return Ok(false) };
        let job = self.store.jobs.get(slot);
        if job.is_leased() {
            self.end_lease(slot, now);
        } else if job.state().after(Cause::Kick).is_some() {
            ensure!(!self.lacks_memory_for_twin(slot), Refused::OutOfMemory);
            self.kick_slot(slot, now);
        } else if job.state() == State::Scheduled {
            return self.run_now(slot, now);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Counts a kick, and ends the lease as if the holder had released the job.
    fn end_lease(&mut self, slot: u32, now: Time) {
        self.agenda.steps.take(MOVE);
        if self.ends_without_retry(slot, true) {
            return;
        }
        self.store.jobs.get_mut(slot).count(Count::Kicks);
        self.changed(Change::Kick(slot));
        self.transfer(slot, Cause::Release);
        self.serve(self.store.jobs.get(slot).tube, now);
    }

    fn kick_slot(&mut self, slot: u32, now: Time) {
        self.agenda.steps.take(MOVE);
        self.store.jobs.get_mut(slot).count(Count::Kicks);
        self.store.jobs.get_mut(slot).fails = 0;
        self.changed(Change::Kick(slot));
        self.transfer(slot, Cause::Kick);
        self.serve_living(slot, now);
    }

    pub fn peek(&self, client: ClientId, state: State) -> Option<JobView<'_>> {
        let slot = self.first_in(self.clients[client].used, state);
        slot.map(|slot| self.store.jobs.view(slot))
    }

    /// Returns `None` if no job is available, or if the step budget or the log space for bulk commands is used up.
    pub fn reserve_more(&mut self, client: ClientId, now: Time) -> Option<JobView<'_>> {
        if self.catch_up(client, now) == Progress::More || self.watches_many(client) || !self.take_burst(0) {
            return None;
        }
        let slot = self.best_watched(client)?;
        self.grant(client, slot, Cause::Reserve, now);
        self.agenda.steps.take(MOVE);
        Some(self.store.jobs.view(slot))
    }

    /// Selects the reply format for a command that waits: if `batch` is set, the format of `reserve-batch`.
    pub fn set_batch(&mut self, client: ClientId, batch: bool) {
        self.clients[client].batch = batch;
    }

    pub fn is_batch(&self, client: ClientId) -> bool {
        self.clients[client].batch
    }

    /// Restarts the times to run of all reserved jobs whose tubes `may` permits. Returns the number of these jobs.
    pub fn touch_all(
        &mut self,
        client: ClientId,
        touch: &mut TouchAll,
        may: impl Fn(&[u8]) -> bool,
        now: Time,
    ) -> (Progress, usize) {
        if self.catch_up(client, now) == Progress::More {
            return (Progress::More, 0);
        }
        if self.clients[client].reserved().len() != touch.held {
            (touch.at, touch.skipped) = (0, 0);
        }
        let mut progress = Progress::Done;
        while touch.at < self.clients[client].reserved().len() {
            if self.agenda.steps.are_used_up() {
                progress = Progress::More;
                break;
            }
            self.agenda.steps.take(1);
            let slot = self.clients[client].reserved().entries[touch.at].1;
            let job = self.store.jobs.get_mut(slot);
            let due = touch.begin + job.ttr();
            let is_permitted = may(&self.tubes.get(job.tube).name);
            if !is_permitted || job.due >= due {
                touch.at += 1;
                touch.skipped += usize::from(!is_permitted);
                continue;
            }
            // The job moves toward the end of the heap, and another job takes its place.
            job.due = due;
            let (position, key) = (job.position(), job.due_key());
            self.clients[client].reserved_mut().change(position, key, &mut self.store.jobs);
        }
        self.retime_client(client.0);
        touch.held = self.clients[client].reserved().len();
        (progress, touch.held - touch.skipped)
    }

    pub fn is_buried(&self, id: JobId) -> bool {
        self.job(id).is_some_and(|job| job.state() == State::Buried)
    }

    pub fn job_times(&self) -> &JobTimes {
        &self.job_times
    }

    pub fn peek_in(&self, tube: &[u8], state: State) -> Option<JobView<'_>> {
        Some(self.store.jobs.view(self.first_in(self.tubes.find(tube)?, state)?))
    }

    pub(in crate::engine) fn first_in(&self, number: u32, state: State) -> Option<u32> {
        let tube = self.tubes.get(number);
        match state {
            State::Ready => tube.first(ReservePolicy::PerConnection, &self.store.jobs),
            State::Delayed => tube.delayed.first().map(|(_, slot)| slot),
            State::Buried => tube.buried.first(),
            State::Reserved | State::Held | State::Finished | State::Scheduled => None,
        }
    }

    pub fn kick_in(&mut self, tube: &[u8], kick: &mut Kick, now: Time) -> Option<Progress> {
        Some(self.kick_tube(self.tubes.find(tube)?, kick, now))
    }

    /// Does not count `client` as a producer.
    pub fn put_into(&mut self, client: ClientId, tube: &[u8], job: NewJob, now: Time) -> Result<JobId, Refused> {
        let number = self.open_tube(client, tube)?;
        let slot = self.take_in(number, job, None, now).inspect_err(|_| self.close_tube_if_idle(number))?;
        self.serve(number, now);
        Ok(self.store.jobs.get(slot).id)
    }
}
