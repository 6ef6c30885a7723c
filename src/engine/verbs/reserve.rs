//! How clients get jobs, and the outcomes of jobs.
//!
//! Owns the verbs that request a job or an outcome, waiting or not: reserve, grab, sleep, and their end. `waiting`
//! decides which job it is, and manages the wait.
//!
//! Touches: agenda, clients, store.

use crate::engine::data::{
    Cause, ClientId, IdleState, JobId, JobView, NoJob, Outcome, Progress, Search, Span, State, Time, Waiting, NIL,
};
use crate::engine::log::Change;
use crate::engine::Engine;

#[derive(Debug)]
pub enum Reserve<'a> {
    Job(JobView<'a>),
    /// The client gets no job, and does not wait for one.
    NoJob(NoJob),
    /// The client now waits, and an event will report how the wait ends.
    Waiting,
}

#[derive(Debug)]
pub enum Grab<'a> {
    Job(JobView<'a>),
    NoJob,
    /// The client watches too many tubes for one turn: it must grab again in another turn, before any other verb.
    More,
}

#[derive(Debug)]
pub enum Awaited<'a> {
    /// The job is finished; see [`Engine::outcome`].
    Known(JobView<'a>),
    /// No such job, or its outcome is not kept.
    NotFound,
    /// The job is unfinished, and the client does not wait.
    TimedOut,
    /// The client now waits, and an event will report how the wait ends.
    Waiting,
}

/// The state of a job, as found by [`Engine::wait_end`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobEnd {
    Buried,
    NotFound,
    /// The job has not ended, and the client does not wait.
    TimedOut,
    OutOfMemory,
    /// The client waits, and an event will notify it.
    Waiting,
}

/// The maximum bytes of account of the first client that waits for the end of a job.
const WAITER_COST: u64 = 512;

impl<'a> Grab<'a> {
    pub fn job(self) -> Option<JobView<'a>> {
        match self {
            Grab::Job(job) => Some(job),
            Grab::NoJob | Grab::More => None,
        }
    }
}

impl Engine {
    /// Requests the best job of the tubes that the client watches, waiting for one at most for `timeout`, or
    /// indefinitely without a timeout. The client must not be waiting already. A client that watches very many tubes
    /// may receive the result in an event even if it does not want to wait.
    pub fn reserve(&mut self, client: ClientId, timeout: Option<Span>, now: Time) -> Reserve<'_> {
        self.clients.mark_worker(client);
        let until = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        if self.catch_up(client, now) == Progress::More || self.watches_many(client) {
            self.clients[client].waiting = Some(Waiting::for_job(until));
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
        self.wait_for(client, Waiting::for_job(until));
        Reserve::Waiting
    }

    /// Requests one job by its ID, in any tube. Returns `None` unless it is ready, delayed or buried.
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

    /// Requests a job of the tubes that the client watches, without waiting. The client is no longer idle afterwards.
    pub fn grab(&mut self, client: ClientId, now: Time) -> Grab<'_> {
        self.clients.mark_worker(client);
        if self.catch_up(client, now) == Progress::More {
            return Grab::More;
        }
        if self.clients[client].idle_state == IdleState::Idle {
            self.become_active(client);
        }
        let Some(slot) = (match self.search_for_grab(client) {
            Ok(found) => found,
            Err(progress) => return progress,
        }) else {
            self.clients[client].idle_state = IdleState::Active;
            return Grab::NoJob;
        };
        let idle_state = std::mem::take(&mut self.clients[client].idle_state);
        self.grant(client, slot, Cause::Reserve, now);
        if let IdleState::Notified(tube) = idle_state {
            // Several jobs may have become ready at once with only this client notified, or it was notified of another
            // job.
            let taken = self.store.jobs.get(slot).tube;
            self.serve(taken, now);
            if tube != taken && tube != NIL {
                self.serve(tube, now);
            }
        }
        Grab::Job(self.store.jobs.view(slot))
    }

    /// Continues the search of a client that grabs. Returns the job found, if the search is complete.
    fn search_for_grab(&mut self, client: ClientId) -> Result<Option<u32>, Grab<'static>> {
        let mut search = self.clients[client].search.take().unwrap_or_default();
        let count = self.clients[client].watched.len();
        if self.store.counts.ready == 0 || count == 0 {
            return Ok(None);
        }
        let most = if self.watches_many(client) { self.agenda.steps.left().max(1) as usize } else { usize::MAX };
        self.search_tubes(client, &mut search, most);
        if search.seen < count && !search.is_over() {
            self.clients[client].search = Some(search);
            return Err(Grab::More);
        }
        let found = self.found(client, &search);
        // A job found in another turn may have been taken meanwhile.
        if found.is_none() && search.best.is_some() {
            self.clients[client].search = Some(Box::new(Search::again()));
            return Err(Grab::More);
        }
        Ok(found)
    }

    /// Makes the client idle, to be notified of work. Returns `true` if there is work now; then it was notified. A
    /// client that watches very many tubes may be notified by an event.
    pub fn sleep(&mut self, client: ClientId, now: Time) -> bool {
        self.clients.mark_worker(client);
        // Ticks process other overdue reservations.
        let _ = self.catch_up(client, now);
        let idle_state = self.clients[client].idle_state;
        self.become_active(client);
        if !self.watches_many(client) {
            self.agenda.steps.take(self.clients[client].watched.len() as u64);
            if let Some(tube) = self.tube_with_work(client, idle_state) {
                // If it does not come, another client must be notified.
                self.clients[client].idle_state = IdleState::Notified(tube);
                return true;
            }
        }
        if self.watches_many(client) {
            self.agenda.steps.take(1);
            self.clients[client].idle_state = IdleState::Idle;
            self.search_later(client, Search { enqueueing: true, ..Search::default() });
        } else {
            self.become_idle(client);
        }
        false
    }

    /// Removes all tubes from the watch list of the client, which must not be waiting.
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

    /// Requests the outcome of a job, waiting for its end at most for `timeout`.
    pub fn wait_outcome(&mut self, client: ClientId, id: JobId, timeout: Span, now: Time) -> Awaited<'_> {
        let Some(slot) = self.store.jobs.find(id) else { return Awaited::NotFound };
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

    /// Waits at most for `timeout` until a job ends or is buried. An event reports either.
    pub fn wait_end(&mut self, client: ClientId, id: JobId, timeout: Span, now: Time) -> JobEnd {
        let slot = self.store.jobs.find(id).filter(|&slot| self.store.jobs.get(slot).state() != State::Finished);
        let Some(slot) = slot else { return JobEnd::NotFound };
        if self.store.jobs.get(slot).state() == State::Buried {
            self.changed(Change::Promise(slot));
            return JobEnd::Buried;
        }
        if timeout == Span::ZERO {
            return JobEnd::TimedOut;
        }
        if self.lacks_memory(WAITER_COST) {
            return JobEnd::OutOfMemory;
        }
        self.wait_for_outcome(client, slot, now + timeout);
        JobEnd::Waiting
    }

    /// Ends the wait of the client, if any, and returns `true`. A job of [`Engine::run`] is removed unless it is
    /// reserved.
    pub fn cancel_wait(&mut self, client: ClientId) -> bool {
        let Some(waiting) = self.clients[client].waiting else { return false };
        self.stop_waiting(client);
        if !waiting.is_for_job() {
            self.detach_from(client, waiting.outcome);
            if waiting.run {
                self.orphan(waiting.outcome);
            } else {
                self.orphaned(waiting.outcome);
            }
        }
        true
    }

    /// Handles that no client will query the outcome of the job with these extras.
    fn orphan(&mut self, number: u32) {
        if self.store.extras.is_left(number) {
            return;
        }
        let slot = self.store.extras.get(number).slot;
        if self.store.jobs.get(slot).state() == State::Reserved {
            self.store.extras.get_mut(number).rare_mut().orphaned = true;
        } else {
            self.remove_job(slot, Outcome::Gone);
        }
    }

    /// Ends one attachment of a client to the job with these extras.
    fn detach_from(&mut self, client: ClientId, number: u32) {
        let found = self.store.extras.find_attached(number, &self.clients[client].attached);
        self.detach(found.expect("a client that waits is attached"), client);
    }

    pub(in crate::engine) fn detach(&mut self, member: u32, client: ClientId) -> u32 {
        self.store.extras.detach(member, &mut self.clients[client].attached).extras
    }

    pub(in crate::engine) fn give_up(&mut self, client: ClientId, waiting: Waiting) {
        if waiting.run && !self.store.extras.is_left(waiting.outcome) {
            let extras = self.store.extras.get_mut(waiting.outcome);
            let job = self.store.jobs.get(extras.slot);
            extras.rare_mut().last_try |= job.state() == State::Reserved;
            if job.state() == State::Reserved && job.due > waiting.until {
                // A worker has reserved the job: the client waits for the end of this reservation only.
                self.clients[client].waiting = Some(Waiting { until: job.due, ..waiting });
                return self.retime_client(client.0);
            }
        }
        self.end_wait(client, NoJob::TimedOut);
        if waiting.run {
            self.take_back(waiting.outcome);
        }
    }

    /// Handles the last try of a job submitted with [`Engine::run`], which ended without an outcome.
    pub(in crate::engine) fn end_run(&mut self, number: u32) {
        let mut clients = self.store.extras.attached(number);
        let runs = |waiting: Waiting| waiting.run && waiting.outcome == number;
        let client = clients.find(|&client| self.clients[ClientId(client)].waiting.is_some_and(runs));
        drop(clients);
        if let Some(client) = client {
            self.end_wait(ClientId(client), NoJob::TimedOut);
        }
        self.take_back(number);
    }

    /// Removes a job submitted with [`Engine::run`] whose outcome no client will query.
    fn take_back(&mut self, number: u32) {
        if let Some(slot) = self.store.extras.orphaned(number) {
            self.remove_job(slot, Outcome::Gone);
        }
    }

    /// Returns the next pseudo-random number below `bound`, which may be predictable.
    pub(in crate::engine) fn roll(&mut self, bound: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % bound
    }
}
