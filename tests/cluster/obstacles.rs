//! Tests, with the real program, obstacles that must not prevent a takeover.
//!
//! Owns slow disks.

use std::time::Duration;

use super::daemon::can_preload;
use super::engine::Served;
use super::member::Clocks;

/// A takeover takes longer than a lease, because it syncs several files.
#[test]
fn a_server_with_a_slow_disk_becomes_active() {
    if !can_preload() {
        return;
    }
    let (served, clocks) = (Served::start(), Clocks::new());
    clocks.delay_syncs(Duration::from_millis(300));
    let member = clocks.start(&served, "a");
    member.daemon.wait_log("active as a, epoch ");
    member.wait_active();
    assert_eq!(member.figure("epoch"), "1", "{}", member.daemon.log());
}
