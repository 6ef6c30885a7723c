//! Tubes: the named queues, and how they are found.
//!
//! Owns what a tube holds and when it ends: a tube lives while a client uses or watches it, a job is in it, or somebody
//! asked to keep it; the default tube lives for ever. Must not decide which job goes to whom.

use std::collections::hash_map::DefaultHasher;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use super::client::ReservePolicy;
use super::handle::{ClientHandle, Handle, TubeHandle};
use super::heap::Heap;
use super::index::{chained, Index};
use super::job::{Job, JobId, State};
use super::jobs::Jobs;
use super::latency::{TubeTimes, TIMES_COST};
use super::list::{List, NIL};
use super::ready::ReadyQueue;
use super::slots::Slots;
use super::time::{Span, Time};
use super::tube_settings::{TubeRules, TubeSettings};

/// The name of the tube that every client starts with.
pub const DEFAULT: &[u8] = b"default";

/// The number of the default tube, which is opened first and never closed.
pub const DEFAULT_TUBE: u32 = 0;

/// What a tube costs beside its name, in bytes of account.
pub const TUBE_COST: u64 = 400;

/// How many jobs are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobCounts {
    /// Ready with a priority below [`super::job::URGENT`].
    pub urgent: u64,
    /// Ready ones, those that are urgent included.
    pub ready: u64,
    pub reserved: u64,
    pub delayed: u64,
    pub buried: u64,
    /// Over, with an outcome that is kept.
    pub finished: u64,
}

impl JobCounts {
    /// Adds the jobs of another tube.
    pub fn merge(&mut self, other: &JobCounts) {
        self.urgent += other.urgent;
        self.ready += other.ready;
        self.reserved += other.reserved;
        self.delayed += other.delayed;
        self.buried += other.buried;
        self.finished += other.finished;
    }

    /// Counts a job in its present state.
    pub fn add(&mut self, job: &Job) {
        *self.of(job.state()) += 1;
        self.urgent += u64::from(job.is_urgent());
    }

    /// Takes a job in its present state out of the count.
    pub fn subtract(&mut self, job: &Job) {
        *self.of(job.state()) -= 1;
        self.urgent -= u64::from(job.is_urgent());
    }

    /// Jobs that are not over.
    pub fn all(&self) -> u64 {
        self.ready + self.reserved + self.delayed + self.buried
    }

    /// Jobs in one of these states.
    pub fn sum(&mut self, states: &[State]) -> u64 {
        states.iter().map(|state| *self.of(*state)).sum()
    }

    fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Ready => &mut self.ready,
            State::Delayed => &mut self.delayed,
            State::Reserved => &mut self.reserved,
            State::Buried => &mut self.buried,
            State::Finished => &mut self.finished,
        }
    }
}

/// The ids below which there is no ready, no delayed and no buried job, of a tube or of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldestIds(pub(in crate::engine) [u64; 3]);

impl OldestIds {
    pub(in crate::engine) const READY: usize = 0;
    pub(in crate::engine) const DELAYED: usize = 1;
    pub(in crate::engine) const BURIED: usize = 2;

    /// The job with this id has entered the state; with it, `count` jobs are in the state.
    pub(in crate::engine) fn enter(&mut self, place: usize, id: JobId, count: u64) {
        let oldest = &mut self.0[place];
        if count == 1 || id.0 < *oldest {
            *oldest = id.0;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Pause {
    pub length: Span,
    pub until: Time,
}

#[derive(Debug, Default)]
pub struct Tube {
    pub(in crate::engine) name: Arc<[u8]>,
    pub(in crate::engine) ready: ReadyQueue,
    /// Ready jobs too large to be leased; few tubes have any.
    pub(in crate::engine) large: Option<Box<ReadyQueue>>,
    pub(in crate::engine) delayed: Heap<(Time, JobId)>,
    pub(in crate::engine) buried: List,
    /// The watches of the holders that wait for a job, the longest waiting first.
    pub(in crate::engine) waiting: List,
    /// The same of clients that lease.
    pub(in crate::engine) leasing: List,
    /// The watches of the idle clients, the longest idle first.
    pub(in crate::engine) idle: List,
    /// When another idle client is notified if there is still a ready job; [`Time::NEVER`] if none was or none is left.
    pub(in crate::engine) renotify_at: Time,
    /// Ready and delayed jobs in each priority class.
    pub(in crate::engine) priority_classes: [u32; 3],
    /// The settings and what is counted because of them; few tubes have any.
    pub(in crate::engine) rules: Option<Box<TubeRules>>,
    /// Nobody who asks for any job is given one of this tube: it is paused, or its settings allow no reservation.
    pub(in crate::engine) closed: bool,
    /// It stays though nothing refers to it.
    pub(in crate::engine) kept: bool,
    pub(in crate::engine) counts: JobCounts,
    /// Those who wait are served in several turns; until then nobody else is given a job.
    pub(in crate::engine) serving: bool,
    /// Few are paused at a time.
    pub(in crate::engine) pause: Option<Box<Pause>>,
    /// From the first reserved job on.
    pub(in crate::engine) times: Option<Box<TubeTimes>>,
    pub(in crate::engine) oldest: OldestIds,
    /// A ready job has stood at another place than that of its id.
    pub(in crate::engine) displaced: bool,
    pub(in crate::engine) total_jobs: u64,
    pub(in crate::engine) deletes: u64,
    pub(in crate::engine) pauses: u64,
    pub(in crate::engine) using: u32,
    pub(in crate::engine) watching: u32,
    /// Those of them that are notified of work, whether they are idle now or not.
    pub(in crate::engine) sleepers: u32,
    /// Who opened it, who may have gone.
    pub(in crate::engine) opener: ClientHandle,
    /// Tells it from others of the same number, which come before or after it.
    birth: u32,
    /// Its place in the order of listing, see [`Tubes`].
    order: u32,
    /// The hash of its name, by which the index finds it.
    hash: u32,
    /// The next tube in the same bucket of the index.
    chain: u32,
}

impl Tube {
    fn new(name: Arc<[u8]>, order: u32, hash: u32, birth: u32) -> Tube {
        Tube { name, order, hash, birth, chain: NIL, renotify_at: Time::NEVER, ..Tube::default() }
    }

    /// The queue in which clients of this reserve policy wait or are idle.
    #[cfg(any(test, feature = "test-support"))]
    pub(in crate::engine) fn queue(&self, reserve_policy: ReservePolicy) -> &List {
        match reserve_policy {
            ReservePolicy::PerConnection => &self.waiting,
            ReservePolicy::Lease => &self.leasing,
            ReservePolicy::Notified => &self.idle,
        }
    }

    /// The same, to change it.
    pub(in crate::engine) fn queue_of(&mut self, reserve_policy: ReservePolicy) -> &mut List {
        match reserve_policy {
            ReservePolicy::PerConnection => &mut self.waiting,
            ReservePolicy::Lease => &mut self.leasing,
            ReservePolicy::Notified => &mut self.idle,
        }
    }

    /// Whether nobody waits or is idle here.
    pub(in crate::engine) fn is_lonely(&self) -> bool {
        self.waiting.is_empty() && self.leasing.is_empty() && self.idle.is_empty()
    }

    /// The ready job that comes next for clients of this reserve policy.
    pub(in crate::engine) fn first(&self, reserve_policy: ReservePolicy, jobs: &Jobs) -> Option<u32> {
        let first = self.ready.first(jobs);
        let Some(large) = self.large.as_deref().filter(|_| reserve_policy != ReservePolicy::Lease) else {
            return first;
        };
        match (first, large.first(jobs)) {
            (Some(one), Some(other)) => {
                Some(if jobs.get(one).ready_key() < jobs.get(other).ready_key() { one } else { other })
            }
            (one, other) => one.or(other),
        }
    }

    /// Adds a ready job, which must stand in no queue.
    pub(in crate::engine) fn push_ready(&mut self, slot: u32, is_large: bool, jobs: &mut Jobs) {
        if is_large {
            self.large.get_or_insert_with(Box::default).push(slot, jobs);
        } else {
            self.ready.push(slot, jobs);
        }
    }

    /// Takes out a ready job.
    pub(in crate::engine) fn remove_ready(&mut self, slot: u32, is_large: bool, jobs: &mut Jobs) {
        if !is_large {
            return self.ready.remove(slot, jobs);
        }
        let large = self.large.as_mut().expect("the queue of a large job");
        large.remove(slot, jobs);
        if large.is_empty() {
            self.large = None;
        }
    }

    /// How many ready jobs are too large to be leased.
    pub(in crate::engine) fn large_jobs(&self) -> usize {
        self.large.as_ref().map_or(0, |large| large.len())
    }

    /// When something happens in this tube by itself.
    pub(in crate::engine) fn due(&self) -> Time {
        let delay = self.delayed.first().map_or(Time::NEVER, |((due, _), _)| due);
        let pause = self.pause.as_ref().map_or(Time::NEVER, |pause| pause.until);
        let opens = self.rules.as_ref().map_or(Time::NEVER, |rules| rules.opens());
        delay.min(pause).min(opens).min(self.renotify_at)
    }

    /// Bytes of account beside what every tube counts as.
    pub(in crate::engine) fn variable_cost(&self) -> u64 {
        let rules = self.rules.as_ref().map_or(0, |rules| rules.cost());
        self.name.len() as u64 + self.times.as_ref().map_or(0, |_| TIMES_COST) + rules
    }

    fn is_idle(&self) -> bool {
        !self.kept
            && self.rules.is_none()
            && self.using + self.watching == 0
            && self.counts.all() + self.counts.finished == 0
    }
}

/// SipHash behind a secret, so that nobody can choose names that collide; the secret comes from outside, because the
/// engine has no randomness of its own.
#[derive(Debug)]
struct Secret(u64);

impl BuildHasher for Secret {
    type Hasher = DefaultHasher;
    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// Tubes in a chunk: enough that malloc maps it.
const TUBES: usize = 512;

chained!(Tube);

/// All tubes. No table of theirs ever moves or is rehashed in one go, so the slowest opening costs about what the
/// median one does.
#[derive(Debug)]
pub struct Tubes {
    store: Slots<Tube, TUBES>,
    by_name: Index,
    secret: Secret,
    /// The tube that was opened last, which is likely to be opened next: a log's jobs are mostly of few tubes.
    recent: u32,
    /// How many were ever opened.
    opened: u32,
    /// In the order of listing: as created, but the last one moves into the place of one that ends, as in beanstalkd.
    order: Vec<u32>,
    pub(in crate::engine) paused: BTreeSet<u32>,
    /// Tubes that stay though nothing refers to them.
    pub(in crate::engine) kept: usize,
    /// Bytes of account of all tubes; the default tube is there without its name, which nobody chose.
    memory: u64,
}

/// A list of tubes below this capacity keeps its memory.
const KEPT_ORDER: usize = 4096;

impl Tubes {
    pub fn new(hash_secret: u64) -> Tubes {
        let (store, secret) = (Slots::new(), Secret(hash_secret));
        let mut tubes = Tubes {
            store,
            by_name: Index::new(),
            secret,
            recent: DEFAULT_TUBE,
            opened: 0,
            order: Vec::new(),
            paused: BTreeSet::new(),
            kept: 0,
            memory: 0,
        };
        let default = tubes.open(DEFAULT);
        assert_eq!(default, DEFAULT_TUBE);
        tubes.memory = TUBE_COST;
        tubes
    }

    pub fn hasher(&self) -> &impl BuildHasher {
        &self.secret
    }

    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns the bytes of account of all tubes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Begins to measure how long the jobs of a tube wait and run.
    pub fn measure(&mut self, number: u32) -> &mut TubeTimes {
        let times = &mut self.store.get_mut(number).times;
        self.memory += if times.is_none() { TIMES_COST } else { 0 };
        times.get_or_insert_default()
    }

    /// Replaces the settings of a tube.
    pub fn set(&mut self, number: u32, settings: TubeSettings) {
        let tube = self.store.get_mut(number);
        self.memory -= tube.variable_cost();
        if settings == TubeSettings::default() {
            tube.rules = None;
        } else {
            tube.rules.get_or_insert_default().set(settings);
        }
        self.memory += tube.variable_cost();
    }

    /// The number of the tube with this name.
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.find_hashed(name, self.hash(name))
    }

    /// That of a name, of a tube or of anything else.
    pub(in crate::engine) fn hash(&self, name: &[u8]) -> u32 {
        let mut hasher = self.secret.build_hasher();
        hasher.write(name);
        hasher.finish() as u32
    }

    fn find_hashed(&self, name: &[u8], hash: u32) -> Option<u32> {
        self.by_name.find(hash as usize, &self.store, |number| {
            let tube = self.get(number);
            tube.hash == hash && *tube.name == *name
        })
    }

    /// The same, creating the tube if there is none. Whoever opens a tube must use, watch or fill it, or close it
    /// again.
    pub fn open(&mut self, name: &[u8]) -> u32 {
        if self.store.find(self.recent).is_some_and(|tube| *tube.name == *name) {
            return self.recent;
        }
        let hash = self.hash(name);
        if let Some(number) = self.find_hashed(name, hash) {
            self.recent = number;
            return number;
        }
        self.opened = self.opened.wrapping_add(1);
        let number = self.store.insert(Tube::new(name.into(), self.order.len() as u32, hash, self.opened));
        self.memory += TUBE_COST + name.len() as u64;
        self.order.push(number);
        self.by_name.insert(number, &mut self.store);
        self.recent = number;
        number
    }

    /// Ends the tube if nothing refers to it any more, and returns it then.
    pub fn close_if_idle(&mut self, number: u32) -> Option<Tube> {
        if number == DEFAULT_TUBE || !self.get(number).is_idle() {
            return None;
        }
        self.by_name.remove(number, &mut self.store);
        let tube = self.store.remove(number);
        self.memory -= TUBE_COST + tube.variable_cost();
        self.order.swap_remove(tube.order as usize);
        if let Some(&moved) = self.order.get(tube.order as usize) {
            self.get_mut(moved).order = tube.order;
        }
        if self.order.capacity() > KEPT_ORDER && self.order.len() < self.order.capacity() / 4 {
            self.order.shrink_to(self.order.len() * 2);
        }
        Some(tube)
    }

    /// The handle of the tube with this number.
    pub fn handle(&self, number: u32) -> TubeHandle {
        Handle::new(number, self.get(number).birth)
    }

    /// The number of the tube with this handle, unless it is closed.
    pub fn at(&self, handle: TubeHandle) -> Option<u32> {
        self.store.find(handle.number).is_some_and(|tube| tube.birth == handle.birth).then_some(handle.number)
    }

    /// Whether there is a tube with this number.
    #[cfg(any(test, feature = "test-support"))]
    pub fn contains(&self, number: u32) -> bool {
        self.store.find(number).is_some()
    }

    /// The tube with this number.
    pub fn get(&self, number: u32) -> &Tube {
        self.store.get(number)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, number: u32) -> &mut Tube {
        self.store.get_mut(number)
    }

    /// One beyond the last number that a tube may have.
    pub fn end(&self) -> u32 {
        self.store.end()
    }

    /// The tube with this number, if there is one.
    pub fn find_number(&self, number: u32) -> Option<&Tube> {
        self.store.find(number)
    }

    /// All tubes with their numbers, in the order of listing.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Tube)> {
        self.order.iter().map(|&number| (number, self.get(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tube_moves_into_the_hole() {
        let mut tubes = Tubes::new(1);
        for name in [b"a", b"b", b"c", b"d", b"e"] {
            tubes.open(name);
        }
        let b = tubes.find(b"b").unwrap();
        assert!(tubes.close_if_idle(b).is_some());
        let names: Vec<_> = tubes.iter().map(|(_, tube)| &*tube.name).collect();
        assert_eq!(names, [DEFAULT, b"a", b"e", b"c", b"d"]);
        assert_eq!(tubes.find(b"b"), None);
    }

    #[test]
    fn the_default_tube_stays() {
        let mut tubes = Tubes::new(1);
        assert!(tubes.close_if_idle(DEFAULT_TUBE).is_none());
        assert_eq!((tubes.open(b"x"), tubes.open(b"x")), (1, 1));
    }
}
