//! A lane: a client that executes commands in sequence and records their effects in a book.
//!
//! Owns the random choice of commands, and the lines in the trace (marks) that describe the commands. Each client uses
//! its own tubes. Must not check the state after a cut.

use std::collections::BTreeMap;
use std::io::Result;
use std::sync::Arc;
use std::time::Duration;

use crate::act::{Act, Reply, GEARMAN_PRIORITIES, IMPORT_DELAY, LONG};
use crate::book::Book;
use crate::change::{Body, Change, Wire};
use crate::check::{prefix, Check, Problem};
use crate::daemon::Daemon;
use crate::lanes::Promise;
use crate::random::Random;
use crate::reference::State;
use crate::talk::{packet, Talk, CAN_DO};
use crate::trace::Trace;
use crate::web::LARGEST;

/// The number of jobs above which the client usually processes or deletes jobs instead of putting new ones.
const ENOUGH: usize = 30;

/// The number of puts in one write, and the minimum number of writes, before a flush or a move of many jobs.
const PUTS: usize = 64;
const WRITES: u64 = 3;

const BODIES: [usize; 16] = [0, 0, 0, 10, 10, 30, 30, 60, 100, 200, 300, 600, 1500, 3000, 17_000, 40_000];
const DELAYS: [u64; 7] = [0, 0, 0, 0, LONG, 3 * LONG, IMPORT_DELAY];
const WIRES: [Wire; 3] = [Wire::Beanstalk, Wire::Gearman, Wire::Workq];

pub struct Lane {
    pub number: u64,
    pub book: Book,
    pub random: Random,
    pub problems: Vec<Problem>,
    trace: Arc<Trace>,
    talks: BTreeMap<(Wire, usize), Talk>,
    wires: Vec<Wire>,
    next: u64,
    bodies: u64,
    /// `true` if the server may refuse commands, because the disk fails occasionally.
    pub failing: bool,
}

impl Lane {
    /// Creates a lane. `next` is the number of the client's most recent step. The first new step gets the next number.
    pub fn new(number: u64, book: Book, next: u64, random: Random, trace: Arc<Trace>) -> Lane {
        let mut random = random;
        let mut wires: Vec<Wire> = WIRES.into_iter().filter(|_| random.once_in(2)).collect();
        if wires.is_empty() {
            wires.push(random.pick(&WIRES));
        }
        let talks = BTreeMap::new();
        Lane { number, book, random, problems: Vec::new(), trace, talks, wires, next, bodies: 0, failing: false }
    }

    /// Returns `true` if a wrong reply has made the book unreliable.
    pub fn is_lost(&self) -> bool {
        self.problems.iter().any(|(check, _)| *check == Check::Talk)
    }

    pub fn next(&self) -> u64 {
        self.next
    }

    fn name(&self, kind: char, which: u64) -> String {
        format!("{}{kind}{which}", prefix(self.number))
    }

    /// Returns the connection for a protocol and a `seat`, and opens it if necessary. The seat distinguishes
    /// connections with the same protocol.
    fn talk(&mut self, daemon: &Daemon, wire: Wire, seat: usize) -> Result<&mut Talk> {
        if !self.talks.contains_key(&(wire, seat)) {
            let mut talk = Talk::connect(daemon, wire)?;
            match wire {
                Wire::Beanstalk => {
                    // The client watches its tubes, so that a tube and its pause continue to exist without jobs.
                    for which in 0..3 {
                        talk.send(format!("watch {}\r\n", self.name('t', which)).as_bytes())?;
                        talk.line()?;
                    }
                    talk.send(b"ignore default\r\n")?;
                    talk.line()?;
                }
                Wire::Gearman if seat == 0 => {
                    for which in 0..2 {
                        talk.send(&packet(CAN_DO, &[self.name('f', which).as_bytes()]))?;
                    }
                }
                Wire::Gearman | Wire::Workq | Wire::Http => {}
            }
            self.talks.insert((wire, seat), talk);
        }
        Ok(self.talks.get_mut(&(wire, seat)).expect("a connection that was just opened"))
    }

    /// Opens the connection that keeps the client's beanstalk tubes alive.
    pub fn connect(&mut self, daemon: &Daemon) -> Result<()> {
        self.talk(daemon, Wire::Beanstalk, 0).map(drop)
    }

    fn body(&mut self) -> Body {
        self.bodies += 1;
        let word = format!("{}{}.{}", prefix(self.number), self.next, self.bodies);
        Body::new(&word, self.random.pick(&BODIES))
    }

    /// Returns the key of a random stored job that belongs to the given protocol and is in one of the given states.
    fn job(&mut self, book: &Book, wire: Wire, states: &[State]) -> Option<String> {
        let fits = |key: &&String| {
            let job = &book.jobs[*key];
            job.wire == wire && states.contains(&book.state(key)) && !job.volatile
        };
        let keys: Vec<&String> = book.jobs.keys().filter(fits).collect();
        (!keys.is_empty()).then(|| keys[self.random.below(keys.len() as u64) as usize].clone())
    }

    /// Chooses a command of the given protocol for the current state of the queue.
    fn choose(&mut self, book: &Book, wire: Wire) -> Act {
        let full = book.jobs.len() > ENOUGH;
        let chosen = match wire {
            Wire::Beanstalk => self.choose_beanstalk(book, full),
            Wire::Gearman => self.choose_gearman(book, full),
            Wire::Workq => self.choose_workq(book, full),
            Wire::Http => Some(self.choose_web(book, full)),
        };
        chosen.unwrap_or_else(|| self.new_job(wire))
    }

    fn new_job(&mut self, wire: Wire) -> Act {
        let body = self.body();
        let which = self.random.below(3);
        match wire {
            Wire::Beanstalk | Wire::Http => {
                let (pri, delay) = (self.random.below(5) as u32, self.random.pick(&DELAYS));
                let every = format!("every:{}", self.random.pick(&[LONG, 2 * LONG]));
                // This pattern matches only midnight on leap days, so the schedule does not run during a history.
                let when = self.random.pick(&["cron:0,0,29,2,*", &every, &every]);
                let is_schedule = self.random.once_in(20);
                // A schedule gets a small body, because the log always has space for a copy with a small body.
                let body = if is_schedule { Body { length: body.length.min(60), ..body } } else { body };
                let mut tags = if is_schedule { format!("idp:{} {when}", self.name('s', 0)) } else { self.tags() };
                if self.random.once_in(5) {
                    tags = format!("{tags} tub:{}", self.tube()).trim_start().to_owned();
                }
                Act::Put { tube: self.name('t', which), pri, delay, body, tags }
            }
            Wire::Gearman => {
                // Workers do not register the third function, so the jobs of this function stay in the queue.
                let unique = if self.random.once_in(3) { String::new() } else { format!("u{}", self.random.below(12)) };
                let kept = which < 2 || self.random.once_in(2);
                let unique = if which < 2 { unique } else { format!("v{}", self.random.below(6)) };
                let later = kept && self.random.once_in(6);
                let pri = if later { GEARMAN_PRIORITIES[1] } else { self.random.pick(&GEARMAN_PRIORITIES) };
                let is_reduced = pri == GEARMAN_PRIORITIES[1] && !later && self.random.once_in(4);
                let reducer = if is_reduced { self.name('r', which) } else { String::new() };
                Act::Submit { function: self.name('f', which), unique, body, kept, pri, later, reducer }
            }
            Wire::Workq => {
                // Occasionally chooses an ID that may exist already.
                let number = if self.random.once_in(5) { self.random.below(self.next.max(1)) } else { self.next };
                let id = format!("00000000-0000-4000-8{:03x}-{number:012x}", self.number);
                let (max_fails, max_attempts) = (self.random.pick(&[0, 2, 3]), self.random.pick(&[0, 1, 2]));
                Act::Add { id, queue: self.name('q', which % 2), max_fails, max_attempts, body }
            }
        }
    }

    /// Returns a tube that the client watches or, less often, a tube that exists only while it has jobs.
    fn tube(&mut self) -> String {
        let which = self.random.below(4);
        if which < 3 {
            self.name('t', which)
        } else {
            self.name('n', 0)
        }
    }

    /// Returns random tags, sometimes none. No tag delays retries, so that jobs that are still reserved at the end of a
    /// history become ready immediately after the disconnection.
    fn tags(&mut self) -> String {
        let mut tags = Vec::new();
        for (which, kind) in ["idp:k", "con:c", "try:200", "ttl:"].into_iter().enumerate() {
            let is_long = self.random.once_in(2);
            if !self.random.once_in(4) {
                continue;
            }
            tags.push(match (which, is_long) {
                // No other job has this key.
                (0, false) => format!("{kind}{}-{}", self.next, self.bodies),
                (0, true) => format!("{kind}{}-{}:{LONG}", self.next, self.bodies),
                (1, _) => format!("{kind}{}:1000", self.next % 3),
                // The job has already failed three times.
                (2, true) => format!("{kind}:0:3"),
                (3, _) => format!("{kind}{}", 3 * LONG),
                _ => kind.to_owned(),
            });
        }
        if self.random.once_in(8) {
            tags.push(format!("err:\"{}\"", self.name('e', self.bodies % 3)));
        }
        if self.random.once_in(3) {
            let first = self.random.below(2);
            let [one, other] = [first, 1 - first].map(|which| self.name('g', which));
            tags.push(match self.random.below(6) {
                0..=2 => format!("grp:{one}"),
                3 => format!("aft:{one}"),
                4 => format!("aft:{one}:{}", self.random.below(3)),
                _ => format!("grp:{one} aft:{other}"),
            });
        }
        tags.join(" ")
    }

    fn choose_beanstalk(&mut self, book: &Book, full: bool) -> Option<Act> {
        use State::{Buried, Delayed, Held, Ready, Reserved, Scheduled};
        let (pri, delay) = (self.random.below(5) as u32, self.random.pick(&DELAYS));
        let which = self.random.below(3);
        let tube = self.name('t', which);
        let any = [Ready, Delayed, Reserved, Buried, Held];
        let all = [Ready, Delayed, Reserved, Buried, Held, Scheduled];
        let wire = Wire::Beanstalk;
        match self.random.below(32) {
            20 => {
                let key = self.job(book, wire, &any).filter(|key| !book.is_taken(key, &tube));
                key.map(|key| Act::Move { key, tube, pri, delay })
            }
            21 if self.random.once_in(3) => {
                let states = self.random.pick(&["buried", "tube"]).to_owned();
                Some(Act::Flush { tube: self.tube(), states })
            }
            22 => Some(Act::Set { tube, settings: self.settings() }),
            23..=24 => {
                let reason = format!("{}{}", prefix(self.number), self.next);
                self.job(book, wire, &[Reserved]).map(|key| Act::Fail { key, pri, reason })
            }
            25 => {
                let from = if self.random.once_in(4) { self.name('d', 0) } else { self.tube() };
                let state = self.random.pick(&["ready", "delayed", "buried"]).to_owned();
                Some(Act::MoveTube { from, to: tube, state, bound: 1 + self.random.below(9) })
            }
            26 => Some(Act::ReserveBatch(1 + self.random.below(4))),
            27 => {
                let mut keys: Vec<String> = (0..3).filter_map(|_| self.job(book, wire, &all)).collect();
                keys.sort();
                keys.dedup();
                keys.retain(|key| !book.is_revoked(key));
                (!keys.is_empty()).then_some(Act::DeleteBatch(keys))
            }
            28..=29 if !self.failing => self.run(book),
            30..=31 => self.job(book, wire, &[Reserved]).map(|key| Act::Revoke { key, pri }),
            0..=5 if !full => None,
            0..=8 => self.job(book, wire, &all).map(Act::Delete),
            9..=10 => Some(Act::ReserveAny),
            11..=12 => self.job(book, wire, &[Ready, Delayed, Buried, Held]).map(Act::Reserve),
            13..=14 => self.job(book, wire, &[Reserved]).map(|key| Act::Release { key, pri, delay }),
            15 => self.job(book, wire, &[Reserved]).map(|key| Act::Bury { key, pri }),
            16 => {
                let key = self.job(book, wire, &[Reserved, Delayed])?;
                // Without a reservation, only imported jobs can be buried.
                if book.state(&key) == Delayed && book.terms(&key).1 != IMPORT_DELAY {
                    return None;
                }
                // A dead letter would free the name of its schedule.
                let is_named = self.random.once_in(2) || book.jobs[&key].idp().is_some();
                Some(Act::BuryAs { key, pri, delay, from: if is_named { String::new() } else { tube } })
            }
            17 => self.job(book, wire, &[Delayed, Buried, Held]).map(Act::KickJob),
            18 if self.random.once_in(2) => self.job(book, wire, &[Reserved]).map(Act::Touch),
            18 => Some(Act::Pause { tube, seconds: self.random.pick(&[0, LONG, 2 * LONG]) }),
            _ => Some(Act::Kick { tube, bound: 1 + self.random.below(6) }),
        }
    }

    /// Chooses a command that is sent over HTTP.
    fn choose_web(&mut self, book: &Book, full: bool) -> Act {
        use State::{Buried, Delayed, Held, Ready, Reserved};
        let which = self.random.below(3);
        let [tube, to] = [which, (which + 1) % 3].map(|which| self.name('t', which));
        let (wire, free, bound) = (Wire::Beanstalk, [Ready, Delayed, Buried, Held], 1 + self.random.below(6));
        let chosen = match self.random.below(18) {
            0..=3 if !full => None,
            0..=3 => self.job(book, wire, &free).filter(|key| !book.is_revoked(key)).map(Act::Delete),
            4 => self.job(book, wire, &[Delayed, Buried, Held]).map(Act::KickJob),
            5 => Some(Act::Kick { tube, bound }),
            6 => Some(Act::Pause { tube, seconds: self.random.pick(&[0, LONG, 2 * LONG]) }),
            7 => Some(Act::Set { tube, settings: self.settings() }),
            8..=9 => self.job(book, wire, &[Reserved]).map(|key| Act::Revoke { pri: book.terms(&key).0, key }),
            10 => {
                let state = self.random.pick(&["ready", "delayed", "buried"]).to_owned();
                Some(Act::MoveTube { from: tube, to, state, bound })
            }
            // If a restart interrupted the clear, the server would also delete jobs that were reserved before.
            11 if !book.has_reserved(&tube) => {
                let states = self.random.pick(&["free", "ready", "delayed", "buried"]).to_owned();
                Some(Act::Flush { tube, states })
            }
            12..=13 => return self.job(book, wire, &free).map_or_else(|| self.web_put(), Act::BuryFree),
            14..=15 => {
                let key = self.job(book, wire, &[Buried]).filter(|key| !book.is_taken(key, &to));
                match key.filter(|key| book.tube_of(key) != to) {
                    Some(key) => return Act::Shift { key, tube: to },
                    None => None,
                }
            }
            _ => match self.job(book, wire, &[Buried]) {
                Some(key) => return self.remedy(book, &key),
                None => None,
            },
        };
        chosen.map_or_else(|| self.web_put(), |act| Act::Web(Box::new(act)))
    }

    /// Returns a command for all buried jobs with the tube and the reason of the given job.
    fn remedy(&mut self, book: &Book, key: &str) -> Act {
        let remedy = self.random.pick(&["kick", "delete", "move"]).to_owned();
        let tube = book.tube_of(key).to_owned();
        let which = self.random.below(3);
        let to = Some(self.name('t', which)).filter(|to| remedy == "move" && *to != tube);
        let remedy = if to.is_none() && remedy == "move" { "kick".to_owned() } else { remedy };
        Act::Sweep { tube, reason: book.reason(key).to_owned(), remedy, to: to.unwrap_or_default() }
    }

    fn web_put(&mut self) -> Act {
        let mut act = self.new_job(Wire::Http);
        if let Act::Put { body, tags, .. } = &mut act {
            body.length = body.length.min(LARGEST);
            // Over HTTP, this tag is not allowed.
            *tags = tags.split(' ').filter(|tag| !tag.starts_with("tub:")).collect::<Vec<_>>().join(" ");
        }
        Act::Web(Box::new(act))
    }

    fn run(&mut self, book: &Book) -> Option<Act> {
        let key = self.job(book, Wire::Beanstalk, &[State::Scheduled])?;
        let (tube, idp) = (book.tube_of(&key).to_owned(), book.jobs[&key].idp()?.to_owned());
        Some(Act::Run { key, tube, idp })
    }

    fn settings(&mut self) -> String {
        let dead = self.name('d', 0);
        let settings =
            ["", "try:250 dead:", "dead:", "max:9000 rate:90000/1", "try:250 limit:900000", "limit:70000:80000:90000"];
        self.random.pick(&settings).replace("dead:", &format!("dead:{dead}"))
    }

    fn choose_gearman(&mut self, book: &Book, full: bool) -> Option<Act> {
        let done = !self.random.once_in(4);
        let finish = |lane: &mut Lane| {
            let key = lane.job(book, Wire::Gearman, &[State::Reserved]);
            key.map(|key| Act::Finish { key, done })
        };
        match self.random.below(12) {
            0..=4 if !full => None,
            0..=6 => Some(Act::Grab),
            10..=11 => {
                let jobs = book.jobs.iter().filter(|(_, job)| job.wire == Wire::Gearman);
                let keys: Vec<&String> = jobs.map(|(key, _)| key).collect();
                (!keys.is_empty()).then(|| Act::Cancel(keys[self.random.below(keys.len() as u64) as usize].clone()))
            }
            _ => finish(self).or(Some(Act::Grab)),
        }
    }

    fn choose_workq(&mut self, book: &Book, full: bool) -> Option<Act> {
        use State::{Finished, Ready, Reserved};
        let which = self.random.below(2);
        let queue = self.name('q', which);
        let (done, result) = (!self.random.once_in(3), self.body());
        let wire = Wire::Workq;
        match self.random.below(10) {
            0..=3 if !full => None,
            0..=1 => Some(Act::Lease { queue, waits: false }),
            2..=5 => self.job(book, wire, &[Reserved, Ready]).map(|id| Act::Outcome { id, done, result }),
            6..=7 => Some(Act::Lease { queue, waits: false }),
            _ => self.job(book, wire, &[Ready, Reserved, Finished]).map(Act::Remove),
        }
    }

    /// Sends commands in one write and reads the replies.
    pub fn perform(&mut self, daemon: &Daemon, seat: usize, acts: Vec<Act>) -> Result<()> {
        let steps = self.say(daemon, seat, acts)?;
        self.listen(daemon, seat, steps)
    }

    /// Sends commands in one write. Returns their steps, which must be passed to [`Lane::listen`] to read the replies.
    pub fn say(&mut self, daemon: &Daemon, seat: usize, acts: Vec<Act>) -> Result<Vec<(u64, Act)>> {
        let Some(wire) = acts.first().map(Act::wire) else { return Ok(Vec::new()) };
        let mut ahead = self.book.clone();
        let (mut bytes, mut steps) = (Vec::new(), Vec::new());
        for act in acts {
            let step = self.enter(&act, act.promise(&ahead));
            bytes.extend(act.bytes(&ahead));
            act.expected(&ahead).iter().for_each(|change| ahead.apply(change));
            steps.push((step, act));
        }
        self.talk(daemon, wire, seat)?.send(&bytes)?;
        Ok(steps)
    }

    /// Repeats a command that another connection of this lane has sent and whose reply has not arrived yet.
    pub fn say_hearsay(&mut self, daemon: &Daemon, seat: usize, act: Act) -> Result<u64> {
        let step = self.enter(&act, Promise::Hearsay);
        let bytes = act.bytes(&self.book);
        self.talk(daemon, act.wire(), seat)?.send(&bytes)?;
        Ok(step)
    }

    /// Records in the trace that a command will be sent. Returns the step number.
    fn enter(&mut self, act: &Act, promise: Promise) -> u64 {
        self.next += 1;
        let words = format!("{act:?}").replace('\n', " ");
        self.trace.mark(&format!("sent {} {} {} {words}", self.number, self.next, promise.letter()));
        self.next
    }

    pub fn listen(&mut self, daemon: &Daemon, seat: usize, steps: Vec<(u64, Act)>) -> Result<()> {
        for (step, act) in steps {
            let reply = self.take(daemon, seat, step, &act)?;
            self.settle(step, &act, &reply);
        }
        Ok(())
    }

    pub fn take(&mut self, daemon: &Daemon, seat: usize, step: u64, act: &Act) -> Result<Reply> {
        let reply = act.read(self.talk(daemon, act.wire(), seat)?)?;
        let id: Option<u64> = reply.key.parse().ok();
        id.into_iter().for_each(|id| self.trace.mark(&format!("seen {id} {id}")));
        let word = if is_refusal(&reply.line) { "refused" } else { "told" };
        self.trace.mark(&format!("{word} {} {step} {} {}", self.number, reply.line, reply.key));
        Ok(reply)
    }

    /// Applies the effect of a command to the book. The reply determines the effect.
    pub fn settle(&mut self, step: u64, act: &Act, reply: &Reply) {
        if let Some(key) = act.about(reply).filter(|_| !is_refusal(&reply.line)) {
            self.trace.mark(&format!("about {} {step} {key}", self.number));
        }
        match act.changes(&self.book, reply) {
            Ok(changes) => changes.iter().for_each(|change| self.apply(step, change)),
            Err(_) if self.failing && is_refusal(&reply.line) => {}
            Err(problem) if matches!(act, Act::Submit { kept: true, .. }) && is_refusal(&reply.line) => {
                self.problems.push((Check::Persist, problem));
            }
            Err(problem) => self.problems.push((Check::Talk, problem)),
        }
    }

    fn apply(&mut self, step: u64, change: &Change) {
        self.trace.mark(&format!("did {} {step} {}", self.number, change.write()));
        self.book.apply(change);
    }

    pub fn restarted(&mut self) {
        self.next += 1;
        let (lane, step) = (self.number, self.next);
        self.trace.mark(&format!("sent {lane} {step} n restart"));
        self.apply(step, &Change::Restart {});
        self.trace.mark(&format!("told {lane} {step} restarted"));
    }

    /// Records that the client disconnects.
    pub fn hang_up(mut self) -> Vec<Problem> {
        self.next += 1;
        self.trace.mark(&format!("sent {} {} n hang-up", self.number, self.next));
        let lost = self.book.limited().into_iter().map(|key| Change::Lose { key });
        lost.for_each(|change| self.apply(self.next, &change));
        self.problems
    }

    /// Returns `true` if any bytes arrive within `time`.
    pub fn hears_within(&mut self, daemon: &Daemon, wire: Wire, seat: usize, time: Duration) -> Result<bool> {
        self.talk(daemon, wire, seat)?.hears_within(time)
    }

    /// Adds a Workq job for whose result a client waits. Then leaves the job as it is, leases it, or leases it and ends
    /// it.
    fn execute(&mut self, daemon: &Daemon) -> Result<()> {
        let (number, end) = (self.next, self.random.below(4));
        let id = format!("00000000-0000-4000-a{:03x}-{number:012x}", self.number);
        let queue = self.name('r', number);
        let act = Act::Execute { id: id.clone(), queue: queue.clone(), body: self.body() };
        // The connection is blocked until the job ends, so each of these jobs has its own connection.
        let seat = 2 + number as usize;
        let step = self.say(daemon, seat, vec![act.clone()])?[0].0;
        act.expected(&self.book).iter().for_each(|change| self.apply(step, change));
        if end > 0 {
            self.perform(daemon, 0, vec![Act::Lease { queue, waits: true }])?;
        }
        let (end, expected) = match end {
            2 => (Act::Remove(id), "-NOT-FOUND".to_owned()),
            3 => {
                let (done, result) = (self.random.once_in(2), self.body());
                let expected = format!("+OK 1 {} {}", u8::from(done), result.word);
                (Act::Outcome { id, done, result }, expected)
            }
            _ => return Ok(()),
        };
        self.perform(daemon, 0, vec![end])?;
        let Reply { line, key } = self.take(daemon, seat, step, &act)?;
        if format!("{line} {key}").trim_end() != expected {
            self.problems.push((Check::Talk, format!("the reply to {act:?} is {line} {key}, not {expected}")));
        }
        Ok(())
    }

    /// Puts more jobs into a tube than the server handles in one turn. Then either buries most of the jobs and flushes
    /// the buried jobs, or moves many of the jobs to another tube. Finally, flushes both tubes.
    pub fn sweep(&mut self, daemon: &Daemon) -> Result<()> {
        let first = self.random.below(3);
        let [from, to] = [first, (first + 1) % 3].map(|which| self.name('t', which));
        for _ in 0..WRITES + self.random.below(WRITES) {
            let put = |lane: &mut Lane| {
                let body = Body::new(&lane.body().word, 0);
                let (pri, delay) = (lane.random.below(5) as u32, lane.random.pick(&[0, 0, 0, 0, 0, LONG]));
                Act::Put { tube: from.clone(), pri, delay, body, tags: String::new() }
            };
            let puts = (0..PUTS).map(|_| put(self)).collect();
            self.perform(daemon, 0, puts)?;
        }
        let (state, bound) = ("ready".to_owned(), 100 + self.random.below(300));
        let flush = |tube: &String, states: &str| Act::Flush { tube: tube.clone(), states: states.to_owned() };
        let first = if self.random.once_in(2) {
            self.bury_all(daemon, &from)?;
            flush(&from, "buried")
        } else {
            Act::MoveTube { from: from.clone(), to: to.clone(), state, bound }
        };
        for act in [first, flush(&to, "tube"), flush(&from, "tube")] {
            self.step(daemon)?;
            self.perform(daemon, 0, vec![act])?;
        }
        Ok(())
    }

    /// Reserves and buries all jobs of the tube that are ready.
    fn bury_all(&mut self, daemon: &Daemon, tube: &str) -> Result<()> {
        let ready = |lane: &Lane| -> Vec<String> {
            let is_ready = |key: &&String| lane.book.state(key) == State::Ready && lane.book.tube_of(key) == tube;
            lane.book.jobs.keys().filter(is_ready).cloned().collect()
        };
        let keys = ready(self);
        for keys in keys.chunks(PUTS) {
            self.perform(daemon, 0, keys.iter().cloned().map(Act::Reserve).collect())?;
            let pri = self.random.below(5) as u32;
            self.perform(daemon, 0, keys.iter().cloned().map(|key| Act::Bury { key, pri }).collect())?;
        }
        Ok(())
    }

    /// Executes one random command or, less often, a batch of up to seven commands of one protocol.
    pub fn step(&mut self, daemon: &Daemon) -> Result<()> {
        let wire = self.random.pick(&self.wires.clone());
        // A server whose disk fails can refuse the job, and the lease command would then wait for a job in vain.
        if wire == Wire::Workq && !self.failing && self.random.once_in(8) {
            return self.execute(daemon);
        }
        let wire = if wire == Wire::Beanstalk && self.random.once_in(4) { Wire::Http } else { wire };
        let breath = if self.failing || !self.random.once_in(3) { 1 } else { 2 + self.random.below(6) };
        let mut ahead = self.book.clone();
        let mut acts = Vec::new();
        for _ in 0..breath {
            let act = self.choose(&ahead, wire);
            // The IDs of jobs from the same batch are not known yet, so a command for a whole tube must be the first in
            // its batch.
            if !acts.is_empty() && act.is_for_tube() {
                continue;
            }
            // The book cannot predict the effects of these commands, so each of them must be the last in its batch.
            let unforeseen =
                matches!(act, Act::ReserveAny | Act::ReserveBatch(_) | Act::Run { .. } | Act::Grab | Act::Lease { .. });
            act.expected(&ahead).iter().for_each(|change| ahead.apply(change));
            acts.push(act);
            if unforeseen {
                break;
            }
        }
        self.perform(daemon, 0, acts)
    }
}

/// Returns `true` if the reply is a refusal because of a disk failure.
fn is_refusal(line: &str) -> bool {
    let words = ["OUT_OF_MEMORY", "Out of memory", "HTTP 503"];
    words.iter().any(|word| line.contains(word)) || line == "packet 19"
}
