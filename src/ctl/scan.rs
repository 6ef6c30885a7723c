//! The search for all jobs on a server. If the server lacks `list-jobs`, the search tries all IDs. Also the subcommand
//! `tail`, which prints new jobs, but misses jobs that are put and end between two polls.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::prelude::*;
use crate::engine::State;

pub const STATE_COUNT: usize = State::LISTED.len();
/// The tube into which an empty job is put to learn the highest ID. The job is then deleted.
const PROBE: &str = "beanpole-probe";
/// The number of IDs per `list-jobs` request. Without `list-jobs`, eight times as many IDs are tried per batch.
const PAGE: u64 = 1000;
/// If the server rejects the job that would reveal the highest ID, this many IDs above the highest known ID are tried.
const BEYOND: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Found {
    pub job: JobLine,
    pub tube: Rc<str>,
}

#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub tubes: Vec<String>,
    pub states: Vec<State>,
    pub above: u64,
}

pub type EachJob<'a> = &'a mut dyn FnMut(&JobLine, &str, &[u8]) -> Result;

#[derive(Debug, Default)]
pub struct Scan {
    pub jobs: Vec<Found>,
    pub was_listed: bool,
    pub refused: Vec<String>,
    tubes: HashSet<Rc<str>>,
}

enum ListOutcome {
    All,
    Unknown,
    Refused(String),
}

type OnPage<'a> = &'a mut dyn FnMut(&mut Link, &[u64]) -> Result;

fn list_ids(link: &mut Link, (tube, state): (&str, State), mut above: u64, act: OnPage) -> Result<ListOutcome> {
    loop {
        let command = format!("list-jobs {tube} {} {above} {PAGE}", state.word());
        let reply = link.ask(&command)?;
        match first_word(&reply.line) {
            "OK" => {}
            "NOT_FOUND" => return Ok(ListOutcome::All),
            "UNKNOWN_COMMAND" => return Ok(ListOutcome::Unknown),
            _ => return Ok(ListOutcome::Refused(refusal(&command, &reply.line).text.clone())),
        }
        let ids: Vec<u64> = yaml::list(&reply.body).iter().filter_map(|id| id.parse().ok()).collect();
        act(link, &ids)?;
        let Some(&last) = ids.last().filter(|_| ids.len() as u64 == PAGE) else { return Ok(ListOutcome::All) };
        check_progress(last > above)?;
        above = last;
    }
}

/// Fails if a server sends a part of a list again, because such a list might never end.
pub fn check_progress(is_new: bool) -> Result {
    is_new.then_some(()).ok_or_else(|| Problem::refused("the server repeats a part of the list"))
}

impl Wanted {
    pub fn has_tube(&self, tube: &str) -> bool {
        self.tubes.is_empty() || self.tubes.iter().any(|name| name == tube)
    }

    fn has_state(&self, state: State) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    pub fn tube_names(&self, link: &mut Link) -> Result<Vec<String>> {
        Ok(if self.tubes.is_empty() { link.tubes()? } else { self.tubes.clone() })
    }

    pub fn count(&self, link: &mut Link) -> Result<[u64; STATE_COUNT]> {
        let mut counts = [0; STATE_COUNT];
        let mut add = |stats: &StatsReply| {
            for (count, state) in counts.iter_mut().zip(State::LISTED).filter(|(_, state)| self.has_state(*state)) {
                *count += stats.number(&format!("current-jobs-{}", state.word()));
            }
        };
        if self.tubes.is_empty() {
            add(&link.stats()?);
        } else {
            each_tube(link, &self.tubes, &mut |_, stats| {
                stats.iter().for_each(&mut add);
                Ok(())
            })?;
        }
        Ok(counts)
    }
}

impl Scan {
    pub fn run(link: &mut Link, wanted: &Wanted) -> Result<Scan> {
        let mut scan = Scan::default();
        let counts = wanted.count(link)?;
        if !scan.list(link, wanted, &counts)? {
            scan.search(link, wanted, counts.iter().sum())?;
        }
        let id = |index: usize| scan.jobs[index].job.id;
        let order = in_order(scan.jobs.len(), &|left, right| id(left).cmp(&id(right)));
        scan.jobs = order.into_iter().map(|index| scan.jobs[index].clone()).collect();
        // A job that changed its state during the scan may have been found twice.
        scan.jobs.dedup_by_key(|found| found.job.id);
        Ok(scan)
    }

    fn list(&mut self, link: &mut Link, wanted: &Wanted, counts: &[u64; STATE_COUNT]) -> Result<bool> {
        let (total, mut progress) = (counts.iter().sum(), ProgressBar::new("jobs found"));
        // Servers without groups or schedules neither count nor accept the states `held` and `scheduled`. If all
        // counts are 0, the tubes may be hidden, so all states are queried.
        let (is_zero, is_new) = (total == 0, |state: State| matches!(state, State::Held | State::Scheduled));
        let is_known = |state| !is_new(state) || is_zero || counts[state as usize] > 0;
        let is_wanted = |state: &State| wanted.has_state(*state) && is_known(*state);
        // One job list for all tubes costs the server less than one list per tube, but older servers refuse it.
        let all = wanted.tubes.is_empty().then(|| "*".to_owned());
        'tubes: for tube in all.iter().chain(&wanted.tube_names(link)?) {
            for state in State::LISTED.into_iter().filter(is_wanted) {
                let listed = list_ids(link, (tube, state), wanted.above, &mut |link, ids| {
                    self.query(link, wanted, ids)?;
                    progress.update(self.jobs.len() as u64, Some((self.jobs.len() as u64, total)));
                    Ok(())
                })?;
                match listed {
                    ListOutcome::All => {}
                    ListOutcome::Unknown => return Ok(false),
                    ListOutcome::Refused(reason) => {
                        self.refused.extend((tube != "*").then(|| format!("{tube}: {reason}")));
                        continue 'tubes;
                    }
                }
            }
            if tube == "*" {
                break;
            }
        }
        self.was_listed = true;
        Ok(true)
    }

    fn search(&mut self, link: &mut Link, wanted: &Wanted, total: u64) -> Result {
        self.jobs.clear();
        let begin = highest_id(link)?;
        let (mut next, mut progress) = (begin, ProgressBar::new("jobs found"));
        while next > wanted.above && (self.jobs.len() as u64) < total {
            let low = next.saturating_sub(PAGE * 8).max(wanted.above);
            self.query(link, wanted, &(low + 1..=next).rev().collect::<Vec<_>>())?;
            next = low;
            let found = self.jobs.len() as u64;
            // The search ends when all jobs are found or all IDs are tried, whichever comes first.
            let part = (found * 1000 / total.max(1)).max((begin - next) * 1000 / begin.max(1));
            progress.update(found, Some((part, 1000)));
        }
        Ok(())
    }

    pub fn query(&mut self, link: &mut Link, wanted: &Wanted, ids: &[u64]) -> Result {
        ask_each(link, "stats-job", &mut ids.iter().map(u64::to_string), &mut |_, reply| {
            // A reply of FORBIDDEN means that the job's tube is hidden from the client.
            let stats = if reply.line == "FORBIDDEN" { None } else { stats_of("stats-job", &reply)? };
            let stats = stats.unwrap_or_default();
            let Some(job) = JobLine::of(&stats) else { return Ok(()) };
            let name = stats.text("tube");
            if wanted.has_tube(name) && wanted.has_state(job.state) {
                let tube = self.tubes.get(name).cloned().unwrap_or_else(|| name.into());
                self.tubes.insert(tube.clone());
                self.jobs.push(Found { job, tube });
            }
            Ok(())
        })
    }

    pub fn peek(&self, link: &mut Link, each: EachJob) -> Result {
        let mut ids = self.jobs.iter().map(|found| found.job.id.to_string());
        ask_each(link, "peek", &mut ids, &mut |index, reply| match reply.number("FOUND") {
            Some(_) => each(&self.jobs[index].job, &self.jobs[index].tube, &reply.body),
            None => Ok(()),
        })
    }
}

fn highest_id(link: &mut Link) -> Result<u64> {
    link.use_tube(PROBE)?;
    link.send(format!("put {} {MAX_DELAY} 1 0\r\n\r\n", u32::MAX).as_bytes())?;
    let reply = link.reply()?;
    if let Some(id) = reply.number("INSERTED") {
        link.expect(&format!("delete {id}"), "DELETED")?;
        link.use_tube("default")?;
        return Ok(id);
    }
    ensure!(["DRAINING", "OUT_OF_MEMORY"].contains(&reply.line.as_str()), refusal("put", &reply.line));
    // The number of jobs ever put and the ID of any job in a tube are lower bounds on the highest ID.
    let mut highest = link.stats()?.number("total-jobs");
    for name in link.tubes()? {
        link.use_tube(&name)?;
        for command in ["peek-ready", "peek-delayed", "peek-buried"] {
            highest = highest.max(link.ask(command)?.number("FOUND").unwrap_or(0));
        }
    }
    link.use_tube("default")?;
    Ok(highest + BEYOND)
}

/// Additional IDs to try, because a server can skip IDs or assign them to rejected jobs.
const SLACK: u64 = 64;

struct Tail<'a> {
    call: &'a Call,
    out: &'a mut Out,
    link: Link,
    wanted: Wanted,
    interval: Duration,
    left: u64,
}

pub fn tail(call: &Call, out: &mut Out) -> Result<u8> {
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
                let last = self.show(&(next..next + new.min(100_000) + SLACK).collect::<Vec<_>>())?;
                if last.is_none() {
                    tell("jobs were put and deleted before they could be shown");
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
            let text = || format!("{}\t{tube}\t{}\t{}", job.id, job.state.word(), excerpt(body));
            out.line(&if call.has(&JSON) { job.line(tube, body) } else { text() })
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

/// The known job IDs in a tube. The states of a tube are listed one after the other, so a new job can have a smaller ID
/// than a listed job. Each poll therefore repeats the ID range of the previous poll.
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
        let left = Some(tubes).filter(|tubes| wanted.tubes.is_empty() || !tubes.is_empty());
        left.ok_or_else(|| Problem::new(REFUSED, String::new()))
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
                    tell(&format!("{tube}: {reason}"));
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
