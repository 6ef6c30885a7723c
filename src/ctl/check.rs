//! `beanpole check DIR`: verifies a binlog and reports its contents.
//!
//! Owns the text of that report. Changes nothing, and takes no lock.

use std::collections::BTreeMap;
use std::path::Path;

use super::call::Call;
use super::out::Out;
use super::problem::{Problem, DONE, REFUSED};
use crate::binlog::{inspect, Folder, Inspection};
use crate::engine::{Engine, Limits, State};

/// The states, and their names in the report.
const STATES: [(State, &str); 7] = [
    (State::Ready, "ready"),
    (State::Delayed, "delayed"),
    (State::Reserved, "leased"),
    (State::Buried, "buried"),
    (State::Held, "held"),
    (State::Scheduled, "scheduled"),
    (State::Finished, "finished"),
];

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let path = Path::new(&call.operands[0]);
    let mut engine = Engine::new(Limits::NONE);
    let found = inspect(&Folder::new(path), &mut engine);
    let found = found.map_err(|error| Problem::empty(format!("{}: {error}", path.display())))?;
    // The reader of the output may be gone.
    let _ = report(&found, &engine, out);
    Ok(if found.report.problems.is_empty() { DONE } else { REFUSED })
}

/// Writes the report in YAML.
fn report(found: &Inspection, engine: &Engine, out: &mut Out) -> Result<(), Problem> {
    let mut tubes = BTreeMap::<&[u8], [u64; STATES.len()]>::new();
    for job in engine.jobs() {
        let counts = tubes.entry(engine.tube_of(&job)).or_default();
        let place = STATES.iter().position(|(state, _)| *state == job.state()).unwrap_or_default();
        counts[place] += 1;
    }
    let progress = found.report.progress;
    out.line(&format!("format: {}", found.version))?;
    out.line(&format!("segments: {}", progress.segments))?;
    out.line(&format!("bytes: {}", progress.bytes))?;
    out.line(&format!("jobs: {}", progress.jobs))?;
    out.line(&format!("paused-tubes: {}", engine.pauses().count()))?;
    out.line(&format!("last-id: {}", found.last_id))?;
    out.line(&format!("left-in-order: {}", found.left_in_order))?;
    out.line(&format!("tubes:{}", if tubes.is_empty() { " {}" } else { "" }))?;
    for (name, counts) in tubes {
        let name = String::from_utf8_lossy(name).escape_debug().to_string();
        let counts = STATES.iter().zip(counts).map(|((_, state), count)| format!("{state}: {count}"));
        out.line(&format!("  \"{name}\": {{{}}}", counts.collect::<Vec<_>>().join(", ")))?;
    }
    out.line(&format!("damage:{}", if found.report.problems.is_empty() { " []" } else { "" }))?;
    for problem in &found.report.problems {
        out.line(&format!("  - \"{}\"", problem.escape_debug()))?;
    }
    out.flush()
}
