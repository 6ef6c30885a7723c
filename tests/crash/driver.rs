//! A queue with a log on a faulty simulated disk, and clients that send random commands.
//!
//! Owns one run of a server: random operations of clients and of the syncer. Must not check results (see `model`).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use beanpole::internals::binlog::{
    open, BinlogSettings, Health, Journal, JournalAccess, OpenError, RecoveryReport, SyncMode, Wal,
};
use beanpole::internals::engine::{
    Body, ClientId, Engine, JobId, JobView, Limits, NewJob, ReservePolicy, Span, StoredKey, Time,
};

use crate::disk::Disk;
use crate::model::Model;
use crate::random::Random;
use crate::snapshots::{Snapshot, Snapshots};
use crate::verbs;

pub const TUBES: [&[u8]; 4] = [b"default", b"a", b"mail.out", b"a-rather-long-name-of-a-tube-for-a-log-to-hold"];

/// The reserve policy of each client.
pub const RESERVE_POLICIES: [ReservePolicy; 5] = [
    ReservePolicy::PerConnection,
    ReservePolicy::PerConnection,
    ReservePolicy::PerConnection,
    ReservePolicy::Notified,
    ReservePolicy::Lease,
];

const MAX_JOBS: usize = 40;

/// The journal and the engine, which share one lock in the server.
pub struct Access(pub RefCell<(Journal, Engine)>);

impl JournalAccess for Access {
    fn with<R>(&self, work: impl FnOnce(&mut Journal, &mut Engine) -> R) -> R {
        let (journal, engine) = &mut *self.0.borrow_mut();
        work(journal, engine)
    }
}

fn connect(engine: &mut Engine, reserve_policy: ReservePolicy) -> ClientId {
    match reserve_policy {
        ReservePolicy::PerConnection => engine.connect(),
        other => engine.connect_as(other),
    }
}

pub fn engine() -> Engine {
    Engine::new(Limits { max_watched: 1000, max_losses: Some(2), largest_leased: 40, ..Limits::NONE })
}

/// Returns the size in bytes of the live data in the log, computed according to the manual.
fn live(engine: &Engine) -> u64 {
    let size = |job: JobView| {
        let options = engine.stored_options(&job).map_or(0, |options| {
            let name = if let StoredKey::Kept(name) = options.dedup_key { name.length() } else { 0 };
            let bound = if let StoredKey::Kept(name) = options.concurrency.0 { name.length() } else { 0 };
            let ties: usize = options.ties.iter().map(|tie| 6 + tie.name.len()).sum();
            let schedule = options.schedule.map_or(0, |schedule| 16 + schedule.when.len());
            schedule + ties + 68 + name + bound + options.reducer.map_or(0, <[u8]>::len) + options.reason.len()
        });
        let origin = engine.dead_from(&job).map_or(0, |name| 2 + name.len());
        (94 + origin + engine.tube_of(&job).len() + job.body().len() + options) as u64
    };
    let pauses: u64 = engine.pauses().map(|(name, _)| (29 + name.len()) as u64).sum();
    let operations: u64 = engine.open_operations().map(|operation| (28 + operation.names()) as u64).sum();
    let groups: u64 = engine.group_names().map(|name| (52 + name.len()) as u64).sum();
    let keys: u64 = engine.ended_keys().map(|ended| (31 + ended.names()) as u64).sum();
    let settings =
        engine.tubes_with_settings().map(|(name, settings)| (48 + name.len() + settings.dead_length()) as u64);
    engine.jobs().filter(|job| !job.is_volatile()).map(size).sum::<u64>()
        + pauses
        + operations
        + groups
        + keys
        + settings.sum::<u64>()
}

pub struct Life {
    pub disk: Disk,
    pub access: Access,
    pub wal: Wal,
    pub model: Model,
    pub now: Time,
    pub random: Random,
    pub report: RecoveryReport,
    clients: Vec<ClientId>,
    /// The IDs of jobs that are or were excluded from the log.
    pub volatile: Vec<u64>,
    pub largest: u64,
    pub with_options: bool,
    /// `true` if the model may expect only synced changes to survive, even in modes that guarantee more.
    pub counts_syncs: bool,
    /// `true` to sync only when an operation requires it.
    pub leaves_syncs: bool,
    /// The state of the queue after each operation, or `None` if the test does not record the states.
    pub snapshots: Option<Snapshots>,
}

pub fn start(
    disk: &Disk,
    settings: BinlogSettings,
    now: Time,
) -> Result<(Engine, Journal, Wal, RecoveryReport), OpenError> {
    let mut engine = engine();
    let opened = open(Arc::new(disk.clone()), settings, &mut engine, now, &mut |_| {})?;
    engine.check();
    Ok((engine, opened.journal, opened.wal, opened.report))
}

impl Life {
    /// Recovers a queue, and connects one client for each of [`RESERVE_POLICIES`]. `seed` determines the operations.
    pub fn begin(disk: Disk, settings: BinlogSettings, now: Time, seed: u64) -> Result<Life, OpenError> {
        let (mut engine, journal, wal, report) = start(&disk, settings, now)?;
        let refused = journal.health == Health::Failing;
        assert!(refused || journal.stats().disk == disk.used("segment."), "wrong size of the log");
        assert_eq!(journal.stats().live, live(&engine), "wrong size of the live data");
        let model = Model::of(&engine, engine.jobs().map(|job| job.id().0));
        let clients = RESERVE_POLICIES.iter().map(|&reserve_policy| connect(&mut engine, reserve_policy)).collect();
        Ok(Life {
            disk,
            access: Access(RefCell::new((journal, engine))),
            wal,
            model,
            now,
            random: Random::new(seed),
            report,
            clients,
            volatile: Vec::new(),
            largest: 400,
            with_options: true,
            counts_syncs: false,
            leaves_syncs: false,
            snapshots: None,
        })
    }

    /// Advances the time, and executes the due timers, a random client operation and a random operation of the log.
    pub fn step(&mut self) {
        self.now = self.now + Span::from_millis(self.random.pick(&[0, 1, 20, 300, 2000]));
        self.tick();
        self.verb();
        self.look_after();
    }

    pub fn tick(&mut self) {
        loop {
            let put = self.turn(|engine, now| {
                if engine.next_deadline() <= now {
                    engine.tick(now);
                }
                None
            });
            assert_eq!(put, None);
            if self.access.0.borrow().1.next_deadline() > self.now {
                return;
            }
        }
    }

    /// Executes one client operation under the engine's lock, and appends its records to the journal. Returns the ID
    /// that the operation returns for a new job, if any.
    pub fn turn(&mut self, verb: impl FnOnce(&mut Engine, Time) -> Option<u64>) -> Option<u64> {
        if self.random.once_in(2) {
            self.wal.reserve(&self.access, 0);
        }
        let (journal, engine) = &mut *self.access.0.borrow_mut();
        engine.set_log_room(journal.engine_room());
        let put = verb(engine, self.now);
        while engine.take_event().is_some() {}
        let short = journal.health != Health::Ok;
        journal.append(engine);
        assert_eq!(journal.stats().live, live(engine), "wrong size of the live data");
        self.model.observe(engine, put, journal.position, short);
        let reserved = engine.last_id().min(journal.engine_room().ids);
        self.model.saw_ids(reserved.max(put.unwrap_or(0)));
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.push(Snapshot::of(engine, journal.position));
        }
        put
    }

    /// Returns the ID of a random job, or 1 if neither the model nor `volatile` contains an ID.
    pub fn any(&mut self) -> JobId {
        let mut ids = self.model.ids();
        ids.extend_from_slice(&self.volatile);
        JobId(if ids.is_empty() { 1 } else { self.random.pick(&ids) })
    }

    /// Ends the wait of a random client with [`ReservePolicy::PerConnection`], and returns the client.
    fn client(&mut self) -> ClientId {
        let place = self.random.below(3) as usize;
        self.client_at(place)
    }

    /// Ends the wait of the client at this index of [`RESERVE_POLICIES`], and returns the client.
    pub fn client_at(&mut self, place: usize) -> ClientId {
        let client = self.clients[place];
        self.access.0.borrow_mut().1.cancel_wait(client);
        client
    }

    pub fn verb(&mut self) {
        let (client, job) = (self.client(), self.any());
        let tube = self.random.pick(&TUBES);
        let pri = self.random.pick(&[0, 1, 5, 1024, u32::MAX]);
        let delay = Span::from_millis(self.random.pick(&[0, 0, 0, 1000, 3000, 1_000_000]));
        let many = self.model.ids().len() >= MAX_JOBS;
        match self.random.below(if self.with_options { 40 } else { 20 }) {
            20.. => self.verb_with_options(many),
            0..=4 if !many => drop(self.put(client, tube, pri, delay)),
            0..=6 => drop(self.turn(|engine, now| {
                let _ = engine.watch(client, tube, now);
                let _ = engine.reserve(client, Some(Span::ZERO), now);
                None
            })),
            7 => drop(self.turn(|engine, now| {
                engine.reserve_job(client, job, now);
                None
            })),
            8 => self.wait(client),
            9 | 10 => drop(self.turn(|engine, now| {
                engine.claim_log_room(0).then(|| engine.release(client, job, pri, delay, now));
                None
            })),
            11 | 12 => drop(self.turn(|engine, now| {
                let revokes = client.0 % 2 == 0 && engine.claim_log_room(0);
                if !revokes || !engine.revoke(job, pri, now) {
                    engine.claim_log_room(0).then(|| engine.bury(client, job, pri, now));
                }
                None
            })),
            13 => drop(self.turn(|engine, now| {
                verbs::kick(engine, client, 3, now);
                None
            })),
            14 => drop(self.turn(|engine, now| {
                engine.claim_log_room(0).then(|| engine.kick_job(job, now));
                None
            })),
            15 => self.pause(tube),
            16 => drop(self.turn(|engine, now| {
                engine.touch(client, job, now);
                None
            })),
            17 => self.hang_up(client),
            _ => drop(self.turn(|engine, now| {
                engine.delete(client, job, now);
                None
            })),
        }
    }

    /// Puts a job. Returns its ID, or `None` if the job was refused.
    pub fn put(&mut self, client: ClientId, tube: &[u8], pri: u32, delay: Span) -> Option<u64> {
        let body = self.body();
        let ttr = Span::from_secs(self.random.pick(&[1, 2, 1000]));
        self.wal.reserve(&self.access, (tube.len() + body.len()) as u64);
        self.turn(|engine, now| {
            engine.use_tube(client, tube).expect("a tube");
            engine.put(client, NewJob { pri, delay, ttr, body }, now).ok().map(|id| id.0)
        })
    }

    pub fn body(&mut self) -> Body {
        let length = match self.random.below(8) {
            0 => self.random.below(self.largest + 1),
            1 => 0,
            _ => self.random.below(60),
        };
        Body::from(self.random.bytes(length as usize))
    }

    pub fn first_client(&self) -> ClientId {
        self.clients[0]
    }

    fn wait(&mut self, client: ClientId) {
        self.turn(|engine, now| {
            let _ = engine.reserve(client, Some(Span::from_secs(3)), now);
            None
        });
    }

    fn pause(&mut self, tube: &[u8]) {
        let length = Span::from_millis(self.random.pick(&[0, 500, 100_000]));
        self.turn(|engine, now| {
            engine.claim_log_room(tube.len()).then(|| engine.pause(tube, length, now));
            None
        });
    }

    pub fn hang_up(&mut self, client: ClientId) {
        self.turn(|engine, now| {
            engine.disconnect(client, now);
            None
        });
        let place = self.clients.iter().position(|other| *other == client).expect("a client");
        self.clients[place] = connect(&mut self.access.0.borrow_mut().1, RESERVE_POLICIES[place]);
    }

    /// Executes a random part of the syncer's work.
    pub fn look_after(&mut self) {
        match self.random.below(10) {
            4..=6 if self.leaves_syncs => drop(self.wal.write(&self.access)),
            8 if self.leaves_syncs => drop(self.wal.maintain(&self.access, true)),
            0..=3 => drop(self.wal.write(&self.access)),
            4 | 5 => drop(self.wal.write(&self.access) && self.wal.sync(&self.access)),
            6 => drop(self.wal.sync(&self.access)),
            7 => drop(self.wal.maintain(&self.access, true)),
            8 => self.settle(),
            _ => {}
        }
        self.advance();
    }

    /// Reports to the model the log position up to which all changes are durable.
    fn advance(&mut self) {
        self.model.advance(if self.counts_syncs { self.wal.synced() } else { self.wal.durable() });
    }

    pub fn settle(&mut self) {
        let mut idle = 0;
        for _ in 0..1000 {
            let more = self.wal.maintain(&self.access, true);
            let _ = self.wal.write(&self.access) && self.wal.sync(&self.access);
            let pending = self.access.with(|journal, _| journal.position) > self.wal.written();
            // The log may record one round after all copies are durable that a segment is not needed, and removes the
            // segment one round later, so three idle rounds complete the work.
            idle += usize::from(!more && !pending);
            if idle == 3 || self.disk.has_crashed() || self.wal.is_failing() {
                break;
            }
        }
        self.advance();
    }

    pub fn health(&self) -> Health {
        self.access.0.borrow().0.health
    }
}

pub fn settings(segment_size: u64, mode: SyncMode) -> BinlogSettings {
    BinlogSettings::new(segment_size, mode)
}

/// The queue's time at the first start.
pub fn dawn() -> Time {
    Time::from_nanos(Duration::from_secs(1_700_000_000).as_nanos() as u64)
}
