//! The subcommand `tail`, which prints new jobs. Finds them with `list-jobs`, or by trying sequential IDs if the server
//! lacks the command. A job that ends between two polls is not printed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::prelude::*;
use crate::engine::State;

/// Additional IDs to try, because a server can skip IDs or assign them to rejected jobs.
const SLACK: u64 = 64;

const MAX_IDS: u64 = 100_000;

struct Tail<'a> {
    call: &'a Call,
    out: &'a mut Out,
    link: Link,
    wanted: Wanted,
    interval: Duration,
    left: u64,
}

pub fn run(call: &Call, out: &mut Out) -> Result<u8> {
    let wanted = Wanted { tubes: call.tubes()?, ..Wanted::default() };
    let interval = Duration::from_secs(call.number(&INTERVAL, 0, 86_400)?.unwrap_or(1)).max(Duration::from_millis(50));
    let left = call.number(&ENOUGH, 1, u64::MAX)?.unwrap_or(u64::MAX);
    let link = Link::open(call)?;
    let mut tail = Tail { call, out, link, wanted, interval, left };
    match Tracks::begin(&mut tail.link, &tail.wanted)? {
        Some(tracks) => tail.follow_lists(tracks),
        None => tail.follow_ids(),
    }
}

impl Tail<'_> {
    fn follow_lists(&mut self, mut tracks: Tracks) -> Result<u8> {
        while self.left > 0 {
            let begun = Instant::now();
            let ids = tracks.new_ids(&mut self.link, &self.wanted)?;
            self.show(&ids)?;
            std::thread::sleep(self.interval.saturating_sub(begun.elapsed()));
        }
        Ok(DONE)
    }

    fn follow_ids(&mut self) -> Result<u8> {
        let mut next = highest_id(&mut self.link)? + 1;
        let mut known = self.link.stats()?.number("total-jobs");
        loop {
            let begun = Instant::now();
            let total = self.link.stats()?.number("total-jobs");
            let new = total.checked_sub(known).ok_or_else(|| Problem::refused("the server has restarted"))?;
            known = total;
            if new > 0 {
                let ids: Vec<u64> = (next..next + new.min(MAX_IDS) + SLACK).collect();
                let last = self.show(&ids)?;
                if last.is_none() {
                    print_stderr("jobs were put and deleted before they could be shown");
                }
                next = last.map_or(next, |last| last + 1).max(next + new);
                if self.left == 0 {
                    return Ok(DONE);
                }
            }
            self.out.flush()?;
            std::thread::sleep(self.interval.saturating_sub(begun.elapsed()));
        }
    }

    fn show(&mut self, ids: &[u64]) -> Result<Option<u64>> {
        let Tail { call, out, link, wanted, left, .. } = self;
        let mut scan = Scan::default();
        scan.query(link, &Wanted::default(), ids)?;
        let last = scan.jobs.iter().map(|found| found.job.id).max();
        scan.jobs.retain(|found| wanted.has_tube(&found.tube));
        scan.jobs.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
        scan.peek(link, &mut |job, tube, body| {
            *left -= 1;
            match call.has(&JSON) {
                true => out.line(&job.line(tube, body)),
                false => out.line(&format!("{}\t{tube}\t{}\t{}", job.id, job.state.word(), excerpt(body))),
            }
        })?;
        out.flush()?;
        Ok(last)
    }
}

#[derive(Default)]
struct Tracks {
    first: u64,
    tubes: HashMap<String, Track>,
    refused: HashSet<String>,
}

/// The known job IDs in a tube. Its states are listed one after the other, so a new job can have a smaller ID than a
/// listed job. Each poll therefore repeats the ID range of the previous poll.
struct Track {
    /// The highest ID two polls ago.
    above: u64,
    /// IDs above `above` in the last poll.
    seen: Vec<u64>,
}

impl Tracks {
    /// Returns `None` if the server lacks `list-jobs`.
    fn begin(link: &mut Link, wanted: &Wanted) -> Result<Option<Tracks>> {
        let mut tracks = Tracks::default();
        for tube in tracks.tubes(link, wanted)? {
            let Some(ids) = tracks.list(link, &tube, tracks.first)? else { return Ok(None) };
            tracks.first = ids.last().copied().unwrap_or(tracks.first);
        }
        Ok(Some(tracks))
    }

    fn tubes(&self, link: &mut Link, wanted: &Wanted) -> Result<Vec<String>> {
        let mut tubes = wanted.tube_names(link)?;
        tubes.retain(|tube| !self.refused.contains(tube));
        match tubes.is_empty() && !wanted.tubes.is_empty() {
            true => Err(Problem::new(REFUSED, String::new())),
            false => Ok(tubes),
        }
    }

    /// Returns sorted IDs, or `None` if the server lacks `list-jobs`.
    fn list(&mut self, link: &mut Link, tube: &str, above: u64) -> Result<Option<Vec<u64>>> {
        let mut all = BTreeSet::new();
        for state in State::UNFINISHED {
            let listed = list_ids(link, (tube, state), above, &mut |_, ids| {
                all.extend(ids);
                Ok(())
            })?;
            match listed {
                ListOutcome::All => {}
                ListOutcome::Unknown => return Ok(None),
                ListOutcome::Refused(reason) => {
                    print_stderr(&format!("{tube}: {reason}"));
                    self.refused.insert(tube.to_owned());
                    return Ok(Some(Vec::new()));
                }
            }
        }
        Ok(Some(all.into_iter().collect()))
    }

    fn new_ids(&mut self, link: &mut Link, wanted: &Wanted) -> Result<Vec<u64>> {
        let mut new = BTreeSet::new();
        let tubes = self.tubes(link, wanted)?;
        let mut old = std::mem::take(&mut self.tubes);
        for tube in tubes {
            let track = old.remove(&tube).unwrap_or(Track { above: self.first, seen: Vec::new() });
            let mut ids = self.list(link, &tube, track.above)?.unwrap_or_default();
            new.extend(ids.iter().filter(|id| track.seen.binary_search(id).is_err()));
            let above = track.seen.last().copied().unwrap_or(track.above);
            ids.retain(|id| *id > above);
            self.tubes.insert(tube, Track { above, seen: ids });
        }
        Ok(new.into_iter().collect())
    }
}
