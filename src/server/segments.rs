//! The segment thread, which creates and removes segments, retries a failed disk, and compacts the log.

use std::time::{Duration, Instant};

use super::durability::Durability;
use super::hub::Hub;
use super::space::{SpaceTask, CHECK, RETRY};
use crate::protocol::Output;

/// Pause after work that is not urgent, so that other threads can take the locks.
const PORTION: Duration = Duration::from_millis(1);

pub fn run(hub: &Hub, log: &Durability) {
    let (space, wal) = (&log.space, &log.wal);
    let mut spare = Output::new();
    let (mut tried, mut checked) = (Instant::now(), Instant::now());
    loop {
        if wal.is_failing() {
            space.pause(RETRY);
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
                space.resume(count);
            }
            SpaceTask::Maintain if tried.elapsed() < RETRY => more = wal.maintain(hub, false),
            SpaceTask::Maintain => {
                tried = Instant::now();
                more = wal.maintain(hub, true);
            }
        }
        log.write_compacted(hub);
        log.release(&mut spare);
        if let SpaceTask::Maintain = task {
            space.pause(PORTION);
        }
        if more {
            space.maintain();
        }
    }
}

/// Returns the maximum space to create at once, in bytes. One segment must be able to provide this space.
pub fn portion(hub: &Hub) -> u64 {
    hub.config.log.segment_size / 4
}
