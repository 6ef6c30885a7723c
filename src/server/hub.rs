//! The engine, its lock, and the turn. A turn is one use of the engine: lock the engine, process due deadlines and
//! deferred work, run commands, collect the events, unlock, and only then set the alarm and send events to other
//! clients. Must not hold the engine's lock during I/O or logging.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admission::Admission;
use super::alarm::Alarm;
use super::clock::Clock;
use super::delivery::Outbox;
use super::durability::Durability;
use super::gate::Gate;
use super::host::Process;
use super::memory::Memory;
use super::reports::{CommandEntry, Stay, Stays};
use super::space::SpaceRequest;
use super::timeouts::ClientGroups;
#[cfg(feature = "tls")]
use super::tls::ServerConfig;
use crate::binlog::{self, Journal, JournalAccess, OpenError, Opened, RecoveryProgress, Required, Storage};
use crate::engine::{
    ClientId, Engine, Event, Fingerprints, JobId, Limits, LongCommand, Span, Time, FEW_WATCHED, MAX_ENTRY_COST,
};
use crate::protocol::text::MAX_QUOTED_NAME;
use crate::protocol::workq::MAX_DATA;
use crate::protocol::{notify, ClientRegistry, CommandCounters, Context, DecodeLimits, Output, Peers, Request, Wire};
use crate::settings::config::Config;
use crate::shared::lock_order::{Condvar, LeafMutex, Mutex, ENGINE};

/// Deadlines and deferred work each use at most 1/`BACKGROUND_SHARE` of a turn's engine steps.
const BACKGROUND_SHARE: u64 = 2;

/// The history can use 1/`HISTORY_PART` of the memory limit if the limit is at least `MIN_MEMORY_FOR_HISTORY`.
const HISTORY_PART: usize = 16;
const MIN_MEMORY_FOR_HISTORY: u64 = 4 << 20;

/// The pause after processing deadlines, so that the next round processes several. An isolated deadline is not delayed.
const TICK_REST: Span = Span::from_millis(1);

/// The interval between reports of the progress of recovery.
const RECOVERY_REPORT: Duration = Duration::from_secs(1);

pub struct Core {
    pub engine: Engine,
    counters: CommandCounters,
    registry: ClientRegistry,
    stops_when_empty: bool,
    stops: bool,
    journal: Option<Journal>,
    /// Outboxes, indexed by the client ID.
    outboxes: Vec<Option<Arc<Outbox>>>,
    rests_until: Time,
}

#[derive(Default)]
pub struct TurnScratch {
    pub out: Output,
    pub now: Time,
    /// The divisor of the engine's step budget. 0 counts as 1.
    pub step_divisor: u64,
    pub locked: Duration,
    pub notes: Vec<CommandEntry>,
    stays: Vec<Stay>,
    event: Output,
    touched: Vec<(Arc<Outbox>, bool)>,
}

pub struct Hub {
    core: Mutex<Core, ENGINE>,
    pub(super) log: Option<Durability>,
    pub(super) clock: Clock,
    pub(super) alarm: Alarm,
    pub(super) process: Process,
    pub(super) config: Config,
    pub(super) memory: Arc<Memory>,
    fingerprints: Fingerprints,
    pub(super) discarded: LeafMutex<Vec<Box<dyn Any + Send>>>,
    pub(super) admission: Admission,
    pub(super) gate: Option<Gate>,
    #[cfg(feature = "tls")]
    pub(super) tls: LeafMutex<Option<Arc<ServerConfig>>>,
    pub(super) unauthenticated: ClientGroups,
    stays: Stays,
    stopping: AtomicBool,
    pub(super) shutdown: Shutdown,
}

impl Hub {
    pub fn new(
        mut config: Config,
        mut clock: Clock,
        storage: Option<Arc<dyn Storage>>,
        gate: Option<Gate>,
        secret: u64,
    ) -> Result<Hub, OpenError> {
        config.protocols.max_output = config.max_output;
        let mut process = Process::new(&config, clock.now());
        let memory = Arc::new(Memory::new(config.max_memory));
        let admission = Admission::new(&config, memory.clone());
        let limits = Limits {
            max_memory: config.max_memory,
            kept_memory: Memory::kept(config.max_memory),
            max_tubes: config.max_tubes,
            max_watched: config.max_watched,
            few_watched: FEW_WATCHED.min(config.turn_steps as usize),
            max_losses: config.job_retries,
            largest_leased: MAX_DATA as usize,
            lease_limit: Span::from_secs(config.lease_limit.into()),
            wakeups: config.worker_wakeup,
            keys_per_tube: gate.is_some(),
            hash_secret: secret,
            history: match config.max_memory {
                0..MIN_MEMORY_FOR_HISTORY => 0,
                max_memory => {
                    config.history.min(max_memory as usize / HISTORY_PART / (MAX_ENTRY_COST + MAX_QUOTED_NAME))
                }
            },
        };
        let (counters, stops_when_empty, stops, journal, outboxes, rests_until) = Default::default();
        let (engine, registry) = (Engine::new(limits), ClientRegistry::new(config.protocols.exceptions));
        let mut core = Core { engine, counters, registry, stops_when_empty, stops, journal, outboxes, rests_until };
        let fingerprints = core.engine.fingerprints();
        let mut log = None;
        if let Some(storage) = storage {
            let opened = recover(storage, &config, &mut core.engine, clock.now())?;
            clock = clock.continued(opened.now);
            core.journal = Some(opened.journal);
            process.syncs = Some(opened.wal.sync_times.clone());
            log = Some(Durability::new(opened.wal));
        }
        let alarm = Alarm::new();
        if core.engine.has_deferred() {
            // Commands that a crash interrupted are completed even if no client connects.
            alarm.advance(clock.now());
        }
        Ok(Hub {
            core: Mutex::new(core),
            log,
            clock,
            alarm,
            process,
            config,
            memory,
            fingerprints,
            discarded: LeafMutex::default(),
            admission,
            gate,
            #[cfg(feature = "tls")]
            tls: LeafMutex::default(),
            unauthenticated: ClientGroups::default(),
            stays: Stays::default(),
            stopping: AtomicBool::new(false),
            shutdown: Shutdown::default(),
        })
    }

    /// Between two engine operations, `work` must call [`Core::deliver_events`]. Its time argument never decreases.
    pub fn turn<R>(&self, scratch: &mut TurnScratch, work: impl FnOnce(&mut Core, &mut TurnScratch, Time) -> R) -> R {
        if let Some(resident) = self.config.resident.filter(|_| self.memory.needs_resident()) {
            self.memory.set_resident(resident());
        }
        let start = self.config.slow.map(|_| Instant::now());
        let mut core = self.core.lock();
        if let Some(start) = start {
            scratch.locked = start.elapsed();
        }
        let now = self.clock.now();
        scratch.now = now;
        core.engine.check_in_flight();
        self.memory.try_system();
        core.engine.set_buffers(self.memory.buffers(), self.memory.is_exhausted());
        self.tick(&mut core, scratch, now);
        core.engine.grant_steps((self.config.turn_steps / scratch.step_divisor.max(1)).max(1));
        let result = work(&mut core, scratch, now);
        core.deliver_events(self, scratch, None);
        // With a manual clock, this turn may be the last one, so complete deferred work now.
        while self.clock.is_manual() && core.engine.has_deferred() {
            core.engine.grant_steps(self.config.turn_steps);
            core.engine.go_on(now);
            core.deliver_events(self, scratch, None);
        }
        if let (Some(log), Core { journal: Some(journal), engine, .. }) = (&self.log, &mut *core) {
            journal.compact(engine);
            log.appended(journal.position, journal.needs_maintenance());
        }
        if core.stops_when_empty && core.is_empty() {
            core.stops_when_empty = false;
            core.stops = true;
        }
        if std::mem::take(&mut core.stops) {
            self.shutdown.advance(ShutdownStage::Requested);
        }
        let next = if core.engine.has_deferred() { now } else { core.next_tick() };
        self.memory.set_engine(core.engine.memory_held());
        let next = next.min(self.next_give_back(now));
        let released = core.engine.take_released();
        if next <= now || core.engine.steps().are_used_up() {
            // Without fairness, a thread with more work would usually lock the engine again before any other thread.
            core.unlock_fair();
            // A thread that waits for the lock spins at first, and may need this processor to get the lock.
            std::thread::yield_now();
        } else {
            drop(core);
        }
        if let Some(turns) = &self.process.turns {
            turns.lock().observe(self.clock.now().since(now));
        }
        self.alarm.advance(next);
        self.deliver(scratch);
        released.into_iter().for_each(|body| self.discard(body));
        result
    }

    fn tick(&self, core: &mut Core, scratch: &mut TurnScratch, now: Time) {
        let steps = (self.config.turn_steps / BACKGROUND_SHARE / scratch.step_divisor.max(1)).max(1);
        if core.next_tick() <= now {
            core.refresh_room();
            core.engine.grant_steps(steps);
            let all = loop {
                let all = core.engine.tick(now);
                core.deliver_events(self, scratch, None);
                if let (bytes @ 1.., Some(log)) = (core.engine.take_lacking(), &self.log) {
                    log.space.request(bytes);
                }
                core.engine.take_steps(1);
                if all || core.engine.steps().are_used_up() {
                    break all;
                }
            };
            // A manual clock stops at each deadline, so do not pause.
            if all && !self.clock.is_manual() {
                core.rests_until = now + TICK_REST;
            }
        }
        if core.engine.has_deferred() {
            core.refresh_room();
            core.engine.grant_steps(steps);
            while core.engine.has_deferred() && !core.engine.steps().are_used_up() {
                core.engine.go_on(now);
                core.deliver_events(self, scratch, None);
            }
        }
    }

    fn deliver(&self, scratch: &mut TurnScratch) {
        if !scratch.notes.is_empty() {
            scratch.notes.drain(..).for_each(CommandEntry::log);
        }
        if !scratch.stays.is_empty() {
            self.stays.log(&mut scratch.stays, scratch.now);
        }
        for (outbox, resume) in scratch.touched.drain(..) {
            outbox.flush_events(&mut scratch.event);
            if resume {
                outbox.wake_owner();
            }
        }
    }

    pub fn commit(&self, spare: &mut Output) {
        if let Some(log) = &self.log {
            log.commit(self, true, spare);
        }
    }

    pub fn pass(&self, span: Span) {
        let mut scratch = TurnScratch::default();
        // `Time::NEVER` is reserved for deadlines that are never reached.
        let target = (self.clock.now() + span).min(Time::NEVER - Span::from_nanos(1));
        loop {
            let next = self.core.lock().engine.next_deadline();
            self.clock.set(next.min(target));
            self.turn(&mut scratch, |_, _, _| {});
            self.commit(&mut scratch.out);
            if next > target {
                return;
            }
        }
    }

    pub fn limits(&self) -> DecodeLimits {
        let (Config { max_job_size, protocols, .. }, room) = (&self.config, self.memory.room());
        let (max_job_size, max_packet, extensions) = (*max_job_size, protocols.max_packet, protocols.extensions);
        DecodeLimits { max_job_size, room, max_packet, fingerprints: self.fingerprints, extensions }
    }

    pub fn drain(&self) {
        self.core.lock().engine.set_draining(true);
        if self.config.ends_when_drained {
            self.turn(&mut TurnScratch::default(), |core, _, _| core.request_stop(true));
        }
    }

    #[cfg(feature = "tls")]
    pub fn identify(&self, client: ClientId, user: Option<&str>) {
        self.core.lock().registry.identify(client, user);
    }

    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.alarm.stop();
    }

    pub fn close(&self) {
        self.core.lock().outboxes.clear();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Does not process deadlines or deliver events. For tests and embedding.
    pub fn with_engine<R>(&self, work: impl FnOnce(&mut Engine, Time) -> R) -> R {
        work(&mut self.core.lock().engine, self.clock.now())
    }
}

impl Peers for Vec<Option<Arc<Outbox>>> {
    fn address(&self, client: ClientId) -> Option<String> {
        self.get(client.0 as usize)?.as_ref().map(|outbox| outbox.peer.to_string())
    }
}

impl JournalAccess for Hub {
    fn with<R>(&self, work: impl FnOnce(&mut Journal, &mut Engine) -> R) -> R {
        let mut core = self.core.lock();
        let Core { engine, journal, .. } = &mut *core;
        work(journal.as_mut().expect("the journal of the log"), engine)
    }
}

impl Core {
    fn is_empty(&self) -> bool {
        let jobs = self.engine.stats().jobs;
        jobs.ready + jobs.delayed + jobs.reserved == 0
    }

    pub fn request_stop(&mut self, graceful: bool) {
        if graceful {
            self.engine.set_draining(true);
            self.stops_when_empty = true;
        } else {
            self.stops = true;
        }
    }

    fn next_tick(&self) -> Time {
        self.engine.next_deadline().max(self.rests_until)
    }

    pub fn connect(&mut self, outbox: Arc<Outbox>, wire: Wire, user: Option<&str>, now: Time) -> ClientId {
        let client = match wire {
            Wire::Beanstalk => self.engine.connect(),
            other => self.engine.connect_as(other.reserve_policy()),
        };
        self.registry.enter(client, wire, &outbox.peer);
        self.registry.identify(client, user);
        self.engine.note_activity(client, now);
        let index = client.0 as usize;
        if self.outboxes.len() <= index {
            self.outboxes.resize(index + 1, None);
        }
        self.outboxes[index] = Some(outbox);
        client
    }

    pub fn disconnect(&mut self, client: ClientId, operation: Option<LongCommand>, now: Time) {
        if let Some(operation) = operation {
            self.engine.complete_alone(operation);
        }
        self.engine.disconnect(client, now);
        self.registry.leave(client);
        self.outboxes[client.0 as usize] = None;
    }

    pub fn context<'a>(&'a mut self, hub: &'a Hub, client: ClientId, now: Time, half_closed: bool) -> Context<'a> {
        self.refresh_room();
        let Core { engine, counters, registry, journal, outboxes: peers, .. } = self;
        engine.note_activity(client, now);
        let log = journal.as_ref().map(Journal::stats);
        let (settings, host) = (&hub.config.protocols, &hub.process);
        let (access, input) = (None, &[][..]);
        Context { engine, counters, registry, settings, host, peers, log, access, now, client, half_closed, input }
    }

    /// Returns the maximum size of the request's log records in bytes, or 0 without a log.
    pub fn log_size(&mut self, request: &Request, client: ClientId) -> u64 {
        match &self.journal {
            Some(_) => request.log_size().max(request.copied_size(&mut self.engine, client)),
            None => 0,
        }
    }

    pub fn admits(
        &mut self,
        hub: &Hub,
        space: &mut SpaceRequest,
        request: &Request,
        client: ClientId,
        first: bool,
    ) -> bool {
        match (&hub.log, self.log_size(request, client), &self.journal) {
            (Some(log), bytes @ 1.., Some(journal)) => log.space.admits(space, journal, bytes, first),
            _ => true,
        }
    }

    pub fn refresh_room(&mut self) {
        if let Some(journal) = &self.journal {
            self.engine.set_log_room(journal.engine_room());
        }
    }

    pub fn required(&self) -> Required {
        self.journal.as_ref().map_or(Required::default(), |journal| journal.required)
    }

    pub fn record(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.append(&mut self.engine);
        }
    }

    /// Passes the engine's changes to the journal, and its events to their clients. Call after every engine operation.
    /// `own` is the client that sent the command, with the buffer for its replies and events.
    #[inline]
    pub fn deliver_events(&mut self, hub: &Hub, scratch: &mut TurnScratch, own: Option<(ClientId, &mut Output)>) {
        self.record();
        if self.engine.next_event().is_some() {
            self.deliver_each(hub, scratch, own);
        }
    }

    /// Delays the next event if it delivers `job`. Otherwise, `job` is in a reply, which waits for the log anyway.
    fn hold_freed(&self, hub: &Hub, job: JobId) {
        let Some(Event::Reserved { client, job: next }) = self.engine.next_event() else { return };
        let outbox = self.outboxes.get(client.0 as usize).and_then(Option::as_ref).filter(|_| *next == job);
        if let (Some(outbox), Some(log), Some(journal)) = (outbox, &hub.log, &self.journal) {
            log.hold_events(journal.required, false, outbox);
        }
    }

    fn deliver_each(&mut self, hub: &Hub, scratch: &mut TurnScratch, mut own: Option<(ClientId, &mut Output)>) {
        let max_bytes = hub.max_event_bytes();
        while let Some(event) = self.engine.take_event() {
            match event {
                Event::DeadLetterStays { job, from, dead } => {
                    scratch.stays.push((job, from, dead));
                    continue;
                }
                Event::Freed { job } => {
                    self.hold_freed(hub, job);
                    continue;
                }
                _ => {}
            }
            let own = own.as_mut().filter(|(client, _)| *client == event.client()).map(|(_, out)| &mut **out);
            let own = match own {
                Some(out) if out.len() <= max_bytes => {
                    notify(&event, &self.engine, &mut self.registry, &hub.process, out);
                    continue;
                }
                own => own,
            };
            // A manual clock can advance after the server has removed all outboxes.
            let Some(Some(outbox)) = self.outboxes.get(event.client().0 as usize) else { continue };
            if let (Event::Outcome { job, logged: true, .. }, Some(log), Some(journal)) =
                (&event, &hub.log, &self.journal)
            {
                log.hold_events(journal.required, self.engine.keeps_outcome(*job), outbox);
            }
            let resume = if let Some(out) = own {
                hub.discard(std::mem::take(out));
                outbox.drop_client()
            } else if notify(&event, &self.engine, &mut self.registry, &hub.process, &mut scratch.event) {
                if log::log_enabled!(log::Level::Trace) {
                    let (client, registry) = (event.client(), &self.registry);
                    let note = CommandEntry::told(client, &scratch.event, &self.engine, registry, scratch.now);
                    scratch.notes.push(note);
                }
                outbox.push_events(&mut scratch.event, hub.event_limits())
            } else {
                continue;
            };
            match scratch.touched.last_mut() {
                Some((last, resumes)) if Arc::ptr_eq(last, outbox) => *resumes |= resume,
                _ => scratch.touched.push((outbox.clone(), resume)),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ShutdownStage {
    #[default]
    Running,
    Requested,
    Complete,
}

#[derive(Default)]
pub struct Shutdown {
    stage: LeafMutex<ShutdownStage>,
    changed: Condvar,
}

impl Shutdown {
    pub fn advance(&self, to: ShutdownStage) {
        let mut stage = self.stage.lock();
        *stage = to.max(*stage);
        self.changed.notify_all();
    }

    pub fn is_complete(&self) -> bool {
        *self.stage.lock() == ShutdownStage::Complete
    }

    /// Returns `false` if the server stopped without a shutdown request, and therefore skipped the stage.
    pub fn wait_for(&self, stage: ShutdownStage) -> bool {
        let mut current = self.stage.lock();
        while *current < stage {
            self.changed.wait(&mut current);
        }
        *current == stage
    }
}

fn recover(log: Arc<dyn Storage>, config: &Config, engine: &mut Engine, now: Time) -> Result<Opened, OpenError> {
    let start = Instant::now();
    let mut last = start;
    let mut watch = |progress: RecoveryProgress| {
        if last.elapsed() >= RECOVERY_REPORT {
            last = Instant::now();
            log::info!("binlog: {}", describe(&progress, start.elapsed()));
        }
    };
    let opened = binlog::open(log, config.log, engine, now, &mut watch)?;
    opened.report.problems.iter().for_each(|problem| log::warn!("binlog: {problem}"));
    if let Some(count) = opened.report.imported {
        log::info!("binlog: {count} jobs were imported from beanstalkd; its files are kept in the folder beanstalkd");
    }
    log::info!("binlog: {}", describe(&opened.report.progress, start.elapsed()));
    if let Some(error) = &opened.failure {
        log::error!("binlog: the disk fails: {error}; new jobs are refused until it is back");
    }
    Ok(opened)
}

fn describe(progress: &RecoveryProgress, taken: Duration) -> String {
    let percent = (progress.done * 100).checked_div(progress.segments).unwrap_or(100);
    let rate = progress.bytes as f64 / 1e6 / taken.as_secs_f64().max(1e-6);
    format!("{percent} % read, {} jobs, {:.1} MB at {rate:.0} MB/s", progress.jobs, progress.bytes as f64 / 1e6)
}
