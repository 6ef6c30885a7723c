//! Jobs that go through: producers on one side, workers that wait on the other.
//!
//! Owns the load [`Relay`]. A producer puts its next job when its last one is deleted, so that there are never more jobs than
//! producers and most workers wait. An operation is a job from put to deletion.

use std::collections::VecDeque;
use std::time::Instant;

use super::driver::{Driver, Load, Until};
use super::measure::{measure, Bench, Outcome, Timed};
use super::stats::Histogram;
use super::verify::{Bodies, Ledger};
use super::wire::{unexpected, Out, Reply};

/// Jobs of one measurement at most.
const MAX_JOBS: usize = 3_000_000;

/// Who does what.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Producers, on the first connections.
    pub producers: usize,
    /// Workers, on the others.
    pub workers: usize,
    /// Workers delete and reserve in one write.
    pub joined: bool,
    /// Tubes that every worker watches besides the default one; producers share them out. None: only the default one.
    pub tubes: usize,
}

impl Shape {
    /// Producers and workers of the default tube.
    pub const fn new(producers: usize, workers: usize) -> Shape {
        Shape { producers, workers, joined: false, tubes: 0 }
    }
}

/// See the module's page.
#[derive(Debug)]
pub struct Relay {
    shape: Shape,
    /// Producers stop.
    pub stopping: bool,
    /// Producers go on by themselves; else somebody pokes them.
    pub closed_loop: bool,
    bodies: Bodies,
    ledger: Ledger,
    /// Of each job: its producer, and when it was put.
    puts: Vec<(usize, Instant)>,
    producers: Vec<Producer>,
    /// Of each worker: the job in its hands.
    workers: Vec<usize>,
    pokes: VecDeque<usize>,
    done: u64,
    times: Histogram,
}

#[derive(Clone, Debug, Default)]
struct Producer {
    /// Its jobs that are not answered yet, in the order of their puts.
    unanswered: VecDeque<usize>,
    /// What it waits for: of each job an answer and the deletion.
    waits: usize,
}

impl Relay {
    /// Nothing is put yet.
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

    /// Whether a job is under way.
    pub fn is_busy(&self) -> bool {
        self.ledger.len() as u64 > self.done
    }

    fn producer_has(&mut self, producer: usize) {
        let waits = &mut self.producers[producer].waits;
        *waits -= 1;
        if *waits == 0 && self.closed_loop && !self.stopping {
            self.pokes.push_back(producer);
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
                self.producer_has(self.puts[self.workers[worker]].0);
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
            producer.waits += 2;
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
        let number = self.producers[connection].unanswered.pop_front().ok_or("an answer too many")?;
        self.ledger.inserted(number, id)?;
        self.producer_has(connection);
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

/// Opens the connections, has tubes used and watched, and lets the workers wait.
pub fn connect(bench: Bench, server: &super::process::Server, load: &mut Relay) -> Result<Driver, String> {
    let Shape { producers, workers, tubes, .. } = load.shape;
    let tubes = bench.scale.count(tubes);
    // One alone would be driven by blocking reads; there is always a worker besides.
    let mut driver = Driver::connect(server.address, producers + workers)?;
    if tubes > 0 {
        driver.ask(0..producers, |producer, out| out.line(&format!("use tube-{}", producer * 7 % tubes)))?;
        driver.ask(producers..producers + workers, |_, out| {
            (0..tubes).for_each(|tube| out.line(&format!("watch tube-{tube}")));
        })?;
    }
    driver.start(load, producers..producers + workers)?;
    // A command behind all the reserves: when it is answered, all workers wait.
    driver.ask(0..1, |_, out| out.line("watch default"))?;
    Ok(driver)
}

/// Jobs go through as fast as they can.
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
