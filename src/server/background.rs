//! The background threads: the timer, which sleeps until the engine's next deadline, and the threads of the log.

use std::time::{Duration, Instant};

use super::durability::Durability;
use super::hub::{Hub, TurnScratch};
use super::space::{SpaceTask, CHECK, RETRY};
use crate::binlog::SyncMode;
use crate::protocol::Output;

/// The pause between turns while deferred work is left, so that other threads get CPU time even with few CPUs.
const REST: Duration = Duration::from_micros(50);

/// The minimum interval between returns of memory to the system, unless a return is urgent.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause after an urgent return of memory is this many times as long as the return.
const SHARE: u32 = 4;

pub fn run_timer(hub: &Hub) {
    let mut scratch = TurnScratch::default();
    let (mut began, mut given_back, mut is_giving_back) = (Instant::now(), Instant::now(), false);
    // [`Hub::turn`] sets the alarm to the next deadline.
    while hub.alarm.wait(&hub.clock) {
        let has_deferred = hub.turn(&mut scratch, |core, _, _| core.engine.has_deferred());
        if let Some(log) = &hub.log {
            // Do not sync here, because no spare thread takes over from this thread during a slow sync.
            log.commit(hub, false, &mut scratch.out);
        }
        hub.clear_discarded();
        if has_deferred {
            std::thread::sleep(REST);
        }
        let pause = if hub.memory.must_give_back() { (given_back - began) * SHARE } else { PAUSE };
        if is_giving_back || given_back.elapsed() >= pause {
            began = if is_giving_back { began } else { Instant::now() };
            is_giving_back = hub.give_back(is_giving_back);
            given_back = Instant::now();
        }
    }
}

/// The maximum pause after a sync, and the number of checks during the pause. A check ends the pause if enough replies
/// wait. During the pause, clients that received replies send new commands, which can share the next sync.
const GATHER: Duration = Duration::from_millis(1);
const GATHER_CHECKS: u32 = 8;

/// The pause after work that is not urgent, so that other threads can take the locks.
const PORTION: Duration = Duration::from_millis(1);

pub type Run = fn(&Hub, &Durability);

/// With `-f0`, the syncers also do the work of the writer.
pub fn log_threads(log: &Durability) -> Vec<(&'static str, Run)> {
    let writer = (log.wal.mode != SyncMode::Always).then_some(("writer", run_writer as Run));
    let syncers = std::iter::repeat_n(("syncer", run_syncer as Run), log.wal.syncs_at_once());
    let run_stager: Run = |_, log| log.staging.run(&*log.wal.storage);
    let stager = (log.wal.syncs_at_once() > 1).then_some(("stager", run_stager));
    syncers.chain([("segments", run_segments as Run)]).chain(writer).chain(stager).collect()
}

fn run_syncer(hub: &Hub, log: &Durability) {
    let mut spare = Output::new();
    while log.wait_to_sync() {
        let released = log.sync(hub, &mut spare);
        for _ in 0..GATHER_CHECKS {
            if log.has_gathered(released) {
                break;
            }
            std::thread::sleep(GATHER / GATHER_CHECKS);
        }
        log.synced();
    }
}

fn run_writer(hub: &Hub, log: &Durability) {
    let mut spare = Output::new();
    while log.writer.wait(|| true) {
        log.wal.write(hub);
        log.release(&mut spare);
    }
}

/// Creates and removes segments, retries a failed disk, and compacts the log.
fn run_segments(hub: &Hub, log: &Durability) {
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
