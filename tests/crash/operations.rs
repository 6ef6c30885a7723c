//! Crashes the server while it flushes a tube or moves the tube's jobs. These commands run in several portions.
//!
//! After recovery, the command must have affected either all jobs to which it applies, or none.

use beanpole::internals::binlog::SyncMode;
use beanpole::internals::engine::{Engine, Flush, JobView, MoveJobs, Progress, Span, State};

use crate::disk::Disk;
use crate::driver::{dawn, settings, Life};

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
fn counts(life: &Life) -> [usize; 2] {
    let engine = &life.access.0.borrow().1;
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

/// Runs a command on a disk that crashes at operation `point`, and then starts the server twice. The first result is
/// `true` if a start had to complete the interrupted command, and the second is `true` if the disk crashed.
fn crash(moves: bool, size: u64, point: u64) -> (bool, bool) {
    let case = format!("moves {moves}, segments of {size}, operation {point}");
    let mut life = Life::begin(Disk::new(point), settings(size, SyncMode::Always), dawn(), point).expect("a log");
    let client = life.first_client();
    while counts(&life)[0] < JOBS {
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
    assert!(has_crashed || counts(&life) == done, "{case}");
    let mut disk = life.disk.power_cut(point);
    let mut was_open = false;
    for start in 0..2 {
        let mut life = Life::begin(disk.clone(), settings(size, SyncMode::Always), dawn(), 1).expect("a log");
        let is_open = life.access.0.borrow().1.operation_at(0).is_some();
        assert!(start == 0 || !is_open, "{case}: the command must be complete");
        was_open |= is_open;
        while life.access.0.borrow().1.has_deferred() {
            let _ = turn(&mut life, |engine| {
                engine.go_on(now);
                Progress::More
            });
        }
        let found = counts(&life);
        assert!(found == done || has_crashed && found == [JOBS, 0], "{case}: {found:?} jobs after start {start}");
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
