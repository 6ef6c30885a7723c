//! Which jobs the history remembers.
//!
//! Owns what is recorded of a job that ends or is buried. Must not decide what becomes of it.
//!
//! Touches: store, tubes.

use crate::engine::data::event::Outcome;
use crate::engine::data::past::Verdict;
use crate::engine::Engine;

impl Engine {
    /// Returns the verdict with which the job in `slot` enters the history when it is removed, if it does. A failure
    /// enters it here, with its reason, which the job loses before it is removed.
    #[inline]
    pub(in crate::engine) fn verdict_of(&mut self, slot: u32, outcome: &Outcome) -> Option<Verdict> {
        match outcome {
            _ if !self.past.is_on() => None,
            Outcome::Done(_) => Some(Verdict::Done),
            Outcome::Gone => Some(Verdict::Deleted),
            Outcome::Failed(_) | Outcome::Fault(_) => {
                self.record_past(slot, Verdict::Failed);
                None
            }
        }
    }

    /// Adds the job in `slot` to the history, if there is one, unless its end is there already.
    #[inline(never)] // few jobs fail
    pub(in crate::engine) fn record_past(&mut self, slot: u32, verdict: Verdict) {
        let job = self.store.jobs.view(slot);
        if job.is_over() || !self.past.is_on() {
            return;
        }
        self.past.record(&job, job.body().bytes(), &self.tubes.get(job.tube).name, verdict);
        if verdict.is_failure() && job.is_bound() {
            self.past.explain(self.store.extras.get(self.store.extras.of(slot)).reason());
        }
    }
}
