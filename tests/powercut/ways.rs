//! Computes the possible states of a job after a cut, if each change without a guarantee survives or is lost
//! independently.
//!
//! In addition, surviving changes must be a prefix of the history. When this requirement is violated, the possible
//! states are used to describe the loss. A record contains absolute counts, so a surviving record makes up for earlier
//! lost ones.

use std::collections::BTreeSet;

use crate::book::{Book, Change, Job, Place, View};
use crate::lanes::Span;

/// Jobs with more possible states than this are not checked.
const ENOUGH: usize = 2000;

fn key_of(change: &Change) -> Option<&str> {
    match change {
        Change::Put { key, .. }
        | Change::Adopt(key)
        | Change::Reserve(key)
        | Change::Release { key, .. }
        | Change::Bury { key, .. }
        | Change::Kick(key)
        | Change::Delete(key)
        | Change::Lease(key)
        | Change::Move { key, .. }
        | Change::Outcome { key, .. } => Some(key),
        Change::Pause { .. } | Change::Set { .. } | Change::Restart => None,
    }
}

/// Returns the state of a job after `change`. `full` is the state after the change if nothing was lost.
fn after(job: &Option<Job>, change: &Change, full: &Option<Job>) -> Option<Job> {
    let Some(full) = full else { return None };
    if matches!(change, Change::Put { .. } | Change::Adopt(_)) {
        return Some(full.clone());
    }
    let mut job = job.clone()?;
    if job.is_over() {
        return Some(job);
    }
    match change {
        Change::Reserve(_) | Change::Lease(_) => job.counts[0] = full.counts[0],
        Change::Release { .. } => {
            (job.pri, job.delay, job.counts[1]) = (full.pri, full.delay, full.counts[1]);
        }
        Change::Bury { .. } => (job.pri, job.counts[2]) = (full.pri, full.counts[2]),
        Change::Kick(_) => job.counts[3] = full.counts[3],
        Change::Move { .. } => (job.tube, job.pri, job.delay) = (full.tube.clone(), full.pri, full.delay),
        Change::Outcome { .. } => (job.counts[1], job.result) = (full.counts[1], full.result.clone()),
        _ => {}
    }
    job.place = full.place;
    Some(job)
}

/// Returns the possible states of the job with this key, or `None` if there are too many.
pub fn ways(span: &Span, key: &str) -> Option<Vec<Option<View>>> {
    let mut book = Book::default();
    let mut ways: Vec<Option<Job>> = vec![None];
    let mine = span.changes.iter().enumerate().filter(|(_, (_, change))| key_of(change) == Some(key));
    for (place, (_, change)) in mine {
        book.apply(change);
        // The order among buried jobs does not matter.
        let full = book.jobs.get(key).map(|job| Job { order: 0, ..job.clone() });
        if place < span.least {
            ways = vec![full];
            continue;
        }
        let more: Vec<Option<Job>> = ways.iter().map(|way| after(way, change, &full)).collect();
        more.into_iter().for_each(|way| {
            if !ways.contains(&way) {
                ways.push(way);
            }
        });
        if ways.len() > ENOUGH {
            return None;
        }
    }
    // Whether the job still waits depends on other jobs' changes, which may be lost, so both states are possible.
    for job in ways.clone().into_iter().flatten().filter(Job::may_wait) {
        let free = if job.delay > 0 { Place::Delayed } else { Place::Ready };
        if [Place::Held, free].contains(&job.place) {
            ways.extend([Place::Held, free].map(|place| Some(Job { place, ..job.clone() })));
        }
    }
    let view = |job: Option<Job>| job.filter(|job| !job.volatile).map(|job| job.view());
    let mut views: Vec<Option<View>> = Vec::new();
    ways.into_iter().map(view).for_each(|view| {
        if !views.contains(&view) {
            views.push(view);
        }
    });
    Some(views)
}

/// Returns the possible lengths of a tube's pause in seconds.
pub fn pauses(span: &Span, tube: &str) -> BTreeSet<u64> {
    let mut book = Book::default();
    span.changes[..span.least].iter().for_each(|(_, change)| book.apply(change));
    let promised = book.pauses.get(tube).copied().unwrap_or(0);
    let others = span.changes[span.least..].iter().filter_map(|(_, change)| match change {
        Change::Pause { tube: it, seconds } if it == tube => Some(*seconds),
        Change::Restart => Some(0),
        _ => None,
    });
    others.chain([promised]).collect()
}
