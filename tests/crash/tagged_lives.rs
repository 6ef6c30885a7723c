//! Crashes the server at random moments while jobs with tags are put, moved and flushed.
//!
//! Owns the random operations for tags. `snapshots` checks the recovered state. Other tests cover all other operations.

use beanpole::internals::binlog::{BinlogSettings, SyncMode};
use beanpole::internals::engine::{
    DedupKey, Engine, Flush, GroupTag, JobId, JobOptions, MoveJobs, Name, NewJob, Rate, Span, State, Tagged, Tags, Tie,
    Time, TubeSettings, UNLIMITED,
};

use crate::crashes::configured;
use crate::disk::Disk;
use crate::driver::{dawn, settings, start, Life, TUBES};
use crate::random::Random;
use crate::snapshots::{Snapshot, Snapshots};

/// There are only three keys, so that duplicates are likely.
const KEYS: [&[u8]; 3] = [b"k", b"0123456789abcdef0123456789abcdef", b"a key that is rather long for the key of a job"];

/// Log space that suffices for any operation, in bytes. With less space, the log would omit records.
const ROOM: u64 = 4000;

fn tags(random: &mut Random) -> Tags {
    let mut key = || random.pick(&KEYS).into();
    let (first, second) = (key(), key());
    let recurs = random.pick(&[None, None, None, None, None, Some(&b"1"[..]), Some(b"2"), Some(b"* * * * *")]);
    let (tries, backoff) = random.pick(&[(0, 0), (0, 0), (1, 5), (2, 0), (2, 1), (3, 1)]);
    let key = (!random.once_in(3)).then(|| (first, random.pick(&[0, 0, 1, 60])));
    let (dedup_key, keep) = key.map_or((DedupKey::None, 0), |(key, keep)| (DedupKey::Name(key), keep));
    let tube = random.once_in(2).then(|| random.pick(&TUBES).into());
    let mut options = JobOptions {
        dedup_key,
        keep,
        max_attempts: tries,
        fails: random.pick(&[0, 0, 1]),
        backoff,
        reason: random.once_in(8).then(|| (*b"imported").into()),
        ttl: random.pick(&[Span::MAX, Span::MAX, Span::from_secs(1), Span::from_secs(100)]),
        concurrency: random.once_in(4).then(|| (second, random.pick(&[1, 2]))),
        groups: groups(random),
        ..JobOptions::default()
    };
    let may_recur = options.dedup_key != DedupKey::None && options.groups.iter().all(|group| group.tie == Tie::Member);
    let recurs = recurs.filter(|_| may_recur).map(Name::from);
    if recurs.is_some() {
        (options.fails, options.reason) = (0, None);
    }
    Tags { tube, recurs, options }
}

/// Returns up to two groups. With two groups, a job can belong to one group and wait for the other.
fn groups(random: &mut Random) -> Vec<GroupTag> {
    let count = random.pick(&[0, 0, 1, 2]);
    let names = KEYS.iter().take(count);
    let ties = [Tie::Member, Tie::Member, Tie::After { even_if_new: false }, Tie::AfterCount(2)];
    names.map(|&name| GroupTag { name: name.into(), tie: random.pick(&ties) }).collect()
}

fn put(life: &mut Life) {
    let (tags, body) = (tags(&mut life.random), life.body());
    let pri = life.random.pick(&[0, 5, u32::MAX]);
    let delay = Span::from_secs(life.random.pick(&[0, 0, 0, 1]));
    let client = life.client_at(0);
    let ttr = Span::from_secs(life.random.pick(&[1, 2]));
    life.wal.reserve(&life.access, ROOM + body.len() as u64);
    life.turn(|engine, now| match engine.put_tagged(client, NewJob { pri, delay, ttr, body }, tags, now) {
        Ok(Tagged::New(id) | Tagged::Scheduled { id, .. }) => Some(id.0),
        _ => None,
    });
}

fn operate(life: &mut Life, job: JobId) {
    let place = life.random.below(3) as usize;
    let client = life.client_at(place);
    let (from, to) = (life.random.pick(&TUBES), life.random.pick(&TUBES));
    let state = life.random.pick(&[State::Ready, State::Delayed, State::Buried]);
    let delay = Span::from_secs(life.random.pick(&[0, 0, 2]));
    let limit = life.random.pick(&[None, Some(0), Some(2)]);
    let settings = TubeSettings {
        tries: life.random.pick(&[0, 2]),
        backoff: life.random.pick(&[0, 1]),
        ttl: life.random.pick(&[0, 0, 100]),
        dead: life.random.once_in(2).then(|| from.into()),
        max: life.random.pick(&[0, 0, 2]),
        rate: life.random.once_in(8).then_some(Rate { count: 5, seconds: 2 }),
        max_jobs: life.random.pick(&[UNLIMITED, UNLIMITED, UNLIMITED, [3; 3]]),
    };
    let what = life.random.below(12);
    life.wal.reserve(&life.access, ROOM);
    life.turn(|engine, now| {
        match what {
            0..=3 => drop(engine.move_job(client, job, to, (7, delay), now)),
            4..=6 => {
                let _ = engine.move_jobs(client, &mut MoveJobs::new(from.into(), to.into(), state, 3), now);
            }
            7 => drop(engine.limit_new_tube(client, to, [limit; 3], now)),
            8 => drop(engine.set_tube(client, to, settings, now)),
            9 => drop(engine.fail(client, job, 7, b"no such host", now)),
            _ => drop(engine.flush(&mut Flush::new(from.into(), &State::UNFINISHED), now)),
        }
        None
    });
}

/// Advances the time, and executes the due timers, a random client operation and a random operation of the log.
pub fn step(life: &mut Life) {
    life.now = life.now + Span::from_millis(life.random.pick(&[0, 1, 20, 300, 2000]));
    life.wal.reserve(&life.access, ROOM);
    life.tick();
    life.wal.reserve(&life.access, ROOM);
    let job = life.any();
    match life.random.below(8) {
        0..=2 if life.model.ids().len() < 30 => put(life),
        3 => operate(life, job),
        _ => life.verb(),
    }
    life.look_after();
}

/// Checks that a put with each key is accepted or refused, as the recovered jobs and the keys of ended jobs require.
fn answers(engine: &mut Engine, now: Time) {
    for (key, tube) in KEYS.iter().flat_map(|key| TUBES.map(|tube| (*key, tube))) {
        let named = DedupKey::Name(key.into());
        let lives = engine.jobs().any(|job| {
            let same = engine.extras(&job).is_some_and(|extras| extras.dedup_key == named);
            same && engine.tube_of(&job) == tube && job.state() != State::Finished && !job.is_dead_letter()
        });
        let ended = engine
            .ended_keys()
            .any(|ended| ended.until > now && *ended.tube == *tube && ended.key.text().as_ref() == key);
        let client = engine.connect();
        let new = NewJob { pri: 9, delay: Span::ZERO, ttr: Span::from_secs(1), body: Default::default() };
        let options = JobOptions { dedup_key: DedupKey::Name(key.into()), ..JobOptions::default() };
        let asked = Tags { tube: Some(tube.into()), options, ..Tags::default() };
        let answer = engine.put_tagged(client, new, asked, now);
        let right = match answer {
            Ok(Tagged::Duplicate { .. }) => lives,
            Ok(Tagged::Ended(_)) => !lives && ended,
            Ok(Tagged::New(_) | Tagged::Scheduled { .. }) => !lives && !ended,
            Err(_) => engine.tube_limit(tube).is_some_and(|limit| limit != UNLIMITED),
        };
        assert!(right, "wrong result {answer:?}: key of a job: {lives}, of an ended job: {ended}");
    }
}

fn begin(disk: &Disk, how: BinlogSettings, now: Time, seed: u64) -> Option<Life> {
    match Life::begin(disk.clone(), how, now, seed) {
        Ok(life) => Some(life),
        Err(error) => {
            assert!(disk.has_crashed(), "{error}");
            None
        }
    }
}

/// Runs and crashes five servers in sequence, then checks a last server. Returns the number of crashes.
fn lives(seed: u64, how: BinlogSettings, power: bool, steps: u64, point: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut disk = Disk::new(seed);
    let (mut now, mut before) = (dawn(), None::<(Snapshots, u64)>);
    disk.crash_at(point);
    for generation in 0..5 {
        if let Some(mut life) = begin(&disk, how, now, seed + generation) {
            let place = || format!("seed {seed} point {point} generation {generation} {how:?} power {power}");
            if let Some((snapshots, safe)) = &before {
                let found = snapshots.compare(&life.access.0.borrow().1, *safe, now);
                found.unwrap_or_else(|error| panic!("{}: {error}", place()));
            }
            assert!(life.report.problems.is_empty(), "{}: {:?}", place(), life.report.problems);
            let mut snapshots = Snapshots::default();
            snapshots.push(Snapshot::of(&life.access.0.borrow().1, 0));
            life.snapshots = Some(snapshots);
            life.counts_syncs = power;
            for _ in 0..steps {
                step(&mut life);
                if disk.has_crashed() {
                    break;
                }
            }
            disk.stop();
            let safe = if power { life.wal.synced() } else { life.wal.durable() };
            now = life.now;
            before = life.snapshots.take().map(|snapshots| (snapshots, safe));
        }
        let chance = seed ^ point << 8 ^ generation;
        disk = if power { disk.power_cut(chance) } else { disk.kill(chance) };
        now = now + Span::from_millis(random.below(5000));
        let next = random.pick(&[5, 30, 1000]);
        disk.crash_at(random.below(next));
    }
    disk = disk.kill(seed);
    let started = start(&disk, how, now);
    let (mut engine, ..) = started.unwrap_or_else(|error| panic!("seed {seed} point {point}: {error}"));
    answers(&mut engine, now);
    6
}

fn everywhere(mode: SyncMode, power: bool) {
    // A run with tags takes longer, so this test has fewer runs than the other tests.
    let (configured, mut done, mut seed) = ((configured() / 20).max(60), 0, 1);
    while done < configured {
        let size = [700, 1500, 4096, 8192, 40_000][seed as usize % 5];
        let point = Random::new(seed).below(400);
        done += lives(seed, settings(size, mode), power, 60 + seed % 100, point);
        seed += 1;
    }
    println!("{mode:?}, power cut {power}: {done} crash points in lives with tags");
}

#[test]
fn a_power_cut_loses_no_tag_that_was_synced() {
    everywhere(SyncMode::Always, true);
    everywhere(SyncMode::Every(50), true);
    everywhere(SyncMode::Never, true);
}

#[test]
fn a_killed_process_loses_no_tag_that_was_written() {
    everywhere(SyncMode::Always, false);
    everywhere(SyncMode::Every(50), false);
}
