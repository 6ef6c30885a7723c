//! Crashes a server at thousands of moments, and counts the releases of dependent jobs and the runs of schedules.
//!
//! Owns [`Book`], which records the puts, the ended jobs and the runs of schedules, and does not contain the engine's
//! rules. Each dependent must be released once, after the last member of its batch has ended. When one or more due
//! times of a schedule have passed, the result must be one copy, or one skipped run if the previous copy still exists.

use std::collections::BTreeMap;

use beanpole::internals::binlog::{BinlogSettings, SyncMode};
use beanpole::internals::engine::{
    Body, ClientId, DedupKey, Engine, GroupTag, JobId, JobOptions, NewJob, Span, State, Tagged, Tags, Tie, Time,
};

use crate::crashes::configured;
use crate::disk::Disk;
use crate::driver::{dawn, settings, Life};
use crate::random::Random;

/// The maximum number of kills. The number of power failures is lower, because other tests simulate many of them.
const POINTS: u64 = 10_000;

const SCHEDULES: usize = 3;

/// The interval of the first schedule, in seconds. The intervals of the other schedules are multiples of it.
const EVERY: u64 = 2;

/// The log space, in bytes, that suffices for any step.
const ROOM: u64 = 4000;

/// A job that was put, with the log positions of the put and the delete. A restart sets the positions to 0.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    put: u64,
    ended: Option<u64>,
}

/// The next due time of a schedule, and the counts of its runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    due: Time,
    runs: u32,
    skipped: u32,
}

#[derive(Default)]
struct Book {
    /// The jobs by name. A name is the job's body. For a copy of a schedule, `#` and the job ID follow the body.
    jobs: BTreeMap<String, Entry>,
    batches: u64,
    /// The states of each schedule since the last restart, each with its log position.
    runs: [Vec<(u64, Run)>; SCHEDULES],
}

#[derive(Default, Debug)]
struct Totals {
    points: u64,
    dependents: u64,
    members: u64,
    runs: u64,
    skipped: u64,
}

fn size(batch: u64) -> u64 {
    1 + batch % 5
}

/// Returns the names of a batch's jobs in the order of the puts. The dependent (`d`) is the first or the last job.
fn names(batch: u64) -> Vec<String> {
    let mut names: Vec<String> = (0..size(batch)).map(|number| format!("m{batch}.{number}")).collect();
    names.insert(if batch % 2 == 0 { 0 } else { names.len() }, format!("d{batch}"));
    names
}

fn name(id: JobId, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body).into_owned();
    if body.starts_with('s') {
        format!("{body}#{}", id.0)
    } else {
        body
    }
}

/// Returns the names, IDs and states of all jobs except schedules.
fn found(engine: &Engine) -> BTreeMap<String, (u64, State)> {
    let mut found = BTreeMap::new();
    for job in engine.jobs().filter(|job| job.state() != State::Scheduled) {
        let name = name(job.id(), job.body().bytes());
        assert!(found.insert(name, (job.id().0, job.state())).is_none(), "a job exists twice");
    }
    found
}

fn runs(engine: &Engine) -> [Run; SCHEDULES] {
    let mut runs = [None; SCHEDULES];
    for job in engine.jobs().filter(|job| job.state() == State::Scheduled) {
        let count = engine.schedule_of(&job).expect("a schedule").count;
        let number: usize = String::from_utf8_lossy(&job.body().bytes()[1..]).parse().expect("a number");
        runs[number] = Some(Run { due: job.due(), runs: count.runs, skipped: count.skipped });
    }
    runs.map(|run| run.expect("each schedule exists"))
}

impl Book {
    fn ended(&self, batch: u64) -> u64 {
        let member = |number| self.jobs.get(&format!("m{batch}.{number}"));
        (0..size(batch)).filter_map(member).filter(|entry| entry.ended.is_some()).count() as u64
    }

    /// Compares a restarted server with the book. `safe` is the log position up to which all changes must survive.
    fn restart(&mut self, engine: &Engine, safe: u64) {
        let found = found(engine);
        self.jobs.retain(|name, entry| {
            let exists = found.contains_key(name);
            let was_put = entry.put <= safe;
            assert!(exists || !was_put || entry.ended.is_some(), "{name} is lost: {entry:?}, safe {safe}");
            assert!(!exists || entry.ended.is_none_or(|ended| ended > safe), "{name} is back: {entry:?}, safe {safe}");
            (entry.put, entry.ended) = (0, if exists { None } else { entry.ended.map(|_| 0) });
            exists || entry.ended.is_some()
        });
        let unknown = found.keys().find(|name| !self.jobs.contains_key(*name));
        assert_eq!(unknown, None, "a job that was never put");
        for (states, run) in self.runs.iter_mut().zip(runs(engine)) {
            let durable = states.iter().rposition(|(position, _)| *position <= safe).expect("a first state");
            let possible = &states[durable..];
            assert!(possible.iter().any(|(_, state)| *state == run), "{run:?} is not in {possible:?}");
            *states = vec![(0, run)];
        }
        self.check(engine);
    }

    /// Checks which dependents are held, and that each run of a schedule has put a copy.
    fn check(&self, engine: &Engine) {
        for (name, (_, state)) in found(engine).iter().filter(|(name, _)| name.starts_with('d')) {
            let batch: u64 = name[1..].parse().expect("a number");
            let is_held = self.ended(batch) < size(batch);
            assert_eq!(*state == State::Held, is_held, "{name} is {state:?}: {} members ended", self.ended(batch));
        }
        for (number, run) in runs(engine).into_iter().enumerate() {
            let prefix = format!("s{number}#");
            let copies = self.jobs.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix)).count();
            assert_eq!(copies as u32, run.runs, "copies of schedule {number}");
        }
    }

    fn is_complete(&self, batch: u64) -> bool {
        names(batch).iter().all(|name| self.jobs.get(name).is_some_and(|entry| entry.ended.is_some()))
    }

    /// Returns the batch and the name of the next job that the producer puts.
    fn next(&mut self) -> (u64, String) {
        let first = self.batches.saturating_sub(3);
        for batch in first..self.batches {
            if let Some(name) = names(batch).into_iter().find(|name| !self.jobs.contains_key(name)) {
                return (batch, name);
            }
        }
        self.batches += 1;
        (self.batches - 1, names(self.batches - 1).remove(0))
    }
}

fn put(life: &mut Life, client: ClientId, body: &str, recurs: Option<u64>, options: JobOptions) -> Option<u64> {
    let new = NewJob { pri: 0, delay: Span::ZERO, ttr: Span::from_secs(100_000), body: Body::from(body.as_bytes()) };
    let tags = Tags { recurs: recurs.map(|every| every.to_string().as_bytes().into()), options, ..Tags::default() };
    let put = life.turn(|engine, now| match engine.put_tagged(client, new, tags, now) {
        Ok(Tagged::New(id) | Tagged::Scheduled { id, .. }) => Some(id.0),
        _ => None,
    });
    assert!(put.is_some() || life.disk.has_crashed(), "{body} was refused");
    put
}

fn position(life: &Life) -> u64 {
    life.access.0.borrow().0.position
}

/// Puts the next job of a batch.
fn produce(life: &mut Life, book: &mut Book) {
    let (batch, name) = book.next();
    let tie = match (name.starts_with('m'), batch % 2) {
        (true, _) => Tie::Member,
        (false, 0) => Tie::AfterCount(size(batch) as u32),
        (false, _) => Tie::After { even_if_new: false },
    };
    let groups = vec![GroupTag { name: format!("g{batch}").as_bytes().into(), tie }];
    let client = life.client_at(0);
    if let Some(id) = put(life, client, &name, None, JobOptions { groups, ..JobOptions::default() }) {
        book.jobs.insert(name, Entry { id, put: position(life), ended: None });
    }
}

/// Waits until all puts are durable, then reserves a job and usually deletes it. Because of the wait, a crash never
/// loses the put of a job that has ended.
fn work(life: &mut Life, book: &mut Book, totals: &mut Totals) {
    let durable = |life: &Life| life.wal.durable().min(life.wal.synced());
    if book.jobs.values().any(|entry| entry.put > durable(life)) {
        life.settle();
        if life.disk.has_crashed() {
            return;
        }
    }
    let (client, does_delete) = (life.client_at(1), !life.random.once_in(5));
    let mut job = None;
    life.turn(|engine, now| {
        job = engine.reserve_more(client, now).map(|job| (job.id(), name(job.id(), job.body().bytes())));
        None
    });
    let Some((id, name)) = job.filter(|_| does_delete) else { return };
    if let Some(batch) = name.strip_prefix('d').map(|batch| batch.parse().expect("a number")) {
        assert_eq!(book.ended(batch), size(batch), "{name} was released before its members had ended");
    }
    life.turn(|engine, now| {
        assert!(engine.delete(client, id, now));
        None
    });
    let entry = book.jobs.get_mut(&name).expect("a known job");
    assert_eq!((entry.id, entry.ended.replace(position(life))), (id.0, None), "{name} ended twice");
    totals.members += u64::from(name.starts_with('m'));
}

/// Lets time pass, and records the runs of schedules.
fn pass(life: &mut Life, book: &mut Book, millis: u64) {
    life.now = life.now + Span::from_millis(millis);
    let mut expected = Vec::new();
    let before = found(&life.access.0.borrow().1);
    for (number, states) in book.runs.iter().enumerate() {
        let (_, mut run) = *states.last().expect("a state");
        let every = Span::from_secs(EVERY * (number as u64 + 1));
        if run.due <= life.now {
            let has_copy = before.keys().any(|name| name.starts_with(&format!("s{number}#")));
            *(if has_copy { &mut run.skipped } else { &mut run.runs }) += 1;
            while run.due <= life.now {
                run.due = run.due + every;
            }
        }
        expected.push(run);
    }
    life.tick();
    // If the disk crashes during the tick, it may have stored only some of the runs.
    let (at, access) = (position(life), life.access.0.borrow());
    for (name, (id, _)) in found(&access.1) {
        book.jobs.entry(name).or_insert(Entry { id, put: at, ended: None });
    }
    let runs = runs(&access.1);
    assert!(life.disk.has_crashed() || runs.to_vec() == expected, "{runs:?} ran instead of {expected:?}");
    book.runs.iter_mut().zip(runs).for_each(|(states, run)| states.push((at, run)));
}

fn step(life: &mut Life, book: &mut Book, totals: &mut Totals) {
    life.wal.reserve(&life.access, ROOM);
    if life.disk.has_crashed() {
        return;
    }
    match life.random.below(9) {
        0..=2 => produce(life, book),
        3..=6 => work(life, book, totals),
        _ => {
            let millis = life.random.pick(&[10, 700, 2500]);
            pass(life, book, millis);
        }
    }
    if !life.disk.has_crashed() {
        book.check(&life.access.0.borrow().1);
    }
    life.look_after();
}

/// Starts a server with schedules on an empty disk.
fn begin(disk: &Disk, how: BinlogSettings, seed: u64) -> (Life, Book) {
    let mut life = Life::begin(disk.clone(), how, dawn(), seed).expect("an empty log");
    let mut book = Book::default();
    for number in 0..SCHEDULES {
        life.wal.reserve(&life.access, ROOM);
        let name = format!("s{number}");
        let options = JobOptions { dedup_key: DedupKey::Name(name.as_bytes().into()), ..JobOptions::default() };
        let client = life.client_at(0);
        put(&mut life, client, &name, Some(EVERY * (number as u64 + 1)), options);
    }
    life.settle();
    let first = runs(&life.access.0.borrow().1);
    book.runs = first.map(|run| vec![(0, run)]);
    (life, book)
}

/// Runs several servers in sequence, each until its disk crashes, and finally a server that completes the work.
fn lives(seed: u64, how: BinlogSettings, power: bool, totals: &mut Totals) {
    const CRASHES: u64 = 40;
    let mut disk = Disk::new(seed);
    let (first, mut book) = begin(&disk, how, seed);
    let (mut now, mut safe, mut running) = (first.now, 0, Some(first));
    let mut random = Random::new(seed);
    for crash in 0..=CRASHES {
        let is_last = crash == CRASHES;
        disk.crash_at(if is_last { u64::MAX } else { disk.operations() + random.pick(&[1, 3, 8, 30]) });
        let started = running.take().map_or_else(|| Life::begin(disk.clone(), how, now, seed + crash), Ok);
        if let Ok(mut life) = started {
            if crash > 0 {
                // If a crash leaves only one intact copy of a header, the server reports the damage at a later start.
                let problems = &life.report.problems;
                assert!(problems.iter().all(|problem| problem.ends_with("; nothing is lost")), "{problems:?}");
                book.restart(&life.access.0.borrow().1, safe);
            }
            while !(life.disk.has_crashed() || is_last && book.is_complete(book.batches.saturating_sub(1))) {
                step(&mut life, &mut book, totals);
            }
            disk.stop();
            (now, safe) = (life.now, if power { life.wal.synced() } else { life.wal.durable() });
        } else {
            // The server crashed during its recovery, so the next server finds the same queue.
            assert!(disk.has_crashed() && !is_last, "{:?}", started.err());
        }
        if !is_last {
            totals.points += 1;
            disk = if power { disk.power_cut(seed ^ crash) } else { disk.kill(seed ^ crash) };
            now = now + Span::from_millis(random.below(5000));
        }
    }
    totals.dependents += (0..book.batches).filter(|batch| book.is_complete(*batch)).count() as u64;
    for states in &book.runs {
        let (_, run) = states.last().expect("a state");
        totals.runs += u64::from(run.runs);
        totals.skipped += u64::from(run.skipped);
    }
}

fn everywhere(mode: SyncMode, power: bool, mut seed: u64) {
    let wanted = (configured() / 3).min(if power { POINTS / 4 } else { POINTS });
    let mut totals = Totals::default();
    while totals.points < wanted {
        let size = [700, 1500, 4096, 8192, 40_000][seed as usize % 5];
        lives(seed, settings(size, mode), power, &mut totals);
        seed += 1;
    }
    println!("{mode:?}, power cut {power}: exact after each of {} crashes: {totals:?}", totals.points);
    assert!(totals.dependents.min(totals.runs).min(totals.skipped) > totals.points / 10, "{totals:?}");
}

// Tests promises P30 and P31 of beanpole-promises(7).
#[test]
fn each_dependent_is_released_once_and_each_run_happens_once() {
    everywhere(SyncMode::Every(50), false, 1);
    everywhere(SyncMode::Always, true, 1_000_000);
}
