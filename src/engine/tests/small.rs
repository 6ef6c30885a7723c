//! Tests every sequence of calls, up to a certain length, by two clients with at most three jobs in two tubes.
//!
//! Owns the list of calls and the equivalence of worlds. A world is the state of the queue after a sequence of calls.
//! In each world, each call is made once on the engine and on the model, and the results are compared.
//! `BEANPOLE_DEPTH=6 cargo test --release --lib small` sets the length at compile time.

use std::collections::HashSet;
use std::fmt::Write;
use std::rc::Rc;

use super::super::{ClientId, Engine, Limits, Span, Time};
use super::calls::{Answer, Call};
use super::comparing::{step, Stage};
use super::model::{Model, Name, Place};
use super::runs::{explained, Calls};
use super::shortening::quietly;

const DEPTH: usize = 4;
const JOBS: usize = 3;
const NAMES: [Name; 2] = ["default", "b"];

/// The calls that led to a state of the queue, in reverse order.
struct Path {
    before: Option<Rc<Path>>,
    at: Time,
    call: Call,
}

struct World {
    model: Model,
    now: Time,
    path: Option<Rc<Path>>,
}

fn calls_to(path: &Option<Rc<Path>>) -> Calls {
    let mut calls = Calls::new();
    let mut next = path;
    while let Some(path) = next {
        calls.push((path.at, path.call.clone()));
        next = &path.before;
    }
    calls.reverse();
    calls
}

/// Returns the possible next calls, with the time that passes before each call.
fn choices(model: &Model, clients: [ClientId; 2]) -> Vec<(Span, Call)> {
    let second = Span::from_secs(1);
    let mut calls =
        vec![Call::Pause("default", second), Call::Pause("default", Span::ZERO), Call::Disconnect(clients[1])];
    for client in clients {
        if model.total_jobs() < JOBS as u64 {
            let (fill, size, ttr) = (b'x', 1, Span::from_secs(2));
            calls.push(Call::Put { client, pri: 1, delay: Span::ZERO, ttr, fill, size });
            calls.push(Call::Put { client, pri: 0, delay: second, ttr, fill, size });
        }
        calls.extend([Some(Span::ZERO), Some(second)].map(|timeout| Call::Reserve { client, timeout }));
        calls.extend([Call::Use(client, "b"), Call::Watch(client, "b"), Call::Ignore(client, "default")]);
        calls.push(Call::Kick(client, 1));
        for job in &model.jobs {
            calls.extend([Call::Delete(client, job.id), Call::Bury(client, job.id, 0), Call::Touch(client, job.id)]);
            calls.push(Call::ReserveJob(client, job.id));
            calls.extend([Span::ZERO, second].map(|delay| Call::Release { client, job: job.id, pri: 0, delay }));
        }
    }
    calls.extend(model.jobs.iter().flat_map(|job| [Call::KickJob(job.id), Call::Revoke(job.id, 0)]));
    let mut choices: Vec<(Span, Call)> = calls.into_iter().map(|call| (Span::ZERO, call)).collect();
    choices.push((second, Call::Tick { limit: 100 }));
    choices.retain(|(_, call)| call.is_legal(model));
    choices
}

/// Describes the parts of a world that affect its future. Times are relative to `now`, and counters are omitted.
fn kind(model: &Model, now: Time) -> String {
    let mut text = String::new();
    let rest = |at: Time| at.since(now).nanos();
    for job in &model.jobs {
        let place = match job.place {
            Place::Delayed { until } => format!("d{}", rest(until)),
            Place::Reserved { by, until, .. } => format!("r{}:{}", by.0, rest(until)),
            Place::Buried { order } => {
                let revoked = model.extended.revoked.get(&job.id).filter(|(_, at)| *at == order);
                format!("b{order}{:?}", revoked.map(|(client, _)| client))
            }
            other => format!("{other:?}"),
        };
        let _ = write!(text, "{:?}{}{}:{place};", job.id, job.tube, job.pri);
    }
    for tube in &model.tubes {
        let _ = write!(text, "{}{:?};", tube.name, tube.pause.map(|(_, until)| rest(until)));
    }
    for client in &model.clients {
        let _ = write!(text, "{:?}{}{:?};", client.id, client.used, client.watched);
    }
    for wait in &model.waiting {
        let _ = write!(text, "{:?}{};", wait.client, rest(wait.until));
    }
    let _ = write!(text, "{}", model.total_jobs());
    text
}

/// Recreates the engine of a world by repeating its calls, because an engine cannot be cloned.
fn engine_of(stage: &Stage, calls: &Calls) -> Engine {
    let mut engine = Engine::new(stage.limits.clone());
    for (at, call) in calls {
        call.on_engine(&mut engine, *at);
        while engine.take_event().is_some() {}
    }
    engine
}

// Tests promise P1 of beanpole-promises(7).
#[test]
fn every_short_sequence_of_calls_matches_the_model() {
    let depth: usize = option_env!("BEANPOLE_DEPTH").map_or(DEPTH, |depth| depth.parse().expect("a number of calls"));
    let start = Time::from_nanos(1_000_000_000_000);
    let limits = Limits { max_memory: 1 << 30, max_tubes: 100, max_watched: 100, ..Limits::NONE };
    let stage = Stage { limits: limits.clone(), names: &NAMES, start, steps: None };
    let mut world = World { model: Model::new(limits), now: start, path: None };
    let mut engine = engine_of(&stage, &Calls::new());
    let mut clients = [ClientId(0); 2];
    for client in &mut clients {
        let Answer::ClientState(id) = Call::Connect.on_engine(&mut engine, start) else { panic!("no client") };
        *client = id;
        world.model.connect(id);
        world.path = Some(Rc::new(Path { before: world.path.take(), at: start, call: Call::Connect }));
    }
    let mut seen = HashSet::from([kind(&world.model, start)]);
    let (mut worlds, mut made) = (vec![world], 0);
    for _ in 0..depth {
        let mut next = Vec::new();
        for World { model, now, path } in worlds {
            let before = calls_to(&path);
            for (passed, call) in choices(&model, clients) {
                let at = now + passed;
                let mut engine = engine_of(&stage, &before);
                let result = quietly(|| step(&mut engine, model.clone(), &call, at, &stage));
                let model = result.unwrap_or_else(|problem| {
                    let mut calls = before.clone();
                    calls.push((at, call.clone()));
                    panic!("{call:?}: {problem}\n{}", explained(&stage, calls))
                });
                made += 1;
                if seen.insert(kind(&model, at)) {
                    next.push(World { model, now: at, path: Some(Rc::new(Path { before: path.clone(), at, call })) });
                }
            }
        }
        worlds = next;
    }
    println!("{} worlds, {made} calls, {depth} deep", seen.len());
    assert!(seen.len() > 100, "too few worlds");
}
