//! Tubes (named queues), their settings, and the index of tubes by name. A tube exists while it contains a job, has
//! settings, is used or watched, or is marked as kept. Must not decide which client receives which job.

use std::{collections::hash_map::DefaultHasher, collections::BTreeSet, hash::Hasher, sync::Arc};

use super::{
    hashed, ClientId, Handle, Heap, JobId, Jobs, List, Priority, ReadyQueue, ReservePolicy, Span, State, Table, Time,
    TubeTimes, TIMES_COST, URGENT,
};

pub const DEFAULT: &[u8] = b"default";
/// The default tube is opened first and never closed.
pub const DEFAULT_TUBE: u32 = 0;
/// Bytes charged for a tube, excluding its name.
pub const TUBE_COST: u64 = 400;
/// The maximum length of a chain of dead-letter tubes. The maximum bounds the work of [`Tubes::set`].
pub const LONGEST_CHAIN: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobCounts {
    pub urgent: u64,
    pub ready: u64,
    pub delayed: u64,
    pub reserved: u64,
    pub buried: u64,
    pub held: u64,
    /// Schedules, which no other count includes.
    pub scheduled: u64,
    pub finished: u64,
}

impl JobCounts {
    pub fn merge(&mut self, other: &JobCounts) {
        let mut other = *other;
        self.urgent += other.urgent;
        for state in State::LISTED.into_iter().chain([State::Finished]) {
            *self.of(state) += *other.of(state);
        }
    }

    pub(in crate::engine) fn add_ready(&mut self, pri: Priority) {
        self.ready += 1;
        self.urgent += u64::from(pri < URGENT);
    }

    pub(in crate::engine) fn subtract_ready(&mut self, pri: Priority) {
        self.ready -= 1;
        self.urgent -= u64::from(pri < URGENT);
    }

    /// Counts unfinished jobs, but not schedules.
    pub fn all(&self) -> u64 {
        self.ready + self.reserved + self.delayed + self.buried + self.held
    }

    pub fn sum(&mut self, states: &[State]) -> u64 {
        states.iter().map(|state| *self.of(*state)).sum()
    }

    pub(in crate::engine) fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Ready => &mut self.ready,
            State::Delayed => &mut self.delayed,
            State::Reserved => &mut self.reserved,
            State::Buried => &mut self.buried,
            State::Held => &mut self.held,
            State::Scheduled => &mut self.scheduled,
            State::Finished => &mut self.finished,
        }
    }
}

/// Lower bounds on the IDs of the ready, delayed and buried jobs in one tube or in all tubes.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldestIds(pub(in crate::engine) [u64; 3]);

impl OldestIds {
    pub(in crate::engine) const READY: usize = 0;
    pub(in crate::engine) const DELAYED: usize = 1;
    pub(in crate::engine) const BURIED: usize = 2;

    /// `count` is the number of jobs in the state, including `id`.
    pub(in crate::engine) fn enter(&mut self, position: usize, id: JobId, count: u64) {
        let oldest = &mut self.0[position];
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
    /// Jobs that are too large to be leased. Few tubes have such jobs.
    pub(in crate::engine) large: Option<Box<ReadyQueue>>,
    pub(in crate::engine) delayed: Heap<(Time, JobId)>,
    pub(in crate::engine) buried: List,
    /// Watches of clients with `PerConnection`. In this list and in the next two lists, the longest wait comes first.
    pub(in crate::engine) waiting: List,
    pub(in crate::engine) leasing: List,
    pub(in crate::engine) idle: List,
    /// The time at which further idle clients are notified if a job is still ready, or [`Time::NEVER`].
    pub(in crate::engine) renotify_at: Time,
    pub(in crate::engine) priority_classes: [u32; 3],
    pub(in crate::engine) rules: Option<Box<TubeRules>>,
    /// `true` if the tube is paused or has reached its `max` or `rate`. At a limit, reservations by ID are refused too.
    pub(in crate::engine) closed: bool,
    pub(in crate::engine) kept: bool,
    pub(in crate::engine) counts: JobCounts,
    /// `true` while serving the waiting clients takes several calls. Meanwhile, new requests get no jobs of the tube.
    pub(in crate::engine) serving: bool,
    pub(in crate::engine) pause: Option<Box<Pause>>,
    pub(in crate::engine) times: Option<Box<TubeTimes>>,
    pub(in crate::engine) oldest: OldestIds,
    /// `true` if a ready job of the tube has ever had a rank other than its ID.
    pub(in crate::engine) displaced: bool,
    pub(in crate::engine) total_jobs: u64,
    pub(in crate::engine) deletes: u64,
    pub(in crate::engine) pauses: u64,
    pub(in crate::engine) using: u32,
    pub(in crate::engine) watching: u32,
    /// The number of clients with [`ReservePolicy::Notified`] that watch the tube, idle or not.
    pub(in crate::engine) sleepers: u32,
    /// The client that created the tube. The client may have disconnected.
    pub(in crate::engine) opener: Option<Handle<ClientId>>,
    /// Distinguishes successive tubes with the same number.
    generation: u32,
    order: u32,
    hash: u32,
}

impl Tube {
    fn new(name: Arc<[u8]>, order: u32, hash: u32, generation: u32) -> Tube {
        Tube { name, order, hash, generation, renotify_at: Time::NEVER, ..Tube::default() }
    }

    pub(in crate::engine) fn queue_of(&mut self, reserve_policy: ReservePolicy) -> &mut List {
        match reserve_policy {
            ReservePolicy::PerConnection => &mut self.waiting,
            ReservePolicy::Lease => &mut self.leasing,
            ReservePolicy::Notified => &mut self.idle,
        }
    }

    pub(in crate::engine) fn has_no_waiters(&self) -> bool {
        self.waiting.is_empty() && self.leasing.is_empty() && self.idle.is_empty()
    }

    pub(in crate::engine) fn first(&self, reserve_policy: ReservePolicy, jobs: &Jobs) -> Option<u32> {
        let large = self.large.as_deref().filter(|_| reserve_policy != ReservePolicy::Lease);
        match (self.ready.first(jobs), large.and_then(|large| large.first(jobs))) {
            (Some(one), Some(other)) if jobs.get(other).ready_key() <= jobs.get(one).ready_key() => Some(other),
            (one, other) => one.or(other),
        }
    }

    pub(in crate::engine) fn push_ready(&mut self, slot: u32, is_large: bool, jobs: &mut Jobs) {
        if is_large {
            self.large.get_or_insert_with(Box::default).push(slot, jobs);
        } else {
            self.ready.push(slot, jobs);
        }
    }

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

    pub(in crate::engine) fn large_jobs(&self) -> usize {
        self.large.as_ref().map_or(0, |large| large.len())
    }

    pub(in crate::engine) fn due(&self) -> Time {
        let delay = self.delayed.first().map_or(Time::NEVER, |((due, _), _)| due);
        let pause = self.pause.as_ref().map_or(Time::NEVER, |pause| pause.until);
        let opens = self.rules.as_ref().map_or(Time::NEVER, |rules| rules.opens());
        delay.min(pause).min(opens).min(self.renotify_at)
    }

    pub(in crate::engine) fn variable_cost(&self) -> u64 {
        let rules = self.rules.as_ref().map_or(0, |rules| rules.settings.cost());
        self.name.len() as u64 + self.times.as_ref().map_or(0, |_| TIMES_COST) + rules
    }
}

/// The number of tubes per chunk. malloc maps a chunk of this size separately, and unmaps a freed chunk.
const TUBES: usize = 512;

hashed!(Tube, |tube| tube.hash, TUBE_COST + tube.variable_cost());

#[derive(Debug, Default)]
pub struct Tubes {
    /// `table.memory` excludes the name of the default tube, because no client chose this name.
    pub(in crate::engine) table: Table<Tube, TUBES>,
    pub(in crate::engine) hasher: DefaultHasher,
    /// The last opened tube. During a restart, the next job in the log usually belongs to this tube.
    recent: u32,
    opened: u32,
    /// Tube numbers in list order, as in beanstalkd: by creation, except that the last tube replaces a closed tube.
    pub(in crate::engine) order: Vec<u32>,
    pub(in crate::engine) paused: BTreeSet<u32>,
    pub(in crate::engine) kept: usize,
    /// Sorted. For each tube with a dead-letter tube: the name of the dead-letter tube, and the tube's rank and number.
    pub(in crate::engine) links: Vec<(Arc<[u8]>, usize, u32)>,
}

/// The largest capacity at which [`Tubes::order`] does not shrink when tubes are closed.
const KEPT_ORDER: usize = 4096;

impl Tubes {
    pub fn new(hash_secret: u64) -> Tubes {
        let mut tubes = Tubes { recent: DEFAULT_TUBE, ..Tubes::default() };
        tubes.hasher.write_u64(hash_secret);
        let default = tubes.open(DEFAULT);
        assert_eq!(default, DEFAULT_TUBE);
        tubes.table.memory = TUBE_COST;
        tubes
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn measure(&mut self, number: u32) -> &mut TubeTimes {
        let times = &mut self.table.items.get_mut(number).times;
        self.table.memory += if times.is_none() { TIMES_COST } else { 0 };
        times.get_or_insert_default()
    }

    pub fn set(&mut self, number: u32, settings: TubeSettings) {
        let rank = Some(self.rank(&self.get(number).name));
        self.relink(number, rank, None);
        self.table.edit(number, |tube| match settings == TubeSettings::default() {
            true => tube.rules = None,
            false => tube.rules.get_or_insert_default().set(settings),
        });
        self.relink(number, None, rank);
    }

    /// Returns the length of the longest chain of dead-letter tubes that ends at the tube `name`, which need not exist.
    /// Returns at most [`LONGEST_CHAIN`], although a log can contain longer chains.
    pub fn rank(&self, name: &Arc<[u8]>) -> usize {
        let end = self.links.partition_point(|(dead, rank, _)| (dead, *rank) <= (name, LONGEST_CHAIN));
        let last = end.checked_sub(1).map(|last| &self.links[last]).filter(|(dead, ..)| dead == name);
        last.map_or(0, |(_, rank, _)| LONGEST_CHAIN.min(rank + 1))
    }

    /// Changes the tube's rank in `links` from `before` to `after` (`None`: no entry). Updates the rest of its chain.
    fn relink(&mut self, mut number: u32, mut before: Option<usize>, mut after: Option<usize>) {
        while let Some(dead) = self.dead_of(number).filter(|_| before != after).cloned() {
            let rank = Some(self.rank(&dead));
            for (rank, is_new) in [(before, false), (after, true)] {
                let Some(link) = rank.map(|rank| (dead.clone(), rank, number)) else { continue };
                match self.links.binary_search(&link) {
                    Ok(place) if !is_new => drop(self.links.remove(place)),
                    Err(place) if is_new => self.links.insert(place, link),
                    _ => {}
                }
            }
            (before, after) = (rank, Some(self.rank(&dead)));
            let Some(next) = self.find(&dead) else { return };
            number = next;
        }
    }

    pub fn dead_of(&self, number: u32) -> Option<&Arc<[u8]>> {
        self.get(number).rules.as_ref()?.settings.dead.as_ref()
    }

    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.find_hashed(name, self.hash(name))
    }

    pub(in crate::engine) fn hash(&self, name: &[u8]) -> u32 {
        let mut hasher = self.hasher.clone();
        hasher.write(name);
        hasher.finish() as u32
    }

    pub(in crate::engine) fn hash_in(&self, name: &[u8], tube: u32) -> u32 {
        let mut hasher = self.hasher.clone();
        hasher.write(name);
        hasher.write_u32(tube);
        hasher.finish() as u32
    }

    fn find_hashed(&self, name: &[u8], hash: u32) -> Option<u32> {
        self.table.find(hash, |tube| *tube.name == *name)
    }

    /// The caller must use, watch, fill, configure or keep the tube, or close it.
    pub fn open(&mut self, name: &[u8]) -> u32 {
        if self.table.items.try_get(self.recent).is_some_and(|tube| *tube.name == *name) {
            return self.recent;
        }
        let hash = self.hash(name);
        self.recent = self.find_hashed(name, hash).unwrap_or_else(|| {
            self.opened = self.opened.wrapping_add(1);
            let number = self.table.insert(Tube::new(name.into(), self.order.len() as u32, hash, self.opened));
            self.order.push(number);
            number
        });
        self.recent
    }

    pub fn close_if_idle(&mut self, number: u32) -> Option<Tube> {
        let Tube { kept, rules, using, watching, counts, .. } = self.get(number);
        let is_kept = number == DEFAULT_TUBE || *kept || rules.is_some() || using + watching > 0;
        if is_kept || counts.all() + counts.scheduled + counts.finished > 0 {
            return None;
        }
        let tube = self.table.remove(number);
        self.order.swap_remove(tube.order as usize);
        if let Some(&moved) = self.order.get(tube.order as usize) {
            self.get_mut(moved).order = tube.order;
        }
        if self.order.capacity() > KEPT_ORDER && self.order.len() < self.order.capacity() / 4 {
            self.order.shrink_to(self.order.len() * 2);
        }
        Some(tube)
    }

    pub fn handle(&self, number: u32) -> Handle<u32> {
        Handle { number, generation: self.get(number).generation }
    }

    pub fn at(&self, Handle { number, generation }: Handle<u32>) -> Option<u32> {
        self.table.items.try_get(number).is_some_and(|tube| tube.generation == generation).then_some(number)
    }

    pub fn get(&self, number: u32) -> &Tube {
        self.table.get(number)
    }

    pub fn get_mut(&mut self, number: u32) -> &mut Tube {
        self.table.get_mut(number)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Tube)> {
        self.order.iter().map(|&number| (number, self.get(number)))
    }
}

pub const UNLIMITED: [u32; 3] = [u32::MAX; 3];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    pub count: u32,
    /// The length of the window, at least 1.
    pub seconds: u32,
}

/// `N` is an owned or borrowed tube name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TubeSettings<N = Arc<[u8]>> {
    /// For each priority class, the number of jobs at which new jobs are refused. [`u32::MAX`] means unlimited.
    pub max_jobs: [u32; 3],
    /// The maximum number of tries for each job without its own limit. 0 means unlimited.
    pub tries: u8,
    /// The delay in seconds after the first failed try, doubled after each further failed try.
    pub backoff: u32,
    /// The time to live in seconds of jobs without their own time to live. 0 means unlimited.
    pub ttl: u32,
    /// The tube that receives the jobs that the server would otherwise bury in this tube.
    pub dead: Option<N>,
    /// The maximum number of reserved jobs. 0 means unlimited.
    pub max: u32,
    pub rate: Option<Rate>,
}

impl<N> Default for TubeSettings<N> {
    fn default() -> TubeSettings<N> {
        TubeSettings { max_jobs: UNLIMITED, tries: 0, backoff: 0, ttl: 0, dead: None, max: 0, rate: None }
    }
}

impl<N> TubeSettings<N> {
    fn with_dead<M>(&self, dead: Option<M>) -> TubeSettings<M> {
        let TubeSettings { max_jobs, tries, backoff, ttl, max, rate, .. } = *self;
        TubeSettings { max_jobs, tries, backoff, ttl, dead, max, rate }
    }
}

impl TubeSettings<&[u8]> {
    pub fn kept(&self) -> TubeSettings {
        self.with_dead(self.dead.map(Arc::from))
    }
}

impl TubeSettings {
    pub fn borrowed(&self) -> TubeSettings<&[u8]> {
        self.with_dead(self.dead.as_deref())
    }

    pub fn cost(&self) -> u64 {
        RULES_COST + self.dead.as_ref().map_or(0, |name| LINK_COST + name.len() as u64)
    }

    pub fn dead_length(&self) -> usize {
        self.dead.as_ref().map_or(0, |name| name.len())
    }
}

#[derive(Debug, Default)]
pub struct TubeRules {
    pub(in crate::engine) settings: TubeSettings,
    pub(in crate::engine) taken: u32,
    window_end: Time,
}

/// Bytes charged for settings, excluding the dead-letter tube.
pub const RULES_COST: u64 = size_of::<TubeRules>() as u64 + 16;
/// Bytes charged for a dead-letter tube, excluding its name.
pub const LINK_COST: u64 = 80;

impl TubeRules {
    /// The current window continues if the rate does not change.
    pub fn set(&mut self, settings: TubeSettings) {
        if self.settings.rate != settings.rate {
            (self.taken, self.window_end) = (0, Time::default());
        }
        self.settings = settings;
    }

    pub fn take(&mut self, now: Time) {
        let Some(rate) = self.settings.rate else { return };
        if now >= self.window_end {
            // In a busy tube, windows follow each other without gaps, so that a late timer does not reduce the rate.
            let length = Span::from_secs(rate.seconds.into());
            let next = self.window_end + length;
            (self.taken, self.window_end) = (0, if now < next { next } else { now + length });
        }
        self.taken += 1;
    }

    /// Returns the end of the window if the rate's limit is reached, otherwise [`Time::NEVER`].
    pub fn opens(&self) -> Time {
        match self.settings.rate {
            Some(rate) if self.taken >= rate.count => self.window_end,
            _ => Time::NEVER,
        }
    }

    pub fn is_spent(&self, reserved: u64) -> bool {
        self.settings.max > 0 && reserved >= self.settings.max.into() || self.opens() != Time::NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tube_replaces_a_closed_one() {
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

    // Tests promise P28 of beanpole-promises(7).
    #[test]
    fn a_rate_allows_its_count_in_each_window() {
        let rate = Some(Rate { count: 3, seconds: 2 });
        let mut rules =
            TubeRules { settings: TubeSettings { rate, ..TubeSettings::default() }, ..TubeRules::default() };
        let at = |millis: u64| Time::from_nanos(1_000_000 * millis);
        let mut taken = Vec::new();
        for millis in (50_000..60_000).step_by(7) {
            if rules.opens() <= at(millis) {
                rules.taken = 0;
            }
            if !rules.is_spent(0) {
                rules.take(at(millis));
                taken.push(millis - 50_000);
            }
        }
        assert_eq!(taken[..7], [0, 7, 14, 2002, 2009, 2016, 4004]);
        assert_eq!(taken.len(), 15);
    }
}
