//! Checks whether a recovered queue is in a permitted state.
//!
//! Owns the list of checks, the switches that enable them, and the comparison. For each client, the surviving changes
//! must be those of a prefix of its commands. The same applies to all clients together, as far as the order of their
//! commands is known. Must not communicate with a server.

use std::collections::{BTreeMap, BTreeSet};

use crate::book::{Book, Views};
use crate::change::Change;
use crate::lanes::{End, Heading, Lane, Rule, Span};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Check {
    /// An acknowledged job or change is missing.
    Lost,
    /// An acknowledged deletion was undone, or a job exists that no client has put.
    Back,
    /// With `-F`, a power failure lost a synced change or undid a synced deletion.
    LostWithoutSyncs,
    /// With `-f0`, the changes that survived a power failure are not a prefix of the history.
    PrefixAlways,
    /// With periodic syncs, the changes that survived a power failure are not a prefix of the history.
    PrefixEvery,
    /// With `-F`, the changes that survived a power failure are not a prefix of the history.
    PrefixNever,
    /// After a disk failure, the surviving changes are not a prefix of the history.
    PrefixFailing,
    /// After a kill, the surviving changes are not a prefix of the history.
    PrefixKill,
    /// A change is missing although another client received a reply that depends on it.
    Hearsay,
    /// `--strict` refuses to start after an ordinary power failure.
    Strict,
    /// `--strict` refuses to start after a kill.
    StrictKill,
    /// `--strict` refuses to start after a disk failure.
    StrictFailing,
    /// The ID of a stored job is assigned to another job.
    Ids,
    /// After an interrupted start, an ID that a client has received is assigned to another job.
    IdsAgain,
    /// An ID is assigned to another job, although a client has received the ID for a job that is not in the log.
    VolatileIds,
    /// With `-F`, an ID that a client has received is assigned to another job after a power failure.
    IdsWithoutSyncs,
    /// The server accepts a second job with the unique name or the Workq ID of an existing job.
    ExtrasStore,
    /// The server writes data to a file before the allocation of the file's disk space is durable. On a full disk, such
    /// a write can fail.
    Space,
    Start,
    /// The running server sends a wrong reply.
    Talk,
    /// The server refuses a Gearman background job although the disk does not fail, for example because a foreground
    /// job with the same unique name cannot become durable.
    Persist,
}

/// Each check with a flag and a description. If the flag is `true`, violations of the check make the run fail.
/// Otherwise, they are only reported.
pub const SWITCHES: [(Check, bool, &str); 21] = [
    (Check::Lost, true, "no acknowledged job or change is lost"),
    (Check::Back, true, "no acknowledged deletion is undone"),
    (Check::LostWithoutSyncs, true, "with -F, no synced change is lost"),
    (Check::PrefixAlways, true, "with -f0, the changes that survive a power cut are a prefix"),
    (Check::PrefixEvery, true, "with -f MS, the changes that survive a power cut are a prefix"),
    (Check::PrefixNever, true, "with -F, the changes that survive a power cut are a prefix"),
    (Check::PrefixFailing, true, "after a disk failure, the surviving changes are a prefix"),
    (Check::PrefixKill, true, "the changes that survive a kill are a prefix"),
    (Check::Hearsay, true, "with -f0, a client that joins a job gets its reply after the job is durable"),
    (Check::Strict, true, "--strict starts after a power cut"),
    (Check::StrictKill, true, "--strict starts after a kill"),
    (Check::StrictFailing, true, "--strict starts after a disk failure"),
    (Check::Ids, true, "the ID of a stored job is not assigned again"),
    (Check::IdsAgain, true, "after an interrupted start, no ID is assigned again"),
    (Check::VolatileIds, true, "after a restart, the ID of a foreground job is not assigned again"),
    (Check::IdsWithoutSyncs, true, "with -F, no ID is assigned again after a power cut"),
    (Check::ExtrasStore, true, "unique jobs are joined, and results are kept"),
    (Check::Space, true, "the allocation of disk space is durable before the space is used"),
    (Check::Start, true, "the server starts"),
    (Check::Talk, true, "a running server sends the correct replies"),
    (Check::Persist, true, "a foreground job of any size can be made durable"),
];

impl Check {
    /// Returns the checks with this name. The name `all` selects all checks.
    pub fn named(name: &str) -> Vec<Check> {
        let all = SWITCHES.iter().map(|(check, _, _)| *check);
        all.filter(|check| name == "all" || name == format!("{check:?}")).collect()
    }
}

/// A failed check with a description of the violation.
pub type Problem = (Check, String);

#[derive(Clone, Default, Debug)]
pub struct Sight {
    pub views: Views,
    /// The number of unfinished jobs.
    pub total: u64,
}

#[derive(Default)]
pub struct Verdict {
    /// The number of surviving changes of each lane (client). Empty if no permitted state matches the queue.
    pub kept: BTreeMap<u64, usize>,
    /// `true` if the server has moved, instead of another job, a job that was reserved before the restart.
    pub resumed: bool,
    pub problems: Vec<Problem>,
}

pub struct Case<'a> {
    pub heading: &'a Heading,
    pub lanes: &'a BTreeMap<u64, Lane>,
    pub rule: Rule,
}

struct Found<'a> {
    lane: &'a Lane,
    span: Span<'a>,
    /// Each number of changes after which the lane is in the recovered state, in ascending order.
    matches: Vec<usize>,
    alive: u64,
}

/// Returns the prefix of all tube names in a lane.
pub fn prefix(lane: u64) -> String {
    format!("l{lane}-")
}

impl Case<'_> {
    fn never_syncs(&self) -> bool {
        self.heading.options.iter().any(|option| option == "-F")
    }

    fn without_syncs(&self) -> bool {
        self.rule.end == End::PowerCut && self.never_syncs()
    }

    /// Returns the check to report for a broken guarantee. Without syncs, a power failure has its own check.
    fn lost(&self, check: Check) -> Check {
        if self.without_syncs() {
            Check::LostWithoutSyncs
        } else {
            check
        }
    }

    fn no_prefix(&self) -> Check {
        match self.rule.end {
            _ if self.rule.failed != usize::MAX => Check::PrefixFailing,
            End::Kill => Check::PrefixKill,
            End::PowerCut if self.rule.always => Check::PrefixAlways,
            End::PowerCut if self.without_syncs() => Check::PrefixNever,
            End::PowerCut => Check::PrefixEvery,
        }
    }

    /// Returns the check that is violated if `--strict` refuses to start.
    pub fn refused(&self) -> Check {
        match self.rule.end {
            _ if self.rule.failed != usize::MAX => Check::StrictFailing,
            _ if self.rule.power_cuts => Check::Strict,
            _ => Check::StrictKill,
        }
    }

    /// Returns the check that is violated if the server has assigned the ID again.
    pub fn given_again(&self, id: u64) -> Check {
        let key = id.to_string();
        let is_put = |change: &Change| match change {
            Change::Put { job, .. } if job.volatile => false,
            change => change.added().is_some_and(|(it, _)| it == key),
        };
        let kept = self.lanes.values().flat_map(|lane| lane.steps.values()).flat_map(|step| &step.changes).any(is_put);
        match () {
            () if self.rule.power_cuts && self.never_syncs() => Check::IdsWithoutSyncs,
            () if self.rule.starting => Check::IdsAgain,
            () if kept => Check::Ids,
            () => Check::VolatileIds,
        }
    }

    /// Returns `true` if the server may have to complete a flush or a move of a tube after the restart.
    pub fn may_be_busy(&self) -> bool {
        let is_long = |change: &Change| matches!(change, Change::Flush { .. } | Change::MoveTube { .. });
        let mut spans = self.lanes.values().map(|lane| lane.span(self.rule));
        spans.any(|span| span.changes[span.least..].iter().any(|(_, change)| is_long(change)))
    }

    pub fn compare(&self, sight: &Sight) -> Verdict {
        let mut verdict = Verdict::default();
        let mut found = BTreeMap::new();
        for (number, lane) in self.lanes {
            let span = lane.span(self.rule);
            let seen = sight.views.of_lane(*number, &span);
            let books = span.books();
            // The comparison of the keys is faster than the comparison of the jobs.
            let fits = |book: &Book| book.kept().eq(seen.jobs.keys()) && book.views() == seen;
            let mut matches: Vec<usize> =
                books.iter().filter(|(_, book)| fits(book)).map(|(count, _)| *count).collect();
            if matches.is_empty() {
                matches.extend(span.resumed(fits));
                verdict.resumed |= !matches.is_empty();
            }
            if matches.is_empty() {
                let views: Vec<(usize, Views)> = books.iter().map(|(count, book)| (*count, book.views())).collect();
                verdict.problems.extend(self.explain(&views, &seen));
            }
            let alive = |count: usize| {
                books.iter().find(|(at, _)| *at == count).map_or(0, |(_, book)| {
                    book.jobs.values().filter(|job| !job.volatile && job.over.is_none()).count() as u64
                })
            };
            let alive = matches.last().map_or(0, |count| alive(*count));
            found.insert(*number, Found { lane, span, matches, alive });
        }
        if verdict.problems.is_empty() {
            self.agree(&mut found, &mut verdict);
            let alive: u64 = found.values().map(|it| it.alive).sum();
            if sight.total != alive {
                // The views contain only one job for each key, but the total counts every job.
                let open = found.values().any(|it| it.span.least < it.span.changes.len());
                let check = if open { self.no_prefix() } else { self.lost(Check::Back) };
                verdict.problems.push((check, format!("there are {} jobs, not {alive}", sight.total)));
            }
        }
        verdict
    }

    /// Reduces the numbers of surviving changes to a consistent combination. If the reply to one command arrived before
    /// another command was sent, the second can survive only together with the first, even in different lanes.
    fn agree(&self, found: &mut BTreeMap<u64, Found>, verdict: &mut Verdict) {
        loop {
            let now: BTreeMap<u64, usize> =
                found.iter().filter_map(|(lane, it)| Some((*lane, *it.matches.last()?))).collect();
            // The event index of the first reply to a command that has not survived.
            let missing = found.values().filter_map(|it| it.first_missing(*it.matches.last()?)).min();
            let wrong = found.iter().find(|(_, it)| match (it.matches.last(), missing) {
                (Some(count), Some(missing)) => it.last_sent(*count).is_some_and(|sent| sent > missing),
                _ => false,
            });
            let Some((&lane, _)) = wrong else {
                self.hear(found, verdict);
                verdict.kept = now;
                return;
            };
            let matches = &mut found.get_mut(&lane).expect("a lane").matches;
            matches.pop();
            if matches.is_empty() {
                let text = format!("lane {lane}: a surviving command was sent after the reply to a lost one: {now:?}");
                verdict.problems.push((self.no_prefix(), text));
                return;
            }
        }
    }

    fn hear(&self, found: &BTreeMap<u64, Found>, verdict: &mut Verdict) {
        for (lane, it) in found {
            let count = it.matches.last().copied().unwrap_or(0);
            if count < it.span.heard {
                let (step, change) = it.span.changes[it.span.heard - 1];
                let text = format!("lane {lane}: a reply reported {} ({step}), but the change is lost", change.write());
                verdict.problems.push((Check::Hearsay, text));
            }
        }
    }

    /// Describes the jobs that are in no permitted state. If there are none, describes how the queue differs from the
    /// most similar permitted state.
    fn explain(&self, views: &[(usize, Views)], seen: &Views) -> Vec<Problem> {
        let mut problems = Vec::new();
        let all = views.iter().map(|(_, view)| view).chain([seen]);
        let keys: BTreeSet<&String> = all.flat_map(|view| view.jobs.keys()).collect();
        for key in keys {
            let is = seen.jobs.get(key);
            let may: Vec<_> = views.iter().map(|(_, view)| view.jobs.get(key)).collect();
            if may.contains(&is) {
                continue;
            }
            let last = may.last();
            problems.push(match is {
                None => (self.lost(Check::Lost), format!("job {key} is missing: {last:?}")),
                Some(is) if may.iter().all(Option::is_none) => {
                    (self.lost(Check::Back), format!("job {key} must not exist: {is:?}"))
                }
                Some(is) => (self.lost(Check::Lost), format!("job {key} is {is:?}, should be {last:?}")),
            });
        }
        if problems.is_empty() {
            problems.push((self.no_prefix(), nearest(views, seen)));
        }
        problems
    }
}

/// Describes the differences between the queue and the permitted state that is most similar to it.
fn nearest(views: &[(usize, Views)], seen: &Views) -> String {
    let differences = |view: &Views| -> Vec<String> {
        let keys: BTreeSet<&String> = view.jobs.keys().chain(seen.jobs.keys()).collect();
        let differs = |key: &&&String| view.jobs.get(**key) != seen.jobs.get(**key);
        let states = |views: &Views, key: &String| {
            views.jobs.get(key).map_or("gone".to_owned(), |job| format!("{} {:?}", job.state, job.counts))
        };
        let jobs = keys
            .iter()
            .filter(differs)
            .map(|key| format!("job {key} is {} and not {}", states(seen, key), states(view, key)));
        let tubes = seen.tubes.iter().filter(|(tube, is)| view.tubes.get(*tube) != Some(is));
        let tubes = tubes.map(|(tube, is)| format!("tube {tube} is {is:?} and not {:?}", view.tubes.get(tube)));
        let keys = view.keys.symmetric_difference(&seen.keys).map(|key| format!("key {key} differs"));
        jobs.chain(tubes).chain(keys).collect()
    };
    let all = views.iter().map(|(count, view)| (*count, differences(view)));
    let (count, best) = all.min_by_key(|(_, list)| list.len()).expect("a permitted state");
    let range = (views[0].0, views[views.len() - 1].0);
    format!("most similar to the state after change {count} of {range:?}, but {}", best[..best.len().min(4)].join("; "))
}

impl Views {
    /// Returns the jobs, tubes and keys of one lane (client).
    fn of_lane(&self, lane: u64, span: &Span) -> Views {
        let keys: BTreeSet<&str> = span.keys();
        let name = prefix(lane);
        let jobs = self.jobs.iter().filter(|(key, job)| keys.contains(key.as_str()) || job.tube.starts_with(&name));
        let tubes = self.tubes.iter().filter(|(tube, _)| tube.starts_with(&name));
        Views {
            jobs: jobs.map(|(key, job)| (key.clone(), job.clone())).collect(),
            tubes: tubes.map(|(tube, view)| (tube.clone(), view.clone())).collect(),
            keys: self.keys.iter().filter(|key| key.starts_with(&format!("\"{name}"))).cloned().collect(),
        }
    }
}

impl Found<'_> {
    /// Returns the event index of the first reply to a command with a change beyond the first `count` changes.
    fn first_missing(&self, count: usize) -> Option<usize> {
        let missing: BTreeSet<u64> = self.span.changes[count..].iter().map(|(step, _)| *step).collect();
        missing.iter().filter_map(|step| self.lane.steps[step].told).min()
    }

    /// Returns the event index at which the client sent the command that made change number `count`.
    fn last_sent(&self, count: usize) -> Option<usize> {
        self.span.changes[..count].last().map(|(step, _)| self.lane.steps[step].sent)
    }
}
