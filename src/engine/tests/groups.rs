//! Tests of the costs of groups, in steps and in bytes charged.

use super::super::*;

const NOW: Time = Time::from_nanos(1);

fn engine() -> (Engine, ClientId) {
    let mut engine = Engine::new(Limits::NONE);
    let client = engine.connect();
    (engine, client)
}

fn tag(name: &str, tie: Tie) -> GroupTag {
    GroupTag { name: name.as_bytes().into(), tie }
}

fn put(engine: &mut Engine, client: ClientId, groups: Vec<GroupTag>) -> JobId {
    let job = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(60), body: Body::from(b"x".as_slice()) };
    match engine.put_tagged(
        client,
        job,
        Tags { options: JobOptions { groups, ..JobOptions::default() }, ..Tags::default() },
        NOW,
    ) {
        Ok(Tagged::New(id)) => id,
        other => panic!("{other:?}"),
    }
}

fn member(engine: &mut Engine, client: ClientId, group: &str) -> JobId {
    put(engine, client, vec![tag(group, Tie::Member)])
}

fn waiting(engine: &mut Engine, client: ClientId, group: &str) -> JobId {
    put(engine, client, vec![tag(group, Tie::After { even_if_new: false })])
}

// Tests promise P30 of beanpole-promises(7).
#[test]
fn very_many_waiting_jobs_are_released_in_turns_in_their_order() {
    const JOBS: usize = 20_000;
    let (mut engine, client) = engine();
    let last = member(&mut engine, client, "g");
    let held: Vec<JobId> = (0..JOBS).map(|_| waiting(&mut engine, client, "g")).collect();
    let waiter = engine.connect();
    assert!(matches!(engine.reserve(waiter, None, NOW), Reserve::Job(_)));
    assert!(engine.release(waiter, last, 1, Span::ZERO, NOW));
    assert!(matches!(engine.reserve(waiter, None, NOW), Reserve::Job(_)));
    let other = engine.connect();
    assert!(matches!(engine.reserve(other, None, NOW), Reserve::Waiting));
    engine.grant_steps(1000);
    assert!(engine.delete(waiter, last, NOW));
    let mut turns = 1;
    assert_eq!(engine.take_event(), Some(Event::Reserved { client: other, job: held[0] }));
    while engine.has_deferred() {
        assert!(engine.steps().used() < 1100, "{} steps", engine.steps().used());
        engine.grant_steps(1000);
        engine.go_on(NOW);
        turns += 1;
    }
    assert!(turns > JOBS / 200, "{turns}");
    engine.check();
    engine.grant_steps(u64::MAX);
    let order = std::iter::from_fn(|| engine.reserve_more(client, NOW).map(|job| job.id()));
    assert!(order.eq(held[1..].iter().copied()));
}

#[test]
fn puts_during_a_release_do_not_delay_it() {
    let (mut engine, client) = engine();
    let last = member(&mut engine, client, "g");
    for _ in 0..1000 {
        waiting(&mut engine, client, "g");
    }
    engine.grant_steps(100);
    assert!(engine.delete(client, last, NOW));
    assert!(engine.has_deferred());
    let next = member(&mut engine, client, "g");
    let behind = waiting(&mut engine, client, "g");
    engine.check();
    engine.grant_steps(u64::MAX);
    while engine.has_deferred() {
        engine.go_on(NOW);
    }
    assert_eq!((engine.stats().jobs.ready, engine.stats().jobs.held), (1001, 1));
    assert!(engine.delete(client, next, NOW));
    assert_eq!(engine.job(behind).expect("a job").state(), State::Ready);
    engine.check();
}

#[test]
fn the_end_of_a_member_costs_the_same_in_groups_of_any_size() {
    let (mut engine, client) = engine();
    let mut max = 0;
    let members: Vec<JobId> = (0..20_000).map(|_| member(&mut engine, client, "g")).collect();
    waiting(&mut engine, client, "g");
    for id in members {
        engine.grant_steps(u64::MAX);
        assert!(engine.delete(client, id, NOW));
        max = max.max(engine.steps().used());
    }
    assert!(max < 32, "{max} steps");
    assert_eq!(engine.stats().jobs.ready, 1);
    engine.check();
}

// Tests promise P30 of beanpole-promises(7).
#[test]
fn a_long_chain_is_released_link_by_link() {
    let (mut engine, client) = engine();
    let name = |link: u32| format!("link-{link}");
    member(&mut engine, client, &name(0));
    for link in 1..5000 {
        let after = tag(&name(link - 1), Tie::After { even_if_new: false });
        put(&mut engine, client, vec![after, tag(&name(link), Tie::Member)]);
    }
    for link in 0..5000 {
        engine.grant_steps(200);
        let id = engine.reserve_more(client, NOW).expect("the next link").id();
        assert_eq!(id, JobId(link + 1));
        assert!(engine.reserve_more(client, NOW).is_none());
        assert!(engine.delete(client, id, NOW) && !engine.has_deferred());
    }
    assert_eq!(engine.memory().jobs, 0);
    engine.check();
}

#[test]
fn a_group_takes_160_bytes_and_its_name_and_a_member_16() {
    let (mut engine, client) = engine();
    let plain = JOB_COST + 1;
    let mut before = engine.memory().jobs;
    let mut cost = |engine: &Engine| {
        let now = engine.memory().jobs;
        std::mem::replace(&mut before, now).abs_diff(now)
    };
    member(&mut engine, client, "g");
    assert!(cost(&engine) <= plain + 160 + 16 + 1);
    member(&mut engine, client, "g");
    assert_eq!(cost(&engine), plain + 16);
    waiting(&mut engine, client, "g");
    assert!(cost(&engine) <= plain + 80);
    engine.check();
}
