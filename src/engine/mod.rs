//! The queue itself: pure, without a socket, file, lock, thread, clock or source of randomness.
//!
//! Owns every job, tube and client, and all rules about them. A *verb* is a method of [`Engine`]: it takes the client, typed
//! arguments and the time, returns its direct answer, and appends [`Event`]s for other clients, which the caller must take
//! (with [`Engine::take_event`]) before anybody else calls a verb. Time passes by [`Engine::tick`]; the caller asks
//! [`Engine::next_deadline`] after every verb or tick, since each of them may change it, and ticks before a verb when that
//! moment has passed. Must not import any other room.

mod bodies;
mod body;
mod change;
mod check;
mod client;
mod deadlines;
mod details;
mod event;
mod heap;
mod ids;
mod index;
mod job;
mod jobs;
mod list;
mod matching;
mod ready;
mod restore;
mod slots;
mod stats;
mod time;
mod tube;

use std::collections::{BTreeSet, VecDeque};

use slab::Slab;

pub use body::{Body, BodyRef, COPY_MAX};
pub use change::{Change, LogRoom};
pub use client::{ClientId, MARGIN};
pub use event::{Event, NoJob};
pub use job::{Cause, History, Job, JobId, JobView, NewJob, Priority, State, URGENT};
pub use list::{Linked, Links, List};
pub use restore::{Restored, RestoredJob};
pub use stats::{JobStats, Stats, TubeStats};
pub use time::{Span, Time};
pub use tube::{JobCounts, Pause, TooManyTubes, DEFAULT};

use client::{Client, WatchList, Watches};
use deadlines::{Deadlines, Owner};
use details::{Count, Details};
use heap::Heap;
use jobs::Jobs;
use tube::{Tubes, DEFAULT_TUBE};

/// What a job costs beside its body, in bytes of account: its slot, its part of a row of ids, and what its body's class or the
/// allocator takes for itself.
pub const JOB_COST: u64 = size_of::<Job>() as u64 + 6 + 10;

/// What a tube costs beside its name, in bytes of account.
pub const TUBE_COST: u64 = 400;

/// Bounds of the engine; each is an option of the server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes that jobs and tubes may take; beyond it no job is taken in.
    pub max_memory: u64,
    /// Tubes that may exist at a time.
    pub max_tubes: usize,
    /// Tubes that one client may watch.
    pub max_watched: usize,
    /// Makes the hashes of tube names unpredictable to clients.
    pub hash_secret: u64,
}

/// Why a job was not put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The engine takes no jobs any more.
    Draining,
    /// The engine's memory is used up.
    OutOfMemory,
}

/// The answer to [`Engine::reserve`].
#[derive(Debug)]
pub enum Reserve<'a> {
    /// This job is the client's now.
    Job(JobView<'a>),
    /// No job, and no waiting for one.
    NoJob(NoJob),
    /// An event will tell.
    Waiting,
}

/// A tube that cannot be watched or used, because of [`Limits::max_tubes`] or [`Limits::max_watched`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverLimit;

impl From<TooManyTubes> for OverLimit {
    fn from(_: TooManyTubes) -> OverLimit {
        OverLimit
    }
}

/// See the module's page.
#[derive(Debug)]
pub struct Engine {
    jobs: Jobs,
    tubes: Tubes,
    clients: Slab<Client>,
    watches: Watches,
    deadlines: Deadlines,
    events: VecDeque<Event>,
    /// None if nobody keeps a log.
    changes: Option<VecDeque<Change>>,
    log_room: LogRoom,
    limits: Limits,
    last_id: u64,
    /// The place of the job that was buried last, in the order of burying.
    last_bury: u64,
    paused: BTreeSet<u32>,
    draining: bool,
    memory: u64,
    counts: JobCounts,
    total_jobs: u64,
    timeouts: u64,
    total_connections: u64,
    producers: usize,
    workers: usize,
    waiting: usize,
}

impl Engine {
    /// An empty queue.
    pub fn new(limits: Limits) -> Engine {
        Engine {
            jobs: Jobs::new(),
            tubes: Tubes::new(limits.hash_secret),
            clients: Slab::new(),
            watches: Watches::default(),
            deadlines: Deadlines::new(),
            events: VecDeque::new(),
            changes: None,
            log_room: LogRoom::ENDLESS,
            limits,
            last_id: 0,
            last_bury: 0,
            paused: BTreeSet::new(),
            draining: false,
            memory: TUBE_COST,
            counts: JobCounts::default(),
            total_jobs: 0,
            timeouts: 0,
            total_connections: 0,
            producers: 0,
            workers: 0,
            waiting: 0,
        }
    }

    /// A new client, which uses and watches the default tube.
    pub fn connect(&mut self) -> ClientId {
        let number = self.clients.insert(Client {
            used: DEFAULT_TUBE,
            watched: WatchList::default(),
            reserved: Heap::new(),
            waiting: None,
            producer: false,
            worker: false,
        }) as u32;
        self.clients[number as usize].watched.add(number, DEFAULT_TUBE, &mut self.watches);
        let tube = self.tubes.get_mut(DEFAULT_TUBE);
        tube.using += 1;
        tube.watching += 1;
        self.total_connections += 1;
        ClientId(number)
    }

    /// The client is gone: what it held is ready again, what it waited for goes to others.
    pub fn disconnect(&mut self, client: ClientId, now: Time) {
        self.cancel_wait(client);
        while let Some((_, slot)) = self.clients[client.0 as usize].reserved.first() {
            self.transfer(slot, Cause::HangUp);
            self.serve(self.jobs.get(slot).tube, now);
        }
        let mut gone = self.clients.remove(client.0 as usize);
        self.deadlines.set(Owner::Client(client.0), Time::NEVER);
        self.producers -= usize::from(gone.producer);
        self.workers -= usize::from(gone.worker);
        while let Some(watch) = gone.watched.iter().last() {
            let number = self.watches.get(watch).tube;
            gone.watched.remove(number, &mut self.watches);
            self.tubes.get_mut(number).watching -= 1;
            self.close_tube_if_idle(number);
        }
        self.tubes.get_mut(gone.used).using -= 1;
        self.close_tube_if_idle(gone.used);
    }

    /// Puts a job into the tube that the client uses.
    pub fn put(&mut self, client: ClientId, new: NewJob, now: Time) -> Result<JobId, Refused> {
        self.mark_producer(client);
        if self.draining {
            return Err(Refused::Draining);
        }
        let cost = JOB_COST + new.body.len() as u64;
        let number = self.clients[client.0 as usize].used;
        let logged = self.log_room.put + (self.tubes.get(number).name.len() + new.body.len()) as u64;
        if self.memory + cost > self.limits.max_memory || logged > self.log_room.puts {
            return Err(Refused::OutOfMemory);
        }
        self.log_room.puts -= logged;
        self.memory += cost;
        self.last_id += 1;
        self.total_jobs += 1;
        let id = JobId(self.last_id);
        let NewJob { pri, delay, ttr, body } = new;
        let body = self.jobs.add_body(body);
        let slot = self.jobs.insert(Job::new(id, number, pri, Details::new(delay, ttr), body, now));
        self.tubes.get_mut(number).total_jobs += 1;
        self.changed(Change::Put(slot));
        self.enter(slot);
        self.serve(number, now);
        Ok(id)
    }

    /// The client has tried to put a job, whatever became of it.
    pub fn mark_producer(&mut self, client: ClientId) {
        let producer = &mut self.clients[client.0 as usize].producer;
        self.producers += usize::from(!*producer);
        *producer = true;
    }

    fn mark_worker(&mut self, client: ClientId) {
        let worker = &mut self.clients[client.0 as usize].worker;
        self.workers += usize::from(!*worker);
        *worker = true;
    }

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
        self.start_waiting(client, timeout, now);
        Reserve::Waiting
    }

    /// The client waits no longer; tells whether it did.
    pub fn cancel_wait(&mut self, client: ClientId) -> bool {
        let waits = self.clients[client.0 as usize].waiting.is_some();
        if waits {
            self.stop_waiting(client);
        }
        waits
    }

    /// Asks for one job by its id, in whatever tube it is; none unless it is ready, delayed or buried.
    pub fn reserve_job(&mut self, client: ClientId, id: JobId, now: Time) -> Option<JobView<'_>> {
        let slot = self.jobs.find(id)?;
        self.jobs.get(slot).state.after(Cause::ReserveJob)?;
        self.mark_worker(client);
        self.grant(client, slot, Cause::ReserveJob, now);
        Some(self.jobs.view(slot))
    }

    /// Deletes a job that the client has reserved, or that nobody has. False if there is no such job.
    pub fn delete(&mut self, client: ClientId, id: JobId) -> bool {
        let Some(slot) = self.jobs.find(id) else { return false };
        let job = self.jobs.get(slot);
        if job.state == State::Reserved && job.holder != client.0 {
            return false;
        }
        self.leave(slot);
        let job = self.jobs.remove(slot);
        self.memory -= JOB_COST + job.body.len() as u64;
        let tube = self.tubes.get_mut(job.tube);
        tube.deletes += 1;
        let (tube, body) = (tube.name.len(), job.body.len());
        self.changed(Change::Delete { slot, id, tube, body });
        self.close_tube_if_idle(job.tube);
        true
    }

    /// Gives a job back with a new priority, ready after `delay`. False if the client does not hold it.
    pub fn release(&mut self, client: ClientId, id: JobId, pri: Priority, delay: Span, now: Time) -> bool {
        self.catch_up(client, now);
        let Some(slot) = self.held(client, id) else { return false };
        self.leave(slot);
        let cause = if delay == Span::ZERO { Cause::Release } else { Cause::ReleaseLater };
        let job = self.jobs.get_mut(slot);
        job.state = job.state.after(cause).expect("a reserved job can be released");
        job.pri = pri;
        job.details.set_delay(delay);
        job.due = now + delay;
        job.count(Count::Releases);
        let tube = job.tube;
        self.changed(Change::Release(slot));
        self.enter(slot);
        self.serve(tube, now);
        true
    }

    /// Sets a job aside with a new priority. False if the client does not hold it.
    pub fn bury(&mut self, client: ClientId, id: JobId, pri: Priority, now: Time) -> bool {
        self.catch_up(client, now);
        let Some(slot) = self.held(client, id) else { return false };
        let job = self.jobs.get_mut(slot);
        job.pri = pri;
        job.count(Count::Buries);
        self.transfer(slot, Cause::Bury);
        self.last_bury += 1;
        self.jobs.get_mut(slot).due = Time::from_nanos(self.last_bury);
        self.changed(Change::Bury(slot));
        true
    }

    /// Starts the time to run of a job again. False if the client does not hold it.
    pub fn touch(&mut self, client: ClientId, id: JobId, now: Time) -> bool {
        self.catch_up(client, now);
        let Some(slot) = self.held(client, id) else { return false };
        let job = self.jobs.get_mut(slot);
        job.due = now + job.ttr();
        let (place, key) = (job.place(), job.due_key());
        self.clients[client.0 as usize].reserved.change(place, key, &mut self.jobs);
        self.retime_client(client.0);
        true
    }

    fn held(&self, client: ClientId, id: JobId) -> Option<u32> {
        let slot = self.jobs.find(id)?;
        let job = self.jobs.get(slot);
        (job.state == State::Reserved && job.holder == client.0).then_some(slot)
    }

    /// Kicks up to `bound` buried jobs of the tube that the client uses, the longest buried first; if none is buried, up
    /// to `bound` delayed ones, the next due first. Tells how many.
    pub fn kick(&mut self, client: ClientId, bound: u64, now: Time) -> u64 {
        let number = self.clients[client.0 as usize].used;
        let tube = self.tubes.get(number);
        let buried = !tube.buried.is_empty();
        let all = if buried { tube.buried.len() } else { tube.delayed.len() };
        let kicked = bound.min(all as u64).min(self.log_room.changes / self.log_room.change.max(1));
        self.log_room.changes -= kicked * self.log_room.change;
        for _ in 0..kicked {
            let tube = self.tubes.get(number);
            let first = if buried { tube.buried.first() } else { tube.delayed.first().map(|(_, slot)| slot) };
            self.kick_slot(first.expect("counted jobs"), now);
        }
        kicked
    }

    /// Kicks one job by its id, in whatever tube it is. False unless it is buried or delayed.
    pub fn kick_job(&mut self, id: JobId, now: Time) -> bool {
        let Some(slot) = self.jobs.find(id) else { return false };
        if self.jobs.get(slot).state.after(Cause::Kick).is_none() {
            return false;
        }
        self.kick_slot(slot, now);
        true
    }

    fn kick_slot(&mut self, slot: u32, now: Time) {
        self.jobs.get_mut(slot).count(Count::Kicks);
        self.changed(Change::Kick(slot));
        self.transfer(slot, Cause::Kick);
        self.serve(self.jobs.get(slot).tube, now);
    }

    /// The job with this id, in any state and tube.
    pub fn job(&self, id: JobId) -> Option<JobView<'_>> {
        self.jobs.find(id).map(|slot| self.jobs.view(slot))
    }

    /// The job in this state that is next in the tube that the client uses.
    pub fn peek(&self, client: ClientId, state: State) -> Option<JobView<'_>> {
        let tube = self.tubes.get(self.clients[client.0 as usize].used);
        let slot = match state {
            State::Ready => tube.ready.first(&self.jobs),
            State::Delayed => tube.delayed.first().map(|(_, slot)| slot),
            State::Buried => tube.buried.first(),
            State::Reserved => None,
        };
        slot.map(|slot| self.jobs.view(slot))
    }

    /// Makes the client use the tube with this name, which is created if need be.
    pub fn use_tube(&mut self, client: ClientId, name: &[u8]) -> Result<(), OverLimit> {
        let number = self.open_tube(name)?;
        self.tubes.get_mut(number).using += 1;
        let left = std::mem::replace(&mut self.clients[client.0 as usize].used, number);
        self.tubes.get_mut(left).using -= 1;
        self.close_tube_if_idle(left);
        Ok(())
    }

    /// Adds the tube with this name, which is created if need be, to those that the client watches. Tells how many.
    /// The client must not be waiting.
    pub fn watch(&mut self, client: ClientId, name: &[u8]) -> Result<usize, OverLimit> {
        let watched = &self.clients[client.0 as usize].watched;
        let known = self.tubes.find(name).is_some_and(|tube| watched.contains(tube, &self.watches));
        if known {
            return Ok(watched.len());
        }
        if watched.len() >= self.limits.max_watched {
            return Err(OverLimit);
        }
        let number = self.open_tube(name)?;
        self.tubes.get_mut(number).watching += 1;
        let watched = &mut self.clients[client.0 as usize].watched;
        watched.add(client.0, number, &mut self.watches);
        Ok(watched.len())
    }

    /// Takes the tube with this name from those that the client watches. Tells how many are left; none if it is the only
    /// one, which stays. The client must not be waiting.
    pub fn ignore(&mut self, client: ClientId, name: &[u8]) -> Option<usize> {
        let watched = &mut self.clients[client.0 as usize].watched;
        let Some(number) = self.tubes.find(name) else { return Some(watched.len()) };
        if watched.len() == 1 && watched.contains(number, &self.watches) {
            return None;
        }
        let removed = watched.remove(number, &mut self.watches);
        let left = watched.len();
        if removed {
            self.tubes.get_mut(number).watching -= 1;
            self.close_tube_if_idle(number);
        }
        Some(left)
    }

    /// For `length`, no job of the tube with this name is given to clients that ask for any job; a pause of no length
    /// ends the one in progress. False if there is no such tube.
    pub fn pause(&mut self, name: &[u8], length: Span, now: Time) -> bool {
        let Some(number) = self.tubes.find(name) else { return false };
        self.tubes.get_mut(number).pauses += 1;
        self.set_pause(number, (length != Span::ZERO).then(|| Pause { length, until: now + length }));
        self.changed(Change::Pause(name.into()));
        self.serve(number, now);
        true
    }

    fn set_pause(&mut self, number: u32, pause: Option<Pause>) {
        self.tubes.get_mut(number).pause = pause;
        match pause {
            Some(_) => self.paused.insert(number),
            None => self.paused.remove(&number),
        };
        self.retime_tube(number);
    }

    /// From now on no job is taken in.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// The name of the tube that the client uses.
    pub fn used(&self, client: ClientId) -> &[u8] {
        &self.tubes.get(self.clients[client.0 as usize].used).name
    }

    /// The names of the tubes that the client watches.
    pub fn watched(&self, client: ClientId) -> impl Iterator<Item = &[u8]> {
        let watched = &self.clients[client.0 as usize].watched;
        watched.iter().map(|watch| &*self.tubes.get(self.watches.get(watch).tube).name)
    }

    /// The names of all tubes.
    pub fn tube_names(&self) -> impl Iterator<Item = &[u8]> {
        self.tubes.iter().map(|(_, tube)| &*tube.name)
    }

    /// When [`Engine::tick`] has something to do; [`Time::NEVER`] if nothing is to come.
    pub fn next_deadline(&self) -> Time {
        self.deadlines.first().map_or(Time::NEVER, |(at, _)| at)
    }

    /// The next piece of news for another client.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Keeps a list of changes from now on, for a log.
    pub fn keep_changes(&mut self) {
        self.changes = Some(VecDeque::new());
    }

    fn changed(&mut self, change: Change) {
        if let Some(changes) = &mut self.changes {
            changes.push_back(change);
        }
    }

    /// The next change that the log must have.
    pub fn take_change(&mut self) -> Option<Change> {
        self.changes.as_mut()?.pop_front()
    }

    /// How much the log can take before it is asked again.
    pub fn set_log_room(&mut self, room: LogRoom) {
        self.log_room = room;
    }

    /// Takes the log's room for one change, to a job or with a name of `extra` bytes to a tube; false if there is none, and
    /// then the change must not be made.
    pub fn claim_log_room(&mut self, extra: usize) -> bool {
        let room = self.log_room.changes.checked_sub(self.log_room.change + extra as u64);
        self.log_room.changes = room.unwrap_or(self.log_room.changes);
        room.is_some()
    }

    /// The job in a slot that a change names.
    pub fn job_at(&self, slot: u32) -> JobView<'_> {
        self.jobs.view(slot)
    }

    /// The name of a job's tube.
    pub fn tube_of(&self, job: &Job) -> &[u8] {
        &self.tubes.get(job.tube).name
    }

    /// The pause of the tube with this name, if it is paused.
    pub fn tube_pause(&self, name: &[u8]) -> Option<Pause> {
        self.tubes.get(self.tubes.find(name)?).pause
    }

    /// The names of all paused tubes, and their pauses.
    pub fn pauses(&self) -> impl Iterator<Item = (&[u8], Pause)> {
        let tubes = self.paused.iter().map(|&number| self.tubes.get(number));
        tubes.filter_map(|tube| Some((&*tube.name, tube.pause?)))
    }

    /// The last id that was given.
    pub fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Bytes that jobs and tubes take, by the engine's own account, and how many they may take.
    pub fn memory(&self) -> (u64, u64) {
        (self.memory, self.limits.max_memory)
    }

    fn open_tube(&mut self, name: &[u8]) -> Result<u32, TooManyTubes> {
        if self.tubes.len() >= self.limits.max_tubes && self.tubes.find(name).is_none() {
            return Err(TooManyTubes);
        }
        Ok(self.open_tube_unlimited(name))
    }

    fn open_tube_unlimited(&mut self, name: &[u8]) -> u32 {
        let before = self.tubes.len();
        let number = self.tubes.open(name);
        if self.tubes.len() > before {
            self.memory += TUBE_COST + name.len() as u64;
        }
        number
    }

    fn close_tube_if_idle(&mut self, number: u32) {
        let tube = self.tubes.get(number);
        let length = tube.name.len() as u64;
        let paused = tube.pause.map(|_| tube.name.clone());
        if self.tubes.close_if_idle(number) {
            self.memory -= TUBE_COST + length;
            self.paused.remove(&number);
            if let Some(name) = paused {
                // A tube of this name that is opened later is not paused, and the log must not think that it is.
                self.changed(Change::Pause((*name).into()));
            }
            self.deadlines.set(Owner::Tube(number), Time::NEVER);
        }
    }
}

#[cfg(test)]
mod tests;
