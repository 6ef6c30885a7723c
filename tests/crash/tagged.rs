//! Tests tags, moves, limits and the keys of ended jobs after a power failure.
//!
//! Contains specific cases, for example the reply to a duplicate before the original is durable, a partly deleted
//! batch, an interrupted flush, a key of an ended job, and the compaction of a log that contains all of these.

use beanpole::internals::binlog::{JournalAccess, SyncMode};
use beanpole::internals::engine::{
    Body, CompletionPolicy, DedupKey, Engine, Flush, JobId, JobOptions, LogRoom, MoveJobs, NewJob, Outcome, Progress,
    Span, State, Tagged, Tags, Time, TubeSettings, CHANGE_SIZE,
};

use crate::disk::Disk;
use crate::driver::{dawn, settings, start, Life};

const SEGMENT: u64 = 4096;

fn begin(disk: &Disk, now: Time) -> Life {
    let mut life = Life::begin(disk.clone(), settings(SEGMENT, SyncMode::Always), now, 1).expect("a log");
    life.settle();
    life
}

fn save(life: &mut Life) {
    assert!(life.wal.write(&life.access) && life.wal.sync(&life.access));
}

fn new(pri: u32) -> NewJob {
    NewJob { pri, delay: Span::ZERO, ttr: Span::from_secs(10), body: Body::from(b"body".as_slice()) }
}

fn key(name: &str, keep: u32) -> Tags {
    let options = JobOptions { dedup_key: DedupKey::Name(name.as_bytes().into()), keep, ..JobOptions::default() };
    Tags { options, ..Tags::default() }
}

fn put(life: &mut Life, pri: u32, tags: Tags) -> Tagged {
    let client = life.first_client();
    let mut put = None;
    life.turn(|engine, now| {
        put = Some(engine.put_tagged(client, new(pri), tags, now).expect("space for a job"));
        None
    });
    put.expect("a result")
}

fn put_new(life: &mut Life, tags: Tags) -> JobId {
    match put(life, 5, tags) {
        Tagged::New(id) => id,
        other => panic!("{other:?}"),
    }
}

fn verb(life: &mut Life, verb: impl FnOnce(&mut Engine, Time)) {
    life.turn(|engine, now| {
        verb(engine, now);
        None
    });
}

/// Returns the queue recovered after a power failure.
fn after_cut(disk: &Disk, now: Time) -> Engine {
    let (engine, _, _, report) = start(&disk.power_cut(1), settings(SEGMENT, SyncMode::Always), now).expect("a log");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    engine.check();
    engine
}

#[test]
fn tags_and_their_effects_are_recovered() {
    let disk = Disk::new(1);
    let mut life = begin(&disk, dawn());
    let mut tags = Tags { tube: Some(b"t".as_slice().into()), ..key("k", 60) };
    (tags.options.max_attempts, tags.options.backoff) = (3, 4);
    tags.options.ttl = Span::from_secs(3600);
    tags.options.concurrency = Some((b"bound".as_slice().into(), 1));
    let options = JobOptions { dedup_key: DedupKey::None, keep: 0, ..tags.options.clone() };
    let (first, second) = (put_new(&mut life, tags.clone()), put_new(&mut life, Tags { options, ..tags.clone() }));
    assert_eq!(put(&mut life, 2, tags), Tagged::Duplicate { id: first, state: State::Ready, raised: Some(2) });
    let client = life.first_client();
    for _ in 0..2 {
        verb(&mut life, |engine, now| {
            engine.reserve_job(client, first, now).expect("a job");
            assert!(engine.reserve_job(client, second, now).is_none(), "only one job at a time");
            assert!(engine.release(client, first, 7, Span::ZERO, now));
        });
    }
    save(&mut life);
    let mut engine = after_cut(&disk, life.now);
    let other = engine.connect();
    let job = engine.job_stats(first, life.now).expect("a job");
    assert_eq!((job.tube, job.pri, job.state, job.history.releases), (b"t".as_slice(), 7, State::Ready, 2));
    // The recovered job still has one more attempt, its key and its concurrency limit.
    engine.reserve_job(other, first, life.now).expect("a job");
    assert!(engine.reserve_job(other, second, life.now).is_none());
    assert!(engine.release(other, first, 7, Span::ZERO, life.now));
    assert!(engine.is_buried(first));
    engine.use_tube(other, b"t").expect("a tube");
    let again = engine.put_tagged(other, new(9), key("k", 0), life.now);
    assert_eq!(again, Ok(Tagged::Duplicate { id: first, state: State::Buried, raised: None }));
    while !engine.tick(life.now + Span::from_secs(3601)) {}
    assert!(engine.job(second).is_none(), "the job must have expired");
    engine.check();
}

/// A failed attempt that the server has reported to a client must survive a restart.
#[test]
fn a_failed_attempt_counts_on_a_nearly_full_disk() {
    let disk = Disk::new(1);
    let mut life = begin(&disk, dawn());
    let options = JobOptions { max_attempts: 5, backoff: 60, ..JobOptions::default() };
    let tags = Tags { options, ..Tags::default() };
    let (released, failed) = (put_new(&mut life, tags.clone()), put_new(&mut life, tags));
    let client = life.first_client();
    verb(&mut life, |engine, now| {
        for (id, fails) in [(released, false), (failed, true)] {
            engine.reserve_job(client, id, now).expect("a job");
            engine.set_log_room(LogRoom { puts: 0, changes: CHANGE_SIZE, burst: CHANGE_SIZE, ids: 0 });
            assert!(engine.claim_log_room(0));
            if fails {
                engine.fail(client, id, 1, b"", now);
            } else {
                assert!(engine.release(client, id, 1, Span::ZERO, now));
            }
            engine.set_log_room(LogRoom::ENDLESS);
        }
    });
    save(&mut life);
    let engine = after_cut(&disk, life.now);
    for (id, state) in [(released, State::Ready), (failed, State::Delayed)] {
        let job = engine.any_job(id).expect("a job");
        assert_eq!((job.state(), job.fails), (state, 1), "{id:?}");
    }
}

// Tests promise P27 of beanpole-promises(7).
#[test]
fn a_key_outlives_its_job_and_duplicates_wait_for_the_original() {
    let disk = Disk::new(1);
    let mut life = begin(&disk, dawn());
    let id = put_new(&mut life, key("k", 60));
    save(&mut life);
    let before = life.access.0.borrow().0.required;
    put(&mut life, 5, key("k", 60));
    let promised = life.access.0.borrow().0.required;
    assert!(promised.put_count > before.put_count, "the reply must wait for the original");
    let client = life.first_client();
    verb(&mut life, |engine, now| assert!(engine.delete(client, id, now)));
    // After a torn write of the delete, either the job or its key must exist.
    let torn = disk.power_cut(3);
    let (mut engine, ..) = start(&torn, settings(SEGMENT, SyncMode::Always), life.now).expect("a log");
    let other = engine.connect();
    assert!(!matches!(engine.put_tagged(other, new(5), key("k", 0), life.now), Ok(Tagged::New(_))));
    save(&mut life);
    let mut engine = after_cut(&disk, life.now);
    let other = engine.connect();
    assert_eq!(engine.put_tagged(other, new(5), key("k", 0), life.now), Ok(Tagged::Ended(id)));
    let later = life.now + Span::from_secs(60);
    while !engine.tick(later) {}
    assert!(matches!(engine.put_tagged(other, new(5), key("k", 0), later), Ok(Tagged::New(_))));
    engine.check();
}

#[test]
fn moves_and_limits_are_recovered() {
    let disk = Disk::new(1);
    let mut life = begin(&disk, dawn());
    let client = life.first_client();
    let ids: Vec<JobId> = (0..4).map(|place| put_new(&mut life, key(&format!("k{place}"), 0))).collect();
    verb(&mut life, |engine, now| {
        engine.reserve_job(client, ids[1], now).expect("a job");
        assert!(engine.bury(client, ids[1], 3, now));
        assert_eq!(engine.move_job(client, ids[0], b"a longer name", (9, Span::from_secs(50)), now), Ok(true));
    });
    verb(&mut life, |engine, now| {
        let mut moving = MoveJobs::new((*b"default").into(), (*b"dead").into(), State::Buried, 10);
        assert_eq!(engine.move_jobs(client, &mut moving, now), Ok(Progress::Done));
        assert_eq!(moving.done, 1);
    });
    verb(&mut life, |engine, now| engine.limit_new_tube(client, b"full", [Some(0); 3], now).expect("a tube"));
    verb(&mut life, |engine, now| engine.limit_new_tube(client, b"free", [Some(7); 3], now).expect("a tube"));
    verb(&mut life, |engine, now| engine.limit_new_tube(client, b"free", [None; 3], now).expect("a tube"));
    save(&mut life);
    for pass in 0..2 {
        let mut engine = after_cut(&disk, life.now);
        let (moved, buried) = (engine.job(ids[0]).expect("a job"), engine.job(ids[1]).expect("a job"));
        assert_eq!(
            (engine.tube_of(&moved), moved.state(), moved.priority()),
            (&b"a longer name"[..], State::Delayed, 9)
        );
        assert_eq!((engine.tube_of(&buried), buried.state()), (&b"dead"[..], State::Buried));
        let other = engine.connect();
        let tags = Tags { tube: Some((*b"full").into()), ..Tags::default() };
        assert!(engine.put_tagged(other, new(1), tags, life.now).is_err());
        assert!(engine.tube_stats(b"free", life.now).is_none(), "a tube without limits and jobs must not exist");
        // Compacts the log. The checks must then succeed again.
        for round in 0..400 {
            let id = put_new(&mut life, key(&format!("round{pass}-{round}"), if round < 40 { 1000 } else { 0 }));
            verb(&mut life, |engine, now| assert!(engine.delete(client, id, now)));
            if round % 10 == 0 {
                save(&mut life);
                life.settle();
            }
        }
        save(&mut life);
        life.settle();
    }
    let mut engine = after_cut(&disk, life.now);
    let other = engine.connect();
    for round in 0..40 {
        let put = engine.put_tagged(other, new(1), key(&format!("round1-{round}"), 0), life.now);
        assert!(matches!(put, Ok(Tagged::Ended(_))), "round {round}: {put:?}");
    }
}

#[test]
fn only_a_part_of_a_batch_or_flush_can_survive() {
    for seed in 0..20 {
        let disk = Disk::new(seed);
        let mut life = begin(&disk, dawn());
        let ids: Vec<JobId> = (0..30).map(|_| put_new(&mut life, Tags::default())).collect();
        save(&mut life);
        let client = life.first_client();
        let mut flush = Flush::new((*b"default").into(), &State::UNFINISHED);
        verb(&mut life, |engine, now| {
            ids[..10].iter().for_each(|id| assert!(engine.delete(client, *id, now)));
        });
        verb(&mut life, |engine, now| {
            engine.grant_steps(64);
            assert_eq!(engine.flush(&mut flush, now), Progress::More);
            engine.grant_steps(u64::MAX);
        });
        life.wal.write(&life.access);
        let (engine, ..) = start(&disk.power_cut(seed), settings(SEGMENT, SyncMode::Always), life.now).expect("a log");
        let left: Vec<bool> = ids.iter().map(|id| engine.job(*id).is_some()).collect();
        let first = left.iter().position(|left| *left).unwrap_or(ids.len());
        assert!(left[first..].iter().all(|left| *left), "{left:?}");
        assert!(first as u64 <= 10 + flush.done, "{first}");
    }
}

/// Puts a job into a tube that permits one attempt, and fails the job. With `kept`, the job is a Workq job.
fn dead_letter(life: &mut Life, kept: bool, ttl: Span) -> JobId {
    let client = life.first_client();
    let (completion, dedup_key) =
        if kept { (CompletionPolicy::Keep, DedupKey::Id([3; 16])) } else { (CompletionPolicy::Drop, DedupKey::None) };
    let options = JobOptions { completion, dedup_key, ttl, ..JobOptions::default() };
    let settings = TubeSettings { tries: 1, dead: Some(b"dead".as_slice().into()), ..TubeSettings::default() };
    let mut id = None;
    verb(life, |engine, now| {
        engine.set_tube(client, b"mail", settings, now).expect("a tube");
    });
    life.turn(|engine, now| {
        id = Some(engine.submit(client, b"mail", new(5), options, now).expect("space for a job").id);
        id.map(|id| id.0)
    });
    let id = id.expect("a job");
    verb(life, |engine, now| {
        engine.reserve_job(client, id, now).expect("a job");
    });
    verb(life, |engine, now| {
        engine.fail(client, id, 5, b"no such host", now).expect("a reserved job");
    });
    life.access.with(|_, engine| assert_dead_letter(engine, id));
    id
}

/// Panics unless the job is a dead letter with the original tube and the reason that [`dead_letter`] has reported.
fn assert_dead_letter(engine: &Engine, id: JobId) {
    let job = engine.job(id).expect("a dead letter");
    let reason = engine.stored_options(&job).map(|options| options.reason);
    assert_eq!((job.state(), engine.tube_of(&job)), (State::Buried, &b"dead"[..]));
    assert_eq!((engine.dead_from(&job), reason), (Some(&b"mail"[..]), Some(&b"no such host"[..])));
}

/// Several jobs with the same key must be found in the same order before and after a restart.
// Tests promise P27 of beanpole-promises(7).
#[test]
fn jobs_that_share_a_key_are_found_after_a_restart() {
    let disk = Disk::new(1);
    let mut life = begin(&disk, dawn());
    let client = life.first_client();
    let settings = TubeSettings { tries: 1, dead: Some(b"dead".as_slice().into()), ..TubeSettings::default() };
    verb(&mut life, |engine, now| {
        engine.set_tube(client, b"mail", settings, now).expect("a tube");
    });
    let tags = |tube: &[u8]| Tags { tube: Some(tube.into()), ..key("k", 0) };
    let ids: Vec<JobId> = (0..20).map(|_| dead_letter_of(&mut life, tags(b"mail"))).collect();
    // Two jobs stay dead letters. The test kicks the other jobs, and then buries half of them.
    for (place, &id) in ids[2..].iter().rev().enumerate() {
        verb(&mut life, |engine, now| {
            assert_eq!(engine.kick_job(id, now), Ok(true));
            if place % 2 == 0 {
                engine.reserve_job(client, id, now).expect("a job");
                assert!(engine.bury(client, id, 5, now));
            }
        });
    }
    save(&mut life);
    let end_in_order = |engine: &mut Engine, now: Time| {
        let client = engine.connect();
        let put = |engine: &mut Engine| match engine.put_tagged(client, new(5), tags(b"dead"), now) {
            Ok(Tagged::Duplicate { id, .. }) => Some(id),
            other => panic!("{other:?}"),
        };
        let mut left: Vec<JobId> = ids[2..].to_vec();
        left.sort_by_key(|id| (engine.is_buried(*id), *id));
        while let Some(first) = left.first() {
            assert_eq!(put(engine), Some(*first));
            // Deletes the job that was found, or the job that would be found next.
            let gone = left.remove(usize::from(left.len() % 3 == 0).min(left.len() - 1));
            assert!(engine.delete_in_any_state(gone, now));
            engine.check();
        }
        assert!(matches!(engine.put_tagged(client, new(5), tags(b"dead"), now), Ok(Tagged::New(_))));
    };
    end_in_order(&mut after_cut(&disk, life.now), life.now);
    verb(&mut life, end_in_order);
}

fn dead_letter_of(life: &mut Life, tags: Tags) -> JobId {
    let (client, id) = (life.first_client(), put_new(life, tags));
    life.settle();
    verb(life, |engine, now| {
        engine.reserve_job(client, id, now).expect("a job");
    });
    verb(life, |engine, now| {
        engine.fail(client, id, 5, b"no such host", now).expect("a reserved job");
    });
    id
}

/// The log's space accounting must include the origins of dead letters. The test checks the accounting after each
/// command and each start.
// Tests promise P29 of beanpole-promises(7).
#[test]
fn a_dead_letter_keeps_its_origin() {
    // Kicks a job whose time to live has expired.
    let disk = Disk::new(1);
    let mut life = begin(&disk, dawn());
    let id = dead_letter(&mut life, false, Span::from_secs(5));
    life.now = life.now + Span::from_secs(6);
    verb(&mut life, |engine, now| {
        let _ = engine.kick_job(id, now);
    });
    assert!(life.access.with(|_, engine| engine.job(id).is_none()));
    // The dead letter survives power failures and kills, and stays buried for any time.
    let disk = Disk::new(3);
    let mut life = begin(&disk, dawn());
    let id = dead_letter(&mut life, false, Span::MAX);
    save(&mut life);
    assert_dead_letter(&after_cut(&disk, life.now), id);
    let mut engine = after_cut(&disk.kill(1), life.now + Span::from_secs(1_000_000));
    while !engine.tick(life.now + Span::from_secs(2_000_000)) {}
    assert_dead_letter(&engine, id);
    // A worker reports the outcome of a job after the worker has lost the reservation.
    let disk = Disk::new(2);
    let mut life = begin(&disk, dawn());
    let id = dead_letter(&mut life, true, Span::MAX);
    save(&mut life);
    let before = disk.kill(1);
    let mut again = begin(&before, life.now);
    again.access.with(|_, engine| assert_dead_letter(engine, id));
    verb(&mut again, |engine, now| {
        engine.complete(id, Outcome::Done(Body::from(b"done".as_slice())), now).expect("a job");
    });
    save(&mut again);
    let after = begin(&before.kill(1), life.now);
    assert!(after.access.with(|_, engine| !engine.is_buried(id)));
}

// Tests promise P31 of beanpole-promises(7).
#[test]
fn a_schedule_and_its_copy_agree_after_any_power_cut() {
    let disk = Disk::new(1);
    let mut life = begin(&disk, dawn());
    let mut every = Tags { recurs: Some(b"60".as_slice().into()), ..key("k", 0) };
    every.options.ttl = Span::from_secs(9000);
    let Tagged::Scheduled { id, replaced: false } = put(&mut life, 5, every.clone()) else { panic!("no schedule") };
    save(&mut life);
    let (begun, span) = (life.now, Span::from_secs(60));
    life.now = begun + span;
    life.tick();
    assert!(life.wal.write(&life.access));
    let mut ran = [0, 0];
    for seed in 0..60 {
        let (engine, ..) = start(&disk.power_cut(seed), settings(SEGMENT, SyncMode::Always), life.now).expect("a log");
        let job = engine.job(id).expect("a schedule that was synced");
        let runs = engine.schedule_of(&job).expect("a schedule").count.runs;
        assert_eq!(engine.jobs().count() as u32, 1 + runs, "a copy and its run must be in one record");
        assert_eq!(job.due(), begun + if runs == 0 { span } else { Span::from_secs(120) });
        ran[runs as usize] += 1;
    }
    assert!(ran[0] > 0 && ran[1] > 0, "{ran:?}");
    save(&mut life);
    life.now = life.now + span;
    life.tick();
    assert_eq!(
        put(&mut life, 7, Tags { recurs: Some(b"5".as_slice().into()), ..every }),
        Tagged::Scheduled { id, replaced: true }
    );
    save(&mut life);
    let engine = after_cut(&disk, life.now);
    let job = engine.job(id).expect("a schedule");
    let schedule = engine.schedule_of(&job).expect("a schedule");
    assert_eq!((schedule.count.runs, schedule.count.skipped, job.priority()), (1, 1, 7));
    assert_eq!(job.due(), life.now + Span::from_secs(5));
}
