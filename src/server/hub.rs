//! The engine behind its one lock, and what must happen around every use of it.
//!
//! Owns the *turn*: lock, let pass what is due, run some commands, collect the events, unlock, and only then send to other
//! clients and set the alarm. Lock order: engine, then one connection's output. No lock is held during a read, a write, a
//! line of log, or while a body is copied in.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use super::clock::Clock;
use super::delivery::Outlet;
use super::host::Process;
use super::timer::Alarm;
use crate::config::Config;
use crate::engine::{ClientId, Engine, Limits, Span, Time};
use crate::protocol::beanstalk::{self, Tally};
use crate::protocol::{Intake, Output, World};

/// Deadlines that one turn lets pass; the rest waits for the next, so that clients come in between.
const TICK_STEPS: usize = 128;

/// Everything under the lock.
#[derive(Debug)]
pub struct Core {
    engine: Engine,
    tally: Tally,
    /// The connection of each client, by its number.
    outlets: Vec<Option<Arc<Outlet>>>,
}

/// Buffers of one thread, used again from turn to turn.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Where replies are written first.
    pub out: Output,
    event: Output,
    touched: Vec<(Arc<Outlet>, bool)>,
}

/// See the module's page.
#[derive(Debug)]
pub struct Hub {
    core: Mutex<Core>,
    clock: Clock,
    alarm: Alarm,
    process: Process,
    config: Config,
    /// The engine's account of memory after the last turn, for a look without the lock.
    memory: AtomicU64,
    /// Bytes taken for bodies that are still arriving.
    uploading: AtomicU64,
    connections: AtomicUsize,
    stopping: AtomicBool,
}

impl Hub {
    /// An empty queue.
    pub fn new(config: Config, clock: Clock) -> Hub {
        let process = Process::new(&config, clock.now());
        let limits = Limits {
            max_memory: config.max_memory,
            max_tubes: config.max_tubes,
            max_watched: config.max_watched,
            hash_secret: super::host::random(),
        };
        let core = Core { engine: Engine::new(limits), tally: Tally::default(), outlets: Vec::new() };
        Hub {
            core: Mutex::new(core),
            clock,
            alarm: Alarm::new(),
            process,
            config,
            memory: AtomicU64::new(0),
            uploading: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// Locks the engine, lets pass what is due, runs `work` at a time that never goes back, and delivers what came of it.
    pub fn turn<R>(&self, scratch: &mut Scratch, work: impl FnOnce(&mut Core, Time) -> R) -> R {
        let mut core = self.core.lock();
        let now = self.clock.now();
        if core.engine.next_deadline() <= now {
            core.engine.tick(now, TICK_STEPS);
            core.collect(scratch);
        }
        let result = work(&mut core, now);
        core.collect(scratch);
        let next = core.engine.next_deadline();
        self.memory.store(core.engine.memory().0, Ordering::Relaxed);
        drop(core);
        self.alarm.advance(next);
        self.deliver(scratch);
        result
    }

    fn deliver(&self, scratch: &mut Scratch) {
        for (outlet, resume) in scratch.touched.drain(..) {
            outlet.flush(&mut scratch.event);
            if resume {
                outlet.wake_owner();
            }
        }
    }

    /// Moves a manual clock forward, letting everything on the way happen at its own moment.
    pub fn pass(&self, span: Span) {
        let mut scratch = Scratch::default();
        let target = self.clock.now() + span;
        loop {
            let next = self.core.lock().engine.next_deadline();
            self.clock.set(next.min(target));
            self.turn(&mut scratch, |_, _| {});
            if next > target {
                return;
            }
        }
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The timer's alarm.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// What the server was told to do.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What a decoder must know now; `own` bytes are taken by the asking connection already.
    pub fn intake(&self) -> Intake {
        let taken = self.memory.load(Ordering::Relaxed) + self.uploading.load(Ordering::Relaxed);
        Intake { max_job_size: self.config.max_job_size, room: self.config.max_memory.saturating_sub(taken) }
    }

    /// A connection that took `before` bytes for an arriving body takes `after` now.
    pub fn account_upload(&self, before: u64, after: u64) {
        if before != after {
            self.uploading.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Makes room for one connection more, unless there are too many.
    pub fn admit(&self) -> bool {
        let admitted = self.connections.fetch_add(1, Ordering::AcqRel) < self.config.max_connections;
        if !admitted {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            self.process.count_rejected();
        }
        admitted
    }

    /// A connection that was admitted is gone.
    pub fn dismiss(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// No jobs are taken in any more.
    pub fn drain(&self) {
        self.core.lock().engine.drain();
    }

    /// The server is coming to its end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.alarm.stop();
    }

    /// Whether it is.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Checks every invariant of the engine; for tests.
    pub fn check(&self) {
        self.core.lock().engine.check();
    }
}

impl Core {
    /// A new client behind `outlet`.
    pub fn connect(&mut self, outlet: Arc<Outlet>) -> ClientId {
        let client = self.engine.connect();
        let place = client.0 as usize;
        if self.outlets.len() <= place {
            self.outlets.resize(place + 1, None);
        }
        self.outlets[place] = Some(outlet);
        client
    }

    /// The client is gone.
    pub fn disconnect(&mut self, client: ClientId, now: Time) {
        self.engine.disconnect(client, now);
        self.outlets[client.0 as usize] = None;
    }

    /// Everything a command of `client` may touch.
    pub fn world<'a>(&'a mut self, hub: &'a Hub, client: ClientId, now: Time, half_closed: bool) -> World<'a> {
        let Core { engine, tally, .. } = self;
        World { engine, tally, host: &hub.process, now, client, half_closed }
    }

    /// Writes events into the outputs of the clients that they concern.
    fn collect(&mut self, scratch: &mut Scratch) {
        while let Some(event) = self.engine.take_event() {
            let outlet = self.outlets[event.client().0 as usize].as_ref().expect("a client with a connection");
            beanstalk::tell(event, &self.engine, &mut scratch.event);
            let resume = outlet.tell(&mut scratch.event);
            scratch.touched.push((outlet.clone(), resume));
        }
    }
}
