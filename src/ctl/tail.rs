//! `tail`: jobs as they are put.
//!
//! Owns the search for new jobs. With `list-jobs`, it queries the IDs above the last ones of each tube. Otherwise, it
//! tries the next IDs: the server counts jobs, and assigns IDs sequentially. No job is taken; a job that ends between
//! two polls is not shown.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::call::Call;
use super::link::Link;
use super::opts::{ENOUGH, INTERVAL, JSON};
use super::out::{excerpt, Out};
use super::problem::{Problem, DONE, REFUSED};
use super::scan::{highest, page, Listing, Scan, Wanted, PAGE};
use super::tell;
use crate::engine::State;

/// The number of IDs tried beyond the count: a server may assign no ID to a job that it refuses, or assign and skip
/// one.
const SLACK: u64 = 64;

/// The maximum number of IDs of one poll.
const MOST: u64 = 100_000;

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let tubes = call.tubes()?;
    let wanted = Wanted { tubes, ..Wanted::default() };
    let pace = Duration::from_secs(call.number(&INTERVAL, 0, 86_400)?.unwrap_or(1)).max(Duration::from_millis(50));
    let enough = call.number(&ENOUGH, 1, u64::MAX)?.unwrap_or(u64::MAX);
    let mut link = Link::open(call)?;
    if let Some(mut tracks) = Tracks::begin(&mut link, &wanted)? {
        let mut shown = 0;
        while shown < enough {
            let begun = Instant::now();
            let ids = tracks.fresh(&mut link, &wanted)?;
            shown += look(call, out, &mut link, &wanted, &ids, enough - shown)?.0;
            std::thread::sleep(pace.saturating_sub(begun.elapsed()));
        }
        return Ok(DONE);
    }
    by_ids(call, out, &mut link, &wanted, (pace, enough))
}

/// The IDs seen so far of the jobs of some tubes.
#[derive(Default)]
struct Tracks {
    /// IDs up to this one existed at the beginning.
    first: u64,
    tubes: HashMap<String, Track>,
    /// Tubes that the server refuses to list; each was reported.
    refused: HashSet<String>,
}

/// The progress in a tube. Its states are listed one after the other, so a job that is put meanwhile may have a smaller
/// ID than one that was just listed. Therefore, each poll lists the IDs of the previous poll again.
struct Track {
    /// The highest ID of the poll before the last one.
    above: u64,
    /// The IDs above `above` that the last poll has listed.
    seen: Vec<u64>,
}

impl Tracks {
    /// Starts after the existing jobs. Returns `None` if the server has no `list-jobs`.
    fn begin(link: &mut Link, wanted: &Wanted) -> Result<Option<Tracks>, Problem> {
        let mut tracks = Tracks::default();
        for tube in tracks.tubes(link, wanted)? {
            let Some(ids) = tracks.list(link, &tube, tracks.first)? else { return Ok(None) };
            tracks.first = ids.last().copied().unwrap_or(tracks.first);
        }
        Ok(Some(tracks))
    }

    fn tubes(&self, link: &mut Link, wanted: &Wanted) -> Result<Vec<String>, Problem> {
        let mut tubes = if wanted.tubes.is_empty() { link.tubes()? } else { wanted.tubes.clone() };
        tubes.retain(|tube| !self.refused.contains(tube));
        match tubes.is_empty() && !wanted.tubes.is_empty() {
            true => Err(Problem::new(REFUSED, String::new())),
            false => Ok(tubes),
        }
    }

    /// Returns the IDs of a tube's jobs above this one, sorted, or `None` if the server has no `list-jobs`.
    fn list(&mut self, link: &mut Link, tube: &str, above: u64) -> Result<Option<Vec<u64>>, Problem> {
        let mut all = BTreeSet::new();
        for state in State::UNFINISHED {
            let mut above = above;
            loop {
                let ids = match page(link, tube, state, above)? {
                    Listing::Ids(ids) => ids,
                    Listing::Unknown => return Ok(None),
                    Listing::Refused(why) => {
                        tell(&format!("{tube}: {why}"));
                        self.refused.insert(tube.to_owned());
                        return Ok(Some(Vec::new()));
                    }
                };
                all.extend(&ids);
                match ids.last() {
                    Some(last) if ids.len() as u64 == PAGE => above = *last,
                    _ => break,
                }
            }
        }
        Ok(Some(all.into_iter().collect()))
    }

    /// Returns the IDs that no previous poll has listed, sorted.
    fn fresh(&mut self, link: &mut Link, wanted: &Wanted) -> Result<Vec<u64>, Problem> {
        let mut fresh = BTreeSet::new();
        let tubes = self.tubes(link, wanted)?;
        let mut old = std::mem::take(&mut self.tubes);
        for tube in tubes {
            let track = old.remove(&tube).unwrap_or(Track { above: self.first, seen: Vec::new() });
            let mut ids = self.list(link, &tube, track.above)?.unwrap_or_default();
            fresh.extend(ids.iter().filter(|id| track.seen.binary_search(id).is_err()));
            let above = track.seen.last().copied().unwrap_or(track.above);
            ids.retain(|id| *id > above);
            self.tubes.insert(tube, Track { above, seen: ids });
        }
        Ok(fresh.into_iter().collect())
    }
}

/// Prints jobs of a server without `list-jobs`, by guessing the next IDs.
fn by_ids(
    call: &Call,
    out: &mut Out,
    link: &mut Link,
    wanted: &Wanted,
    (pace, enough): (Duration, u64),
) -> Result<u8, Problem> {
    let mut next = highest(link)? + 1;
    let mut put = link.stats()?.number("total-jobs");
    let mut shown = 0;
    loop {
        let begun = Instant::now();
        let now = link.stats()?.number("total-jobs");
        // A smaller number comes from another server.
        let fresh = now.checked_sub(put).ok_or_else(|| Problem::refused("the server has restarted"))?;
        put = now;
        if fresh > 0 {
            let end = next + fresh.min(MOST) + SLACK;
            let ids: Vec<u64> = (next..end).collect();
            let (printed, last) = look(call, out, link, wanted, &ids, enough - shown)?;
            if last.is_none() {
                tell("jobs have come and gone");
            }
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

/// Prints the existing jobs with these IDs. Returns their number, and the highest ID seen.
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
    Ok((printed, last))
}
