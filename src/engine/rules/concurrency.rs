//! Keys that bound how many jobs are reserved at a time: `con:` of jobs that are dropped when they are done.
//!
//! Owns the groups of jobs with such a key, and their lanes: the jobs of one group in one tube. Of a lane, only the ready job
//! that comes next stands in the tube's queue, and none while the group has as many reserved as it may; the others are parked
//! in the lane, in the order of service. So nobody who looks for a job ever passes one that is blocked. Must not hand out jobs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::{BuildHasher, Hasher};

use crate::engine::data::client::ReservePolicy;
use crate::engine::data::handle::TubeHandle;
use crate::engine::data::index::{chained, Index};
use crate::engine::data::job::State;
use crate::engine::data::list::NIL;
use crate::engine::data::name::Name;
use crate::engine::data::ready::ReadyQueue;
use crate::engine::data::slots::Slots;
use crate::engine::data::time::Time;
use crate::engine::Engine;

/// Lanes of a group at most: so many tubes are looked at when it has as many reserved as it may, or has no longer.
const MOST_LANES: usize = 64;

/// Jobs with one key.
#[derive(Debug)]
struct Group {
    key: Name,
    /// The tube in which the key counts, or [`NIL`] for all tubes.
    scope: u32,
    hash: u32,
    /// The next in the same bucket of the index.
    chain: u32,
    reserved: u32,
    /// The bounds of those that are reserved, and how many have each.
    bounds: BTreeMap<u32, u32>,
    lanes: Vec<u32>,
    /// As many are reserved as may be.
    blocked: bool,
}

/// Jobs of a group in one tube, either those that can be leased or the others, which stand in different queues.
#[derive(Debug)]
struct Lane {
    group: u32,
    tube: u32,
    large: bool,
    /// Members in any state.
    members: u32,
    /// The one that stands in the tube's queue, or [`NIL`].
    exposed: u32,
    /// The other ready ones.
    parked: ReadyQueue,
}

/// Bytes of account of a group beside its key, and of a lane.
pub(in crate::engine) const GROUP_COST: u64 = size_of::<Group>() as u64 + 24;
pub(in crate::engine) const LANE_COST: u64 = size_of::<Lane>() as u64 + 4;

chained!(Group);

/// All groups and lanes.
#[derive(Debug, Default)]
pub(in crate::engine) struct Concurrency {
    groups: Slots<Group, 64>,
    index: Index,
    lanes: Slots<Lane, 64>,
    /// Tubes in which somebody waits and a job was parked until now; they are served at the end of the verb.
    unblocked: Vec<TubeHandle>,
    /// Bytes of account of all groups and lanes.
    memory: u64,
}

impl Concurrency {
    fn find(&self, key: &Name, scope: u32, hash: u32) -> Option<u32> {
        self.index.find(hash as usize, &self.groups, |group| {
            let group = self.groups.get(group);
            group.scope == scope && group.key == *key
        })
    }

    fn lane_in(&self, group: u32, tube: u32, large: bool) -> Option<u32> {
        let same = |lane: &u32| {
            let lane = self.lanes.get(*lane);
            (lane.tube, lane.large) == (tube, large)
        };
        self.groups.get(group).lanes.iter().copied().find(same)
    }

    /// The key of the group of this lane.
    pub fn key_of(&self, lane: u32) -> &Name {
        &self.groups.get(self.lanes.get(lane).group).key
    }

    /// Ready jobs of this tube that are parked; for checks.
    pub fn parked_in(&self, tube: u32) -> impl Iterator<Item = &ReadyQueue> {
        self.lanes.iter().filter(move |(_, lane)| lane.tube == tube).map(|(_, lane)| &lane.parked)
    }

    /// Returns the bytes of account of all groups and lanes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Bytes of account of all, counted one by one; for checks.
    pub fn counted(&self) -> u64 {
        let groups: u64 = self.groups.iter().map(|(_, group)| GROUP_COST + group.key.length() as u64).sum();
        groups + self.lanes.len() as u64 * LANE_COST
    }
}

impl Engine {
    /// Whether there is a lane for another job with this key in this tube, or may be one.
    pub(in crate::engine) fn has_lane(&self, key: &Name, tube: u32, large: bool) -> bool {
        let (scope, hash) = self.scope_of_key(key, tube);
        let Some(group) = self.concurrency.find(key, scope, hash) else { return true };
        let lanes = self.concurrency.groups.get(group).lanes.len();
        lanes < MOST_LANES || self.concurrency.lane_in(group, tube, large).is_some()
    }

    /// Returns the tube in which this key of a job in `tube` counts, or [`NIL`] for all tubes, and the hash of both.
    fn scope_of_key(&self, key: &Name, tube: u32) -> (u32, u32) {
        if !self.limits.keys_per_tube {
            return (NIL, self.tubes.hash(key.key()));
        }
        let mut hasher = self.tubes.hasher().build_hasher();
        hasher.write(key.key());
        hasher.write_u32(tube);
        (tube, hasher.finish() as u32)
    }

    /// The lane of the job in `slot`, if it has one.
    #[inline]
    pub(in crate::engine) fn lane_of(&self, slot: u32) -> Option<u32> {
        if self.jobs.get(slot).is_bound() {
            self.lane_of_bound(slot)
        } else {
            None
        }
    }

    fn lane_of_bound(&self, slot: u32) -> Option<u32> {
        let rare = self.extras_store.get(self.extras_store.of(slot)).rare()?;
        (rare.lane != NIL).then_some(rare.lane)
    }

    /// The job in `slot`, which has extras and stands nowhere, has this key from now on, and its bound is `most`.
    pub(in crate::engine) fn join_lane(&mut self, slot: u32, key: Name, most: u32) {
        let job = self.jobs.get(slot);
        let (tube, large) = (job.tube, self.is_large(job));
        let (scope, hash) = self.scope_of_key(&key, tube);
        let group = self.concurrency.find(&key, scope, hash).unwrap_or_else(|| {
            self.concurrency.memory += GROUP_COST + key.length() as u64;
            let (bounds, lanes) = (BTreeMap::new(), Vec::new());
            let group = Group { key, scope, hash, chain: NIL, reserved: 0, bounds, lanes, blocked: false };
            let number = self.concurrency.groups.insert(group);
            self.concurrency.index.insert(number, &mut self.concurrency.groups);
            number
        });
        let lane = self.concurrency.lane_in(group, tube, large).unwrap_or_else(|| {
            self.concurrency.memory += LANE_COST;
            let lane = Lane { group, tube, large, members: 0, exposed: NIL, parked: ReadyQueue::default() };
            let number = self.concurrency.lanes.insert(lane);
            self.concurrency.groups.get_mut(group).lanes.push(number);
            number
        });
        self.concurrency.lanes.get_mut(lane).members += 1;
        let rare = self.extras_store.get_mut(self.extras_store.of(slot)).rare_mut();
        (rare.lane, rare.con_limit) = (lane, most);
    }

    /// The job in `slot`, which stands nowhere, has its key no longer. Tells the key and the bound.
    pub(in crate::engine) fn leave_lane(&mut self, slot: u32) -> Option<(Name, u32)> {
        let lane = self.lane_of(slot)?;
        let rare = self.extras_store.get_mut(self.extras_store.of(slot)).rare_mut();
        rare.lane = NIL;
        let most = rare.con_limit;
        let key = self.concurrency.key_of(lane).clone();
        let members = &mut self.concurrency.lanes.get_mut(lane).members;
        *members -= 1;
        if *members == 0 {
            let group = self.concurrency.lanes.remove(lane).group;
            self.concurrency.memory -= LANE_COST;
            let lanes = &mut self.concurrency.groups.get_mut(group).lanes;
            lanes.retain(|other| *other != lane);
            if lanes.is_empty() {
                self.concurrency.index.remove(group, &mut self.concurrency.groups);
                self.concurrency.groups.remove(group);
                self.concurrency.memory -= GROUP_COST + key.length() as u64;
            }
        }
        Some((key, most))
    }

    /// Whether no job of the key of the one in `slot` may be reserved now.
    pub(in crate::engine) fn is_blocked(&self, slot: u32) -> bool {
        let lane = self.lane_of(slot).map(|lane| self.concurrency.lanes.get(lane));
        lane.is_some_and(|lane| self.concurrency.groups.get(lane.group).blocked)
    }

    /// The job in `slot`, which has just become ready, comes to stand in this lane.
    pub(in crate::engine) fn enter_lane(&mut self, lane: u32, slot: u32) {
        let Lane { group, exposed, .. } = *self.concurrency.lanes.get(lane);
        let key = |slot: u32| self.jobs.get(slot).ready_key();
        if self.concurrency.groups.get(group).blocked || exposed != NIL && key(exposed) < key(slot) {
            return self.concurrency.lanes.get_mut(lane).parked.push(slot, &mut self.jobs);
        }
        if exposed != NIL {
            self.withdraw(lane);
        }
        self.expose(lane, slot);
    }

    /// The job in `slot` is ready no longer.
    pub(in crate::engine) fn quit_lane(&mut self, lane: u32, slot: u32) {
        if self.concurrency.lanes.get(lane).exposed != slot {
            return self.concurrency.lanes.get_mut(lane).parked.remove(slot, &mut self.jobs);
        }
        let Lane { group, tube, large, .. } = *self.concurrency.lanes.get(lane);
        self.tubes.get_mut(tube).remove_ready(slot, large, &mut self.jobs);
        self.concurrency.lanes.get_mut(lane).exposed = NIL;
        if !self.concurrency.groups.get(group).blocked {
            self.expose_next(lane);
        }
    }

    fn expose(&mut self, lane: u32, slot: u32) {
        let lane = self.concurrency.lanes.get_mut(lane);
        lane.exposed = slot;
        self.tubes.get_mut(lane.tube).push_ready(slot, lane.large, &mut self.jobs);
    }

    fn expose_next(&mut self, lane: u32) {
        let parked = &mut self.concurrency.lanes.get_mut(lane).parked;
        if let Some(slot) = parked.first(&self.jobs) {
            parked.remove(slot, &mut self.jobs);
            self.expose(lane, slot);
        }
    }

    fn withdraw(&mut self, lane: u32) {
        let lane = self.concurrency.lanes.get_mut(lane);
        let slot = std::mem::replace(&mut lane.exposed, NIL);
        if slot != NIL {
            self.tubes.get_mut(lane.tube).remove_ready(slot, lane.large, &mut self.jobs);
            lane.parked.push(slot, &mut self.jobs);
        }
    }

    /// The job in `slot` is reserved from now on, or no longer.
    pub(in crate::engine) fn count_reserved(&mut self, lane: u32, slot: u32, reserved: bool) {
        let most = self.extras_store.get(self.extras_store.of(slot)).rare().map_or(1, |rare| rare.con_limit);
        let number = self.concurrency.lanes.get(lane).group;
        let group = self.concurrency.groups.get_mut(number);
        let count = group.bounds.entry(most).or_default();
        if reserved {
            *count += 1;
            group.reserved += 1;
        } else {
            *count -= 1;
            group.reserved -= 1;
            if *count == 0 {
                group.bounds.remove(&most);
            }
            if group.bounds.is_empty() {
                // An empty map that had something keeps its first node.
                group.bounds = BTreeMap::new();
            }
        }
        let bound = group.bounds.last_key_value().map_or(u32::MAX, |(bound, _)| *bound);
        let blocked = group.reserved >= bound;
        if std::mem::replace(&mut group.blocked, blocked) != blocked {
            self.block(number, blocked);
        }
    }

    /// All ready jobs of a group are parked, or the next of each lane is no longer.
    fn block(&mut self, group: u32, blocked: bool) {
        for place in 0..self.concurrency.groups.get(group).lanes.len() {
            let lane = self.concurrency.groups.get(group).lanes[place];
            self.steps.take(1);
            if blocked {
                self.withdraw(lane);
                continue;
            }
            self.expose_next(lane);
            let Lane { tube, exposed, .. } = *self.concurrency.lanes.get(lane);
            // Whoever waits there is served before anybody else comes.
            if exposed != NIL && !self.tubes.get(tube).is_lonely() {
                self.serve_later(tube);
                if self.concurrency.unblocked.len() < MOST_LANES {
                    self.concurrency.unblocked.push(self.tubes.handle(tube));
                }
            }
        }
    }

    /// Whether a verb has let jobs go on for which somebody waits.
    pub(in crate::engine) fn has_unblocked(&self) -> bool {
        !self.concurrency.unblocked.is_empty()
    }

    /// Serves those tubes and another one, the one with the most urgent job first, as if all came to be ready at once.
    pub(in crate::engine) fn serve_with_unblocked(&mut self, number: u32, now: Time) {
        self.concurrency.unblocked.push(self.tubes.handle(number));
        self.serve_all_unblocked(now);
    }

    /// Serves the tubes in which jobs may go on.
    #[inline]
    pub(in crate::engine) fn serve_unblocked(&mut self, now: Time) {
        if self.has_unblocked() {
            self.serve_all_unblocked(now);
        }
    }

    fn serve_all_unblocked(&mut self, now: Time) {
        let tubes = std::mem::take(&mut self.concurrency.unblocked).into_iter().enumerate();
        // Mostly there is one; a heap is an eighth of the code that a sort would be.
        let mut next: BinaryHeap<_> = tubes
            .filter_map(|(place, tube)| Some((place, self.tubes.at(tube)?)))
            .map(|(place, tube)| {
                let first = self.tubes.get(tube).first(ReservePolicy::PerConnection, &self.jobs);
                Reverse((first.map(|slot| self.jobs.get(slot).ready_key()), place, tube))
            })
            .collect();
        while let Some(Reverse((.., tube))) = next.pop() {
            self.tubes.get_mut(tube).serving = false;
            self.serve_tube(tube, now);
        }
    }

    /// Panics unless every lane is as it should be; for checks.
    pub(in crate::engine) fn check_lanes(&self) {
        let mut members = 0;
        for (number, lane) in self.concurrency.lanes.iter() {
            let group = self.concurrency.groups.get(lane.group);
            assert!(group.lanes.contains(&number), "a lane is its group's");
            let ready = lane.parked.in_order(&self.jobs).map(|slot| self.jobs.get(slot).ready_key());
            let keys: Vec<_> = ready.collect();
            assert!(keys.is_sorted(), "parked jobs are out of order");
            if lane.exposed != NIL {
                assert!(!group.blocked, "a job that may not be reserved stands in its tube's queue");
                let first = self.jobs.get(lane.exposed).ready_key();
                assert!(keys.first().is_none_or(|next| first < *next), "the wrong job of a lane is in the queue");
            } else {
                assert!(group.blocked || keys.is_empty(), "jobs that may be reserved are parked");
            }
            members += lane.members as usize;
        }
        let (mut found, mut reserved) = (0, 0);
        for (slot, job) in self.jobs.iter() {
            let Some(lane) = self.lane_of(slot) else { continue };
            found += 1;
            reserved += u32::from(job.state() == State::Reserved);
            assert_eq!(self.concurrency.lanes.get(lane).tube, job.tube, "{:?} is in a lane of its tube", job.id);
        }
        assert_eq!(members, found, "every member of a lane is there");
        let counted: u32 = self.concurrency.groups.iter().map(|(_, group)| group.reserved).sum();
        assert_eq!(counted, reserved, "every reserved job with a bound is counted");
    }
}
