//! Tests logs whose files are from different times or from diverged servers, and damage in random places.
//!
//! From a mixture of files, the server must recover a state that the queue once had, or must report damage. One damaged
//! byte must affect at most the record that contains it, and IDs must not be reused. The environment variable
//! `MIXTURES` sets the number of samples.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use beanpole::internals::binlog::{inspect, OpenError, SyncMode};
use beanpole::internals::engine::{Engine, JobId, Span};

use crate::disk::Disk;
use crate::driver::{dawn, engine, settings, start, Life};
use crate::format::{records, Segment, HEADER};
use crate::random::Random;
use crate::snapshots::Snapshot;
use crate::tagged_lives;

type Files = BTreeMap<u64, Vec<u8>>;

/// The text form of everything that the log stores: jobs, kept keys, settings, groups, pauses and open operations.
type Stored = BTreeMap<String, String>;

const SIZE: u64 = 4096;

/// All kinds of records except `I`, which reserves IDs. The log writes an `I` only after half a million jobs.
const KINDS: &str = "PJpjcRLBKXATUsODMWQEZVFYNCSGH";

/// The size of the record of a clean stop in bytes.
const CLOSED: usize = 25;

pub fn samples(few: u64) -> u64 {
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

fn stored(engine: &Engine) -> Stored {
    let mut stored = Snapshot::of(engine, 0).texts();
    let pause = |(tube, pause)| (format!("pause {tube:?}"), format!("{pause:?}"));
    stored.extend(engine.pauses().map(pause));
    stored.extend(engine.open_operations().map(|operation| (format!("operation {operation:?}"), String::new())));
    stored
}

/// Recovers a queue. Returns the queue's contents and the reported problems. Checks that no ID can be reused.
fn look(files: &Files) -> Result<(Stored, Vec<String>), OpenError> {
    let mut engine = engine();
    let found = inspect(&disk(files), &mut engine, None)?;
    let largest = engine.jobs().map(|job| job.id().0).max();
    assert!(largest <= Some(found.last_id), "the last ID is {}, but {largest:?} exists", found.last_id);
    Ok((stored(&engine), found.report.problems))
}

/// All past states of the queue, and its files at several moments.
#[derive(Default)]
struct Past {
    states: BTreeSet<Stored>,
    files: Vec<Files>,
}

impl Past {
    /// Puts and deletes jobs one at a time. Records the state after each step, and the files after every `every` steps.
    /// If `settles`, writes and syncs the log after each step, and otherwise only after some steps.
    fn live(&mut self, disk: &Disk, (steps, every): (u64, u64), settles: bool, seed: u64) {
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
            if settles || random.once_in(4) {
                life.settle();
            }
            self.states.insert(stored(&life.access.0.borrow().1));
            if step % every == 0 {
                self.files.push(files(disk));
            }
        }
        if seed % 2 == 0 {
            life.wal.close(&life.access, life.now);
        }
        self.files.push(files(disk));
    }

    /// Runs several servers in sequence. Returns the past states of the queue and the final disk.
    fn of(seed: u64, disk: Disk, every: u64) -> (Past, Disk) {
        let (mut past, mut disk) = (Past::default(), disk);
        for life in 0..4 {
            past.live(&disk, (60, every), true, seed + life);
            disk = disk.kill(seed + 10 + life);
        }
        (past, disk)
    }

    /// Records the state that a recovery of the disk would restore. If the server has started new segments since the
    /// last call, also records the state at the start of each of these segments.
    fn recover(&mut self, disk: &Disk) {
        let (files, before) = (files(disk), self.files.last().cloned().unwrap_or_default());
        let newest = |files: &Files| files.iter().rfind(|(_, bytes)| used(bytes) > 0).map_or(0, |(number, _)| *number);
        for last in newest(&before)..newest(&files) {
            let mut part = before.clone();
            part.extend(files.clone());
            part.retain(|number, _| *number <= last);
            self.states.extend(look(&part).map(|(stored, _)| stored));
        }
        let (stored, problems) = look(&files).expect("a log");
        assert_eq!(problems, Vec::<String>::new());
        self.states.insert(stored);
        self.files.push(files);
    }

    fn pick(&self, random: &mut Random) -> &Files {
        &self.files[random.below(self.files.len() as u64) as usize]
    }
}

/// Takes each file randomly from `one` or `other`. Omits some files that only one of them contains.
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

// Tests promise P19 of beanpole-promises(7).
#[test]
fn restoring_over_an_older_copy_ignores_the_old_files() {
    for seed in 0..4 {
        let (past, _) = Past::of(100 * seed, Disk::new(seed), 16);
        let newest = past.files.last().expect("files");
        let (expected, _) = look(newest).expect("a log");
        for older in &past.files {
            let mut restored = older.clone();
            restored.extend(newest.clone());
            let (found, problems) = look(&restored).expect("a log");
            assert_eq!((&found, problems), (&expected, vec![]), "seed {seed}");
            let disk = disk(&restored);
            let (engine, ..) = start(&disk, settings(SIZE, SyncMode::Always), dawn()).expect("a log");
            assert_eq!(stored(&engine), expected);
            let stale = restored.keys().find(|number| !newest.contains_key(number));
            assert!(stale.is_none_or(|number| !disk.names().contains(&name(*number))), "an old file must be removed");
        }
    }
}

/// The older files end with the segment before the oldest one of the newer files, often before the end of this segment.
// Tests promise P19 of beanpole-promises(7).
#[test]
fn restoring_over_a_copy_that_ends_before_the_newer_files_ignores_the_old_files() {
    let mut joined = 0;
    for seed in 0..4 {
        let (past, _) = Past::of(100 * seed, Disk::new(seed), 3);
        for (index, newer) in past.files.iter().enumerate() {
            let (expected, problems) = look(newer).expect("a log");
            assert_eq!(problems, Vec::<String>::new());
            let first = newer.keys().next().copied();
            for older in &past.files[..index] {
                let newest = older.iter().rfind(|(_, bytes)| used(bytes) > 0).map(|(number, _)| number + 1);
                if newest != first {
                    continue;
                }
                let mut restored = older.clone();
                restored.extend(newer.clone());
                assert_eq!(look(&restored).expect("a log"), (expected.clone(), vec![]), "seed {seed}, {index}");
                joined += 1;
            }
        }
    }
    assert!(joined > 100, "only {joined} pairs of copies");
}

// Tests promise P19 of beanpole-promises(7).
#[test]
fn restoring_an_older_copy_over_newer_files_forms_a_past_state_or_is_reported() {
    let (mut whole, mut reported) = (0, 0);
    for seed in 0..4 {
        let (past, _) = Past::of(100 * seed, Disk::new(seed), 16);
        let newest = past.files.last().expect("files");
        for older in &past.files {
            let mut back = newest.clone();
            back.extend(older.clone());
            let Ok((found, problems)) = look(&back) else { continue };
            assert!(!problems.is_empty() || past.states.contains(&found), "seed {seed}: {found:?}");
            whole += u64::from(problems.is_empty());
            reported += u64::from(!problems.is_empty());
        }
    }
    assert!(whole > 0 && reported > 0, "{whole} are whole, and {reported} are reported");
}

// Tests promise P19 of beanpole-promises(7).
#[test]
fn files_of_different_times_form_a_past_state_or_are_reported() {
    let (mut random, mut whole) = (Random::new(1), 0);
    for seed in 0..4 {
        let (past, _) = Past::of(100 * seed, Disk::new(seed), 16);
        for sample in 0..samples(240) / 4 {
            let [one, other] = [(); 2].map(|()| past.pick(&mut random));
            let Ok((found, problems)) = look(&mixture(one, other, &mut random)) else { continue };
            whole += u64::from(problems.is_empty());
            assert!(!problems.is_empty() || past.states.contains(&found), "seed {seed}, sample {sample}: {found:?}");
        }
    }
    assert!(whole > 0, "no mixture forms a past state");
}

#[test]
fn files_of_two_servers_that_continued_from_one_copy_are_refused_or_reported() {
    let (mut random, mut refused) = (Random::new(2), 0);
    for seed in 0..4 {
        let (before, common) = Past::of(100 * seed, Disk::new(seed), 16);
        // Both histories begin with the same operations, so that their files have similar sizes.
        let [one, other] = [1, 2].map(|side| {
            let disk = common.kill(side);
            let mut past = Past::default();
            past.live(&disk, (40, 16), true, seed);
            past.live(&disk.kill(side), (60, 16), true, 1000 * side + seed);
            past
        });
        for sample in 0..samples(240) / 4 {
            let [first, second] = [&one, &other].map(|past| past.pick(&mut random));
            match look(&mixture(first, second, &mut random)) {
                Err(OpenError::Mixed(..)) => refused += 1,
                Err(error) => panic!("{error}"),
                Ok((found, problems)) => {
                    let was = [&before, &one, &other].iter().any(|past| past.states.contains(&found));
                    assert!(!problems.is_empty() || was, "seed {seed}, sample {sample}: {found:?}");
                }
            }
        }
    }
    assert!(refused > 0, "no mixture was refused");
}

/// Only the newest segment is from the other server, as in an interrupted copy. If nothing is reported, the server must
/// restore the complete state of one of the servers.
// Tests promise P19 of beanpole-promises(7).
#[test]
fn the_newest_segment_of_a_server_that_continued_from_the_same_copy_is_refused_or_reported() {
    let (mut refused, mut silent) = (0, 0);
    for seed in 0..8 {
        let (_, common) = Past::of(100 * seed, Disk::new(seed), 16);
        let [one, other] = [1, 2].map(|side| {
            let mut past = Past::default();
            past.live(&common.kill(side), (80, 2), false, 1000 * side + seed);
            let found = past.files.iter().map(|files| look(files).expect("a log").0).collect::<Vec<_>>();
            past.files.into_iter().zip(found).collect::<Vec<_>>()
        });
        for (newer, last) in &other {
            let Some((newest, bytes)) = newer.iter().rfind(|(_, bytes)| used(bytes) > 0) else { continue };
            for (files, state) in &one {
                let mut mixed = files.clone();
                if mixed.insert(*newest, bytes.clone()).is_some_and(|bytes| used(&bytes) > 0) {
                    continue;
                }
                match look(&mixed) {
                    Err(OpenError::Mixed(..)) => refused += 1,
                    Err(error) => panic!("{error}"),
                    Ok((found, problems)) => {
                        let is_whole = [state, last].contains(&&found);
                        assert!(!problems.is_empty() || is_whole, "seed {seed}, {newest}: {found:?}");
                        silent += u64::from(problems.is_empty());
                    }
                }
            }
        }
    }
    println!("{refused} refused, {silent} not reported");
    assert!(refused > 0, "no mixture was refused");
}

/// The files at one moment, and the index of the newest state that was durable at this moment.
struct Moment {
    files: Files,
    durable: usize,
}

/// Runs one server that continuously rewrites and removes segments. Returns the states of the queue in order, and the
/// moment after each step of the log's threads.
fn moments(size: u64, seed: u64) -> (Vec<Stored>, Vec<Moment>) {
    let disk = Disk::new(seed);
    let mut life = Life::begin(disk.clone(), settings(size, SyncMode::Always), dawn(), seed).expect("a log");
    let (client, mut random) = (life.first_client(), Random::new(seed));
    let (mut states, mut positions, mut moments) = (vec![Stored::new()], vec![0], Vec::new());
    for step in 0..400u64 {
        let ids = life.model.ids();
        if ids.len() > 8 || !ids.is_empty() && random.once_in(2) {
            life.delete(ids[random.below(ids.len() as u64) as usize]);
        } else {
            life.put(client, &[b't'; 100][..1 + step as usize % 99], 1, Span::ZERO);
        }
        states.push(stored(&life.access.0.borrow().1));
        positions.push(life.access.0.borrow().0.position);
        for _ in 0..3 {
            life.look_after();
            let durable = positions.iter().rposition(|position| *position <= life.wal.durable()).expect("a state");
            moments.push(Moment { files: files(&disk), durable });
        }
    }
    (states, moments)
}

/// Copies a directory file by file in a random order while the server is running. A copied file can consist of blocks
/// from two moments. Returns the files, and the index of the newest state that was durable before the copy.
fn plain_copy(moments: &[Moment], random: &mut Random) -> (Files, usize) {
    let mut at = random.below(moments.len() as u64) as usize;
    let Moment { files, durable } = &moments[at];
    let mut numbers: Vec<u64> = files.keys().copied().collect();
    (1..numbers.len()).for_each(|last| numbers.swap(last, random.below(last as u64 + 1) as usize));
    let (mut copy, pause) = (Files::new(), 1 + random.below(30));
    let mut pass = |max| {
        at = (at + random.below(max) as usize).min(moments.len() - 1);
        &moments[at].files
    };
    for number in numbers {
        let Some(mut bytes) = pass(pause).get(&number).cloned() else { continue };
        if let Some(later) = pass(4).get(&number) {
            let from = bytes.len().min(later.len()) / 2;
            bytes.splice(from.., later[from..].iter().copied());
        }
        copy.insert(number, bytes);
    }
    (copy, *durable)
}

// Tests promise P19 of beanpole-promises(7).
#[test]
fn a_plain_copy_of_an_active_directory_is_complete_or_reported() {
    let (mut random, mut whole, samples) = (Random::new(4), 0, samples(2000));
    for seed in 0..8 {
        let (states, moments) = moments(600 + 200 * seed, seed);
        for sample in 0..samples / 8 {
            let (copy, durable) = plain_copy(&moments, &mut random);
            // An empty directory is not damaged: it is a new log.
            let Some(Ok((found, problems))) = (!copy.is_empty()).then(|| look(&copy)) else { continue };
            let is_started = start(&disk(&copy), settings(SIZE, SyncMode::Always).strictly(), dawn()).is_ok();
            whole += u64::from(is_started);
            let (is_accepted, is_complete) = (is_started || problems.is_empty(), states[durable..].contains(&found));
            assert!(!is_accepted || is_complete, "seed {seed}, sample {sample}: {durable} {found:?} {problems:?}");
        }
    }
    println!("plain copies: {whole} of {samples} are complete");
    assert!(whole > samples / 8, "too few copies are complete");
}

/// A log with all kinds of records, written by six servers in sequence. Only the last server has stopped cleanly.
struct Varied {
    files: Files,
    stored: Stored,
    last: u64,
    /// The states at several moments, if they are recorded.
    past: Past,
}

impl Varied {
    /// Creates the log. Each server leaves `more` additional jobs.
    fn new(size: u64, steps: u64, more: u64, seed: u64, keeps_past: bool) -> Varied {
        let (mut disk, mut last, mut past) = (Disk::new(seed), 0, Past::default());
        for life in 0..6 {
            let how = settings(size, SyncMode::Always);
            let mut now = Life::begin(disk.clone(), how, dawn(), seed + life).expect("a log");
            for step in 0..steps {
                tagged_lives::step(&mut now);
                if keeps_past && step % 4 == 0 {
                    past.recover(&now.disk);
                }
            }
            let client = now.first_client();
            if let Some(id) = now.put(client, b"more", 1, Span::ZERO) {
                now.turn(|engine, at| {
                    engine.reserve_job(client, JobId(id), at);
                    engine.release(client, JobId(id), 1, Span::ZERO, at);
                    None
                });
            }
            for _ in 0..more {
                now.put(client, b"more", 1, Span::from_secs(1_000_000));
            }
            now.settle();
            last = now.access.0.borrow().1.last_id().max(last);
            if life == 5 {
                now.wal.close(&now.access, now.now);
            }
            if keeps_past {
                past.recover(&now.disk);
            }
            disk = disk.kill(seed + life);
        }
        let files: Files = files(&disk).into_iter().filter(|(_, bytes)| used(bytes) > 0).collect();
        let (stored, problems) = look(&files).expect("a log");
        assert_eq!(problems, Vec::<String>::new());
        Varied { files, stored, last, past }
    }

    fn bytes(&self) -> u64 {
        self.files.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// Recovers damaged files. Checks that the server has not read too many bytes, and that no ID can be reused.
    fn look(&self, damaged: &Files, what: &str) -> Result<(Stored, Vec<String>), OpenError> {
        let (disk, mut engine) = (disk(damaged), engine());
        let found = inspect(&disk, &mut engine, None);
        let (read, max) = disk.reads();
        assert!(read <= 8 * self.bytes() + (1 << 20), "{read} bytes read of {}: {what}", self.bytes());
        assert!(max <= 1 << 20, "{max} bytes read at once: {what}");
        let found = found?;
        // Without any header, no record can be read, and the server can only guess the highest ID.
        let has_header = |(number, bytes): (&u64, &Vec<u8>)| {
            self.files.contains_key(number) && used(bytes) > 0 && used(&bytes[..HEADER]) > 0
        };
        let is_log = damaged.iter().any(has_header) && found.report.progress.segments > 0;
        assert!(found.last_id >= self.last || !is_log, "id {} after {}: {what}", found.last_id, self.last);
        Ok((stored(&engine), found.report.problems))
    }

    /// Returns the kind and the position of each record in a segment.
    fn records(&self, number: u64) -> Vec<(char, Range<usize>)> {
        let bytes = &self.files[&number];
        let bytes = &bytes[..bytes.len().min(used(bytes) + 8)];
        let log = u64::from_le_bytes(bytes[12..20].try_into().expect("eight bytes"));
        let found = records(Segment { log, number }, bytes);
        found.iter().map(|record| (record.kind.into(), record.at..record.end)).collect()
    }

    /// Returns two random segment numbers in any order. They are equal only if there is only one segment.
    fn two(&self, random: &mut Random) -> [u64; 2] {
        let numbers: Vec<u64> = self.files.keys().copied().collect();
        let first = random.below(numbers.len() as u64) as usize;
        let other = (first + 1 + random.below(numbers.len().max(2) as u64 - 1) as usize) % numbers.len();
        [numbers[first], numbers[other]]
    }
}

/// Returns the range of bytes that a problem reports.
fn damaged_bytes(problem: &str) -> Option<Range<usize>> {
    let (from, rest) = problem.split_once(": bytes ")?.1.split_once(" to ")?;
    Some(from.parse().ok()?..rest.split_once(" are damaged")?.0.parse().ok()?)
}

/// Returns the number of bytes up to the last nonzero byte.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// Calls `each` with logs of one segment, of several segments, and of at least twenty segments.
fn folders(keeps_past: bool, mut each: impl FnMut(&Varied, &mut Random)) {
    let (mut random, mut kinds, mut counts) = (Random::new(3), BTreeSet::new(), BTreeSet::new());
    for (size, steps, more) in [(1 << 17, 8, 0), (1 << 17, 60, 0), (6000, 40, 0), (700, 40, 45)] {
        for seed in 0..3 {
            let varied = Varied::new(size + size / 8 * seed, steps, more, 100 * seed + steps, keeps_past);
            counts.insert(varied.files.len());
            kinds.extend(varied.files.keys().flat_map(|number| varied.records(*number)).map(|(kind, _)| kind));
            (0..samples(360).div_ceil(12)).for_each(|_| each(&varied, &mut random));
        }
    }
    println!("directories of {counts:?} segments");
    let missing: Vec<char> = KINDS.chars().filter(|kind| !kinds.contains(kind)).collect();
    assert_eq!(missing, Vec::<char>::new(), "kinds of records that no log contains");
    assert!(
        counts.contains(&1) && counts.range(2..5).next().is_some() && counts.last() >= Some(&20),
        "{counts:?} segments"
    );
}

// Tests promise P19 of beanpole-promises(7).
#[test]
fn files_of_different_times_with_all_kinds_of_records_form_a_past_state_or_are_reported() {
    let mut whole = 0;
    folders(true, |varied, random| {
        let past = &varied.past;
        let mixed = mixture(past.pick(random), past.pick(random), random);
        let Ok((found, problems)) = look(&mixed) else { return };
        whole += u64::from(problems.is_empty());
        assert!(!problems.is_empty() || past.states.contains(&found), "{:?}: {found:?}", mixed.keys());
    });
    assert!(whole > 0, "no mixture forms a past state");
}

// Tests promise P18 of beanpole-promises(7).
#[test]
fn a_damaged_byte_loses_at_most_one_record_and_is_reported() {
    folders(false, |varied, random| {
        let [number, _] = varied.two(random);
        let mut damaged = varied.files.clone();
        let bytes = damaged.get_mut(&number).expect("a segment");
        let end = used(bytes);
        let max = if random.once_in(4) { HEADER } else { end };
        let place = random.below(max as u64) as usize;
        bytes[place] ^= if random.once_in(2) { 1 << random.below(8) } else { 1 + random.below(255) as u8 };
        let case = format!("byte {place} of {end} in {number}");
        let (after, problems) = varied.look(&damaged, &case).expect("a readable log");
        let names = varied.stored.keys().chain(after.keys());
        let changed: BTreeSet<_> = names.filter(|name| varied.stored.get(*name) != after.get(*name)).collect();
        let hit = varied.records(number).into_iter().find(|(_, range)| range.contains(&place));
        let case = format!("{case}, in {hit:?}: {problems:?}, {changed:?}");
        let count = |kind: &str| changed.iter().filter(|name| name.starts_with(kind)).count();
        // A run of a schedule (`c`) puts a copy. A record of groups (`V`) deletes a member and releases waiting jobs.
        let (kind, range) = hit.map_or((None, None), |(kind, range)| (Some(kind), Some(range)));
        let is_held = |name: &&&String| after.get(**name).is_some_and(|job| job.contains("state: Held"));
        let held = if kind == Some('V') { changed.iter().filter(is_held).count() } else { 0 };
        assert!(count("job") <= held + if kind == Some('c') { 2 } else { 1 }, "{case}");
        // In this test, a job belongs to at most two groups.
        assert!(count("group") <= 2 && changed.len() <= 1 + count("job") + count("group"), "{case}");
        let regions: Vec<_> = problems.iter().filter_map(|problem| damaged_bytes(problem)).collect();
        assert!(problems.is_empty() || regions == Vec::from_iter(range), "{case}");
        // Damage to the record of a clean stop loses no data and is not reported.
        let is_last = varied.files.keys().last() == Some(&number) && place + CLOSED >= end;
        assert!(!problems.is_empty() || is_last && changed.is_empty(), "{case}");
    });
}

#[test]
fn removed_duplicated_and_swapped_segments_are_reported() {
    let (mut reported, mut whole) = (0, 0);
    folders(false, |varied, random| {
        let mut damaged = varied.files.clone();
        let [one, other] = varied.two(random);
        let [first, second] = [&varied.files[&one], &varied.files[&other]];
        let what = random.below(6);
        match what {
            0 => drop(damaged.remove(&one)),
            1 => drop(damaged.insert(other, first.clone())),
            2 => drop(damaged.insert(damaged.keys().last().expect("a segment") + 1, first.clone())),
            3 => damaged.extend([(one, second.clone()), (other, first.clone())]),
            4 => damaged.get_mut(&one).expect("a segment")[..HEADER].fill(0),
            _ => damaged.get_mut(&one).expect("a segment")[..HEADER].copy_from_slice(&second[..HEADER]),
        }
        let case = format!("damage {what} to {one} and {other} of {:?}", varied.files.keys());
        let (after, problems) = varied.look(&damaged, &case).unwrap_or_else(|error| panic!("{error}: {case}"));
        reported += u64::from(!problems.is_empty());
        whole += u64::from(problems.is_empty());
        assert!(!problems.is_empty() || after == varied.stored, "{case}");
        // Everything that does not need the damaged segments must be restored, whatever is reported.
        let lost = match what {
            1 => vec![other],
            2 => vec![],
            3 => vec![one, other],
            4 if one != other => vec![],
            _ => vec![one],
        };
        let rest: Files = varied.files.clone().into_iter().filter(|(number, _)| !lost.contains(number)).collect();
        let Ok((intact, _)) = look(&rest) else { return };
        let is_same = |name: &&String| intact.get(*name) == varied.stored.get(*name);
        let is_changed = |name: &&String| after.get(*name) != varied.stored.get(*name);
        let changed: Vec<_> = varied.stored.keys().filter(is_same).filter(is_changed).collect();
        assert_eq!(changed, Vec::<&String>::new(), "{case}: {problems:?}");
    });
    assert!(reported > 0 && whole > 0, "{reported} cases reported, {whole} without a loss");
}
