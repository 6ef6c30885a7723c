//! Measures Workq jobs. One connection adds the jobs, and one or many connections lease and complete them.
//!
//! Owns the loads [`Each`] and [`Leases`]. Every job must arrive exactly once with its ID and data. A TIMEOUT while
//! jobs are ready aborts the benchmark.

use std::time::{Duration, Instant};

use super::driver::{Driver, Load, Until};
use super::measure::{Bench, Goal, Outcome, Span, Work};
use super::process::Server;
use super::stats::{median, Histogram};
use super::wire::{unexpected, Out, Reply};

const BATCH: usize = 64;

const ALL: Duration = Duration::from_secs(600);

/// The size of a job's data and of a result, in bytes.
const LENGTH: usize = 100;

fn id(number: usize) -> String {
    format!("{:08x}-4c1f-4b6e-9d21-{number:012x}", number.wrapping_mul(0x9e37_79b9) as u32)
}

fn data(number: usize) -> [u8; LENGTH] {
    let mut data = std::array::from_fn(|place| b'a' + (place % 26) as u8);
    data[..8].copy_from_slice(&(number as u64).to_le_bytes());
    data
}

fn number(name: &[u8], bytes: &[u8]) -> Result<usize, String> {
    let number = bytes.first_chunk::<8>().map_or(0, |number| u64::from_le_bytes(*number) as usize);
    match bytes == data(number) && name == id(number).as_bytes() {
        true => Ok(number),
        false => Err(format!("job {} has the wrong data", name.escape_ascii())),
    }
}

struct Each<F> {
    say: F,
    next: usize,
    end: usize,
    done: usize,
}

impl<F: FnMut(usize, &mut Out)> Load for Each<F> {
    fn start(&mut self, _: usize, _: Instant, out: &mut Out) {
        for _ in 0..BATCH.min(self.end - self.next) {
            (self.say)(self.next, out);
            self.next += 1;
        }
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        if reply != Reply::Ok {
            return Err(unexpected(reply));
        }
        self.done += 1;
        if self.done == self.next {
            self.start(connection, now, out);
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.done as u64
    }
}

fn each(server: &Server, count: usize, say: impl FnMut(usize, &mut Out)) -> Result<(), String> {
    let mut driver = Driver::connect(server.address, 1)?;
    let mut load = Each { say, next: 0, end: count, done: 0 };
    driver.start(&mut load, 0..1)?;
    driver.run(&mut load, Until::Work(count as u64, ALL))
}

/// Leases jobs on each connection until none is left. Completes them if `completes` is `true`.
struct Leases {
    taken: Vec<bool>,
    asked: usize,
    leased: u64,
    completes: bool,
    sent: Vec<Instant>,
    times: Histogram,
}

impl Load for Leases {
    fn start(&mut self, connection: usize, now: Instant, out: &mut Out) {
        if self.asked < self.taken.len() {
            self.asked += 1;
            self.sent[connection] = now;
            out.lease();
        }
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        match reply {
            Reply::Leased(name, data) => {
                let number = number(name, data)?;
                if std::mem::replace(&mut self.taken[number], true) {
                    return Err(format!("job number {number} was leased twice"));
                }
                self.leased += 1;
                self.times.add(now - self.sent[connection]);
                if self.completes {
                    out.complete(&id(number), data);
                } else {
                    self.start(connection, now, out);
                }
            }
            Reply::Ok if self.completes => self.start(connection, now, out),
            other => return Err(unexpected(other)),
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.leased
    }
}

fn lease_all(server: &Server, jobs: usize, connections: usize, completes: bool) -> Result<Work, String> {
    each(server, jobs, |number, out| out.add(&id(number), &data(number)))?;
    let mut driver = Driver::connect(server.address, connections)?;
    let sent = vec![Instant::now(); connections];
    let mut load =
        Leases { taken: vec![false; jobs], asked: 0, leased: 0, completes, sent, times: Histogram::default() };
    let span = Span::start(server);
    driver.start(&mut load, 0..connections)?;
    driver.run(&mut load, Until::Work(jobs as u64, ALL))?;
    driver.run(&mut load, Until::Quiet(0))?;
    match load.leased == jobs as u64 {
        true => Ok(span.end(jobs as u64, &load.times)),
        false => Err(format!("only {} of {jobs} jobs were leased", load.leased)),
    }
}

/// Compares the rate of 50 connections with the rate of one connection that leases the same number of jobs.
pub fn shared(bench: Bench, jobs: usize, completes: bool) -> Result<Outcome, String> {
    let jobs = bench.scale.count(jobs);
    let run = |connections: usize| -> Result<Work, String> {
        let server = bench.program.start(&[])?;
        lease_all(&server, jobs, connections, completes)
    };
    let mut ratios = Vec::new();
    let mut last = None;
    for _ in 0..3 {
        let (one, many) = (run(1)?, run(50)?);
        ratios.push(many.rate / one.rate);
        last = Some((one, many));
    }
    let (one, many) = last.ok_or("no runs")?;
    let outcome = Outcome::of(many).and("50 connections, times the rate of one", median(ratios), Goal::AtLeast(1.3));
    let outcome = outcome.and("jobs a second, one connection", one.rate, Goal::None);
    Ok(outcome.and("server CPU µs a job, one connection", one.cpu, Goal::None))
}

/// Measures leases. A TIMEOUT while jobs are ready, or a job that is leased twice, is an error.
pub fn exact(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    lease_all(&server, bench.scale.count(jobs), 50, false).map(Outcome::of)
}

/// Returns the server's resident memory in bytes after a pause.
fn settled(server: &Server) -> f64 {
    std::thread::sleep(Duration::from_millis(500));
    server.rss() as f64
}

/// Measures the memory of waiting jobs, and of finished jobs with results.
pub fn memory(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let before = settled(&server);
    let jobs = bench.scale.count(jobs);
    each(&server, jobs, |number, out| out.add(&id(number), &data(number)))?;
    let waiting = settled(&server);
    each(&server, jobs, |number, out| out.complete(&id(number), &data(number)))?;
    let finished = settled(&server);
    each(&server, jobs, |number, out| out.delete(&id(number)))?;
    let after = settled(&server);
    let each = |rss: f64| (rss - before) / jobs as f64;
    let outcome = Outcome::default()
        .and("bytes for a waiting job of 100 bytes", each(waiting), Goal::AtMost(300.0))
        .and("bytes for a finished one, with a result of 100 bytes", each(finished), Goal::AtMost(400.0));
    Ok(outcome.and("RSS after all jobs are deleted, relative to before", after / before, Goal::AtMost(1.5)))
}
