//! Tubes and jobs as JSON objects.
//!
//! Owns the members of the objects, and the maximum displayed length of a body. Must not search for tubes or jobs.

use super::metrics;
use crate::engine::{Engine, JobView, Span, State, Time, TubeStats};
use crate::protocol::beanstalk::{job_figures, tube_settings, tube_times, FigureValue, TUBE_FIGURES};
use crate::protocol::text::upto;
use crate::shared::json::Members;

/// Displayed bytes of a body in a reply about one job.
pub const MAX_BODY: usize = 64 * 1024;

/// Displayed bytes of a body in a list.
pub const MAX_LIST_BODY: usize = 120;

/// Values in the order of [`TUBE_FIGURES`].
pub type TubeValues = [u64; TUBE_FIGURES.len()];

pub fn tube_values(tube: &TubeStats) -> TubeValues {
    TUBE_FIGURES.map(|row| (row.of)(tube))
}

pub fn tube_members(members: &mut Members, name: &[u8], values: &TubeValues) {
    members.bytes("name", name);
    TUBE_FIGURES.iter().zip(values).for_each(|(row, value)| members.number(row.name, *value));
}

/// Writes members that lists of tubes omit. `oldest` contains the ages of the oldest ready, delayed and buried jobs.
pub fn time_members(members: &mut Members, tube: &TubeStats, oldest: [Span; 3]) {
    if tube.jobs.held > 0 {
        members.number("current-jobs-held", tube.jobs.held);
    }
    if tube.jobs.scheduled > 0 {
        members.number("current-jobs-scheduled", tube.jobs.scheduled);
    }
    tube_times(tube, oldest, |key, value| figure(members, key, value));
    if let Some(settings) = tube.settings {
        members.text("settings", &tube_settings(settings));
    }
}

/// Durations are written in seconds.
pub fn figure(members: &mut Members, key: &str, value: FigureValue) {
    match value {
        FigureValue::Number(number) => members.number(key, number),
        FigureValue::Micros(micros) => members.raw(key, &metrics::seconds(u128::from(micros) * 1000)),
        FigureValue::Truth(value) => members.truth(key, value),
        FigureValue::Word(text) => members.text(key, text),
        FigureValue::Name(text) | FigureValue::Text(text) => members.bytes(key, text),
    }
}

pub fn job_members(members: &mut Members, engine: &Engine, job: &JobView, shown: usize, now: Time) {
    if let Some(stats) = engine.job_stats(job.id(), now) {
        job_figures(&stats, engine.stored_options(job).as_ref(), now, |key, value| {
            figure(members, key, value);
            if key == "time-left" && job.state() == State::Reserved {
                members.number("job-age", job.taken_for(now).secs());
            }
        });
        if let Some(copy) = stats.blocked_by.and_then(|id| engine.job(id)) {
            members.text("blocked-by-state", copy.state().word().as_bytes());
        }
    }
    let body = job.body();
    members.number("size", body.len() as u64);
    let part = beginning(body.bytes(), shown);
    members.bytes("body", part);
    members.truth("truncated", part.len() < body.len());
}

/// Returns at most `max` bytes, without an incomplete character at the end.
pub fn beginning(bytes: &[u8], max: usize) -> &[u8] {
    if bytes.len() <= max {
        return bytes;
    }
    let cut = upto(bytes, max);
    match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => upto(cut, error.valid_up_to()),
        _ => cut,
    }
}
