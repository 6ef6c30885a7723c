//! `export`: all jobs as lines of JSON, from a server or from a binlog that no server uses.
//!
//! Owns the comparison of what was written with what was counted. It takes no job and changes none.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::call::Call;
use super::figures::tell_refused;
use super::link::Link;
use super::name::written;
use super::opts::BINLOG;
use super::out::{in_order, Out};
use super::problem::{Problem, DONE, REFUSED};
use super::progress::Progress;
use super::record::{short, Record};
use super::scan::{Scan, Wanted};
use super::tell;
use crate::binlog::{inspect, Folder};
use crate::engine::{Engine, JobView, Limits, State};

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let tubes = call.tubes()?;
    let wanted = Wanted { tubes, ..Wanted::default() };
    match call.value(&BINLOG) {
        Some(folder) => from_folder(Path::new(&folder), &wanted, out),
        None => from_server(call, &wanted, out),
    }
}

/// `5 jobs: 2 ready, 3 buried`.
fn told(counts: &[u64; 4]) -> String {
    let parts = counts.iter().zip(State::UNFINISHED).filter(|(count, _)| **count > 0);
    let parts: Vec<String> = parts.map(|(count, state)| format!("{count} {}", state.word())).collect();
    let all: u64 = counts.iter().sum();
    match parts.is_empty() {
        true => format!("{all} jobs"),
        false => format!("{all} jobs: {}", parts.join(", ")),
    }
}

fn from_server(call: &Call, wanted: &Wanted, out: &mut Out) -> Result<u8, Problem> {
    let mut link = Link::open(call)?;
    let before: u64 = wanted.count(&mut link)?.iter().sum();
    let scan = Scan::run(&mut link, wanted)?;
    let counts = write(&mut link, &scan, out)?;
    out.flush()?;
    let after: u64 = wanted.count(&mut link)?.iter().sum();
    let written: u64 = counts.iter().sum();
    tell(&format!("exported {}", told(&counts)));
    if tell_refused(&scan.refused) {
        return Ok(REFUSED);
    }
    if written == before && before == after {
        return Ok(DONE);
    }
    tell(&format!("the server counted {before} jobs before, and {after} now"));
    // In a server that is in use, the truth is somewhere between; what lies outside is missing.
    Ok(if written >= before.min(after) { DONE } else { REFUSED })
}

fn write(link: &mut Link, scan: &Scan, out: &mut Out) -> Result<[u64; 4], Problem> {
    let mut counts = [0; 4];
    let mut progress = Progress::new("jobs written");
    scan.peek(link, &mut |record, tube, body| {
        counts[record.state as usize] += 1;
        let written = counts.iter().sum();
        progress.tell(written, Some((written, scan.jobs.len() as u64)));
        out.line(&record.line(tube, body))
    })?;
    Ok(counts)
}

fn from_folder(path: &Path, wanted: &Wanted, out: &mut Out) -> Result<u8, Problem> {
    let mut engine = Engine::new(Limits::NONE);
    let found = inspect(&Folder::new(path), &mut engine);
    let found = found.map_err(|error| Problem::refused(format!("{}: {error}", path.display())))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let is_meant = |job: &JobView| job.state() != State::Finished && wanted.has_tube(&written(engine.tube_of(job)));
    let jobs: Vec<JobView> = engine.jobs().filter(is_meant).collect();
    // Buried jobs are kicked in the order in which they were buried, others served by their ids.
    let key = |place: usize| match jobs[place].state() {
        State::Buried => (1, jobs[place].due().nanos(), jobs[place].id().0),
        _ => (0, jobs[place].id().0, 0),
    };
    let order = in_order(jobs.len(), &|left, right| key(left).cmp(&key(right)));
    let mut counts = [0; 4];
    for job in order.into_iter().map(|place| &jobs[place]) {
        let record = record(job, now);
        counts[record.state as usize] += 1;
        out.line(&record.line(&written(engine.tube_of(job)), job.body().bytes()))?;
    }
    out.flush()?;
    tell(&format!("exported {}", told(&counts)));
    for problem in &found.report.problems {
        tell(&format!("damaged: {problem}"));
    }
    let finished = engine.jobs().filter(|job| job.state() == State::Finished).count();
    if finished > 0 {
        tell(&format!("{finished} outcomes of finished jobs were left out"));
    }
    Ok(if found.report.problems.is_empty() { DONE } else { REFUSED })
}

/// A job of a binlog. What it holds as reserved is a lease, which outlives the server.
fn record(job: &JobView, now: u64) -> Record {
    let left = job.due().nanos().saturating_sub(now).div_ceil(1_000_000_000);
    let state = match job.state() {
        State::Delayed if left == 0 => State::Ready,
        state => state,
    };
    let history = job.history();
    Record {
        id: job.id().0,
        state,
        pri: job.priority(),
        delay: if state == State::Delayed { short(left) } else { 0 },
        ttr: short(job.ttr().secs()),
        age: now.saturating_sub(job.created().nanos()) / 1_000_000_000,
        counts: [history.reserves, history.timeouts, history.releases, history.buries, history.kicks],
    }
}
