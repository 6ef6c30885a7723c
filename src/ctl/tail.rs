//! `tail`: jobs as they are put.
//!
//! Owns the guess where the next ids are: the server tells how many jobs were put, and gives ids one after the other.
//! No job is taken; one that is done between two looks is counted, but not shown.

use std::time::{Duration, Instant};

use super::call::Call;
use super::link::Link;
use super::opts::{ENOUGH, INTERVAL, JSON};
use super::out::{excerpt, Out};
use super::problem::{Problem, DONE};
use super::scan::{highest, Scan, Wanted};
use super::tell;

/// Ids that are asked for beyond what was counted: a server may give none to a job that it refuses, or give and skip
/// it.
const SLACK: u64 = 64;

/// Ids that are asked for in one look.
const MOST: u64 = 100_000;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let tubes = call.tubes()?;
    let wanted = Wanted { tubes, ..Wanted::default() };
    let pace = Duration::from_secs(call.number(&INTERVAL, 0, 86_400)?.unwrap_or(1)).max(Duration::from_millis(50));
    let enough = call.number(&ENOUGH, 1, u64::MAX)?.unwrap_or(u64::MAX);
    let mut link = Link::open(call)?;
    let mut next = highest(&mut link)? + 1;
    let mut put = link.stats()?.number("total-jobs");
    let mut shown = 0;
    loop {
        let begun = Instant::now();
        let now = link.stats()?.number("total-jobs");
        // A smaller number is that of another server.
        let fresh = now.checked_sub(put).ok_or_else(|| Problem::refused("the server has begun anew"))?;
        put = now;
        if fresh > 0 {
            let end = next + fresh.min(MOST) + SLACK;
            let ids: Vec<u64> = (next..end).collect();
            let (printed, last) = look(call, out, &mut link, &wanted, &ids, enough - shown)?;
            shown += printed;
            next = last.map_or(next, |last| last + 1).max(next + fresh);
            if shown >= enough {
                return Ok(DONE);
            }
        }
        out.flush()?;
        std::thread::sleep(pace.saturating_sub(begun.elapsed()));
    }
}

/// Prints the jobs of these ids that are there; how many, and the highest id that was seen.
fn look(
    call: &Call,
    out: &mut Out,
    link: &mut Link,
    wanted: &Wanted,
    ids: &[u64],
    most: u64,
) -> Result<(u64, Option<u64>), Problem> {
    let mut scan = Scan::default();
    scan.look(link, &Wanted::default(), ids)?;
    let last = scan.jobs.iter().map(|found| found.record.id).max();
    scan.jobs.retain(|found| wanted.has_tube(&scan.tubes[found.tube as usize]));
    scan.jobs.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    let mut printed = 0;
    scan.peek(link, &mut |record, tube, body| {
        printed += 1;
        match call.has(&JSON) {
            true => out.line(&record.line(tube, body)),
            false => out.line(&format!("{}\t{tube}\t{}\t{}", record.id, record.state.word(), excerpt(body))),
        }
    })?;
    out.flush()?;
    if last.is_none() {
        tell("jobs have come and gone");
    }
    Ok((printed, last))
}
