//! `schedules`: the recurring jobs, and their next runs.
//!
//! Owns the columns. Times are in UTC, like those of cron's fields.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::call::Call;
use super::figures::tell_refused;
use super::link::Link;
use super::opts::JSON;
use super::out::{excerpt, Out};
use super::problem::{Problem, DONE, REFUSED};
use super::scan::{Scan, Wanted};
use crate::engine::{push_moment, State};

const HEADS: [&str; 8] = ["id", "tube", "name", "schedule", "next run", "runs", "skipped", "body"];

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let wanted = Wanted { tubes: call.tubes()?, states: vec![State::Scheduled], above: 0 };
    let mut link = Link::open(call)?;
    let scan = Scan::run(&mut link, &wanted)?;
    let mut rows = Vec::new();
    scan.peek(&mut link, &mut |record, tube, body| {
        if call.has(&JSON) {
            return out.line(&record.line(tube, body));
        }
        let (name, when) = record.tags.schedule();
        let mut row = vec![record.id.to_string(), tube.to_owned(), name, when];
        row.push(moment(record.left.into()));
        row.extend(record.tags.run_counts().map(|count| count.to_string()));
        row.push(excerpt(body));
        rows.push(row);
        Ok(())
    })?;
    if !call.has(&JSON) && !rows.is_empty() {
        out.table(&HEADS, &rows)?;
    }
    Ok(if tell_refused(&scan.refused) { REFUSED } else { DONE })
}

/// Formats the time after this many whole seconds and a fraction, for people.
fn moment(left: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date((now + Duration::from_secs(left)).as_nanos().div_ceil(1_000_000_000) as u64)
}

/// A moment in seconds since 1970, for people.
pub fn date(seconds: u64) -> String {
    let mut text = Vec::new();
    push_moment(&mut text, seconds);
    format!("{}Z", String::from_utf8_lossy(&text)).replace('T', " ")
}
