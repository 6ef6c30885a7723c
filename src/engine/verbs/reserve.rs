//! Reservations, waits for jobs and outcomes, and returns of jobs by connected and disconnected clients. Must not
//! choose a job (see `matching.rs`), or decide what happens to a returned job (see `completion.rs`).
//! Enforces promise P10 of beanpole-promises(7).
//! Touches: agenda, clients, store, tubes.

use crate::engine::data::*;
use crate::engine::log::Change;
use crate::engine::Engine;

#[derive(Debug)]
pub enum Reserve<'a> {
    Job(JobView<'a>),
    NoJob(NoJob),
    Waiting,
}

#[derive(Debug)]
pub enum Grab<'a> {
    Job(JobView<'a>),
    NoJob,
    /// The client must call [`Engine::grab`] again before any other command.
    More,
}

#[derive(Debug)]
pub enum Awaited<'a> {
    Known(JobView<'a>),
    NotFound,
    TimedOut,
    Waiting,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobEnd {
    Buried,
    NotFound,
    TimedOut,
    OutOfMemory,
    Waiting,
}

/// The maximum number of bytes used for the first client that waits for the end of a job.
const WAITER_COST: u64 = 512;

#[derive(Clone, Copy, Debug)]
pub struct GiveBack {
    /// The jobs from this heap index on have been checked.
    at: usize,
    /// The number of jobs that the client held at the end of the last call.
    held: usize,
}

impl Engine {
    /// If the client watches many tubes or no steps are left, delivers the result in an event, even if `timeout` is 0.
    pub fn reserve(&mut self, client: ClientId, timeout: Option<Span>, now: Time) -> Reserve<'_> {
        self.clients.mark_worker(client);
        let until = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        if self.catch_up(client, now) == Progress::More || self.watches_many(client) {
            self.clients[client].waiting = Some(Waiting { until, outcome: NIL, run: false });
            self.clients.waiting += 1;
            self.search_later(client, Search::default());
            return Reserve::Waiting;
        }
        if let Some(slot) = self.best_watched(client) {
            self.grant(client, slot, Cause::Reserve, now);
            return Reserve::Job(self.store.jobs.view(slot));
        }
        if self.clients[client].in_margin(now) {
            return Reserve::NoJob(NoJob::DeadlineSoon);
        }
        if timeout == Some(Span::ZERO) {
            return Reserve::NoJob(NoJob::TimedOut);
        }
        self.wait_for(client, Waiting { until, outcome: NIL, run: false });
        Reserve::Waiting
    }

    pub fn reserve_job(&mut self, client: ClientId, id: JobId, now: Time) -> Option<JobView<'_>> {
        let slot = self.store.jobs.find(id)?;
        self.store.jobs.get(slot).state().after(Cause::ReserveJob)?;
        if self.is_blocked(slot) || self.is_exhausted(self.store.jobs.get(slot).tube) {
            return None;
        }
        self.clients.mark_worker(client);
        self.grant(client, slot, Cause::ReserveJob, now);
        Some(self.store.jobs.view(slot))
    }

    pub fn grab(&mut self, client: ClientId, now: Time) -> Grab<'_> {
        self.clients.mark_worker(client);
        if self.catch_up(client, now) == Progress::More {
            return Grab::More;
        }
        if self.clients[client].idle_state == IdleState::Idle {
            self.become_active(client);
        }
        let Some(found) = self.search_for_grab(client) else { return Grab::More };
        let Some(slot) = found else {
            self.clients[client].idle_state = IdleState::Active;
            return Grab::NoJob;
        };
        let idle_state = std::mem::take(&mut self.clients[client].idle_state);
        self.grant(client, slot, Cause::Reserve, now);
        if let IdleState::Notified(tube) = idle_state {
            // Other clients may not know of further jobs in the notification's tube or the job's tube, so serve both.
            let taken = self.store.jobs.get(slot).tube;
            self.serve(taken, now);
            if tube != taken && tube != NIL {
                self.serve(tube, now);
            }
        }
        Grab::Job(self.store.jobs.view(slot))
    }

    /// Returns `None` if the search is not complete.
    fn search_for_grab(&mut self, client: ClientId) -> Option<Option<u32>> {
        let mut search = self.clients[client].search.take().unwrap_or_default();
        let count = self.clients[client].watched.len();
        if self.store.counts.ready == 0 || count == 0 {
            return Some(None);
        }
        let limit = if self.watches_many(client) { self.agenda.steps.left().max(1) as usize } else { usize::MAX };
        self.search_tubes(client, &mut search, limit);
        if search.seen < count && !search.is_over() {
            self.clients[client].search = Some(search);
            return None;
        }
        let found = self.found(client, &search);
        // Another client may have taken the job that the search found.
        if found.is_none() && search.best.is_some() {
            self.clients[client].search = Some(Box::new(Search::again()));
            return None;
        }
        Some(found)
    }

    /// Returns `true` if a job is available now. A client that watches many tubes may receive an event instead.
    pub fn sleep(&mut self, client: ClientId, now: Time) -> bool {
        self.clients.mark_worker(client);
        // If the step budget runs out, [`Engine::tick`] ends the remaining expired reservations.
        let _ = self.catch_up(client, now);
        let idle_state = self.clients[client].idle_state;
        self.become_active(client);
        if !self.watches_many(client) {
            self.agenda.steps.take(self.clients[client].watched.len() as u64);
            if let Some(tube) = self.tube_with_work(client, idle_state) {
                // If this client does not request the job, another client must be notified.
                self.clients[client].idle_state = IdleState::Notified(tube);
                return true;
            }
        }
        self.clients[client].idle_state = IdleState::Idle;
        if self.watches_many(client) {
            self.agenda.steps.take(1);
            self.search_later(client, Search { enqueueing: true, ..Search::default() });
        } else {
            self.enqueue_all(client);
        }
        false
    }

    /// The client must not be waiting.
    pub fn unwatch_all(&mut self, client: ClientId, now: Time) -> Progress {
        while let Some(watch) = self.clients[client].watched.last().copied() {
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
            self.unwatch(client, self.clients.watches.get(watch).tube, now);
            self.agenda.steps.take(1);
        }
        Progress::Done
    }

    /// `id` is `None` if the job was not found.
    pub fn wait_outcome(&mut self, client: ClientId, id: Option<JobId>, timeout: Span, now: Time) -> Awaited<'_> {
        let Some(slot) = id.and_then(|id| self.store.jobs.find(id)) else {
            self.changed(Change::PromiseEnds);
            return Awaited::NotFound;
        };
        if self.store.jobs.get(slot).state() == State::Finished {
            self.changed(Change::Promise(slot));
            return Awaited::Known(self.store.jobs.view(slot));
        }
        if timeout == Span::ZERO {
            return Awaited::TimedOut;
        }
        self.wait_for_outcome(client, slot, now + timeout);
        Awaited::Waiting
    }

    fn wait_for_outcome(&mut self, client: ClientId, slot: u32, until: Time) {
        self.attach(slot, client);
        let outcome = self.store.extras.of(slot);
        self.wait_for(client, Waiting { until, outcome, run: false });
    }

    pub fn wait_end(&mut self, client: ClientId, id: JobId, timeout: Span, now: Time) -> JobEnd {
        let Some(slot) = self.find_job(id, |job| job.state() != State::Finished) else {
            self.changed(Change::PromiseEnds);
            return JobEnd::NotFound;
        };
        if self.store.jobs.get(slot).state() == State::Buried {
            self.changed(Change::Promise(slot));
            return JobEnd::Buried;
        }
        if timeout == Span::ZERO {
            return JobEnd::TimedOut;
        }
        if !self.has_memory(WAITER_COST) {
            return JobEnd::OutOfMemory;
        }
        self.wait_for_outcome(client, slot, now + timeout);
        JobEnd::Waiting
    }

    /// Ends the client's reservations and waits. The client number is reused only after its deferred work is done.
    pub fn disconnect(&mut self, client: ClientId, now: Time) {
        self.cancel_wait(client);
        if self.clients[client].idle_state == IdleState::Idle {
            self.become_active(client);
        }
        self.clients.begin_to_leave(client);
        self.retime_client(client.0);
        if self.disconnect_on(client, now) == Progress::More {
            self.agenda.deferred.push_back(Deferred::Disconnect(self.clients.handle(client)));
        }
    }

    /// Continues a disconnect. Releases the jobs in order of priority and ID, even over several calls.
    pub(in crate::engine) fn disconnect_on(&mut self, client: ClientId, now: Time) -> Progress {
        loop {
            let state = &mut self.clients[client];
            if let Some(member) = state.attached.first() {
                let extras = self.detach(member, client);
                self.after_detach(extras);
                self.agenda.steps.take(MOVE);
            } else if let Some(slot) = state.reserved_mut().pop_last() {
                let job = self.store.jobs.get_mut(slot);
                job.set(JobFlag::Leaving, true);
                let key = (job.pri, job.id);
                let leaving = state.leaving.as_mut().expect("a disconnecting client");
                leaving.push(key, slot, &mut self.store.jobs);
                self.agenda.steps.take(1);
            } else if let Some((_, slot)) = state.leaving.as_ref().and_then(|leaving| leaving.first()) {
                self.end_reservation(slot, Cause::HangUp, now);
                self.agenda.steps.take(MOVE);
            } else if let Some(watch) = state.watched.last().copied() {
                self.unwatch(client, self.clients.watches.get(watch).tube, now);
                self.agenda.steps.take(1);
            } else {
                let used = self.clients.remove(client).used;
                self.clients.leaving -= 1;
                if used != NIL {
                    self.tubes.get_mut(used).using -= 1;
                    self.close_tube_if_idle(used);
                }
                return Progress::Done;
            }
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
        }
    }

    pub fn give_back(
        &mut self,
        client: ClientId,
        tube: Option<&[u8]>,
        position: &mut Option<GiveBack>,
        now: Time,
    ) -> Progress {
        let tube = tube.map(|name| self.tubes.find(name).unwrap_or(NIL));
        let is_meant = |job: &Job| tube.is_none_or(|tube| tube == job.tube);
        let held = self.clients[client].reserved();
        if position.is_none() && held.len() as u64 * MOVE <= self.agenda.steps.left() {
            let jobs = held.iter().map(|(_, slot)| self.store.jobs.get(slot)).filter(|job| is_meant(job));
            let mut ids: Vec<JobId> = jobs.map(|job| job.id).collect();
            ids.sort_unstable();
            self.agenda.steps.take(ids.len() as u64 * MOVE);
            for id in ids {
                // Other clients may be served during the loop, but cannot get jobs that `client` still holds.
                let slot = self.store.jobs.find(id).expect("a job held by the client");
                self.end_reservation(slot, Cause::HangUp, now);
            }
            return Progress::Done;
        }
        // Removing a job moves the last job, which has already been checked, to its position, so iterate backwards. If
        // other reservations have ended since the last call, start again.
        let same = position.filter(|position| position.held == held.len());
        let mut at = same.map_or(held.len(), |position| position.at);
        while at > 0 {
            if self.agenda.steps.are_used_up() {
                *position = Some(GiveBack { at, held: self.clients[client].reserved().len() });
                return Progress::More;
            }
            at -= 1;
            self.agenda.steps.take(1);
            let held = self.clients[client].reserved();
            let slot = held.entries[at].1;
            if is_meant(self.store.jobs.get(slot)) {
                // If `again` is set, the removal moves an unchecked job to this position, so the walk must start again.
                let again = held.rises(at);
                self.end_reservation(slot, Cause::HangUp, now);
                self.agenda.steps.take(MOVE);
                if again {
                    at = self.clients[client].reserved().len();
                }
            }
        }
        Progress::Done
    }

    pub fn is_engaged(&self, client: ClientId) -> bool {
        let state = &self.clients[client];
        let holds = state.reserved().first().is_some() || !state.attached.is_empty();
        holds || state.waiting.is_some() || state.idle_state == IdleState::Idle
    }
}
