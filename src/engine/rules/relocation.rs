//! Moves of jobs to other tubes.
//!
//! Owns the update of everything that depends on the tube of a job: dedup key, lane and queue. Must not decide which
//! job moves or which client is served.
//!
//! Touches: store, tubes.

use crate::engine::data::{CompletionPolicy, DedupKey, Job, State, Time, NIL};
use crate::engine::log::Change;
use crate::engine::Engine;

impl Engine {
    /// The `origin` is [`NIL`] except for dead letters.
    pub(in crate::engine) fn move_unchanged(&mut self, slot: u32, to: u32, origin: u32) {
        let position = (self.store.jobs.get(slot).state() == State::Buried).then(|| {
            // Append the job to the buried jobs of the new tube.
            self.store.last_bury += 1;
            Time::from_nanos(self.store.last_bury)
        });
        self.change_tube(slot, to, |job| (job.due, job.holder) = (position.unwrap_or(job.due), origin));
    }

    pub(in crate::engine) fn may_move_lane(&self, slot: u32, tube: &[u8]) -> bool {
        let number = self.tubes.find(tube).unwrap_or(NIL);
        let bound = self.lane_of(slot).map(|lane| self.store.lanes.key_of(lane));
        bound.is_none_or(|key| self.has_lane(key, number, self.is_large(self.store.jobs.get(slot))))
    }

    /// Like [`Engine::may_move_lane`], but a current or ended job of `tube` must not have the same dedup key.
    pub(in crate::engine) fn may_move(&mut self, slot: u32, tube: &[u8], now: Time) -> bool {
        if !self.may_move_lane(slot, tube) {
            return false;
        }
        let Some(DedupKey::Name(name)) = self.extras_at(slot).map(|extras| &extras.dedup_key) else { return true };
        let (name, key) = (name.clone(), DedupKey::Name(name.clone()));
        let found = self.tubes.find(tube).map_or(Ok(None), |number| self.find_keyed(&key, number));
        found.is_ok_and(|other| other.is_none_or(|other| other == slot)) && self.find_ended(tube, &name, now).is_none()
    }

    pub(in crate::engine) fn change_tube(&mut self, slot: u32, to: u32, change: impl FnOnce(&mut Job)) {
        self.leave(slot);
        let before = self.logged_size(slot);
        let from = std::mem::replace(&mut self.store.jobs.get_mut(slot).tube, to);
        change(self.store.jobs.get_mut(slot));
        self.rebind(slot);
        self.enter(slot);
        let sizes = (before, self.logged_size(slot));
        self.changed(Change::Move { slot, sizes });
        self.close_tube_if_idle(from);
    }

    /// The job must not be in a queue.
    pub(in crate::engine) fn rebind(&mut self, slot: u32) {
        let (job, Some(number)) = (self.store.jobs.get(slot), self.bound(slot)) else { return };
        let key = &self.store.extras.get(number).dedup_key;
        if matches!(key, DedupKey::Body(_) | DedupKey::Name(_)) {
            let is_hidden = matches!(key, DedupKey::Body(_)) && job.body.len() == 0;
            let hash = self.hash_dedup_key(key, job.tube, is_hidden.then_some(job.id));
            self.store.extras.rehash(number, hash);
        }
        if let Some((key, limit)) = self.leave_lane(slot) {
            self.join_lane(slot, key, limit);
        }
    }

    pub(in crate::engine) fn has_expired(&self, slot: u32, now: Time) -> bool {
        let job = self.store.jobs.get(slot);
        job.completion != CompletionPolicy::Keep && self.extras_at(slot).is_some_and(|extras| extras.expires <= now)
    }
}
