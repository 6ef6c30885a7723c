//! Measures jobs that are put at a fixed rate, and delayed jobs that become due.
//!
//! Owns the pacing. Jobs are put at fixed times even if the server is late, so a slow job also increases the measured
//! times of later jobs. The client handles replies while jobs are in progress, and otherwise sleeps, so that the next
//! put is on time.

use std::time::{Duration, Instant};

use super::driver::{Driver, Load, Until};
use super::measure::{Bench, Goal, Outcome, Span, Timed};
use super::relay::{connect, Relay, Shape};
use super::stats::Histogram;
use super::verify::{Bodies, Ledger};
use super::wire::{unexpected, Out, Reply};

const RATE: u32 = 1000;

const DELAYED_RATE: usize = 200_000;

/// The longest delay of a job, in seconds. The shortest delay is one second.
const DELAYS: usize = 5;

const LATE: Duration = Duration::from_secs(20);

/// Puts jobs at [`RATE`] from one producer for waiting workers. Measures the time from the put to the delivery.
pub fn hand_off(bench: Bench, workers: usize) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let shape = Shape::new(1, workers);
    let mut load = Relay::new(shape, Bodies::new(64));
    load.closed_loop = false;
    let mut driver = connect(bench, &server, &mut load)?;
    pace(&mut driver, &mut load, RATE / 10, workers)?;
    load.times().clear();
    let jobs = ((bench.scale.time.as_secs_f64() * 3.0 * f64::from(RATE)) as u32).max(RATE);
    let before = load.operations();
    let span = Span::start(&server);
    pace(&mut driver, &mut load, jobs, workers)?;
    let work = span.end(load.operations() - before, load.times());
    Ok(Outcome::of(work))
}

/// Puts `jobs` jobs at the fixed rate, and handles replies between the puts.
fn pace(driver: &mut Driver, load: &mut Relay, jobs: u32, idle: usize) -> Result<(), String> {
    let start = Instant::now();
    for number in 0..jobs {
        let due = start + Duration::from_secs(1) * number / RATE;
        // Handles replies until the next put is due. On an idle machine, all jobs in progress finish before then.
        while load.is_busy() && Instant::now() < due {
            driver.turn(load, Some(Duration::from_millis(1)))?;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        driver.start(load, 0..1)?;
    }
    driver.run(load, Until::Quiet(idle))
}

/// A producer of delayed jobs, and workers that reserve the jobs when they become due.
struct Delayed {
    bodies: Vec<Bodies>,
    ledger: Ledger,
    answered: usize,
    batch: usize,
    sent: Vec<Instant>,
    done: u64,
    late: Histogram,
    early: Duration,
}

impl Delayed {
    /// Returns the delay in seconds. Among any five consecutive jobs, each of the five delays occurs once.
    fn delay(number: usize) -> usize {
        number % DELAYS + 1
    }
}

impl Load for Delayed {
    fn start(&mut self, connection: usize, now: Instant, out: &mut Out) {
        if connection > 0 {
            return out.reserve();
        }
        for _ in 0..self.batch {
            let number = self.ledger.next();
            self.sent.push(now);
            self.bodies[Delayed::delay(number) - 1].put(number, out);
        }
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        match reply {
            Reply::Inserted(id) if connection == 0 => {
                self.ledger.inserted(self.answered, id)?;
                self.answered += 1;
            }
            Reply::Reserved(id, body) => {
                let number = self.bodies[0].number(body)?;
                self.ledger.reserved(number, id)?;
                let due = self.sent[number] + Duration::from_secs(Delayed::delay(number) as u64);
                self.late.add(now.saturating_duration_since(due));
                self.early = self.early.max(due.saturating_duration_since(now));
                out.delete(id);
                out.reserve();
            }
            Reply::Deleted => self.done += 1,
            other => return Err(unexpected(other)),
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        self.done
    }
}

/// Within one second, puts jobs with delays of 1 to 5 seconds for 50 workers. Measures how late the jobs arrive.
pub fn delayed(bench: Bench, jobs: usize) -> Result<Outcome, String> {
    const WORKERS: usize = 50;
    let server = bench.program.start(&[])?;
    let mut driver = Driver::connect(server.address, 1 + WORKERS)?;
    let jobs = bench.scale.count(jobs);
    let rate = bench.scale.count(DELAYED_RATE);
    let mut load = Delayed {
        bodies: (1..=DELAYS).map(|delay| Bodies::with(64, 0, delay as u32)).collect(),
        ledger: Ledger::default(),
        answered: 0,
        batch: 0,
        sent: Vec::with_capacity(jobs),
        done: 0,
        late: Histogram::default(),
        early: Duration::ZERO,
    };
    driver.start(&mut load, 1..1 + WORKERS)?;
    let span = Span::start(&server);
    let start = Instant::now();
    while load.sent.len() < jobs {
        let due = (start.elapsed().as_secs_f64() * rate as f64) as usize;
        load.batch = due.min(jobs).saturating_sub(load.sent.len());
        if load.batch > 0 {
            driver.start(&mut load, 0..1)?;
        }
        driver.turn(&mut load, Some(Duration::from_millis(1)))?;
    }
    let all = jobs as u64;
    driver.run(&mut load, Until::Work(all, Duration::from_secs(DELAYS as u64) + LATE))?;
    if load.done < all {
        return Err(format!("only {} of {all} delayed jobs arrived", load.done));
    }
    if load.early > Duration::from_millis(1) {
        return Err(format!("a delayed job arrived {:?} early", load.early));
    }
    let work = span.end(all, &load.late);
    Ok(Outcome::of(work).and("lateness p99, ms", load.late.percentile(0.99) / 1000.0, Goal::AtMost(2.0)))
}
