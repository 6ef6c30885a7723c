//! Beanstalk producers and workers that record acknowledged and completed jobs.

use std::collections::BTreeSet;
use std::sync::Mutex;

use beanpole::Client;

use crate::{Done, Stage};

/// The number of unfinished jobs above which producers pause.
const WAITING: usize = 2000;

#[derive(Default)]
pub struct Book {
    /// The acknowledged jobs that have not been completed yet.
    open: Mutex<BTreeSet<u64>>,
    pub done: Done,
}

impl Book {
    /// Deletes the remaining jobs after all workers have stopped. Each of these jobs must exist.
    pub fn settle(&self, client: &mut Client, tube: &str) {
        client.use_tube(tube).expect("a tube");
        client.kick(1_000_000).expect("a reply");
        for id in std::mem::take(&mut *self.open.lock().expect("an unpoisoned lock")) {
            client.delete(id).unwrap_or_else(|error| panic!("job {id} was acknowledged, but is missing: {error:?}"));
        }
    }
}

pub fn produce(connect: &dyn Fn() -> Client, tube: &str, stage: &Stage, book: &Book) {
    let mut client = connect();
    client.use_tube(tube).expect("a tube");
    let mut number = 0;
    while stage.goes_on() {
        if book.open.lock().expect("an unpoisoned lock").len() > WAITING {
            std::thread::yield_now();
            continue;
        }
        number += 1;
        let body = vec![b'x'; if number % 100 == 0 { 40_000 } else { number % 300 }];
        // The lock is held during the put, because a worker can receive the job before the producer receives the reply.
        let mut open = book.open.lock().expect("an unpoisoned lock");
        let id = client.put(&body, number as u32 % 5, u32::from(number % 50 == 0), 60).expect("a job");
        assert!(open.insert(id), "the ID {id} was assigned twice");
    }
}

pub fn work(connect: &dyn Fn() -> Client, tube: &str, stage: &Stage, book: &Book) {
    let begin = || {
        let mut client = connect();
        client.use_tube(tube).expect("a tube");
        client.watch(tube).expect("a tube");
        if tube != "default" {
            client.ignore("default").expect("a tube");
        }
        client
    };
    let mut client = begin();
    let mut number = 0u64;
    while stage.goes_on() {
        let Some(job) = client.reserve(Some(1)).expect("a reply") else { continue };
        number += 1;
        match number % 10 {
            0 => client.release(job.id, 1, 0).expect("a job reserved by this client"),
            1 => {
                client.bury(job.id, 1).expect("a job reserved by this client");
                client.kick_job(job.id).expect("a buried job");
            }
            _ => {
                client.delete(job.id).expect("a job reserved by this client");
                assert!(
                    book.open.lock().expect("an unpoisoned lock").remove(&job.id),
                    "job {} was completed twice",
                    job.id
                );
                book.done.add(1);
            }
        }
        if number % 500 == 0 {
            client = begin();
        }
    }
}
