//! Measures clients that put, reserve and delete jobs one request at a time, in queues with various contents.
//!
//! Owns the load [`Cycle`]. Before the measurement, scenarios can create other tubes, jobs or reservations. If a
//! scenario creates tubes or jobs, the report also shows the slowdown compared with the same load without them.

use std::time::Instant;

use super::driver::{Driver, Load, Until, PATIENCE};
use super::measure::{measure, Bench, Goal, Outcome, Timed};
use super::process::Server;
use super::put::{fill, fill_mixed};
use super::stats::Histogram;
use super::verify::{Bodies, Ledger};
use super::wire::{unexpected, Out, Reply};

const MAX_COMMANDS: usize = 10_000_000;

/// Each connection puts a job, reserves a job that any connection has put, and deletes the reserved job.
#[derive(Debug)]
pub struct Cycle {
    pub ledger: Ledger,
    /// `true` to stop each connection after its next delete.
    pub stopping: bool,
    bodies: Bodies,
    /// The last job that each connection put, and the time of the connection's last request.
    lines: Vec<(usize, Instant)>,
    done: u64,
    times: Histogram,
}

impl Cycle {
    pub fn new(connections: usize, bodies: Bodies) -> Cycle {
        Cycle {
            ledger: Ledger::default(),
            stopping: false,
            bodies,
            lines: vec![(0, Instant::now()); connections],
            done: 0,
            times: Histogram::default(),
        }
    }
}

impl Load for Cycle {
    fn start(&mut self, connection: usize, now: Instant, out: &mut Out) {
        if !self.stopping {
            let number = self.ledger.next();
            self.lines[connection] = (number, now);
            self.bodies.put(number, out);
        }
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        let line = &mut self.lines[connection];
        self.times.add(now - std::mem::replace(&mut line.1, now));
        self.done += 1;
        match reply {
            Reply::Inserted(id) => {
                self.ledger.inserted(line.0, id)?;
                out.reserve();
            }
            Reply::Reserved(id, body) => {
                self.ledger.reserved(self.bodies.number(body)?, id)?;
                out.delete(id);
            }
            Reply::Deleted => self.start(connection, now, out),
            other => return Err(unexpected(other)),
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.done
    }
}

impl Timed for Cycle {
    fn times(&mut self) -> &mut Histogram {
        &mut self.times
    }
}

/// Measures `load`, which must not have sent any request yet.
fn run(bench: Bench, server: &Server, connections: usize, load: &mut Cycle) -> Result<super::measure::Work, String> {
    let mut driver = Driver::connect(server.address, connections)?;
    run_on(bench, server, &mut driver, load)
}

fn run_on(
    bench: Bench,
    server: &Server,
    driver: &mut Driver,
    load: &mut Cycle,
) -> Result<super::measure::Work, String> {
    driver.start(load, 0..driver.len())?;
    let work = measure(server, driver, load, bench.scale, MAX_COMMANDS)?;
    load.stopping = true;
    driver.run(load, Until::Quiet(0))?;
    Ok(work)
}

/// Measures [`Cycle`] with bodies of `length` bytes.
pub fn plain(bench: Bench, connections: usize, length: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    run(bench, &server, connections, &mut Cycle::new(connections, Bodies::new(length))).map(Outcome::of)
}

pub fn fill_tubes(server: &Server, tubes: usize) -> Result<(), String> {
    let mut driver = Driver::connect(server.address, 1)?;
    let bodies = Bodies::new(64);
    let start = Instant::now();
    for first in (0..tubes).step_by(32) {
        if start.elapsed() > PATIENCE * 10 {
            return Err(format!("only {first} of {tubes} tubes in {:?}", PATIENCE * 10));
        }
        driver.ask(0..1, |_, out| {
            for tube in first..tubes.min(first + 32) {
                out.line(&format!("use tube-{tube}"));
                bodies.put(tube, out);
            }
        })?;
    }
    Ok(())
}

/// Measures [`Cycle`] while `tubes` other tubes contain one job each.
pub fn beside_tubes(bench: Bench, connections: usize, tubes: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let alone = run(bench, &server, connections, &mut Cycle::new(connections, Bodies::new(64)))?;
    fill_tubes(&server, bench.scale.count(tubes))?;
    let work = run(bench, &server, connections, &mut Cycle::new(connections, Bodies::new(64)))?;
    Ok(Outcome::of(work).and("CPU, relative to one tube", work.cpu / alone.cpu, goal(bench, 1.1)))
}

/// Measures [`Cycle`] in a tube with `jobs` other ready jobs. If `mixed` is `true`, these jobs have many priorities.
pub fn deep(bench: Bench, connections: usize, jobs: usize, mixed: bool) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let alone = run(bench, &server, connections, &mut Cycle::new(connections, Bodies::new(64)))?;
    let server = bench.program.start(&[])?;
    let jobs = bench.scale.count(jobs);
    let filled = if mixed {
        // The factor spreads consecutive jobs over all 1009 priorities.
        fill_mixed(&server, jobs, (0..1009).map(|turn| Bodies::with(64, turn * 389 % 1009 * 1000, 0)).collect())?
    } else {
        fill(&server, jobs, Bodies::new(64))?
    };
    let mut load = Cycle::new(connections, Bodies::with(64, if mixed { 500_000 } else { 0 }, 0));
    load.ledger = filled.ledger;
    let work = run(bench, &server, connections, &mut load)?;
    Ok(Outcome::of(work).and("CPU, relative to an empty queue", work.cpu / alone.cpu, goal(bench, 1.2)))
}

/// Measures [`Cycle`] on one connection that holds `jobs` other reserved jobs.
pub fn holding(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let jobs = bench.scale.count(jobs);
    let filled = fill(&server, jobs, Bodies::new(64))?;
    let mut driver = Driver::connect(server.address, 1)?;
    for first in (0..jobs).step_by(64) {
        driver.ask(0..1, |_, out| (first..jobs.min(first + 64)).for_each(|_| out.reserve()))?;
    }
    let mut load = Cycle::new(1, Bodies::new(64));
    load.ledger = filled.ledger;
    run_on(bench, &server, &mut driver, &mut load).map(Outcome::of)
}

/// Returns a goal that limits a slowdown to `at_most`. The peer has no goal.
fn goal(bench: Bench, at_most: f64) -> Goal {
    if bench.ours {
        Goal::AtMost(at_most)
    } else {
        Goal::None
    }
}
