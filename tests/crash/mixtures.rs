//! Files of a log that come from different times, or from two servers that continued from one copy, and damage
//! anywhere in them.
//!
//! Owns the promise about both: the jobs in a mixture are a state that the queue was once in, or the mixture is
//! reported; one damaged byte costs at most the record that contains it, and no id is reused. `MIXTURES` is the number
//! of samples of each test.

use std::collections::{BTreeMap, BTreeSet};

use beanpole::internals::binlog::{inspect, OpenError, SyncMode};
use beanpole::internals::engine::{Engine, Span};

use crate::disk::Disk;
use crate::driver::{dawn, engine, settings, start, Life};
use crate::format::HEADER;
use crate::random::Random;

/// Segments by their numbers.
type Files = BTreeMap<u64, Vec<u8>>;

/// Jobs by their ids, each as text.
type Jobs = BTreeMap<u64, String>;

const SIZE: u64 = 4096;

fn samples(few: u64) -> u64 {
    std::env::var("MIXTURES").ok().and_then(|count| count.parse().ok()).unwrap_or(few)
}

fn name(number: u64) -> String {
    format!("segment.{number:010}")
}

fn files(disk: &Disk) -> Files {
    let number = |name: &String| name.strip_prefix("segment.")?.parse().ok();
    let names = disk.names();
    names.iter().filter_map(|name| Some((number(name)?, disk.bytes(name)))).collect()
}

fn disk(files: &Files) -> Disk {
    let disk = Disk::new(1);
    files.iter().for_each(|(number, bytes)| disk.put_file(&name(*number), bytes.clone()));
    disk
}

fn jobs(engine: &Engine) -> Jobs {
    let told = engine.jobs().map(|job| {
        let text = format!("{:?} {} {:?}", job.state(), job.priority(), job.body().bytes());
        (job.id().0, text)
    });
    told.collect()
}

/// The jobs in these files, what is reported about them, and the last id that may have been given.
fn look(files: &Files) -> Result<(Jobs, Vec<String>, u64), OpenError> {
    let mut engine = engine();
    let found = inspect(&disk(files), &mut engine)?;
    Ok((jobs(&engine), found.report.problems, found.last_id))
}

/// All states that the queue was in, and its files at some moments.
#[derive(Default)]
struct Past {
    states: BTreeSet<Vec<(u64, String)>>,
    files: Vec<Files>,
}

impl Past {
    /// Puts and deletes one job at a time, so that every record that changes the jobs ends at a state.
    fn live(&mut self, disk: &Disk, steps: u64, seed: u64) {
        let mut life = Life::begin(disk.clone(), settings(SIZE, SyncMode::Always), dawn(), seed).expect("a log");
        let mut random = Random::new(seed);
        let client = life.first_client();
        for step in 0..steps {
            let ids = life.model.ids();
            if ids.len() > 40 || !ids.is_empty() && random.once_in(3) {
                life.delete(ids[random.below(ids.len() as u64) as usize]);
            } else {
                life.put(client, &[step as u8; 100], 1, Span::ZERO);
            }
            life.settle();
            self.states.insert(jobs(&life.access.0.borrow().1).into_iter().collect());
            if step % 16 == 0 {
                self.files.push(files(disk));
            }
        }
        if seed % 2 == 0 {
            life.wal.close(&life.access);
        }
        self.files.push(files(disk));
    }

    /// Some lives, one after the other; returns the disk as it is in the end.
    fn of(seed: u64, disk: Disk) -> (Past, Disk) {
        let (mut past, mut disk) = (Past::default(), disk);
        for life in 0..4 {
            past.live(&disk, 60, seed + life);
            disk = disk.kill(seed + 10 + life);
        }
        (past, disk)
    }

    fn contains(&self, jobs: &Jobs) -> bool {
        self.states.contains(&jobs.clone().into_iter().collect::<Vec<_>>())
    }
}

/// Each file of either moment, from one of those that have it; or not at all.
fn mixture(one: &Files, other: &Files, random: &mut Random) -> Files {
    let numbers: BTreeSet<u64> = one.keys().chain(other.keys()).copied().collect();
    let mut mixed = Files::new();
    for number in numbers {
        let (first, second) = if random.once_in(2) { (one, other) } else { (other, one) };
        if let Some(bytes) = first.get(&number).or_else(|| second.get(&number).filter(|_| !random.once_in(4))) {
            mixed.insert(number, bytes.clone());
        }
    }
    mixed
}

#[test]
fn what_is_laid_over_an_older_copy_is_as_if_that_were_not_there() {
    for seed in 0..4 {
        let (past, _) = Past::of(100 * seed, Disk::new(seed));
        let newest = past.files.last().expect("files");
        let (expected, ..) = look(newest).expect("a log");
        for older in &past.files {
            let mut restored = older.clone();
            restored.extend(newest.clone());
            let (found, problems, _) = look(&restored).expect("a log");
            assert_eq!((&found, problems), (&expected, vec![]), "seed {seed}");
            let disk = disk(&restored);
            let (engine, ..) = start(&disk, settings(SIZE, SyncMode::Always), dawn()).expect("a log");
            assert_eq!(jobs(&engine), expected);
            let stale = restored.keys().find(|number| !newest.contains_key(number));
            assert!(stale.is_none_or(|number| !disk.names().contains(&name(*number))), "it is removed");
        }
    }
}

#[test]
fn files_of_different_times_are_a_state_that_was_or_are_reported() {
    let (mut random, mut whole) = (Random::new(1), 0);
    for seed in 0..4 {
        let (past, _) = Past::of(100 * seed, Disk::new(seed));
        for sample in 0..samples(240) / 4 {
            let [one, other] = [(); 2].map(|()| &past.files[random.below(past.files.len() as u64) as usize]);
            let Ok((found, problems, _)) = look(&mixture(one, other, &mut random)) else { continue };
            whole += u64::from(problems.is_empty());
            assert!(!problems.is_empty() || past.contains(&found), "seed {seed}, sample {sample}: {found:?}");
        }
    }
    assert!(whole > 0, "some mixtures are a state");
}

#[test]
fn files_of_two_servers_that_continued_from_one_copy_are_refused_or_reported() {
    let (mut random, mut refused) = (Random::new(2), 0);
    for seed in 0..4 {
        let (before, common) = Past::of(100 * seed, Disk::new(seed));
        // Both do the same at first, so that their files are alike in size.
        let [one, other] = [1, 2].map(|side| {
            let disk = common.kill(side);
            let mut past = Past::default();
            past.live(&disk, 40, seed);
            past.live(&disk.kill(side), 60, 1000 * side + seed);
            past
        });
        for sample in 0..samples(240) / 4 {
            let [first, second] =
                [&one, &other].map(|past| &past.files[random.below(past.files.len() as u64) as usize]);
            match look(&mixture(first, second, &mut random)) {
                Err(OpenError::Mixed(..)) => refused += 1,
                Err(error) => panic!("{error}"),
                Ok((found, problems, _)) => {
                    let was = [&before, &one, &other].iter().any(|past| past.contains(&found));
                    assert!(!problems.is_empty() || was, "seed {seed}, sample {sample}: {found:?}");
                }
            }
        }
    }
    assert!(refused > 0, "some of the mixtures are refused");
}

/// A log with all kinds of records, by some lives of which only the last ended in order; and the last id it gave.
fn varied(size: u64, steps: u64, seed: u64) -> (Files, u64) {
    let (mut disk, mut last) = (Disk::new(seed), 0);
    for life in 0..6 {
        let mut now = Life::begin(disk.clone(), settings(size, SyncMode::Always), dawn(), seed + life).expect("a log");
        (0..steps).for_each(|_| now.step());
        now.settle();
        last = now.access.0.borrow().1.last_id().max(last);
        if life == 5 {
            now.wal.close(&now.access);
        }
        disk = disk.kill(seed + life);
    }
    (files(&disk), last)
}

#[test]
fn a_damaged_bit_costs_one_record_at_most_and_is_reported() {
    let mut random = Random::new(3);
    for (size, steps) in [(1 << 20, 8), (1 << 20, 60), (SIZE, 30), (SIZE, 150)] {
        for seed in 0..3 {
            let (whole, last) = varied(size, steps, 100 * seed + steps);
            let (before, problems, _) = look(&whole).expect("a log");
            assert_eq!(problems, Vec::<String>::new());
            for _ in 0..samples(360) / 12 {
                let used: Vec<_> = whole.iter().filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0)).collect();
                let (number, bytes) = used[random.below(used.len() as u64) as usize];
                let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                let most = if random.once_in(4) { HEADER } else { end };
                let place = random.below(most as u64) as usize;
                let mut damaged = whole.clone();
                damaged.get_mut(number).expect("a segment")[place] ^= 1 << random.below(8);
                let (after, problems, ids) = look(&damaged).expect("damage is no mixture");
                let changed: Vec<_> =
                    before.keys().chain(after.keys()).filter(|id| before.get(id) != after.get(id)).collect();
                let told = format!("byte {place} of {end} in {number}, seed {seed}: {problems:?}, {changed:?}");
                assert!(changed.iter().collect::<BTreeSet<_>>().len() <= 1, "{told}");
                assert!(ids >= last, "id {ids} after {last}: {told}");
                // Nothing is lost with the record that the server was stopped in order, which is the last.
                let is_last = used.last().is_some_and(|(last, _)| *last == number) && place + 17 >= end;
                assert!(!problems.is_empty() || is_last && changed.is_empty(), "{told}");
            }
        }
    }
}
