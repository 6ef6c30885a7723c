//! Concurrency keys, which limit how many of their jobs are reserved at a time, and their lanes in tubes.
//!
//! Owns the lanes, their members, and their memory. Must not decide which job may go next: `rules/concurrency.rs` does.

use std::collections::BTreeMap;

use super::{table::hashed, Name, ReadyQueue, Slots, Table, TubeHandle, NIL};

/// Maximum number of lanes of a key: this many tubes are checked when the key reaches its limit, or leaves it.
pub(in crate::engine) const MAX_LANES: usize = 64;

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
    pub(in crate::engine) blocked: bool,
}

impl SharedKey {
    /// Counts that a job with this limit is reserved, or no longer is. Returns whether the key is blocked if that
    /// changes.
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
                // An empty map that had entries keeps its first node.
                self.bounds = BTreeMap::new();
            }
        }
        let bound = self.bounds.last_key_value().map_or(u32::MAX, |(bound, _)| *bound);
        let blocked = self.reserved >= bound;
        (std::mem::replace(&mut self.blocked, blocked) != blocked).then_some(blocked)
    }
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

hashed!(SharedKey, |shared| SHARED_KEY_COST + shared.key.length() as u64 + bounds_cost(shared.bounds.len()));

#[derive(Debug, Default)]
pub struct Lanes {
    /// The keys, and the bytes of account of all keys, limits and lanes.
    pub(in crate::engine) keys: Table<SharedKey, 64>,
    pub(in crate::engine) lanes: Slots<Lane, 64>,
    /// Tubes with waiting clients and a job that is no longer parked; they are served at the end of the verb.
    pub(in crate::engine) unblocked: Vec<TubeHandle>,
}

impl Lanes {
    /// Returns the number of this key, which has this hash, in its scope.
    pub fn find(&self, key: &Name, scope: u32, hash: u32) -> Option<u32> {
        self.keys.find(hash, |shared| shared.scope == scope && shared.key == *key)
    }

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
            let (bounds, lanes) = (BTreeMap::new(), Vec::new());
            self.keys.insert(SharedKey { key, scope, hash, chain: NIL, reserved: 0, bounds, lanes, blocked: false })
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

    /// Removes a member from a lane. The last member removes the lane, and the last lane its key.
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
