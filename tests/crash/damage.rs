//! Tests segments that are damaged while the server is down.
//!
//! The server must keep all readable records, report the damaged bytes, and rename the damaged file instead of removing
//! it. In strict mode, the server must refuse to start.

use std::collections::BTreeMap;

use beanpole::internals::binlog::{OpenError, SyncMode};
use beanpole::internals::engine::{Engine, JobId, Span, StoredKey, StoredOptions};

use crate::disk::{Disk, Operation, EPERM};
use crate::driver::{dawn, settings, start, Life};
use crate::format;
use crate::random::Random;

/// The log records its sync position at least once per 4 KiB.
const SYNCED_EVERY: usize = 4096;

fn number(name: &str) -> Option<u64> {
    name.strip_prefix("segment.")?.parse().ok()
}

fn segments(disk: &Disk) -> Vec<(u64, Vec<u8>)> {
    let names = disk.names();
    let read = |name: &String| Some((number(name)?, disk.bytes(name)));
    names.iter().filter_map(read).collect()
}

/// Damages a random used part of a random segment, and returns the segment's name.
fn damage(disk: &Disk, random: &mut Random) -> String {
    let used: Vec<(u64, Vec<u8>)> =
        segments(disk).into_iter().filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0)).collect();
    let (number, bytes) = &used[random.below(used.len() as u64) as usize];
    let name = format!("segment.{number:010}");
    let length = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let place = random.below(length as u64) as usize;
    match random.below(4) {
        0 => disk.alter(&name, |bytes| bytes[place] ^= 1 << random.below(8)),
        1 => disk.alter(&name, |bytes| {
            let end = bytes.len().min(place / 512 * 512 + 512);
            bytes[place / 512 * 512..end].fill(0);
        }),
        2 => disk.alter(&name, |bytes| {
            let end = length.min(place + 300);
            bytes[place..end].copy_from_slice(&random.bytes(end - place));
        }),
        _ => disk.alter(&name, |bytes| bytes.truncate(place.max(format::HEADER))),
    }
    name
}

fn found(engine: &Engine) -> BTreeMap<u64, format::Job> {
    engine.jobs().filter_map(|job| Some((job.id().0, format::Job::of(engine, job.id())?))).collect()
}

impl format::Job {
    /// Converts a job to the form that the independent reader in `format` returns.
    fn of(engine: &Engine, id: JobId) -> Option<format::Job> {
        let job = engine.any_job(id)?;
        let options = engine.stored_options(&job);
        let dedup_key = |options: &StoredOptions| match options.dedup_key {
            StoredKey::None => (b'-', vec![]),
            StoredKey::Name(name) => (b'n', name.to_vec()),
            StoredKey::Kept(name) => (b'n', name.text().into_owned()),
            StoredKey::Body => (b'b', vec![]),
            StoredKey::Id(id) => (b'i', id.to_vec()),
        };
        let completion = |options: &StoredOptions| [b'd', b't', b'k'][options.completion as usize];
        Some(format::Job {
            body: job.body().bytes()[..engine.payload_len(&job)].to_vec(),
            options: options.as_ref().map(|options| (completion(options), dedup_key(options).0, dedup_key(options).1)),
            times: options.map(|options| [options.ttl.nanos(), options.expires.nanos(), options.start.nanos()]),
            limits: options.map_or([0; 3], |options| [options.max_attempts, options.max_fails, job.fails]),
            reducer: options.and_then(|options| options.reducer).unwrap_or_default().to_vec(),
            outcome: engine.outcome(&job).map(|(done, result)| (done, result.to_vec())),
            leased: job.is_leased().then(|| job.due().nanos()),
            reserves: job.history().reserves,
        })
    }
}

/// Runs a server on a damaged log. Returns `true` if damage was reported.
fn damaged_life(seed: u64) -> bool {
    let mut random = Random::new(seed);
    let how = settings(4096, SyncMode::Always);
    let mut life = Life::begin(Disk::new(seed), how, dawn(), seed).expect("an empty log");
    (0..300 + seed % 200).for_each(|_| life.step());
    life.settle();
    // Some logs lack the record of a clean stop, which declares everything before it durable.
    if seed % 4 > 0 {
        life.wal.close(&life.access, life.now);
    }
    let disk = life.disk.kill(seed);
    let damaged: Vec<String> = (0..=random.below(3)).map(|_| damage(&disk, &mut random)).collect();
    let expected = format::jobs(&segments(&disk));
    let before: BTreeMap<u64, Vec<u8>> = segments(&disk).into_iter().collect();
    let strict = start(&disk.kill(1), how.strictly(), life.now);
    let mut next = Life::begin(disk.clone(), how, life.now, seed).expect("a start despite the damage");
    let problems = next.report.problems.clone();
    assert_eq!(found(&next.access.0.borrow().1), expected, "seed {seed}: {damaged:?} {problems:?}");
    assert_eq!(matches!(strict, Err(OpenError::Damaged(_))), !problems.is_empty(), "seed {seed}: strict mode");
    (0..3).for_each(|_| next.settle());
    for name in &damaged {
        if problems.iter().any(|problem| problem.starts_with(name.as_str())) {
            let aside = format!("damaged/{name}");
            assert!(disk.names().contains(&aside), "seed {seed}: {aside} is not among {:?}", disk.names());
            let (is, was) = (disk.bytes(&aside), &before[&number(name).expect("a segment")]);
            assert!(was.starts_with(&is) && was[is.len()..].iter().all(|&byte| byte == 0), "{aside} was changed");
        }
    }
    let skipped = next.access.0.borrow().0.stats().skipped;
    assert_eq!(skipped as usize, problems.len(), "seed {seed}: {problems:?}");
    (0..20).for_each(|_| next.step());
    next.settle();
    let again = disk.power_cut(seed);
    let (engine, .., report) = start(&again, how.strictly(), next.now).expect("a clean restart");
    assert_eq!(report.problems, Vec::<String>::new());
    next.model.compare(&engine, next.now).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    !problems.is_empty()
}

#[test]
fn readable_records_are_kept_and_damage_is_reported() {
    let lives = super::mixtures::samples(80).min(200);
    let reported = (0..lives).filter(|&seed| damaged_life(seed)).count();
    assert!(reported as u64 > lives / 2, "damage was reported in only {reported} of {lives} logs");
}

fn used(disk: &Disk, name: &str) -> usize {
    disk.bytes(name).iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// Each start records that all earlier data is synced, so damage to earlier records is never mistaken for a torn write.
#[test]
fn a_damaged_byte_is_reported_even_after_short_lives() {
    let how = settings(65_536, SyncMode::Always);
    let (mut disk, mut synced, mut jobs, mut last) = (Disk::new(1), 0, 0, 0);
    for seed in 0..4 {
        let mut life = Life::begin(disk, how, dawn(), seed).expect("an intact log");
        synced = used(&life.disk, "segment.0000000001") - 1;
        let client = life.first_client();
        for _ in 0..3 {
            last = life.put(client, b"t", 1, Span::ZERO).expect("space for a job");
            life.settle();
            jobs += 1;
        }
        disk = life.disk.kill(seed);
    }
    for place in 0..=synced {
        let damaged = disk.kill(1);
        damaged.alter("segment.0000000001", |bytes| bytes[place] ^= 1);
        let (engine, .., report) = start(&damaged, how, dawn()).expect("a readable log");
        assert!(!report.problems.is_empty(), "byte {place} of {synced}");
        assert!(engine.jobs().count() + 1 >= jobs, "byte {place} of {synced}");
        assert!(engine.last_id() >= last, "byte {place} of {synced}: {} of {last}", engine.last_id());
    }
}

/// After the last recorded sync position, damage cannot be distinguished from an interrupted write.
// Tests promise P18 of beanpole-promises(7).
#[test]
fn damage_after_an_unclean_exit_loses_at_most_the_end_of_the_log() {
    const SEGMENT: &str = "segment.0000000001";
    let how = settings(1 << 20, SyncMode::Always);
    let mut life = Life::begin(Disk::new(1), how, dawn(), 1).expect("an empty log");
    let (client, mut records, mut last) = (life.first_client(), Vec::new(), 0);
    while records.last().is_none_or(|&(_, end)| end < 20_000) {
        let start = used(&life.disk, SEGMENT);
        last = life.put(client, b"t", 1, Span::ZERO).expect("space for a job");
        assert!(life.wal.write(&life.access) && life.wal.sync(&life.access));
        records.push((start, used(&life.disk, SEGMENT)));
    }
    let (disk, end) = (life.disk.kill(1), used(&life.disk, SEGMENT));
    let mut unreported = 0;
    for (index, &(start_at, end_at)) in records.iter().enumerate() {
        let place = start_at + (end_at - start_at) * (index % 5) / 5;
        let damaged = disk.kill(1);
        damaged.alter(SEGMENT, |bytes| bytes[place] ^= 1);
        let (engine, .., report) = start(&damaged, how, dawn()).expect("a readable log");
        let lost = records.len() - engine.jobs().count();
        let case = format!("byte {place} of {end}: {lost} of {} jobs are lost: {:?}", records.len(), report.problems);
        assert!(engine.last_id() >= last, "{case}");
        if report.problems.is_empty() {
            unreported += 1;
            assert!(lost == records.len() - index && start_at + SYNCED_EVERY >= end, "{case}");
        } else {
            assert!(lost <= 1, "{case}");
        }
    }
    assert!((1..records.len() / 2).contains(&unreported), "{unreported} of {} were not reported", records.len());
}

/// The server must keep a damaged file even if it stops before it has moved the file, or if the file cannot be moved.
#[test]
fn a_damaged_file_is_kept_after_a_stop_before_it_is_moved() {
    let how = settings(4096, SyncMode::Always);
    for fails in [false, true] {
        let mut life = Life::begin(Disk::new(1), how, dawn(), 1).expect("an empty log");
        (0..600).for_each(|_| life.step());
        life.settle();
        life.wal.close(&life.access, life.now);
        let disk = life.disk.kill(1);
        let name = disk.names().swap_remove(0);
        disk.alter(&name, |bytes| bytes[format::HEADER + 9] ^= 1);
        let next = Life::begin(disk.clone(), how, life.now, 1).expect("a start despite the damage");
        assert_eq!(next.report.problems.len(), 1);
        if fails {
            disk.fail(Operation::Rename, EPERM, u64::MAX);
        }
        let aside = format!("damaged/{name}");
        let is_kept = |disk: &Disk| disk.names().iter().any(|other| *other == name || *other == aside);
        for round in 0..6 {
            let mut again = Life::begin(disk.kill(round), how, next.now, round).expect("a start");
            assert!(is_kept(&again.disk), "{fails}, round {round}: {:?}", again.disk.names());
            again.disk.heal();
            (0..3).for_each(|_| again.settle());
            assert!(again.disk.names().contains(&aside), "{fails}, round {round}: {:?}", again.disk.names());
            next.wal.maintain(&next.access, true);
            assert!(next.wal.write(&next.access) && next.wal.sync(&next.access));
        }
        assert_eq!(disk.names().contains(&aside), !fails);
    }
}

/// A damaged file that cannot be moved must not prevent the removal of other segments.
// Tests promise P20 of beanpole-promises(7).
#[test]
fn a_damaged_file_that_cannot_be_moved_does_not_let_the_log_grow() {
    const SIZE: u64 = 4096;
    let how = settings(SIZE, SyncMode::Always);
    let mut life = Life::begin(Disk::new(2), how, dawn(), 2).expect("an empty log");
    (0..600).for_each(|_| life.step());
    life.settle();
    life.wal.close(&life.access, life.now);
    let disk = life.disk.kill(2);
    let name = disk.names().swap_remove(0);
    disk.alter(&name, |bytes| bytes[format::HEADER + 9] ^= 1);
    let kept = disk.bytes(&name).len() as i64;
    disk.fail(Operation::Rename, EPERM, u64::MAX);
    let mut next = Life::begin(disk.clone(), how, life.now, 2).expect("a start despite the damage");
    assert_eq!(next.report.problems.len(), 1);
    let (start, mut above) = (next.access.0.borrow().0.position, i64::MIN);
    for _ in 0..2000 {
        next.step();
        next.settle();
        let (live, bytes) = (next.access.0.borrow().0.stats().live, disk.used(""));
        above = above.max(bytes as i64 - 2 * (live + SIZE) as i64);
    }
    let written = next.access.0.borrow().0.position - start;
    assert!(disk.names().contains(&name), "{name} has been removed from {:?}", disk.names());
    assert!(written > 20 * SIZE, "only {written} bytes were written");
    assert!(above <= kept, "{above} bytes above the bound, including {kept} in the damaged file");
}
