//! Concurrency keys, which limit how many of their jobs are reserved at a time, and their lanes in tubes.
//!
//! Owns the lanes, their members, and their memory. Must not decide which job may go next: `rules/concurrency.rs` does.

use std::collections::BTreeMap;

use super::handle::TubeHandle;
use super::index::{chained, Index};
use super::list::NIL;
use super::name::Name;
use super::ready::ReadyQueue;
use super::slots::Slots;

/// Maximum number of lanes of a key: this many tubes are checked when the key reaches its limit, or leaves it.
pub(in crate::engine) const MOST_LANES: usize = 64;

#[derive(Debug)]
pub(in crate::engine) struct SharedKey {
    pub(in crate::engine) key: Name,
    /// The tube to which the key is limited, or [`NIL`] for all tubes.
    pub(in crate::engine) scope: u32,
    pub(in crate::engine) hash: u32,
    /// The next key in the same bucket of the index.
    pub(in crate::engine) chain: u32,
    pub(in crate::engine) reserved: u32,
    /// The limits of the reserved jobs, and the number of jobs with each.
    pub(in crate::engine) bounds: BTreeMap<u32, u32>,
    pub(in crate::engine) lanes: Vec<u32>,
    /// The key has reached its limit.
    pub(in crate::engine) blocked: bool,
}

/// Jobs of a key in one tube: either those that can be leased or the others, which are in different queues.
#[derive(Debug)]
pub(in crate::engine) struct Lane {
    pub(in crate::engine) shared: u32,
    pub(in crate::engine) tube: u32,
    pub(in crate::engine) large: bool,
    /// The jobs of the lane, in any state.
    pub(in crate::engine) members: u32,
    /// The job that is in the tube's queue, or [`NIL`].
    pub(in crate::engine) exposed: u32,
    /// Ready jobs that must wait for their turn.
    pub(in crate::engine) parked: ReadyQueue,
}

/// Bytes of account of a key without its text, and of a lane.
pub(in crate::engine) const SHARED_KEY_COST: u64 = size_of::<SharedKey>() as u64 + 24;
pub(in crate::engine) const LANE_COST: u64 = size_of::<Lane>() as u64 + 4;

/// Bytes of account of the limits of a key's reserved jobs: one node of the map, and a share of others.
pub(in crate::engine) fn bounds_cost(count: usize) -> u64 {
    if count == 0 {
        0
    } else {
        112 + 16 * count as u64
    }
}

chained!(SharedKey);

#[derive(Debug, Default)]
pub struct Lanes {
    pub(in crate::engine) keys: Slots<SharedKey, 64>,
    pub(in crate::engine) index: Index,
    pub(in crate::engine) lanes: Slots<Lane, 64>,
    /// Tubes with waiting clients and a job that is no longer parked; they are served at the end of the verb.
    pub(in crate::engine) unblocked: Vec<TubeHandle>,
    /// Bytes of account of all keys, lanes and limits.
    pub(in crate::engine) memory: u64,
}

impl Lanes {
    /// Returns the number of this key, which has this hash, in its scope.
    pub fn find(&self, key: &Name, scope: u32, hash: u32) -> Option<u32> {
        self.index.find(hash as usize, &self.keys, |shared| {
            let shared = self.keys.get(shared);
            shared.scope == scope && shared.key == *key
        })
    }

    /// Returns the lane of a key in a tube.
    pub fn lane_in(&self, shared: u32, tube: u32, large: bool) -> Option<u32> {
        let same = |lane: &u32| {
            let lane = self.lanes.get(*lane);
            (lane.tube, lane.large) == (tube, large)
        };
        self.keys.get(shared).lanes.iter().copied().find(same)
    }

    /// Adds a member to the lane of this key, creates either if it does not exist, and returns the lane.
    pub fn join(&mut self, key: Name, scope: u32, hash: u32, tube: u32, large: bool) -> u32 {
        let shared = self.find(&key, scope, hash).unwrap_or_else(|| {
            self.memory += SHARED_KEY_COST + key.length() as u64;
            let (bounds, lanes) = (BTreeMap::new(), Vec::new());
            let shared = SharedKey { key, scope, hash, chain: NIL, reserved: 0, bounds, lanes, blocked: false };
            let number = self.keys.insert(shared);
            self.index.insert(number, &mut self.keys);
            number
        });
        let lane = self.lane_in(shared, tube, large).unwrap_or_else(|| {
            self.memory += LANE_COST;
            let lane = Lane { shared, tube, large, members: 0, exposed: NIL, parked: ReadyQueue::default() };
            let number = self.lanes.insert(lane);
            self.keys.get_mut(shared).lanes.push(number);
            number
        });
        self.lanes.get_mut(lane).members += 1;
        lane
    }

    /// Removes a member from a lane. The last member removes the lane, and the last lane its key.
    pub fn leave(&mut self, lane: u32) {
        let members = &mut self.lanes.get_mut(lane).members;
        *members -= 1;
        if *members > 0 {
            return;
        }
        let shared = self.lanes.remove(lane).shared;
        self.memory -= LANE_COST;
        let lanes = &mut self.keys.get_mut(shared).lanes;
        lanes.retain(|other| *other != lane);
        if lanes.is_empty() {
            self.index.remove(shared, &mut self.keys);
            self.memory -= SHARED_KEY_COST + self.keys.remove(shared).key.length() as u64;
        }
    }

    pub fn key_of(&self, lane: u32) -> &Name {
        &self.keys.get(self.lanes.get(lane).shared).key
    }

    /// The parked ready jobs of this tube; for checks.
    #[cfg(any(test, feature = "test-support"))]
    pub fn parked_in(&self, tube: u32) -> impl Iterator<Item = &ReadyQueue> {
        self.lanes.iter().filter(move |(_, lane)| lane.tube == tube).map(|(_, lane)| &lane.parked)
    }

    /// Returns the bytes of account of all keys and lanes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Bytes of account of all keys and lanes, counted one by one; for checks.
    #[cfg(any(test, feature = "test-support"))]
    pub fn counted(&self) -> u64 {
        let cost = |key: &SharedKey| SHARED_KEY_COST + key.key.length() as u64 + bounds_cost(key.bounds.len());
        let keys: u64 = self.keys.iter().map(|(_, key)| cost(key)).sum();
        keys + self.lanes.len() as u64 * LANE_COST
    }
}
