//! Jobs as Workq clients see them, including jobs of other protocols.

use super::fields::{millis, MAX_TTR};
use super::uuid::{derive, underive, Uuid};
use crate::engine::{Engine, Job, JobId};

/// The client has chosen the UUID, or the server has derived it from the job ID.
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

/// Returns at most `MAX_TTR` milliseconds. Jobs of other protocols can have longer times.
pub fn ttr_of(engine: &Engine, job: &Job) -> u64 {
    millis(engine.lease_of(job)).min(MAX_TTR)
}
