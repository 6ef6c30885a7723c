//! Jobs as Workq's clients name and see them, whichever protocol they come from.
//!
//! Owns the id that a job goes by, and its time to run in milliseconds. Must not change anything.

use super::fields::{millis, MAX_TTR};
use super::uuid::{derive, underive, Uuid};
use crate::engine::{Engine, Job, JobId};

/// The job that goes by this id: its own, or the one derived from its number if it has none.
pub fn find(engine: &Engine, id: &Uuid) -> Option<JobId> {
    engine
        .find_id(id)
        .or_else(|| underive(id).filter(|job| engine.any_job(*job).is_some_and(|job| own(engine, &job).is_none())))
}

/// The id that a job goes by.
pub fn name_of(engine: &Engine, job: &Job) -> Uuid {
    own(engine, job).unwrap_or_else(|| derive(job.id()))
}

fn own(engine: &Engine, job: &Job) -> Option<Uuid> {
    engine.extras(job).and_then(|extras| extras.id())
}

/// A job's time to run in milliseconds. That of other protocols may be longer than Workq's longest, or without end:
/// what is told is when a lease of it ends.
pub fn ttr_of(engine: &Engine, job: &Job) -> u64 {
    millis(engine.lease_of(job)).min(MAX_TTR)
}
