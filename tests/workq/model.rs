//! A naive model of Workq. Tests run random schedules on a virtual clock, and compare the model's replies with the
//! server's replies.
//!
//! Owns a simple implementation of Workq, which uses linear searches. Must not share code with the server. Commands are
//! at least a microsecond apart and all durations are whole milliseconds, so that events are rarely simultaneous. If
//! two events are simultaneous, the schedule ends.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A time in microseconds since the beginning of the schedule.
pub type Micros = u64;

#[derive(Clone, PartialEq, Debug)]
pub enum State {
    New,
    Pending,
    Scheduled,
    Leased { until: Micros },
    Over { done: bool, result: String },
}

#[derive(Clone, Debug)]
pub struct Job {
    pub id: String,
    pub queue: char,
    pub ttr: Micros,
    pub ttl: Option<Micros>,
    pub start: Option<Micros>,
    pub expires: Option<Micros>,
    pub pri: i32,
    pub max_attempts: u32,
    pub max_fails: u32,
    pub attempts: u32,
    pub fails: u32,
    pub state: State,
    number: u64,
    run: bool,
    /// `true` if the job must not be attempted again, because no client waits for its outcome anymore.
    last_try: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Wait {
    Lease { queues: Vec<char>, since: u64 },
    Result { id: String },
    Run { id: String },
}

#[derive(Default)]
pub struct Model {
    pub now: Micros,
    pub jobs: Vec<Job>,
    pub waiting: BTreeMap<String, (Wait, Micros)>,
    /// For each client, the output that the server must have sent since the last comparison.
    pub received: BTreeMap<String, String>,
    pub evicted: u64,
    count: u64,
}

#[derive(Clone, PartialEq, Debug)]
enum Alarm {
    Expire(String),
    Start(String),
    LeaseEnds(String),
    WaitEnds(String),
}

impl Model {
    pub fn job(&self, id: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.id == id)
    }

    fn job_mut(&mut self, id: &str) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.id == id).expect("a job")
    }

    pub fn say(&mut self, who: &str, text: &str) {
        let received = self.received.entry(who.to_owned()).or_default();
        write!(received, "{text}\r\n").expect("a write to a string");
    }

    fn tell(&mut self, who: &str, id: &str, done: bool, result: &str) {
        self.waiting.remove(who);
        self.say(who, &format!("+OK 1\r\n{id} {} {}\r\n{result}", u8::from(done), result.len()));
    }

    fn waiters(&self, id: &str) -> Vec<String> {
        let for_it = |wait: &Wait| matches!(wait, Wait::Result { id: of } | Wait::Run { id: of } if of == id);
        self.waiting.iter().filter(|(_, (wait, _))| for_it(wait)).map(|(who, _)| who.clone()).collect()
    }

    /// Returns the first ready job of a queue. Higher priorities come first. Within a priority, unscheduled jobs come
    /// first, then scheduled jobs in the order of their times. Among equal jobs, older jobs precede newer jobs.
    pub fn head(&self, queue: char) -> Option<&Job> {
        let ready =
            self.jobs.iter().filter(|job| job.queue == queue && matches!(job.state, State::New | State::Pending));
        ready.min_by_key(|job| (-i64::from(job.pri), job.start, job.number))
    }

    pub fn lease(&mut self, who: &str, id: &str) {
        let now = self.now;
        let job = self.job_mut(id);
        job.attempts += 1;
        job.state = State::Leased { until: now + job.ttr };
        let text = format!("+OK 1\r\n{id} {} {} 1\r\nx", job.queue, job.ttr / 1000);
        self.waiting.remove(who);
        self.say(who, &text);
    }

    fn serve(&mut self, queue: char) {
        while let Some(id) = self.head(queue).map(|job| job.id.clone()) {
            let asks = |wait: &Wait| match wait {
                Wait::Lease { queues, since } if queues.contains(&queue) => Some(*since),
                _ => None,
            };
            let first = self.waiting.iter().filter_map(|(who, (wait, _))| Some((asks(wait)?, who.clone()))).min();
            let Some((_, who)) = first else { return };
            self.lease(&who, &id);
        }
    }

    pub fn start_waiting(&mut self, who: &str, wait: Wait, millis: u64) {
        self.waiting.insert(who.to_owned(), (wait, self.now + millis * 1000));
    }

    pub fn turn(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Adds the job of an `add`, `schedule` or `run`. Returns `false` if the ID exists.
    pub fn put(&mut self, mut job: Job, run: bool) -> bool {
        if self.job(&job.id).is_some() {
            return false;
        }
        (job.number, job.run) = (self.turn(), run);
        if job.start.is_some_and(|start| start > self.now) {
            job.state = State::Scheduled;
        }
        job.expires = job.ttl.map(|ttl| job.start.unwrap_or(self.now) + ttl);
        self.jobs.push(job);
        true
    }

    pub fn settle(&mut self, queue: char) {
        self.serve(queue);
    }

    fn remove(&mut self, id: &str) {
        self.jobs.retain(|job| job.id != id);
        for who in self.waiters(id) {
            self.waiting.remove(&who);
            self.say(&who, "-NOT-FOUND");
        }
    }

    fn finish(&mut self, id: &str, done: bool, result: &str) {
        for who in self.waiters(id) {
            self.tell(&who, id, done, result);
        }
        if self.job(id).expect("a job").run {
            self.jobs.retain(|job| job.id != id);
        } else {
            self.job_mut(id).state = State::Over { done, result: result.to_owned() };
        }
    }

    pub fn complete(&mut self, who: &str, id: &str, done: bool, result: &str) {
        let answer = match self.job(id).map(|job| &job.state) {
            None => "-NOT-FOUND",
            Some(State::Over { .. }) => "-CLIENT-ERROR Duplicate result",
            Some(_) => "+OK",
        };
        self.say(who, answer);
        if answer != "+OK" {
            return;
        }
        let job = self.job_mut(id);
        job.fails += u32::from(!done);
        let spent = job.max_attempts > 0 && job.attempts >= job.max_attempts;
        if done || job.run || spent || job.fails >= job.max_fails {
            self.finish(id, done, result);
        } else if matches!(job.state, State::Leased { .. }) {
            job.state = State::Pending;
            let queue = job.queue;
            self.serve(queue);
        }
    }

    pub fn delete(&mut self, who: &str, id: &str) {
        let found = self.job(id).is_some();
        self.remove(id);
        self.say(who, if found { "+OK" } else { "-NOT-FOUND" });
    }

    pub fn result(&mut self, who: &str, id: &str, millis: u64) {
        match self.job(id).map(|job| job.state.clone()) {
            None => self.say(who, "-NOT-FOUND"),
            Some(State::Over { done, result }) => self.tell(who, id, done, &result),
            Some(_) if millis == 0 => self.say(who, "-TIMEOUT"),
            Some(_) => self.start_waiting(who, Wait::Result { id: id.to_owned() }, millis),
        }
    }

    pub fn close(&mut self, who: &str) {
        self.received.remove(who);
        if let Some((Wait::Run { id }, _)) = self.waiting.remove(who) {
            let job = self.job_mut(&id);
            if matches!(job.state, State::Leased { .. }) {
                job.last_try = true;
            } else {
                self.remove(&id);
            }
        }
    }

    fn alarms(&self) -> Vec<(Micros, Alarm)> {
        let mut all = Vec::new();
        for job in &self.jobs {
            all.extend(job.expires.map(|at| (at, Alarm::Expire(job.id.clone()))));
            match job.state {
                State::Leased { until } => all.push((until, Alarm::LeaseEnds(job.id.clone()))),
                State::Scheduled => all.push((job.start.expect("a schedule"), Alarm::Start(job.id.clone()))),
                _ => {}
            }
        }
        all.extend(self.waiting.iter().map(|(who, (_, until))| (*until, Alarm::WaitEnds(who.clone()))));
        all
    }

    /// Advances the clock. Returns `false` if two events are simultaneous, because their order is undefined.
    pub fn pass(&mut self, span: Micros) -> bool {
        let target = self.now + span;
        loop {
            let mut alarms = self.alarms();
            alarms.sort_by_key(|(at, _)| *at);
            match alarms.as_slice() {
                [(first, _), (second, _), ..] if first == second && *first <= target => return false,
                [(at, alarm), ..] if *at <= target => {
                    self.now = *at;
                    self.ring(&alarm.clone());
                }
                _ => break,
            }
        }
        self.now = target;
        true
    }

    fn ring(&mut self, alarm: &Alarm) {
        match alarm {
            Alarm::Expire(id) => {
                self.evicted += u64::from(!matches!(self.job(id).expect("a job").state, State::Over { .. }));
                self.remove(id);
            }
            Alarm::Start(id) => {
                let job = self.job_mut(id);
                job.state = if job.attempts > 0 { State::Pending } else { State::New };
                let queue = job.queue;
                self.serve(queue);
            }
            Alarm::LeaseEnds(id) => {
                let job = self.job_mut(id);
                let (queue, spent) = (job.queue, job.max_attempts > 0 && job.attempts >= job.max_attempts);
                if job.last_try {
                    self.end_run(id);
                } else if spent {
                    self.finish(id, false, "");
                } else {
                    job.state = State::Pending;
                    self.serve(queue);
                }
            }
            Alarm::WaitEnds(who) => self.wait_ends(who),
        }
    }

    /// Removes a job of a `run` that ends without an outcome. If its client still waits, sends a timeout to the client.
    fn end_run(&mut self, id: &str) {
        let runs = |wait: &Wait| matches!(wait, Wait::Run { id: of } if of == id);
        let client = self.waiting.iter().find(|(_, (wait, _))| runs(wait)).map(|(who, _)| who.clone());
        if let Some(who) = client {
            self.waiting.remove(&who);
            self.say(&who, "-TIMEOUT");
        }
        self.remove(id);
    }

    fn wait_ends(&mut self, who: &str) {
        let (wait, _) = self.waiting.get(who).expect("a waiting client").clone();
        let Wait::Run { id } = wait else {
            self.waiting.remove(who);
            return self.say(who, "-TIMEOUT");
        };
        let now = self.now;
        let job = self.job_mut(&id);
        match job.state {
            State::Leased { until } if until > now => {
                job.last_try = true;
                self.waiting.insert(who.to_owned(), (Wait::Run { id }, Micros::MAX));
            }
            _ => self.end_run(&id),
        }
    }

    /// Returns the reply to `inspect job` up to the key `created`. Durations are converted to the protocol's units.
    pub fn inspect(&self, id: &str) -> String {
        let Some(job) = self.job(id) else { return "-NOT-FOUND\r\n".to_owned() };
        let state = match job.state {
            State::Over { done: true, .. } => 1,
            State::Over { done: false, .. } => 2,
            State::Leased { .. } => 4,
            _ if job.attempts > 0 => 3,
            _ => 0,
        };
        let keys = 12 + u32::from(job.start.is_some());
        let Job { queue, max_attempts, attempts, max_fails, fails, pri, .. } = job;
        let (ttr, ttl) = (job.ttr / 1000, job.ttl.unwrap_or(0) / 1000);
        format!(
            "+OK 1\r\n{id} {keys}\r\nname {queue}\r\nttr {ttr}\r\nttl {ttl}\r\npayload-size 1\r\npayload x\r\n\
             max-attempts {max_attempts}\r\nattempts {attempts}\r\nmax-fails {max_fails}\r\nfails {fails}\r\n\
             priority {pri}\r\nstate {state}\r\ncreated "
        )
    }

    /// Returns the number of ready jobs and the number of scheduled jobs, as in the reply to `inspect queue`.
    pub fn counts(&self, queue: char) -> (usize, usize) {
        let count =
            |fits: fn(&State) -> bool| self.jobs.iter().filter(|job| job.queue == queue && fits(&job.state)).count();
        (count(|state| matches!(state, State::New | State::Pending)), count(|state| *state == State::Scheduled))
    }
}

impl Job {
    pub fn new(id: &str, queue: char, ttr: Micros) -> Job {
        Job {
            id: id.to_owned(),
            queue,
            ttr,
            ttl: None,
            start: None,
            expires: None,
            pri: 0,
            max_attempts: 0,
            max_fails: 0,
            attempts: 0,
            fails: 0,
            state: State::New,
            number: 0,
            run: false,
            last_try: false,
        }
    }
}
