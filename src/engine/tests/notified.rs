//! Tests of a job for which many clients wait. Several calls notify the clients, which share one copy of each message.
//!
//! Owns the test scenarios; `worlds` counts the steps.

use std::sync::Arc;

use super::super::*;
use super::worlds::{in_both, Turns, SMALL};

/// Creates a job that a worker has reserved and that a client has submitted `size` times.
fn awaited(world: &mut Turns, size: usize, completion: CompletionPolicy) -> (ClientId, ClientId, JobId) {
    let worker = world.engine.connect_as(ReservePolicy::Notified);
    let client = world.engine.connect_as(ReservePolicy::Notified);
    world.engine.watch(worker, b"f", world.now).expect("a tube");
    let mut id = None;
    for _ in 0..size {
        let new = NewJob { pri: 0, delay: Span::ZERO, ttr: Span::MAX, body: Body::from(b"x".as_slice()) };
        let dedup_key = DedupKey::Name(b"same".as_slice().into());
        let ttl = Span::from_secs(1000);
        let options = JobOptions { completion, dedup_key, ttl, durable: false, attach: true, ..JobOptions::default() };
        id = world.engine.submit(client, b"f", new, options, world.now).ok().map(|submitted| submitted.id);
    }
    assert!(matches!(world.engine.grab(worker, world.now), Grab::Job(_)));
    (worker, client, id.expect("a job"))
}

#[test]
fn very_many_clients_receive_reports_and_outcomes() {
    in_both(|world, size| {
        for completion in [CompletionPolicy::Tell, CompletionPolicy::Keep] {
            let (worker, client, id) = awaited(world, size, completion);
            let before = world.events;
            let report = Arc::new(Report::Data(Body::from(b"half".as_slice())));
            assert!(world.turn(|engine, now| engine.report(worker, id, &report, now)));
            let turns = world.verb(|engine, now| engine.report_on(worker, id, &report, now));
            world.took(turns, size);
            assert_eq!(world.events - before, size);
            let done = Outcome::Done(Body::from(b"done".as_slice()));
            world.turn(|engine, now| engine.finish(worker, id, done, now)).expect("a held job");
            assert_eq!(world.engine.any_job(id).is_some(), completion == CompletionPolicy::Keep);
            let turns = world.rest();
            world.took(turns, size);
            assert_eq!(world.events - before, 2 * size);
            if completion == CompletionPolicy::Keep {
                assert!(world.engine.delete_in_any_state(id, world.now));
            }
            world.engine.disconnect(worker, world.now);
            world.engine.disconnect(client, world.now);
            assert_eq!(world.engine.memory().jobs, 0);
        }
    });
}

#[test]
fn a_large_body_sent_to_many_exists_and_counts_once() {
    let mut world = Turns::new(SMALL);
    let (worker, _, id) = awaited(&mut world, SMALL, CompletionPolicy::Tell);
    let before = world.engine.memory().total();
    let (half, done) = (Body::from(vec![b'x'; 50_000]), Body::from(vec![b'y'; 60_000]));
    let mut replies = Vec::new();
    let report = Arc::new(Report::Data(half));
    assert!(world.engine.report(worker, id, &report, world.now));
    while world.engine.report_on(worker, id, &report, world.now) == Progress::More {}
    drop(report);
    world.engine.finish(worker, id, Outcome::Done(done), world.now).expect("a held job");
    while let Some(event) = world.engine.take_event() {
        let body = match &event {
            Event::Report { report, .. } => report.body().clone(),
            Event::Outcome { outcome, .. } => outcome.body().expect("a result").clone(),
            other => panic!("{other:?}"),
        };
        replies.push(body);
    }
    assert_eq!(replies.len(), 2 * SMALL);
    world.engine.check_in_flight();
    assert_eq!(world.engine.memory_held().1, 110_000);
    assert!(world.engine.memory().total() <= before + 110_000);
    replies.truncate(1);
    world.engine.check_in_flight();
    assert_eq!(world.engine.memory_held().1, 50_000, "one copy while one client has not read it");
    replies.clear();
    world.engine.check_in_flight();
    assert_eq!(world.engine.memory_held().1, 0);
}

#[test]
fn a_waiting_client_may_disconnect_while_others_are_notified() {
    in_both(|world, size| {
        let (worker, client, id) = awaited(world, size, CompletionPolicy::Tell);
        world.turn(|engine, now| engine.finish(worker, id, Outcome::Done(Body::default()), now)).expect("a held job");
        world.turn(|engine, now| engine.disconnect(client, now));
        world.rest();
        assert!(world.events <= size && world.engine.memory().jobs == 0);
    });
}
