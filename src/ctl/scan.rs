//! The search for all jobs on a server, with `list-jobs`, or by trying all IDs if the server lacks the command.

use std::collections::HashSet;
use std::rc::Rc;

use super::prelude::*;
use crate::engine::State;

pub const STATE_COUNT: usize = State::LISTED.len();

/// Receives an empty job, which is deleted, to learn the highest ID.
const PROBE: &str = "beanpole-probe";

/// IDs per `list-jobs` request. Without `list-jobs`, eight times as many IDs are tried per batch.
const PAGE: u64 = 1000;

/// If the server rejects the job that would reveal the highest ID, this many more IDs are tried.
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

pub enum ListOutcome {
    All,
    Unknown,
    Refused(String),
}

type OnPage<'a> = &'a mut dyn FnMut(&mut Link, &[u64]) -> Result;

pub fn list_ids(link: &mut Link, (tube, state): (&str, State), mut above: u64, act: OnPage) -> Result<ListOutcome> {
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
        match ids.last() {
            Some(last) if ids.len() as u64 == PAGE => {
                check_progress(*last > above)?;
                above = *last;
            }
            _ => return Ok(ListOutcome::All),
        }
    }
}

/// Fails if a server sends a part of a list again, which would never end.
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
        // A job may have changed its state during the scan.
        scan.jobs.dedup_by_key(|found| found.job.id);
        Ok(scan)
    }

    fn list(&mut self, link: &mut Link, wanted: &Wanted, counts: &[u64; STATE_COUNT]) -> Result<bool> {
        let (total, mut progress) = (counts.iter().sum(), ProgressBar::new("jobs found"));
        // Servers without groups or schedules reject and do not count the states `held` and `scheduled`. If all counts
        // are 0, the tubes may be hidden, so all states are queried.
        let (is_zero, is_new) = (total == 0, |state: State| matches!(state, State::Held | State::Scheduled));
        let is_known = |state| !is_new(state) || is_zero || counts[state as usize] > 0;
        let is_wanted = |state: &State| wanted.has_state(*state) && is_known(*state);
        'tubes: for tube in &wanted.tube_names(link)? {
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
                        self.refused.push(format!("{tube}: {reason}"));
                        continue 'tubes;
                    }
                }
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
            let ids: Vec<u64> = (low + 1..=next).rev().collect();
            self.query(link, wanted, &ids)?;
            next = low;
            let found = self.jobs.len() as u64;
            // The search ends when all jobs are found or all IDs are tried, whichever is first.
            let part = (found * 1000 / total.max(1)).max((begin - next) * 1000 / begin.max(1));
            progress.update(found, Some((part, 1000)));
        }
        Ok(())
    }

    pub fn query(&mut self, link: &mut Link, wanted: &Wanted, ids: &[u64]) -> Result {
        ask_each(link, "stats-job", &mut ids.iter().map(u64::to_string), &mut |_, reply| {
            // The job's tube is hidden from the client.
            if reply.line == "FORBIDDEN" {
                return Ok(());
            }
            let Some(stats) = stats_of("stats-job", &reply)? else { return Ok(()) };
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

pub fn highest_id(link: &mut Link) -> Result<u64> {
    link.use_tube(PROBE)?;
    link.send(format!("put {} {MAX_DELAY} 1 0\r\n\r\n", u32::MAX).as_bytes())?;
    let reply = link.reply()?;
    if let Some(id) = reply.number("INSERTED") {
        link.expect(&format!("delete {id}"), "DELETED")?;
        link.use_tube("default")?;
        return Ok(id);
    }
    if !["DRAINING", "OUT_OF_MEMORY"].contains(&reply.line.as_str()) {
        return Err(refusal("put", &reply.line));
    }
    // The total number of jobs, and the next job of each tube, are lower bounds.
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
