//! Tests the recovery of handwritten segments, each of which has one anomaly.
//!
//! Covers cases that random runs rarely produce: boundaries of damage and of the log, IDs that occur only in records
//! that do not contain the job, and foreign files.

use std::io;
use std::sync::Arc;

use beanpole::internals::binlog::{back_up, inspect, open, Inspection, LogFile, OpenError, Storage, SyncMode};
use beanpole::internals::engine::Span;

use crate::disk::{Disk, EIO};
use crate::driver::{dawn, engine, settings, start, Life};
use crate::format::{self, header, record, Segment, HEADER};

const LOG: u64 = 77;

/// The number of IDs that a recovery skips if records are missing.
const AHEAD: u64 = 4 << 20;

/// A segment whose number exceeds the newest number by at least this much does not belong to the log.
const NEAR: u64 = 1 << 20;

const NO_BINLOG: &str = "there is no binlog in this directory";

/// Returns a segment header. The previous segment ends after `before` bytes, or does not exist if `before` is 0. The
/// log is synced up to `synced`.
fn begin(number: u64, before: u64, synced: (u64, u64)) -> Vec<u8> {
    let place = if before == 0 { [0, 0] } else { [number - 1, before] };
    header(Segment { log: LOG, number }, [place[0], place[1], 1, synced.0, synced.1, 10])
}

fn push(bytes: &mut Vec<u8>, number: u64, kind: u8, payload: &[u8]) {
    let record = record(Segment { log: LOG, number }, bytes.len(), kind, payload);
    bytes.extend_from_slice(&record);
}

/// Appends a record that puts a job into the default tube.
fn put(bytes: &mut Vec<u8>, number: u64, id: u64) {
    let mut payload = [0; 8].to_vec();
    let mut id = id;
    while id >= 0x80 {
        payload.push(id as u8 | 0x80);
        id >>= 7;
    }
    payload.extend_from_slice(&[id as u8, 0, 0, 100, 7]);
    payload.extend_from_slice(b"defaultbody");
    push(bytes, number, b'P', &payload);
}

fn synced(bytes: &mut Vec<u8>, number: u64, place: (u64, u64)) {
    push(bytes, number, b'S', &[place.0.to_le_bytes(), place.1.to_le_bytes()].concat());
}

fn disk(segments: &[(u64, Vec<u8>)]) -> Disk {
    let disk = Disk::new(1);
    for (number, bytes) in segments {
        disk.put_file(&name(*number), bytes.clone());
    }
    disk
}

fn name(number: u64) -> String {
    format!("segment.{number:010}")
}

fn look(disk: &Disk) -> Inspection {
    inspect(disk, &mut engine(), None).expect("a log")
}

#[test]
fn records_missing_before_the_recorded_end_are_damage() {
    let mut first = begin(1, 0, (0, 0));
    put(&mut first, 1, 1);
    let end = first.len() as u64;
    for lacks in [0, 20] {
        let mut second = begin(2, end + lacks, (1, end + lacks));
        put(&mut second, 2, 2);
        let found = look(&disk(&[(1, first.clone()), (2, second)])).report;
        let problem = format!("{}: bytes {end} to {} are damaged", name(1), end + lacks);
        assert_eq!(found.problems, if lacks == 0 { vec![] } else { vec![problem] });
        assert_eq!((found.progress.jobs, found.progress.done), (2, 2));
    }
}

#[test]
fn data_after_the_last_record_is_damage_if_the_end_is_unknown() {
    for garbage in [&[][..], &[0; 9], &[0, 0, 7, 0]] {
        let mut first = begin(1, 0, (0, 0));
        put(&mut first, 1, 1);
        let end = first.len();
        first.extend_from_slice(garbage);
        let mut second = begin(2, end as u64, (1, end as u64));
        put(&mut second, 2, 2);
        synced(&mut second, 2, (2, HEADER as u64 + 10));
        second[..HEADER].fill(1);
        let found = look(&disk(&[(1, first), (2, second)])).report;
        let header = format!("{}: bytes 0 to {HEADER}, the header, are damaged", name(2));
        let behind = format!("{}: bytes {end} to {} are damaged", name(1), end + 3);
        let used = garbage.contains(&7);
        assert_eq!(found.problems, if used { vec![behind, header] } else { vec![header] }, "{garbage:?}");
        assert_eq!(found.progress.jobs, 2);
    }
}

#[test]
fn data_after_the_last_record_of_the_last_segment_is_a_torn_write() {
    let mut first = begin(1, 0, (0, 0));
    put(&mut first, 1, 1);
    let end = first.len() as u64;
    synced(&mut first, 1, (1, end));
    let done = look(&disk(&[(1, first.clone())])).report.progress;
    assert_eq!((done.done, done.bytes), (1, first.len() as u64));
    first.extend_from_slice(&[7; 30]);
    let found = look(&disk(&[(1, first)]));
    assert_eq!((found.report.problems, found.report.progress.jobs), (vec![], 1));
}

#[test]
fn the_very_first_segment_has_no_predecessor() {
    // The first segment is the oldest segment of the log, even if its header names another segment as the oldest.
    for oldest in [0, 1] {
        let first = header(Segment { log: LOG, number: 1 }, [0, 0, oldest, 0, 0, 10]);
        assert!(look(&disk(&[(1, first)])).report.problems.is_empty(), "{oldest}");
    }
}

/// A disk with read errors: either one file can be read only up to its header, or all files are shorter than their
/// reported sizes.
struct Odd {
    disk: Disk,
    unreadable: String,
    excess: u64,
}

impl Storage for Odd {
    fn lock(&self) -> io::Result<()> {
        self.disk.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(self.disk.length(name)? + self.excess)
    }
    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        if name == self.unreadable && place + bytes.len() as u64 > HEADER as u64 {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.disk.read_at(name, place, bytes)
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        self.disk.create(name, size)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.disk.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
}

#[test]
fn an_unreadable_segment_is_reported_and_kept() {
    let mut first = begin(1, 0, (0, 0));
    put(&mut first, 1, 1);
    let mut second = begin(2, first.len() as u64, (1, first.len() as u64));
    put(&mut second, 2, 2);
    let mut third = begin(3, second.len() as u64, (2, second.len() as u64));
    put(&mut third, 3, 3);
    let disk = disk(&[(1, first), (2, second.clone()), (3, third)]);
    let storage = Arc::new(Odd { disk: disk.clone(), unreadable: name(2), excess: 0 });
    let mut queue = engine();
    let opened = open(storage, settings(4096, SyncMode::Always), &mut queue, dawn(), &mut |_| {}).expect("a log");
    let [problem] = &opened.report.problems[..] else { panic!("{:?}", opened.report.problems) };
    assert!(problem.starts_with("segment.0000000002: cannot be read: "), "{problem}");
    assert_eq!(queue.jobs().count(), 2);
    assert_eq!(disk.bytes(&name(2)), second);
}

#[test]
fn an_id_in_a_single_record_is_not_reused() {
    const GIVEN: u64 = 100_000_000;
    let change = |id: u64, count: u32| [&id.to_le_bytes()[..], &count.to_le_bytes()].concat();
    let kinds: [(u8, Vec<u8>); 4] = [
        (b'D', GIVEN.to_le_bytes().to_vec()),
        (b'R', change(GIVEN, 1)),
        (b'O', [&GIVEN.to_le_bytes()[..], b"d\0"].concat()),
        (b'E', [&change(GIVEN, 0)[..], &[0; 4], &[1, 0], b"tkey"].concat()),
    ];
    for (kind, payload) in kinds {
        let mut bytes = begin(1, 0, (0, 0));
        push(&mut bytes, 1, kind, &payload);
        assert_eq!(look(&disk(&[(1, bytes)])).last_id, GIVEN, "{}", kind as char);
    }
    let mut bytes = begin(1, 0, (0, 0));
    put(&mut bytes, 1, GIVEN);
    assert_eq!(look(&disk(&[(1, bytes.clone())])).last_id, GIVEN);
    // Damaged records may have contained higher IDs. A recovery therefore skips IDs, unless only the record of the
    // clean stop is damaged.
    let end = bytes.len() as u64;
    synced(&mut bytes, 1, (1, end));
    bytes[20] ^= 1;
    bytes[HEADER / 2 + 20] ^= 1;
    assert_eq!(look(&disk(&[(1, bytes)])).last_id, AHEAD, "without a header, no record can be read");
    let mut bytes = begin(1, 0, (0, 0));
    put(&mut bytes, 1, GIVEN);
    bytes[HEADER + 2] ^= 1;
    put(&mut bytes, 1, GIVEN + 1);
    let end = bytes.len() as u64;
    synced(&mut bytes, 1, (1, end));
    let found = look(&disk(&[(1, bytes)]));
    assert_eq!((found.last_id, found.report.problems.len()), (GIVEN + 1 + AHEAD, 1));
}

#[test]
fn impossibly_large_ids_are_ignored() {
    const LIMIT: u64 = 1 << 63;
    for (id, last) in [(LIMIT - 1, LIMIT - 1), (LIMIT, 10)] {
        for kind in [b'I', b'C', b'D'] {
            let mut bytes = begin(1, 0, (0, 0));
            push(&mut bytes, 1, kind, &id.to_le_bytes());
            let found = look(&disk(&[(1, bytes)]));
            assert_eq!((found.last_id, found.closed_cleanly), (last, kind == b'C' && id < LIMIT), "{}", kind as char);
        }
    }
}

/// Returns the number of the first segment that a server creates on this disk.
fn goes_on_in(disk: &Disk) -> u64 {
    let before = disk.names();
    start(disk, settings(4096, SyncMode::Always), dawn()).expect("a log");
    let new = disk.names().into_iter().filter(|name| !before.contains(name));
    let mut numbers = new.filter_map(|name| name.strip_prefix("segment.")?.parse().ok());
    numbers.next().expect("a new segment")
}

#[test]
fn a_log_continues_after_all_nearby_segment_numbers() {
    let one = || {
        let mut bytes = begin(1, 0, (0, 0));
        put(&mut bytes, 1, 1);
        bytes
    };
    assert_eq!(goes_on_in(&disk(&[(1, one())])), 2);
    assert_eq!(goes_on_in(&disk(&[(1, one()), (4, vec![0; 100])])), 5, "segment 4 is unused");
    for (other, next) in [(3, 4), (NEAR + 1, NEAR + 2), (NEAR + 2, 3)] {
        // Of two logs in one directory, the server recovers the log with more segments.
        let mut second = begin(2, one().len() as u64, (0, 0));
        put(&mut second, 2, 2);
        let foreign = header(Segment { log: LOG + 1, number: other }, [0, 0, 1, 0, 0, 10]);
        let disk = disk(&[(1, one()), (2, second), (other, foreign)]);
        assert_eq!(look(&disk).report.problems, [format!("{}: it does not belong to this log", name(other))]);
        assert_eq!(goes_on_in(&disk), next);
        assert!(disk.names().contains(&format!("damaged/{}", name(other))));
    }
}

#[test]
fn a_log_continues_in_the_announced_segment() {
    for is_there in [true, false] {
        let mut first = begin(1, 0, (0, 0));
        put(&mut first, 1, 1);
        push(&mut first, 1, b'N', &2u64.to_le_bytes());
        let disk = disk(&[(1, [first.clone(), vec![0; 9000]].concat())]);
        if is_there {
            disk.put_file(&name(2), vec![0; 4096]);
        }
        let (engine, journal, _, report) = start(&disk, settings(4096, SyncMode::Always), dawn()).expect("a log");
        let missing = format!("{}: it is missing", name(2));
        assert_eq!(report.problems, if is_there { vec![] } else { vec![missing] });
        assert_eq!((engine.jobs().count(), journal.stats().current), (1, 2));
        assert_eq!(disk.bytes(&name(1)), first, "the unused end must be truncated");
    }
}

/// The announced segment is missing, and a foreign file has its name.
#[test]
fn a_log_does_not_continue_in_a_foreign_segment() {
    for (is_kept, rest) in [(true, 0), (true, 9000), (false, 0), (false, 9000)] {
        let mut first = begin(1, 0, (0, 0));
        put(&mut first, 1, 1);
        let mut second = begin(2, first.len() as u64, (1, first.len() as u64));
        put(&mut second, 2, 2);
        push(&mut second, 2, b'N', &3u64.to_le_bytes());
        second.extend(vec![0; rest]);
        let foreign = header(Segment { log: LOG + 1, number: 3 }, [0, 0, 1, 0, 0, 10]);
        let disk = disk(&[(1, first), (2, second), (3, foreign.clone())]);
        if is_kept {
            disk.keep(&name(3));
        }
        let mut life = Life::begin(disk.clone(), settings(4096, SyncMode::Always), dawn(), 1).expect("a log");
        let problem = format!("{}: it does not belong to this log", name(3));
        assert_eq!(life.report.problems, std::slice::from_ref(&problem));
        let client = life.first_client();
        for _ in 0..200 {
            life.put(client, b"default", 1, Span::ZERO).expect("space for a job");
        }
        life.settle();
        assert_eq!(life.access.0.borrow().0.stats().stuck, u64::from(is_kept));
        let file = if is_kept { name(3) } else { format!("damaged/{}", name(3)) };
        assert_eq!(disk.bytes(&file), foreign);
        let found = look(&disk.kill(1)).report;
        assert_eq!((found.problems, found.progress.jobs), (if is_kept { vec![problem] } else { vec![] }, 202));
    }
}

/// A log without headers is damaged, unless its first start was interrupted.
// Tests promise P18 of beanpole-promises(7).
#[test]
fn segments_without_headers_are_damaged_or_were_never_used() {
    let how = settings(4096, SyncMode::Always);
    let beginning = begin(1, 0, (0, 0))[..50].to_vec();
    for (number, bytes) in [(1, vec![]), (1, beginning), (1, vec![0; 4096]), (5, vec![0; 4096])] {
        let problem = format!("{}: neither it nor another segment has a header", name(number));
        let new = disk(&[(number, bytes.clone())]);
        new.put_file("segment.begun", vec![]);
        if number == 1 {
            assert!(matches!(look(&new), Inspection { last_id: 0, report, .. } if report.problems == [NO_BINLOG]));
            let (engine, .., report) = start(&new, how.strictly(), dawn()).expect("a new log");
            assert_eq!((report.problems, engine.last_id()), (vec![], 0));
            assert_eq!(new.names(), [name(1)]);
        } else {
            // A first start creates only the first segment, so the file has been left or copied.
            assert_eq!(look(&new).report.problems, std::slice::from_ref(&problem));
            let strict = start(&new.kill(1), how.strictly(), dawn());
            assert!(matches!(strict, Err(OpenError::Damaged(problems)) if problems == [problem.clone()]));
            start(&new, how, dawn()).expect("a new log");
            assert!(!new.names().contains(&"segment.begun".to_owned()));
        }
        for with_unused in [false, true] {
            let lost = disk(&[(number, bytes.clone())]);
            if with_unused {
                lost.put_file(&name(number + 1), vec![0; 4096]);
            }
            assert_eq!(look(&lost).report.problems, std::slice::from_ref(&problem));
            let strict = start(&lost.kill(1), how.strictly(), dawn());
            assert!(matches!(strict, Err(OpenError::Damaged(problems)) if problems == [problem.clone()]));
            let (engine, journal, _, report) = start(&lost, how, dawn()).expect("a new log");
            assert_eq!((report.problems, journal.stats().skipped), (vec![problem.clone()], 1));
            assert!(engine.last_id() >= (dawn().nanos() / 1_000_000_000) << 20);
            assert_eq!(lost.bytes(&format!("damaged/{}", name(number))), bytes);
            let (.., report) = start(&lost.kill(1), how.strictly(), dawn()).expect("an intact log");
            assert_eq!(report.problems, Vec::<String>::new());
        }
    }
    assert_eq!(look(&disk(&[])).report.problems, [NO_BINLOG]);
}

#[test]
fn a_segment_that_ends_inside_its_header_is_damaged() {
    for length in [HEADER / 2, HEADER - 1] {
        let disk = disk(&[(1, begin(1, 0, (0, 0))[..length].to_vec())]);
        let problem = format!("{}: only its first {length} bytes are left", name(1));
        assert_eq!(look(&disk).report.problems, [problem]);
        let mut life = Life::begin(disk, settings(4096, SyncMode::Always), dawn(), 1).expect("a log");
        life.settle();
        let (.., report) =
            start(&life.disk.kill(1), settings(4096, SyncMode::Always).strictly(), dawn()).expect("a log");
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!(life.disk.bytes(&format!("damaged/{}", name(1))).len(), length);
    }
}

/// The first start is interrupted at each operation on the disk, and some second starts are too.
#[test]
fn an_interrupted_first_start_is_no_damage() {
    let how = settings(4096, SyncMode::Always);
    let mut at = 0;
    loop {
        let mut was_complete = false;
        for seed in 0..40 {
            let first = Disk::new(seed);
            first.crash_at(at);
            let started = start(&first, how, dawn()).is_ok_and(|(.., wal, _)| !wal.is_failing());
            was_complete = started && !first.has_crashed();
            let second = if seed % 2 == 0 { first.kill(seed) } else { first.power_cut(seed) };
            let again = second.kill(seed);
            again.crash_at(seed / 4);
            let _ = start(&again, how, dawn());
            for disk in [second, again.power_cut(seed)] {
                let (engine, .., report) = start(&disk, how.strictly(), dawn()).expect("a new log");
                assert_eq!(report.problems, Vec::<String>::new(), "operation {at}, seed {seed}");
                assert!(engine.last_id() < 4 << 20, "operation {at}, seed {seed}: {}", engine.last_id());
                assert!(!disk.names().contains(&"segment.begun".to_owned()));
                // From now on, an empty segment is damage.
                disk.alter(&name(1), Vec::clear);
                assert_eq!(look(&disk).report.problems.len(), 1, "operation {at}, seed {seed}");
            }
        }
        if was_complete {
            break;
        }
        at += 1;
    }
    assert_eq!(at, 5, "operations of the first start");
}

#[test]
fn a_missing_segment_is_reported_until_later_data_is_rewritten() {
    let mut third = begin(3, 500, (2, 500));
    put(&mut third, 3, 3);
    let mut first = begin(1, 0, (0, 0));
    put(&mut first, 1, 1);
    for (with_first, settles) in [(true, true), (true, false), (false, true), (false, false)] {
        let disk = disk(&[(3, third.clone())]);
        if with_first {
            disk.put_file(&name(1), first.clone());
        }
        let mut life = Life::begin(disk.clone(), settings(4096, SyncMode::Always), dawn(), 1).expect("a log");
        assert_eq!(life.report.problems, [format!("{}: it is missing", name(2))]);
        if settles {
            life.settle();
        } else {
            // The shutdown records that the missing segment is not needed.
            life.wal.maintain(&life.access, true);
            life.wal.close(&life.access, life.now);
        }
        let found = look(&disk.kill(1)).report;
        assert_eq!((found.problems, found.progress.jobs), (vec![], 1 + u64::from(with_first)));
    }
}

#[test]
fn a_copy_contains_only_readable_bytes() {
    let mut first = begin(1, 0, (0, 0));
    put(&mut first, 1, 1);
    let from = Odd { disk: disk(&[(1, first.clone())]), unreadable: String::new(), excess: 1000 };
    let copy = Disk::new(2);
    back_up(&from, &copy).expect("a copy");
    assert_eq!(copy.bytes(&name(1)), first);
    assert_eq!(copy.power_cut(1).bytes(&name(1)), first);
}

#[test]
fn a_copy_with_a_gap_has_the_announced_segment() {
    let mut first = begin(1, 0, (0, 0));
    put(&mut first, 1, 1);
    first.extend([0; 64]);
    push(&mut first, 1, b'N', &2u64.to_le_bytes());
    let copy = Disk::new(2);
    back_up(&disk(&[(1, first)]), &copy).expect("a copy");
    assert_eq!(copy.names(), [name(1), name(2)]);
}

/// Simulates a server that removes two segments while a backup copies the second segment.
struct Shrinking(Disk);

impl Storage for Shrinking {
    fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn length(&self, file: &str) -> io::Result<u64> {
        if file == name(2) {
            self.0.remove(&name(1))?;
            self.0.remove(&name(2))?;
        }
        self.0.length(file)
    }
    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(name, place, bytes)
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        self.0.create(name, size)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.0.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
}

#[test]
fn a_copy_begins_after_a_removed_segment() {
    let mut first = begin(1, 0, (0, 0));
    put(&mut first, 1, 1);
    let mut second = begin(2, first.len() as u64, (0, 0));
    push(&mut second, 2, b'D', &1u64.to_le_bytes());
    let mut third = begin(3, second.len() as u64, (0, 0));
    put(&mut third, 3, 3);
    push(&mut third, 3, b'G', &3u64.to_le_bytes());
    let copy = Disk::new(2);
    back_up(&Shrinking(disk(&[(1, first), (2, second), (3, third)])), &copy).expect("a copy");
    assert_eq!(copy.names(), [name(3)]);
    let found = look(&copy).report;
    assert_eq!((found.problems, found.progress.jobs), (vec![], 1));
}

#[test]
fn a_needed_segment_before_the_first_is_missing() {
    for (oldest, is_needed) in [(1, true), (2, true), (3, false)] {
        let third = header(Segment { log: LOG, number: 3 }, [2, 500, oldest, 2, 500, 10]);
        let missing = format!("{}: it is missing", name(2));
        let problems = look(&disk(&[(3, third)])).report.problems;
        assert_eq!(problems, if is_needed { vec![missing] } else { vec![] }, "the oldest needed segment is {oldest}");
    }
}

/// Returns the segment `number` with a damaged header. The segment contains a job, a record that names this
/// segment as the oldest segment that is needed, and another job.
fn without_header(number: u64, before: u64) -> Vec<u8> {
    let mut bytes = begin(number, before, (0, 0));
    bytes[..HEADER].fill(1);
    put(&mut bytes, number, number);
    push(&mut bytes, number, b'G', &number.to_le_bytes());
    put(&mut bytes, number, number + 1);
    bytes
}

/// The only intact header can be in a segment that is not needed but cannot be removed. Other segments were removed, so
/// the log was synced at least up to the record that permitted their removal.
// Tests promise P18 of beanpole-promises(7).
#[test]
fn a_damaged_header_after_an_unremovable_segment_loses_nothing() {
    for (kept, before, next, last) in [(1, 0, 2, 5), (4, 500, 5, 9), (4, 500, 5, 5)] {
        let mut first = begin(kept, before, (0, 0));
        put(&mut first, kept, 1);
        push(&mut first, kept, b'N', &u64::to_le_bytes(next));
        let last_bytes = without_header(last, first.len() as u64);
        let whole = disk(&[(kept, first.clone()), (last, last_bytes.clone())]);
        let header = format!("{}: bytes 0 to {HEADER}, the header, are damaged", name(last));
        let found = look(&whole).report;
        assert_eq!((&found.problems, found.progress.jobs), (&vec![header.clone()], 2), "{kept} and {last}");
        whole.alter(&name(last), |bytes| bytes[HEADER + 9] ^= 1);
        let found = look(&whole).report;
        assert_eq!((found.problems.len(), &found.problems[0], found.progress.jobs), (2, &header, 1));
        whole.keep(&name(kept));
        let mut life = Life::begin(whole.clone(), settings(4096, SyncMode::Always), dawn(), 1).expect("a log");
        life.settle();
        assert_eq!(life.access.0.borrow().0.stats().stuck, 1);
        let found = look(&whole.kill(1)).report;
        assert_eq!((found.problems, found.progress.jobs), (vec![], 1));
    }
}

/// After a disk failure, the log continued in segment 8 instead of segment 6, so a missing segment 6 does not show that
/// a segment was removed. The last write was interrupted: the jobs that it copied are missing, but not the record which
/// states that the originals are not needed.
#[test]
fn a_replaced_segment_is_no_proof_of_a_sync() {
    for is_copied in [true, false] {
        let next = |bytes: &mut Vec<u8>, number| push(bytes, number, b'N', &6u64.to_le_bytes());
        let mut third = header(Segment { log: LOG, number: 3 }, [2, 500, 3, 2, 500, 10]);
        put(&mut third, 3, 1);
        let mut fifth = header(Segment { log: LOG, number: 5 }, [3, third.len() as u64, 3, 2, 500, 10]);
        put(&mut fifth, 5, 2);
        if !is_copied {
            next(&mut fifth, 5);
        }
        let end = fifth.len() as u64;
        let mut eighth = header(Segment { log: LOG, number: 8 }, [5, end, 3, 5, end, 10]);
        if is_copied {
            next(&mut eighth, 8);
        }
        put(&mut eighth, 8, 3);
        eighth.extend([0; 100]);
        push(&mut eighth, 8, b'G', &8u64.to_le_bytes());
        let disk = disk(&[(3, third), (5, fifth), (8, eighth)]);
        let found = look(&disk).report;
        assert_eq!((found.problems, found.progress.jobs), (vec![], 3), "{is_copied}");
        assert_eq!(format::jobs(&[3, 5, 8].map(|number| (number, disk.bytes(&name(number))))).len(), 3);
    }
}

/// No segment was removed, so the last segment may be the result of an interrupted write.
#[test]
fn a_segment_without_a_header_after_its_predecessor_is_no_damage() {
    let mut first = begin(1, 0, (0, 0));
    put(&mut first, 1, 1);
    push(&mut first, 1, b'N', &2u64.to_le_bytes());
    let second = without_header(2, first.len() as u64);
    let found = look(&disk(&[(1, first), (2, second)])).report;
    assert_eq!((found.problems, found.progress.jobs), (vec![], 1));
}

/// A power failure can lose the record that ends a job, and keep the preceding record of its key.
#[test]
fn the_key_of_a_job_that_has_not_ended_is_no_key_of_an_ended_job() {
    for ended in [false, true] {
        let mut bytes = begin(1, 0, (0, 0));
        put(&mut bytes, 1, 7);
        let until = (dawn() + Span::from_secs(3600)).nanos().to_le_bytes();
        push(&mut bytes, 1, b'E', &[&7u64.to_le_bytes()[..], &until, &7u16.to_le_bytes(), b"defaultkey"].concat());
        if ended {
            push(&mut bytes, 1, b'D', &7u64.to_le_bytes());
        }
        let (engine, ..) = start(&disk(&[(1, bytes)]), settings(4096, SyncMode::Always), dawn()).expect("a log");
        assert_eq!((engine.jobs().count(), engine.ended_keys().count()), if ended { (0, 1) } else { (1, 0) });
    }
}
