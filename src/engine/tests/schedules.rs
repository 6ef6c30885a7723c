//! Tests of schedules: their costs, and late or refused runs.

use super::super::*;

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn key(name: &str) -> Tags {
    let options = JobOptions { dedup_key: DedupKey::Name(name.as_bytes().into()), ..JobOptions::default() };
    Tags { options, ..Tags::default() }
}

fn put(engine: &mut Engine, client: ClientId, name: &str, when: &str, delay: u64, now: Time) -> JobId {
    let (delay, ttr) = (Span::from_secs(delay), Span::from_secs(60));
    let job = NewJob { pri: 1, delay, ttr, body: Body::from(b"x".as_slice()) };
    match engine.put_tagged(client, job, Tags { recurs: Some(when.as_bytes().into()), ..key(name) }, now) {
        Ok(Tagged::Scheduled { id, .. }) => id,
        other => panic!("{other:?}"),
    }
}

fn tick(engine: &mut Engine, now: Time) {
    while !engine.tick(now) {}
    engine.check();
}

fn counts(engine: &Engine, id: JobId) -> (u32, u32, Time) {
    let job = engine.job(id).expect("a schedule");
    let count = engine.schedule_of(&job).expect("a schedule").count;
    (count.runs, count.skipped, job.due())
}

#[test]
fn schedules_with_the_same_name_have_different_hashes() {
    let engine = Engine::new(Limits::NONE);
    let hashes = (0..10_000).map(|tube| engine.hash_schedule(tube, &Name::from(b"cleanup".as_slice())));
    assert!(hashes.collect::<std::collections::HashSet<u32>>().len() > 9_990);
}

#[test]
fn a_schedule_takes_200_bytes_its_name_and_the_text_of_its_times() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let ids: Vec<JobId> =
        (0..2).map(|number| put(&mut engine, client, &number.to_string(), "* * * * *", 0, at(1))).collect();
    let memory = engine.memory().jobs;
    assert!(memory <= 2 * (200 + 1 + 9 + 1), "{memory}");
    ids.into_iter().for_each(|id| assert!(engine.delete(client, id, at(1))));
    assert_eq!(engine.memory().jobs, 0);
    engine.check();
}

// Tests promise P31 of beanpole-promises(7).
#[test]
fn missed_runs_are_combined_into_one() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let id = put(&mut engine, client, "a", "60", 0, at(7));
    tick(&mut engine, at(1000));
    assert_eq!(counts(&engine, id), (1, 0, at(1027)), "the phase must not change");
    let cron = put(&mut engine, client, "b", "0 * * * *", 0, at(1000));
    tick(&mut engine, at(9000));
    assert_eq!(counts(&engine, cron), (1, 0, at(10_800)));
    assert_eq!(counts(&engine, id), (1, 1, at(9007)));
    assert_eq!(engine.stats().jobs.ready, 2);
}

#[test]
fn a_refused_copy_is_put_as_soon_as_possible() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let id = put(&mut engine, client, "a", "60", 0, at(0));
    engine.set_draining(true);
    tick(&mut engine, at(60));
    assert_eq!((counts(&engine, id), engine.next_deadline()), ((0, 0, at(60)), at(61)));
    assert_eq!(engine.kick_job(id, at(60)), Err(Refused::Draining));
    engine.set_draining(false);
    tick(&mut engine, at(61));
    assert_eq!(counts(&engine, id), (1, 0, at(120)));
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    put(&mut engine, client, "a", "60", 0, at(0));
    // There is memory for a schedule, but not for a copy.
    let short = Limits { max_memory: engine.memory().total() + 100, ..Limits::NONE };
    let mut engine = Engine::new(short);
    let client = engine.connect();
    let id = put(&mut engine, client, "a", "60", 0, at(0));
    tick(&mut engine, at(60));
    assert_eq!(engine.kick_job(id, at(60)), Err(Refused::OutOfMemory));
    assert_eq!(counts(&engine, id), (0, 0, at(60)), "there is no memory for a copy");
}

#[test]
fn schedules_wait_in_order_while_the_log_creates_space() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let ids = ["a", "b"].map(|name| put(&mut engine, client, name, "60", 0, at(0)));
    engine.set_log_room(LogRoom { puts: 90, ..LogRoom::ENDLESS });
    tick(&mut engine, at(60));
    assert_eq!(engine.next_deadline(), at(60) + Span::from_millis(1), "both are tried again soon");
    assert_eq!(ids.map(|id| counts(&engine, id)), [(0, 0, at(60)); 2]);
    assert!(engine.take_lacking() > 90);
    engine.set_log_room(LogRoom::ENDLESS);
    tick(&mut engine, at(61));
    assert_eq!(ids.map(|id| counts(&engine, id)), [(1, 0, at(120)); 2]);
    while let Some(copy) = engine.reserve_more(client, at(61)).map(|job| job.id()) {
        assert!(engine.delete(client, copy, at(61)));
    }
    engine.set_log_room(LogRoom { puts: 0, changes: 1000, ..LogRoom::ENDLESS });
    tick(&mut engine, at(120));
    assert_eq!((engine.next_deadline(), engine.take_lacking()), (at(121), 0), "the disk is full");
}

#[test]
fn dead_letters_do_not_block_later_runs() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let settings = TubeSettings { tries: 1, dead: Some(b"dead".as_slice().into()), ..TubeSettings::default() };
    engine.set_tube(client, b"default", settings, at(0)).expect("settings");
    let id = put(&mut engine, client, "a", "60", 0, at(0));
    for run in 1..=3 {
        tick(&mut engine, at(60 * run));
        assert_eq!(counts(&engine, id), (run as u32, 0, at(60 * run + 60)));
        let copy = engine.reserve_more(client, at(60 * run)).expect("a copy").id();
        assert_eq!(engine.fail(client, copy, 1, b"no host", at(60 * run)), Some(Failed::GivenUp));
        engine.check();
    }
    assert_eq!(engine.stats().jobs.buried, 3);
    // The next put uses the same key in the dead-letter tube, where the buried copies do not count as duplicates.
    engine.use_tube(client, b"dead").expect("a tube");
    let mut again = || {
        let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(60), body: Body::from(b"x".as_slice()) };
        engine.put_tagged(client, new, key("a"), at(300))
    };
    assert!(matches!(again(), Ok(Tagged::New(_))));
    assert!(matches!(again(), Ok(Tagged::Duplicate { state: State::Ready, .. })));
    engine.check();
}

#[test]
fn very_many_schedules_run_in_turns() {
    const SCHEDULES: u64 = 5000;
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    for number in 0..SCHEDULES {
        put(&mut engine, client, &number.to_string(), "1", 0, at(0));
    }
    let mut turns = 0;
    loop {
        engine.grant_steps(200);
        let done = engine.tick(at(1));
        turns += 1;
        if done {
            break;
        }
    }
    assert_eq!((engine.stats().jobs.ready, turns), (SCHEDULES, SCHEDULES), "each tick runs one schedule");
    let order = (0..SCHEDULES).map(|_| engine.reserve_more(client, at(1)).expect("a copy").id().0);
    assert!(order.eq(SCHEDULES + 1..=2 * SCHEDULES));
    engine.check();
}
