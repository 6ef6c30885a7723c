//! Runs the whole server deterministically: real connections, sessions and log, with random events.
//!
//! Owns the choice of seeds. The server has no threads (`Stepped`), the clock advances only on request, the disk is
//! simulated, and sockets are local pairs. The same seed therefore always results in the same hash of all events.
//! `world` contains the server and its clients, `action` contains the possible events, and `chance` chooses them.
//! `predicted` predicts the replies to beanstalk clients, and `books` records which jobs must exist.
//!
//! `make sim SEED=n STEPS=n` runs one seed, and `make sim` runs new seeds for a given time. A failing history is
//! reduced to the relevant actions, and printed in the syntax of conversations as far as possible.

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
#[path = "sim/tags.rs"]
mod tags;
#[path = "sim/world.rs"]
mod world;

#[path = "crash/disk.rs"]
#[allow(dead_code)] // parts that only the tests of the log use
mod disk;
#[path = "crash/model.rs"]
#[allow(dead_code)]
mod durable;
#[path = "../src/engine/tests/shortening.rs"]
mod shortening;
#[path = "crash/snapshots.rs"]
#[allow(dead_code)] // parts that only the crash tests use
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

const SEEDS: u64 = 60;
const STEPS: usize = 300;

/// On average, one in this many new seeds runs for `LONG` steps, because some defects need a long history.
const LONG_ONE_IN: u64 = 400;
const LONG: usize = 100_000;

/// The seed of a world (a server and its clients) without extensions or crashes, in which the server drains often.
const SEED_WITH_DRAINS: u64 = 7;

fn configured(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

fn steps() -> usize {
    configured("STEPS").map_or(STEPS, |steps| steps as usize)
}

fn must_pass(seed: u64, steps: usize) -> Played {
    let played = play_seed(seed, steps);
    if let Some(problem) = &played.problem {
        // The reduction of a long world can take minutes.
        println!("seed {seed}, {steps} steps: {problem}; reducing the world");
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

/// Returns the seeds that failed in the past, with their numbers of steps.
fn failed_seeds() -> impl Iterator<Item = (u64, usize)> {
    let lines = include_str!("sim/seeds.txt").lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().expect("a number"));
        (numbers.next().expect("a seed"), numbers.next().expect("steps") as usize)
    })
}

#[test]
fn seeds_that_failed_in_the_past_pass() {
    failed_seeds().filter(|(_, steps)| *steps < LONG).for_each(|(seed, steps)| drop(must_pass(seed, steps)));
}

/// After each drain, the server must accept jobs again. Otherwise, the rest of a long history would test very little.
#[test]
fn a_long_world_accepts_jobs_after_each_drain() {
    let played = must_pass(SEED_WITH_DRAINS, 8000);
    let drains = |actions: &[Action]| actions.iter().filter(|action| matches!(action, Action::Drain)).count();
    assert!(drains(&played.actions) >= 3, "{} drains", drains(&played.actions));
    assert!(
        played.drains + 1 >= drains(&played.actions),
        "the server accepted jobs after only {} drains",
        played.drains
    );
}

/// The reservations of five jobs expire at the same moment while several clients wait for jobs.
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
    assert_eq!(due(0).tick(later, 100).map(|ways| ways.len()), Some(1));
    let mut ways = due(5).tick(later, 1000).expect("at most 1000 results");
    only_different(&mut ways);
    assert_eq!(ways.len(), 120);
    // There are 120 possible orders. With a limit of 100, the result must be `None` and not a subset of the orders.
    assert!(due(5).tick(later, 100).is_none());
}

/// A world of `LONG` steps fails because of only a few actions, either near its end or spread over its whole history.
#[test]
fn failures_of_long_worlds_are_reduced_to_a_few_actions() {
    let other = must_pass(SEED_WITH_DRAINS, 2000).actions;
    for (needed, distance) in [(40, 100), (4, LONG / 5)] {
        let mark = |number: usize| Action::Say(0, Wire::Beanstalk, format!("needed {number}\r\n").into_bytes());
        let is_mark = |action: &Action| matches!(action, Action::Say(0, _, words) if words.starts_with(b"needed"));
        let mut actions: Vec<Action> = other.iter().cycle().take(LONG).cloned().collect();
        for number in 0..needed {
            actions[LONG - (needed - number) * distance] = mark(number);
        }
        let fails = |actions: &[Action]| actions.iter().filter(|action| is_mark(action)).count() == needed;
        let reduced = reduction::reduced(actions, 8, fails);
        let (left, effort) = (reduced.actions.len(), reduced.effort);
        assert!(fails(&reduced.actions) && left <= 300, "{needed} needed, {left} left, effort {effort}");
    }
}

/// Runs the given seed. If no seed is given, runs the seeds of long histories that failed in the past, and then new
/// seeds until a given number of seconds has passed. Called by `make sim`.
#[test]
#[ignore = "takes a configurable time; see make sim"]
fn requested_seeds() {
    let steps = steps();
    let start = Instant::now();
    if let Some(seed) = configured("SEED") {
        let played = must_pass(seed, steps);
        let rate = played.steps as f64 / start.elapsed().as_secs_f64();
        println!(
            "seed {seed}: {} steps, {rate:.0} a second, hash {:016x}, {}",
            played.steps, played.hash, played.setup
        );
        return;
    }
    failed_seeds().filter(|(_, steps)| *steps >= LONG).for_each(|(seed, steps)| drop(must_pass(seed, steps)));
    let length = Duration::from_secs(configured("SECONDS").unwrap_or(60));
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let first = configured("FIRST").unwrap_or(wall.as_secs() % 1_000_000_000 * 100_000);
    let (mut seed, mut total, mut lost) = (first, 0, 0);
    while start.elapsed() < length {
        let is_long = configured("STEPS").is_none() && seed % LONG_ONE_IN == LONG_ONE_IN - 1;
        let played = must_pass(seed, if is_long { LONG } else { steps });
        total += played.steps;
        lost += u64::from(played.lost);
        seed += 1;
    }
    let rate = total as f64 / start.elapsed().as_secs_f64();
    println!(
        "seeds {first} to {}: {total} steps, {rate:.0} a second; {lost} had too many possible histories to predict",
        seed - 1
    );
}
