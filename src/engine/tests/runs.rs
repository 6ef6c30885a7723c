//! Random runs: the same calls to the engine and to the model, and everything compared after each of them.
//!
//! Owns the comparing, and the cutting of a run that fails down to the few calls that matter. A run is known by its
//! kind and its seed. `BEANPOLE_SEEDS=5000 cargo test --release --lib runs` plays that many; the number is read while
//! the tests are compiled, because no part of the engine looks at its surroundings.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::sync::Once;

use super::super::{ClientId, Engine, Event, Limits, Time};
use super::calls::{Answer, Call};
use super::model::{Model, Name};
use super::script::{Kind, Script};

/// Runs of all kinds together, unless somebody asks for more.
const SEEDS: u64 = 220;
const STEPS: usize = 400;

/// Calls with their moments, from the first to the last.
pub(super) type Calls = Vec<(Time, Call)>;

/// What stays the same throughout a run.
pub(super) struct Stage {
    pub limits: Limits,
    pub names: &'static [Name],
    pub start: Time,
    /// Steps of a turn, if they are few.
    pub steps: Option<u64>,
}

#[test]
fn at_moments_of_their_own() {
    play_seeds(Kind::Moments, 35);
}

#[test]
fn at_the_same_moments() {
    play_seeds(Kind::Ties, 35);
}

#[test]
fn at_the_limits() {
    play_seeds(Kind::Limits, 25);
}

#[test]
fn in_a_crowd() {
    play_seeds(Kind::Crowd, 5);
}

#[test]
fn in_turns_of_few_steps() {
    play_seeds(Kind::Steps, 40);
}

/// Plays runs of one kind, which is to have so many of a hundred seeds.
fn play_seeds(kind: Kind, percent: u64) {
    let seeds: u64 = option_env!("BEANPOLE_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..(seeds * percent).div_ceil(100) {
        let (stage, calls, result) = recorded(kind, seed);
        if let Err(problem) = result {
            panic!("{kind:?}, seed {seed}: {problem}\n{}", explained(&stage, calls));
        }
    }
}

/// Plays the run of this kind and seed, and keeps its calls.
fn recorded(kind: Kind, seed: u64) -> (Stage, Calls, Result<(), String>) {
    let mut script = Script::new(kind, seed);
    let Script { ref limits, start, steps, .. } = script;
    let stage = Stage { limits: limits.clone(), names: script.names(), start, steps };
    let mut calls = Calls::new();
    let mut now = stage.start;
    let result = play(&stage, &mut |model| {
        let left = STEPS.checked_sub(calls.len() + 1)?;
        let (at, call) = script.next(model, now, left);
        now = at;
        calls.push((at, call.clone()));
        Some((at, call))
    });
    (stage, calls, result)
}

/// The shortest way to a problem that was found.
pub(super) fn explained(stage: &Stage, calls: Calls) -> String {
    let calls = shortened(stage, calls);
    let problem = play_list(stage, &calls).err().unwrap_or_default();
    let line = |(at, call): &(Time, Call)| format!("  {:>14} ns  {call:?}\n", at.since(stage.start).nanos());
    let list: String = calls.iter().map(line).collect();
    format!("shortened: {problem}\nfrom {:?}, {:?}\n{list}", stage.start, stage.limits)
}

/// Leaves out whatever can be left out of a run that fails.
fn shortened(stage: &Stage, mut calls: Calls) -> Calls {
    let mut size = calls.len() / 2;
    while size > 0 {
        let before = calls.len();
        let mut place = 0;
        while place < calls.len() {
            let mut fewer = calls.clone();
            fewer.drain(place..(place + size).min(calls.len()));
            match play_list(stage, &fewer) {
                Err(_) => calls = fewer,
                Ok(()) => place += size,
            }
        }
        if size > 1 || calls.len() == before {
            size /= 2;
        }
    }
    calls
}

fn play_list(stage: &Stage, calls: &Calls) -> Result<(), String> {
    let mut rest = calls.iter();
    play(stage, &mut |_| rest.next().cloned())
}

/// Makes one call after the other until there are no more or one goes wrong.
fn play(stage: &Stage, next: &mut dyn FnMut(&Model) -> Option<(Time, Call)>) -> Result<(), String> {
    let mut engine = Engine::new(stage.limits.clone());
    let mut model = Model::new(stage.limits.clone());
    while let Some((now, call)) = next(&model) {
        if call.is_legal(&model) {
            let step = || step(&mut engine, model, &call, now, stage);
            model = quietly(step).map_err(|problem| format!("{call:?}: {problem}"))?;
        }
    }
    Ok(())
}

thread_local! {
    /// Whether panics of this thread are only kept.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// The last panic that was kept.
    static KEPT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Makes an error of a panic, so that a run which ends in one can be shortened without a word.
pub(super) fn quietly<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if QUIET.get() {
                KEPT.set(panic.to_string());
            } else {
                usual(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.unwrap_or_else(|_| Err(KEPT.take()))
}

pub(super) fn step(engine: &mut Engine, model: Model, call: &Call, now: Time, stage: &Stage) -> Result<Model, String> {
    let names = stage.names;
    let steps = stage.steps.unwrap_or(u64::MAX);
    engine.grant_steps(steps);
    let mut answer = call.on_engine(engine, now);
    let mut events: Vec<Event> = std::iter::from_fn(|| engine.take_event()).collect();
    engine.check();
    while engine.has_deferred() {
        engine.grant_steps(steps);
        engine.go_on(now);
        events.extend(std::iter::from_fn(|| engine.take_event()));
        engine.check();
    }
    if let (Some(_), Call::Tick { .. }) = (stage.steps, call) {
        answer = Answer::Is(engine.next_deadline() > now);
    }
    if let (Some(client), Answer::Waiting) = (call.waiter(), &answer) {
        answer = told_at_once(client, &mut events, engine);
    }
    let mut problem = None;
    for (expected, mut model) in call.on_model(model, &answer, now) {
        let expected = (expected, std::mem::take(&mut model.events));
        let seen = compare_news((&answer, &events), &expected).and_then(|()| compare(engine, &model, now, names));
        match seen {
            Ok(()) => return Ok(model),
            Err(other) => problem = problem.or(Some(other)),
        }
    }
    Err(problem.expect("a model"))
}

/// What a client that asked for a job was told in a later turn, as the answer that it would have got in one.
fn told_at_once(client: ClientId, events: &mut Vec<Event>, engine: &Engine) -> Answer {
    let Some(place) = events.iter().position(|event| event.client() == client) else { return Answer::Waiting };
    match events.remove(place) {
        Event::Reserved { job, .. } => {
            let body = engine.job(job).expect("a reserved job").body().bytes().to_vec();
            Answer::Job(job, body)
        }
        Event::NoJob { why, .. } => Answer::NoJob(why),
        other => panic!("{other:?} for a client that asked for a job"),
    }
}

fn compare_news(engine: (&Answer, &Vec<Event>), model: &(Answer, Vec<Event>)) -> Result<(), String> {
    same(&"the answer", engine.0, &model.0)?;
    same(&"the events", engine.1, &model.1)
}

/// Everything that the engine shows.
fn compare(engine: &Engine, model: &Model, now: Time, names: &[Name]) -> Result<(), String> {
    same(&"the statistics", engine.stats(), model.stats())?;
    same(&"the next deadline", engine.next_deadline(), model.next_deadline())?;
    same(&"the memory", engine.memory(), model.memory())?;
    let bytes = |name: &Name| name.as_bytes();
    if !engine.tube_names().eq(model.tubes.iter().map(|tube| bytes(&tube.name))) {
        let listed: Vec<_> = engine.tube_names().map(String::from_utf8_lossy).collect();
        return Err(format!("the tubes: the engine has {listed:?}, the model has {:?}", model.tubes));
    }
    for name in names {
        same(name, engine.tube_stats(name.as_bytes(), now), model.tube_stats(name, now))?;
    }
    for job in &model.jobs {
        same(&job.id, engine.job_stats(job.id, now), model.job_stats(job.id, now))?;
    }
    for client in &model.clients {
        same(&client.id, engine.used(client.id), client.used.as_bytes())?;
        if !engine.watched(client.id).eq(client.watched.iter().map(bytes)) {
            let listed: Vec<_> = engine.watched(client.id).map(String::from_utf8_lossy).collect();
            return Err(format!("{:?} watches {listed:?}, in the model {:?}", client.id, client.watched));
        }
    }
    Ok(())
}

fn same<T: PartialEq + Debug>(what: &dyn Debug, engine: T, model: T) -> Result<(), String> {
    if engine == model {
        return Ok(());
    }
    Err(format!("{what:?}: the engine has {engine:?}, the model has {model:?}"))
}
