//! Measures jobs that pass from producers to waiting workers.
//!
//! Owns the load [`Relay`]. By default, a producer puts its next job after its previous job has been acknowledged and
//! deleted, so most workers wait for jobs. If each producer can have several jobs in progress, the queue is never
//! empty, and jobs wait for workers instead. An operation ends when a job is deleted, but its measured time ends when
//! the job is reserved.

use std::collections::VecDeque;
use std::time::Instant;

use super::driver::{Driver, Load, Until};
use super::measure::{measure, Bench, Outcome, Timed};
use super::stats::Histogram;
use super::verify::{Bodies, Ledger};
use super::wire::{unexpected, Out, Reply};

const MAX_JOBS: usize = 3_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of producers. Producers use the lowest connection numbers.
    pub producers: usize,
    pub workers: usize,
    /// Maximum number of jobs in progress per producer. With 1, workers wait for jobs; with more, jobs wait for
    /// workers.
    pub ahead: usize,
    /// `true` if workers delete a job and reserve the next one in one write.
    pub joined: bool,
    /// The number of additional tubes. Each producer uses one of them, and each worker watches all of them. If this
    /// number is 0, producers and workers use the default tube.
    pub tubes: usize,
}

impl Shape {
    /// Creates a shape with one job in progress per producer, in the default tube.
    pub const fn new(producers: usize, workers: usize) -> Shape {
        Shape { producers, workers, ahead: 1, joined: false, tubes: 0 }
    }
}

#[derive(Debug)]
pub struct Relay {
    shape: Shape,
    pub stopping: bool,
    /// `true` if the load triggers the next put of each producer, `false` if the caller does.
    pub closed_loop: bool,
    bodies: Bodies,
    ledger: Ledger,
    /// The producer and the time of each put.
    puts: Vec<(usize, Instant)>,
    producers: Vec<Producer>,
    /// The job that each worker holds.
    workers: Vec<usize>,
    pokes: VecDeque<usize>,
    done: u64,
    times: Histogram,
}

#[derive(Clone, Debug, Default)]
struct Producer {
    /// Unacknowledged jobs, in the order of their puts.
    unanswered: VecDeque<usize>,
    /// The number of this producer's jobs that have not been deleted.
    under_way: usize,
    /// `true` if `pokes` contains the producer.
    poked: bool,
}

impl Relay {
    pub fn new(shape: Shape, bodies: Bodies) -> Relay {
        Relay {
            shape,
            stopping: false,
            closed_loop: true,
            bodies,
            ledger: Ledger::default(),
            puts: Vec::new(),
            producers: vec![Producer::default(); shape.producers],
            workers: vec![0; shape.workers],
            pokes: VecDeque::new(),
            done: 0,
            times: Histogram::default(),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.ledger.len() as u64 > self.done
    }

    /// Schedules the next put of a producer, if the producer can put another job now.
    fn next_put(&mut self, number: usize) {
        let producer = &mut self.producers[number];
        let may = producer.unanswered.is_empty() && producer.under_way < self.shape.ahead && !producer.poked;
        if may && self.closed_loop && !self.stopping {
            producer.poked = true;
            self.pokes.push_back(number);
        }
    }

    fn worker_replied(&mut self, worker: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        match reply {
            Reply::Reserved(id, body) => {
                let number = self.bodies.number(body)?;
                self.ledger.reserved(number, id)?;
                self.times.add(now - self.puts[number].1);
                self.workers[worker] = number;
                out.delete(id);
                if self.shape.joined {
                    out.reserve();
                }
            }
            Reply::Deleted => {
                self.done += 1;
                if !self.shape.joined {
                    out.reserve();
                }
                let producer = self.puts[self.workers[worker]].0;
                self.producers[producer].under_way -= 1;
                self.next_put(producer);
            }
            other => return Err(unexpected(other)),
        }
        Ok(())
    }
}

impl Load for Relay {
    fn start(&mut self, connection: usize, now: Instant, out: &mut Out) {
        if connection < self.shape.producers {
            let number = self.ledger.next();
            self.puts.push((connection, now));
            let producer = &mut self.producers[connection];
            producer.unanswered.push_back(number);
            producer.under_way += 1;
            producer.poked = false;
            self.bodies.put(number, out);
        } else {
            out.reserve();
        }
    }

    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String> {
        if connection >= self.shape.producers {
            return self.worker_replied(connection - self.shape.producers, now, reply, out);
        }
        let Reply::Inserted(id) = reply else { return Err(unexpected(reply)) };
        let number = self.producers[connection].unanswered.pop_front().ok_or("an unexpected reply")?;
        self.ledger.inserted(number, id)?;
        self.next_put(connection);
        Ok(())
    }

    fn poke(&mut self) -> Option<usize> {
        self.pokes.pop_front()
    }

    fn operations(&self) -> u64 {
        self.done
    }
}

impl Timed for Relay {
    fn times(&mut self) -> &mut Histogram {
        &mut self.times
    }
}

/// Opens the connections, selects the tubes of producers and workers, and makes the workers wait.
pub fn connect(bench: Bench, server: &super::process::Server, load: &mut Relay) -> Result<Driver, String> {
    let Shape { producers, workers, tubes, .. } = load.shape;
    let tubes = bench.scale.count(tubes);
    // The driver uses blocking reads only for a single connection. There are at least two connections here.
    let mut driver = Driver::connect(server.address, producers + workers)?;
    if tubes > 0 {
        driver.ask(0..producers, |producer, out| out.line(&format!("use tube-{}", producer * 7 % tubes)))?;
        driver.ask(producers..producers + workers, |_, out| {
            (0..tubes).for_each(|tube| out.line(&format!("watch tube-{tube}")));
        })?;
    }
    driver.start(load, producers..producers + workers)?;
    // The reply to `watch` shows that the server has processed all reserves.
    driver.ask(0..1, |_, out| out.line("watch default"))?;
    Ok(driver)
}

pub fn relay(bench: Bench, shape: Shape) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let mut load = Relay::new(shape, Bodies::new(64));
    let mut driver = connect(bench, &server, &mut load)?;
    driver.start(&mut load, 0..shape.producers)?;
    let work = measure(&server, &mut driver, &mut load, bench.scale, MAX_JOBS)?;
    load.stopping = true;
    driver.run(&mut load, Until::Quiet(shape.workers))?;
    Ok(Outcome::of(work))
}
