//! Rates and bytes, of the program as it is built: run with `cargo test --release --test workq -- --ignored --nocapture`.
//!
//! Owns what is promised about them; prints what it finds. The original fell to a third of its rate with 50 connections on one
//! queue, sent some away beside waiting jobs, and took 4.0 kB for a waiting job and 8.4 kB for a finished one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::crowd::{id, Client};
use crate::daemon::Daemon;

/// Jobs that are leased for the rates.
const LEASES: u64 = 1_000_000;

/// Jobs that lie there for the bytes.
const JOBS: u64 = 500_000;

/// Jobs that a client adds or completes in one write.
const BATCH: u64 = 1000;

fn start() -> (Daemon, SocketAddr) {
    let daemon = Daemon::start(&["--workq=127.0.0.1:0"]);
    let address = daemon.names().iter().find_map(|name| name.strip_suffix(" (Workq)")?.parse().ok());
    (daemon, address.expect("an address for Workq"))
}

/// Leases so many jobs of one queue over some connections, each of which asks again as soon as it has its answer, from two
/// threads. Every lease gets a job, and no job comes twice.
fn lease(address: SocketAddr, connections: u64, count: u64, seen: &mut [bool]) -> Duration {
    let threads = connections.min(2);
    let per_connection = count / connections;
    let work = || {
        let mut clients: Vec<Client> = (0..connections / threads).map(|_| Client::connect(address)).collect();
        let mut got = Vec::new();
        for _ in 0..per_connection {
            clients.iter_mut().for_each(|client| client.send("lease shared 1000\r\n"));
            got.extend(clients.iter_mut().map(|client| client.leased().expect("a job, for there are more")));
        }
        got
    };
    let begin = Instant::now();
    let got: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread that ends")).collect()
    });
    let took = begin.elapsed();
    for id in &got {
        let number = u64::from_str_radix(&id[24..], 16).expect("a number") as usize;
        assert!(!std::mem::replace(&mut seen[number], true), "{id} was leased twice");
    }
    assert_eq!(got.len() as u64, count);
    took
}

#[test]
#[ignore = "takes a while, and its figures mean something on a quiet machine only"]
fn fifty_connections_lease_faster_than_one() {
    let (_daemon, address) = start();
    let mut client = Client::connect(address);
    let mut seen = vec![false; LEASES as usize];
    client.add("shared", 0..LEASES);
    let (mut alone, mut together) = (Duration::ZERO, Duration::ZERO);
    // In turns, so that both have the same machine.
    for _ in 0..10 {
        alone += lease(address, 1, LEASES / 100, &mut seen);
        together += lease(address, 50, LEASES / 100 * 9, &mut seen);
    }
    let alone = (LEASES / 10) as f64 / alone.as_secs_f64();
    let together = (LEASES / 10 * 9) as f64 / together.as_secs_f64();
    println!("leases a second: {alone:.0} over one connection, {together:.0} over 50: {:.2} times", together / alone);
    assert!(seen.into_iter().all(|seen| seen), "a job was never leased");
    assert!(together >= 1.3 * alone);
}

#[test]
#[ignore = "takes a while"]
fn jobs_and_results_take_little_memory() {
    let (daemon, address) = start();
    let mut client = Client::connect(address);
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
    println!("bytes a job: {waiting} waiting with 100 bytes, {finished} finished with a result of 100 more");
    assert!(waiting <= 300 && finished <= 400);
}
