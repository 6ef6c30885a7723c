//! A model of the queue, as simple as possible, for comparison with the engine.
//!
//! Owns every rule in its simplest form. Jobs, tubes and clients are in vectors, every search is linear, and statistics
//! are counted when requested. Uses the engine's types (times, answers, statistics), but must not share its code.

use super::super::{
    Body, ClientId, Event, History, JobId, Limits, NoJob, Outcome as JobOutcome, OverLimit, Priority, Refused, Span,
    State, Time, JOB_COST, TIMES_COST, TUBE_COST, WATCH_COST,
};

#[path = "model/alarms.rs"]
mod alarms;
#[path = "model/extended.rs"]
mod extended;
#[path = "model/groups.rs"]
mod groups;
#[path = "model/schedules.rs"]
mod schedules;
#[path = "model/settings.rs"]
mod settings;

pub use extended::Extended;
#[allow(unused_imports)] // unused in programs that include this file but do not use groups
pub use groups::GroupTie;
pub use settings::Settings;

pub type Name = &'static str;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Ready,
    Delayed {
        until: Time,
    },
    Reserved {
        by: ClientId,
        since: Time,
        until: Time,
    },
    /// Buried jobs are kicked in ascending order of `order`.
    Buried {
        order: u64,
    },
    /// The job waits until members of groups have ended.
    Held,
    /// The job is a schedule, and is due at this time.
    Scheduled {
        due: Time,
    },
}

impl Place {
    pub fn state(self) -> State {
        match self {
            Place::Ready => State::Ready,
            Place::Delayed { .. } => State::Delayed,
            Place::Reserved { .. } => State::Reserved,
            Place::Buried { .. } => State::Buried,
            Place::Held => State::Held,
            Place::Scheduled { .. } => State::Scheduled,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct JobTags {
    /// The key, and the number of seconds for which the key outlives the job.
    pub key: Option<(Name, u32)>,
    pub tube: Option<Name>,
    pub tries: u8,
    pub backoff: u32,
    pub ttl: Option<Span>,
    /// The concurrency key, and the maximum number of reserved jobs with this key.
    pub bound: Option<(Name, u32)>,
    pub groups: Vec<(Name, GroupTie)>,
    /// The interval of a schedule in seconds.
    pub every: Option<u32>,
    expires: Option<Time>,
    /// `true` while the expiry of the time to live is scheduled.
    timed: bool,
}

#[derive(Clone, Debug)]
pub struct Job {
    pub id: JobId,
    pub tube: Name,
    pub body: Vec<u8>,
    pub pri: Priority,
    pub delay: Span,
    pub ttr: Span,
    pub created: Time,
    pub place: Place,
    pub history: History,
}

impl Job {
    fn touch(&mut self, now: Time) {
        if let Place::Reserved { until, .. } = &mut self.place {
            *until = now + self.ttr;
        }
    }

    /// Returns the time since the reservation started, or zero if the job is not reserved. Like the engine, rounds
    /// `now` and the start down to multiples of 2^20 ns.
    pub fn taken_for(&self, now: Time) -> Span {
        let Place::Reserved { since, .. } = self.place else { return Span::ZERO };
        Span::from_nanos(((now.nanos() >> 20) - (since.nanos() >> 20)) << 20)
    }
}

/// A tube. The model finds its contents by searching all jobs and clients.
#[derive(Clone, Debug)]
pub struct Tube {
    pub name: Name,
    /// The length and the end of the pause.
    pub pause: Option<(Span, Time)>,
    pub total_jobs: u64,
    pub deletes: u64,
    pub pauses: u64,
    /// The client that opened the tube, while that client is connected.
    pub opener: Option<ClientId>,
}

/// A client. The model finds its reservations by searching all jobs.
#[derive(Clone, Debug)]
pub struct ClientState {
    pub id: ClientId,
    /// The sequence number of the connection.
    pub connection: u32,
    pub used: Name,
    pub watched: Vec<Name>,
    pub producer: bool,
    pub worker: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub client: ClientId,
    pub until: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Job(JobId),
    NoJob(NoJob),
    Waiting,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub jobs: Vec<Job>,
    /// The tubes, in the order in which lists show them.
    pub tubes: Vec<Tube>,
    pub clients: Vec<ClientState>,
    /// The waiting clients, longest wait first.
    pub waiting: Vec<Wait>,
    pub events: Vec<Event>,
    pub limits: Limits,
    pub draining: bool,
    pub timeouts: u64,
    pub total_connections: u64,
    pub last_id: u64,
    pub burials: u64,
    /// The state of extensions to beanstalkd.
    pub extended: Extended,
}

impl Model {
    pub fn new(limits: Limits) -> Model {
        let mut model = Model {
            jobs: Vec::new(),
            tubes: Vec::new(),
            clients: Vec::new(),
            waiting: Vec::new(),
            events: Vec::new(),
            limits,
            draining: false,
            timeouts: 0,
            total_connections: 0,
            last_id: 0,
            burials: 0,
            extended: Extended::default(),
        };
        model.create("default", None);
        model
    }

    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.iter().find(|job| job.id == id)
    }

    fn job_mut(&mut self, id: JobId) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.id == id).expect("a job")
    }

    pub fn tube(&self, name: &str) -> Option<&Tube> {
        self.tubes.iter().find(|tube| tube.name == name)
    }

    fn tube_mut(&mut self, name: &str) -> &mut Tube {
        self.tubes.iter_mut().find(|tube| tube.name == name).expect("a tube")
    }

    pub fn client(&self, id: ClientId) -> Option<&ClientState> {
        self.clients.iter().find(|client| client.id == id)
    }

    fn client_mut(&mut self, id: ClientId) -> &mut ClientState {
        self.clients.iter_mut().find(|client| client.id == id).expect("a client")
    }

    pub fn is_waiting(&self, client: ClientId) -> bool {
        self.waiting.iter().any(|wait| wait.client == client) || self.awaits(client)
    }

    pub fn used(&self, client: ClientId) -> Name {
        self.client(client).expect("a client").used
    }

    /// Returns the client's reserved jobs, each with the time at which the reservation expires.
    fn held(&self, client: ClientId) -> impl Iterator<Item = (Time, JobId)> + '_ {
        self.jobs.iter().filter_map(move |job| match job.place {
            Place::Reserved { by, until, .. } if by == client => Some((until, job.id)),
            _ => None,
        })
    }

    fn holds(&self, client: ClientId, id: JobId) -> bool {
        self.held(client).any(|(_, held)| held == id)
    }
}

impl Model {
    /// No other client may have the number `id`.
    pub fn connect(&mut self, id: ClientId) {
        assert!(self.client(id).is_none(), "{id:?} is already in use");
        self.total_connections += 1;
        let watched = vec!["default"];
        let connection = self.total_connections as u32;
        self.clients.push(ClientState { id, connection, used: "default", watched, producer: false, worker: false });
    }

    /// Disconnects a client. Its reservations end in order of job priority and ID; the jobs do not count as released.
    /// Tubes that only this client watched are closed from the last to the first, followed by the used tube.
    pub fn disconnect(&mut self, id: ClientId, now: Time) {
        self.cancel_wait(id);
        let order = |&id: &JobId| (self.job(id).expect("a job").pri, id);
        let mut held: Vec<JobId> = self.held(id).map(|(_, job)| job).collect();
        held.sort_by_key(order);
        held.into_iter().for_each(|job| self.lose(job, now));
        self.extended.weighted.retain(|client| *client != id);
        self.extended.revoked.retain(|_, (client, _)| *client != id);
        while self.client_mut(id).watched.pop().is_some() {
            self.end_tubes();
        }
        self.clients.retain(|client| client.id != id);
        self.tubes.iter_mut().filter(|tube| tube.opener == Some(id)).for_each(|tube| tube.opener = None);
        self.end_tubes();
    }

    pub fn mark_producer(&mut self, client: ClientId) {
        self.client_mut(client).producer = true;
    }

    fn create(&mut self, name: Name, opener: Option<ClientId>) {
        self.tubes.push(Tube { name, pause: None, total_jobs: 0, deletes: 0, pauses: 0, opener });
    }

    /// Fails at a limit on tubes or memory, or if the client has already opened more tubes than can still be opened.
    fn find_or_create(&mut self, client: ClientId, name: Name) -> Result<(), OverLimit> {
        if self.tube(name).is_some() {
            return Ok(());
        }
        let cost = TUBE_COST + name.len() as u64;
        let many = self.memory().tubes + cost > self.limits.max_memory / 2;
        let opened = self.tubes.iter().filter(|tube| tube.opener == Some(client)).count();
        let left = self.limits.max_tubes.saturating_sub(self.tubes.len());
        if left == 0 || opened > left || many || self.lacks(cost) {
            return Err(OverLimit);
        }
        self.create(name, Some(client));
        Ok(())
    }

    fn lacks(&self, bytes: u64) -> bool {
        self.memory().total() + bytes > self.limits.max_memory
    }

    /// Closes empty tubes that are not used, watched or configured. The last tube of the list replaces a closed tube.
    fn end_tubes(&mut self) {
        let lives = |tube: &Tube| {
            tube.name == "default"
                || self.clients.iter().any(|client| client.used == tube.name || client.watched.contains(&tube.name))
                || self.jobs.iter().any(|job| job.tube == tube.name)
                || self.extended.rules.contains_key(tube.name)
        };
        if let Some(place) = self.tubes.iter().position(|tube| !lives(tube)) {
            let ended = self.tubes.swap_remove(place);
            self.extended.times.remove(ended.name);
            self.end_tubes();
        }
    }

    pub fn use_tube(&mut self, client: ClientId, name: Name) -> Result<(), OverLimit> {
        self.find_or_create(client, name)?;
        self.client_mut(client).used = name;
        self.end_tubes();
        Ok(())
    }

    pub fn watch(&mut self, client: ClientId, name: Name) -> Result<usize, OverLimit> {
        let watched = &self.client(client).expect("a client").watched;
        let many = watched.len();
        if watched.contains(&name) {
            return Ok(many);
        }
        let watches = self.memory().watches + WATCH_COST;
        if many >= self.limits.max_watched || watches > self.limits.max_memory / 4 || self.lacks(WATCH_COST) {
            return Err(OverLimit);
        }
        self.find_or_create(client, name)?;
        self.client_mut(client).watched.push(name);
        Ok(many + 1)
    }

    /// The last tube of the watch list replaces the removed tube.
    pub fn ignore(&mut self, client: ClientId, name: Name) -> Option<usize> {
        let watched = &mut self.client_mut(client).watched;
        if watched == &[name] {
            return None;
        }
        if let Some(place) = watched.iter().position(|&other| other == name) {
            watched.swap_remove(place);
        }
        let many = watched.len();
        self.end_tubes();
        Some(many)
    }

    /// Ends the pause if `length` is zero. A new pause replaces an earlier pause.
    pub fn pause(&mut self, name: Name, length: Span, now: Time) -> bool {
        if self.tube(name).is_none() {
            return false;
        }
        let tube = self.tube_mut(name);
        tube.pauses += 1;
        tube.pause = if length == Span::ZERO { None } else { Some((length, now + length)) };
        self.serve(now);
        true
    }
}

impl Model {
    /// The first job has the ID 1. Refused jobs do not use up IDs.
    pub fn put(
        &mut self,
        client: ClientId,
        (pri, delay, ttr): (Priority, Span, Span),
        body: Vec<u8>,
        now: Time,
    ) -> Result<JobId, Refused> {
        self.mark_producer(client);
        let id = self.take_in(self.used(client), (pri, delay, ttr), body, now)?;
        self.date(id, now);
        self.serve(now);
        Ok(id)
    }

    fn take_in(
        &mut self,
        tube: Name,
        (pri, delay, ttr): (Priority, Span, Span),
        body: Vec<u8>,
        now: Time,
    ) -> Result<JobId, Refused> {
        if self.draining {
            return Err(Refused::Draining);
        }
        if self.is_full(tube) {
            return Err(Refused::QueueFull);
        }
        if self.lacks(JOB_COST + body.len() as u64) {
            return Err(Refused::OutOfMemory);
        }
        self.last_id += 1;
        let (id, history) = (JobId(self.last_id), History::default());
        self.tube_mut(tube).total_jobs += 1;
        let place = if delay == Span::ZERO { Place::Ready } else { Place::Delayed { until: now + delay } };
        self.jobs.push(Job { id, tube, body, pri, delay, ttr, created: now, place, history });
        Ok(id)
    }

    pub fn total_jobs(&self) -> u64 {
        self.last_id - self.extended.before
    }

    /// Requests a job. The order of precedence is: an available job, DEADLINE_SOON, a timeout.
    pub fn reserve(&mut self, client: ClientId, timeout: Option<Span>, now: Time) -> Outcome {
        assert!(!self.is_waiting(client), "{client:?} is already waiting");
        self.client_mut(client).worker = true;
        self.take_ended(client, now);
        if let Some(id) = self.best_for(client) {
            self.give(id, client, now);
            return Outcome::Job(id);
        }
        if self.is_soon(client, now) {
            return Outcome::NoJob(NoJob::DeadlineSoon);
        }
        if timeout == Some(Span::ZERO) {
            return Outcome::NoJob(NoJob::TimedOut);
        }
        let until = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        self.waiting.push(Wait { client, until });
        Outcome::Waiting
    }

    /// Reserves an unreserved job by ID, even in a paused tube, unless the concurrency key or tube settings forbid it.
    pub fn reserve_job(&mut self, client: ClientId, id: JobId, now: Time) -> bool {
        match self.job(id) {
            None | Some(Job { place: Place::Reserved { .. } | Place::Scheduled { .. }, .. }) => false,
            Some(job) if self.is_blocked(id) || self.is_exhausted(job.tube) => false,
            Some(_) => {
                self.client_mut(client).worker = true;
                self.give(id, client, now);
                true
            }
        }
    }

    pub fn cancel_wait(&mut self, client: ClientId) -> bool {
        let before = self.is_waiting(client);
        self.waiting.retain(|wait| wait.client != client);
        self.extended.awaiting.retain(|wait| wait.client != client);
        before
    }

    /// Deletes a job. Only the holder can delete a reserved job. The previous holder cannot delete a revoked job.
    pub fn delete(&mut self, client: ClientId, id: JobId) -> bool {
        let Some(job) = self.job(id) else { return false };
        if matches!(job.place, Place::Reserved { by, .. } if by != client) || self.is_revoked(id, client) {
            return false;
        }
        if let Place::Reserved { until, .. } = job.place {
            let (tube, ttr) = (job.tube, job.ttr);
            let now = self.extended.now;
            self.note_time(tube, Some(now.since(until - ttr)), None);
            self.end(id, JobOutcome::Done(Body::default()), true);
        } else {
            self.end(id, JobOutcome::Gone, true);
        }
        true
    }

    pub fn release(&mut self, client: ClientId, id: JobId, pri: Priority, delay: Span, now: Time) -> bool {
        self.take_ended(client, now);
        if !self.holds(client, id) {
            return false;
        }
        self.note_event(id, |events| &mut events.releases);
        self.job_mut(id).history.releases += 1;
        if self.is_last_try(id) {
            self.abandon(id, pri);
            self.serve(now);
            return true;
        }
        let job = self.job_mut(id);
        job.pri = pri;
        job.delay = delay;
        job.place = if delay == Span::ZERO { Place::Ready } else { Place::Delayed { until: now + delay } };
        self.serve_living(id, now);
        true
    }

    pub fn bury(&mut self, client: ClientId, id: JobId, pri: Priority, now: Time) -> bool {
        self.take_ended(client, now);
        if !self.holds(client, id) {
            return false;
        }
        self.bury_last(id, pri, now);
        true
    }

    pub fn touch(&mut self, client: ClientId, id: JobId, now: Time) -> bool {
        self.take_ended(client, now);
        if !self.holds(client, id) {
            return false;
        }
        self.job_mut(id).touch(now);
        true
    }

    /// Kicks up to `bound` buried jobs of the used tube, or delayed jobs if none are buried.
    pub fn kick(&mut self, client: ClientId, bound: u64, now: Time) -> u64 {
        let tube = self.used(client);
        let mut ids = self.in_order(tube, State::Buried);
        if ids.is_empty() {
            ids = self.in_order(tube, State::Delayed);
        }
        ids.truncate(usize::try_from(bound).unwrap_or(usize::MAX));
        for &id in &ids {
            assert_eq!(self.kick_job(id, now), Ok(true));
        }
        ids.len() as u64
    }

    pub fn kick_job(&mut self, id: JobId, now: Time) -> Result<bool, Refused> {
        if self.next_run(id).is_some() {
            return self.run_now(id, now);
        }
        let kickable = |job: &Job| matches!(job.place, Place::Delayed { .. } | Place::Buried { .. } | Place::Held);
        if !self.job(id).is_some_and(kickable) {
            return Ok(false);
        }
        let job = self.job_mut(id);
        job.history.kicks += 1;
        job.place = Place::Ready;
        self.forget_tries(id);
        self.serve_living(id, now);
        Ok(true)
    }

    /// Returns the tube's ready (and not blocked), delayed or buried jobs in queue order, or nothing for other states.
    pub fn in_order(&self, tube: Name, state: State) -> Vec<JobId> {
        let key = |job: &Job| match (job.place, state) {
            (Place::Ready, State::Ready) if !self.is_blocked(job.id) => Some((u64::from(job.pri), job.id)),
            (Place::Delayed { until }, State::Delayed) => Some((until.nanos(), job.id)),
            (Place::Buried { order }, State::Buried) => Some((order, job.id)),
            _ => None,
        };
        let mut keys: Vec<_> = self.jobs.iter().filter(|job| job.tube == tube).filter_map(key).collect();
        keys.sort();
        keys.into_iter().map(|(_, id)| id).collect()
    }
}

impl Model {
    /// Returns the unblocked ready job with the smallest priority value and ID in the watched tubes that are open.
    fn best_for(&self, client: ClientId) -> Option<JobId> {
        let client = self.client(client).expect("a client");
        let fits =
            |job: &&Job| job.place == Place::Ready && client.watched.contains(&job.tube) && !self.is_closed(job.tube);
        let free = |job: &&Job| !self.is_blocked(job.id);
        self.jobs.iter().filter(fits).filter(free).map(|job| (job.pri, job.id)).min().map(|(_, id)| id)
    }

    /// Assigns ready jobs to waiting clients until no client can get a job. The most urgent job is assigned first, to
    /// the client that has waited longest for the job's tube.
    fn serve(&mut self, now: Time) {
        let watches = |client: ClientId, tube: Name| self.client(client).is_some_and(|it| it.watched.contains(&tube));
        let meets = |job: &Job| {
            let first = self.waiting.iter().find(|wait| watches(wait.client, job.tube))?;
            Some((job.pri, job.id, first.client))
        };
        let ready = self.jobs.iter().filter(|job| job.place == Place::Ready && !self.is_closed(job.tube));
        let best = ready.filter(|job| !self.is_blocked(job.id)).filter_map(meets);
        if let Some((_, job, client)) = best.min_by_key(|(pri, id, _)| (*pri, *id)) {
            self.cancel_wait(client);
            self.give(job, client, now);
            self.events.push(Event::Reserved { client, job });
            self.serve(now);
        }
    }

    fn give(&mut self, id: JobId, client: ClientId, now: Time) {
        self.note_wait(id, now);
        let job = self.job_mut(id);
        job.history.reserves += 1;
        job.place = Place::Reserved { by: client, since: now, until: now + job.ttr };
        let tube = job.tube;
        self.note_reservation(tube, now);
        if let Some(failure) = self.extended.failures.get_mut(&id) {
            failure.2 = None;
        }
    }

    fn make_ready(&mut self, id: JobId, now: Time) {
        self.job_mut(id).place = Place::Ready;
        self.serve(now);
    }
}
