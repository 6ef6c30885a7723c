//! Verbs that may take several turns, as one call: an engine to which nobody grants steps does all at once.
//!
//! Owns their arguments. Must not look at what they do.

use std::sync::Arc;

use beanpole::internals::engine::{ClientId, Engine, JobId, Kick, Progress, Report, Reserve, Span, Time, WantedTubes};

/// Kicks up to `bound` jobs; tells how many.
pub fn kick(engine: &mut Engine, client: ClientId, bound: u64, now: Time) -> u64 {
    let mut kick = Kick::new(bound);
    let _ = engine.kick(client, &mut kick, now);
    kick.done
}

/// The client asks for a job of these tubes and of no others.
pub fn lease<'a>(engine: &'a mut Engine, client: ClientId, names: &[&[u8]], wait: Span, now: Time) -> Reserve<'a> {
    let mut lease = WantedTubes::new(names.join(&b' ').into());
    assert_eq!(engine.watch_only(client, &mut lease, now), Ok(Progress::Done));
    engine.reserve(client, Some(wait), now)
}

/// The client loses all jobs that it holds.
pub fn give_back(engine: &mut Engine, client: ClientId, now: Time) {
    assert_eq!(engine.give_back(client, None, &mut None, now), Progress::Done);
}

/// The holder of a job says something about it.
pub fn report(engine: &mut Engine, client: ClientId, job: JobId, report: Report, now: Time) {
    let report = Arc::new(report);
    if engine.report(client, job, &report, now) {
        assert_eq!(engine.report_on(client, job, &report, now), Progress::Done);
    }
}
