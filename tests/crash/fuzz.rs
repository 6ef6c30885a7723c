//! Opens random bytes as segments.
//!
//! With any directory contents, the server must not panic, hang or use much memory.

use beanpole::internals::binlog::SyncMode;
use beanpole::internals::engine::{Body, Engine, NewJob, Span};

use crate::disk::Disk;
use crate::driver::{dawn, settings, start, Life};
use crate::format;
use crate::random::Random;

fn rounds() -> u64 {
    crate::crashes::configured() / 2
}

/// Opens the directory, executes some commands, and opens it again.
fn open(disk: &Disk) {
    let how = settings(4096, SyncMode::Always);
    let Ok((mut engine, mut journal, wal, _)) = start(disk, how, dawn()) else { return };
    let client = engine.connect();
    engine.set_log_room(journal.engine_room());
    let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1), body: Body::from(vec![]) };
    engine.put(client, new, dawn()).expect("space for a job");
    journal.append(&mut engine);
    let access = crate::driver::Access((journal, engine).into());
    (0..100).for_each(|_| {
        wal.maintain(&access, true);
        assert!(wal.write(&access) && wal.sync(&access));
    });
    // A ready job can become delayed after a restart, if the times in its records are in the future.
    let counts = |engine: &Engine| {
        let jobs = engine.stats().jobs;
        [jobs.ready + jobs.delayed, jobs.reserved, jobs.buried, jobs.held, jobs.scheduled, jobs.finished]
    };
    let before = counts(&access.0.borrow().1);
    let (engine, .., report) = start(&disk.power_cut(1), how, dawn()).expect("a valid log");
    assert_eq!(counts(&engine), before);
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn random_bytes() {
    for seed in 0..rounds() {
        let mut random = Random::new(seed);
        let disk = Disk::new(seed);
        for _ in 0..=random.below(3) {
            let number = random.pick(&[0, 1, 2, 3, 1 << 31, u64::MAX, u32::MAX as u64]);
            let length = random.below(6000) as usize;
            let mut bytes = random.bytes(length);
            // Many bytes are 0 or 1, so that length fields often have plausible values.
            (0..length).step_by(3).for_each(|place| bytes[place] &= random.pick(&[0, 1, 0xff]));
            let name = if random.once_in(5) { format!("segment.{number}") } else { format!("segment.{number:010}") };
            disk.put_file(&name, bytes);
        }
        open(&disk);
    }
}

#[test]
fn mutated_logs() {
    for seed in 0..rounds() / 4 {
        let mut random = Random::new(seed);
        let mut life = Life::begin(Disk::new(seed), settings(4096, SyncMode::Always), dawn(), seed).expect("a log");
        (0..60).for_each(|_| life.step());
        for _ in 0..10 {
            let disk = life.disk.power_cut(seed);
            for name in disk.names() {
                let other = disk.bytes(&name);
                disk.alter(&name, |bytes| mutate(bytes, &other, &mut random));
            }
            open(&disk);
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..random.below(8) {
        let place = random.below(bytes.len() as u64 + 1) as usize;
        let from = random.below(other.len() as u64 + 1) as usize;
        let length = random.below(100) as usize;
        match random.below(4) {
            0 => drop(bytes.splice(place..place, other[from..other.len().min(from + length)].iter().copied())),
            1 => drop(bytes.drain(place..bytes.len().min(place + length))),
            2 => bytes.splice(place..place, random.bytes(length)).for_each(drop),
            _ => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = random.next() as u8;
                }
            }
        }
    }
}

/// Opens segments with records that have valid checksums and random fields.
#[test]
fn random_records() {
    for seed in 0..rounds() {
        let mut random = Random::new(seed);
        let disk = Disk::new(seed);
        for segment in 1..=1 + random.below(3) {
            let log = random.pick(&[1, 1, 1, 1, 2]);
            let here = format::Segment { log, number: random.pick(&[segment, segment, segment, segment, 2]) };
            let some = |random: &mut Random| random.pick(&[0, 1, 2, 3, segment - 1, 80, 500, 1 << 62, u64::MAX]);
            let before = [segment - 1, random.pick(&[80, 200, 500, u64::MAX])];
            let before = if random.once_in(3) { [some(&mut random), some(&mut random)] } else { before };
            let others = [some(&mut random), some(&mut random), some(&mut random), random.pick(&[0, 5, 1 << 62])];
            let mut bytes = format::header(here, [before[0], before[1], others[0], others[1], others[2], others[3]]);
            for _ in 0..random.below(40) {
                let kind = random.pick(b"PPPJJJpppjjjccRLBKXAATUsOODMWQEZVVFYNCISGH?");
                bytes.extend(format::record(here, bytes.len(), kind, &payload(kind, &mut random)));
            }
            bytes.resize(bytes.len() + random.below(3) as usize * 1000, 0);
            disk.put_file(&format!("segment.{segment:010}"), bytes);
        }
        open(&disk);
    }
}

#[test]
fn an_implausible_limit_of_ids_is_ignored() {
    for ids in [1 << 63, u64::MAX] {
        let (disk, here) = (Disk::new(0), format::Segment { log: 1, number: 1 });
        let mut bytes = format::header(here, [0; 6]);
        let payload = [1, 80, ids, 0, 0].map(u64::to_le_bytes).concat();
        bytes.extend(format::record(here, bytes.len(), b'H', &payload));
        disk.put_file("segment.0000000001", bytes);
        open(&disk);
    }
}

fn payload(kind: u8, random: &mut Random) -> Vec<u8> {
    if b"PJpj".contains(&kind) && !random.once_in(10) {
        return full(kind, random);
    }
    let mut payload = random.pick(&[0u64, 1, 2, 3, 4, 1 << 62]).to_le_bytes().to_vec();
    if kind == b'Z' {
        payload.clear();
    }
    if b"NCIG".contains(&kind) && !random.once_in(10) {
        return payload;
    }
    if kind == b'S' && !random.once_in(10) {
        payload.extend(random.pick(&[0u64, 80, 100, 500, 1 << 62]).to_le_bytes());
        return payload;
    }
    for _ in 0..random.below(4) {
        let length = random.pick(&[1, 4, 8, 8, 20]);
        let word = random.bytes(length);
        payload.extend(if random.once_in(3) { vec![0; length] } else { word });
    }
    if kind == b'O' && !random.once_in(10) {
        payload.truncate(8);
        payload.extend([random.pick(b"-dfd"), random.next() as u8]);
        let result = random.below(20) as usize;
        payload.extend(random.bytes(result));
    }
    payload
}

fn full(kind: u8, random: &mut Random) -> Vec<u8> {
    // In an encoded number, all bytes except the last have the top bit set. Some of the random numbers are too long to
    // be valid.
    let number = |random: &mut Random, longest: u64| {
        let length = random.below(longest) as usize;
        let mut bytes: Vec<u8> = random.bytes(length).iter().map(|byte| byte | 0x80).collect();
        bytes.push(random.next() as u8 & 0x7f);
        bytes
    };
    let mut payload = random.bytes(8);
    payload.extend(random.pick(&[
        &b"\0"[..],
        b"\x01",
        b"\x02",
        b"\x03",
        b"\x04",
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x40",
    ]));
    for longest in [5, 9, 11] {
        payload.extend(number(random, longest));
    }
    let tube = random.below(5) as u8;
    payload.push(tube);
    payload.extend(random.bytes(tube.into()).iter().map(|byte| b'a' + byte % 3));
    let mut over = false;
    if kind.eq_ignore_ascii_case(&b'J') {
        let state = random.pick(b"rdblffq");
        over = state == b'f';
        payload.push(state);
        payload.extend(random.bytes(8));
        (0..5).for_each(|_| payload.extend(number(random, 5)));
    }
    let body = random.below(100) as usize;
    if kind.is_ascii_lowercase() {
        options(over, body, random, &mut payload);
    }
    payload.extend(random.bytes(body));
    payload
}

/// Appends random job options. Most of them are valid.
fn options(over: bool, body: usize, random: &mut Random, payload: &mut Vec<u8>) {
    let kind = random.pick(b"-nbi");
    let dedup_key = match kind {
        b'n' => random.below(4) as usize,
        b'i' => 16,
        _ => 0,
    };
    payload.extend([random.pick(b"tk"), kind, if over { random.pick(b"df") } else { b'-' }]);
    payload.extend(random.bytes(3));
    for _ in 0..4 {
        let number = random.pick(&[0, 1, u64::MAX, 1 << 63]) ^ random.pick(&[0, 0, 1_700_000_000_000_000_000]);
        payload.extend(number.to_le_bytes());
    }
    let at = if over { random.below(body as u64 + 2) as u32 } else { 0 };
    payload.extend(at.to_le_bytes());
    let reducer = random.below(3) as usize;
    payload.extend((dedup_key as u16).to_le_bytes());
    payload.extend((reducer as u16).to_le_bytes());
    // With only two different values, duplicates are likely.
    payload.extend(std::iter::repeat_n(random.next() as u8 & 1, dedup_key));
    payload.extend(random.bytes(reducer));
}
