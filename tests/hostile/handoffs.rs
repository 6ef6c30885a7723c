//! Tests the order of replies when one thread delivers a job to a waiting client while another thread executes this
//! client's next command.
//!
//! Each connection must receive its replies in the order of its commands: RESERVED before the reply to the command
//! after the reserve.

use std::collections::HashSet;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::Duration;

use crate::daemon::{Daemon, Folder};
use crate::wire::{calm, put, Random, Wire};

const CHAINS: usize = 40;
const LINKS: usize = 250;

const TALKERS: usize = 8;
const TALKS: usize = 1250;

/// Sends many reserves in one write, each followed by another command. Returns the IDs of the received jobs. The jobs
/// stay reserved, so that a second delivery is detected.
fn chain(daemon: &Daemon, number: usize) -> (Wire, Vec<u64>) {
    let mut worker = Wire::to(daemon);
    worker.send("watch chain\r\nignore default\r\n");
    worker.send((0..LINKS).map(|link| format!("reserve\r\nuse c{number}-{link}\r\n")).collect::<String>());
    worker.expect("WATCHING 2");
    worker.expect("WATCHING 1");
    let mut ids = Vec::new();
    for link in 0..LINKS {
        ids.push(worker.job().0);
        worker.expect(&format!("USING c{number}-{link}"));
    }
    (worker, ids)
}

/// Repeatedly makes another thread put a job, sends a reserve at about the same time, and sends more commands after a
/// short random pause. Returns the IDs of the received jobs.
fn talk(daemon: &Daemon, seed: u64, request: Sender<()>) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut worker = Wire::to(daemon);
    worker.send("watch talk\r\nignore default\r\n");
    worker.expect("WATCHING 2");
    worker.expect("WATCHING 1");
    let mut ids = Vec::new();
    for _ in 0..TALKS {
        request.send(()).expect("a producer");
        worker.send("reserve\r\n");
        pause(&mut random);
        worker.send("stats-job 18446744073709551615\r\nlist-tube-used\r\n");
        let (id, body) = worker.job();
        assert_eq!(body, b"talk");
        worker.expect("NOT_FOUND");
        worker.expect("USING default");
        worker.ask(&format!("delete {id}"), "DELETED");
        ids.push(id);
    }
    ids
}

fn serve_requests(daemon: &Daemon, seed: u64, requests: &Receiver<()>) {
    let mut random = Random::new(seed);
    let mut producer = Wire::to(daemon);
    producer.ask("use talk", "USING talk");
    for () in requests {
        pause(&mut random);
        assert!(producer.put(b"talk", 600) > 0);
    }
}

/// In half of the cases, returns immediately. Otherwise, sleeps or spins for a short random time.
fn pause(random: &mut Random) {
    match random.below(4) {
        0 => std::thread::sleep(Duration::from_micros(random.below(60))),
        1 => (0..random.below(2000)).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

fn every_reply_in_its_place(arguments: &[&str]) {
    let daemon = &Daemon::start(arguments);
    let mut ids: Vec<u64> = Vec::new();
    // The connections must stay open, because closing them would release the jobs.
    let mut holders = Vec::new();
    std::thread::scope(|scope| {
        let chains: Vec<_> = (0..CHAINS).map(|number| scope.spawn(move || chain(daemon, number))).collect();
        let mut talkers = Vec::new();
        for pair in 0..TALKERS as u64 / 2 {
            let (request, requests) = channel();
            for seed in [2 * pair, 2 * pair + 1] {
                let request = request.clone();
                talkers.push(scope.spawn(move || talk(daemon, seed, request)));
            }
            scope.spawn(move || serve_requests(daemon, 100 + pair, &requests));
        }
        for _ in 0..2 {
            scope.spawn(move || {
                let mut producer = Wire::to(daemon);
                producer.ask("use chain", "USING chain");
                // Sends up to seven puts at once, so that one batch of commands can serve several workers.
                let mut left = CHAINS * LINKS / 2;
                let mut burst = 0;
                while left > 0 {
                    burst = (burst % 7 + 1).min(left);
                    producer.send(put(b"chain", 600).repeat(burst));
                    (0..burst).for_each(|_| assert!(producer.line().starts_with("INSERTED ")));
                    left -= burst;
                }
            });
        }
        for handle in talkers {
            ids.extend(handle.join().expect("a worker"));
        }
        for handle in chains {
            let (worker, taken) = handle.join().expect("a worker");
            ids.extend(taken);
            holders.push(worker);
        }
    });
    let different: HashSet<u64> = ids.iter().copied().collect();
    assert_eq!((ids.len(), different.len()), (CHAINS * LINKS + TALKERS * TALKS, ids.len()));
    drop(holders);
    calm(daemon);
}

#[test]
fn with_one_thread() {
    every_reply_in_its_place(&["-t", "1"]);
}

#[test]
fn with_four_threads() {
    every_reply_in_its_place(&["-t", "4"]);
}

/// With a log, some replies wait until a record has been written.
#[test]
fn with_a_log() {
    let folder = Folder::new();
    let log = folder.file("log");
    std::fs::create_dir(&log).expect("a directory for the log");
    let log = log.to_str().expect("valid UTF-8");
    every_reply_in_its_place(&["-t", "4", "-f", "0", "-b", log]);
}
