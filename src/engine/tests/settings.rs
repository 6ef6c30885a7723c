//! Tests of tube settings: their costs and their exact limits.

use super::super::*;

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn engine(settings: TubeSettings) -> (Engine, ClientId) {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    engine.set_tube(client, b"default", settings, at(0)).expect("settings");
    (engine, client)
}

fn put(engine: &mut Engine, client: ClientId, count: u64) {
    for _ in 0..count {
        let job = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(60), body: Body::default() };
        engine.put(client, job, at(0)).expect("room for a job");
    }
}

#[test]
fn a_rate_is_exact_however_often_workers_ask() {
    let rate = Some(Rate { count: 1000, seconds: 1 });
    for pause in [1, 7, 90] {
        let (mut engine, client) = engine(TubeSettings { rate, ..TubeSettings::default() });
        put(&mut engine, client, 12_000);
        let mut taken = 0;
        for now in (0..10_000).step_by(pause).map(at) {
            while !engine.tick(now) {}
            while let Some(job) = engine.reserve_more(client, now) {
                let id = job.id();
                assert!(engine.delete(client, id, now));
                taken += 1;
            }
        }
        assert_eq!(taken, 10_000, "every {pause} ms");
        engine.check();
    }
}

#[test]
fn a_tube_that_is_closed_costs_no_step_for_each_job_that_waits() {
    let settings = TubeSettings { max: 1, rate: Some(Rate { count: u32::MAX, seconds: 1 }), ..TubeSettings::default() };
    let costs = [10, 10_000].map(|jobs| {
        let (mut engine, client) = engine(settings.clone());
        put(&mut engine, client, jobs);
        let (worker, second) = (engine.connect(), engine.connect());
        engine.grant_steps(1000);
        let id = engine.reserve_more(worker, at(1)).expect("a job").id();
        assert!(engine.reserve_more(second, at(1)).is_none(), "one at a time");
        assert!(engine.delete(worker, id, at(1)));
        engine.steps().left()
    });
    assert_eq!(costs[0], costs[1]);
}

#[test]
fn tries_and_dead_letters_take_no_memory_for_each_job() {
    let settings = TubeSettings { tries: 2, dead: Some(b"dead".as_slice().into()), ..TubeSettings::default() };
    let costs = [1, 100].map(|count| {
        let (mut engine, client) = engine(settings.clone());
        put(&mut engine, client, count);
        for _ in 0..2 {
            let ids: Vec<JobId> = (0..count).map(|_| engine.reserve_more(client, at(1)).expect("a job").id()).collect();
            ids.into_iter().for_each(|id| assert!(engine.release(client, id, 1, Span::ZERO, at(1))));
        }
        assert_eq!(engine.stats().jobs.buried, count);
        engine.check();
        engine.memory().jobs - count * JOB_COST
    });
    assert_eq!(costs[0], costs[1], "the name of the tube is there once");
}

#[test]
fn settings_of_a_long_chain_of_dead_letter_tubes_can_change() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    let to = |tries, dead: u32| {
        let dead = Some(format!("t{dead}").as_bytes().into());
        TubeSettings { tries, dead, ..TubeSettings::default() }
    };
    // Each tube begins a chain of one tube when it is set.
    for number in 0..40 {
        let name = format!("t{number}");
        engine.set_tube(client, name.as_bytes(), to(1, number + 1), at(0)).expect("settings");
    }
    assert_eq!(engine.set_tube(client, b"t0", to(2, 1), at(0)), Ok(()), "the same dead-letter tube");
    assert_eq!(engine.set_tube(client, b"u", to(1, 0), at(0)), Err(NotSet::Circle), "a chain of more than 16 tubes");
    assert_eq!(engine.set_tube(client, b"t40", to(1, 0), at(0)), Err(NotSet::Circle), "a cycle");
    engine.check();
}
