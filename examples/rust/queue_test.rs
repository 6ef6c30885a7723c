//! A separate queue for each Rust test, in the process of the test: cargo test --test queue_test
//!
//! Copy this file to the directory `tests` of a project that has beanpole among its dev-dependencies.

use std::time::Duration;

use beanpole::{Client, Config, ManualClock, Server};

/// A queue on a free port. It stops when the test ends. Its time passes only when a test advances the clock.
struct Queue {
    server: Server,
    clock: ManualClock,
}

impl Queue {
    fn start() -> Queue {
        let (server, clock) = Server::with_manual_clock(Config::embedded()).expect("a server");
        Queue { server, clock }
    }

    fn connect(&self) -> Client {
        Client::connect(self.server.address()).expect("a connection")
    }
}

#[test]
fn a_job_is_delivered() {
    let queue = Queue::start();
    let id = queue.connect().put(b"hello", 0, 0, 60).expect("an ID");
    let job = queue.connect().reserve(Some(0)).expect("a reply").expect("a job");
    assert_eq!((job.id, job.body.as_slice()), (id, b"hello".as_slice()));
}

#[test]
fn a_failed_job_is_tried_again_after_a_delay() {
    let queue = Queue::start();
    let mut worker = queue.connect();
    worker.set_tube("default", "try:2:10").expect("a reply");
    let id = worker.put(b"hello", 0, 0, 60).expect("an ID");
    assert!(worker.reserve(Some(0)).expect("a reply").is_some());
    worker.fail(id, 0, b"no such host").expect("a reply");
    assert!(worker.reserve(Some(0)).expect("a reply").is_none());
    queue.clock.advance(Duration::from_secs(20));
    assert!(worker.reserve(Some(0)).expect("a reply").is_some());
}
