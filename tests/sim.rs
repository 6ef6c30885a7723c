//! The whole server in one seed: real connections, sessions, turns and log, and around them a world that follows from
//! chance.
//!
//! Owns which seeds are played, and how a failure is reported. Nothing waits and nothing depends on the machine: the
//! server has no threads (`Stepped`), time stands still until it is moved, the disk and its clock are simulated, and
//! sockets are pairs that somebody cuts. So the same seed gives the same hash. `world` has the server and its clients,
//! `action` what may happen, `chance` draws it, `predicted` says what beanstalk clients must be answered, `books`
//! which jobs there must be.
//!
//! `make sim SEED=n STEPS=n` plays one seed, `make sim` fresh ones for a while. A failure is cut down to the few
//! actions that matter, and told as a conversation as far as it is one.

#[path = "sim/action.rs"]
mod action;
#[path = "sim/books.rs"]
mod books;
#[path = "sim/chance.rs"]
mod chance;
#[path = "sim/extended.rs"]
mod extended;
#[path = "sim/logged.rs"]
mod logged;
#[path = "sim/operators.rs"]
mod operators;
#[path = "sim/play.rs"]
mod play;
#[path = "sim/predicted.rs"]
mod predicted;
#[path = "sim/reduction.rs"]
mod reduction;
#[path = "sim/reference.rs"]
mod reference;
#[path = "sim/speech.rs"]
mod speech;
#[path = "sim/world.rs"]
mod world;

#[path = "crash/disk.rs"]
#[allow(dead_code)] // what only the tests of the log alone do
mod disk;
#[path = "crash/model.rs"]
#[allow(dead_code)]
mod durable;
#[path = "../src/engine/tests/shortening.rs"]
mod shortening;
#[path = "crash/snapshots.rs"]
mod snapshots;

#[path = "crash/random.rs"]
#[allow(dead_code)]
mod random;

use std::time::{Duration, Instant};

use beanpole::internals::engine::{Span, Time};
use beanpole::internals::protocol::Wire;

use action::Action;
use play::{explain, play_seed, Played};
use predicted::{only_different, Predicted};

/// The number of seeds of an ordinary run, and of their steps.
const SEEDS: u64 = 60;
const STEPS: usize = 300;

/// One in this many fresh seeds is played for longer: some defects need a queue with a long history.
const LONG_ONE_IN: u64 = 400;
const LONG: usize = 100_000;

/// A world without extensions and crashes, whose server drains several times.
const SEED_WITH_DRAINS: u64 = 7;

fn wished(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

fn steps() -> usize {
    wished("STEPS").map_or(STEPS, |steps| steps as usize)
}

fn must_pass(seed: u64, steps: usize) -> Played {
    let played = play_seed(seed, steps);
    if let Some(problem) = &played.problem {
        panic!("seed {seed}, {steps} steps: {problem}\n{}", explain(seed, &played));
    }
    played
}

#[test]
fn some_seeds_pass() {
    (0..SEEDS).for_each(|seed| drop(must_pass(seed, STEPS)));
}

#[test]
fn the_same_seed_gives_the_same_hash() {
    for seed in 0..8 {
        assert_eq!(must_pass(seed, STEPS).hash, must_pass(seed, STEPS).hash, "seed {seed}");
    }
}

/// Seeds that failed once, each with its number of steps.
#[test]
fn seeds_that_failed_in_the_past_pass() {
    let corpus = include_str!("sim/seeds.txt");
    let lines = corpus.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    for line in lines.filter(|line| !line.is_empty()) {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().expect("a number"));
        let (seed, steps) = (numbers.next().expect("a seed"), numbers.next().expect("steps"));
        must_pass(seed, steps as usize);
    }
}

/// A world whose server never accepted jobs again after its first drain would test little from then on.
#[test]
fn a_long_world_accepts_jobs_after_each_drain() {
    let played = must_pass(SEED_WITH_DRAINS, 8000);
    let drains = |actions: &[Action]| actions.iter().filter(|action| matches!(action, Action::Drain)).count();
    assert!(drains(&played.actions) >= 3, "{} drains", drains(&played.actions));
    assert!(played.drains + 1 >= drains(&played.actions), "{} of them are over", played.drains);
}

/// Five jobs whose times to run end at one moment, and this many clients that wait for whichever comes first.
#[test]
fn simultaneous_deadlines_can_be_handled_in_any_order() {
    let now = Time::from_nanos(1);
    let later = now + Span::from_secs(1);
    let due = |waiting: usize| {
        let mut way = Predicted::new();
        for who in 0..5 + waiting {
            let words = if who < 5 { "put 0 0 1 1\r\nx\r\nreserve\r\n" } else { "reserve\r\n" };
            way.connect(who, Wire::Beanstalk);
            way.hear(who, words.as_bytes(), now);
        }
        way
    };
    // Without waiting clients, the order makes no difference.
    assert_eq!(due(0).tick(later, 100).map(|ways| ways.len()), Some(1));
    let mut ways = due(5).tick(later, 1000).expect("not too many");
    only_different(&mut ways);
    assert_eq!(ways.len(), 120);
    // Dropping some of them would be wrong.
    assert!(due(5).tick(later, 100).is_none());
}

/// For `make sim`: one seed, or fresh ones for this many seconds.
#[test]
#[ignore = "takes a configurable time; see make sim"]
fn requested_seeds() {
    let steps = steps();
    let start = Instant::now();
    if let Some(seed) = wished("SEED") {
        let played = must_pass(seed, steps);
        let rate = played.steps as f64 / start.elapsed().as_secs_f64();
        println!(
            "seed {seed}: {} steps, {rate:.0} a second, hash {:016x}, {}",
            played.steps, played.hash, played.setup
        );
        return;
    }
    let length = Duration::from_secs(wished("SECONDS").unwrap_or(60));
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let first = wished("FIRST").unwrap_or(wall.as_secs() % 1_000_000_000 * 100_000);
    let (mut seed, mut total, mut lost) = (first, 0, 0);
    while start.elapsed() < length {
        let is_long = wished("STEPS").is_none() && seed % LONG_ONE_IN == LONG_ONE_IN - 1;
        let played = must_pass(seed, if is_long { LONG } else { steps });
        total += played.steps;
        lost += u64::from(played.lost);
        seed += 1;
    }
    let rate = total as f64 / start.elapsed().as_secs_f64();
    println!(
        "seeds {first} to {}: {total} steps, {rate:.0} a second; {lost} had too many ways to predict all",
        seed - 1
    );
}
