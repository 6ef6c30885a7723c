//! Finding the jobs of a server: by `list-jobs` where it has that, else by asking for every id that there may be.
//!
//! Owns the search. It takes no job and changes none, but for one: without `list-jobs`, an empty job is put into a
//! tube of its own, out of every worker's reach, and deleted at once, since its id tells the highest.

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

/// The tube of the job that tells the highest id.
const PROBE: &str = "beanpole-probe";

/// Ids of a page of `list-jobs`; without that, eight times as many are asked for at a time.
pub const PAGE: u64 = 1000;

/// How far above all known ids a draining server is searched, which takes no job that would tell the highest.
const BEYOND: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Found {
    pub record: JobLine,
    /// The place of its tube in [`Scan::tubes`].
    pub tube: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Of these tubes; of all if there are none.
    pub tubes: Vec<String>,
    /// In these states; in all if there are none.
    pub states: Vec<State>,
    /// With ids above this one.
    pub above: u64,
}

/// What is done with each job: with its tube and its body.
pub type EachJob<'a> = &'a mut dyn FnMut(&JobLine, &str, &[u8]) -> Result<(), Problem>;

#[derive(Debug, Default)]
pub struct Scan {
    pub tubes: Vec<String>,
    /// The jobs by their ids.
    pub jobs: Vec<Found>,
    /// Whether the server listed them.
    pub was_listed: bool,
    /// Tubes that the server would not list, with the reason.
    pub refused: Vec<String>,
    /// The place in `tubes` of each tube.
    places: HashMap<String, u32>,
}

/// What a server answers that is asked for ids.
pub enum Listing {
    Ids(Vec<u64>),
    /// It does not know the command.
    Unknown,
    /// It does not list this tube, for this reason.
    Refused(String),
}

/// The ids of a tube's jobs in a state above this one, [`PAGE`] at most.
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

    /// How many jobs the server counts that are meant, by state.
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
        // One that changed its state meanwhile may have been listed twice.
        scan.jobs.dedup_by_key(|found| found.record.id);
        Ok(scan)
    }

    /// By `list-jobs`; false if the server does not know it.
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

    /// From the highest id down, until as many are found as the server counts.
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
            // Whichever of the two ends it first.
            let part = (found * 1000 / total.max(1)).max((begin - next) * 1000 / begin.max(1));
            progress.tell(found, Some((part, 1000)));
        }
        Ok(())
    }

    /// Asks for these jobs and keeps those that are meant.
    pub fn look(&mut self, link: &mut Link, wanted: &Wanted, ids: &[u64]) -> Result<(), Problem> {
        feed::each(link, "stats-job", &mut ids.iter().map(u64::to_string), &mut |_, reply| {
            // A job that was moved meanwhile to a tube of others is none of ours.
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

    /// Asks for the bodies of the jobs and hands each job on, with its tube and body. One that has gone is left out.
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

    /// The place of this tube in the list, where it is added if it is new.
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

/// No job has an id above this one.
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
    // What can be seen of the tubes without taking a job tells where ids are.
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
