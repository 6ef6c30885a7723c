//! What tags cost: in steps, which are counted, and in bytes of account.

use super::super::*;

fn engine() -> (Engine, ClientId) {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    (engine, client)
}

fn job(pri: u32) -> NewJob {
    NewJob { pri, delay: Span::ZERO, ttr: Span::from_secs(60), body: Body::from(b"x".as_slice()) }
}

fn key(text: &str) -> Tags {
    Tags { key: Some((text.as_bytes().into(), 0)), ..Tags::default() }
}

#[test]
fn very_many_jobs_that_are_held_up_cost_nobody_a_step() {
    const JOBS: u32 = 20_000;
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    let bound = || Tags { concurrency: Some((b"k".as_slice().into(), 1)), ..Tags::default() };
    for place in 0..JOBS {
        engine.put_tagged(client, job(place % 7), bound(), now).expect("room");
    }
    engine.put(client, job(100), now).expect("room");
    let mut most = 0;
    let mut before = (0, 0);
    for _ in 0..JOBS {
        engine.grant_steps(u64::MAX);
        let first = engine.reserve_more(client, now).map(|job| (job.priority(), job.id())).expect("one of the key");
        assert!(before < (first.0, first.1 .0), "in the order of service");
        before = (first.0, first.1 .0);
        // The only other one that may be had is the one without a key.
        let other = engine.reserve_more(client, now).map(|job| (job.priority(), job.id())).expect("one without");
        assert_eq!(other.0, 100);
        assert!(engine.reserve_more(client, now).is_none());
        assert!(engine.release(client, other.1, 100, Span::ZERO, now) && engine.delete(client, first.1, now));
        most = most.max(engine.steps().used());
    }
    assert!(most < 64, "{most} steps");
    engine.check();
}

#[test]
fn a_key_takes_so_many_bytes_beside_its_name_and_a_job_without_tags_takes_none() {
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    let cost = |engine: &mut Engine, tags: Tags| {
        let before = engine.memory().jobs;
        engine.put_tagged(client, job(1), tags, now).expect("room");
        engine.memory().jobs - before
    };
    let plain = cost(&mut engine, Tags::default());
    assert_eq!(plain, JOB_COST + 1);
    for name in ["k", "a key of some length that is kept elsewhere"] {
        assert!(cost(&mut engine, key(name)) <= plain + 96 + name.len() as u64, "{name}");
    }
    engine.check();
}

#[test]
fn a_flush_and_a_list_stop_when_their_steps_are_used_up() {
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    for place in 0..3000u32 {
        let tube = if place % 3 == 0 { "t" } else { "other" };
        engine.put_tagged(client, job(1), Tags { tube: Some(tube.as_bytes().into()), ..Tags::default() }, now).unwrap();
    }
    let mut page = IdPage::new((*b"t").into(), State::Ready, 0, 1000);
    let (mut turns, mut ids) = (0, Vec::new());
    loop {
        engine.grant_steps(100);
        let (progress, found) = engine.list_ids(&mut page).expect("a tube");
        assert!(engine.steps().used() < 150);
        ids.extend(found);
        turns += 1;
        if progress == Progress::Done {
            break;
        }
    }
    assert!(ids.len() == 1000 && ids.is_sorted() && turns > 10, "{} in {turns}", ids.len());
    let mut flush = Flush::new((*b"t").into(), &State::UNFINISHED);
    loop {
        engine.grant_steps(100);
        let progress = engine.flush(&mut flush, now);
        assert!(engine.steps().used() < 150);
        engine.check();
        if progress == Progress::Done {
            break;
        }
    }
    assert_eq!((flush.done, engine.stats().jobs.ready), (1000, 2000));
}

#[test]
fn all_that_is_held_is_touched_in_turns_of_few_steps() {
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    for place in 0..500u64 {
        let ttr = Span::from_secs(100 + place * 7919 % 300);
        engine.put(client, NewJob { ttr, ..job(1) }, now).expect("room");
        engine.reserve_more(client, now).expect("a job");
    }
    let later = now + Span::from_secs(50);
    let mut touch = TouchAll::new(later);
    let held = loop {
        engine.grant_steps(64);
        if let (Progress::Done, held) = engine.touch_all(client, &mut touch, later) {
            break held;
        }
    };
    assert_eq!(held, 500);
    assert!(engine.jobs().all(|job| job.due() == later + job.ttr()));
    engine.check();
}

#[test]
fn the_oldest_job_of_a_tube_is_looked_for_once() {
    let (mut engine, client) = engine();
    let now = Time::from_nanos(1);
    let into = |tube: &[u8]| Tags { tube: Some(tube.into()), ..Tags::default() };
    for place in 0..20_000u64 {
        let tube: &[u8] = if place >= 10_000 && place % 10 == 0 { b"t" } else { b"other" };
        engine.put_tagged(client, job(1), into(tube), now + Span::from_secs(place)).expect("room");
    }
    // The tube keeps times from its first reserved job on.
    engine.watch(client, b"t", now).expect("a tube");
    let first = engine.reserve_more(client, now).expect("a job").id();
    assert!(engine.delete(client, first, now));
    let later = now + Span::from_secs(20_000);
    let ask = |engine: &mut Engine, steps: u64| {
        let (mut find, mut turns) = (FindOldest::new((*b"t").into()), 1);
        engine.grant_steps(steps);
        while engine.find_oldest(&mut find) == Progress::More {
            assert!(engine.steps().used() < steps + 50);
            engine.grant_steps(steps);
            turns += 1;
        }
        (find.ages(later), turns)
    };
    let age = |secs| [Span::from_secs(secs), Span::ZERO];
    let (found, turns) = ask(&mut engine, 100);
    assert!(found == age(9990) && turns > 1, "{found:?} in {turns}");
    assert_eq!(ask(&mut engine, 100), (age(9990), 1), "it is known");
    // The next one stands behind it.
    let next = engine.reserve_more(client, now).expect("a job").id();
    assert_eq!(ask(&mut engine, 100), (age(9980), 1));
    // An older one than was known comes back.
    assert!(engine.release(client, next, 1, Span::ZERO, now));
    assert_eq!(ask(&mut engine, 100), (age(9990), 1));
}
