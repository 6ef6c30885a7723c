//! The log's threads: syncers, the thread that maintains segments, and the writer for what pool threads do not write.
//!
//! Owns the work of one round of each. `durability` decides when a round starts.

use std::time::Duration;

use super::durability::Durability;
use super::hub::Hub;
use super::segments;
use crate::binlog::SyncMode;
use crate::protocol::Output;

/// The syncer's longest pause after each sync: clients answered by that sync send new commands, which share the next
/// one. It ends when all of them have done so, which is checked this many times.
const GATHER: Duration = Duration::from_millis(1);
const LOOKS: u32 = 8;

/// The main function of such a thread.
pub type Run = fn(&Hub, &Durability);

/// Returns the log's threads: their names and functions. With `-f0`, the syncer also writes.
pub fn threads(log: &Durability) -> Vec<(&'static str, Run)> {
    let writer = (log.wal().mode() != SyncMode::Always).then_some(("writer", run_writer as Run));
    let syncers = std::iter::repeat_n(("syncer", run_syncer as Run), log.wal().syncs_at_once());
    syncers.chain([("segments", segments::run as Run)]).chain(writer).collect()
}

/// A syncer thread: runs until [`Durability::stop`].
fn run_syncer(hub: &Hub, log: &Durability) {
    let mut spare = Output::new();
    while log.wait_to_sync() {
        let released = log.sync(hub, &mut spare);
        for _ in 0..LOOKS {
            if log.has_gathered(released) {
                break;
            }
            std::thread::sleep(GATHER / LOOKS);
        }
        log.synced();
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
