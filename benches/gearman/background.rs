//! Measures the costs of background jobs at different queue lengths.
//!
//! Owns the loads [`Submits`] and [`Drain`], which send batches over one connection. At each of three queue lengths,
//! the rate and the server's processor time are measured for one thirtieth of the jobs. The processor time varies less
//! than the rate.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::driver::{Driver, Load, Until};
use super::measure::{Bench, Goal, Outcome, Span};
use super::process::Server;
use super::stats::Histogram;
use super::verify::{data, number, result, unique, Ledger};
use super::wire::{unexpected, Out, Reply};

const BATCH: usize = 64;

/// Time limit for each run of a load. The limit is high, because the peer can be slow.
const ALL: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
struct Submits {
    ledger: Ledger,
    unique: bool,
    limit: usize,
    created: usize,
}

impl Load for Submits {
    fn start(&mut self, _: usize, _: Instant, out: &mut Out) {
        for _ in 0..BATCH.min(self.limit - self.ledger.len()) {
            let job = self.ledger.next();
            let unique = if self.unique { unique(job) } else { String::new() };
            out.submit_background(unique.as_bytes(), &data(job));
        }
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        let Reply::Created(handle) = reply else { return Err(unexpected(reply)) };
        self.ledger.has_handle(self.created, handle)?;
        self.created += 1;
        if self.created == self.ledger.len() {
            self.start(connection, now, out);
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.created as u64
    }
}

/// Grabs a batch of jobs, then completes it and grabs the next batch in one write. The jobs must arrive in order.
#[derive(Debug)]
struct Drain {
    ledger: Ledger,
    limit: usize,
    held: Vec<(Vec<u8>, Vec<u8>)>,
    missing: usize,
}

impl Load for Drain {
    fn start(&mut self, _: usize, _: Instant, out: &mut Out) {
        if self.ledger.taken() == 0 {
            out.can_do();
        }
        self.held.drain(..).for_each(|(handle, result)| out.complete(&handle, &result));
        self.missing = BATCH.min(self.limit - self.ledger.taken());
        (0..self.missing).for_each(|_| out.grab());
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        let Reply::Assigned(handle, data) = reply else { return Err(unexpected(reply)) };
        let number = number(data)?;
        if number != self.ledger.taken() {
            return Err(format!("job number {number} arrived instead of number {}", self.ledger.taken()));
        }
        self.ledger.assigned(number, handle)?;
        self.held.push((handle.to_vec(), result(data)));
        self.missing -= 1;
        if self.missing == 0 {
            self.start(connection, now, out);
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.ledger.taken() as u64
    }
}

/// Waits up to two seconds for the resident memory to stabilize. Returns the memory in bytes.
fn settled(server: &Server) -> f64 {
    let start = Instant::now();
    let mut last = server.rss();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let rss = server.rss();
        if rss == last || start.elapsed() > Duration::from_secs(2) {
            return rss as f64;
        }
        last = rss;
    }
}

trait Stretch: Load {
    fn limit(&mut self) -> &mut usize;
}

impl Stretch for Submits {
    fn limit(&mut self) -> &mut usize {
        &mut self.limit
    }
}

impl Stretch for Drain {
    fn limit(&mut self) -> &mut usize {
        &mut self.limit
    }
}

/// Runs the load until the last job of `range` is done. Returns the rate in jobs per second and the processor time in
/// microseconds per job, both measured only for the jobs in the range.
fn stretch(
    server: &Server,
    driver: &mut Driver,
    load: &mut impl Stretch,
    range: Range<usize>,
) -> Result<[f64; 2], String> {
    let mut to = |end: usize| {
        *load.limit() = end;
        driver.start(load, 0..1)?;
        driver.run(load, Until::Work(end as u64, ALL))?;
        match load.operations() == end as u64 {
            true => Ok(()),
            false => Err(format!("only {} of {end} jobs in {ALL:?}", load.operations())),
        }
    };
    if range.start > 0 {
        to(range.start)?;
    }
    let span = Span::start(server);
    to(range.end)?;
    let work = span.end(range.len() as u64, &Histogram::default());
    Ok([work.rate, work.cpu])
}

/// Returns the measured ranges of jobs: at the start, at a third of the full length, and at the full length.
fn stretches(count: usize) -> [Range<usize>; 3] {
    let part = count / 30;
    [0..part, count / 3 - part..count / 3, count - part..count]
}

fn submit(server: &Server, count: usize, unique: bool) -> Result<(Ledger, [[f64; 2]; 3]), String> {
    let mut driver = Driver::connect(server.address, 1)?;
    let mut load = Submits { unique, ..Submits::default() };
    let mut measured = [[0.0; 2]; 3];
    for (measured, range) in measured.iter_mut().zip(stretches(count)) {
        *measured = stretch(server, &mut driver, &mut load, range)?;
    }
    Ok((load.ledger, measured))
}

/// Drains the queue. Returns the results in the order of [`stretches`], although the full queue is measured first.
fn drain(server: &Server, ledger: Ledger) -> Result<[[f64; 2]; 3], String> {
    let mut driver = Driver::connect(server.address, 1)?;
    let count = ledger.len();
    let mut load = Drain { ledger, limit: 0, held: Vec::new(), missing: 0 };
    let mut measured = [[0.0; 2]; 3];
    for (measured, range) in measured.iter_mut().zip(stretches(count)).rev() {
        *measured = stretch(server, &mut driver, &mut load, count - range.end..count - range.start)?;
    }
    Ok(measured)
}

pub fn deep(bench: Bench, jobs: usize, unique: bool) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let (little, _) = submit(&server, 30 * BATCH, unique)?;
    drain(&server, little)?;
    let before = settled(&server);
    let count = bench.scale.count(jobs);
    let (ledger, submits) = submit(&server, count, unique)?;
    let full = settled(&server);
    let drains = drain(&server, ledger)?;
    std::thread::sleep(bench.scale.time);
    let after = settled(&server);
    let outcome = Outcome::default()
        .and("bytes for a job of 64 bytes", (full - before) / count as f64, Goal::AtMost(250.0))
        .and("submits a second, few jobs", submits[0][0], Goal::None)
        .and("submits a second, a third of all", submits[1][0], Goal::None)
        .and("submits a second, all", submits[2][0], Goal::RatioAtLeast(1.0))
        .and("server CPU µs for a submit, few jobs", submits[0][1], Goal::None)
        .and("server CPU µs for a submit, all", submits[2][1], Goal::None)
        .and("that at all by that at few, submit", submits[2][1] / submits[0][1], Goal::AtMost(1.25))
        .and("drained a second, few jobs", drains[0][0], Goal::None)
        .and("drained a second, a third of all", drains[1][0], Goal::None)
        .and("drained a second, all", drains[2][0], Goal::RatioAtLeast(1.0))
        .and("server CPU µs for a job drained, few jobs", drains[0][1], Goal::None)
        .and("server CPU µs for a job drained, all", drains[2][1], Goal::None)
        .and("that at all by that at few, drain", drains[2][1] / drains[0][1], Goal::AtMost(1.25));
    Ok(outcome.and("RSS after the drain, relative to before", after / before, Goal::AtMost(1.5)))
}
