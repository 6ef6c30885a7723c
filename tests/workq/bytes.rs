//! Measures the memory that the optimized program uses for a job.
//!
//! Owns the limits. The original Workq server uses 4.0 kB for a waiting job and 8.4 kB for a finished one.

use super::crowd::{id, Client};
use crate::daemon::Daemon;

/// The number of jobs. It is so high that the fixed memory usage of the program is negligible.
const JOBS: u64 = 200_000;

const BATCH: u64 = 1000;

#[test]
fn jobs_and_results_use_little_memory() {
    let daemon = Daemon::start(&["--workq=127.0.0.1:0"]);
    let address = daemon.names().iter().find_map(|name| name.strip_suffix(" (Workq)")?.parse().ok());
    let mut client = Client::connect(address.expect("an address for Workq"));
    let result = "y".repeat(100);
    let empty = daemon.rss();
    client.add("shared", 0..JOBS);
    let waiting = (daemon.rss() - empty) / JOBS;
    for first in (0..JOBS).step_by(BATCH as usize) {
        let batch = first..JOBS.min(first + BATCH);
        let lines: String =
            batch.clone().map(|number| format!("complete {} 100\r\n{result}\r\n", id(number))).collect();
        client.send(&lines);
        batch.for_each(|_| client.ok());
    }
    let finished = (daemon.rss() - empty) / JOBS;
    println!(
        "bytes per job: {waiting} waiting with a body of 100 bytes, {finished} finished with a result of 100 bytes"
    );
    assert!(waiting <= 320 && finished <= 420);
}
