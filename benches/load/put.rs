//! Measures producers, and fills queues for other measurements.
//!
//! Owns the load [`Puts`], which records every returned ID in the ledger.

use std::time::Instant;

use super::driver::{Driver, Load, Until, PATIENCE};
use super::measure::{measure, measure_all, Bench, Goal, Outcome, Timed};
use super::process::Server;
use super::stats::Histogram;
use super::verify::{Bodies, Ledger};
use super::wire::{unexpected, Out, Reply};

/// The maximum number of jobs in a measurement. This maximum limits memory use.
const MAX_JOBS: usize = 3_000_000;

/// Each connection puts a batch, waits for all replies, and repeats.
#[derive(Debug)]
pub struct Puts {
    /// Bodies of equal size, used by the batches in rotation.
    pub bodies: Vec<Bodies>,
    pub batch: usize,
    /// The maximum number of jobs to put.
    pub limit: usize,
    pub ledger: Ledger,
    lines: Vec<Line>,
    done: u64,
    times: Histogram,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    next: usize,
    end: usize,
    sent: Instant,
}

impl Puts {
    pub fn new(connections: usize, batch: usize, bodies: Bodies) -> Puts {
        Puts {
            bodies: vec![bodies],
            batch,
            limit: usize::MAX,
            ledger: Ledger::default(),
            lines: vec![Line { next: 0, end: 0, sent: Instant::now() }; connections],
            done: 0,
            times: Histogram::default(),
        }
    }
}

impl Load for Puts {
    fn start(&mut self, connection: usize, now: Instant, out: &mut Out) {
        let first = self.ledger.len();
        let batch = self.batch.min(self.limit.saturating_sub(first));
        let bodies = &self.bodies[first / self.batch % self.bodies.len()];
        for _ in 0..batch {
            bodies.put(self.ledger.next(), out);
        }
        self.lines[connection] = Line { next: first, end: first + batch, sent: now };
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        let Reply::Inserted(id) = reply else { return Err(unexpected(reply)) };
        let line = &mut self.lines[connection];
        self.ledger.inserted(line.next, id)?;
        line.next += 1;
        self.done += 1;
        if line.next == line.end {
            self.times.add(now - line.sent);
            self.start(connection, now, out);
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.done
    }
}

impl Timed for Puts {
    fn times(&mut self) -> &mut Histogram {
        &mut self.times
    }
}

pub fn fill(server: &Server, count: usize, bodies: Bodies) -> Result<Puts, String> {
    fill_mixed(server, count, vec![bodies])
}

pub fn fill_mixed(server: &Server, count: usize, mut bodies: Vec<Bodies>) -> Result<Puts, String> {
    let mut driver = Driver::connect(server.address, 1)?;
    let mut puts = Puts::new(1, 64, bodies.remove(0));
    puts.bodies.extend(bodies);
    puts.limit = count;
    driver.start(&mut puts, 0..1)?;
    driver.run(&mut puts, Until::Work(count as u64, PATIENCE * 4))?;
    if puts.done < count as u64 {
        return Err(format!("loading {count} jobs takes too long"));
    }
    Ok(puts)
}

pub fn puts(bench: Bench, connections: usize, batch: usize) -> Result<Outcome, String> {
    puts_of(bench, connections, batch, 64)
}

pub fn puts_of(bench: Bench, connections: usize, batch: usize, size: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let mut driver = Driver::connect(server.address, connections)?;
    let mut load = Puts::new(connections, batch, Bodies::new(size));
    if matches!(bench.program, super::process::Program::Echo(_)) {
        load.ledger = Ledger::of_echo();
    }
    driver.start(&mut load, 0..connections)?;
    let work = measure(&server, &mut driver, &mut load, bench.scale, MAX_JOBS / size.div_ceil(64))?;
    load.limit = 0;
    driver.run(&mut load, Until::Quiet(0))?;
    Ok(Outcome::of(work))
}

/// Fills a queue with `jobs` jobs and measures the slowest batch.
pub fn load(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let mut driver = Driver::connect(server.address, 1)?;
    let count = bench.scale.count(jobs);
    let mut load = Puts::new(1, 16, Bodies::new(64));
    load.ledger.expect(count);
    load.limit = count;
    driver.start(&mut load, 0..1)?;
    let work = measure_all(&server, &mut driver, &mut load, count)?;
    Ok(Outcome::of(work).and("worst put, ms", work.longest / 1000.0, Goal::AtMost(1.0)))
}
