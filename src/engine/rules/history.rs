//! Which jobs the history remembers.
//!
//! Owns what is recorded of a job that ends or is buried. Must not decide what becomes of it.
//!
//! Touches: store, tubes.

use std::sync::Arc;

use crate::engine::data::event::Outcome;
use crate::engine::data::job::State;
use crate::engine::data::past::Verdict;
use crate::engine::Engine;

impl Engine {
    /// Adds the job in `slot`, which is about to be removed, to the history, unless its end is there already.
    pub(in crate::engine) fn record_end(&mut self, slot: u32, outcome: &Outcome) {
        match (self.store.jobs.get(slot).state(), outcome) {
            (State::Finished | State::Scheduled, _) => {}
            (_, Outcome::Done(_)) => self.record_past(slot, Verdict::Done),
            (_, Outcome::Failed(_) | Outcome::Fault(_)) => self.record_past(slot, Verdict::Failed),
            (_, Outcome::Gone) => self.record_past(slot, Verdict::Deleted),
        }
    }

    /// Adds the job in `slot` to the history.
    pub(in crate::engine) fn record_past(&mut self, slot: u32, verdict: Verdict) {
        let (now, place) = (self.past.now, self.past.place(verdict));
        let job = self.store.jobs.view(slot);
        let tube = &self.tubes.get(job.tube).name;
        if !Arc::ptr_eq(&place.tube, tube) {
            place.tube = tube.clone();
        }
        (place.id, place.created, place.ended) = (job.id, job.created, now);
        (place.ran, place.tries) = (job.taken_for(now), job.details.reserves());
        place.set_body(job.body().bytes());
        if verdict.is_failure() && job.is_bound() {
            self.past.explain(self.store.extras.get(self.store.extras.of(slot)).reason());
        }
    }
}
