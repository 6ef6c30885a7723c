//! Keys that limit how many jobs are reserved at a time: `con:` of jobs that are deleted when they are done.
//!
//! Owns the choice of the job of a lane that is in its tube's queue: only the ready one that comes next, and none while
//! the key has reached its limit; the others are parked in the lane, in the order of service. So no search for a job
//! ever passes a blocked one. Must not hand out jobs.
//!
//! Promises: P28.
//! Touches: agenda, limits, store, tubes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hasher;

use crate::engine::data::{Lane, Name, ReservePolicy, Time, MAX_LANES, NIL};
use crate::engine::Engine;

impl Engine {
    /// Returns `true` if another job with this key in this tube has a lane, or may get one.
    pub(in crate::engine) fn has_lane(&self, key: &Name, tube: u32, large: bool) -> bool {
        let (scope, hash) = self.scope_of_key(key, tube);
        let Some(shared) = self.store.lanes.find(key, scope, hash) else { return true };
        let lanes = self.store.lanes.keys.get(shared).lanes.len();
        lanes < MAX_LANES || self.store.lanes.lane_in(shared, tube, large).is_some()
    }

    /// Returns the tube in which this key of a job in `tube` counts, or [`NIL`] for all tubes, and the hash of both.
    fn scope_of_key(&self, key: &Name, tube: u32) -> (u32, u32) {
        if !self.limits.keys_per_tube {
            return (NIL, self.tubes.hash(key.key()));
        }
        let mut hasher = self.tubes.hasher();
        hasher.write(key.key());
        hasher.write_u32(tube);
        (tube, hasher.finish() as u32)
    }

    /// Returns the lane of the job in `slot`, if it has one.
    #[inline]
    pub(in crate::engine) fn lane_of(&self, slot: u32) -> Option<u32> {
        if self.store.jobs.get(slot).is_bound() {
            self.lane_of_bound(slot)
        } else {
            None
        }
    }

    #[inline(never)] // few jobs have extras
    fn lane_of_bound(&self, slot: u32) -> Option<u32> {
        let rare = self.store.extras.get(self.store.extras.of(slot)).rare()?;
        (rare.lane != NIL).then_some(rare.lane)
    }

    /// Adds this key with the limit `most` to the job in `slot`, which has extras and is in no queue.
    pub(in crate::engine) fn join_lane(&mut self, slot: u32, key: Name, most: u32) {
        let job = self.store.jobs.get(slot);
        let (tube, large) = (job.tube, self.is_large(job));
        let (scope, hash) = self.scope_of_key(&key, tube);
        let lane = self.store.lanes.join(key, scope, hash, tube, large);
        let rare = self.store.extras.get_mut(self.store.extras.of(slot)).rare_mut();
        (rare.lane, rare.con_limit) = (lane, most);
    }

    /// Removes the key of the job in `slot`, which is in no queue. Returns the key and the limit.
    pub(in crate::engine) fn leave_lane(&mut self, slot: u32) -> Option<(Name, u32)> {
        let lane = self.lane_of(slot)?;
        let rare = self.store.extras.get_mut(self.store.extras.of(slot)).rare_mut();
        rare.lane = NIL;
        let most = rare.con_limit;
        let key = self.store.lanes.key_of(lane).clone();
        self.store.lanes.leave(lane);
        Some((key, most))
    }

    /// Returns `true` if no job with the key of the job in `slot` may be reserved now.
    pub(in crate::engine) fn is_blocked(&self, slot: u32) -> bool {
        let lane = self.lane_of(slot).map(|lane| self.store.lanes.lanes.get(lane));
        lane.is_some_and(|lane| self.store.lanes.keys.get(lane.shared).blocked)
    }

    /// Adds the job in `slot`, which has just become ready, to this lane.
    pub(in crate::engine) fn enter_lane(&mut self, lane: u32, slot: u32) {
        let Lane { shared, exposed, .. } = *self.store.lanes.lanes.get(lane);
        let key = |slot: u32| self.store.jobs.get(slot).ready_key();
        if self.store.lanes.keys.get(shared).blocked || exposed != NIL && key(exposed) < key(slot) {
            return self.store.lanes.lanes.get_mut(lane).parked.push(slot, &mut self.store.jobs);
        }
        if exposed != NIL {
            self.withdraw(lane);
        }
        self.expose(lane, slot);
    }

    /// Removes the job in `slot`, which is no longer ready, from this lane.
    pub(in crate::engine) fn quit_lane(&mut self, lane: u32, slot: u32) {
        if self.store.lanes.lanes.get(lane).exposed != slot {
            return self.store.lanes.lanes.get_mut(lane).parked.remove(slot, &mut self.store.jobs);
        }
        let Lane { shared, tube, large, .. } = *self.store.lanes.lanes.get(lane);
        self.tubes.get_mut(tube).remove_ready(slot, large, &mut self.store.jobs);
        self.store.lanes.lanes.get_mut(lane).exposed = NIL;
        if !self.store.lanes.keys.get(shared).blocked {
            self.expose_next(lane);
        }
    }

    fn expose(&mut self, lane: u32, slot: u32) {
        let lane = self.store.lanes.lanes.get_mut(lane);
        lane.exposed = slot;
        self.tubes.get_mut(lane.tube).push_ready(slot, lane.large, &mut self.store.jobs);
    }

    fn expose_next(&mut self, lane: u32) {
        let parked = &mut self.store.lanes.lanes.get_mut(lane).parked;
        if let Some(slot) = parked.first(&self.store.jobs) {
            parked.remove(slot, &mut self.store.jobs);
            self.expose(lane, slot);
        }
    }

    fn withdraw(&mut self, lane: u32) {
        let lane = self.store.lanes.lanes.get_mut(lane);
        let slot = std::mem::replace(&mut lane.exposed, NIL);
        if slot != NIL {
            self.tubes.get_mut(lane.tube).remove_ready(slot, lane.large, &mut self.store.jobs);
            lane.parked.push(slot, &mut self.store.jobs);
        }
    }

    /// Counts that the job in `slot` is now reserved, or no longer is.
    pub(in crate::engine) fn count_reserved(&mut self, lane: u32, slot: u32, reserved: bool) {
        let most = self.store.extras.get(self.store.extras.of(slot)).rare().map_or(1, |rare| rare.con_limit);
        let number = self.store.lanes.lanes.get(lane).shared;
        if let Some(blocked) = self.store.lanes.keys.edit(number, |shared| shared.count(most, reserved)) {
            self.block(number, blocked);
        }
    }

    /// Parks all ready jobs of a key, or returns the next job of each lane to its queue.
    fn block(&mut self, shared: u32, blocked: bool) {
        for position in 0..self.store.lanes.keys.get(shared).lanes.len() {
            let lane = self.store.lanes.keys.get(shared).lanes[position];
            self.agenda.steps.take(1);
            if blocked {
                self.withdraw(lane);
                continue;
            }
            self.expose_next(lane);
            let Lane { tube, exposed, .. } = *self.store.lanes.lanes.get(lane);
            // Clients that wait there are served before any other client comes.
            if exposed != NIL && !self.tubes.get(tube).has_no_waiters() {
                self.serve_soon(tube);
            }
        }
    }

    /// Returns `true` if a verb has unblocked jobs for which clients wait.
    pub(in crate::engine) fn has_unblocked(&self) -> bool {
        !self.store.lanes.unblocked.is_empty()
    }

    /// Serves the unblocked tubes and this one, as if all jobs became ready at once: the most urgent job first.
    pub(in crate::engine) fn serve_with_unblocked(&mut self, number: u32, now: Time) {
        self.store.lanes.unblocked.push(self.tubes.handle(number));
        self.serve_all_unblocked(now);
    }

    #[inline]
    pub(in crate::engine) fn serve_unblocked(&mut self, now: Time) {
        if self.has_unblocked() {
            self.serve_all_unblocked(now);
        }
    }

    fn serve_all_unblocked(&mut self, now: Time) {
        let tubes = std::mem::take(&mut self.store.lanes.unblocked).into_iter().enumerate();
        // There is mostly one tube; a heap takes an eighth of the code of a sort.
        let mut next: BinaryHeap<_> = tubes
            .filter_map(|(position, tube)| Some((position, self.tubes.at(tube)?)))
            .map(|(position, tube)| {
                let first = self.tubes.get(tube).first(ReservePolicy::PerConnection, &self.store.jobs);
                Reverse((first.map(|slot| self.store.jobs.get(slot).ready_key()), position, tube))
            })
            .collect();
        while let Some(Reverse((.., tube))) = next.pop() {
            self.tubes.get_mut(tube).serving = false;
            self.serve_tube(tube, now);
        }
    }
}
