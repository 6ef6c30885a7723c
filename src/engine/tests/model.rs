//! The queue once more, as plainly as it can be said: what the engine is compared with.
//!
//! Owns every rule in its simplest words: jobs, tubes and clients stand in vectors, everything is searched for from the
//! first to the last, and nothing is counted before somebody asks. Shares the engine's vocabulary (times, answers,
//! figures), but must not share its code.

use super::super::{
    ClientId, Event, History, JobId, Limits, NoJob, OverLimit, Priority, Refused, Span, State, Time, JOB_COST,
    TUBE_COST, WATCH_COST,
};

/// The name of a tube.
pub type Name = &'static str;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Ready,
    Delayed {
        until: Time,
    },
    Reserved {
        by: ClientId,
        until: Time,
    },
    /// The first one buried has the smallest turn.
    Buried {
        turn: u64,
    },
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

/// A tube; what it holds is found by looking at all jobs and clients.
#[derive(Clone, Debug)]
pub struct Tube {
    pub name: Name,
    /// Its length and its end.
    pub pause: Option<(Span, Time)>,
    pub total_jobs: u64,
    pub deletes: u64,
    pub pauses: u64,
    /// Who opened it, while that client is there.
    pub opener: Option<ClientId>,
}

/// A client; what it holds is found by looking at all jobs.
#[derive(Clone, Debug)]
pub struct ClientState {
    pub id: ClientId,
    pub used: Name,
    pub watched: Vec<Name>,
    pub producer: bool,
    pub worker: bool,
}

/// A client that waits for a job.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub client: ClientId,
    pub until: Time,
}

/// Something that happens by itself.
#[derive(Clone, Copy, Debug)]
enum Alarm {
    ClientState(ClientId),
    Tube(Name),
}

/// What a client gets that asks for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Job(JobId),
    NoJob(NoJob),
    Waiting,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub jobs: Vec<Job>,
    /// In the order of listing.
    pub tubes: Vec<Tube>,
    pub clients: Vec<ClientState>,
    /// In the order of arrival.
    pub waiting: Vec<Wait>,
    pub events: Vec<Event>,
    pub limits: Limits,
    pub draining: bool,
    pub timeouts: u64,
    pub total_connections: u64,
    pub last_id: u64,
    pub burials: u64,
}

impl Model {
    /// An empty queue: nothing but the default tube.
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
        self.waiting.iter().any(|wait| wait.client == client)
    }

    pub fn used(&self, client: ClientId) -> Name {
        self.client(client).expect("a client").used
    }

    /// What the client has reserved, with the ends of the times to run.
    fn held(&self, client: ClientId) -> impl Iterator<Item = (Time, JobId)> + '_ {
        self.jobs.iter().filter_map(move |job| match job.place {
            Place::Reserved { by, until } if by == client => Some((until, job.id)),
            _ => None,
        })
    }

    fn holds(&self, client: ClientId, id: JobId) -> bool {
        self.held(client).any(|(_, held)| held == id)
    }
}

impl Model {
    /// A client comes; whoever counts the clients says which number it has, which nobody else may have.
    pub fn connect(&mut self, id: ClientId) {
        assert!(self.client(id).is_none(), "{id:?} is somebody else");
        self.total_connections += 1;
        let watched = vec!["default"];
        self.clients.push(ClientState { id, used: "default", watched, producer: false, worker: false });
    }

    /// A client goes: its jobs are ready again, those that are served first before the others, and count nothing for
    /// it. The tubes that only it watched end from the last to the first, and then the one that only it used.
    pub fn disconnect(&mut self, id: ClientId, now: Time) {
        self.cancel_wait(id);
        let order = |&id: &JobId| (self.job(id).expect("a job").pri, id);
        let mut held: Vec<JobId> = self.held(id).map(|(_, job)| job).collect();
        held.sort_by_key(order);
        held.into_iter().for_each(|job| self.make_ready(job, now));
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

    /// Whoever has opened more tubes than are left opens no more.
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

    /// Whether so many bytes more are too many.
    fn lacks(&self, bytes: u64) -> bool {
        self.memory().total() + bytes > self.limits.max_memory
    }

    /// A tube lives while a client uses or watches it or a job is in it. The last one of the list takes the place of
    /// one that ends.
    fn end_tubes(&mut self) {
        let lives = |tube: &Tube| {
            tube.name == "default"
                || self.clients.iter().any(|client| client.used == tube.name || client.watched.contains(&tube.name))
                || self.jobs.iter().any(|job| job.tube == tube.name)
        };
        if let Some(place) = self.tubes.iter().position(|tube| !lives(tube)) {
            self.tubes.swap_remove(place);
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

    /// The last one of the list takes the place of the one that is ignored.
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

    /// A new pause takes the place of an old one; one without length ends it.
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
    /// Ids are counted from 1, for jobs that are taken only.
    pub fn put(
        &mut self,
        client: ClientId,
        (pri, delay, ttr): (Priority, Span, Span),
        body: Vec<u8>,
        now: Time,
    ) -> Result<JobId, Refused> {
        self.mark_producer(client);
        if self.draining {
            return Err(Refused::Draining);
        }
        if self.lacks(JOB_COST + body.len() as u64) {
            return Err(Refused::OutOfMemory);
        }
        self.last_id += 1;
        let (id, tube, history) = (JobId(self.last_id), self.used(client), History::default());
        self.tube_mut(tube).total_jobs += 1;
        let place = if delay == Span::ZERO { Place::Ready } else { Place::Delayed { until: now + delay } };
        self.jobs.push(Job { id, tube, body, pri, delay, ttr, created: now, place, history });
        self.serve(now);
        Ok(id)
    }

    /// How many jobs were ever put.
    pub fn total_jobs(&self) -> u64 {
        self.last_id
    }

    /// A job if there is one, even in the last second; then the warning, even if the client would not wait.
    pub fn reserve(&mut self, client: ClientId, timeout: Option<Span>, now: Time) -> Outcome {
        assert!(!self.is_waiting(client), "{client:?} waits already");
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

    /// Any job that nobody has, whatever tube it is in and whether that is paused.
    pub fn reserve_job(&mut self, client: ClientId, id: JobId, now: Time) -> bool {
        match self.job(id) {
            None | Some(Job { place: Place::Reserved { .. }, .. }) => false,
            Some(_) => {
                self.client_mut(client).worker = true;
                self.give(id, client, now);
                true
            }
        }
    }

    pub fn cancel_wait(&mut self, client: ClientId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|wait| wait.client != client);
        self.waiting.len() < before
    }

    /// A reserved job can be deleted by its holder only, any other one by everybody.
    pub fn delete(&mut self, client: ClientId, id: JobId) -> bool {
        let Some(job) = self.job(id) else { return false };
        if matches!(job.place, Place::Reserved { by, .. } if by != client) {
            return false;
        }
        let tube = job.tube;
        self.tube_mut(tube).deletes += 1;
        self.jobs.retain(|job| job.id != id);
        self.end_tubes();
        true
    }

    pub fn release(&mut self, client: ClientId, id: JobId, pri: Priority, delay: Span, now: Time) -> bool {
        self.take_ended(client, now);
        if !self.holds(client, id) {
            return false;
        }
        let job = self.job_mut(id);
        job.pri = pri;
        job.delay = delay;
        job.history.releases += 1;
        job.place = if delay == Span::ZERO { Place::Ready } else { Place::Delayed { until: now + delay } };
        self.serve(now);
        true
    }

    pub fn bury(&mut self, client: ClientId, id: JobId, pri: Priority, now: Time) -> bool {
        self.take_ended(client, now);
        if !self.holds(client, id) {
            return false;
        }
        self.burials += 1;
        let turn = self.burials;
        let job = self.job_mut(id);
        job.pri = pri;
        job.history.buries += 1;
        job.place = Place::Buried { turn };
        true
    }

    pub fn touch(&mut self, client: ClientId, id: JobId, now: Time) -> bool {
        self.take_ended(client, now);
        if !self.holds(client, id) {
            return false;
        }
        let job = self.job_mut(id);
        job.place = Place::Reserved { by: client, until: now + job.ttr };
        true
    }

    /// The buried jobs of the used tube, or if there are none, the delayed ones.
    pub fn kick(&mut self, client: ClientId, bound: u64, now: Time) -> u64 {
        let tube = self.used(client);
        let mut ids = self.in_order(tube, State::Buried);
        if ids.is_empty() {
            ids = self.in_order(tube, State::Delayed);
        }
        ids.truncate(usize::try_from(bound).unwrap_or(usize::MAX));
        for &id in &ids {
            self.kick_job(id, now);
        }
        ids.len() as u64
    }

    pub fn kick_job(&mut self, id: JobId, now: Time) -> bool {
        let kickable = |job: &Job| matches!(job.place, Place::Delayed { .. } | Place::Buried { .. });
        if !self.job(id).is_some_and(kickable) {
            return false;
        }
        self.job_mut(id).history.kicks += 1;
        self.make_ready(id, now);
        true
    }

    /// The tube's jobs in this state, the first one first; reserved ones have no order.
    pub fn in_order(&self, tube: Name, state: State) -> Vec<JobId> {
        let key = |job: &Job| match (job.place, state) {
            (Place::Ready, State::Ready) => Some((u64::from(job.pri), job.id)),
            (Place::Delayed { until }, State::Delayed) => Some((until.nanos(), job.id)),
            (Place::Buried { turn }, State::Buried) => Some((turn, job.id)),
            _ => None,
        };
        let mut keys: Vec<_> = self.jobs.iter().filter(|job| job.tube == tube).filter_map(key).collect();
        keys.sort();
        keys.into_iter().map(|(_, id)| id).collect()
    }
}

impl Model {
    /// The ready job with the smallest priority, then the smallest id, of all tubes that the client watches and that
    /// are not paused.
    fn best_for(&self, client: ClientId) -> Option<JobId> {
        let client = self.client(client).expect("a client");
        let paused = |name: Name| self.tube(name).is_some_and(|tube| tube.pause.is_some());
        let fits = |job: &&Job| job.place == Place::Ready && client.watched.contains(&job.tube) && !paused(job.tube);
        self.jobs.iter().filter(fits).map(|job| (job.pri, job.id)).min().map(|(_, id)| id)
    }

    /// As long as there is a job for somebody who waits: of those, whoever came first gets the best job for it.
    fn serve(&mut self, now: Time) {
        let meets = |wait: &Wait| Some((wait.client, self.best_for(wait.client)?));
        if let Some((client, job)) = self.waiting.iter().find_map(meets) {
            self.cancel_wait(client);
            self.give(job, client, now);
            self.events.push(Event::Reserved { client, job });
            self.serve(now);
        }
    }

    fn give(&mut self, id: JobId, client: ClientId, now: Time) {
        let job = self.job_mut(id);
        job.history.reserves += 1;
        job.place = Place::Reserved { by: client, until: now + job.ttr };
    }

    fn make_ready(&mut self, id: JobId, now: Time) {
        self.job_mut(id).place = Place::Ready;
        self.serve(now);
    }
}

impl Model {
    /// Whether something that the client holds is in its last second.
    fn is_soon(&self, client: ClientId, now: Time) -> bool {
        self.held(client).any(|(until, _)| until - Span::from_secs(1) <= now)
    }

    /// When something happens to the client by itself: what it holds ends, or while it waits, is one second from its
    /// end, or it has waited long enough.
    fn client_alarm(&self, client: ClientId) -> Time {
        let end = self.held(client).map(|(until, _)| until).min();
        match self.waiting.iter().find(|wait| wait.client == client) {
            None => end.unwrap_or(Time::NEVER),
            Some(wait) => end.map_or(wait.until, |end| wait.until.min(end - Span::from_secs(1))),
        }
    }

    fn next_delayed(&self, tube: Name) -> Option<(Time, JobId)> {
        let delayed = self.jobs.iter().filter(|job| job.tube == tube).filter_map(|job| match job.place {
            Place::Delayed { until } => Some((until, job.id)),
            _ => None,
        });
        delayed.min()
    }

    /// When something happens to the tube by itself: a delay ends, or its pause.
    fn tube_alarm(&self, tube: &Tube) -> Time {
        let delay = self.next_delayed(tube.name).map_or(Time::NEVER, |(until, _)| until);
        tube.pause.map_or(delay, |(_, until)| until.min(delay))
    }

    fn alarms(&self) -> Vec<(Time, Alarm)> {
        let clients = self.clients.iter().map(|client| (self.client_alarm(client.id), Alarm::ClientState(client.id)));
        clients.chain(self.tubes.iter().map(|tube| (self.tube_alarm(tube), Alarm::Tube(tube.name)))).collect()
    }

    pub fn next_deadline(&self) -> Time {
        self.alarms().into_iter().map(|(at, _)| at).min().unwrap_or(Time::NEVER)
    }

    /// The alarm that rings next, or those, if there are several for the same moment.
    fn due(&self, now: Time) -> Vec<Alarm> {
        let alarms = self.alarms();
        let first = alarms.iter().map(|&(at, _)| at).min().unwrap_or(Time::NEVER);
        alarms.into_iter().filter(|&(at, _)| at == first && at <= now).map(|(_, alarm)| alarm).collect()
    }

    /// All that may come of at most `limit` alarms, the earliest first; those of the same moment in any order.
    pub fn ticked(self, now: Time, limit: usize) -> Vec<Model> {
        let mut models = vec![self];
        for _ in 0..limit {
            let mut rang = false;
            let mut after = Vec::new();
            for model in models {
                let due = model.due(now);
                rang |= !due.is_empty();
                after.extend(due.iter().map(|&alarm| model.after(alarm, now)));
                if due.is_empty() {
                    after.push(model);
                }
            }
            models = after;
            if !rang {
                break;
            }
        }
        models
    }

    fn after(&self, alarm: Alarm, now: Time) -> Model {
        let mut model = self.clone();
        match alarm {
            Alarm::ClientState(client) => model.ring_client(client, now),
            Alarm::Tube(tube) => model.ring_tube(tube, now),
        }
        model
    }

    /// What has ended is gone before anybody is warned of it or told to go, and a warning goes before a time-out.
    fn ring_client(&mut self, client: ClientId, now: Time) {
        if self.take_one_ended(client, now) {
            return;
        }
        let why = if self.is_soon(client, now) { NoJob::DeadlineSoon } else { NoJob::TimedOut };
        assert!(self.cancel_wait(client), "{client:?} waits");
        self.events.push(Event::NoJob { client, why });
    }

    /// Takes from the client the first job whose time to run has ended, if there is one.
    fn take_one_ended(&mut self, client: ClientId, now: Time) -> bool {
        let ended = self.held(client).filter(|&(until, _)| until <= now).min();
        if let Some((_, job)) = ended {
            self.timeouts += 1;
            self.job_mut(job).history.timeouts += 1;
            self.make_ready(job, now);
        }
        ended.is_some()
    }

    /// Nobody keeps what has ended, even if the tick that takes it away is late.
    fn take_ended(&mut self, client: ClientId, now: Time) {
        while self.take_one_ended(client, now) {}
    }

    /// A job whose delay ends no later than the pause is there when the pause ends, and is served by its priority.
    fn ring_tube(&mut self, tube: Name, now: Time) {
        let pause = self.tube_mut(tube).pause.map_or(Time::NEVER, |(_, until)| until);
        match self.next_delayed(tube) {
            Some((until, job)) if until <= pause => self.make_ready(job, now),
            _ => {
                self.tube_mut(tube).pause = None;
                self.serve(now);
            }
        }
    }
}
