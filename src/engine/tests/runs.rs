//! Random runs: the same calls on the engine and the model, with a comparison after each call.
//!
//! Owns the runs, each identified by a kind and a seed. A failing run is reduced to a minimal sequence of calls.
//! `BEANPOLE_SEEDS=5000 cargo test --release --lib runs` sets the number of seeds at compile time, because the engine
//! must not read the environment.

use super::super::{Engine, Time};
use super::calls::Call;
use super::comparing::{step, Stage};
use super::model::Model;
use super::script::{Kind, Script};
use super::shortening::{quietly, shortened};

/// The default number of seeds. Each kind of run uses a percentage of the seeds.
const SEEDS: u64 = 220;
const STEPS: usize = 400;

pub(super) type Calls = Vec<(Time, Call)>;

#[test]
fn at_different_times() {
    play_seeds(Kind::Moments, 35);
}

#[test]
fn at_the_same_times() {
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

#[test]
fn with_extensions() {
    play_seeds(Kind::Extended, 60);
}

#[test]
fn with_extensions_at_the_same_times() {
    play_seeds(Kind::ExtendedTies, 40);
}

#[test]
fn with_extensions_in_turns_of_few_steps() {
    play_seeds(Kind::ExtendedSteps, 40);
}

/// Executes runs of this kind with `percent` percent of the seeds.
fn play_seeds(kind: Kind, percent: u64) {
    let seeds: u64 = option_env!("BEANPOLE_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..(seeds * percent).div_ceil(100) {
        let (stage, calls, result) = recorded(kind, seed);
        if let Err(problem) = result {
            panic!("{kind:?}, seed {seed}: {problem}\n{}", explained(&stage, calls));
        }
    }
}

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

/// Shortens a sequence of calls that reproduces a problem, and describes the result.
pub(super) fn explained(stage: &Stage, calls: Calls) -> String {
    let calls = shortened(calls, || true, |fewer| play_list(stage, fewer).is_err());
    let problem = play_list(stage, &calls).err().unwrap_or_default();
    let line = |(at, call): &(Time, Call)| format!("  {:>14} ns  {call:?}\n", at.since(stage.start).nanos());
    let list: String = calls.iter().map(line).collect();
    format!("shortened: {problem}\nfrom {:?}, {:?}\n{list}", stage.start, stage.limits)
}

fn play_list(stage: &Stage, calls: &Calls) -> Result<(), String> {
    let mut rest = calls.iter();
    play(stage, &mut |_| rest.next().cloned())
}

/// Makes the calls from `next` until `next` returns `None` or a call fails.
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
