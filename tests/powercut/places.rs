//! Chooses the events of a history after which cuts are made.
//!
//! Prefers events after which data can be lost or was acknowledged too early. Must not depend on the effects of a cut.

use std::collections::HashSet;

use crate::random::Random;
use crate::trace::Event;

/// After each failed sync, [`Places::failed`] includes this number of replies.
const CLOSE: usize = 4;

/// Event indexes at which a cut can be made, grouped by the preceding event.
#[derive(Default)]
struct Places {
    told: Vec<usize>,
    /// After replies that guarantee a change but arrive before all data is durable.
    early: Vec<usize>,
    /// After the first replies that follow a failed sync.
    failed: Vec<usize>,
    /// At the beginning of syncs, and after truncations of files.
    syncs: Vec<usize>,
    /// During commands that flush a tube or move several of its jobs.
    long: Vec<usize>,
    /// After changes to directories.
    entries: Vec<usize>,
    /// Before the program begins to listen.
    starts: Vec<usize>,
}

/// Returns the lane and step in a mark (a line of the trace) that begins with `kind`.
fn step<'a>(text: &'a str, kind: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(kind)?;
    let end = rest.match_indices(' ').nth(1).map_or(rest.len(), |(end, _)| end);
    Some(&rest[..end])
}

fn find(events: &[Event], began: usize) -> Places {
    let mut places = Places::default();
    let heard = events[began..].iter().position(|event| matches!(event, Event::Mark(_)));
    places.starts.extend(began..began + heard.unwrap_or(0));
    let (mut syncs, mut unsynced, mut promises) = (0, false, HashSet::new());
    let (mut close, mut long) = (0, None);
    for (place, event) in events.iter().enumerate().skip(began) {
        match event {
            Event::Mark(text) => {
                if let Some(step) = step(text, "sent ") {
                    let is_long = [" Flush ", " MoveTube "].iter().any(|word| text.contains(word));
                    long = Some(step).filter(|_| is_long);
                    // If the reply guarantees nothing, the next word of the mark is `n`.
                    promises.extend((!text["sent ".len() + step.len()..].starts_with(" n")).then_some(step));
                }
                if let Some(step) = step(text, "told ") {
                    long = long.filter(|it| *it != step);
                    places.told.push(place + 1);
                    places.failed.extend((close > 0).then_some(place + 1));
                    close = close.max(1) - 1;
                    places.early.extend((promises.contains(step) && (syncs > 0 || unsynced)).then_some(place + 1));
                }
            }
            Event::Write { .. } => unsynced = true,
            Event::SyncBegin { .. } => {
                (syncs, unsynced) = (syncs + 1, false);
                places.syncs.push(place + 1);
            }
            Event::SyncEnd { failed, .. } => {
                syncs -= 1;
                close = if *failed { CLOSE } else { close };
            }
            Event::Truncate { .. } => places.syncs.push(place + 1),
            event if event.is_of_folder() => places.entries.push(place + 1),
            _ => {}
        }
        places.long.extend(long.map(|_| place + 1));
    }
    places
}

/// Chooses `wanted` event indexes within the last generation of a history.
pub fn places(events: &[Event], random: &mut Random, wanted: usize) -> Vec<usize> {
    let began = events.iter().rposition(|event| *event == Event::Began).map_or(0, |place| place + 1);
    let found = find(events, began);
    let one = |random: &mut Random| {
        let some = match random.below(12) {
            0 => &found.told,
            1..=3 => &found.early,
            4 | 5 => &found.failed,
            6 => &found.syncs,
            7 => &found.entries,
            8 => &found.starts,
            9 => &found.long,
            _ => &Vec::new(),
        };
        if some.is_empty() {
            began + random.below((events.len() - began) as u64 + 1) as usize
        } else {
            random.pick(some)
        }
    };
    (0..wanted).map(|_| one(random)).collect()
}
