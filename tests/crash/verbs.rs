//! Executes operations that the engine can split into portions. Without a step budget, one call completes an operation.
//!
//! Owns the arguments of the operations. Must not check their effects.

use std::sync::Arc;

use beanpole::internals::engine::{ClientId, Engine, JobId, Kick, Progress, Report, Reserve, Span, Time, WantedTubes};

pub fn kick(engine: &mut Engine, client: ClientId, bound: u64, now: Time) -> u64 {
    let mut kick = Kick::new(bound);
    let _ = engine.kick(client, &mut kick, now);
    kick.done
}

/// Leases a job, only from the named tubes.
pub fn lease<'a>(engine: &'a mut Engine, client: ClientId, names: &[&[u8]], wait: Span, now: Time) -> Reserve<'a> {
    let mut lease = WantedTubes::new(names.join(&b' ').into());
    assert_eq!(engine.watch_only(client, &mut lease, now), Ok(Progress::Done));
    engine.reserve(client, Some(wait), now)
}

pub fn give_back(engine: &mut Engine, client: ClientId, now: Time) {
    assert_eq!(engine.give_back(client, None, &mut None, now), Progress::Done);
}

pub fn report(engine: &mut Engine, client: ClientId, job: JobId, report: Report, now: Time) {
    let report = Arc::new(report);
    if engine.report(client, job, &report, now) {
        assert_eq!(engine.report_on(client, job, &report, now), Progress::Done);
    }
}
