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
        engine.put(client, job, at(0)).expect("memory for a job");
    }
}

#[test]
fn a_rate_is_exact_for_any_number_of_requests() {
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
fn a_closed_tube_costs_no_steps_for_waiting_jobs() {
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
fn tries_and_dead_letters_use_no_memory_per_job() {
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
    assert_eq!(costs[0], costs[1], "the tube name must be stored once");
}

fn to(number: u32, tries: u8) -> TubeSettings {
    TubeSettings { tries, dead: Some(format!("t{number}").as_bytes().into()), ..TubeSettings::default() }
}

fn name_of(number: u32) -> Vec<u8> {
    format!("t{number}").into_bytes()
}

#[test]
fn a_chain_of_dead_letter_tubes_has_at_most_16_in_any_order() {
    let chain = |order: &mut dyn Iterator<Item = u32>| {
        let mut engine = Engine::new(Limits::NONE);
        let client = engine.connect();
        let set = order.map(|number| engine.set_tube(client, &name_of(number), to(number + 1, 1), at(0)));
        let refused = set.filter(|set| *set == Err(NotSet::Circle)).count();
        engine.check();
        (engine, client, refused)
    };
    for length in [16, 17] {
        let inward = (0..length).map(|place| if place % 2 == 0 { place / 2 } else { length - 1 - place / 2 });
        let orders: [&mut dyn Iterator<Item = u32>; 4] =
            [&mut (0..length), &mut (0..length).rev(), &mut inward.clone(), &mut inward.rev()];
        for order in orders {
            let (mut engine, client, refused) = chain(order);
            assert_eq!(refused, (length - 16) as usize, "{length}");
            if refused == 0 {
                assert_eq!(engine.set_tube(client, b"t0", to(1, 2), at(0)), Ok(()), "the same dead-letter tube");
                assert_eq!(engine.set_tube(client, b"u", to(0, 1), at(0)), Err(NotSet::Circle), "a tube before");
                assert_eq!(engine.set_tube(client, b"t16", to(17, 1), at(0)), Err(NotSet::Circle), "a tube after");
                assert_eq!(engine.set_tube(client, b"t16", to(0, 1), at(0)), Err(NotSet::Circle), "a cycle");
                assert_eq!(engine.set_tube(client, b"t8", TubeSettings::default(), at(0)), Ok(()));
                assert_eq!(engine.set_tube(client, b"t16", to(0, 1), at(0)), Ok(()), "a shorter chain");
                engine.check();
            }
        }
    }
}

#[test]
fn cycles_and_long_chains_in_a_log_do_no_harm() {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    for number in 0..40 {
        engine.restore_settings(&name_of(number), to((number + 1) % 40, 1));
        engine.check();
    }
    assert_eq!(engine.set_tube(client, b"t7", to(8, 2), at(0)), Err(NotSet::Circle));
    for number in 0..40 {
        assert_eq!(engine.set_tube(client, &name_of(number), TubeSettings::default(), at(0)), Ok(()));
    }
    assert_eq!(engine.set_tube(client, b"t7", to(8, 2), at(0)), Ok(()));
    engine.check();
}

/// Sets random dead-letter tubes in two orders. Either both orders are accepted completely, or neither order is.
#[test]
fn the_order_of_settings_does_not_matter() {
    let mut state = 1_u64;
    let mut roll = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut seen = [0; 2];
    for _ in 0..400 {
        let count = 10 + roll(20) as u32;
        // Create mostly long chains, with branches and a few cycles.
        let dead: Vec<u32> = (0..count).map(|number| number + 1 + roll(2) as u32).collect();
        let mut dead: Vec<(u32, u32)> = (0..count).zip(dead).collect();
        if roll(4) == 0 {
            dead[count as usize / 2].1 = roll(count as usize) as u32;
        }
        let accepted = [(); 2].map(|()| {
            let mut engine = Engine::new(Limits::NONE);
            let client = engine.connect();
            for last in (1..dead.len()).rev() {
                dead.swap(last, roll(last + 1));
            }
            let set = dead.iter().map(|(tube, dead)| engine.set_tube(client, &name_of(*tube), to(*dead, 1), at(0)));
            let accepted = set.filter(Result::is_ok).count() == dead.len();
            engine.check();
            accepted
        });
        assert_eq!(accepted[0], accepted[1], "{dead:?}");
        seen[usize::from(accepted[0])] += 1;
    }
    assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
}
