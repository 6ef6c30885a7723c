//! Interactive clients beside bulk producers: does anybody starve?
//!
//! Owns the mixture of two loads on one server: fifty clients that put, reserve and delete one at a time, and two producers
//! that fill another tube in batches. Each kind has a thread of its own, so that neither waits for the other's replies.

use std::time::Instant;

use super::cycle::Cycle;
use super::driver::{Driver, Load, Until};
use super::measure::{measure, Bench, Goal, Outcome};
use super::process::Server;
use super::put::Puts;
use super::verify::Bodies;

/// Clients that do one thing at a time.
const INTERACTIVE: usize = 50;

/// Producers that put 64 jobs at a time.
const BULK: usize = 2;

/// Jobs of the producers at most.
const MAX_JOBS: u64 = 5_000_000;

/// Commands of the others at most.
const MAX_COMMANDS: usize = 10_000_000;

/// The work is the interactive clients'; what the producers reach is a figure beside it.
pub fn mixed(bench: Bench) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let mut driver = Driver::connect(server.address, INTERACTIVE)?;
    let mut load = Cycle::new(INTERACTIVE, Bodies::new(64));
    let (work, bulk) = std::thread::scope(|scope| {
        let bulk = scope.spawn(|| produce(bench, &server));
        driver.start(&mut load, 0..INTERACTIVE)?;
        let work = measure(&server, &mut driver, &mut load, bench.scale, MAX_COMMANDS);
        Ok::<_, String>((work, bulk.join().expect("a thread that ends")))
    })?;
    load.stopping = true;
    driver.run(&mut load, Until::Quiet(0))?;
    Ok(Outcome::of(work?).and("bulk puts a second beside it", bulk?, Goal::RatioAtLeast(10.0)))
}

/// Fills a tube until the others are done; tells how many jobs a second.
fn produce(bench: Bench, server: &Server) -> Result<f64, String> {
    let mut driver = Driver::connect(server.address, BULK)?;
    driver.ask(0..BULK, |_, out| out.line("use bulk"))?;
    let mut load = Puts::new(BULK, 64, Bodies::new(64));
    driver.start(&mut load, 0..BULK)?;
    driver.run(&mut load, Until::Work(MAX_JOBS / 10, bench.scale.warm_up))?;
    let (before, start) = (load.operations(), Instant::now());
    driver.run(&mut load, Until::Work(MAX_JOBS, bench.scale.time))?;
    let rate = (load.operations() - before) as f64 / start.elapsed().as_secs_f64();
    load.limit = 0;
    driver.run(&mut load, Until::Quiet(0))?;
    Ok(rate)
}
