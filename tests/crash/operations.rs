//! Crashes the server while it flushes a tube or moves the tube's jobs. These commands run in several portions.
//!
//! After recovery, the command must have affected either all jobs to which it applies, or none. If the log is damaged,
//! recovery must not complete a command: the damage may have destroyed the record of its end.

use std::collections::BTreeSet;

use beanpole::internals::binlog::{inspect, BinlogSettings, SyncMode};
use beanpole::internals::engine::{Engine, Flush, JobId, JobView, MoveJobs, Progress, Span, State};

use crate::disk::Disk;
use crate::driver::{dawn, engine, settings, Life};
use crate::format::{records, Segment};

const JOBS: usize = 30;

const MOVED: usize = 20;

/// The number of steps in a portion, so small that a command needs many portions.
const STEPS: u64 = 24;

enum Command {
    Flush(Flush),
    Move(MoveJobs),
}

fn command(moves: bool) -> Command {
    match moves {
        true => Command::Move(MoveJobs::new(b"a"[..].into(), b"b"[..].into(), State::Ready, MOVED as u64)),
        false => Command::Flush(Flush::new(b"a"[..].into(), &State::UNFINISHED)),
    }
}

/// Returns the numbers of jobs in the source and the destination tube.
fn counts(engine: &Engine) -> [usize; 2] {
    let of = |name: &[u8]| engine.jobs().filter(|job: &JobView| engine.tube_of(job) == name).count();
    [of(b"a"), of(b"b")]
}

fn turn(life: &mut Life, mut work: impl FnMut(&mut Engine) -> Progress) -> Progress {
    let mut progress = Progress::More;
    life.wal.reserve(&life.access, 1000);
    life.turn(|engine, _| {
        engine.grant_steps(STEPS);
        progress = work(engine);
        engine.grant_steps(u64::MAX);
        None
    });
    progress
}

/// Completes the commands that the log records as in progress.
fn go_on(life: &mut Life) {
    while life.access.0.borrow().1.has_deferred() {
        let now = life.now;
        let _ = turn(life, |engine| {
            engine.go_on(now);
            Progress::More
        });
    }
}

/// Runs a command on a disk that crashes at operation `point`, and then starts the server twice. The first result is
/// `true` if a start had to complete the interrupted command, and the second is `true` if the disk crashed.
fn crash(moves: bool, size: u64, point: u64) -> (bool, bool) {
    let case = format!("moves {moves}, segments of {size}, operation {point}");
    let mut life = Life::begin(Disk::new(point), settings(size, SyncMode::Always), dawn(), point).expect("a log");
    let client = life.first_client();
    while counts(&life.access.0.borrow().1)[0] < JOBS {
        life.put(client, b"a", 1, Span::ZERO);
    }
    life.settle();
    life.disk.crash_in(point + 1);
    let (mut command, now) = (command(moves), life.now);
    for round in 0.. {
        let progress = turn(&mut life, |engine| match &mut command {
            Command::Flush(flush) => engine.flush(flush, now),
            Command::Move(moving) => engine.move_jobs(client, moving, now).expect("space for the moves"),
        });
        let _ = life.wal.write(&life.access) && (round % 3 > 0 || life.wal.sync(&life.access));
        life.wal.maintain(&life.access, true);
        if progress == Progress::Done || life.disk.has_crashed() {
            break;
        }
    }
    life.settle();
    let done = if moves { [JOBS - MOVED, MOVED] } else { [0, 0] };
    let has_crashed = life.disk.has_crashed();
    assert!(has_crashed || counts(&life.access.0.borrow().1) == done, "{case}");
    let mut disk = life.disk.power_cut(point);
    let mut inspected = engine();
    let report = inspect(&disk, &mut inspected, Some(dawn())).expect("a log").report;
    assert_eq!(report.progress.jobs as usize, inspected.jobs().count(), "{case}");
    let mut was_open = false;
    for start in 0..2 {
        let mut life = Life::begin(disk.clone(), settings(size, SyncMode::Always), dawn(), 1).expect("a log");
        let is_open = life.access.0.borrow().1.operation_at(0).is_some();
        assert!(start == 0 || !is_open, "{case}: the command must be complete");
        was_open |= is_open;
        go_on(&mut life);
        let found = counts(&life.access.0.borrow().1);
        assert!(found == done || has_crashed && found == [JOBS, 0], "{case}: {found:?} jobs after start {start}");
        assert_eq!(counts(&inspected), found, "{case}: a start changes the queue in another way");
        life.settle();
        disk = life.disk.kill(point);
    }
    (was_open, has_crashed)
}

// Tests promise P15 of beanpole-promises(7).
#[test]
fn a_flush_or_move_is_all_or_nothing() {
    for moves in [false, true] {
        for size in [700, 2000, 1 << 20] {
            let (mut completed, mut point) = (0, 0);
            loop {
                let (was_open, has_crashed) = crash(moves, size, point);
                completed += u64::from(was_open);
                if !has_crashed {
                    break;
                }
                point += 1;
            }
            println!("moves {moves}, segments of {size}: {completed} of {point} crashes in the middle");
            assert!(completed > 0, "no crash left the command in progress");
        }
    }
}

const SEGMENT: &str = "segment.0000000001";

fn how() -> BinlogSettings {
    settings(1 << 16, SyncMode::Always)
}

/// Moves a job into tube `a` and buries the job there.
fn bury_in_a(life: &mut Life, id: u64) {
    let client = life.first_client();
    life.turn(|engine, now| {
        let _ = engine.move_job(client, JobId(id), b"a", (1, Span::ZERO), now);
        engine.reserve_job(client, JobId(id), now);
        assert!(engine.bury(client, JobId(id), 1, now));
        None
    });
}

/// Flushes tube `a`, and then buries older jobs in this tube. If `steps` is small, the flush is still in progress when
/// the server stops. Returns the disk and the IDs of the remaining jobs.
fn flushed(states: &[State], steps: u64) -> (Disk, BTreeSet<u64>) {
    let mut life = Life::begin(Disk::new(1), how(), dawn(), 1).expect("a log");
    let client = life.first_client();
    let mut put = |tube: &[u8]| life.put(client, tube, 1, Span::ZERO).expect("space for a job");
    let older: Vec<u64> = (0..4).map(|_| put(b"b")).collect();
    let flushed: Vec<u64> = (0..9).map(|_| put(b"b")).collect();
    flushed.iter().for_each(|&id| bury_in_a(&mut life, id));
    let (mut flush, now) = (Flush::new(b"a"[..].into(), states), life.now);
    life.turn(|engine, _| {
        engine.grant_steps(steps);
        let _ = engine.flush(&mut flush, now);
        engine.grant_steps(u64::MAX);
        None
    });
    older.iter().for_each(|&id| bury_in_a(&mut life, id));
    life.settle();
    life.wal.close(&life.access, life.now);
    let left = life.access.0.borrow().1.jobs().map(|job| job.id().0).collect();
    (life.disk.kill(1), left)
}

/// Starts a server twice. Returns the remaining jobs and the problems that the first start reported. At the second
/// start, the damaged segment is no longer part of the log.
fn left_after_starts(disk: &Disk, case: &str) -> (BTreeSet<u64>, Vec<String>) {
    let left = |life: &Life| life.access.0.borrow().1.jobs().map(|job| job.id().0).collect::<BTreeSet<u64>>();
    let mut life = Life::begin(disk.kill(1), how(), dawn(), 1).expect("a log");
    go_on(&mut life);
    let (found, problems) = (left(&life), life.report.problems.clone());
    (0..3).for_each(|_| life.settle());
    let mut again = Life::begin(life.disk.kill(1), how().strictly(), dawn(), 1).expect("an intact log");
    go_on(&mut again);
    assert_eq!(left(&again), found, "{case}: the second start deletes jobs");
    (found, problems)
}

// Tests promise P18 of beanpole-promises(7).
#[test]
fn a_damaged_byte_deletes_no_jobs_that_entered_a_tube_after_its_flush() {
    let abandoned = "tube a: a flush or move may be incomplete because of the damage";
    for (states, steps) in [(&State::UNFINISHED[..], u64::MAX), (&[State::Buried], u64::MAX), (&[State::Buried], 20)] {
        let (disk, left) = flushed(states, steps);
        assert!(if steps == u64::MAX { left.len() == 4 } else { (6..13).contains(&left.len()) }, "{left:?}");
        let bytes = disk.bytes(SEGMENT);
        let log = u64::from_le_bytes(bytes[12..20].try_into().expect("eight bytes"));
        let mut abandons = 0;
        // Damage to the last record, the one of the clean stop, is not covered: nothing follows it.
        let found = records(Segment { log, number: 1 }, &bytes);
        for record in found.iter().filter(|record| record.kind != b'P' && record.kind != b'C') {
            let case = format!("{states:?}, {steps} steps, damaged {} at {}", char::from(record.kind), record.at);
            let damaged = disk.kill(1);
            damaged.alter(SEGMENT, |bytes| bytes[record.end - 1] ^= 1);
            let (found, problems) = left_after_starts(&damaged, &case);
            assert!(left.is_subset(&found), "{case}: {:?} are lost", left.difference(&found));
            assert!(problems[0].ends_with("are damaged and were skipped"), "{case}: {problems:?}");
            abandons += usize::from(problems.contains(&abandoned.to_owned()));
            assert!(problems.len() <= 2 && (record.kind != b'Y' || problems.len() == 2), "{case}: {problems:?}");
        }
        assert!(if steps == u64::MAX { abandons == 1 } else { abandons > 20 }, "{states:?}: {abandons}");
    }
}

/// Over HTTP, a flush can spare the reserved jobs. A restart makes these jobs ready, but they must still be spared.
#[test]
fn a_crash_during_a_flush_that_spares_reserved_jobs_deletes_none_of_them() {
    let mut life = Life::begin(Disk::new(1), how(), dawn(), 1).expect("a log");
    let (client, now) = (life.first_client(), life.now);
    let ids: Vec<u64> = (0..9).filter_map(|_| life.put(client, b"a", 1, Span::ZERO)).collect();
    let mut flush = Flush::new(b"a"[..].into(), &[State::Held, State::Buried, State::Delayed, State::Ready]);
    let progress = turn(&mut life, |engine| {
        ids[6..].iter().for_each(|&id| assert!(engine.reserve_job(client, JobId(id), now).is_some()));
        engine.flush(&mut flush, now)
    });
    assert_eq!(progress, Progress::More);
    life.settle();
    let mut life = Life::begin(life.disk.kill(1), how(), dawn(), 1).expect("a log");
    go_on(&mut life);
    let left: Vec<u64> = life.access.0.borrow().1.jobs().map(|job| job.id().0).collect();
    assert!(left.len() < 9 && ids[6..].iter().all(|id| left.contains(id)), "{left:?}");
}
