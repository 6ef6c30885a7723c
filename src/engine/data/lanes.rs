//! Concurrency keys, which limit the number of reserved jobs with the same key. A lane is the jobs of a key in one
//! tube.
//!
//! Owns the keys and the lanes. Must not choose the next job of a key: `rules/concurrency.rs` does.

use std::collections::BTreeMap;

use super::{table::hashed, Name, ReadyQueue, Slots, Table, TubeHandle, NIL};

/// All lanes of a key are checked when the key becomes blocked or unblocked.
pub(in crate::engine) const MAX_LANES: usize = 64;

#[derive(Debug)]
pub(in crate::engine) struct SharedKey {
    pub(in crate::engine) key: Name,
    /// [`NIL`] if the key applies to all tubes.
    pub(in crate::engine) scope: u32,
    pub(in crate::engine) hash: u32,
    pub(in crate::engine) chain: u32,
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

/// The jobs of a key in one tube. Those too large for a lease have a separate lane.
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

/// Bytes charged for a key, excluding its text.
pub(in crate::engine) const SHARED_KEY_COST: u64 = size_of::<SharedKey>() as u64 + 24;
pub(in crate::engine) const LANE_COST: u64 = size_of::<Lane>() as u64 + 4;

hashed!(SharedKey, |shared| shared.hash, {
    // The map takes about 112 bytes plus 16 bytes per limit.
    let bounds = if shared.bounds.is_empty() { 0 } else { 112 + 16 * shared.bounds.len() as u64 };
    SHARED_KEY_COST + shared.key.length() as u64 + bounds
});

#[derive(Debug, Default)]
pub struct Lanes {
    /// `memory` includes limits and lanes.
    pub(in crate::engine) keys: Table<SharedKey, 64>,
    pub(in crate::engine) lanes: Slots<Lane, 64>,
    /// Tubes to be served at the end of the current call.
    pub(in crate::engine) unblocked: Vec<TubeHandle>,
}

impl Lanes {
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

    /// Creates the key or the lane if necessary.
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

    /// Also removes a lane without jobs, and a key without lanes.
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
