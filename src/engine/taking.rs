//! How clients come to jobs, and to the outcomes of jobs.
//!
//! Owns the verbs that ask for a job or an outcome, waiting or not: reserve, grab, sleep, lease, and their end. Which job it
//! is, `matching` decides.

use super::client::{ClientId, Manner, Nap, Waiting};
use super::contract::ATTACHMENT_COST;
use super::event::{NoJob, Outcome};
use super::job::{Cause, JobId, JobView, State};
use super::list::NIL;
use super::time::{Span, Time};
use super::{Engine, OverLimit, Reserve};

/// The answer to [`Engine::wait_outcome`].
#[derive(Debug)]
pub enum Awaited<'a> {
    /// The job is over; see [`Engine::outcome`].
    Known(JobView<'a>),
    /// There is no such job, or none whose outcome is kept.
    NotFound,
    /// It is not over, and the client does not wait.
    TimedOut,
    /// An event will tell.
    Waiting,
}

impl Engine {
    /// Asks for the best job of the tubes that the client watches, waiting for one at most for `timeout`; without end if
    /// there is none. The client must not be waiting already.
    pub fn reserve(&mut self, client: ClientId, timeout: Option<Span>, now: Time) -> Reserve<'_> {
        self.mark_worker(client);
        self.catch_up(client, now);
        if let Some(slot) = self.best_watched(client) {
            self.grant(client, slot, Cause::Reserve, now);
            return Reserve::Job(self.jobs.view(slot));
        }
        if self.clients[client.0 as usize].in_margin(now) {
            return Reserve::NoJob(NoJob::DeadlineSoon);
        }
        if timeout == Some(Span::ZERO) {
            return Reserve::NoJob(NoJob::TimedOut);
        }
        let until = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        self.wait_for(client, Waiting::for_job(until));
        Reserve::Waiting
    }

    /// Asks for a job of these tubes, which the client watches from now on until it asks for others, waiting for one at most
    /// for `timeout`.
    pub fn lease(
        &mut self,
        client: ClientId,
        names: &[&[u8]],
        timeout: Span,
        now: Time,
    ) -> Result<Reserve<'_>, OverLimit> {
        self.watch_only(client, names, now)?;
        Ok(self.reserve(client, Some(timeout), now))
    }

    /// Asks for a job of the tubes that the client watches, without waiting. It is awake from now on.
    pub fn grab(&mut self, client: ClientId, now: Time) -> Option<JobView<'_>> {
        self.mark_worker(client);
        self.catch_up(client, now);
        let nap = self.clients[client.0 as usize].nap;
        self.wake_up(client);
        let slot = self.best_watched(client)?;
        self.grant(client, slot, Cause::Reserve, now);
        if let Nap::Woken(tube) = nap {
            // Several jobs may have become ready at once, and only this client been told; or it was told of another one.
            let taken = self.jobs.get(slot).tube;
            self.serve(taken, now);
            if tube != taken && tube != NIL {
                self.serve(tube, now);
            }
        }
        Some(self.jobs.view(slot))
    }

    /// The client wants to be told when there is work. True if there is some now; then it was told.
    pub fn sleep(&mut self, client: ClientId, now: Time) -> bool {
        self.mark_worker(client);
        self.catch_up(client, now);
        let nap = self.clients[client.0 as usize].nap;
        self.wake_up(client);
        if let Some(tube) = self.tube_with_work(client, nap) {
            // If it does not come, somebody else must be told.
            self.clients[client.0 as usize].nap = Nap::Woken(tube);
            return true;
        }
        let state = &mut self.clients[client.0 as usize];
        state.nap = Nap::Asleep;
        for watch in state.watched.iter() {
            let tube = self.tubes.get_mut(self.watches.get(watch).tube);
            tube.sleeping.push_back(watch, &mut self.watches);
        }
        false
    }

    /// The client is awake.
    pub(super) fn wake_up(&mut self, client: ClientId) {
        let state = &mut self.clients[client.0 as usize];
        if std::mem::take(&mut state.nap) == Nap::Asleep {
            for watch in state.watched.iter() {
                let tube = self.tubes.get_mut(self.watches.get(watch).tube);
                tube.sleeping.remove(watch, &mut self.watches);
            }
        }
    }

    /// The jobs that the client holds, of all tubes or of the one with this name, are lost to it.
    pub fn give_back(&mut self, client: ClientId, tube: Option<&[u8]>, now: Time) {
        let number = tube.map(|name| self.tubes.find(name).unwrap_or(NIL));
        let held = self.clients[client.0 as usize].reserved.iter().map(|(_, slot)| slot);
        let mut ids: Vec<JobId> = held
            .map(|slot| self.jobs.get(slot))
            .filter(|job| number.is_none_or(|number| number == job.tube))
            .map(|job| job.id)
            .collect();
        ids.sort_unstable();
        for id in ids {
            // One loss may serve another client, but nobody takes what this one holds.
            let slot = self.jobs.find(id).expect("a job that it holds");
            self.lost(slot, Cause::HangUp, now);
        }
    }

    /// Asks how a job ended, waiting for its end at most for `timeout`.
    pub fn wait_outcome(&mut self, client: ClientId, id: JobId, timeout: Span, now: Time) -> Awaited<'_> {
        let Some(slot) = self.jobs.find(id) else { return Awaited::NotFound };
        if self.jobs.get(slot).state == State::Finished {
            return Awaited::Known(self.jobs.view(slot));
        }
        if timeout == Span::ZERO {
            return Awaited::TimedOut;
        }
        self.attach(slot, client);
        let outcome = self.contracts.of(slot);
        self.wait_for(client, Waiting { until: now + timeout, outcome, run: false });
        Awaited::Waiting
    }

    /// The client waits no longer; tells whether it did. What it ran is taken back, unless somebody is at it.
    pub fn cancel_wait(&mut self, client: ClientId) -> bool {
        let Some(waiting) = self.clients[client.0 as usize].waiting else { return false };
        self.stop_waiting(client);
        if !waiting.is_for_job() {
            self.detach_from(client, waiting.outcome);
            if waiting.run {
                self.abandon(waiting.outcome);
            }
        }
        true
    }

    /// Nobody will ask for the outcome of the job with this contract.
    fn abandon(&mut self, number: u32) {
        let slot = self.contracts.get(number).slot;
        if self.jobs.get(slot).state == State::Reserved {
            self.contracts.get_mut(number).rare_mut().abandoned = true;
        } else {
            self.remove_job(slot, Outcome::Gone);
        }
    }

    /// Ends one attachment of a client to the job with this contract.
    fn detach_from(&mut self, client: ClientId, number: u32) {
        let found = self.contracts.find_attached(number, &self.clients[client.0 as usize].attached);
        self.detach(found.expect("a client that waits is attached"), client);
    }

    /// Ends one attachment of `client`, and tells to which contract.
    pub(super) fn detach(&mut self, member: u32, client: ClientId) -> u32 {
        self.memory -= ATTACHMENT_COST;
        self.contracts.detach(member, &mut self.clients[client.0 as usize].attached).contract
    }

    /// A client that goes away waits for nothing, sleeps no more, and does not care what becomes of what it submitted.
    pub(super) fn forsake(&mut self, client: ClientId) {
        self.cancel_wait(client);
        if self.clients[client.0 as usize].nap == Nap::Asleep {
            self.wake_up(client);
        }
        while let Some(member) = self.clients[client.0 as usize].attached.first() {
            let number = self.detach(member, client);
            self.deserted(number);
        }
    }

    /// `client` waits from now on.
    pub(super) fn wait_for(&mut self, client: ClientId, waiting: Waiting) {
        self.clients[client.0 as usize].waiting = Some(waiting);
        if waiting.is_for_job() {
            self.waiting += 1;
            for watch in self.clients[client.0 as usize].watched.iter() {
                let tube = self.tubes.get_mut(self.watches.get(watch).tube);
                tube.waiting.push_back(watch, &mut self.watches);
            }
        }
        self.retime_client(client.0);
    }

    /// `client`, which must be waiting, no longer is.
    pub(super) fn stop_waiting(&mut self, client: ClientId) {
        let waiting = self.clients[client.0 as usize].waiting.take();
        if waiting.is_some_and(Waiting::is_for_job) {
            self.waiting -= 1;
            for watch in self.clients[client.0 as usize].watched.iter() {
                let tube = self.tubes.get_mut(self.watches.get(watch).tube);
                tube.waiting.remove(watch, &mut self.watches);
            }
        }
        self.retime_client(client.0);
    }

    /// The wait of `client` has lasted as long as it may.
    pub(super) fn give_up(&mut self, client: ClientId, waiting: Waiting) {
        if waiting.run {
            let contract = self.contracts.get_mut(waiting.outcome);
            let job = self.jobs.get(contract.slot);
            contract.rare_mut().last_try |= job.state == State::Reserved;
            if job.state == State::Reserved && job.due > waiting.until {
                // Somebody is at it: that is waited for, also when its time is extended, though not for another try.
                self.clients[client.0 as usize].waiting = Some(Waiting { until: job.due, ..waiting });
                return self.retime_client(client.0);
            }
        }
        self.end_wait(client, NoJob::TimedOut);
        if waiting.run {
            self.take_back(waiting.outcome);
        }
    }

    /// The last try of what was run has ended without a verdict.
    pub(super) fn end_run(&mut self, number: u32) {
        let mut clients = self.contracts.attached(number);
        let runs = |waiting: Waiting| waiting.run && waiting.outcome == number;
        let client = clients.find(|&client| self.clients[client as usize].waiting.is_some_and(runs));
        drop(clients);
        if let Some(client) = client {
            self.end_wait(ClientId(client), NoJob::TimedOut);
        }
        self.take_back(number);
    }

    /// What was run and is still in somebody's hands is nobody's business any more.
    fn take_back(&mut self, number: u32) {
        if let Some(slot) = self.contracts.abandoned(number) {
            self.remove_job(slot, Outcome::Gone);
        }
    }

    /// One number of a row that need not be unpredictable, below `bound`.
    pub(super) fn roll(&mut self, bound: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice % bound as u64) as usize
    }

    /// Whether what the client takes is held by nobody.
    pub(super) fn is_leaser(&self, client: ClientId) -> bool {
        self.clients[client.0 as usize].manner == Manner::Leaser
    }

    /// Whether the queue owes the client something, or the client owes the queue: it waits for a job or an outcome, sleeps,
    /// holds a job, or is to be told what becomes of one.
    pub fn is_engaged(&self, client: ClientId) -> bool {
        let state = &self.clients[client.0 as usize];
        let holds = state.reserved.first().is_some() || !state.attached.is_empty();
        holds || state.waiting.is_some() || state.nap == Nap::Asleep
    }
}
