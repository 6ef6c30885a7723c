//! Jobs as Workq clients name and see them, regardless of the protocol that created them.
//!
//! Owns the mapping between jobs and IDs, and the time to run in milliseconds. Must not change anything.

use super::fields::{millis, MAX_TTR};
use super::uuid::{derive, underive, Uuid};
use crate::engine::{Engine, Job, JobId};

/// Returns the job with this ID: its own, or the ID derived from its number.
pub fn find(engine: &Engine, id: &Uuid) -> Option<JobId> {
    engine
        .find_id(id)
        .or_else(|| underive(id).filter(|job| engine.any_job(*job).is_some_and(|job| own(engine, &job).is_none())))
}

pub fn name_of(engine: &Engine, job: &Job) -> Uuid {
    own(engine, job).unwrap_or_else(|| derive(job.id()))
}

fn own(engine: &Engine, job: &Job) -> Option<Uuid> {
    engine.extras(job).and_then(|extras| extras.id())
}

/// Returns a job's time to run in milliseconds, which is the duration of a lease. With other protocols, it may exceed
/// Workq's maximum, which is then returned.
pub fn ttr_of(engine: &Engine, job: &Job) -> u64 {
    millis(engine.lease_of(job)).min(MAX_TTR)
}
