//! Measures the memory of jobs, tubes, connections, and the program itself.
//!
//! Owns the comparison of resident memory before and after an operation. Each operation creates so many objects that
//! rounding to whole pages does not matter.

use std::time::{Duration, Instant};

use super::cycle::fill_tubes;
use super::drain::empty;
use super::driver::{Driver, Load, Until};
use super::measure::{Bench, Goal, Outcome};
use super::process::{Program, Server};
use super::put::fill;
use super::verify::Bodies;
use super::wire::{unexpected, Out, Reply};

const SETTLE: Duration = Duration::from_secs(2);

const WATCH: Duration = Duration::from_secs(2);

/// Waits up to [`SETTLE`] for the resident memory to stabilize. Returns the memory in bytes.
pub fn settled(server: &Server) -> f64 {
    let start = Instant::now();
    let mut last = server.rss();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let rss = server.rss();
        if rss == last || start.elapsed() > SETTLE {
            return rss as f64;
        }
        last = rss;
    }
}

/// Measures the memory of ready jobs, and the memory that remains after the jobs are deleted.
pub fn jobs(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let little = fill(&server, 64, Bodies::new(64))?;
    empty(&server, little, 64)?;
    let before = settled(&server);
    let count = bench.scale.count(jobs);
    let mut puts = fill(&server, count, Bodies::new(64))?;
    let full = settled(&server);
    puts.limit = 0;
    empty(&server, puts, 64)?;
    std::thread::sleep(bench.scale.time);
    let after = settled(&server);
    let each = (full - before) / count as f64;
    let outcome = Outcome::default().and("bytes for a ready job of 64 bytes", each, Goal::AtMost(160.0));
    Ok(outcome.and("RSS after all jobs are deleted, relative to before", after / before, Goal::AtMost(1.5)))
}

/// Measures tubes that contain one job each.
pub fn tubes(bench: Bench, tubes: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    fill_tubes(&server, 1)?;
    let before = settled(&server);
    let count = bench.scale.count(tubes);
    fill_tubes(&server, count)?;
    let each = (settled(&server) - before) / count as f64;
    Ok(Outcome::default().and("bytes for a tube with one job", each, Goal::AtMost(500.0)))
}

/// Measures idle connections that have received a reply, and connections that wait for a job.
pub fn connections(bench: Bench, count: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let mut driver = Driver::connect(server.address, 2)?;
    driver.ask(0..2, |_, out| out.line("watch default"))?;
    let before = settled(&server);
    let count = bench.scale.count(count);
    driver.add(count)?;
    driver.ask(2..2 + count, |_, out| out.line("watch default"))?;
    let idle = settled(&server);
    driver.start(&mut Waiting, 2..2 + count)?;
    driver.ask(0..1, |_, out| out.line("watch default"))?;
    let blocked = settled(&server);
    let each = |rss: f64| (rss - before) / count as f64;
    let outcome = Outcome::default().and("bytes for an idle connection", each(idle), Goal::AtMost(400.0));
    Ok(outcome.and("bytes for a connection that waits", each(blocked), Goal::AtMost(500.0)))
}

/// A worker that never receives a job.
struct Waiting;

impl Load for Waiting {
    fn start(&mut self, _: usize, _: Instant, out: &mut Out) {
        out.reserve();
    }

    fn reply(&mut self, _: usize, _: Instant, reply: Reply, _: &mut Out) -> Result<(), String> {
        Err(unexpected(reply))
    }
}

pub fn size(bench: Bench) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let rss = settled(&server) / 1e6;
    let binary = match bench.program {
        Program::Queue(path) => std::fs::metadata(path).map_or(f64::NAN, |data| data.len() as f64 / 1e6),
        _ => f64::NAN,
    };
    let start = server.started_in.as_secs_f64() * 1000.0;
    let outcome = Outcome::default().and("idle RSS, MB", rss, Goal::AtMost(3.0));
    let outcome = outcome.and("program file, MB", binary, Goal::AtMost(2.0));
    Ok(outcome.and("startup until listening, ms", start, Goal::None))
}

/// Measures a server without traffic, but with many delayed jobs and waiting workers.
pub fn idle(bench: Bench, jobs: usize, workers: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    fill(&server, bench.scale.count(jobs), Bodies::with(64, 0, 3600))?;
    let workers = bench.scale.count(workers);
    let mut driver = Driver::connect(server.address, 1 + workers)?;
    driver.start(&mut Waiting, 1..1 + workers)?;
    driver.ask(0..1, |_, out| out.line("watch default"))?;
    driver.run(&mut Waiting, Until::Quiet(workers))?;
    std::thread::sleep(Duration::from_millis(200));
    let before = server.usage();
    std::thread::sleep(WATCH);
    let used = (server.usage().cpu - before.cpu) as f64 / 1e6 / WATCH.as_secs_f64();
    Ok(Outcome::default().and("CPU while idle, ms per second", used, Goal::AtMost(0.1)))
}
