//! Tests that another worker gets the job of a dead worker within the time limit, for all combinations of the
//! producer's and the worker's protocols.

use std::time::Duration;

use beanpole::Config;

use crate::script::{Patience, Wire, World};
use crate::talk::packet;
use crate::within::{Pieces, Within};

const UUID: &str = "11111111-1111-4111-8111-111111111111";

/// The way in which a worker dies: its connection closes, or stays open without traffic.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Death {
    Closed,
    Silent,
}

use Death::{Closed, Silent};

/// A way to put a job into the tube `f`: the name, the protocol, the input, and the time to run in seconds, if any.
type Producer = (&'static str, Wire, fn() -> Vec<u8>, Option<u64>);

const PRODUCERS: [Producer; 5] = [
    ("put", Wire::Beanstalk, || b"use f\r\nput 0 0 10 1\r\nx\r\n".to_vec(), Some(10)),
    ("SUBMIT_JOB_BG", Wire::Gearman, || packet(18, b"f\0u\0x"), None),
    ("SUBMIT_JOB", Wire::Gearman, || packet(7, b"f\0u\0x"), None),
    ("add", Wire::Workq, || format!("add {UUID} f 10000 86400000 1\r\nx\r\n").into_bytes(), Some(10)),
    ("run", Wire::Workq, || format!("run {UUID} f 10000 86400000 1\r\nx\r\n").into_bytes(), Some(10)),
];

/// A way to reserve the job: the name, the protocol, the input, the expected prefix of the reply, and the worker's own
/// time limit in seconds, if any.
type Worker = (&'static str, Wire, fn() -> Vec<u8>, &'static [u8], Option<u64>);

const WORKERS: [Worker; 4] = [
    ("reserve", Wire::Beanstalk, || b"watch f\r\nreserve\r\n".to_vec(), b"WATCHING 2\r\nRESERVED 1 1\r\n", None),
    ("CAN_DO", Wire::Gearman, || [packet(1, b"f"), packet(9, b"")].concat(), b"\0RES\0\0\0\x0b", None),
    (
        "CAN_DO_TIMEOUT",
        Wire::Gearman,
        || [packet(23, b"f\x005000"), packet(9, b"")].concat(),
        b"\0RES\0\0\0\x0b",
        Some(5),
    ),
    ("lease", Wire::Workq, || b"lease f 0\r\n".to_vec(), b"+OK 1\r\n", None),
];

/// Returns the number of seconds after which another worker must get the job, or `None` without a time limit.
fn limit(producer: &Producer, worker: &Worker, death: Death, lease_limit: u64) -> Option<u64> {
    match (worker.1, death) {
        // The lease of a dead Workq worker ends only when the time limit expires. The connection's state has no effect.
        (Wire::Workq, _) => Some(producer.3.unwrap_or(lease_limit)),
        (_, Closed) => Some(0),
        (_, Silent) => producer.3.into_iter().chain(worker.4).min(),
    }
}

fn is_free(world: &mut Within) -> bool {
    world.send("rescuer", b"reserve-with-timeout 0\r\n");
    let answer = world.receive("rescuer", Patience::Must);
    let taken = answer.starts_with(b"RESERVED 1 1\r\nx\r\n");
    assert!(taken || answer == b"TIMED_OUT\r\n", "{}", answer.escape_ascii());
    taken
}

#[test]
fn a_dead_worker_never_holds_a_job_beyond_its_limit() {
    let config = Config::embedded();
    for producer in &PRODUCERS {
        for worker in &WORKERS {
            for death in [Closed, Silent] {
                let case = format!("{} for {}, {death:?}", producer.0, worker.0);
                let Some(limit) = limit(producer, worker, death, config.lease_limit.into()) else { continue };
                let mut world = Within::new(&config, Pieces::AsSent);
                let names = [("producer", producer.1), ("worker", worker.1), ("rescuer", Wire::Beanstalk)];
                names.iter().for_each(|(name, wire)| world.open(name, *wire).expect("a connection"));
                world.send("rescuer", b"watch f\r\n");
                world.receive("rescuer", Patience::Must);
                world.send("producer", &producer.2());
                world.send("worker", &worker.2());
                let taken = world.receive("worker", Patience::Must);
                assert!(taken.starts_with(worker.3), "{case}: {}", taken.escape_ascii());
                if death == Closed {
                    world.close("worker");
                }
                if limit > 0 {
                    world.pass(Duration::from_millis(limit * 1000 - 1));
                    assert!(!is_free(&mut world), "{case}: the job was released before {limit} s");
                    world.pass(Duration::from_millis(1));
                }
                assert!(is_free(&mut world), "{case}: the job was not released after {limit} s");
            }
        }
    }
}
