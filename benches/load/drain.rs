//! Measures a worker that drains a long queue in batches.
//!
//! Owns the load [`Drain`]. Every job must arrive exactly once, in the order of insertion, with its body and ID.

use std::time::Instant;

use super::driver::{Driver, Load};
use super::measure::{measure_all, Bench, Outcome, Timed, Work};
use super::process::Server;
use super::put::{fill, Puts};
use super::stats::Histogram;
use super::verify::{Bodies, Ledger};
use super::wire::{unexpected, Out, Reply};

/// Deletes a batch of jobs and reserves the next batch in one write.
#[derive(Debug)]
pub struct Drain {
    bodies: Bodies,
    ledger: Ledger,
    batch: usize,
    /// The reserved jobs, which the next write deletes.
    held: Vec<u64>,
    /// The number of outstanding replies to the last write.
    missing: usize,
    sent: Instant,
    done: u64,
    times: Histogram,
}

impl Drain {
    pub fn new(puts: Puts, batch: usize) -> Drain {
        Drain {
            bodies: Bodies::new(64),
            ledger: puts.ledger,
            batch,
            held: Vec::new(),
            missing: 0,
            sent: Instant::now(),
            done: 0,
            times: Histogram::default(),
        }
    }
}

impl Load for Drain {
    fn start(&mut self, _: usize, now: Instant, out: &mut Out) {
        self.sent = now;
        self.missing = self.held.len();
        self.held.drain(..).for_each(|id| out.delete(id));
        let left = self.ledger.len() - self.ledger.taken();
        for _ in 0..self.batch.min(left) {
            out.reserve();
            self.missing += 1;
        }
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        match reply {
            Reply::Deleted => {}
            Reply::Reserved(id, body) => {
                let number = self.bodies.number(body)?;
                if number != self.ledger.taken() {
                    return Err(format!("job number {number} arrived instead of number {}", self.ledger.taken()));
                }
                self.ledger.reserved(number, id)?;
                self.held.push(id);
            }
            other => return Err(unexpected(other)),
        }
        self.done += 1;
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

impl Timed for Drain {
    fn times(&mut self) -> &mut Histogram {
        &mut self.times
    }
}

pub fn empty(server: &Server, puts: Puts, batch: usize) -> Result<Work, String> {
    let mut driver = Driver::connect(server.address, 1)?;
    let mut load = Drain::new(puts, batch);
    let commands = load.ledger.len() * 2;
    driver.start(&mut load, 0..1)?;
    measure_all(server, &mut driver, &mut load, commands)
}

pub fn drain(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let filled = fill(&server, bench.scale.count(jobs), Bodies::new(64))?;
    empty(&server, filled, 64).map(Outcome::of)
}
