//! The queue engine: a state machine without sockets, files, locks, threads, a clock or a source of randomness.
//!
//! A *verb* is a method of [`Engine`] that executes a request. It returns a result, and appends an [`Event`] for each
//! other affected client. The caller takes the events ([`Engine::take_event`]) before the next verb or tick. After each
//! call, the caller reads [`Engine::next_deadline`], and calls [`Engine::tick`] when the deadline has passed.
//!
//! The period during which the caller keeps the engine locked is a *turn*. The verbs in a turn share the steps granted
//! with [`Engine::grant_steps`]. If a verb returns [`Progress::More`], the caller must call the verb again in a later
//! turn. [`Engine::go_on`] continues deferred work. Must not import code from outside the engine.
//!
//! Enforces promise P21 of beanpole-promises(7).

#[cfg(any(test, feature = "test-support"))]
#[path = "tests/check.rs"]
mod check;
mod data;
mod figures;
mod log;
mod rules;
#[cfg(any(test, feature = "test-support"))]
#[path = "tests/support.rs"]
mod support;
mod verbs;

pub use self::log::{
    Change, LogRoom, LoggedGroup, MemberGone, MovedJob, StoredChange, StoredJob, StoredKey, StoredOptions,
    StoredSchedule, StoredTie, StoredTies, CHANGE_SIZE, GROUP_SIZE, OPTIONS_SIZE, ORIGIN_SIZE, PUT_SIZE, RUN_SIZE,
};
pub use data::{
    date_of, day_of, hex_digits, is_tube_name_byte, priority_class, push_moment, push_uuid, Account, Body, BodyRef,
    Cause, ClientId, CompletionPolicy, DedupKey, EndedKey, Event, Fingerprint, Fingerprinting, Fingerprints, Flush,
    GroupCount, GroupTag, Handle, Histogram, History, Job, JobCounts, JobExtras, JobId, JobOptions, JobTimes, JobView,
    Latency, Linked, Links, List, LongCommand, Minutes, MoveJobs, Name, NewBody, NewJob, NoJob, OpenOperation, Outcome,
    Past, PastJob, Pause, Point, Priority, Progress, Rate, Recurrence, Report, ReserveMode, ReservePolicy, RunCount,
    Schedule, Smallest, Span, State, Steps, Tie, Time, TubeEvents, TubeSettings, TubeTimes, Verdict, COPY_MAX, DEFAULT,
    GROUP_COST, JOB_COST, KEY_COST, LINK_COST, MARGIN, MAX_ENTRY_COST, MAX_LEASE, MAX_OPEN, MAX_OPERATIONS,
    MAX_RECURRENCE, MAX_TIES, MEMBER_COST, NOBODY, PAGED_MAX, POINT_SECONDS, PRIORITY_CLASSES, RULES_COST,
    SCHEDULE_COST, TIMES_COST, TUBE_COST, UNLIMITED, URGENT, UUID_HYPHENS, WAIT_COST, WATCH_COST,
};
pub use figures::pages::{BuriedWalk, IdPage, JobPage, NamePage, Page};
pub use figures::stats::{ClientStats, FindOldest, GroupStats, JobStats, Stats, TubeStats, SHOWN_TUBES};
pub use rules::completion::NotCompleted;
pub use rules::dedup::NameSearch;
pub use rules::failures::{beginning, Failed, MAX_REASON};
#[cfg(test)]
pub use support::DEFERRED;
pub use verbs::job_verbs::{Kick, TouchAll};
pub use verbs::long_commands::FindReserved;
pub use verbs::reserve::{Awaited, GiveBack, Grab, JobEnd, Reserve};
pub use verbs::submit::{Submitted, Tagged, Tags};
pub use verbs::tubes::{Dropped, NotSet, WantedTubes, MAX_KEPT};

use std::collections::VecDeque;

use self::log::News;
use data::{Agenda, ClientState, Clients, Store, Tubes, DEFAULT_TUBE, NIL};

/// The maximum capacity that an empty event queue keeps.
const KEPT_EVENTS: usize = 4096;
pub const FEW_WATCHED: usize = 64;
/// To leave memory for jobs, watches use at most 1/`WATCHES_PART` of `max_memory`, and tubes at most 1/`TUBES_PART`.
const WATCHES_PART: u64 = 4;
const TUBES_PART: u64 = 2;

#[derive(Clone, Debug)]
pub struct Limits {
    /// The maximum number of bytes allocated on behalf of clients.
    pub max_memory: u64,
    /// The part of `max_memory` reserved for replies and for commands that free memory.
    pub kept_memory: u64,
    pub max_tubes: usize,
    pub max_watched: usize,
    /// If a client watches at most this many tubes, one call searches all of them, even if the step budget is used up.
    pub few_watched: usize,
    /// A job with [`CompletionPolicy::Tell`] fails after it has lost this many workers. `None` means unlimited.
    pub max_losses: Option<u32>,
    pub largest_leased: usize,
    /// The lease time of a job without a time to run.
    pub lease_limit: Span,
    /// The number of idle clients to notify when a job becomes ready. 0 means all.
    pub wakeups: u32,
    pub keys_per_tube: bool,
    /// A secret, so that clients cannot choose names whose hashes collide.
    pub hash_secret: u64,
    /// The maximum number of ended and buried jobs in the history. 0 disables the history.
    pub history: usize,
}

impl Limits {
    pub const NONE: Limits = Limits {
        max_memory: u64::MAX,
        kept_memory: 0,
        max_tubes: usize::MAX,
        max_watched: usize::MAX,
        few_watched: FEW_WATCHED,
        max_losses: None,
        largest_leased: usize::MAX,
        lease_limit: MAX_LEASE,
        wakeups: 1,
        keys_per_tube: false,
        hash_secret: 0,
        history: 0,
    };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverLimit;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    Draining,
    OutOfMemory,
    /// Another job has the same unique ID.
    Duplicate,
    QueueFull,
}

impl From<OverLimit> for Refused {
    fn from(_: OverLimit) -> Refused {
        Refused::OutOfMemory
    }
}

#[derive(Debug)]
pub struct Engine {
    store: Store,
    tubes: Tubes,
    clients: Clients,
    agenda: Agenda,
    news: News,
    limits: Limits,
    job_times: JobTimes,
    past: Past,
    buffers: u64,
    exhausted: bool,
    draining: bool,
    random_state: u64,
}

impl Engine {
    pub fn new(limits: Limits) -> Engine {
        let mut clients = Clients::new();
        clients.insert(ClientState::new(ReservePolicy::PerConnection, 0));
        Engine {
            store: Store::default(),
            tubes: Tubes::new(limits.hash_secret),
            clients,
            agenda: Agenda::default(),
            news: News { events: VecDeque::new(), changes: None, room: LogRoom::ENDLESS, lacking: 0 },
            job_times: JobTimes::default(),
            past: Past::new(limits.history),
            buffers: 0,
            exhausted: false,
            draining: false,
            random_state: limits.hash_secret | 1,
            limits,
        }
    }

    pub fn connect(&mut self) -> ClientId {
        let client = self.connect_as(ReservePolicy::PerConnection);
        self.clients[client].used = DEFAULT_TUBE;
        self.clients.watch(client, DEFAULT_TUBE);
        let tube = self.tubes.get_mut(DEFAULT_TUBE);
        tube.using += 1;
        tube.watching += 1;
        client
    }

    pub fn connect_as(&mut self, reserve_policy: ReservePolicy) -> ClientId {
        self.clients.connected += 1;
        self.clients.insert(ClientState::new(reserve_policy, self.clients.connected as u32))
    }

    pub fn handle(&self, client: ClientId) -> Handle<ClientId> {
        self.clients.handle(client)
    }

    #[inline]
    pub fn note_activity(&mut self, client: ClientId, now: Time) {
        self.clients.note_activity(client, now);
        self.past.now = now;
        if now >= self.past.point_end {
            self.past.begin_point(now, self.store.counts.ready);
        }
    }

    pub fn past(&self) -> &Past {
        &self.past
    }

    pub fn client_at(&self, handle: Handle<ClientId>) -> Option<ClientId> {
        self.clients.at(handle)
    }

    pub fn total_connections(&self) -> u64 {
        self.clients.connected
    }

    pub fn jobs(&self) -> impl Iterator<Item = JobView<'_>> {
        self.store.jobs.slots.iter().map(|(slot, _)| self.store.jobs.view(slot))
    }

    pub fn job(&self, id: JobId) -> Option<JobView<'_>> {
        self.any_job(id).filter(|job| job.state() != State::Finished)
    }

    pub fn any_job(&self, id: JobId) -> Option<JobView<'_>> {
        self.store.jobs.find(id).map(|slot| self.store.jobs.view(slot))
    }

    pub fn set_draining(&mut self, draining: bool) {
        self.draining = draining;
    }

    pub fn tube_names(&self) -> impl Iterator<Item = &[u8]> {
        self.tubes.iter().map(|(_, tube)| &*tube.name)
    }

    pub fn next_event(&self) -> Option<&Event> {
        self.news.events.front()
    }

    pub fn take_event(&mut self) -> Option<Event> {
        let event = self.news.events.pop_front();
        if event.is_none() && self.news.events.capacity() > KEPT_EVENTS {
            self.news.events = Default::default();
        }
        event
    }

    pub fn job_at(&self, slot: u32) -> JobView<'_> {
        self.store.jobs.view(slot)
    }

    pub fn tube_of(&self, job: &Job) -> &[u8] {
        &self.tubes.get(job.tube).name
    }

    pub fn last_id(&self) -> u64 {
        self.store.last_id
    }

    /// Returns the bytes used on behalf of clients. Removed bodies that replies still share count as buffers. Freed
    /// memory counts as used if only jobs or bodies of the same size can reuse it, except for the first 8 MiB.
    pub fn memory(&self) -> Account {
        Account {
            jobs: self.store.memory(),
            tubes: self.tubes.table.memory,
            watches: self.clients.memory(),
            history: self.past.memory,
            buffers: self.buffers + self.store.jobs.bodies.in_flight_bytes,
        }
    }

    /// Returns the number of bytes that the engine uses, and the part used by deleted bodies that are being sent.
    pub fn memory_held(&self) -> (u64, u64) {
        (self.memory().total() - self.buffers, self.store.jobs.bodies.in_flight_bytes)
    }

    /// Records the number of bytes used outside the engine. `exhausted` is `true` if the system has no free memory.
    pub fn set_buffers(&mut self, bytes: u64, exhausted: bool) {
        self.buffers = bytes;
        self.exhausted = exhausted;
    }

    /// Counts the bytes of `body` as buffers while replies share the body, even after its job is removed.
    pub fn reply_shares(&mut self, body: &Body) {
        self.store.jobs.bodies.note_in_flight(body);
    }

    /// Stops counting bodies that no reply shares anymore. Must be called regularly: each call checks only some bodies.
    #[inline]
    pub fn check_in_flight(&mut self) {
        self.store.jobs.bodies.check_in_flight();
    }

    /// Returns removed bodies. Freeing 100 MB takes milliseconds, so free the bodies in a thread that delays no client.
    pub fn take_released(&mut self) -> Vec<Body> {
        self.store.jobs.bodies.take_released()
    }

    pub fn has_memory(&self, bytes: u64) -> bool {
        let limit = self.limits.max_memory.saturating_sub(self.limits.kept_memory);
        !self.exhausted && self.memory().total() + bytes <= limit
    }

    #[inline]
    pub(in crate::engine) fn bound(&self, slot: u32) -> Option<u32> {
        self.store.jobs.get(slot).is_bound().then(|| self.store.extras.of(slot))
    }

    pub fn extras(&self, job: &Job) -> Option<&JobExtras> {
        job.is_bound().then(|| self.extras_at(self.store.jobs.find(job.id)?)).flatten()
    }

    #[inline]
    pub(in crate::engine) fn extras_at(&self, slot: u32) -> Option<&JobExtras> {
        self.bound(slot).map(|number| self.store.extras.get(number))
    }

    pub(in crate::engine) fn lane_of(&self, slot: u32) -> Option<u32> {
        let rare = self.extras_at(slot)?.rare()?;
        (rare.lane != NIL).then_some(rare.lane)
    }
}

#[cfg(test)]
mod tests;
