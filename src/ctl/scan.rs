//! The search for the jobs of a server: with `list-jobs` if the server supports it, otherwise by trying all IDs.
//!
//! Owns the search. It takes and changes no job, with one exception: without `list-jobs`, it puts an empty job into a
//! tube of its own, out of every worker's reach, and deletes the job immediately, because its ID is the highest.

use std::collections::HashSet;
use std::rc::Rc;

use super::bulk::OUT_OF_REACH;
use super::prelude::*;
use super::record::JobLine;
use super::tubes::each_tube;
use crate::engine::State;

pub const STATE_COUNT: usize = State::LISTED.len();

/// The tube of the job with the highest ID.
const PROBE: &str = "beanpole-probe";

/// The number of IDs in a page of `list-jobs`. Without `list-jobs`, eight times as many are tried at a time.
const PAGE: u64 = 1000;

/// The number of IDs tried above all known IDs if the server accepts no job to find the highest ID, as while draining.
const BEYOND: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Found {
    pub job: JobLine,
    pub tube: Rc<str>,
}

#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The tubes, or none for all tubes.
    pub tubes: Vec<String>,
    /// The states, or none for all states.
    pub states: Vec<State>,
    /// Jobs with larger IDs than this one.
    pub above: u64,
}

pub type EachJob<'a> = &'a mut dyn FnMut(&JobLine, &str, &[u8]) -> Result<(), Problem>;

#[derive(Debug, Default)]
pub struct Scan {
    /// The jobs found, sorted by ID.
    pub jobs: Vec<Found>,
    /// `true` if the server supports `list-jobs`.
    pub was_listed: bool,
    /// Tubes that the server refused to list, with the reason.
    pub refused: Vec<String>,
    tubes: HashSet<Rc<str>>,
}

/// The result of listing IDs.
pub enum ListOutcome {
    All,
    Unknown,
    /// The server refuses to list this tube, for this reason.
    Refused(String),
}

type OnPage<'a> = &'a mut dyn FnMut(&mut Link, &[u64]) -> Result<(), Problem>;

/// Lists the IDs above `above` of a tube's jobs in a state. Calls `act` with each page of them.
pub fn list_ids(
    link: &mut Link,
    (tube, state): (&str, State),
    mut above: u64,
    act: OnPage,
) -> Result<ListOutcome, Problem> {
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
            Some(last) if ids.len() as u64 == PAGE => above = *last,
            _ => return Ok(ListOutcome::All),
        }
    }
}

impl Wanted {
    pub fn has_tube(&self, tube: &str) -> bool {
        self.tubes.is_empty() || self.tubes.iter().any(|name| name == tube)
    }

    fn has_state(&self, state: State) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    pub fn tube_names(&self, link: &mut Link) -> Result<Vec<String>, Problem> {
        match self.tubes.is_empty() {
            true => link.tubes(),
            false => Ok(self.tubes.clone()),
        }
    }

    /// Returns the number of wanted jobs on the server, by state.
    pub fn count(&self, link: &mut Link) -> Result<[u64; STATE_COUNT], Problem> {
        let mut counts = [0; STATE_COUNT];
        let mut add = |figures: &Figures| {
            for (count, state) in counts.iter_mut().zip(State::LISTED).filter(|(_, state)| self.has_state(*state)) {
                *count += figures.number(&format!("current-jobs-{}", state.word()));
            }
        };
        if self.tubes.is_empty() {
            add(&link.stats()?);
        } else {
            each_tube(link, &self.tubes, &mut |_, figures| {
                figures.iter().for_each(&mut add);
                Ok(())
            })?;
        }
        Ok(counts)
    }
}

impl Scan {
    pub fn run(link: &mut Link, wanted: &Wanted) -> Result<Scan, Problem> {
        let mut scan = Scan::default();
        let counts = wanted.count(link)?;
        if !scan.list(link, wanted, &counts)? {
            scan.search(link, wanted, counts.iter().sum())?;
        }
        let id = |place: usize| scan.jobs[place].job.id;
        let order = in_order(scan.jobs.len(), &|left, right| id(left).cmp(&id(right)));
        scan.jobs = order.into_iter().map(|place| scan.jobs[place].clone()).collect();
        // A job whose state changed during the scan may be listed twice.
        scan.jobs.dedup_by_key(|found| found.job.id);
        Ok(scan)
    }

    /// Searches with `list-jobs`. Returns `false` if the server does not know the command.
    fn list(&mut self, link: &mut Link, wanted: &Wanted, counts: &[u64; STATE_COUNT]) -> Result<bool, Problem> {
        let (total, mut progress) = (counts.iter().sum(), ProgressBar::new("jobs found"));
        // Servers without groups or schedules do not know the states of such jobs.
        let is_known = |state: State| !matches!(state, State::Held | State::Scheduled) || counts[state as usize] > 0;
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

    /// Tries IDs from the highest one down, until as many jobs are found as the server counts.
    fn search(&mut self, link: &mut Link, wanted: &Wanted, total: u64) -> Result<(), Problem> {
        self.jobs.clear();
        let begin = highest_id(link)?;
        let (mut next, mut progress) = (begin, ProgressBar::new("jobs found"));
        while next > wanted.above && (self.jobs.len() as u64) < total {
            let least = next.saturating_sub(PAGE * 8).max(wanted.above);
            let ids: Vec<u64> = (least + 1..=next).rev().collect();
            self.query(link, wanted, &ids)?;
            next = least;
            let found = self.jobs.len() as u64;
            // The search ends when all jobs are found, or all IDs are tried.
            let part = (found * 1000 / total.max(1)).max((begin - next) * 1000 / begin.max(1));
            progress.update(found, Some((part, 1000)));
        }
        Ok(())
    }

    /// Queries the jobs with these IDs and keeps the wanted ones.
    pub fn query(&mut self, link: &mut Link, wanted: &Wanted, ids: &[u64]) -> Result<(), Problem> {
        ask_each(link, "stats-job", &mut ids.iter().map(u64::to_string), &mut |_, reply| {
            // The job was moved meanwhile to a tube that the client may not see.
            if reply.line == "FORBIDDEN" {
                return Ok(());
            }
            let Some(figures) = figures_of("stats-job", &reply)? else { return Ok(()) };
            let Some(job) = JobLine::of(&figures) else { return Ok(()) };
            let name = figures.text("tube");
            if wanted.has_tube(name) && wanted.has_state(job.state) {
                let tube = self.tubes.get(name).cloned().unwrap_or_else(|| name.into());
                self.tubes.insert(tube.clone());
                self.jobs.push(Found { job, tube });
            }
            Ok(())
        })
    }

    /// Reads the bodies. Calls `each` with every job that still exists.
    pub fn peek(&self, link: &mut Link, each: EachJob) -> Result<(), Problem> {
        let mut ids = self.jobs.iter().map(|found| found.job.id.to_string());
        ask_each(link, "peek", &mut ids, &mut |place, reply| match reply.number("FOUND") {
            Some(_) => each(&self.jobs[place].job, &self.jobs[place].tube, &reply.body),
            None => Ok(()),
        })
    }
}

/// Returns an ID that no existing job exceeds.
pub fn highest_id(link: &mut Link) -> Result<u64, Problem> {
    link.use_tube(PROBE)?;
    let reply = link.ask(&format!("put {} {OUT_OF_REACH} 1 0\r\n", u32::MAX))?;
    if let Some(id) = reply.number("INSERTED") {
        link.expect(&format!("delete {id}"), "DELETED")?;
        link.use_tube("default")?;
        return Ok(id);
    }
    if !["DRAINING", "OUT_OF_MEMORY"].contains(&reply.line.as_str()) {
        return Err(refusal("put", &reply.line));
    }
    // The next jobs of all tubes show how high IDs are.
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
