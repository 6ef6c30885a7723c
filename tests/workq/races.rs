//! Executes random schedules with the server's code and with the model, and compares the results.

use std::time::Duration;

use super::model::{Job, Model, State, Wait};
use super::random::Random;
use crate::script::{Patience, Wire, World};
use crate::within::{Pieces, Within};

const CLIENTS: usize = 4;
const IDS: u64 = 5;
const QUEUES: [char; 3] = ['a', 'b', 'c'];

/// A random schedule that runs on the server and on the model.
struct Race {
    random: Random,
    server: Within,
    model: Model,
    clients: Vec<String>,
    opened: usize,
    /// The executed commands, for error messages.
    history: Vec<String>,
}

impl Race {
    fn new(seed: u64) -> Race {
        let mut race = Race {
            random: Random::new(seed),
            server: Within::new(&beanpole::Config::embedded(), Pieces::AsSent),
            model: Model::default(),
            clients: Vec::new(),
            opened: 0,
            history: Vec::new(),
        };
        for _ in 0..CLIENTS {
            let who = race.open();
            race.clients.push(who);
        }
        race
    }

    fn open(&mut self) -> String {
        self.opened += 1;
        let who = format!("W{}", self.opened);
        self.server.open(&who, Wire::Workq).expect("a connection");
        who
    }

    fn send(&mut self, who: &str, text: &str) {
        self.history.push(format!("{} us {who}: {text}", self.model.now));
        self.server.send(who, text.as_bytes());
    }

    fn got(&mut self, who: &str) -> String {
        String::from_utf8(self.server.receive(who, Patience::MustNot)).expect("text")
    }

    fn fail(&self, problem: &str) -> ! {
        let last = &self.history[self.history.len().saturating_sub(30)..];
        panic!("{problem}\n{}", last.join("\n"));
    }

    fn compare(&mut self) {
        for who in self.clients.clone() {
            let (got, expected) = (self.got(&who), self.model.received.remove(&who).unwrap_or_default());
            if got != expected {
                self.fail(&format!("{who} got {got:?} instead of {expected:?}"));
            }
        }
    }

    fn pass(&mut self, micros: u64) -> bool {
        let whole = self.model.pass(micros);
        if whole {
            self.history.push(format!("+{micros} us"));
            self.server.pass(Duration::from_micros(micros));
            self.compare();
        }
        whole
    }

    fn id(&mut self) -> String {
        format!("00000000-0000-4000-8000-00000000000{}", self.random.below(IDS))
    }

    fn millis(&mut self) -> u64 {
        let max = self.random.pick(&[3, 40, 400]);
        1 + self.random.below(max)
    }

    /// After a random pause, chooses a client. This client disconnects or, unless it waits, executes a command. Returns
    /// `false` if the schedule ends.
    fn step(&mut self) -> bool {
        let idle = if self.random.below(3) == 0 { self.millis() * 1000 } else { 0 };
        if !self.pass(idle + 1) {
            return false;
        }
        let index = self.random.below(CLIENTS as u64) as usize;
        let who = self.clients[index].clone();
        if self.random.below(40) == 0 {
            return self.leave(index, &who);
        }
        if self.model.waiting.contains_key(&who) {
            return true;
        }
        match self.random.below(16) {
            0..=2 => self.add(&who),
            3 => self.run(&who),
            4..=7 => self.lease(&who),
            8..=11 => self.complete(&who),
            12 => {
                let id = self.id();
                self.send(&who, &format!("delete {id}\r\n"));
                self.model.delete(&who, &id);
            }
            13 => {
                let (id, wait) = (self.id(), if self.random.below(4) == 0 { 0 } else { self.millis() });
                self.send(&who, &format!("result {id} {wait}\r\n"));
                self.model.result(&who, &id, wait);
            }
            _ => self.inspect(&who),
        }
        self.compare();
        true
    }

    fn leave(&mut self, index: usize, who: &str) -> bool {
        self.history.push(format!("{who} closes"));
        self.server.close(who);
        self.model.close(who);
        self.clients[index] = self.open();
        self.compare();
        true
    }

    fn any_job(&mut self) -> Job {
        let (id, queue, ttr) = (self.id(), self.random.pick(&QUEUES), self.millis() * 1000);
        let mut job = Job::new(&id, queue, ttr);
        job.pri = self.random.pick(&[0, 0, 0, -5, 7, i32::MAX, i32::MIN]);
        job
    }

    fn add(&mut self, who: &str) {
        let mut job = self.any_job();
        job.ttl = Some(1000 * (self.millis() + self.random.pick(&[0, 100, 1000])));
        job.max_attempts = self.random.pick(&[0, 0, 1, 2, 3]);
        job.max_fails = self.random.pick(&[0, 0, 1, 2, 3]);
        let mut time = String::new();
        if self.random.below(3) == 0 {
            let start = self.model.now / 1000 + self.millis();
            // Each command has a unique offset within its millisecond, in microseconds. A start time has the offset of
            // its command, so that no event of another command has the same time.
            let start = start * 1000 + self.model.now % 1000;
            job.start = Some(start);
            // The clock starts at 03:33:20.
            let (minute, second) = (33 + (20_000_000 + start) / 60_000_000, (20 + start / 1_000_000) % 60);
            time = format!(" 2033-05-18T03:{minute:02}:{second:02}.{:06}Z", start % 1_000_000);
        }
        let word = if time.is_empty() { "add" } else { "schedule" };
        let Job { id, queue, pri, max_attempts, max_fails, .. } = &job;
        let (ttr, ttl) = (job.ttr / 1000, job.ttl.unwrap_or_default() / 1000);
        let line = format!(
            "{word} {id} {queue} {ttr} {ttl}{time} 1 -priority={pri} -max-attempts={max_attempts} -max-fails={max_fails}\r\nx\r\n"
        );
        let queue = *queue;
        self.send(who, &line);
        let put = self.model.put(job, false);
        self.model.say(who, if put { "+OK" } else { "-CLIENT-ERROR Duplicate job" });
        self.model.settle(queue);
    }

    fn run(&mut self, who: &str) {
        let (job, wait) = (self.any_job(), self.millis());
        let Job { id, queue, pri, .. } = job.clone();
        self.send(who, &format!("run {id} {queue} {} {wait} 1 -priority={pri}\r\nx\r\n", job.ttr / 1000));
        if self.model.put(job, true) {
            self.model.start_waiting(who, Wait::Run { id }, wait);
            self.model.settle(queue);
        } else {
            self.model.say(who, "-CLIENT-ERROR Duplicate job");
        }
    }

    fn lease(&mut self, who: &str) {
        let count = 1 + self.random.below(3) as usize;
        let queues: Vec<char> = (0..count).map(|_| self.random.pick(&QUEUES)).collect();
        let wait = if self.random.below(3) == 0 { 0 } else { self.millis() };
        let names: String = queues.iter().map(|queue| format!("{queue} ")).collect();
        self.send(who, &format!("lease {names}{wait}\r\n"));
        let heads: Vec<String> =
            queues.iter().filter_map(|queue| self.model.head(*queue)).map(|job| job.id.clone()).collect();
        if heads.is_empty() {
            if wait == 0 {
                return self.model.say(who, "-TIMEOUT");
            }
            let since = self.model.turn();
            return self.model.start_waiting(who, Wait::Lease { queues, since }, wait);
        }
        // The server chooses a queue randomly. From this queue, it must return the first job.
        let got = self.got(who);
        let Some(id) = heads.into_iter().find(|id| got.contains(id.as_str())) else {
            self.fail(&format!("{who} got {got:?}, which is not the first job of a queue"));
        };
        self.model.lease(who, &id);
        let expected = self.model.received.remove(who);
        if expected.as_deref() != Some(&got) {
            self.fail(&format!("{who} got {got:?} instead of {expected:?}"));
        }
    }

    fn complete(&mut self, who: &str) {
        let leased: Vec<String> = self
            .model
            .jobs
            .iter()
            .filter(|job| matches!(job.state, State::Leased { .. }))
            .map(|job| job.id.clone())
            .collect();
        let id = if leased.is_empty() || self.random.below(4) == 0 { self.id() } else { self.random.pick(&leased) };
        let done = self.random.below(2) == 0;
        let result = format!("r{}", self.history.len());
        let word = if done { "complete" } else { "fail" };
        self.send(who, &format!("{word} {id} {}\r\n{result}\r\n", result.len()));
        self.model.complete(who, &id, done, &result);
    }

    fn inspect(&mut self, who: &str) {
        let id = self.id();
        self.send(who, &format!("inspect job {id}\r\n"));
        let (got, expected) = (self.got(who), self.model.inspect(&id));
        if !got.starts_with(&expected) {
            self.fail(&format!("{got:?} instead of {expected:?}"));
        }
        let queue = self.random.pick(&QUEUES);
        self.send(who, &format!("inspect queue {queue}\r\n"));
        let (got, (ready, scheduled)) = (self.got(who), self.model.counts(queue));
        let expected = format!("+OK 1\r\n{queue} 2\r\nready-len {ready}\r\nscheduled-len {scheduled}\r\n");
        // A queue without jobs exists only while a client waits in a lease that names it.
        let unused = got == "-NOT-FOUND\r\n" && !self.model.jobs.iter().any(|job| job.queue == queue);
        if got != expected && !unused {
            self.fail(&format!("{got:?} instead of {expected:?}"));
        }
        self.send(who, "inspect server\r\n");
        let got = self.got(who);
        if !got.contains(&format!("evicted-jobs {}\r\n", self.model.evicted)) {
            self.fail(&format!("{got:?} instead of {} evicted jobs", self.model.evicted));
        }
    }
}

/// Runs a schedule, which ends when two events are simultaneous. Returns the number of executed steps. Panics if the
/// replies of the server and of the model differ.
pub fn race(seed: u64, steps: usize) -> usize {
    let mut race = Race::new(seed);
    race.history.push(format!("seed {seed}"));
    (0..steps).take_while(|_| race.step()).count()
}
