//! Extracts the commands and replies of each lane from a trace. A lane is a client that executes its commands in
//! sequence.
//!
//! Owns the syntax of the marks (the lines of the trace that describe commands and replies). Determines which changes
//! of a lane must survive a cut, and which changes can survive. Must not depend on the simulated disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::book::Book;
use crate::change::Change;
use crate::trace::Event;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// The reply reports a new object, and is never sent before the object is durable.
    New,
    /// The reply reports a change. While the disk is failing, the reply is sent before the change is durable.
    Change,
    /// The reply reports a change made by another client. This change might not be durable yet.
    Hearsay,
    None,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub promise: Promise,
    pub changes: Vec<Change>,
    pub sent: usize,
    pub told: Option<usize>,
    /// The key of the job in the reply, if another client may have put the job.
    pub about: Option<String>,
}

#[derive(Clone, Default, Debug)]
pub struct Lane {
    pub steps: BTreeMap<u64, Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    PowerCut,
    Kill,
}

/// The kind and the options of a history, from the mark `is` of the trace.
#[derive(Clone, Default, Debug)]
pub struct Heading {
    pub kind: String,
    pub options: Vec<String>,
}

/// The conditions that determine which replies guarantee that a change survives.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub end: End,
    /// `true` with the option `-f0`.
    pub always: bool,
    /// The event index of the first write that might not be durable, or the maximum value.
    pub first_unsynced: usize,
    /// The event index of the first failed sync, or the maximum value.
    pub failed: usize,
    /// `true` if the cut precedes the moment at which the program begins to listen.
    pub starting: bool,
    /// `true` if this cut or an earlier cut is a power failure. Also `true` in histories that begin with an import.
    pub power_cuts: bool,
}

/// The changes of a lane before a cut, and the number of changes that must survive.
pub struct Span<'a> {
    pub changes: Vec<(u64, &'a Change)>,
    /// The number of changes whose survival is guaranteed.
    pub least: usize,
    /// Like `least`, but includes changes that are guaranteed by replies to other clients.
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

/// Returns the marks with their event indexes:
/// - `sent LANE STEP PROMISE WORDS`: a command was sent.
/// - `did LANE STEP CHANGE`: the command made a change.
/// - `told LANE STEP REPLY`: a reply was received.
/// - `refused LANE STEP REPLY`: the server refused the command. The lanes do not contain this reply.
/// - `about LANE STEP KEY`: the reply concerns this job.
/// - `void LANE STEP COUNT`: only the first COUNT changes of the step survived, and no changes of later steps.
/// - `seen FIRST LAST`: a client received the IDs from FIRST to LAST.
/// - `is KIND OPTIONS`: the kind of the history and the program's options.
fn marks(events: &[Event]) -> impl Iterator<Item = (usize, Vec<&str>)> {
    events.iter().enumerate().filter_map(|(place, event)| match event {
        Event::Mark(text) => Some((place, text.splitn(5, ' ').collect())),
        _ => None,
    })
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
}

pub fn heading(events: &[Event]) -> Heading {
    let find = |event: &Event| match event {
        Event::Mark(text) => text.strip_prefix("is ").map(|rest| rest.split(' ').map(str::to_owned).collect()),
        _ => None,
    };
    let mut words: Vec<String> = events.iter().find_map(find).expect("a heading");
    Heading { kind: words.remove(0), options: words }
}

/// Returns the lanes after the first `count` events. If a command was sent in these events, the lanes contain all of
/// its effects, even those that later events record.
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

/// Returns the ranges of IDs that clients received before the event index `count`.
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

/// Returns the number of changes up to and including the last change that put the job into the log.
fn known_since(changes: &[(u64, &Change)], job: Option<&str>) -> usize {
    let makes = |(_, change): &(u64, &Change)| match change {
        Change::Put { key, .. } | Change::Persist { key } => Some(key.as_str()) == job,
        _ => false,
    };
    changes.iter().rposition(makes).map_or(0, |place| place + 1)
}

impl Span<'_> {
    /// Returns the keys of the jobs that were put.
    pub fn keys(&self) -> BTreeSet<&str> {
        self.changes.iter().filter_map(|(_, change)| change.added()).map(|(key, _)| key).collect()
    }

    /// Returns the number of surviving changes if the server has completed a move after the restart, and this move
    /// results in a book that `fits` accepts.
    pub fn resumed(&self, fits: impl Fn(&Book) -> bool) -> Option<usize> {
        let mut book = Book::default();
        for (place, (_, change)) in self.changes.iter().enumerate() {
            if place >= self.least && book.resumed(change).any(|book| fits(&book)) {
                return Some(place + 1);
            }
            book.apply(change);
        }
        None
    }

    /// Returns each possible number of surviving changes, with the resulting book.
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
