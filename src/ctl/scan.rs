//! The search for the jobs of a server: with `list-jobs` if the server has it, otherwise by trying every possible ID.
//!
//! Owns the search. It takes and changes no job, with one exception: without `list-jobs`, it puts an empty job into a
//! tube of its own, out of every worker's reach, and deletes it at once, because its ID is the highest.

use std::collections::HashMap;

use super::feed;
use super::figures::of_tubes;
use super::link::{figures_of, first_word, refusal, Link};
use super::moving::OUT_OF_REACH;
use super::out::in_order;
use super::problem::Problem;
use super::progress::ProgressBar;
use super::record::JobLine;
use crate::engine::State;

/// The number of states that a job can be in.
pub const STATES: usize = State::LISTED.len();

/// The tube of the job whose ID is the highest.
const PROBE: &str = "beanpole-probe";

/// The number of IDs of a page of `list-jobs`; without it, eight times as many are tried at a time.
pub const PAGE: u64 = 1000;

/// The range of the search above all known IDs in a draining server, which does not accept a job to find the highest
/// ID.
const BEYOND: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Found {
    pub record: JobLine,
    /// The index of its tube in [`Scan::tubes`].
    pub tube: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only jobs of these tubes, or of all if there are none.
    pub tubes: Vec<String>,
    /// Only jobs in these states, or in all if there are none.
    pub states: Vec<State>,
    /// Only jobs with IDs above this one.
    pub above: u64,
}

/// The handler of each job, with its tube and its body.
pub type EachJob<'a> = &'a mut dyn FnMut(&JobLine, &str, &[u8]) -> Result<(), Problem>;

#[derive(Debug, Default)]
pub struct Scan {
    pub tubes: Vec<String>,
    /// The jobs found, sorted by ID.
    pub jobs: Vec<Found>,
    /// `true` if the server listed them.
    pub was_listed: bool,
    /// Tubes that the server refused to list, with the reason.
    pub refused: Vec<String>,
    /// The index in `tubes` of each tube.
    places: HashMap<String, u32>,
}

/// A server's reply to a request for IDs.
pub enum Listing {
    Ids(Vec<u64>),
    /// The server does not know the command.
    Unknown,
    /// The server refuses to list this tube, for this reason.
    Refused(String),
}

/// Returns the IDs above this one of a tube's jobs in a state, at most [`PAGE`].
pub fn page(link: &mut Link, tube: &str, state: State, above: u64) -> Result<Listing, Problem> {
    let command = format!("list-jobs {tube} {} {above} {PAGE}", state.word());
    let reply = link.ask(&command)?;
    Ok(match first_word(&reply.line) {
        "OK" => Listing::Ids(super::yaml::list(&reply.body).iter().filter_map(|id| id.parse().ok()).collect()),
        "NOT_FOUND" => Listing::Ids(Vec::new()),
        "UNKNOWN_COMMAND" => Listing::Unknown,
        _ => Listing::Refused(refusal(&command, &reply.line).text.clone()),
    })
}

impl Wanted {
    pub fn has_tube(&self, tube: &str) -> bool {
        self.tubes.is_empty() || self.tubes.iter().any(|name| name == tube)
    }

    fn has_state(&self, state: State) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    /// Returns the number of wanted jobs on the server, by state.
    pub fn count(&self, link: &mut Link) -> Result<[u64; STATES], Problem> {
        let mut counts = [0; STATES];
        let mut add = |figures: &super::yaml::Figures| {
            for (count, state) in counts.iter_mut().zip(State::LISTED) {
                if self.has_state(state) {
                    *count += figures.number(&format!("current-jobs-{}", state.word()));
                }
            }
        };
        if self.tubes.is_empty() {
            add(&link.stats()?);
            return Ok(counts);
        }
        of_tubes(link, &self.tubes, &mut |_, figures| {
            figures.iter().for_each(&mut add);
            Ok(())
        })?;
        Ok(counts)
    }
}

impl Scan {
    pub fn run(link: &mut Link, wanted: &Wanted) -> Result<Scan, Problem> {
        let mut scan = Scan::default();
        let counts = wanted.count(link)?;
        let total = counts.iter().sum();
        let mut progress = ProgressBar::new("jobs found");
        if !scan.list(link, wanted, &counts, &mut progress)? {
            scan.search(link, wanted, total, &mut progress)?;
        }
        let id = |place: usize| scan.jobs[place].record.id;
        let order = in_order(scan.jobs.len(), &|left, right| id(left).cmp(&id(right)));
        scan.jobs = order.into_iter().map(|place| scan.jobs[place].clone()).collect();
        // A job that changed its state meanwhile may have been listed twice.
        scan.jobs.dedup_by_key(|found| found.record.id);
        Ok(scan)
    }

    /// Searches with `list-jobs`. Returns `false` if the server does not know the command.
    fn list(
        &mut self,
        link: &mut Link,
        wanted: &Wanted,
        counts: &[u64; STATES],
        progress: &mut ProgressBar,
    ) -> Result<bool, Problem> {
        let total = counts.iter().sum();
        // Servers without groups or schedules do not know the states of such jobs.
        let is_known = |state: State| !matches!(state, State::Held | State::Scheduled) || counts[state as usize] > 0;
        let meant = |state: &State| wanted.has_state(*state) && is_known(*state);
        let names = if wanted.tubes.is_empty() { link.tubes()? } else { wanted.tubes.clone() };
        'tubes: for tube in &names {
            for state in State::LISTED.into_iter().filter(meant) {
                let mut above = wanted.above;
                loop {
                    let ids = match page(link, tube, state, above)? {
                        Listing::Ids(ids) => ids,
                        Listing::Unknown => return Ok(false),
                        Listing::Refused(why) => {
                            self.refused.push(format!("{tube}: {why}"));
                            continue 'tubes;
                        }
                    };
                    self.look(link, wanted, &ids)?;
                    progress.tell(self.jobs.len() as u64, Some((self.jobs.len() as u64, total)));
                    match ids.last() {
                        Some(last) if ids.len() as u64 == PAGE => above = *last,
                        _ => break,
                    }
                }
            }
        }
        self.was_listed = true;
        Ok(true)
    }

    /// Searches from the highest ID down, until as many jobs are found as the server counts.
    fn search(
        &mut self,
        link: &mut Link,
        wanted: &Wanted,
        total: u64,
        progress: &mut ProgressBar,
    ) -> Result<(), Problem> {
        self.jobs.clear();
        let mut next = highest(link)?;
        let begin = next;
        while next > wanted.above && (self.jobs.len() as u64) < total {
            let least = next.saturating_sub(PAGE * 8).max(wanted.above);
            let ids: Vec<u64> = (least + 1..=next).rev().collect();
            self.look(link, wanted, &ids)?;
            next = least;
            let found = self.jobs.len() as u64;
            // The search ends at whichever is reached first.
            let part = (found * 1000 / total.max(1)).max((begin - next) * 1000 / begin.max(1));
            progress.tell(found, Some((part, 1000)));
        }
        Ok(())
    }

    /// Queries these jobs and keeps the wanted ones.
    pub fn look(&mut self, link: &mut Link, wanted: &Wanted, ids: &[u64]) -> Result<(), Problem> {
        feed::each(link, "stats-job", &mut ids.iter().map(u64::to_string), &mut |_, reply| {
            // A job that was moved meanwhile to a hidden tube is not wanted.
            if reply.line == "FORBIDDEN" {
                return Ok(());
            }
            let Some(figures) = figures_of("stats-job", &reply)? else { return Ok(()) };
            let Some(record) = JobLine::of(&figures) else { return Ok(()) };
            let name = figures.text("tube");
            if wanted.has_tube(name) && wanted.has_state(record.state) {
                let tube = self.number_of(name);
                self.jobs.push(Found { record, tube });
            }
            Ok(())
        })
    }

    /// Reads the bodies of the jobs and passes on each job, with its tube and body. Omits jobs that no longer exist.
    pub fn peek(&self, link: &mut Link, each: EachJob) -> Result<(), Problem> {
        let mut ids = self.jobs.iter().map(|found| found.record.id.to_string());
        feed::each(link, "peek", &mut ids, &mut |place, reply| {
            if reply.number("FOUND").is_none() {
                return Ok(());
            }
            let Found { record, tube } = &self.jobs[place];
            each(record, &self.tubes[*tube as usize], &reply.body)
        })
    }

    /// Returns the index of this tube in the list, to which it is added if it is new.
    fn number_of(&mut self, name: &str) -> u32 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.tubes.len() as u32;
        self.tubes.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        place
    }
}

/// Returns an ID that no existing job exceeds.
pub fn highest(link: &mut Link) -> Result<u64, Problem> {
    link.expect(&format!("use {PROBE}"), "USING")?;
    let reply = link.ask(&format!("put {} {OUT_OF_REACH} 1 0\r\n", u32::MAX))?;
    if let Some(id) = reply.number("INSERTED") {
        link.expect(&format!("delete {id}"), "DELETED")?;
        link.expect("use default", "USING")?;
        return Ok(id);
    }
    if !["DRAINING", "OUT_OF_MEMORY"].contains(&reply.line.as_str()) {
        return Err(refusal("put", &reply.line));
    }
    // The visible statistics of the tubes show where IDs are, without taking a job.
    let mut most = link.stats()?.number("total-jobs");
    for name in link.tubes()? {
        link.expect(&format!("use {name}"), "USING")?;
        for command in ["peek-ready", "peek-delayed", "peek-buried"] {
            most = most.max(link.ask(command)?.number("FOUND").unwrap_or(0));
        }
    }
    link.expect("use default", "USING")?;
    Ok(most + BEYOND)
}
