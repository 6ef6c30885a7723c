//! The threads of the log: syncers, the segment thread and the writer.
//!
//! Owns the work of each thread. Must not decide when to write or sync; the module `durability` does.

use std::time::Duration;

use super::durability::Durability;
use super::hub::Hub;
use super::segments;
use crate::binlog::SyncMode;
use crate::protocol::Output;

/// Maximum pause after a sync, and the number of checks whether enough replies wait. During the pause, clients that
/// received replies send new commands, which can share the next sync.
const GATHER: Duration = Duration::from_millis(1);
const GATHER_CHECKS: u32 = 8;

pub type Run = fn(&Hub, &Durability);

/// With `-f0`, the syncers also do the work of the writer.
pub fn threads(log: &Durability) -> Vec<(&'static str, Run)> {
    let writer = (log.wal.mode() != SyncMode::Always).then_some(("writer", run_writer as Run));
    let syncers = std::iter::repeat_n(("syncer", run_syncer as Run), log.wal.syncs_at_once());
    let stager = (log.wal.syncs_at_once() > 1).then_some(("stager", run_stager as Run));
    syncers.chain([("segments", segments::run as Run)]).chain(writer).chain(stager).collect()
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

fn run_stager(_: &Hub, log: &Durability) {
    log.staging.run(log.wal.storage());
}

fn run_writer(hub: &Hub, log: &Durability) {
    let mut spare = Output::new();
    while log.wait_to_write() {
        log.wal.write(hub);
        log.release(&mut spare);
    }
}
