//! Measures the costs of waking one of many sleeping workers.
//!
//! Owns the load [`Wake`]. Each job is submitted after the previous job is complete and all woken workers are asleep
//! again.

use std::time::Instant;

use super::driver::{Driver, Load};
use super::measure::{measure, Bench, Goal, Outcome, Timed};
use super::stats::Histogram;
use super::verify::{data, number, result, Ledger};
use super::wire::{unexpected, Out, Reply};

const MAX_JOBS: usize = 3_000_000;

/// Connection 0 submits jobs. All other connections are workers.
#[derive(Debug, Default)]
struct Wake {
    ledger: Ledger,
    awake: usize,
    noops: u64,
    /// `true` if the server has acknowledged the current job.
    created: bool,
    stopping: bool,
    poke: bool,
    since: Option<Instant>,
    done: u64,
    times: Histogram,
}

impl Load for Wake {
    fn start(&mut self, connection: usize, now: Instant, out: &mut Out) {
        if connection > 0 {
            out.can_do();
            out.sleep();
        } else if !self.stopping {
            self.created = false;
            self.since = Some(now);
            out.submit_background(b"", &data(self.ledger.next()));
        }
    }

    fn reply(&mut self, _: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        match reply {
            Reply::Created(handle) => {
                self.created = true;
                self.ledger.has_handle(self.ledger.len() - 1, handle)?;
            }
            Reply::Noop => {
                self.awake += 1;
                self.noops += 1;
                out.grab();
            }
            Reply::Assigned(handle, data) => {
                self.ledger.assigned(number(data)?, handle)?;
                out.complete(handle, &result(data));
                out.grab();
                self.done += 1;
                self.since.take().into_iter().for_each(|since| self.times.add(now - since));
            }
            Reply::NoJob => {
                self.awake -= 1;
                out.sleep();
            }
            other => return Err(unexpected(other)),
        }
        self.poke = self.awake == 0 && self.created && self.ledger.taken() == self.ledger.len();
        Ok(())
    }

    fn poke(&mut self) -> Option<usize> {
        std::mem::take(&mut self.poke).then_some(0)
    }

    fn operations(&self) -> u64 {
        self.done
    }
}

impl Timed for Wake {
    fn times(&mut self) -> &mut Histogram {
        &mut self.times
    }
}

pub fn wake(bench: Bench, workers: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let mut driver = Driver::connect(server.address, 1 + workers)?;
    let mut load = Wake::default();
    driver.start(&mut load, 1..1 + workers)?;
    std::thread::sleep(bench.scale.warm_up);
    driver.start(&mut load, 0..1)?;
    let work = measure(&server, &mut driver, &mut load, bench.scale, MAX_JOBS)?;
    let noops = load.noops as f64 / load.done as f64;
    Ok(Outcome::of(work).and("workers woken for a job", noops, Goal::None))
}
