//! Tests disks that fail repeatedly or at a critical moment. The replacement of a segment must not lose data.
//!
//! Covers histories that random runs rarely find: a replacement segment that also fails, a failed sync after
//! compaction, a stop during the last sync, the removal of many segments on a full disk, and foreign files.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use beanpole::internals::binlog::{back_up, inspect, Health, JournalAccess, LogFile, Storage, SyncMode};
use beanpole::internals::engine::{Body, JobId, Kick, NewJob, Progress, Span};

use crate::disk::{Disk, Operation, EIO};
use crate::driver::{dawn, engine, settings, start, Life};

fn life(disk: &Disk, segment: u64, mode: SyncMode) -> Life {
    Life::begin(disk.clone(), settings(segment, mode), dawn(), 3).expect("an empty log")
}

fn put(life: &mut Life, body: usize) -> Option<u64> {
    let client = life.first_client();
    life.wal.reserve(&life.access, body as u64 + 10);
    let body = Body::from(vec![b'x'; body]);
    life.turn(|engine, now| {
        engine.use_tube(client, b"t").expect("a tube");
        let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1000), body };
        engine.put(client, new, now).ok().map(|id| id.0)
    })
}

fn delete(life: &mut Life, id: u64) {
    let client = life.first_client();
    life.turn(|engine, now| {
        engine.delete(client, JobId(id), now);
        None
    });
}

fn bring(life: &Life) -> bool {
    life.wal.write(&life.access) && life.wal.sync(&life.access)
}

/// Returns the number of jobs recovered in strict mode.
fn found(disk: &Disk, segment: u64, mode: SyncMode, life: &Life) -> usize {
    let how = settings(segment, mode).strictly();
    let (engine, ..) = start(disk, how, life.now).unwrap_or_else(|error| panic!("{error}"));
    engine.jobs().count()
}

/// Makes the creation of a segment fail, and then also the first `failures` attempts to replace the segment. Deletes a
/// job before the last failed attempt.
fn fails_again(failures: u64) {
    const SEGMENT: u64 = 1 << 18;
    let disk = Disk::new(3);
    let mut life = life(&disk, SEGMENT, SyncMode::Always);
    let mut ids = vec![];
    disk.fail(Operation::Create, EIO, 1);
    while life.health() == Health::Ok {
        ids.extend(put(&mut life, 400));
        assert!(bring(&life) || life.health() != Health::Ok);
    }
    disk.fail(Operation::Write, EIO, failures);
    for left in (0..failures).rev() {
        if left == 0 {
            delete(&mut life, ids[0]);
        }
        life.wal.maintain(&life.access, true);
        assert_eq!(life.health(), Health::Failing);
    }
    life.wal.maintain(&life.access, true);
    assert_eq!(life.health(), Health::Ok);
    // Compaction has not copied the other jobs to the new segment yet.
    for disk in [disk.kill(1), disk.power_cut(1)] {
        assert_eq!(found(&disk, SEGMENT, SyncMode::Always, &life), ids.len() - 1, "{failures} failures");
    }
}

#[test]
fn a_failed_segment_switch_loses_nothing() {
    (1..4).for_each(fails_again);
}

#[test]
fn failed_replacement_segments_are_removed() {
    let disk = Disk::new(3);
    let mut life = life(&disk, 4096, SyncMode::Always);
    put(&mut life, 40);
    disk.fail(Operation::Write, EIO, 1000);
    assert!(!life.wal.write(&life.access));
    for _ in 0..200 {
        life.wal.maintain(&life.access, true);
    }
    assert!(disk.used("") <= 4 * 4096, "{} bytes", disk.used(""));
    let stats = life.access.0.borrow().0.stats();
    assert!(stats.lost == 0 && stats.disk <= 4 * 4096, "the server itself has removed the files: {stats:?}");
}

#[test]
fn a_prepared_segment_removed_under_the_server_is_counted() {
    let disk = Disk::new(3);
    let mut life = life(&disk, 4096, SyncMode::Always);
    while segments(&disk).len() < 2 {
        put(&mut life, 300);
        assert!(bring(&life));
        life.wal.maintain(&life.access, true);
    }
    disk.remove(&segments(&disk)[1]).expect("a removal");
    life.wal.check(&life.access);
    let stats = || life.access.0.borrow().0.stats();
    assert_eq!((life.health(), stats().lost), (Health::Failing, 1));
    life.wal.maintain(&life.access, true);
    assert_eq!((life.health(), stats().lost), (Health::Ok, 1));
}

/// Otherwise, later changes would be written to the original, which no longer has a name.
#[test]
fn a_segment_replaced_under_the_server_is_rewritten_and_set_aside() {
    let cases = [SyncMode::Always, SyncMode::Every(50), SyncMode::Never].map(|mode| [(mode, 2), (mode, 5)]);
    for (mode, number) in cases.into_iter().flatten() {
        let disk = Disk::new(3);
        let mut life = life(&disk, 4096, mode);
        let put_until = |life: &mut Life, last: u64| {
            while life.access.0.borrow().0.stats().current < last {
                put(life, 300).expect("space for a job");
                assert!(bring(life));
                life.wal.maintain(&life.access, true);
            }
        };
        put_until(&mut life, 5);
        let name = format!("segment.{number:010}");
        disk.replace(&name);
        let copy = disk.bytes(&name);
        put(&mut life, 300).expect("space for a job");
        assert!(bring(&life));
        life.wal.check(&life.access);
        let (health, last) = if number == 5 { (Health::Failing, 7) } else { (Health::Ok, 6) };
        assert_eq!((life.health(), life.access.0.borrow().0.stats().lost), (health, 1), "{mode:?}, {name}");
        life.wal.maintain(&life.access, true);
        put_until(&mut life, last);
        life.settle();
        assert_eq!((life.health(), disk.bytes(&format!("damaged/{name}"))), (Health::Ok, copy), "{mode:?}, {name}");
        let jobs = life.access.0.borrow().1.jobs().count();
        for disk in [disk.kill(1), disk.power_cut(1)] {
            assert_eq!(found(&disk, 4096, mode, &life), jobs, "{mode:?}, {name}");
        }
    }
}

#[test]
fn a_stop_during_the_last_sync_is_not_damage() {
    for seed in 0..200 {
        let disk = Disk::new(seed);
        let mut life = life(&disk, 1 << 16, SyncMode::Never);
        for _ in 0..60 {
            put(&mut life, 300);
            life.wal.write(&life.access);
        }
        disk.crash_at(disk.operations() + seed % 4);
        life.wal.close(&life.access, life.now);
        found(&disk.power_cut(seed), 1 << 16, SyncMode::Never, &life);
    }
}

/// The shutdown record states that everything before it is synced. It must not be written together with the record that
/// a segment is not needed: a power failure could lose the sector with that record, but not the next sector.
#[test]
fn a_stop_while_the_shutdown_gives_up_a_segment_is_not_damage() {
    const SEGMENT: u64 = 4096;
    let how = settings(SEGMENT, SyncMode::Never);
    let disk = Disk::new(1);
    let mut first = life(&disk, SEGMENT, SyncMode::Never);
    let mut jobs = 0;
    while first.access.0.borrow().0.stats().current < 3 {
        jobs += usize::from(put(&mut first, 300).is_some_and(|_| bring(&first)));
        first.wal.maintain(&first.access, true);
    }
    first.wal.close(&first.access, first.now);
    let oldest = |disk: &Disk| start(&disk.kill(1), how, first.now).expect("a log").1.stats().oldest;
    // The length of a job determines how the last records are distributed over sectors.
    for (length, operations) in (0..512).step_by(16).flat_map(|length| (0..10).map(move |count| (length, count))) {
        let disk = disk.kill(1);
        let mut life = Life::begin(disk.clone(), how, first.now, 1).expect("a log");
        put(&mut life, length).expect("space for a job");
        life.access.0.borrow_mut().0.evacuate_oldest();
        for _ in 0..9 {
            if life.access.0.borrow().0.stats().oldest == 1 {
                life.wal.maintain(&life.access, true);
            }
        }
        life.wal.write(&life.access);
        assert_eq!(oldest(&disk), 1, "the first segment must be recorded as needed until the shutdown");
        disk.crash_at(disk.operations() + operations);
        life.wal.close(&life.access, life.now);
        if !disk.has_crashed() {
            assert!(oldest(&disk) > 1, "the shutdown must record that the first segment is not needed");
            continue;
        }
        for seed in 0..60 {
            assert!(found(&disk.power_cut(seed), SEGMENT, SyncMode::Never, &life) >= jobs, "{length}, {seed}");
        }
    }
}

#[test]
fn without_syncs_segments_stay_until_their_copies_are_durable() {
    for seed in 1..9 {
        [2, 3, u64::MAX].into_iter().for_each(|operations| without_syncs(seed, operations));
    }
}

/// The failed sync loses a random part of the copies. The power fails after `operations` operations of the recovery.
fn without_syncs(seed: u64, operations: u64) {
    const SEGMENT: u64 = 1 << 16;
    let disk = Disk::new(seed);
    let mut life = life(&disk, SEGMENT, SyncMode::Never);
    let mut ids = vec![];
    for _ in 0..600 {
        ids.extend(put(&mut life, 300));
        assert!(life.wal.write(&life.access));
        life.wal.sync(&life.access);
        life.wal.maintain(&life.access, true);
    }
    // These jobs are not deleted, and are in segments that were synced before the failure below.
    let kept: Vec<u64> = ids.iter().copied().filter(|id| id % 4 == 0 && *id < 190).collect();
    for id in ids.iter().copied().filter(|id| id % 4 != 0 && *id < 580) {
        delete(&mut life, id);
    }
    {
        let (journal, engine) = &mut *life.access.0.borrow_mut();
        journal.evacuate_oldest();
        while journal.compact(engine) {}
    }
    life.wal.write(&life.access);
    disk.fail(Operation::Sync, EIO, 1);
    assert!(!life.wal.sync(&life.access));
    disk.crash_at(operations.saturating_add(disk.operations()));
    life.wal.maintain(&life.access, true);
    assert!(life.health() == Health::Ok || disk.has_crashed());
    for cut in 0..12 {
        let disk = disk.power_cut(cut);
        let (engine, ..) = start(&disk, settings(SEGMENT, SyncMode::Never), life.now).expect("a log");
        let missing = kept.iter().filter(|id| engine.any_job(JobId(**id)).is_none()).count();
        assert_eq!(missing, 0, "seed {seed}, {operations} operations, cut {cut}");
    }
    if disk.has_crashed() {
        return;
    }
    disk.crash_at(u64::MAX);
    (0..3).for_each(|_| life.settle());
    let stats = life.access.0.borrow().0.stats();
    assert!(stats.disk <= 2 * stats.live + 2 * SEGMENT, "the log must shrink to its bound: {stats:?}");
}

/// Returns the names of the segments, oldest first.
fn segments(disk: &Disk) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.starts_with("segment.")).collect()
}

/// If a segment is missing, the server copies its jobs and those of older segments. A power failure that loses a part
/// of these copies must not make the older segments unneeded.
#[test]
fn a_power_cut_after_a_segment_was_removed_under_the_server_loses_no_other_segment() {
    const SEGMENT: u64 = 4096;
    for (mode, under_server) in [SyncMode::Always, SyncMode::Never].into_iter().flat_map(|it| [(it, true), (it, false)])
    {
        let mut disk = Disk::new(7);
        let mut life = life(&disk, SEGMENT, mode);
        let mut kept = vec![];
        while life.access.0.borrow().0.stats().current < 5 {
            let id = put(&mut life, 300).expect("space for a job");
            kept.extend((life.access.0.borrow().0.stats().current != 3).then_some(id));
            assert!(bring(&life));
            life.wal.maintain(&life.access, true);
        }
        life.wal.close(&life.access, life.now);
        let third = &segments(&disk)[2];
        if under_server {
            disk.remove(third).expect("a removal");
            life.wal.check(&life.access);
        } else {
            disk = disk.kill(1);
            disk.remove(third).expect("a removal");
            life = Life::begin(disk.clone(), settings(SEGMENT, mode), life.now, 1).expect("a log");
            assert_eq!(life.report.problems.len(), 1);
        }
        let mut rounds = 0;
        while segments(&disk)[0] <= *third {
            (_, rounds) = (life.wal.maintain(&life.access, true), rounds + 1);
            assert!(rounds < 20, "the old segments must be removed");
            assert!(life.wal.write(&life.access));
            for seed in 0..60 {
                let (engine, ..) = start(&disk.power_cut(seed), settings(SEGMENT, mode), life.now).expect("a log");
                let missing = kept.iter().filter(|id| engine.any_job(JobId(**id)).is_none()).count();
                assert_eq!(missing, 0, "{mode:?}, round {rounds}, cut {seed}");
            }
            assert!(life.wal.sync(&life.access));
        }
    }
}

/// Before the server has detected that a segment was removed, it compacts the log, and the power fails.
#[test]
fn an_undetected_removal_of_a_segment_loses_no_other_segment() {
    const SEGMENT: u64 = 4096;
    for mode in [SyncMode::Always, SyncMode::Every(50), SyncMode::Never] {
        for operations in 0..12 {
            let disk = Disk::new(7);
            let mut life = life(&disk, SEGMENT, mode);
            let (mut ids, mut kept) = (vec![], vec![]);
            while life.access.0.borrow().0.stats().current < 12 {
                let id = put(&mut life, 300).expect("space for a job");
                let segment = life.access.0.borrow().0.stats().current;
                ids.push(id);
                kept.extend((id % 4 == 0 && segment != 2).then_some(id));
                assert!(bring(&life));
            }
            assert_eq!(life.access.0.borrow().0.stats().oldest, 1, "no segment may have been compacted");
            let client = life.first_client();
            life.access.with(|journal, engine| {
                let mut deleted = ids.iter().filter(|id| *id % 4 != 0);
                assert!(deleted.all(|id| engine.delete(client, JobId(*id), dawn())));
                journal.append(engine)
            });
            life.wal.close(&life.access, life.now);
            disk.remove(&segments(&disk)[1]).expect("a removal");
            disk.crash_in(operations);
            for _ in 0..4 {
                life.wal.maintain(&life.access, true);
                life.wal.write(&life.access);
                life.wal.sync(&life.access);
            }
            for seed in 0..40 {
                let (engine, ..) = start(&disk.power_cut(seed), settings(SEGMENT, mode), life.now).expect("a log");
                let missing = kept.iter().filter(|id| engine.any_job(JobId(**id)).is_none()).count();
                assert_eq!(missing, 0, "{mode:?}, {operations} operations, cut {seed}");
            }
        }
    }
}

#[test]
fn many_segments_can_be_removed_on_a_full_disk() {
    for (seed, size) in [(2, 1000_u64), (5, 2048), (3, 4096)] {
        let disk = Disk::new(seed);
        let mut life = Life::begin(disk.clone(), settings(size, SyncMode::Always), dawn(), seed).expect("an empty log");
        let client = life.first_client();
        for _ in 0..size / 4 {
            life.put(client, b"later", 1, Span::from_secs(10_000)).expect("space for a job");
            life.settle();
        }
        disk.set_capacity(disk.used(""));
        // The segment size, which is larger than `size` if there are many jobs.
        let segment = life.access.0.borrow().0.wanted_size();
        let (mut kick, mut progress) = (Kick::new(u64::MAX), Progress::More);
        while progress == Progress::More {
            life.wal.reserve(&life.access, 50);
            life.turn(|engine, now| {
                progress = engine.kick(client, &mut kick, now);
                None
            });
        }
        life.settle();
        // The jobs of the oldest segment are deleted last.
        for id in life.model.ids().into_iter().rev() {
            delete(&mut life, id);
            life.settle();
            assert_ne!(life.health(), Health::Failing, "segments of {size}");
        }
        (0..5).for_each(|_| life.settle());
        assert_eq!(life.health(), Health::Ok);
        assert!(disk.used("") <= 3 * segment, "{} bytes", disk.used(""));
    }
}

/// Compaction must work even if the disk has space for only a part of a segment, and the oldest segment contains live
/// jobs.
#[test]
fn a_full_disk_is_compacted_into_a_small_segment() {
    let segment = 16 * 1024;
    for kept in [8, 10, 12] {
        let disk = Disk::new(kept);
        let mut life =
            Life::begin(disk.clone(), settings(segment, SyncMode::Always), dawn(), kept).expect("an empty log");
        let client = life.first_client();
        disk.set_capacity(disk.used("") + 5 * segment + segment * 3 / 4);
        let body = vec![b'f'; segment as usize / 20];
        while life.health() == Health::Ok {
            let _ = life.put(client, &body, 1, Span::ZERO);
            life.settle();
        }
        let jobs = life.model.ids();
        for &id in &jobs[kept as usize..] {
            delete(&mut life, id);
        }
        (0..20).for_each(|_| life.settle());
        assert_eq!(life.health(), Health::Ok, "{kept} of {} jobs left, {} bytes used", jobs.len(), disk.used(""));
        life.put(client, &body, 1, Span::ZERO).expect("space for a job");
    }
}

#[test]
fn a_file_with_a_distant_number_is_ignored() {
    let disk = Disk::new(1);
    let mut first = life(&disk, 4096, SyncMode::Always);
    put(&mut first, 100);
    first.settle();
    first.wal.close(&first.access, first.now);
    let disk = disk.kill(1);
    disk.put_file("segment.2147483647", vec![]);
    let mut life = Life::begin(disk.clone(), settings(4096, SyncMode::Always), first.now, 1).expect("a log");
    let count = 1 + (0..100).filter(|_| put(&mut life, 200).is_some_and(|_| bring(&life))).count();
    assert_eq!(found(&disk.kill(1), 4096, SyncMode::Always, &life), count);
}

/// Shows the contents of `early` until the first read at an offset of at least `border`. This read and all later reads
/// return the contents of `late`.
struct Grows {
    early: Disk,
    late: Disk,
    border: u64,
    is_late: AtomicBool,
}

impl Storage for Grows {
    fn lock(&self) -> io::Result<()> {
        Ok(())
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.early.list()
    }
    fn length(&self, name: &str) -> io::Result<u64> {
        self.early.length(name)
    }
    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.is_late.fetch_or(place >= self.border, Ordering::SeqCst);
        let disk = if self.is_late.load(Ordering::SeqCst) { &self.late } else { &self.early };
        disk.read_at(name, place, bytes)
    }
    fn create(&self, _: &str, _: u64) -> io::Result<Arc<dyn LogFile>> {
        unreachable!("a backup must not change its source")
    }
    fn open(&self, _: &str) -> io::Result<Arc<dyn LogFile>> {
        unreachable!("a backup must not change its source")
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        unreachable!("a backup must not change its source")
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        unreachable!("a backup must not change its source")
    }
}

#[test]
fn a_copy_of_a_growing_segment_has_no_gaps() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 4 << 20, SyncMode::Always);
    for _ in 0..103 {
        put(&mut life, 10_000);
        assert!(bring(&life));
    }
    let early = disk.kill(1);
    for _ in 0..60 {
        put(&mut life, 1_000);
        assert!(bring(&life));
    }
    let from = Grows { early, late: disk.kill(1), border: 1 << 20, is_late: AtomicBool::new(false) };
    let copy = Disk::new(2);
    back_up(&from, &copy).expect("a copy");
    let inspected = inspect(&copy, &mut engine(), None).expect("a log");
    assert_eq!(inspected.report.problems, Vec::<String>::new());
    assert!(inspected.report.progress.jobs >= 103);
}

/// The server copies the data of a segment to later segments before it removes the segment. Without a sync before the
/// removal, a power failure could lose the copy.
#[test]
fn a_power_cut_after_a_start_removed_segments_loses_nothing() {
    let mut removed = 0;
    for seed in 0..60 {
        let modes = [SyncMode::Never, SyncMode::Every(50)];
        let how = settings([512, 1500, 4096][seed as usize % 3], modes[seed as usize / 3 % 2]);
        let disk = Disk::new(seed);
        let mut life = Life::begin(disk.clone(), how, dawn(), seed).expect("an empty log");
        (0..20 + seed).for_each(|_| life.step());
        life.leaves_syncs = true;
        (0..60).for_each(|_| life.step());
        let killed = disk.kill(seed);
        let before = segments(&killed);
        let whole = killed.kill(seed);
        start(&whole, how, life.now).expect("a start");
        for point in 0..whole.operations() {
            let disk = killed.kill(seed);
            disk.crash_at(point);
            let _ = start(&disk, how, life.now);
            let after = segments(&disk);
            // Counts only starts that removed at least one of the two oldest segments. The server first removes the
            // prepared, unused segments, which are newer than all segments with data.
            if before.first() == after.first() && before.get(1).is_none_or(|second| after.contains(second)) {
                continue;
            }
            removed += 1;
            let disk = disk.without_last_removal().power_cut(seed ^ point << 8);
            let (engine, ..) = start(&disk, how, life.now).expect("a start");
            let found = life.model.compare(&engine, life.now);
            found.unwrap_or_else(|error| panic!("seed {seed} point {point}: {error}"));
        }
    }
    assert!(removed > 50, "only {removed} starts had removed a segment");
}
