//! `list`: the jobs of a tube.
//!
//! Owns the columns, and the message for a server that cannot list.

use super::call::{tube, Call};
use super::figures::tell_refused;
use super::link::Link;
use super::opts::{FROM, JSON, SHOWN, STATES};
use super::out::{excerpt, Out};
use super::problem::{Problem, DONE, REFUSED};
use super::record::COUNTS;
use super::scan::{Scan, Wanted};
use super::tell;
use crate::engine::State;

/// The columns before those of [`COUNTS`] and the body.
const HEADS: [&str; 6] = ["id", "state", "pri", "delay", "ttr", "age"];

pub fn states_of(call: &Call) -> Result<Vec<State>, Problem> {
    let known = State::LISTED.map(State::word).join(", ");
    let wrong = |name: &str| Problem::usage(format!("--state: {name}; it must be one of {known}"));
    call.values(&STATES).iter().map(|name| State::named(name.as_bytes()).ok_or_else(|| wrong(name))).collect()
}

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let name = tube(&call.operands[0])?;
    let most = call.number(&SHOWN, 0, u64::MAX)?.unwrap_or(100);
    let above = call.number(&FROM, 0, u64::MAX)?.unwrap_or(0);
    let wanted = Wanted { tubes: vec![name.clone()], states: states_of(call)?, above };
    let mut link = Link::open(call)?;
    if link.figures(&format!("stats-tube {name}"))?.is_none() {
        return Err(Problem::refused(format!("there is no tube {name}")));
    }
    let mut scan = Scan::run(&mut link, &wanted)?;
    if !scan.was_listed {
        tell("the server has no list-jobs: every id was asked for");
    }
    let all = scan.jobs.len();
    if most > 0 {
        scan.jobs.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }
    print(call, out, &mut link, &scan)?;
    if scan.jobs.len() < all {
        out.flush()?;
        tell(&format!("{} of {all} jobs; -n 0 lists all", scan.jobs.len()));
    }
    Ok(if tell_refused(&scan.refused) { REFUSED } else { DONE })
}

fn print(call: &Call, out: &mut Out, link: &mut Link, scan: &Scan) -> Result<(), Problem> {
    let mut rows = Vec::new();
    scan.peek(link, &mut |record, tube, body| {
        if call.has(&JSON) {
            return out.line(&record.line(tube, body));
        }
        let mut row = vec![record.id.to_string(), record.state.word().to_owned()];
        row.extend([record.pri, record.delay, record.ttr].map(|number| number.to_string()));
        row.push(record.age.to_string());
        row.extend(record.counts.map(|count| count.to_string()));
        row.push(excerpt(body));
        rows.push(row);
        Ok(())
    })?;
    if call.has(&JSON) {
        return Ok(());
    }
    let heads: Vec<&str> = HEADS.into_iter().chain(COUNTS).chain(["body"]).collect();
    out.table(&heads, &rows)
}
