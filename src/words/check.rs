//! `beanpole check DIR`: verifies a binlog and tells what is in it.
//!
//! Owns the words of that report. Changes nothing, and takes no lock.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::{DAMAGED, DONE};
use crate::binlog::{inspect, Folder, Inspection};
use crate::engine::{Engine, Limits, State};

/// Jobs of a tube, by state.
#[derive(Default)]
struct Counts([u64; 5]);

/// The states, in the order of [`Counts`].
const STATES: [(State, &str); 5] = [
    (State::Ready, "ready"),
    (State::Delayed, "delayed"),
    (State::Reserved, "leased"),
    (State::Buried, "buried"),
    (State::Finished, "finished"),
];

pub fn run(arguments: &[String], out: &mut dyn Write) -> Result<u8, String> {
    let path = Path::new(&arguments[0]);
    let mut engine = Engine::new(Limits::NONE);
    let found = inspect(&Folder::new(path), &mut engine).map_err(|error| format!("{}: {error}", path.display()))?;
    // Who reads it may be gone.
    let _ = report(&found, &engine, out);
    Ok(if found.report.problems.is_empty() { DONE } else { DAMAGED })
}

/// Writes it down in YAML.
fn report(found: &Inspection, engine: &Engine, out: &mut dyn Write) -> std::io::Result<()> {
    let mut tubes = BTreeMap::<&[u8], Counts>::new();
    for job in engine.jobs() {
        let counts = tubes.entry(engine.tube_of(&job)).or_default();
        let place = STATES.iter().position(|(state, _)| *state == job.state()).unwrap_or_default();
        counts.0[place] += 1;
    }
    let progress = found.report.progress;
    writeln!(out, "format: {}", found.version)?;
    writeln!(out, "segments: {}", progress.segments)?;
    writeln!(out, "bytes: {}", progress.bytes)?;
    writeln!(out, "jobs: {}", progress.jobs)?;
    writeln!(out, "paused-tubes: {}", engine.pauses().count())?;
    writeln!(out, "last-id: {}", found.last_id)?;
    writeln!(out, "left-in-order: {}", found.left_in_order)?;
    writeln!(out, "tubes:{}", if tubes.is_empty() { " {}" } else { "" })?;
    for (name, counts) in tubes {
        let name = String::from_utf8_lossy(name).escape_debug().to_string();
        let counts = STATES.iter().zip(counts.0).map(|((_, state), count)| format!("{state}: {count}"));
        writeln!(out, "  \"{name}\": {{{}}}", counts.collect::<Vec<_>>().join(", "))?;
    }
    writeln!(out, "damage:{}", if found.report.problems.is_empty() { " []" } else { "" })?;
    for problem in &found.report.problems {
        writeln!(out, "  - \"{}\"", problem.escape_debug())?;
    }
    out.flush()
}
