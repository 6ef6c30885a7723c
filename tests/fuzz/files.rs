//! Starts a server on a directory of random bytes: a beanpole log, or a beanstalkd log to import.
//!
//! Owns the translation of bytes into files. Startup must terminate, and the queue must be consistent. The next start
//! must report no problem and find all jobs that the first start has recovered.

use std::cell::RefCell;
use std::sync::Arc;

use beanpole::internals::binlog::{open, BinlogSettings, Journal, JournalAccess, SyncMode, Wal};
use beanpole::internals::engine::{Engine, JobView, Limits, State, Time};

use crate::disk::Disk;
use crate::format;

const SEGMENT: u64 = 4096;

/// The wall-clock time at each start.
const DAWN: Time = Time::from_nanos(1_700_000_000_000_000_000);

/// The ID, tube, state and body of a job, which a restart must preserve.
type Kept = (u64, Vec<u8>, String, Vec<u8>);

/// The number of rounds of maintenance, writes and syncs. It is high enough to rewrite and rename damaged segments.
const ROUNDS: usize = 100;

/// The journal and the engine, which share one lock in the server.
struct Access(RefCell<(Journal, Engine)>);

impl JournalAccess for Access {
    fn with<R>(&self, work: impl FnOnce(&mut Journal, &mut Engine) -> R) -> R {
        let (journal, engine) = &mut *self.0.borrow_mut();
        work(journal, engine)
    }
}

/// Recovers a queue and returns the reported problems. Returns `None` if the log cannot be opened.
fn start(disk: &Disk) -> Option<(Access, Wal, Vec<String>)> {
    let settings = BinlogSettings::new(SEGMENT, SyncMode::Always);
    let mut engine = Engine::new(Limits { max_watched: 1000, largest_leased: 40, ..Limits::NONE });
    let opened = open(Arc::new(disk.clone()), settings, &mut engine, DAWN, &mut |_| {}).ok()?;
    engine.check();
    assert!(opened.failure.is_none(), "the disk works, but the log failed: {:?}", opened.failure);
    Some((Access(RefCell::new((opened.journal, engine))), opened.wal, opened.report.problems))
}

/// Returns all jobs. A job whose delay expires at or before `last` counts as ready.
fn kept(access: &Access, last: Time) -> Vec<Kept> {
    let engine = &access.0.borrow().1;
    let job = |job: JobView| {
        let state = if job.state() == State::Delayed && job.due() <= last { State::Ready } else { job.state() };
        (job.id().0, engine.tube_of(&job).to_vec(), format!("{state:?}"), job.body().bytes().to_vec())
    };
    let mut jobs: Vec<Kept> = engine.jobs().map(job).collect();
    jobs.sort();
    jobs
}

/// Starts the server, simulates a power failure, and starts the server again.
fn start_twice(disk: &Disk) {
    let Some((access, wal, _)) = start(disk) else { return };
    for _ in 0..ROUNDS {
        wal.maintain(&access, true);
        assert!(wal.write(&access) && wal.sync(&access), "writes and syncs must succeed");
    }
    let (again, _, problems) = start(&disk.power_cut(1)).expect("a valid log");
    assert_eq!(problems, Vec::<String>::new(), "the second start must report no problems");
    // The second start continues from the latest recorded time, which can be later than `DAWN`.
    let last = access.0.borrow().1.jobs().map(|job| job.created).max().unwrap_or(DAWN);
    assert_eq!(kept(&again, last), kept(&access, last));
}

/// Removes and returns the first piece of `bytes`. The first byte is the length of the piece.
pub fn piece<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let Some((&length, rest)) = bytes.split_first() else { return &[] };
    let (piece, rest) = rest.split_at(rest.len().min(length.into()));
    *bytes = rest;
    piece
}

/// Tests a beanpole log. The first byte selects the form of the input: a raw segment, or a list of records with valid
/// checksums, each with a kind and a payload. Kind 0 begins a new segment.
pub fn log(bytes: &[u8]) {
    let Some((form, mut bytes)) = bytes.split_first() else { return };
    let disk = Disk::new(1);
    if form & 1 == 0 {
        disk.put_file("segment.0000000001", bytes.to_vec());
        return start_twice(&disk);
    }
    let mut here = format::Segment { log: 1, number: 1 };
    let mut whole = format::header(here, [0, 0, 1, 0, 0, 0]);
    while let Some((&kind, rest)) = bytes.split_first() {
        bytes = rest;
        if kind == 0 {
            let before = whole.len() as u64;
            disk.put_file(&format!("segment.{:010}", here.number), std::mem::take(&mut whole));
            here.number += 1;
            whole = format::header(here, [here.number - 1, before, 1, here.number - 1, before, 0]);
        } else {
            let payload = piece(&mut bytes);
            whole.extend(format::record(here, whole.len(), kind, payload));
        }
    }
    disk.put_file(&format!("segment.{:010}", here.number), whole);
    start_twice(&disk);
}

/// Tests a beanstalkd directory with up to three files. The first two bytes are the ends of the first two files, in
/// sixteenths of the remaining input.
pub fn import(bytes: &[u8]) {
    let Some((&[first, second], bytes)) = bytes.split_first_chunk::<2>() else { return };
    let part = |sixteenths: u8| bytes.len() * usize::from(sixteenths & 15) / 16;
    let ends = [part(first).min(part(second)), part(first).max(part(second))];
    let disk = Disk::new(1);
    let files = [&bytes[..ends[0]], &bytes[ends[0]..ends[1]], &bytes[ends[1]..]];
    for (place, file) in files.into_iter().enumerate().filter(|(_, file)| !file.is_empty()) {
        disk.put_file(&format!("binlog.{}", place + 1), file.to_vec());
    }
    start_twice(&disk);
}
