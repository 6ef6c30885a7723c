//! Measures interactive clients while other clients put jobs in bulk. Neither kind of client may starve the other.
//!
//! Owns the combination of two loads: fifty clients that put, reserve and delete one job at a time, and two producers
//! that fill another tube in large batches.

use std::time::Instant;

use super::cycle::Cycle;
use super::driver::{Driver, Load, Until};
use super::measure::{Bench, Goal, Outcome, Span, Timed};
use super::put::Puts;
use super::verify::Bodies;
use super::wire::{Out, Reply};

const INTERACTIVE: usize = 50;

const BULK: usize = 2;

const BATCH: usize = 256;

struct Mixture {
    interactive: Cycle,
    bulk: Puts,
}

impl Load for Mixture {
    fn start(&mut self, connection: usize, now: Instant, out: &mut Out) {
        match connection.checked_sub(INTERACTIVE) {
            None => self.interactive.start(connection, now, out),
            Some(producer) => self.bulk.start(producer, now, out),
        }
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        match connection.checked_sub(INTERACTIVE) {
            None => self.interactive.reply(connection, now, reply, out),
            Some(producer) => self.bulk.reply(producer, now, reply, out),
        }
    }

    fn operations(&self) -> u64 {
        self.interactive.operations() + self.bulk.operations()
    }
}

/// Measures the interactive clients, and reports the producers' rate as an additional value.
pub fn mixed(bench: Bench) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let mut driver = Driver::connect(server.address, INTERACTIVE + BULK)?;
    driver.ask(INTERACTIVE..INTERACTIVE + BULK, |_, out| out.line("use bulk"))?;
    let mut load = Mixture {
        interactive: Cycle::new(INTERACTIVE, Bodies::new(64)),
        bulk: Puts::new(BULK, BATCH, Bodies::new(64)),
    };
    driver.start(&mut load, 0..INTERACTIVE + BULK)?;
    driver.run(&mut load, Until::Work(u64::MAX, bench.scale.warm_up))?;
    load.interactive.times().clear();
    let before = (load.interactive.operations(), load.bulk.operations());
    let (span, start) = (Span::start(&server), Instant::now());
    driver.run(&mut load, Until::Work(u64::MAX, bench.scale.time))?;
    let seconds = start.elapsed().as_secs_f64();
    let work = span.end(load.interactive.operations() - before.0, load.interactive.times());
    let bulk = (load.bulk.operations() - before.1) as f64 / seconds;
    load.interactive.stopping = true;
    load.bulk.limit = 0;
    driver.run(&mut load, Until::Quiet(0))?;
    Ok(Outcome::of(work).and("bulk puts per second at the same time", bulk, Goal::RatioAtLeast(10.0)))
}
