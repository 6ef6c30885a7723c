//! What an operator does to a tube by its name: look at its jobs, kick, clear and move them.
//!
//! Owns the verbs that need no client of the tube. Each may take several turns. Must not give jobs to anybody:
//! `matching` does.

use super::body::{Body, COPY_MAX};
use super::client::{ClientId, ReservePolicy};
use super::details::History;
use super::event::Outcome;
use super::histogram::JobTimes;
use super::job::{JobId, JobView, NewJob, State};
use super::job_options::CompletionPolicy;
use super::job_verbs::Kick;
use super::latency::{TubeTimes, TIMES_COST};
use super::steps::{Progress, MOVE};
use super::time::{Span, Time};
use super::{Engine, Refused};

/// Bytes of a body that are copied in one step.
const COPIED: u64 = 64;

/// A removal or a move of many jobs, which may take several turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sweep {
    /// Jobs in this state: ready, delayed or buried.
    pub state: State,
    /// How many jobs at most are still to be dealt with.
    pub left: u64,
    pub done: u64,
}

/// Why a move came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// As many were moved as were asked for, or no other job is there.
    All,
    /// The next one was refused by the target.
    Refused(Refused),
    /// The next one is more than its body: somebody waits for it, or it has a number or limits of its own.
    Bound,
    /// The next one is longer than what is copied in one go.
    Large,
    /// The steps are used up: the same must be called in another turn.
    More,
}

/// Bytes of the longest body that is moved.
pub const MOVED_MAX: usize = COPY_MAX * 256;

impl Engine {
    /// How long jobs waited and ran.
    pub fn job_times(&self) -> &JobTimes {
        &self.job_times
    }

    /// The job in this state that is next in the tube with this name.
    pub fn peek_in(&self, tube: &[u8], state: State) -> Option<JobView<'_>> {
        let slot = self.first_in(self.tubes.find(tube)?, state)?;
        Some(self.jobs.view(slot))
    }

    pub(super) fn first_in(&self, number: u32, state: State) -> Option<u32> {
        let tube = self.tubes.get(number);
        match state {
            State::Ready => tube.first(ReservePolicy::PerConnection, &self.jobs),
            State::Delayed => tube.delayed.first().map(|(_, slot)| slot),
            State::Buried => tube.buried.first(),
            State::Reserved | State::Finished => None,
        }
    }

    /// As [`Engine::kick`], in the tube with this name; none if there is no such tube.
    pub fn kick_in(&mut self, tube: &[u8], kick: &mut Kick, now: Time) -> Option<Progress> {
        let number = self.tubes.find(tube)?;
        Some(self.kick_tube(number, kick, now))
    }

    /// Deletes jobs of the tube with this name, the next first. A tube that is not there has none.
    pub fn clear_in(&mut self, tube: &[u8], sweep: &mut Sweep) -> Progress {
        while sweep.left > 0 {
            // The last job may take its tube with it.
            let Some(number) = self.tubes.find(tube) else { break };
            let Some(slot) = self.first_in(number, sweep.state) else { break };
            if self.steps.are_used_up() {
                return Progress::More;
            }
            self.steps.take(MOVE);
            self.remove_job(slot, Outcome::Gone);
            sweep.left -= 1;
            sweep.done += 1;
        }
        Progress::Done
    }

    /// Moves jobs of the tube `from` to the tube `to`, the next first: each is put there anew with its body, priority
    /// and time to run, and what is left of its delay, then deleted here. So it gets another number, and its counts
    /// begin again.
    pub fn move_in(&mut self, client: ClientId, from: &[u8], to: &[u8], sweep: &mut Sweep, now: Time) -> Moved {
        while sweep.left > 0 {
            let Some(slot) = self.tubes.find(from).and_then(|number| self.first_in(number, sweep.state)) else { break };
            if self.steps.are_used_up() {
                return Moved::More;
            }
            let job = self.jobs.view(slot);
            if job.is_bound() || job.completion != CompletionPolicy::Drop || job.is_volatile() {
                return Moved::Bound;
            }
            let bytes = job.body().bytes();
            if bytes.len() > MOVED_MAX {
                return Moved::Large;
            }
            let (pri, ttr) = (job.pri, job.ttr());
            let delay = if job.state() == State::Delayed { job.due.since(now) } else { Span::ZERO };
            let Some(body) = Body::copy(bytes) else { return Moved::Refused(Refused::OutOfMemory) };
            self.steps.take(MOVE + body.len() as u64 / COPIED);
            if let Err(refused) = self.put_into(client, to, NewJob { pri, delay, ttr, body }, now) {
                return Moved::Refused(refused);
            }
            self.remove_job(slot, Outcome::Gone);
            sweep.left -= 1;
            sweep.done += 1;
        }
        Moved::All
    }

    /// Puts a job into the tube with this name, which is created if need be. The client does not count as a producer.
    pub fn put_into(&mut self, client: ClientId, tube: &[u8], job: NewJob, now: Time) -> Result<JobId, Refused> {
        let number = self.open_tube(client, tube).map_err(|_| Refused::OutOfMemory)?;
        let slot = self.take_in(number, job, None, now).inspect_err(|_| self.close_tube_if_idle(number))?;
        self.serve(number, now);
        Ok(self.jobs.get(slot).id)
    }

    /// Counts how long the job in `slot`, which is about to be reserved, waited for that, unless it had been taken out
    /// of a queue before: then nobody knows any more how long it stood there.
    pub(super) fn count_wait(&mut self, slot: u32, now: Time) {
        let job = self.jobs.get(slot);
        let History { reserves: 0, kicks: 0, .. } = job.history() else { return };
        let wait = now.since(job.created + job.delay());
        let number = job.tube;
        self.job_times.wait.observe(wait);
        if let Some(times) = self.tube_times(number) {
            times.wait.observe(wait);
        }
    }

    /// Counts how long the job in `slot`, which is reserved, was in its worker's hands.
    pub(super) fn count_run(&mut self, slot: u32, now: Time) {
        let job = self.jobs.get(slot);
        let limit = if job.is_leased() { self.lease_of(job) } else { self.time_limit(ClientId(job.holder), slot) };
        let job = self.jobs.get(slot);
        let length = job.ttr().min(limit);
        // What has no end tells nothing of its beginning.
        if job.due == Time::NEVER {
            return;
        }
        let (number, run) = (job.tube, now.since(job.due - length));
        self.job_times.run.observe(run);
        if let Some(times) = self.tube_times(number) {
            times.run.observe(run);
        }
    }

    /// The times of the tube with this number; none if there is no memory to begin with them.
    fn tube_times(&mut self, number: u32) -> Option<&mut TubeTimes> {
        if self.tubes.get(number).times.is_none() {
            if self.lacks_memory(TIMES_COST) {
                return None;
            }
            self.memory.tubes += TIMES_COST;
            self.tubes.get_mut(number).times = Some(Box::default());
        }
        self.tubes.get_mut(number).times.as_deref_mut()
    }
}
