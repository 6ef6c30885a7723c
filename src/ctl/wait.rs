//! `wait`: waits until jobs, or all jobs of a group, have ended or are buried.
//!
//! Owns the exit code for each end. Must not search for jobs: the user specifies their IDs.

use std::thread;
use std::time::{Duration, Instant};

use super::prelude::*;
use crate::protocol::text::is_tube_name;

/// The longest wait in the protocol, in seconds: more than a century.
const LONGEST: u64 = u32::MAX as u64;

const POLL: Duration = Duration::from_millis(500);

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let ids = call.ids()?;
    let groups = call.values(&OF_GROUP);
    if ids.is_empty() == groups.is_empty() {
        return Err(Problem::usage("wait requires either job IDs or --group"));
    }
    if let Some(name) = groups.iter().find(|name| !is_tube_name(name.as_bytes())) {
        return Err(Problem::usage(format!("--group: invalid name: {name}")));
    }
    let until = call.short_number(&UNTIL)?.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    let mut link = Link::open(call)?;
    let mut code = DONE;
    for id in ids {
        code = code.max(wait_for_job(&mut link, id, until, out)?);
    }
    for group in groups {
        code = code.max(wait_for_group(&mut link, &group, until, out)?);
    }
    Ok(code)
}

fn wait_for_job(link: &mut Link, id: u64, until: Option<Instant>, out: &mut Out) -> Result<u8, Problem> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_millis().div_ceil(1000) as u64);
    let command = format!("wait {id} {}", left.unwrap_or(LONGEST));
    let reply = link.ask_within(&command, left)?;
    match first_word(&reply.line) {
        "DELETED" => out.line(&format!("{id} deleted")).map(|()| DONE),
        "BURIED" => out.line(&format!("{id} buried")).map(|()| REFUSED),
        "TIMED_OUT" => Err(Problem::empty(format!("timed out: job {id} has not ended"))),
        "NOT_FOUND" => {
            tell(&refusal(&command, &reply.line).text);
            Ok(REFUSED)
        }
        _ => Err(refusal(&command, &reply.line)),
    }
}

/// Waits for a group. A group without members is complete. Buried members do not end without an operator.
fn wait_for_group(link: &mut Link, group: &str, until: Option<Instant>, out: &mut Out) -> Result<u8, Problem> {
    let command = format!("stats-group {group}");
    let mut progress = ProgressBar::new("jobs done");
    loop {
        let figures = link.figures(&command)?.unwrap_or_default();
        let [pending, buried, deleted] = ["pending", "buried", "deleted"].map(|key| figures.number(key));
        if pending == 0 {
            progress.end();
            return out.line(&format!("{group} complete")).map(|()| DONE);
        }
        if pending == buried {
            progress.end();
            return out.line(&format!("{group}: {buried} buried")).map(|()| REFUSED);
        }
        progress.update(deleted, Some((deleted, deleted + pending)));
        let left = until.map_or(POLL, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(Problem::empty(format!("timed out: {pending} jobs of group {group} have not ended")));
        }
        thread::sleep(left.min(POLL));
    }
}
