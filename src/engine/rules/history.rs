//! Recording of ended and buried jobs in the history.
//!
//! Decides which jobs the history records. Must not change the jobs.
//!
//! Touches: store, tubes.

use crate::engine::data::{Outcome, Verdict};
use crate::engine::Engine;

impl Engine {
    /// Returns the verdict on a job that will be removed. Records a failure now and returns `None`, because the removal
    /// discards the failure reason.
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

    /// Does nothing if the history is disabled or already contains the end of the job.
    #[inline(never)] // cold: few jobs fail or keep an outcome
    pub(in crate::engine) fn record_past(&mut self, slot: u32, verdict: Verdict) {
        let job = self.store.jobs.view(slot);
        if job.is_over() || !self.past.is_on() {
            return;
        }
        self.past.record(&job, job.body().bytes(), &self.tubes.get(job.tube).name, verdict);
        if let Some(number) = self.bound(slot).filter(|_| verdict.is_failure()) {
            self.past.explain(self.store.extras.get(number).reason());
        }
    }
}
