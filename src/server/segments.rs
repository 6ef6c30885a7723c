//! The thread that makes and removes segments, tries a failed disk, and compacts.
//!
//! Owns what it does in a round. `space` decides what comes next, and the log does it.

use std::time::{Duration, Instant};

use super::durability::Durability;
use super::hub::Hub;
use super::space::{SpaceTask, CHECK, RETRY};
use crate::protocol::Output;

/// The least time between two rounds of work that is not urgent, so that it is done in portions and others get their
/// turn.
const PORTION: Duration = Duration::from_millis(1);

/// The thread that makes and removes segments, tries a failed disk, and compacts: runs until [`Durability::stop`].
pub fn run(hub: &Hub, log: &Durability) {
    let (space, wal) = (log.space(), log.wal());
    let mut spare = Output::new();
    let (mut tried, mut checked) = (Instant::now(), Instant::now());
    loop {
        if wal.is_failing() {
            space.rest(RETRY);
        }
        let mut more = true;
        let task = space.next(wal.is_failing() || wal.is_full(), portion(hub));
        if checked.elapsed() >= CHECK {
            checked = Instant::now();
            wal.check(hub);
        }
        match task {
            SpaceTask::Stop => return,
            SpaceTask::Make(bytes, count) => {
                wal.reserve(hub, bytes);
                space.go_on(count);
            }
            SpaceTask::Maintain if tried.elapsed() < RETRY => more = wal.maintain_sparingly(hub),
            SpaceTask::Maintain => {
                tried = Instant::now();
                more = wal.maintain(hub);
            }
        }
        log.write_compacted(hub);
        log.release(&mut spare);
        if let SpaceTask::Maintain = task {
            space.rest(PORTION);
        }
        if more {
            space.maintain();
        }
    }
}

/// One round of what the thread does, for a server without threads, where nobody keeps space from others.
#[cfg(any(test, feature = "test-support"))]
pub fn round(hub: &Hub, log: &Durability) {
    let (space, wal) = (log.space(), log.wal());
    if let SpaceTask::Make(bytes, count) = space.next_at_once(portion(hub)) {
        wal.reserve(hub, bytes);
        space.go_on(count);
    } else {
        wal.maintain(hub);
    }
    log.write_compacted(hub);
    log.release(&mut Output::new());
}

/// Bytes for which space is made in one go, for several commands that wait: as all of it must be in one segment, more
/// would take a segment that is hardly used yet for full.
fn portion(hub: &Hub) -> u64 {
    hub.config().log.segment_size / 4
}
