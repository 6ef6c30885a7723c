//! Measures extensions: batches, keys, concurrency limits, and administrative commands on tubes with many jobs.
//!
//! Owns the load [`Taking`]. For comparison, every run except [`bulk`] also measures the server without
//! the extension.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use beanpole::{Client, PutTags};

use super::cycle::Cycle;
use super::driver::{Driver, Load, Until};
use super::measure::{measure, measure_all, Bench, Goal, Outcome, Timed, Work};
use super::memory::settled;
use super::process::{Folder, Server};
use super::put::{fill, Puts};
use super::stats::Histogram;
use super::verify::{Bodies, Ledger};
use super::wire::{unexpected, Out, Reply};

const BATCH: usize = 100;

const MAX_JOBS: usize = 2_000_000;

/// A tag with a unique key. The number of the job replaces the ten `#` characters.
const KEY: &str = " idp:k##########";
const KEY_LENGTH: f64 = 11.0;

/// The way in which a worker reserves and deletes the jobs of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TakeMode {
    /// Reserves and deletes one job per write.
    Single,
    /// Deletes a hundred jobs and reserves the next hundred with separate commands in one write.
    Pipelined,
    /// Deletes a hundred jobs and reserves the next hundred with two batch commands.
    Batched,
    /// Reserves and deletes a hundred jobs one after another, with separate commands in one write.
    InTurn,
}

#[derive(Debug)]
struct Taking {
    mode: TakeMode,
    bodies: Bodies,
    ledger: Ledger,
    held: Vec<u64>,
    missing: usize,
    sent: Instant,
    done: u64,
    times: Histogram,
}

impl Taking {
    fn new(mode: TakeMode, bodies: Bodies, ledger: Ledger) -> Taking {
        let (held, times) = (Vec::new(), Histogram::default());
        Taking { mode, bodies, ledger, held, missing: 0, sent: Instant::now(), done: 0, times }
    }

    fn take_singly(&mut self, left: usize, out: &mut Out) {
        match self.held.pop() {
            Some(id) => out.delete(id),
            None if left > 0 => out.reserve(),
            None => {}
        }
    }

    fn take_pipelined(&mut self, left: usize, out: &mut Out) {
        self.held.drain(..).for_each(|id| out.delete(id));
        (0..left.min(BATCH)).for_each(|_| out.reserve());
    }

    fn take_batched(&mut self, left: usize, out: &mut Out) {
        if !self.held.is_empty() {
            out.bytes.extend_from_slice(b"delete-batch");
            for id in self.held.drain(..) {
                out.bytes.push(b' ');
                out.bytes.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
            }
            out.line("");
        }
        if left > 0 {
            out.line(&format!("reserve-batch {BATCH}"));
            out.replies += left.min(BATCH);
        }
    }

    fn take_in_turn(&mut self, left: usize, out: &mut Out) {
        let first = self.ledger.taken();
        for number in first..first + left.min(BATCH) {
            out.reserve();
            out.delete(self.ledger.id(number));
        }
    }
}

impl Load for Taking {
    fn start(&mut self, _: usize, now: Instant, out: &mut Out) {
        self.sent = now;
        let before = out.replies;
        let left = self.ledger.len() - self.ledger.taken();
        match self.mode {
            TakeMode::Single => self.take_singly(left, out),
            TakeMode::Pipelined => self.take_pipelined(left, out),
            TakeMode::Batched => self.take_batched(left, out),
            TakeMode::InTurn => self.take_in_turn(left, out),
        }
        self.missing = out.replies - before;
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        match reply {
            Reply::Deleted => self.done += 1,
            Reply::Reserved(id, body) => {
                self.ledger.reserved(self.bodies.number(body)?, id)?;
                if self.mode != TakeMode::InTurn {
                    self.held.push(id);
                }
            }
            Reply::Other(line) => {
                match std::str::from_utf8(line).unwrap_or_default().split(' ').collect::<Vec<_>>()[..] {
                    ["DELETED_BATCH", count, "0"] => {
                        self.done += count.parse::<u64>().map_err(|_| unexpected(reply))?
                    }
                    ["RESERVED_BATCH", _] => {}
                    _ => return Err(unexpected(reply)),
                }
            }
            other => return Err(unexpected(other)),
        }
        self.missing -= 1;
        if self.missing == 0 {
            self.times.add(now - self.sent);
            self.start(connection, now, out);
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.done
    }
}

impl Timed for Taking {
    fn times(&mut self) -> &mut Histogram {
        &mut self.times
    }
}

fn take(server: &Server, mode: TakeMode, jobs: usize, tags: &str) -> Result<Work, String> {
    let puts = fill(server, jobs, Bodies::tagged(64, tags))?;
    let mut driver = Driver::connect(server.address, 1)?;
    let mut load = Taking::new(mode, Bodies::new(64), puts.ledger);
    driver.start(&mut load, 0..1)?;
    measure_all(server, &mut driver, &mut load, jobs)
}

pub fn batches(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let count = bench.scale.count(jobs);
    let pipelined = take(&server, TakeMode::Pipelined, count, "")?;
    let batched = take(&server, TakeMode::Batched, count, "")?;
    let single = take(&server, TakeMode::Single, count / 10, "")?;
    let outcome = Outcome::of(batched)
        .and("jobs, times those of commands pipelined 100", batched.rate / pipelined.rate, Goal::AtLeast(1.5))
        .and(
            "by CPU, times those of commands pipelined 100",
            batched.busy_rate / pipelined.busy_rate,
            Goal::AtLeast(1.5),
        )
        .and("jobs, times those of commands one at a time", batched.rate / single.rate, Goal::AtLeast(20.0))
        .and("by CPU, times those of commands one at a time", batched.busy_rate / single.busy_rate, Goal::None);
    Ok(outcome.and("CPU us of the server for a job, commands pipelined 100", pipelined.cpu, Goal::None).and(
        "CPU us of the server for a job, commands one at a time",
        single.cpu,
        Goal::None,
    ))
}

/// Measures jobs with a concurrency key that permits one reservation at a time.
pub fn blocked(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let count = bench.scale.count(jobs);
    let free = take(&server, TakeMode::InTurn, count, "")?;
    let bound = take(&server, TakeMode::InTurn, count, " con:k")?;
    let outcome = Outcome::of(bound).and("jobs a second", bound.rate, Goal::AtLeast(100_000.0));
    Ok(outcome.and("CPU, relative to jobs without a limit", bound.cpu / free.cpu, Goal::None))
}

/// Measures the memory of a unique key while the job exists (not counting the key's name) and after the job has ended
/// (counting the name).
pub fn keys(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let count = bench.scale.count(jobs);
    let resident = |tags: &str| -> Result<(Server, f64), String> {
        let server = bench.program.start(&[])?;
        fill(&server, 64, Bodies::new(64))?;
        let before = settled(&server);
        fill(&server, count, Bodies::tagged(64, tags))?;
        let each = (settled(&server) - before) / count as f64;
        Ok((server, each))
    };
    let (_, plain) = resident("")?;
    let (_, keyed) = resident(KEY)?;
    let server = bench.program.start(&[])?;
    let before = settled(&server);
    take(&server, TakeMode::Batched, count, &format!("{KEY}:1000"))?;
    let ended = (settled(&server) - before) / count as f64;
    Ok(Outcome::default().and("bytes for a key, without its name", keyed - plain - KEY_LENGTH, Goal::AtMost(96.0)).and(
        "bytes for a key that outlives its job",
        ended,
        Goal::None,
    ))
}

pub fn durable(bench: Bench, connections: usize, batch: usize) -> Result<Outcome, String> {
    let puts = |tags: &str| -> Result<Work, String> {
        let folder = Folder::new();
        let server = bench.program.start(&["-b", &folder.path(), "-f", "0"])?;
        let mut driver = Driver::connect(server.address, connections)?;
        let mut load = Puts::new(connections, batch, Bodies::tagged(64, tags));
        load.ledger.expect(MAX_JOBS);
        driver.start(&mut load, 0..connections)?;
        let work = measure(&server, &mut driver, &mut load, bench.scale, MAX_JOBS)?;
        load.limit = 0;
        driver.run(&mut load, Until::Quiet(0))?;
        Ok(work)
    };
    let plain = puts("")?;
    let keyed = puts(KEY)?;
    let goal = Goal::AtLeast(if batch > 1 { 0.75 } else { 0.91 });
    let outcome = Outcome::of(keyed).and("rate, relative to plain puts", keyed.rate / plain.rate, goal);
    Ok(outcome.and("CPU, relative to plain puts", keyed.cpu / plain.cpu, Goal::None))
}

/// Runs `ask` while another client sends requests. `ask` usually sends commands that process many jobs. Returns the
/// result of `ask` and the other client's longest round trip in milliseconds.
fn beside(server: &Server, ask: impl FnOnce(&mut Client) -> u64 + Send) -> Result<(u64, f64), String> {
    let mut driver = Driver::connect(server.address, 1)?;
    driver.ask(0..1, |_, out| ["use b", "watch b", "ignore default"].iter().for_each(|line| out.line(line)))?;
    let mut load = Cycle::new(1, Bodies::new(64));
    driver.start(&mut load, 0..1)?;
    driver.run(&mut load, Until::Work(1000, super::driver::PATIENCE))?;
    load.times().clear();
    let ended = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let count = Client::connect(server.address).map(|mut client| ask(&mut client));
            ended.store(true, Ordering::Relaxed);
            count
        });
        while !ended.load(Ordering::Relaxed) {
            let before = load.operations();
            driver.run(&mut load, Until::Work(before + 100, super::driver::PATIENCE))?;
        }
        asking.join().expect("a thread that returns").map_err(|error| error.to_string())
    })?;
    load.stopping = true;
    driver.run(&mut load, Until::Quiet(0))?;
    Ok((asked, load.times().longest() / 1000.0))
}

pub fn operators(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let count = bench.scale.count(jobs) as u64;
    fill(&server, count as usize, Bodies::new(64))?;
    let (_, alone) = beside(&server, |_| {
        std::thread::sleep(bench.scale.time);
        0
    })?;
    let (listed, listing) = beside(&server, |client| {
        let (mut above, mut listed) = (0, 0);
        while let Ok(ids) = client.list_jobs("default", "ready", above, 1000) {
            listed += ids.len() as u64;
            let Some(last) = ids.last() else { break };
            above = *last;
        }
        listed
    })?;
    let (flushed, flushing) = beside(&server, |client| client.flush_tube("default").unwrap_or(0))?;
    if (listed, flushed) != (count, count) {
        return Err(format!("of {count} jobs, {listed} were listed and {flushed} flushed"));
    }
    Ok(Outcome::default()
        .and("worst request of a bystander, ms", alone, Goal::None)
        .and("the same while all jobs are listed, ms", listing, Goal::AtMost(5.0))
        .and("the same while all jobs are flushed, ms", flushing, Goal::AtMost(5.0)))
}

/// Waits until the statistic `key` of `tube` is `wanted`. Returns `wanted`, or 0 if the wait times out.
fn await_figure(client: &mut Client, tube: &str, key: &str, wanted: u64) -> u64 {
    let deadline = Instant::now() + super::driver::PATIENCE * 4;
    while client.figure(&format!("stats-tube {tube}"), key).is_ok_and(|value| value != wanted.to_string()) {
        if Instant::now() > deadline {
            return 0;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    wanted
}

/// Measures the longest round trip of another client during events that affect many jobs: the release of jobs that wait
/// for a group, the disconnection of a worker whose jobs become dead letters, and many due schedules.
pub fn bulk(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let count = bench.scale.count(jobs);
    let failed = |error: beanpole::ClientError| error.to_string();
    let server = bench.program.start(&[])?;
    let mut client = Client::connect(server.address).map_err(|error| error.to_string())?;
    let member = PutTags::default().with(|tags| tags.groups = vec!["g".to_owned()]);
    let member = client.put_tagged(b"x", 0, 0, 600, &member).map_err(failed)?.id();
    fill(&server, count, Bodies::tagged(64, " aft:g"))?;
    let (released, releasing) = beside(&server, |client| match client.delete(member) {
        Ok(()) => await_figure(client, "default", "current-jobs-ready", count as u64),
        Err(_) => 0,
    })?;
    client.set_tube("default", "try:1 dead:dead").map_err(failed)?;
    let mut held = 0;
    while held < count {
        held += client.reserve_batch(1000, Some(0)).map_err(failed)?.len();
    }
    let (dead, dying) = beside(&server, |other| {
        drop(client);
        await_figure(other, "dead", "current-jobs-buried", count as u64)
    })?;
    let server = bench.program.start(&[])?;
    let schedules = count / 10;
    let mut client = Client::connect(server.address).map_err(|error| error.to_string())?;
    for number in 0..schedules {
        let put = format!("put 0 0 600 1 idp:s{number} every:1\r\nx\r\n");
        client.send(put.as_bytes()).and_then(|()| client.line()).map_err(failed)?;
    }
    let (copies, running) = beside(&server, |client| {
        std::thread::sleep(std::time::Duration::from_secs(5));
        await_figure(client, "default", "current-jobs-ready", schedules as u64)
    })?;
    if (released, dead, copies) != (count as u64, count as u64, schedules as u64) {
        return Err(format!("of {count} jobs, {released} were released and {dead} died; {copies} schedules ran"));
    }
    Ok(Outcome::default()
        .and("worst request while the jobs of a group are released, ms", releasing, Goal::AtMost(10.0))
        .and("the same while a worker's jobs become dead letters, ms", dying, Goal::AtMost(10.0))
        .and("the same while a tenth as many schedules run each second, ms", running, Goal::AtMost(10.0)))
}
