//! The ready jobs of a tube by priority and rank (usually the job ID), and the lanes of concurrency keys. Most jobs
//! arrive in order. These jobs are appended to a list, and removed from its front without comparisons.
//! Enforces promise P5 of beanpole-promises(7).

use std::collections::BTreeMap;

use super::{hashed, Handle, Heap, JobFlag, Jobs, List, Name, Priority, Slots, Table, Time, NIL};

#[derive(Debug, Default)]
pub struct ReadyQueue {
    /// Jobs that arrived in order.
    run: List,
    rest: Heap<(Priority, Time)>,
}

impl ReadyQueue {
    pub fn len(&self) -> usize {
        self.run.len() + self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn first(&self, jobs: &Jobs) -> Option<u32> {
        match (self.run.first(), self.rest.first()) {
            (Some(slot), Some((key, other))) => Some(if jobs.get(slot).ready_key() < key { slot } else { other }),
            (run, rest) => run.or(rest.map(|(_, slot)| slot)),
        }
    }

    /// The job must be in no queue.
    pub fn push(&mut self, slot: u32, jobs: &mut Jobs) {
        let key = jobs.get(slot).ready_key();
        let in_order = self.run.last().is_none_or(|last| jobs.get(last).ready_key() < key);
        if in_order {
            jobs.get_mut(slot).set(JobFlag::InRun, true);
            self.run.push_back(slot, jobs);
        } else {
            self.rest.push(key, slot, jobs);
        }
    }

    pub fn remove(&mut self, slot: u32, jobs: &mut Jobs) {
        let job = jobs.get_mut(slot);
        if job.has(JobFlag::InRun) {
            job.set(JobFlag::InRun, false);
            self.run.remove(slot, jobs);
        } else {
            let position = job.position();
            self.rest.remove(position, jobs);
        }
    }

    /// Returns the first job by rank and the number of jobs compared, or `None` if this number is 0 or exceeds `limit`.
    pub fn oldest(&self, jobs: &Jobs, limit: usize) -> Option<(u32, usize)> {
        let [first, last] = [self.run.first(), self.run.last()].map(|slot| slot.map(|slot| jobs.get(slot).pri));
        let of_run = if first == last { 1 } else { self.run.len() };
        let checked = of_run + self.rest.len();
        if checked > limit {
            return None;
        }
        let slots = self.run.iter(jobs).take(of_run).chain(self.rest.iter().map(|(_, slot)| slot));
        Some((slots.min_by_key(|slot| jobs.get(*slot).due)?, checked))
    }

    pub fn in_order<'a>(&'a self, jobs: &'a Jobs) -> impl Iterator<Item = u32> + 'a {
        let mut run = self.run.iter(jobs).peekable();
        let mut rest = self.rest.in_order().map(|(_, slot)| slot).peekable();
        let key = |slot: u32| jobs.get(slot).ready_key();
        std::iter::from_fn(move || match (run.peek(), rest.peek()) {
            (Some(&first), Some(&other)) if key(other) < key(first) => rest.next(),
            (Some(_), _) => run.next(),
            (None, _) => rest.next(),
        })
    }

    pub fn iter<'a>(&'a self, jobs: &'a Jobs) -> impl Iterator<Item = u32> + 'a {
        self.run.iter(jobs).chain(self.rest.iter().map(|(_, slot)| slot))
    }
}

/// The maximum number of lanes of a key. All lanes are checked when the key becomes blocked or unblocked.
pub(in crate::engine) const MAX_LANES: usize = 64;

#[derive(Debug)]
pub(in crate::engine) struct SharedKey {
    pub(in crate::engine) key: Name,
    /// [`NIL`] if the key applies to all tubes.
    pub(in crate::engine) scope: u32,
    pub(in crate::engine) hash: u32,
    pub(in crate::engine) reserved: u32,
    /// The number of reserved jobs with each limit.
    pub(in crate::engine) bounds: BTreeMap<u32, u32>,
    pub(in crate::engine) lanes: Vec<u32>,
    pub(in crate::engine) blocked: bool,
}

impl SharedKey {
    /// Returns the new value of `blocked` if it has changed.
    pub fn count(&mut self, limit: u32, is_reserved: bool) -> Option<bool> {
        let count = self.bounds.entry(limit).or_default();
        if is_reserved {
            *count += 1;
            self.reserved += 1;
        } else {
            *count -= 1;
            self.reserved -= 1;
            if *count == 0 {
                self.bounds.remove(&limit);
            }
            if self.bounds.is_empty() {
                // A map that has become empty keeps a node allocated, but a new map does not.
                self.bounds = BTreeMap::new();
            }
        }
        let bound = self.bounds.last_key_value().map_or(u32::MAX, |(bound, _)| *bound);
        let blocked = self.reserved >= bound;
        (std::mem::replace(&mut self.blocked, blocked) != blocked).then_some(blocked)
    }
}

/// The jobs with a concurrency key in one tube. Jobs that are too large for a lease have a separate lane.
#[derive(Debug)]
pub(in crate::engine) struct Lane {
    pub(in crate::engine) shared: u32,
    pub(in crate::engine) tube: u32,
    pub(in crate::engine) large: bool,
    pub(in crate::engine) members: u32,
    /// The one job of the lane that is in the tube's queue, or [`NIL`].
    pub(in crate::engine) exposed: u32,
    pub(in crate::engine) parked: ReadyQueue,
}

pub(in crate::engine) const LANE_COST: u64 = size_of::<Lane>() as u64 + 4;

hashed!(SharedKey, |shared| shared.hash, {
    // The map takes about 112 bytes plus 16 bytes per limit.
    let bounds = if shared.bounds.is_empty() { 0 } else { 112 + 16 * shared.bounds.len() as u64 };
    size_of::<SharedKey>() as u64 + 24 + shared.key.length() as u64 + bounds
});

#[derive(Debug, Default)]
pub struct Lanes {
    /// The table's `memory` includes limits and lanes.
    pub(in crate::engine) keys: Table<SharedKey, 64>,
    pub(in crate::engine) lanes: Slots<Lane, 64>,
    /// The tubes whose waiting clients the engine serves at the end of the current call.
    pub(in crate::engine) unblocked: Vec<Handle<u32>>,
}

impl Lanes {
    pub fn find(&self, key: &Name, scope: u32, hash: u32) -> Option<u32> {
        self.keys.find(hash, |shared| shared.scope == scope && shared.key == *key)
    }

    pub fn lane_in(&self, shared: u32, tube: u32, large: bool) -> Option<u32> {
        self.keys.get(shared).lanes.iter().copied().find(|lane| {
            let lane = self.lanes.get(*lane);
            (lane.tube, lane.large) == (tube, large)
        })
    }

    /// Adds a job to a lane. Creates the key or the lane if necessary.
    pub fn join(&mut self, key: Name, scope: u32, hash: u32, tube: u32, large: bool) -> u32 {
        let shared = self.find(&key, scope, hash).unwrap_or_else(|| {
            let (bounds, lanes) = (BTreeMap::new(), Vec::new());
            self.keys.insert(SharedKey { key, scope, hash, reserved: 0, bounds, lanes, blocked: false })
        });
        let lane = self.lane_in(shared, tube, large).unwrap_or_else(|| {
            self.keys.memory += LANE_COST;
            let lane = Lane { shared, tube, large, members: 0, exposed: NIL, parked: ReadyQueue::default() };
            let number = self.lanes.insert(lane);
            self.keys.get_mut(shared).lanes.push(number);
            number
        });
        self.lanes.get_mut(lane).members += 1;
        lane
    }

    /// Removes a job from a lane. Also removes the lane if it has become empty, and the key if this was its last lane.
    pub fn leave(&mut self, lane: u32) {
        let members = &mut self.lanes.get_mut(lane).members;
        *members -= 1;
        if *members > 0 {
            return;
        }
        let shared = self.lanes.remove(lane).shared;
        self.keys.memory -= LANE_COST;
        let lanes = &mut self.keys.get_mut(shared).lanes;
        lanes.retain(|other| *other != lane);
        if lanes.is_empty() {
            self.keys.remove(shared);
        }
    }

    pub fn key_of(&self, lane: u32) -> &Name {
        &self.keys.get(self.lanes.get(lane).shared).key
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Details, Job, JobId, Span};
    use super::*;

    // Tests promise P5 of beanpole-promises(7).
    #[test]
    fn jobs_are_taken_by_priority_then_id_in_any_order_of_insertion() {
        let mut jobs = Jobs::default();
        let mut queue = ReadyQueue::default();
        let mut slots = Vec::new();
        for id in 1..=500u64 {
            let (pri, details) = ((id * 7919 % 13) as u32, Details::new(Span::ZERO, Span::ZERO));
            let body = jobs.bodies.copy(&[]);
            let slot = jobs.insert(Job::new(JobId(id), 0, pri, details, body, Time::default()));
            jobs.get_mut(slot).due = Time::from_nanos(id);
            queue.push(slot, &mut jobs);
            slots.push(slot);
        }
        for &slot in slots.iter().step_by(5) {
            queue.remove(slot, &mut jobs);
        }
        for &slot in slots.iter().step_by(10) {
            queue.push(slot, &mut jobs);
        }
        assert_eq!(queue.len(), 450);
        let listed: Vec<_> = queue.in_order(&jobs).map(|slot| jobs.get(slot).ready_key()).collect();
        let mut served = Vec::new();
        while let Some(slot) = queue.first(&jobs) {
            queue.remove(slot, &mut jobs);
            served.push(jobs.get(slot).ready_key());
        }
        assert_eq!(served.len(), 450);
        assert_eq!(listed, served);
        assert!(served.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
