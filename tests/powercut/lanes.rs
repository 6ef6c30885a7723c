//! Requests and replies, read from a trace, by lane: a client whose commands have an order.
//!
//! Owns the words of the marks, and what a cut at some place may leave of a lane: no less than was promised, no more
//! than was requested. Must not know disks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::book::{Book, Change};
use crate::trace::Event;

/// What a reply to a command promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// It reports something new, which is never acknowledged before it is durable.
    New,
    /// It reports a change. While the disk fails, it is acknowledged before it is durable.
    Change,
    /// It reports another client's change, which may not be durable yet.
    Hearsay,
    None,
}

/// A command.
#[derive(Clone, Debug)]
pub struct Step {
    pub promise: Promise,
    pub changes: Vec<Change>,
    pub sent: usize,
    pub told: Option<usize>,
    /// For a report of another client's change: the job.
    pub about: Option<String>,
}

/// A client whose commands are executed one after the other.
#[derive(Clone, Default, Debug)]
pub struct Lane {
    pub steps: BTreeMap<u64, Step>,
}

/// How a history ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    PowerCut,
    Kill,
}

/// The kind of the history, according to its first marks.
#[derive(Clone, Default, Debug)]
pub struct Heading {
    pub kind: String,
    pub options: Vec<String>,
}

/// What decides which replies count.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub end: End,
    /// `-f0`.
    pub always: bool,
    /// The first event that wrote something that is not durable.
    pub first_unsynced: usize,
    /// The place of a failed sync.
    pub failed: usize,
    /// The program was not listening yet.
    pub starting: bool,
    /// Earlier generations ended with power cuts, or this one does.
    pub power_cuts: bool,
}

/// A lane at the moment of a cut: all changes that may survive, and how many of them must.
pub struct Span<'a> {
    pub changes: Vec<(u64, &'a Change)>,
    /// The number of promised changes.
    pub least: usize,
    /// The number of promised changes, including those reported to other clients.
    pub heard: usize,
}

impl Promise {
    pub fn letter(self) -> char {
        match self {
            Promise::New => 'p',
            Promise::Change => 'c',
            Promise::Hearsay => 'h',
            Promise::None => 'n',
        }
    }

    fn of(letter: &str) -> Promise {
        match letter {
            "p" => Promise::New,
            "c" => Promise::Change,
            "h" => Promise::Hearsay,
            _ => Promise::None,
        }
    }
}

/// Returns the marks with their places: `sent LANE STEP PROMISE WORDS`, `did LANE STEP CHANGE`, `told LANE STEP REPLY`,
/// `about LANE STEP KEY` (a reply is about this job), `void LANE STEP COUNT` (this many changes of the step survived,
/// and none of later steps requested until then), `seen FIRST LAST` (IDs) and `is KIND OPTIONS`.
fn marks(events: &[Event]) -> impl Iterator<Item = (usize, Vec<&str>)> {
    events.iter().enumerate().filter_map(|(place, event)| match event {
        Event::Mark(text) => Some((place, text.splitn(5, ' ').collect())),
        _ => None,
    })
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

pub fn heading(events: &[Event]) -> Heading {
    let find = |event: &Event| match event {
        Event::Mark(text) => text.strip_prefix("is ").map(|rest| rest.split(' ').map(str::to_owned).collect()),
        _ => None,
    };
    let mut words: Vec<String> = events.iter().find_map(find).expect("a heading");
    Heading { kind: words.remove(0), options: words }
}

/// Returns the lanes after the first `count` events. The effects of a command are also known from later events.
pub fn lanes(events: &[Event], count: usize) -> BTreeMap<u64, Lane> {
    let mut lanes = BTreeMap::<u64, Lane>::new();
    let mut voids = Vec::new();
    for (place, words) in marks(events) {
        let before = place < count;
        if !["sent", "did", "told", "about", "void"].contains(&words[0]) {
            continue;
        }
        let lane = lanes.entry(number(words[1])).or_default();
        let at = number(words[2]);
        match words[0] {
            "sent" if before => {
                let promise = Promise::of(words[3]);
                lane.steps.insert(at, Step { promise, changes: Vec::new(), sent: place, told: None, about: None });
            }
            "told" if before => {
                let step = lane.steps.get_mut(&at).expect("a command that was sent");
                step.told = step.told.or(Some(place));
            }
            "void" if before => voids.push((number(words[1]), at, number(words[3]) as usize, place)),
            "about" => {
                let key = words[3].to_owned();
                lane.steps.get_mut(&at).into_iter().for_each(|step| step.about = Some(key.clone()));
            }
            "did" => {
                let step = lane.steps.get_mut(&at);
                let text = words[3..].join(" ");
                step.into_iter().for_each(|step| step.changes.push(Change::read(&text)));
            }
            _ => {}
        }
    }
    for (lane, at, kept, place) in voids {
        let steps = &mut lanes.get_mut(&lane).expect("a lane").steps;
        steps.get_mut(&at).expect("a command").changes.truncate(kept);
        steps.range_mut(at + 1..).filter(|(_, step)| step.sent < place).for_each(|(_, step)| step.changes.clear());
    }
    lanes
}

/// Returns the IDs that clients had seen before this place.
pub fn seen(events: &[Event], count: usize) -> Vec<RangeInclusive<u64>> {
    let of = |(place, words): (usize, Vec<&str>)| {
        (place < count && words[0] == "seen").then(|| number(words[1])..=number(words[2]))
    };
    marks(events).filter_map(of).collect()
}

impl Rule {
    fn counts(&self, step: &Step) -> bool {
        let Some(told) = step.told else { return false };
        let safe = self.end == End::Kill || self.always || told < self.first_unsynced;
        safe && (step.promise == Promise::New || told < self.failed)
    }
}

impl Lane {
    pub fn span(&self, rule: Rule) -> Span<'_> {
        let (mut changes, mut least, mut heard) = (Vec::new(), 0, 0);
        for (number, step) in &self.steps {
            changes.extend(step.changes.iter().map(|change| (*number, change)));
            match step.promise {
                _ if !rule.counts(step) => {}
                Promise::New | Promise::Change if !step.changes.is_empty() => least = changes.len(),
                Promise::Hearsay => heard = heard.max(known_since(&changes, step.about.as_deref())),
                _ => {}
            }
        }
        Span { changes, least, heard: heard.max(least) }
    }
}

/// Returns the number of changes after which the log last had this job.
fn known_since(changes: &[(u64, &Change)], job: Option<&str>) -> usize {
    let makes = |(_, change): &(u64, &Change)| match change {
        Change::Put { key, .. } | Change::Adopt(key) => Some(key.as_str()) == job,
        _ => false,
    };
    changes.iter().rposition(makes).map_or(0, |place| place + 1)
}

impl Span<'_> {
    /// Returns the jobs that were put.
    pub fn keys(&self) -> BTreeSet<&str> {
        let puts = self.changes.iter().filter_map(|(_, change)| match change {
            Change::Put { key, .. } => Some(key.as_str()),
            _ => None,
        });
        puts.collect()
    }

    /// Returns the books from the least that must survive to all changes, each with its number of changes.
    pub fn books(&self) -> Vec<(usize, Book)> {
        let mut book = Book::default();
        self.changes[..self.least].iter().for_each(|(_, change)| book.apply(change));
        let mut books = vec![(self.least, book.clone())];
        for (place, (_, change)) in self.changes.iter().enumerate().skip(self.least) {
            book.apply(change);
            books.push((place + 1, book.clone()));
        }
        books
    }
}
