//! The engine behind its one lock, and what must happen around every use of it.
//!
//! Owns the *turn*: lock, let pass what is due, run some commands, collect the events, unlock, and only then send to other
//! clients and set the alarm. Lock order: engine, then one connection's output. No lock is held during a read, a write or a
//! line of log.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use super::clock::Clock;
use super::delivery::Outlet;
use super::host::Process;
use super::recovery;
use super::space::Claim;
use super::syncer::Log;
use super::timer::Alarm;
use crate::binlog::{Books, Journal, OpenError, Promised, Storage};
use crate::config::Config;
use crate::engine::{ClientId, Engine, Limits, Span, Time};
use crate::protocol::beanstalk::Tally;
use crate::protocol::{tell, Intake, Output, Roster, Wire, World};

/// Deadlines that one turn lets pass; the rest waits for the next, so that clients come in between.
const TICK_STEPS: usize = 128;

/// After a tick, the next one comes no sooner: when very many jobs fall due one after the other, each tick brings some, and
/// a deadline by itself is still kept to the moment.
const TICK_REST: Span = Span::from_millis(1);

/// A client that is told things unasked may have this many times the usual output waiting before it is dropped: what is sent
/// to it cannot wait until it reads.
const NEWS: usize = 16;

/// Everything under the lock.
#[derive(Debug)]
pub struct Core {
    engine: Engine,
    tally: Tally,
    roster: Roster,
    /// Stop when no job is left.
    stops_when_empty: bool,
    /// None if the queue lives in memory only.
    journal: Option<Journal>,
    /// The connection of each client, by its number.
    outlets: Vec<Option<Arc<Outlet>>>,
    /// When the next tick may be.
    rests_until: Time,
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
    log: Option<Log>,
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
    /// An empty queue, or with a log in `storage` the one that it describes.
    pub fn new(config: Config, clock: Clock, storage: Option<Arc<dyn Storage>>) -> Result<Hub, OpenError> {
        let process = Process::new(&config, clock.now());
        let limits = Limits {
            max_memory: config.max_memory,
            max_tubes: config.max_tubes,
            max_watched: config.max_watched,
            max_losses: config.job_retries,
            wakeups: config.worker_wakeup,
            hash_secret: super::host::random(),
        };
        let mut core = Core::new(limits, config.protocols.exceptions);
        let mut log = None;
        if let Some(storage) = storage {
            let opened = recovery::open(storage, config.log, &mut core.engine, clock.now())?;
            core.journal = Some(opened.journal);
            log = Some(Log::new(opened.keeper));
        }
        Ok(Hub {
            core: Mutex::new(core),
            log,
            clock,
            alarm: Alarm::new(),
            process,
            config,
            memory: AtomicU64::new(0),
            uploading: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// Locks the engine, lets pass what is due, runs `work` at a time that never goes back, and delivers what came of it.
    /// Of several verbs, [`Core::settle`] must come after each but the last.
    pub fn turn<R>(&self, scratch: &mut Scratch, work: impl FnOnce(&mut Core, &mut Scratch, Time) -> R) -> R {
        let mut core = self.core.lock();
        let now = self.clock.now();
        core.engine.look_after_lent();
        if core.next_tick() <= now {
            core.refresh_room();
            let mut steps = 0..TICK_STEPS;
            let all = steps.any(|_| {
                let all = core.engine.tick(now);
                core.settle(self, scratch, None);
                all
            });
            // A clock that is moved by hand moves from deadline to deadline.
            if all && !self.clock.is_manual() {
                core.rests_until = now + TICK_REST;
            }
        }
        let result = work(&mut core, scratch, now);
        core.settle(self, scratch, None);
        if let (Some(log), Core { journal: Some(journal), engine, .. }) = (&self.log, &mut *core) {
            journal.compact(engine);
            log.appended(journal.position(), journal.needs_tidying());
        }
        if core.stops_when_empty && core.is_empty() {
            core.stops_when_empty = false;
            super::signals::request_stop();
        }
        let next = core.next_tick();
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

    /// After some turns: brings what they changed to the log, and lets go of the replies that are safe.
    pub fn commit(&self, scratch: &mut Scratch) {
        if let Some(log) = &self.log {
            log.commit(self, &mut scratch.event);
        }
    }

    /// The log, if there is one.
    pub fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// Moves a manual clock forward, letting everything on the way happen at its own moment.
    pub fn pass(&self, span: Span) {
        let mut scratch = Scratch::default();
        // Never itself cannot be reached.
        let target = (self.clock.now() + span).min(Time::NEVER - Span::from_nanos(1));
        loop {
            let next = self.core.lock().engine.next_deadline();
            self.clock.set(next.min(target));
            self.turn(&mut scratch, |_, _, _| {});
            self.commit(&mut scratch);
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

    /// What a decoder must know now.
    pub fn intake(&self) -> Intake {
        let taken = self.memory.load(Ordering::Relaxed) + self.uploading.load(Ordering::Relaxed);
        let Config { max_job_size, max_memory, protocols, .. } = &self.config;
        let room = max_memory.saturating_sub(taken);
        Intake { max_job_size: *max_job_size, room, max_packet: protocols.max_packet }
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

    /// It has come: all connections close, though somebody may hold on to the hub.
    pub fn close(&self) {
        self.core.lock().outlets.clear();
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

impl Books for Hub {
    fn with<R>(&self, work: impl FnOnce(&mut Journal, &mut Engine) -> R) -> R {
        let mut core = self.core.lock();
        let Core { engine, journal, .. } = &mut *core;
        work(journal.as_mut().expect("a log has its journal"), engine)
    }
}

impl Core {
    fn new(limits: Limits, exceptions: bool) -> Core {
        Core {
            engine: Engine::new(limits),
            tally: Tally::default(),
            roster: Roster::new(exceptions),
            stops_when_empty: false,
            journal: None,
            outlets: Vec::new(),
            rests_until: Time::default(),
        }
    }

    /// Whether nobody has anything to do.
    fn is_empty(&self) -> bool {
        let jobs = self.engine.stats().jobs;
        jobs.ready + jobs.delayed + jobs.reserved == 0
    }

    /// What the log should make space for after this turn.
    pub fn take_lacking(&mut self) -> u64 {
        self.engine.take_lacking()
    }

    /// A client wants the server to stop.
    pub fn wish_stop(&mut self, graceful: bool) {
        if graceful {
            self.engine.drain();
            self.stops_when_empty = true;
        } else {
            super::signals::request_stop();
        }
    }

    /// When something is due and the engine may tick.
    fn next_tick(&self) -> Time {
        self.engine.next_deadline().max(self.rests_until)
    }

    /// A new client behind `outlet`.
    pub fn connect(&mut self, outlet: Arc<Outlet>, wire: Wire, address: &impl Display) -> ClientId {
        let client = match wire {
            Wire::Beanstalk => self.engine.connect(),
            other => self.engine.connect_as(other.manner()),
        };
        self.roster.enter(client, wire, address);
        let place = client.0 as usize;
        if self.outlets.len() <= place {
            self.outlets.resize(place + 1, None);
        }
        self.outlets[place] = Some(outlet);
        client
    }

    /// Where a client comes from that may be told something unasked.
    pub fn address(&self, client: ClientId) -> Box<str> {
        self.roster.get(client).map_or_else(Box::default, |peer| peer.address.clone())
    }

    /// The client is gone.
    pub fn disconnect(&mut self, client: ClientId, now: Time) {
        self.engine.disconnect(client, now);
        self.roster.leave(client);
        self.outlets[client.0 as usize] = None;
    }

    /// Everything a command of `client` may touch; for one command, before which the engine must know what the log can take.
    pub fn world<'a>(&'a mut self, hub: &'a Hub, client: ClientId, now: Time, half_closed: bool) -> World<'a> {
        self.refresh_room();
        let Core { engine, tally, roster, journal, .. } = self;
        let log = journal.as_ref().map(|journal| recovery::figures(&journal.stats()));
        let settings = &hub.config.protocols;
        World { engine, tally, roster, settings, host: &hub.process, log, now, client, half_closed }
    }

    /// Whether a command whose records take so many bytes may be carried out, or must wait for space in the log; see
    /// [`Space::admits`](super::space::Space::admits).
    pub fn admits(&self, hub: &Hub, claim: &mut Claim, bytes: u64, first: bool) -> bool {
        match (&hub.log, &self.journal) {
            (Some(log), Some(journal)) if bytes > 0 => log.space().admits(claim, journal, bytes, first),
            _ => true,
        }
    }

    /// Tells the engine what the log can take.
    fn refresh_room(&mut self) {
        if let Some(journal) = &self.journal {
            self.engine.set_log_room(journal.engine_room());
        }
    }

    /// How far promises go, with a log.
    pub fn promised(&self) -> Promised {
        self.journal.as_ref().map_or(Promised::default(), Journal::promised)
    }

    /// Writes what the engine changed into the journal.
    pub fn record(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.record(&mut self.engine);
        }
    }

    /// After every verb: writes what it changed into the journal, and its events into the outputs of the clients that they
    /// concern. `own`: who gave the command, and its replies so far, behind which it is told its own news.
    pub fn settle(&mut self, hub: &Hub, scratch: &mut Scratch, own: Option<(ClientId, &mut Output)>) {
        self.record();
        if self.engine.has_events() {
            self.spread(hub, scratch, own);
        }
    }

    fn spread(&mut self, hub: &Hub, scratch: &mut Scratch, mut own: Option<(ClientId, &mut Output)>) {
        let most = hub.config.max_output.saturating_mul(NEWS);
        while let Some(event) = self.engine.take_event() {
            let own = own.as_mut().filter(|(client, _)| *client == event.client()).map(|(_, out)| &mut **out);
            let own = match own {
                Some(out) if out.len() <= most => {
                    tell(&event, &self.engine, &mut self.roster, &hub.process, out);
                    continue;
                }
                own => own,
            };
            // None after the server's end, when a manual clock may still be moved.
            let Some(Some(outlet)) = self.outlets.get(event.client().0 as usize) else { continue };
            let resume = if let Some(out) = own {
                outlet.give_up(out)
            } else if tell(&event, &self.engine, &mut self.roster, &hub.process, &mut scratch.event) {
                outlet.tell(&mut scratch.event, most)
            } else {
                continue;
            };
            match scratch.touched.last_mut() {
                Some((last, resumes)) if Arc::ptr_eq(last, outlet) => *resumes |= resume,
                _ => scratch.touched.push((outlet.clone(), resume)),
            }
        }
    }
}
