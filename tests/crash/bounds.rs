//! Tests the size of the log on the disk under many kinds of load.
//!
//! The bound is twice the size of the live jobs plus two segments. The tests compare the log's statistics and files
//! with the bound before every operation, and print the worst case. `BEANPOLE_STEPS` sets the number of steps.

use std::collections::VecDeque;

use beanpole::internals::binlog::SyncMode;
use beanpole::internals::engine::{
    Body, ClientId, CompletionPolicy, DedupKey, Engine, Flush, JobId, JobOptions, Kick, MoveJobs, NewJob, Outcome,
    Progress, Reserve, ReservePolicy, Span, State, Tags, Time, TubeSettings,
};

use crate::disk::Disk;
use crate::driver::{dawn, settings, start, Access, Life};
use crate::random::Random;
use crate::verbs;
use beanpole::internals::binlog::{JournalAccess, Wal};

const STEPS: u64 = 15_000;

/// The number of operations before each call of the syncer.
const ROUND: u64 = 16;

/// The server's default for the maximum number of engine steps in a turn.
const TURN: u64 = 1024;

/// The space, in bytes, that the server requests for a command without a body.
const COMMAND: usize = 500;

fn configured() -> u64 {
    std::env::var("BEANPOLE_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(STEPS)
}

struct Watch {
    name: &'static str,
    disk: Disk,
    access: Access,
    wal: Wal,
    client: ClientId,
    segment: u64,
    steps: u64,
    /// The maximum of (disk size - 2 segments) / live size. `above` is the maximum of (disk size - bound), in bytes.
    worst: f64,
    above: i64,
    /// Like `above`, for the total size of the files. The file of a completed segment is longer than its records until
    /// the next sync truncates the file.
    files_above: i64,
    largest: usize,
    /// The journal position, in bytes, at the start of the measurement.
    start: u64,
}

impl Watch {
    fn new(name: &'static str, segment: u64) -> Watch {
        Watch::with(name, segment, SyncMode::Always)
    }

    fn with(name: &'static str, segment: u64, mode: SyncMode) -> Watch {
        let disk = Disk::new(1);
        let (mut engine, journal, wal, _) = start(&disk, settings(segment, mode), dawn()).expect("an empty log");
        let client = engine.connect();
        let start = journal.position;
        let access = Access((journal, engine).into());
        Watch {
            name,
            disk,
            access,
            wal,
            client,
            segment,
            steps: 0,
            worst: f64::MIN,
            above: i64::MIN,
            files_above: i64::MIN,
            largest: 0,
            start,
        }
    }

    fn verb<R>(&mut self, bytes: usize, verb: impl FnOnce(&mut Engine, ClientId) -> R) -> R {
        let client = self.client;
        self.wal.reserve(&self.access, bytes as u64);
        self.look();
        let answer = self.access.with(|journal, engine| {
            engine.set_log_room(journal.engine_room());
            let answer = verb(engine, client);
            journal.append(engine);
            answer
        });
        self.steps += 1;
        if self.steps % ROUND == 0 {
            // One round of the syncer: writes, syncs and compacts the log.
            let _ = self.wal.write(&self.access) && self.wal.sync(&self.access);
            self.wal.maintain(&self.access, true);
            let _ = self.wal.write(&self.access) && self.wal.sync(&self.access);
        }
        answer
    }

    fn look(&mut self) {
        let stats = self.access.0.borrow().0.stats();
        let above = |disk: u64| disk as i64 - 2 * stats.live as i64 - 2 * self.segment as i64;
        self.above = self.above.max(above(stats.disk));
        if stats.live > 0 {
            self.worst = self.worst.max((stats.disk as i64 - 2 * self.segment as i64) as f64 / stats.live as f64);
        }
        self.files_above = self.files_above.max(above(self.disk.used("")));
    }

    fn put(&mut self, delay: Span, length: usize) -> JobId {
        self.largest = self.largest.max(length);
        let new = NewJob { pri: 1, delay, ttr: Span::from_secs(100), body: Body::from(vec![b'x'; length]) };
        self.verb(length + 16, |engine, client| engine.put(client, new, dawn())).expect("space for a job")
    }

    fn delete(&mut self, id: JobId) {
        assert!(self.verb(0, |engine, client| engine.delete(client, id, dawn())));
    }

    fn finish(self) {
        let (journal, engine) = &*self.access.0.borrow();
        let stats = journal.stats();
        engine.check();
        let written = journal.position - self.start;
        println!(
            "{}, segments of {}: {} steps, (disk - 2 segments) / live at most {:.3}, bytes above the bound at most {} ({} in files), \
             {} records written again, {} of {} bytes written",
            self.name,
            self.segment,
            self.steps,
            self.worst,
            self.above,
            self.files_above,
            stats.migrated,
            stats.disk,
            written
        );
        assert!(self.above <= 0, "{}: {} bytes above the bound", self.name, self.above);
        // A record that does not fit into a segment leaves the end of the segment unused.
        let slack = self.largest as i64 + 100;
        assert!(self.files_above <= slack, "{}: {} bytes of files above the bound", self.name, self.files_above);
    }
}

#[test]
fn ten_small_jobs_buried_and_kicked_repeatedly() {
    for segment in [4096, 65_536] {
        let mut watch = Watch::new("ten tiny jobs", segment);
        for _ in 0..10 {
            watch.put(Span::ZERO, 3);
        }
        for _ in 0..configured() / 3 {
            let id = watch.verb(0, |engine, client| match engine.reserve(client, Some(Span::ZERO), dawn()) {
                Reserve::Job(job) => job.id(),
                other => panic!("{other:?}"),
            });
            assert!(watch.verb(0, |engine, client| engine.bury(client, id, 1, dawn())));
            assert_eq!(watch.verb(0, |engine, client| verbs::kick(engine, client, 1, dawn())), 1);
        }
        watch.finish();
    }
}

// Tests promise P20 of beanpole-promises(7).
#[test]
fn one_old_job_among_many_short_lived_ones() {
    for (segment, length) in [(4096, 10), (65_536, 10), (65_536, 3000)] {
        let mut watch = Watch::new("one old job and a churn", segment);
        watch.put(Span::ZERO, 10);
        for _ in 0..configured() / 2 {
            let id = watch.put(Span::ZERO, length);
            watch.delete(id);
        }
        watch.finish();
    }
}

#[test]
fn many_delayed_jobs_deleted_at_random() {
    for (segment, length) in [(16_384, 0), (65_536, 100), (1 << 20, 40)] {
        let mut watch = Watch::new("many delayed jobs", segment);
        let mut random = Random::new(segment);
        let delay = Span::from_secs(100_000);
        let mut ids: Vec<JobId> = (0..configured()).map(|_| watch.put(delay, length)).collect();
        while !ids.is_empty() {
            let place = random.below(ids.len() as u64) as usize;
            watch.delete(ids.swap_remove(place));
        }
        watch.finish();
    }
}

// Tests promise P20 of beanpole-promises(7).
#[test]
fn any_mixture_of_sizes() {
    let mut watch = Watch::new("a mixture of sizes", 65_536);
    let mut random = Random::new(7);
    let mut ids = Vec::new();
    for round in 0..configured() {
        // The wanted number of jobs goes through these values twice. The actual number can exceed it by up to 100.
        let wanted = [2000, 10, 300, 0][(round * 8 / configured()) as usize % 4];
        let length = random.pick(&[0, 10, 100, 1000, 20_000]);
        if ids.len() < wanted || (random.once_in(2) && ids.len() < wanted + 100) {
            ids.push(watch.put(Span::ZERO, length));
        } else if !ids.is_empty() {
            let place = random.below(ids.len() as u64) as usize;
            watch.delete(ids.swap_remove(place));
        }
    }
    watch.finish();
}

/// A large job does not fit into the segments that are prepared for the deletes of the small jobs.
#[test]
fn large_jobs_among_very_many_small_ones() {
    let (small, large, length) = (5000, 1000, 4500);
    let mut watch = Watch::new("large jobs among small ones", 4096);
    let mut random = Random::new(7);
    let mut ids = Vec::new();
    for _ in 0..small + large {
        ids.push(watch.put(Span::ZERO, if random.below(small + large) < large { length } else { 10 }));
        let (journal, _) = &*watch.access.0.borrow();
        let (written, live) = (journal.position - watch.start, journal.stats().live);
        assert!(written < 2 * live + 20_000, "{written} bytes were written for {live} bytes of jobs");
    }
    ids.iter().step_by(7).for_each(|id| watch.delete(*id));
    // An unfinished put already occupies space in a segment, but its job does not count as live yet.
    assert!(watch.above <= length as i64, "{} bytes above the bound", watch.above);
}

/// Jobs fail up to four times, often while they are leased, and then complete with increasingly large results. Every
/// fifth job is canceled instead.
#[test]
fn growing_outcomes_and_many_attempts() {
    for segment in [4096, 65_536] {
        let mut watch = Watch::new("outcomes of growing size", segment);
        let mut random = Random::new(segment);
        let leaser = watch.access.with(|_, engine| engine.connect_as(ReservePolicy::Lease));
        let mut over = VecDeque::new();
        for round in 0..configured() / 6 {
            let mut dedup_key = [1; 16];
            dedup_key[..8].copy_from_slice(&round.to_le_bytes());
            let completion = if round % 5 == 0 { CompletionPolicy::Tell } else { CompletionPolicy::Keep };
            let dedup_key =
                if completion == CompletionPolicy::Keep { DedupKey::Id(dedup_key) } else { DedupKey::Body(None) };
            let options =
                JobOptions { completion, dedup_key, max_fails: 255, attach: round % 3 == 0, ..JobOptions::default() };
            let body = Body::from(vec![b'x'; random.below(60) as usize]);
            let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(100), body };
            let submitted = watch.verb(200, |engine, client| engine.submit(client, b"default", new, options, dawn()));
            let id = submitted.expect("space for a job").id;
            for _ in 0..random.below(5) {
                watch.verb(100, |engine, _| {
                    let _ = verbs::lease(engine, leaser, &[b"default"], Span::ZERO, dawn());
                });
                if completion == CompletionPolicy::Keep {
                    let failed = Outcome::Failed(Body::from(vec![b'f'; 30]));
                    watch.verb(130, |engine, _| engine.complete(id, failed, dawn())).expect("an unfinished job");
                }
            }
            if completion == CompletionPolicy::Tell {
                watch.verb(1, |engine, _| engine.cancel(id, dawn()));
                continue;
            }
            let length = (round * 3 % (segment / 2)) as usize;
            watch.largest = watch.largest.max(length);
            let result = Outcome::Done(Body::from(vec![b'r'; length]));
            watch.verb(length + 100, |engine, _| engine.complete(id, result, dawn())).expect("space for a result");
            over.push_back(id);
            if over.len() > 30 {
                let oldest = over.pop_front().expect("the oldest job");
                assert!(watch.verb(1, |engine, _| engine.delete_in_any_state(oldest, dawn())));
            }
        }
        watch.finish();
    }
}

/// Pauses count as live data. A pause needs log space only when it begins.
#[test]
fn very_many_paused_tubes() {
    const ROUNDS: usize = 500;
    let tubes = if configured() > STEPS { 45_500 } else { 2000 };
    let hour = Span::from_secs(3600);
    let mut watch = Watch::new("very many paused tubes", 1 << 20);
    for number in 0..tubes {
        let name = format!("{number:0200}").into_bytes();
        watch.verb(name.len() + 100, |engine, client| {
            engine.use_tube(client, &name).expect("a tube");
            let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1), body: Body::from(vec![]) };
            engine.put(client, new, dawn()).expect("space for a job");
            assert!(engine.pause(&name, hour, dawn()));
        });
    }
    let settle = |watch: &mut Watch| {
        for _ in 0..2000 {
            let more = watch.wal.maintain(&watch.access, true);
            let _ = watch.wal.write(&watch.access) && watch.wal.sync(&watch.access);
            if !more {
                break;
            }
        }
        watch.access.0.borrow().0.position
    };
    settle(&mut watch);
    let before = settle(&mut watch);
    for _ in 0..20 {
        assert_eq!(settle(&mut watch), before, "an idle server must not write");
    }
    for _ in 0..ROUNDS {
        let id = watch.put(Span::ZERO, 1);
        watch.delete(id);
    }
    let after = settle(&mut watch);
    let each = (after - before) / ROUNDS as u64;
    println!("{tubes} paused tubes: {each} bytes for each put and its delete, and none when idle");
    assert!(each < 1024, "{each} bytes for each put");
    let disk = watch.disk.kill(1);
    let (engine, ..) = start(&disk, settings(1 << 20, SyncMode::Always), dawn()).expect("a log");
    assert_eq!(engine.pauses().count(), tubes);
    watch.finish();
}

/// Before a segment is emptied, no segment can be removed, so a sync would only delay commands.
#[test]
fn compaction_syncs_only_for_removals() {
    let mut watch = Watch::new("large segments", 8 << 20);
    let ids: Vec<JobId> = (0..2400).map(|_| watch.put(Span::ZERO, 10_000)).collect();
    let (client, before) = (watch.client, watch.wal.sync_times.lock().count());
    watch.access.with(|journal, engine| {
        let mut deleted = ids.iter().filter(|id| id.0 % 3 > 0);
        assert!(deleted.all(|id| engine.delete(client, *id, dawn())));
        journal.append(engine)
    });
    let figures = |watch: &Watch| watch.access.0.borrow().0.stats();
    let old = figures(&watch);
    watch.wal.reserve(&watch.access, 0);
    let (now, syncs) = (figures(&watch), watch.wal.sync_times.lock().count() - before);
    println!("{} records copied, {} segments removed, {syncs} syncs", now.migrated, now.oldest - old.oldest);
    assert!(now.disk <= 2 * now.live + 2 * watch.segment && now.oldest > old.oldest && now.migrated > 100);
    assert!(syncs <= now.oldest - old.oldest, "{syncs} syncs");
}

/// Single reservations do not wait for log space, so the log can exceed its bound. Maintenance alone must then shrink
/// the log.
#[test]
fn maintenance_shrinks_the_log_after_reservations() {
    for mode in [SyncMode::Always, SyncMode::Every(50), SyncMode::Never] {
        let mut watch = Watch::with("single reservations", 4096, mode);
        let ids: Vec<JobId> = (0..100).map(|_| watch.put(Span::ZERO, 100)).collect();
        let client = watch.client;
        for round in 0..20 {
            watch.access.with(|journal, engine| {
                for id in ids.iter().cycle().take(ids.len() * (1 + round % 10)) {
                    engine.reserve_job(client, *id, dawn()).expect("a job");
                    assert!(engine.release(client, *id, 1, Span::ZERO, dawn()));
                }
                journal.append(engine)
            });
            for _ in 0..20 {
                watch.wal.maintain(&watch.access, true);
            }
            let now = watch.access.0.borrow().0.stats();
            let above = now.disk as i64 - 2 * (now.live + watch.segment) as i64;
            assert!(above <= 0, "{mode:?}, round {round}: {above} bytes above the bound");
        }
    }
}

/// Clients of all protocols send random commands, and the syncer runs at random times.
// Tests promise P20 of beanpole-promises(7).
#[test]
fn random_histories_of_all_commands() {
    for (seed, segment) in (0..12).zip([4096, 8192, 40_000].into_iter().cycle()) {
        let (disk, mode) = (Disk::new(seed), [SyncMode::Always, SyncMode::Never][seed as usize % 2]);
        let mut life = Life::begin(disk.clone(), settings(segment, mode), dawn(), seed).expect("an empty log");
        for step in 0..configured() / 20 {
            life.step();
            life.wal.reserve(&life.access, 0);
            let now = life.access.0.borrow().0.stats();
            let (bound, slack, used) = (2 * now.live + 2 * segment, life.largest + 100, disk.used(""));
            assert!(now.disk <= bound && used <= bound + slack, "seed {seed}, step {step}: {now:?}, {used} bytes");
        }
    }
}

/// The kinds of changes that [`Churn::round`] makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Move,
    MoveTube,
    Try,
    Kick,
    Settings,
    Schedule,
    Result,
    Timeout,
    Pause,
    Duplicate,
}

const KINDS: [(Kind, &str); 10] = [
    (Kind::Move, "moved jobs"),
    (Kind::MoveTube, "moved tubes"),
    (Kind::Try, "failed tries"),
    (Kind::Kick, "kicks"),
    (Kind::Settings, "settings of tubes"),
    (Kind::Schedule, "schedules"),
    (Kind::Result, "results"),
    (Kind::Timeout, "timeouts"),
    (Kind::Pause, "pauses"),
    (Kind::Duplicate, "duplicates"),
];

/// The number of live jobs during a churn.
const JOBS: usize = 200;

/// Repeatedly changes [`JOBS`] live jobs. The total size of these jobs remains almost the same.
struct Churn {
    watch: Watch,
    now: Time,
    ids: Vec<JobId>,
    rounds: u64,
}

fn named(name: &str) -> JobOptions {
    JobOptions { dedup_key: DedupKey::Name(name.as_bytes().into()), ..JobOptions::default() }
}

fn job(pri: u32, ttr: Span) -> NewJob {
    NewJob { pri, delay: Span::ZERO, ttr, body: Body::from(vec![b'x'; 100]) }
}

impl Churn {
    fn new(watch: Watch) -> Churn {
        let mut churn = Churn { watch, now: dawn(), ids: Vec::new(), rounds: 0 };
        // One turn of a long command can complete several segments, and leave the end of each segment unused.
        churn.watch.largest = 5 * 300;
        for number in 0..JOBS {
            let tags = Tags { options: named(&format!("{number:06}")), ..Tags::default() };
            churn.verb(|engine, client, now| {
                engine.put_tagged(client, job(1_000_000, Span::from_secs(1)), tags, now).expect("space for a job");
            });
        }
        churn.ids = churn.watch.access.0.borrow().1.jobs().map(|job| job.id()).collect();
        churn
    }

    fn verb<R>(&mut self, verb: impl FnOnce(&mut Engine, ClientId, Time) -> R) -> R {
        let now = self.now;
        self.watch.verb(COMMAND, |engine, client| {
            engine.grant_steps(TURN);
            verb(engine, client, now)
        })
    }

    fn each(&mut self, mut verb: impl FnMut(&mut Engine, ClientId, JobId, Time)) {
        for id in self.ids.clone() {
            self.verb(|engine, client, now| verb(engine, client, id, now));
        }
    }

    /// Executes a long command in turns.
    fn turns(&mut self, mut verb: impl FnMut(&mut Engine, ClientId, Time) -> Progress) {
        while self.verb(&mut verb) == Progress::More {}
    }

    fn tick(&mut self, length: Span) {
        self.now = self.now + length;
        while !self.verb(|engine, _, now| engine.tick(now)) {}
        while self.verb(|engine, _, now| {
            engine.go_on(now);
            while engine.take_event().is_some() {}
            engine.has_deferred()
        }) {}
    }

    fn kick_all(&mut self) {
        let mut kick = Kick::new(u64::MAX);
        self.turns(|engine, client, now| engine.kick(client, &mut kick, now));
    }

    fn round(&mut self, kind: Kind) {
        self.rounds += 1;
        let (pri, long) = (1_000_000 - self.rounds as u32, [b'l'; 200]);
        match kind {
            Kind::Move => self.each(|engine, client, id, now| {
                for name in [&long[..], b"default"] {
                    assert_eq!(engine.move_job(client, id, name, (pri, Span::ZERO), now), Ok(true));
                }
            }),
            Kind::MoveTube => {
                for (from, to) in [(&b"default"[..], &long[..]), (&long, b"default")] {
                    let mut moving = MoveJobs::new(from.into(), to.into(), State::Ready, u64::MAX);
                    self.turns(|engine, client, now| engine.move_jobs(client, &mut moving, now).expect("a tube"));
                }
            }
            Kind::Try => {
                let reason = vec![b'y'; self.rounds as usize % 2 * 200];
                self.each(|engine, client, id, now| {
                    engine.reserve_job(client, id, now).expect("a job");
                    engine.fail(client, id, pri, &reason, now).expect("a reserved job");
                });
                self.kick_all();
            }
            Kind::Kick => {
                self.each(|engine, client, id, now| {
                    engine.reserve_job(client, id, now).expect("a job");
                    assert!(engine.bury(client, id, pri, now));
                });
                self.kick_all();
            }
            Kind::Settings => self.each(|engine, client, id, now| {
                let name = [&id.0.to_string().into_bytes(), &long[..190]].concat();
                let settings = TubeSettings { ttl: pri, dead: Some(long[..].into()), ..TubeSettings::default() };
                engine.set_tube(client, &name, settings, now).expect("a tube");
            }),
            Kind::Schedule => self.run_schedules(),
            Kind::Result => self.complete(pri as usize % 2 * 300),
            Kind::Timeout => {
                self.each(|engine, client, id, now| {
                    engine.reserve_job(client, id, now).expect("a job");
                });
                self.tick(Span::from_secs(2));
            }
            Kind::Pause => {
                for seconds in 1..JOBS as u64 {
                    self.verb(|engine, _, now| engine.pause(b"default", Span::from_secs(1000 + seconds), now));
                }
            }
            Kind::Duplicate => {
                for number in 0..JOBS {
                    let tags = Tags { options: named(&format!("{number:06}")), ..Tags::default() };
                    self.verb(|engine, client, now| engine.put_tagged(client, job(pri, Span::from_secs(1)), tags, now))
                        .expect("space for a duplicate");
                }
            }
        }
    }

    /// Each schedule puts several copies, which are then deleted.
    fn run_schedules(&mut self) {
        for number in 0..30 {
            let options = named(&format!("schedule {number}"));
            let tags = Tags { tube: Some((*b"copies").into()), recurs: Some(b"1".as_slice().into()), options };
            self.verb(|engine, client, now| engine.put_tagged(client, job(1, Span::from_secs(1)), tags, now))
                .expect("space for a schedule");
        }
        for _ in 0..5 {
            self.tick(Span::from_secs(1));
            let mut flush = Flush::new((*b"copies").into(), &[State::Ready]);
            self.turns(|engine, _, now| engine.flush(&mut flush, now));
        }
    }

    fn complete(&mut self, length: usize) {
        for number in 0..JOBS as u64 {
            let mut key = [1; 16];
            key[..8].copy_from_slice(&number.to_le_bytes());
            let (completion, dedup_key) = (CompletionPolicy::Keep, DedupKey::Id(key));
            let options = JobOptions { completion, dedup_key, ..JobOptions::default() };
            let submitted = self.verb(|engine, client, now| {
                engine.submit(client, b"default", job(1, Span::from_secs(1)), options, now)
            });
            let id = submitted.expect("space for a job").id;
            let result = Outcome::Done(Body::from(vec![b'r'; length]));
            self.watch
                .verb(COMMAND + length, |engine, _| engine.complete(id, result, dawn()))
                .expect("space for a result");
            assert!(self.verb(|engine, _, now| engine.delete_in_any_state(id, now)));
        }
    }
}

// Tests promise P20 of beanpole-promises(7).
#[test]
fn all_kinds_of_changes_with_segments_of_all_sizes() {
    for segment in [4096, 8192, 30_000, 65_536, 1 << 20] {
        for mode in [SyncMode::Always, SyncMode::Never] {
            for (kind, name) in KINDS {
                let mut churn = Churn::new(Watch::with(name, segment, mode));
                for _ in 0..rounds() {
                    churn.round(kind);
                }
                churn.watch.finish();
            }
            let mut churn = Churn::new(Watch::with("a mixture of changes", segment, mode));
            let mut random = Random::new(segment);
            for _ in 0..4 * rounds() {
                churn.round(random.pick(&KINDS).0);
            }
            churn.watch.finish();
        }
    }
}

fn rounds() -> u64 {
    configured() / STEPS.div_ceil(5)
}
