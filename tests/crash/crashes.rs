//! Crashes the server at every possible moment. No durable change may be lost.
//!
//! The environment variable `BEANPOLE_CRASHES` sets the number of crash points for the combination of
//! [`SyncMode::Always`] with power failures. Other combinations and longer histories use a fraction of this number.

use beanpole::internals::binlog::{BinlogSettings, SyncMode};
use beanpole::internals::engine::Span;

use crate::disk::Disk;
use crate::driver::{dawn, settings, start, Life};
use crate::model::Model;
use crate::random::Random;

const CRASHES: u64 = 500;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// A power failure, which can lose unsynced data.
    PowerCut,
    /// A kill, which loses only unwritten data.
    Kill,
    /// A power failure or a kill, chosen randomly.
    Any,
}

pub fn configured() -> u64 {
    std::env::var("BEANPOLE_CRASHES").ok().and_then(|text| text.parse().ok()).unwrap_or(CRASHES)
}

fn after(disk: &Disk, end: End, seed: u64) -> Disk {
    match end {
        End::PowerCut => disk.power_cut(seed),
        End::Any if seed % 3 == 0 => disk.power_cut(seed),
        End::Kill | End::Any => disk.kill(seed),
    }
}

/// Runs a server until its disk crashes at operation `point`. Then runs more servers, each of which must recover
/// the state of the previous server. Returns the number of crashes.
fn lives(seed: u64, how: BinlogSettings, end: End, steps: u64, point: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut disk = Disk::new(seed);
    let mut now = dawn();
    let mut before = Model::default();
    let mut crashes = 0;
    disk.crash_at(point);
    for generation in 0..4 {
        let place = || format!("seed {seed} point {point} generation {generation} {how:?} {end:?}");
        match Life::begin(disk.clone(), how, now, seed + generation) {
            Ok(mut life) => {
                let found = before.compare(&life.access.0.borrow().1, now);
                found.unwrap_or_else(|error| panic!("{}: {error}\n{:?}", place(), life.report.problems));
                let problems = &life.report.problems;
                assert!(problems.is_empty(), "{}: {problems:?}", place());
                life.counts_syncs = end != End::Kill;
                life.largest = how.segment_size * 5 / 4;
                for _ in 0..steps {
                    life.step();
                    if disk.has_crashed() {
                        break;
                    }
                }
                disk.stop();
                (before, now) = (life.model, life.now);
            }
            Err(error) => assert!(disk.has_crashed(), "{}: {error}", place()),
        }
        crashes += 1;
        disk = after(&disk, end, seed ^ point << 8 ^ generation);
        now = now + Span::from_millis(random.below(5000));
        // The next server crashes early, often while it opens the log.
        let next = random.pick(&[5, 30, 1000]);
        disk.crash_at(random.below(next));
    }
    disk = after(&disk, end, seed);
    let (engine, ..) = start(&disk, how, now).unwrap_or_else(|error| panic!("seed {seed} point {point}: {error}"));
    let found = before.compare(&engine, now);
    found.unwrap_or_else(|error| panic!("seed {seed} point {point} at the end: {error}"));
    crashes + 1
}

fn operations(seed: u64, how: BinlogSettings, steps: u64) -> u64 {
    let disk = Disk::new(seed);
    let mut life = Life::begin(disk.clone(), how, dawn(), seed).expect("an empty log");
    life.largest = how.segment_size * 5 / 4;
    (0..steps).for_each(|_| life.step());
    disk.operations()
}

fn at_every_operation(mode: SyncMode, end: End) {
    // The number of crash points is highest for the mode and the kind of crash with the strongest guarantee.
    let share = if (mode, end) == (SyncMode::Always, End::PowerCut) { 1 } else { 4 };
    let (configured, mut done) = (configured().div_ceil(share), 0);
    let mut seed = 1;
    while done < configured {
        let size = [512, 700, 1500, 4096, 8192, 40_000][seed as usize % 6];
        let (how, steps) = (settings(size, mode), 20 + seed % 50);
        for point in 0..operations(seed, how, steps) {
            done += lives(seed, how, end, steps, point);
        }
        seed += 1;
    }
    println!("{mode:?}, {end:?}: {done} crash points in {} short histories", seed - 1);
}

/// Crashes long histories at random operations.
fn anywhere(mode: SyncMode, end: End) {
    let (configured, mut done) = (configured() / 20, 0);
    let mut seed = 1_000_000;
    while done < configured {
        let size = [512, 700, 1500, 4096, 8192, 40_000][seed as usize % 6];
        let point = Random::new(seed).below(1500);
        done += lives(seed, settings(size, mode), end, 1000, point);
        seed += 1;
    }
    println!("{mode:?}, {end:?}: {done} crash points in {} long histories", seed - 1_000_000);
}

// Tests promise P12 of beanpole-promises(7).
#[test]
fn a_power_cut_loses_nothing_that_was_synced() {
    for end in [End::PowerCut, End::Any] {
        at_every_operation(SyncMode::Always, end);
        anywhere(SyncMode::Always, end);
    }
}

// Tests promise P13 of beanpole-promises(7).
#[test]
fn a_power_cut_leaves_a_prefix_in_every_sync_mode() {
    for mode in [SyncMode::Every(50), SyncMode::Never] {
        at_every_operation(mode, End::PowerCut);
        anywhere(mode, End::PowerCut);
        at_every_operation(mode, End::Any);
    }
}

// Tests promise P12 of beanpole-promises(7).
#[test]
fn a_killed_process_loses_nothing_that_was_written() {
    for mode in [SyncMode::Always, SyncMode::Every(50), SyncMode::Never] {
        at_every_operation(mode, End::Kill);
        anywhere(mode, End::Kill);
    }
}
