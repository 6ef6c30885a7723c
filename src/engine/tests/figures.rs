//! The statistics and peek commands of the model. Statistics are recounted for each request.

use super::super::{
    Account, ClientId, JobCounts, JobId, JobStats, Span, State, Stats, Time, TubeStats, JOB_COST, LINK_COST,
    RULES_COST, TIMES_COST, TUBE_COST, WATCH_COST,
};
use super::model::{ClientState, Job, Model, Place};

fn counts<'a>(jobs: impl Iterator<Item = &'a Job>) -> JobCounts {
    let mut counts = JobCounts::default();
    for job in jobs {
        match job.place {
            Place::Ready => counts.ready += 1,
            Place::Delayed { .. } => counts.delayed += 1,
            Place::Reserved { .. } => counts.reserved += 1,
            Place::Buried { .. } => counts.buried += 1,
            Place::Held => counts.held += 1,
            Place::Scheduled { .. } => counts.scheduled += 1,
        }
        if job.place == Place::Ready && job.pri < 1024 {
            counts.urgent += 1;
        }
    }
    counts
}

fn priority_classes<'a>(jobs: impl Iterator<Item = &'a Job>) -> [u32; 3] {
    let third = u32::MAX / 3;
    let queued = jobs.filter(|job| matches!(job.place, Place::Ready | Place::Delayed { .. }));
    let mut priority_classes = [0; 3];
    queued.for_each(|job| priority_classes[usize::from(job.pri > third) + usize::from(job.pri > third * 2 + 1)] += 1);
    priority_classes
}

impl Model {
    pub fn memory(&self) -> Account {
        let jobs: u64 = self.jobs.iter().map(|job| JOB_COST + job.body.len() as u64).sum();
        let others = self.tubes.iter().filter(|tube| tube.name != "default");
        let tubes: u64 = others.map(|tube| TUBE_COST + tube.name.len() as u64).sum();
        let watches: u64 = self.clients.iter().map(|client| client.watched.len() as u64 * WATCH_COST).sum();
        let times = self.extended.times.len() as u64 * TIMES_COST;
        let rules = self.extended.rules.values().map(|rules| rules.settings.dead);
        let rules = rules.map(|dead| RULES_COST + dead.map_or(0, |name| LINK_COST + name.len() as u64));
        let tubes = TUBE_COST + tubes + times + rules.sum::<u64>();
        Account { jobs, tubes, watches, history: 0, buffers: 0 }
    }

    pub fn stats(&self) -> Stats {
        Stats {
            jobs: counts(self.jobs.iter()),
            total_jobs: self.total_jobs(),
            timeouts: self.timeouts,
            tubes: self.tubes.len(),
            connections: self.clients.len(),
            producers: self.clients.iter().filter(|client| client.producer).count(),
            workers: self.clients.iter().filter(|client| client.worker).count(),
            waiting: self.waiting.len(),
            total_connections: self.total_connections,
            draining: self.draining,
            memory: self.memory(),
            max_memory: self.limits.max_memory,
            evicted: self.extended.expired,
        }
    }

    pub fn peek(&self, client: ClientId, state: State) -> Option<&Job> {
        let ids = self.in_order(self.used(client), state);
        self.job(*ids.first()?)
    }

    pub fn tube_stats(&self, name: &str, now: Time) -> Option<TubeStats<'_>> {
        let tube = self.tube(name)?;
        let watches = |client: &ClientState| client.watched.contains(&tube.name);
        let waits = |client: ClientId| self.client(client).is_some_and(watches);
        Some(TubeStats {
            name: tube.name.as_bytes(),
            jobs: counts(self.jobs.iter().filter(|job| job.tube == tube.name)),
            kept: false,
            priority_classes: priority_classes(self.jobs.iter().filter(|job| job.tube == tube.name)),
            total_jobs: tube.total_jobs,
            using: self.clients.iter().filter(|client| client.used == tube.name).count() as u32,
            watching: self.clients.iter().filter(|client| watches(client)).count() as u32,
            sleepers: 0,
            large: 0,
            waiting: self.waiting.iter().filter(|wait| waits(wait.client)).count(),
            deletes: tube.deletes,
            pauses: tube.pauses,
            pause: tube.pause.map_or(Span::ZERO, |(length, _)| length),
            pause_left: tube.pause.map_or(Span::ZERO, |(_, until)| until.since(now)),
            // `comparing` compares the times and settings separately.
            times: None,
            settings: None,
        })
    }

    pub fn job_stats(&self, id: JobId, now: Time) -> Option<JobStats<'_>> {
        let job = self.job(id)?;
        let (state, left) = match job.place {
            Place::Ready => (State::Ready, Span::ZERO),
            Place::Delayed { until } => (State::Delayed, until.since(now)),
            Place::Reserved { until, .. } => (State::Reserved, until.since(now)),
            Place::Buried { .. } => (State::Buried, Span::ZERO),
            Place::Held => (State::Held, Span::ZERO),
            Place::Scheduled { due } => (State::Scheduled, due.since(now)),
        };
        let schedule = self.extended.schedules.get(&id);
        let late = schedule.filter(|schedule| schedule.missed > 0);
        Some(JobStats {
            id,
            tube: job.tube.as_bytes(),
            state,
            pri: job.pri,
            age: now.since(job.created),
            delay: job.delay,
            ttr: job.ttr,
            left,
            history: job.history,
            fails: self.fails(id),
            tries_left: self.tries_left(id).filter(|_| state != State::Scheduled),
            missed: schedule.map_or(0, |schedule| schedule.missed),
            blocked_by: late.and_then(|schedule| self.keyed(job.tube, schedule.tags.key?.0)),
            dead_from: self.dead_from(id).map(str::as_bytes),
            holder: match job.place {
                Place::Reserved { by, .. } => self.client(by).map(|client| client.connection),
                _ => None,
            },
            // The model has no progress reports.
            progress: None,
        })
    }
}
