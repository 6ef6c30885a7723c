//! The threads of the log: one syncs, one looks after the segments, and one writes what pool threads do not.
//!
//! Owns what each does in a round. `durability` decides when a round begins.

use std::time::Duration;

use super::durability::Durability;
use super::hub::Hub;
use super::segments;
use crate::binlog::SyncMode;
use crate::protocol::Output;

/// The syncer rests for so long: clients that its sync has answered say something again, and share the next one.
const GATHER: Duration = Duration::from_millis(1);

/// What one of these threads runs.
pub type Run = fn(&Hub, &Durability);

/// The log's own threads: their names and what they run. With `-f0`, who syncs writes as well.
pub fn threads(log: &Durability) -> Vec<(&'static str, Run)> {
    let writer = (log.wal().mode() != SyncMode::Always).then_some(("writer", run_writer as Run));
    [("syncer", run_syncer as Run), ("segments", segments::run as Run)].into_iter().chain(writer).collect()
}

/// The syncer thread: runs until [`Durability::stop`].
fn run_syncer(hub: &Hub, log: &Durability) {
    let mut spare = Output::new();
    while log.wait_to_sync() {
        log.sync(hub, &mut spare);
        std::thread::sleep(GATHER);
    }
}

/// The writer thread: writes when a pool thread would have to wait for the disk. Runs until [`Durability::stop`].
fn run_writer(hub: &Hub, log: &Durability) {
    let mut spare = Output::new();
    while log.wait_to_write() {
        log.wal().write(hub);
        log.release(&mut spare);
    }
}
