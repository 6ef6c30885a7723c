//! Operators' commands for a tube by its name: peek, kick, and put; and waiting and running times.
//!
//! Owns the verbs that do not need a client of the tube, except those of `flush` and `moves`. Must not give jobs to
//! clients: `matching` does.
//!
//! Touches: store, tubes.

use super::job_verbs::Kick;
use crate::engine::data::{
    ClientId, History, JobId, JobTimes, JobView, NewJob, Progress, ReservePolicy, State, Time, TubeEvents, TubeTimes,
    TIMES_COST,
};
use crate::engine::{Engine, Refused};

impl Engine {
    /// Returns the histograms of waiting and running times.
    pub fn job_times(&self) -> &JobTimes {
        &self.job_times
    }

    /// Returns the next job in this state in the tube with this name.
    pub fn peek_in(&self, tube: &[u8], state: State) -> Option<JobView<'_>> {
        let slot = self.first_in(self.tubes.find(tube)?, state)?;
        Some(self.store.jobs.view(slot))
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

    /// Like [`Engine::kick`], in the tube with this name. Returns `None` if there is no such tube.
    pub fn kick_in(&mut self, tube: &[u8], kick: &mut Kick, now: Time) -> Option<Progress> {
        let number = self.tubes.find(tube)?;
        Some(self.kick_tube(number, kick, now))
    }

    /// Puts a job into the tube with this name, created if necessary. The client does not count as a producer.
    pub fn put_into(&mut self, client: ClientId, tube: &[u8], job: NewJob, now: Time) -> Result<JobId, Refused> {
        let number = self.open_tube(client, tube).map_err(|_| Refused::OutOfMemory)?;
        let slot = self.take_in(number, job, None, now).inspect_err(|_| self.close_tube_if_idle(number))?;
        self.serve(number, now);
        Ok(self.store.jobs.get(slot).id)
    }

    /// Measures the wait of the job in `slot`, which is about to be reserved, unless the job had been taken from a
    /// queue before: then the beginning of its wait is unknown.
    pub(in crate::engine) fn count_wait(&mut self, slot: u32, now: Time) {
        let job = self.store.jobs.get(slot);
        let History { reserves: 0, kicks: 0, .. } = job.history() else { return };
        let wait = now.since(job.created + job.delay());
        let number = job.tube;
        self.job_times.wait.observe(wait);
        if let Some(times) = self.tube_times(number) {
            times.wait.observe(wait);
        }
    }

    /// Measures the time since the job in `slot` was reserved.
    pub(in crate::engine) fn count_run(&mut self, slot: u32, now: Time) {
        let job = self.store.jobs.get(slot);
        // Without an end, the beginning cannot be computed.
        if job.due == Time::NEVER {
            return;
        }
        let limit = if job.is_leased() { self.lease_of(job) } else { self.time_limit(ClientId(job.holder), slot) };
        let (number, run) = (job.tube, now.since(job.due - job.ttr().min(limit)));
        self.job_times.run.observe(run);
        if let Some(times) = self.tube_times(number) {
            times.run.observe(run);
        }
    }

    pub(in crate::engine) fn count_event(&mut self, slot: u32, which: fn(&mut TubeEvents) -> &mut u64) {
        let number = self.store.jobs.get(slot).tube;
        if let Some(times) = self.tube_times(number) {
            *which(&mut times.events) += 1;
        }
    }

    /// Returns the times of the tube with this number; `None` if there is no memory to start measuring.
    fn tube_times(&mut self, number: u32) -> Option<&mut TubeTimes> {
        if self.tubes.get(number).times.is_none() && self.lacks_memory(TIMES_COST) {
            return None;
        }
        Some(self.tubes.measure(number))
    }
}
