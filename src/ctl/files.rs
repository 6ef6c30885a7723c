//! The subcommands `check`, `backup` and `check-access`, which read files instead of querying a server. They must not
//! modify or lock a binlog, because a server can be using it.

use std::fs::{self, DirBuilder, File};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{collections::BTreeMap, fmt::Display, io::ErrorKind, os::unix::fs::DirBuilderExt, path::Path, sync::Arc};

use super::prelude::*;
use crate::access::{self, AccessTable, Accounts, ClientAccess, Need, Right, Scope};
use crate::binlog::{back_up, inspect, is_importing, Folder, Inspection};
use crate::cluster::is_copying;
use crate::engine::{Engine, Limits, State, Time};
use crate::protocol::{needs, text::is_tube_name};
use crate::shared::files;
use crate::shared::system;

#[rustfmt::skip]
const STATES: [(State, &str); 7] = [
    (State::Ready, "ready"), (State::Delayed, "delayed"), (State::Reserved, "leased"), (State::Buried, "buried"),
    (State::Held, "held"), (State::Scheduled, "scheduled"), (State::Finished, "finished"),
];

fn at<E: Display>(path: &Path) -> impl Fn(E) -> Box<Problem> + '_ {
    move |error| Problem::empty(format!("{}: {error}", path.display()))
}

/// Fails if the binlog in the directory is only a part of the queue.
fn complete(path: &Path) -> Result {
    match (is_copying(path), is_importing(&Folder::new(path))) {
        (true, _) => Err(at(path)("the copy of the journal is incomplete")),
        (_, true) => Err(at(path)("the import of beanstalkd's files is incomplete; a server completes it at startup")),
        _ => Ok(()),
    }
}

/// Restores a queue as a server that starts now would restore it.
pub fn restore(path: &Path, engine: &mut Engine) -> Result<Inspection> {
    complete(path)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    inspect(&Folder::new(path), engine, Some(Time::from_nanos(now))).map_err(at(path))
}

pub fn check(call: &Call, out: &mut Out) -> Result<u8> {
    let path = Path::new(&call.operands[0]);
    let mut engine = Engine::new(Limits::NONE);
    let found = restore(path, &mut engine)?;
    // If stdout is closed, the exit code still reports the result.
    let _ = report(&found, &engine, out);
    Ok(if found.report.problems.is_empty() { DONE } else { REFUSED })
}

fn report(found: &Inspection, engine: &Engine, out: &mut Out) -> Result {
    let mut tubes = BTreeMap::<&[u8], [u64; STATES.len()]>::new();
    for job in engine.jobs() {
        let counts = tubes.entry(engine.tube_of(&job)).or_default();
        let index = STATES.iter().position(|(state, _)| *state == job.state()).unwrap_or_default();
        counts[index] += 1;
    }
    let progress = found.report.progress;
    for (key, value) in [
        ("format", found.version.to_string()),
        ("segments", progress.segments.to_string()),
        ("bytes", progress.bytes.to_string()),
        ("jobs", progress.jobs.to_string()),
        ("paused-tubes", engine.pauses().count().to_string()),
        ("last-id", found.last_id.to_string()),
        ("left-in-order", found.closed_cleanly.to_string()),
    ] {
        out.line(&format!("{key}: {value}"))?;
    }
    out.line(&format!("tubes:{}", if tubes.is_empty() { " {}" } else { "" }))?;
    for (name, counts) in tubes {
        let (name, quote) = (yaml::quote_name(name), if is_tube_name(name) { "\"" } else { "" });
        let counts = STATES.iter().zip(counts).map(|((_, state), count)| format!("{state}: {count}"));
        out.line(&format!("  {quote}{name}{quote}: {{{}}}", counts.collect::<Vec<_>>().join(", ")))?;
    }
    out.line(&format!("damage:{}", if found.report.problems.is_empty() { " []" } else { "" }))?;
    let mut problems = found.report.problems.iter().map(|problem| problem.escape_debug());
    problems.try_for_each(|problem| out.line(&format!("  - \"{problem}\"")))?;
    out.flush()
}

pub fn backup(call: &Call, out: &mut Out) -> Result<u8> {
    let (from, to) = (Path::new(&call.operands[0]), Path::new(&call.operands[1]));
    fs::read_dir(from).map_err(at(from))?;
    complete(from)?;
    match DirBuilder::new().mode(0o700).create(to) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            ensure!(fs::read_dir(to).map_err(at(to))?.next().is_none(), at(to)("directory is not empty"));
        }
        created => created.map_err(at(to))?,
    }
    back_up(&Folder::new(from), &Folder::new(to)).map_err(at(from))?;
    complete(from)?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(at(to))?;
    let found = restore(to, &mut Engine::new(Limits::NONE))?;
    let progress = found.report.progress;
    let _ = out.line(&format!("{} jobs in {} segments, {} bytes", progress.jobs, progress.segments, progress.bytes));
    for problem in &found.report.problems {
        let _ = out.line(&format!("damaged: {problem}"));
    }
    Ok(if found.report.problems.is_empty() { DONE } else { REFUSED })
}

pub fn check_access(call: &Call, out: &mut Out) -> Result<u8> {
    let (file, question) = match call.operands.as_slice() {
        [file] => (file, None),
        [file, name, command, tube] => (file, Some((name, command, tube))),
        _ => return Err(Problem::usage("usage: beanpole check-access FILE [NAME COMMAND TUBE]")),
    };
    let path = Path::new(file);
    let bytes = files::read(path).map_err(at(path))?;
    let accounts = Accounts { user: &system::user_number, group: &system::group_number };
    let mut printed = Ok(());
    let table = access::parse(&bytes, &accounts, |line, column, problem| {
        if printed.is_ok() {
            printed = out.line(&format!("{}:{line}:{column}: {problem}", path.display()));
        }
    });
    printed?;
    let Some(table) = table else { return Ok(REFUSED) };
    let Some((name, command, tube)) = question else {
        return out.line(&format!("{}: names: {}", path.display(), table.entries.len())).map(|()| DONE);
    };
    let found = needs(command);
    ensure!(!found.is_empty(), Problem::empty(format!("no protocol has the command {}", command.escape_debug())));
    let mut code = DONE;
    for (protocol, command, need) in found {
        let (allowed, text) = decide(&table, name, need, tube).map_err(Problem::empty)?;
        code = code.max(if allowed { DONE } else { REFUSED });
        out.line(&format!("{protocol} {command}: {text}"))?;
    }
    Ok(code)
}

fn decide(table: &AccessTable, name: &str, need: Need, tube: &str) -> Result<(bool, String), String> {
    let entry = table.name(name).or_else(|| table.name("*"));
    let entry = entry.ok_or_else(|| format!("the file has no line for {} or *", name.escape_debug()))?;
    let access = ClientAccess::new(Arc::new(table.clone()), &entry.credentials, true);
    let tube = Some(tube.as_bytes());
    let (line, by) = (entry.line, &entry.name);
    if access.check(need, tube).is_ok() {
        return Ok((true, format!("allowed by line {line} ({by})")));
    }
    if need.scope == Scope::OwnJob && access.check(Need::TAKE_JOB, tube).is_ok() {
        return Ok((true, format!("allowed by line {line} ({by}) for jobs that the client has reserved")));
    }
    let rights: Vec<&str> = need.rights.iter().map(|right| Right::name(*right)).collect();
    let scope = match need.scope {
        Scope::AllTubes => " on every tube",
        Scope::AnyTube | Scope::Open => "",
        _ => " on this tube",
    };
    Ok((false, format!("refused: line {line} ({by}) does not give {}{scope}", rights.join(" or "))))
}
