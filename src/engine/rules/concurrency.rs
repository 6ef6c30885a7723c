//! Limits on reservations: concurrency keys (the tag `con:`), and the tube settings `max` and `rate`. A lane contains
//! the ready jobs of a key in a tube. Only one job per lane is in the tube's queue, so that no search has to skip
//! blocked jobs. While `max` or `rate` closes a tube, the tube's jobs cannot be reserved, not even by ID.
//! Enforces promise P28 of beanpole-promises(7).
//! Touches: agenda, limits, store, tubes.

use crate::engine::data::*;
use crate::engine::Engine;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

impl Engine {
    pub(in crate::engine) fn has_lane(&self, key: &Name, tube: u32, large: bool) -> bool {
        let (scope, hash) = self.scope_of_key(key, tube);
        let Some(shared) = self.store.lanes.find(key, scope, hash) else { return true };
        let lanes = self.store.lanes.keys.get(shared).lanes.len();
        lanes < MAX_LANES || self.store.lanes.lane_in(shared, tube, large).is_some()
    }

    fn scope_of_key(&self, key: &Name, tube: u32) -> (u32, u32) {
        if !self.limits.keys_per_tube {
            return (NIL, self.tubes.hash(key.key()));
        }
        (tube, self.tubes.hash_in(key.key(), tube))
    }

    /// The job must have extras and must not be in a queue. `limit` is the maximum number of reserved jobs with `key`.
    pub(in crate::engine) fn join_lane(&mut self, slot: u32, key: Name, limit: u32) {
        let job = self.store.jobs.get(slot);
        let (tube, large) = (job.tube, self.is_large(job));
        let (scope, hash) = self.scope_of_key(&key, tube);
        let lane = self.store.lanes.join(key, scope, hash, tube, large);
        let rare = self.store.extras.get_mut(self.store.extras.of(slot)).rare_mut();
        (rare.lane, rare.con_limit) = (lane, limit);
    }

    /// Removes the job from its lane, if any. Returns the job's concurrency key and limit. The job must not be queued.
    pub(in crate::engine) fn leave_lane(&mut self, slot: u32) -> Option<(Name, u32)> {
        let lane = self.lane_of(slot)?;
        let rare = self.store.extras.get_mut(self.store.extras.of(slot)).rare_mut();
        rare.lane = NIL;
        let limit = rare.con_limit;
        let key = self.store.lanes.key_of(lane).clone();
        self.store.lanes.leave(lane);
        Some((key, limit))
    }

    pub(in crate::engine) fn is_blocked(&self, slot: u32) -> bool {
        let lane = self.lane_of(slot).map(|lane| self.store.lanes.lanes.get(lane));
        lane.is_some_and(|lane| self.store.lanes.keys.get(lane.shared).blocked)
    }

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

    pub(in crate::engine) fn count_reserved(&mut self, lane: u32, slot: u32, reserved: bool) {
        let limit = self.store.extras.get(self.store.extras.of(slot)).rare().map_or(1, |rare| rare.con_limit);
        let number = self.store.lanes.lanes.get(lane).shared;
        if let Some(blocked) = self.store.lanes.keys.edit(number, |shared| shared.count(limit, reserved)) {
            self.block(number, blocked);
        }
    }

    /// Removes the ready jobs of a blocked key from the tubes' queues, or queues the next job of each unblocked lane.
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
            // Clients already waiting in this tube are served before newly arriving clients.
            if exposed != NIL && !self.tubes.get(tube).has_no_waiters() {
                self.serve_soon(tube);
            }
        }
    }

    #[inline]
    pub(in crate::engine) fn serve_unblocked(&mut self, now: Time) {
        if !self.store.lanes.unblocked.is_empty() {
            self.serve_all_unblocked(now);
        }
    }

    /// Serves all tubes with unblocked jobs, beginning with the tube of the most urgent job.
    pub(in crate::engine) fn serve_all_unblocked(&mut self, now: Time) {
        let tubes = std::mem::take(&mut self.store.lanes.unblocked).into_iter().enumerate();
        // A heap compiles to less machine code than a sort, and there is usually only one tube.
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

    pub(in crate::engine) fn update_closed(&mut self, number: u32) {
        let is_closed = self.tubes.get(number).pause.is_some() || self.is_exhausted(number);
        self.tubes.get_mut(number).closed = is_closed;
        self.retime_tube(number);
    }

    #[inline(never)] // cold: few tubes have settings
    pub(in crate::engine) fn count_reservation(&mut self, number: u32, now: Time) {
        if let Some(rules) = &mut self.tubes.get_mut(number).rules {
            rules.take(now);
        }
        self.update_closed(number);
    }

    #[inline(never)] // cold: few tubes have settings
    pub(in crate::engine) fn count_end(&mut self, number: u32) {
        let was_closed = self.tubes.get(number).closed;
        self.update_closed(number);
        let tube = self.tubes.get(number);
        if was_closed && !tube.closed && tube.first(ReservePolicy::PerConnection, &self.store.jobs).is_some() {
            self.serve_at_end(number);
        }
    }

    pub(in crate::engine) fn reopen(&mut self, number: u32) {
        if let Some(rules) = &mut self.tubes.get_mut(number).rules {
            rules.taken = 0;
        }
        self.update_closed(number);
    }

    pub(in crate::engine) fn is_exhausted(&self, number: u32) -> bool {
        let tube = self.tubes.get(number);
        tube.rules.as_ref().is_some_and(|rules| rules.is_spent(tube.counts.reserved))
    }
}
