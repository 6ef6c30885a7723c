//! Measures clients that wait for results, and workers that sleep while there are no jobs.
//!
//! Owns the load [`Foreground`]. Each client submits a job, waits for the result, and repeats. Each worker grabs jobs
//! until none is left, then sleeps until the server wakes it. An operation lasts from a submission to its result.

use std::time::Instant;

use super::driver::{Driver, Load, Until};
use super::measure::{measure, Bench, Outcome, Timed, Work};
use super::process::Server;
use super::stats::Histogram;
use super::verify::{data, number, result, Ledger};
use super::wire::{unexpected, Out, Reply};

const MAX_JOBS: usize = 3_000_000;

/// The clients, which submit jobs, and the workers. Clients use the lowest connection numbers.
#[derive(Debug)]
pub struct Foreground {
    ledger: Ledger,
    /// The current job of each client, `true` if the client knows the job's handle, and the time of the submission.
    clients: Vec<(usize, bool, Instant)>,
    stopping: bool,
    done: u64,
    times: Histogram,
}

impl Load for Foreground {
    fn start(&mut self, connection: usize, now: Instant, out: &mut Out) {
        if connection >= self.clients.len() {
            out.can_do();
            out.grab();
        } else if !self.stopping {
            let number = self.ledger.next();
            self.clients[connection] = (number, false, now);
            out.submit(&data(number));
        }
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        let Some(client) = self.clients.get_mut(connection) else { return self.work(reply, out) };
        match reply {
            Reply::Created(handle) if !client.1 => {
                client.1 = true;
                self.ledger.has_handle(client.0, handle)
            }
            Reply::Complete(handle, received) if client.1 => {
                self.ledger.has_handle(client.0, handle)?;
                if received != result(&data(client.0)) {
                    return Err(format!("job number {} has the result {}", client.0, received.escape_ascii()));
                }
                self.times.add(now - client.2);
                self.done += 1;
                self.start(connection, now, out);
                Ok(())
            }
            other => Err(unexpected(other)),
        }
    }

    fn operations(&self) -> u64 {
        self.done
    }
}

impl Foreground {
    fn work(&mut self, reply: Reply, out: &mut Out) -> Result<(), String> {
        match reply {
            Reply::Noop => out.grab(),
            Reply::NoJob => out.sleep(),
            Reply::Assigned(handle, data) => {
                self.ledger.assigned(number(data)?, handle)?;
                out.complete(handle, &result(data));
                out.grab();
            }
            other => return Err(unexpected(other)),
        }
        Ok(())
    }
}

impl Timed for Foreground {
    fn times(&mut self) -> &mut Histogram {
        &mut self.times
    }
}

pub fn relay(bench: Bench, clients: usize, workers: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    run(bench, &server, clients, workers).map(Outcome::of)
}

fn run(bench: Bench, server: &Server, clients: usize, workers: usize) -> Result<Work, String> {
    let mut driver = Driver::connect(server.address, clients + workers)?;
    let mut load = Foreground {
        ledger: Ledger::default(),
        clients: vec![(0, false, Instant::now()); clients],
        stopping: false,
        done: 0,
        times: Histogram::default(),
    };
    driver.start(&mut load, clients..clients + workers)?;
    driver.run(&mut load, Until::Quiet(workers))?;
    driver.start(&mut load, 0..clients)?;
    let work = measure(server, &mut driver, &mut load, bench.scale, MAX_JOBS)?;
    load.stopping = true;
    driver.run(&mut load, Until::Quiet(workers))?;
    match load.ledger.len() == load.ledger.taken() && load.done == load.ledger.len() as u64 {
        true => Ok(work),
        false => Err(format!("{} of {} jobs have a result", load.done, load.ledger.len())),
    }
}
