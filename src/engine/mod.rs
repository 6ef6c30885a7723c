//! The queue itself: pure, without a socket, file, lock, thread, clock or source of randomness.
//!
//! Owns every job, tube and client, and all rules about them. A *verb* is a method of [`Engine`]: it takes the client,
//! typed arguments and the time, returns its direct answer, and appends [`Event`]s for other clients, which the caller
//! must take (with [`Engine::take_event`]) before the next verb or tick, while they are true. Time passes by
//! [`Engine::tick`]; the caller asks [`Engine::next_deadline`] after every verb or tick, since each of them may change
//! it, and ticks before a verb when that moment has passed, or soon after: what a client keeps beyond its time is lost
//! to it all the same.
//!
//! No verb does more than the steps that its turn was granted ([`Engine::grant_steps`]): one that answers
//! [`Progress::More`] must be called again in another turn, and what no caller can go on with is left to
//! [`Engine::go_on`]. Must not import any other room.

#[cfg(any(test, feature = "test-support"))]
#[path = "tests/check.rs"]
mod check;
mod data;
mod figures;
mod log;
mod rules;
mod verbs;

pub use self::log::change::Change;
pub use self::log::log_room::{LogRoom, CHANGE_SIZE, OPTIONS_SIZE, ORIGIN_SIZE, PUT_SIZE};
pub use self::log::restore::MovedJob;
pub use self::log::stored::{StoredChange, StoredJob, StoredKey, StoredOptions};
pub use data::account::Account;
pub use data::body::{Body, BodyRef, COPY_MAX};
pub use data::client::{ReserveMode, ReservePolicy, LONGEST_LEASE, MARGIN, WATCH_COST};
#[cfg(test)]
pub use data::deferred::DEFERRED;
pub use data::details::History;
pub use data::ended_keys::{EndedKey, KEY_COST};
pub use data::event::{Event, NoJob, Outcome, Report};
pub use data::handle::{ClientHandle, ClientId, NOBODY};
pub use data::histogram::{Histogram, JobTimes};
pub use data::job::{priority_class, Cause, Job, JobId, JobView, NewJob, Priority, State, PRIORITY_CLASSES, URGENT};
pub use data::job_extras::JobExtras;
pub use data::job_options::{CompletionPolicy, DedupKey, Fingerprint, Fingerprinting, Fingerprints, JobOptions};
pub use data::jobs::JOB_COST;
pub use data::latency::{Latency, TubeEvents, TubeTimes, TIMES_COST};
pub use data::list::{Linked, Links, List};
pub use data::name::Name;
pub use data::operations::{Flush, LongCommand, MoveJobs, OpenOperation, MOST_OPEN};
pub use data::smallest::Smallest;
pub use data::steps::{Progress, Steps};
pub use data::text::{is_tube_name_byte, push_uuid, UUID_HYPHENS};
pub use data::time::{Span, Time};
pub use data::tube::TUBE_COST;
pub use data::tube::{JobCounts, Pause, DEFAULT};
pub use data::tube_settings::{Rate, TubeSettings, RULES_COST, UNLIMITED};
pub use figures::ages::FindOldest;
pub use figures::buried::BuriedWalk;
pub use figures::id_pages::IdPage;
pub use figures::pages::{JobPage, NamePage, Page};
pub use figures::stats::{JobStats, Stats, TubeStats};
pub use rules::completion::NotCompleted;
pub use rules::failures::{Failed, LONGEST_REASON};
pub use verbs::batches::TouchAll;
pub use verbs::disconnect::GiveBack;
pub use verbs::flush::FindReserved;
pub use verbs::job_verbs::Kick;
pub use verbs::reserve::{Awaited, Grab, JobEnd, Reserve};
pub use verbs::submit::{Refused, Submitted};
pub use verbs::tagged::{Tagged, Tags};
pub use verbs::tube_settings::NotSet;
pub use verbs::watching::{Dropped, WantedTubes};

use self::log::news::News;
use data::agenda::Agenda;
use data::client::{ClientState, Clients};
use data::store::Store;
use data::tube::{Tubes, DEFAULT_TUBE};

/// Room for so much news is kept; more is seldom needed, when very many wait for one job.
const KEPT_EVENTS: usize = 4096;

/// See [`Limits::few_watched`]; the lists of nearly all clients are shorter.
pub const FEW_WATCHED: usize = 64;

/// Parts of all memory that watches and tubes may take at most: what a client can cause without a job must leave room
/// for jobs.
const WATCHES_PART: u64 = 4;
const TUBES_PART: u64 = 2;

/// Bounds of the engine; most are options of the server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes that all that clients cause may take.
    pub max_memory: u64,
    /// The part of it that is kept for replies, and for what gives memory back: what asks for more may not take it.
    pub kept_memory: u64,
    /// Tubes that may exist at a time.
    pub max_tubes: usize,
    /// Tubes that one client may watch.
    pub max_watched: usize,
    /// A client that watches no more tubes than this is dealt with in one go, whatever is left of a turn's steps.
    pub few_watched: usize,
    /// With how many losses a job with [`CompletionPolicy::Tell`] has failed: how often it is tried in all; none:
    /// without end.
    pub max_losses: Option<u32>,
    /// Bytes of the largest body of a job that is leased: clients that lease were never promised to meet larger ones.
    pub largest_leased: usize,
    /// How long the lease of a job lasts that has no time to run.
    pub lease_limit: Span,
    /// Idle clients that are notified when a job becomes ready; zero: all.
    pub wakeups: u32,
    /// Keys of jobs mean something in one tube only: clients of other tubes may use the same keys for other purposes.
    pub keys_per_tube: bool,
    /// Makes the hashes of names unpredictable to clients.
    pub hash_secret: u64,
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
        lease_limit: LONGEST_LEASE,
        wakeups: 1,
        keys_per_tube: false,
        hash_secret: 0,
    };
}

/// A tube that cannot be watched or used, because of [`Limits::max_tubes`], [`Limits::max_watched`] or
/// [`Limits::max_memory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverLimit;

/// The queue. Each owner counts what it holds, and a file of `rules` or `verbs` names in its first lines those that it
/// touches.
#[derive(Debug)]
pub struct Engine {
    store: Store,
    tubes: Tubes,
    clients: Clients,
    agenda: Agenda,
    news: News,
    limits: Limits,
    job_times: JobTimes,
    /// Bytes of connections, as [`Engine::set_buffers`] told them last.
    buffers: u64,
    /// The system has no memory for more.
    exhausted: bool,
    /// No jobs are taken in any more.
    draining: bool,
    /// The state of the pseudo-random generator of [`Engine::roll`], whose numbers may be predictable.
    dice: u64,
}

impl Engine {
    pub fn new(limits: Limits) -> Engine {
        let mut clients = Clients::default();
        clients.insert(ClientState::new(ReservePolicy::PerConnection, 0));
        Engine {
            store: Store::new(),
            tubes: Tubes::new(limits.hash_secret),
            clients,
            agenda: Agenda::new(),
            news: News::new(),
            job_times: JobTimes::default(),
            buffers: 0,
            exhausted: false,
            draining: false,
            dice: limits.hash_secret | 1,
            limits,
        }
    }

    /// A new client, which uses and watches the default tube.
    pub fn connect(&mut self) -> ClientId {
        let client = self.connect_as(ReservePolicy::PerConnection);
        self.clients[client].used = DEFAULT_TUBE;
        self.clients.watch(client, DEFAULT_TUBE);
        let tube = self.tubes.get_mut(DEFAULT_TUBE);
        tube.using += 1;
        tube.watching += 1;
        client
    }

    /// A new client, which uses and watches nothing yet.
    pub fn connect_as(&mut self, reserve_policy: ReservePolicy) -> ClientId {
        self.clients.connected += 1;
        self.clients.insert(ClientState::new(reserve_policy, self.clients.connected as u32))
    }

    /// What tells a client from others of the same number, which come before or after it.
    pub fn handle(&self, client: ClientId) -> ClientHandle {
        self.clients.handle(client)
    }

    /// Clients that have connected since the start.
    pub fn total_connections(&self) -> u64 {
        self.clients.connected
    }

    /// All jobs, in no useful order and in any state; for tests.
    pub fn jobs(&self) -> impl Iterator<Item = JobView<'_>> {
        self.store.jobs.iter().map(|(slot, _)| self.store.jobs.view(slot))
    }

    /// The job with this id, in any tube, unless it is over.
    pub fn job(&self, id: JobId) -> Option<JobView<'_>> {
        self.any_job(id).filter(|job| job.state() != State::Finished)
    }

    /// The job with this id, in any state and tube.
    pub fn any_job(&self, id: JobId) -> Option<JobView<'_>> {
        self.store.jobs.find(id).map(|slot| self.store.jobs.view(slot))
    }

    /// Jobs are taken in again.
    pub fn undrain(&mut self) {
        self.draining = false;
    }

    /// From now on no job is taken in.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// The names of all tubes.
    pub fn tube_names(&self) -> impl Iterator<Item = &[u8]> {
        self.tubes.iter().map(|(_, tube)| &*tube.name)
    }

    /// Whether there is news for another client, which most verbs have none of.
    pub fn has_events(&self) -> bool {
        !self.news.events.is_empty()
    }

    /// The next piece of news for another client.
    pub fn take_event(&mut self) -> Option<Event> {
        let event = self.news.events.pop_front();
        if event.is_none() && self.news.events.capacity() > KEPT_EVENTS {
            self.news.events = Default::default();
        }
        event
    }

    /// The job in a slot that a change names.
    pub fn job_at(&self, slot: u32) -> JobView<'_> {
        self.store.jobs.view(slot)
    }

    /// The name of a job's tube.
    pub fn tube_of(&self, job: &Job) -> &[u8] {
        &self.tubes.get(job.tube).name
    }

    /// The last id that was given.
    pub fn last_id(&self) -> u64 {
        self.store.last_id
    }
}

#[cfg(test)]
mod tests;
