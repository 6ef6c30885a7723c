//! Tests specific histories that random runs find too rarely.
//!
//! Contains one test for each past or potential defect that needs a particular sequence of events.

use std::time::Duration;

use beanpole::internals::binlog::{Health, JournalAccess, SyncMode};
use beanpole::internals::engine::{Body, CompletionPolicy, JobId, JobOptions, NewJob, Span};

use crate::disk::{Disk, Operation, EIO, ENOSPC};
use crate::driver::{dawn, settings, start, Life};
use crate::format::{header, Segment, HEADER};

fn life(disk: &Disk, segment: u64) -> Life {
    let mut life = Life::begin(disk.clone(), settings(segment, SyncMode::Always), dawn(), 1).expect("a log");
    life.settle();
    life
}

fn pause(life: &mut Life, tube: &[u8]) {
    let client = life.first_client();
    life.turn(|engine, now| {
        engine.use_tube(client, tube).expect("a tube");
        assert!(engine.pause(tube, Span::from_secs(1000), now));
        None
    });
}

fn use_default(life: &mut Life) {
    let client = life.first_client();
    life.turn(|engine, _| {
        engine.use_tube(client, b"default").expect("a tube");
        None
    });
}

fn is_paused(disk: &Disk, tube: &[u8]) -> bool {
    let (engine, ..) = start(disk, settings(4096, SyncMode::Always), dawn()).expect("a log");
    engine.tube_pause(tube).is_some()
}

/// Puts jobs that remain, so that the first segment cannot be removed.
fn keep(life: &mut Life) {
    let client = life.first_client();
    for _ in 0..40 {
        life.put(client, b"default", 1, Span::ZERO).expect("space for a job");
    }
}

#[test]
fn a_pause_ends_with_its_tube() {
    for restart in [false, true] {
        let disk = Disk::new(1);
        let mut first = life(&disk, 4096);
        keep(&mut first);
        pause(&mut first, b"closed");
        if restart {
            // No client uses the tube when the server restarts.
            first.settle();
            first = life(&disk, 4096);
        } else {
            use_default(&mut first);
        }
        let client = first.first_client();
        first.put(client, b"closed", 1, Span::ZERO).expect("space for a job");
        first.settle();
        assert!(!is_paused(&disk.power_cut(1), b"closed"), "restart {restart}");
    }
}

#[test]
fn a_pause_lasts_while_its_tube_contains_jobs() {
    let disk = Disk::new(1);
    let mut first = life(&disk, 4096);
    let client = first.first_client();
    first.put(client, b"open", 1, Span::ZERO).expect("space for a job");
    pause(&mut first, b"open");
    first.settle();
    assert!(is_paused(&disk.power_cut(1), b"open"));
    assert!(is_paused(&disk.power_cut(2), b"open"));
}

/// Puts jobs, deletes them all, and returns the last ID. Without other jobs, no segment then contains a live job.
fn put_and_delete(life: &mut Life, count: u64) -> u64 {
    let client = life.first_client();
    let ids: Vec<u64> = (0..count).map(|_| life.put(client, b"t", 1, Span::ZERO).expect("space for a job")).collect();
    assert!(life.wal.write(&life.access) && life.wal.sync(&life.access));
    for id in &ids {
        life.turn(|engine, now| {
            assert!(engine.delete(client, JobId(*id), now));
            None
        });
    }
    assert!(life.wal.write(&life.access) && life.wal.sync(&life.access));
    ids[ids.len() - 1]
}

#[test]
fn a_damaged_header_does_not_cause_reused_ids() {
    let mut checked = 0;
    for count in 1..60 {
        let disk = Disk::new(1);
        let mut first = life(&disk, 512);
        let last = put_and_delete(&mut first, count);
        first.settle();
        // The current segment usually contains the record of a delete.
        let current = format!("segment.{:010}", first.access.0.borrow().0.stats().current);
        let disk = disk.kill(1);
        let mut deletes = false;
        disk.alter(&current, |bytes| {
            // Overwrites the segment number in both copies of the header.
            [20..28, 116..124].into_iter().for_each(|number| bytes[number].fill(0xff));
            deletes = bytes[HEADER..].iter().any(|&byte| byte != 0);
        });
        let (engine, ..) = start(&disk, settings(512, SyncMode::Always), dawn()).expect("a log");
        assert!(!deletes || engine.last_id() >= last, "{} of {last}", engine.last_id());
        checked += usize::from(deletes);
    }
    assert!(checked > 30, "only {checked} segments contained records");
}

#[test]
fn ids_are_not_reused_when_no_header_can_be_read() {
    let mut disk = Disk::new(1);
    let mut last = 0;
    for round in 0..6 {
        let mut first = Life::begin(disk.clone(), settings(512, SyncMode::Always), dawn() + Span::from_secs(round), 1)
            .expect("a log");
        let ids = first.access.0.borrow().1.last_id();
        assert!(ids >= last, "round {round}: {ids} is less than {last}");
        last = put_and_delete(&mut first, 40);
        disk = disk.kill(1);
        let names: Vec<String> = disk.names().into_iter().filter(|name| name.starts_with("segment.")).collect();
        let damage = |bytes: &mut Vec<u8>| if round < 4 { bytes[..HEADER].fill(0xff) } else { bytes.fill(0) };
        names.iter().for_each(|name| disk.alter(name, damage));
    }
}

#[test]
fn an_unremovable_file_without_a_header_does_not_prevent_the_start() {
    let (disk, name) = (Disk::new(1), "segment.0000000001");
    disk.put_file(name, vec![0; 4096]);
    disk.keep(name);
    let mut life = Life::begin(disk.clone(), settings(4096, SyncMode::Always), dawn(), 1).expect("a log");
    put_and_delete(&mut life, 100);
    let (engine, ..) = start(&disk.kill(1), settings(4096, SyncMode::Always), dawn()).expect("a log");
    assert_eq!((life.access.0.borrow().0.stats().stuck, engine.stats().jobs.all()), (1, 0));
}

/// The files must not be mistaken for the log even when the log has fewer segments than there are foreign files.
#[test]
fn immovable_foreign_segments_are_ignored_and_reported() {
    let how = settings(512, SyncMode::Always);
    let mut disk = Disk::new(1);
    let mut first = life(&disk, 512);
    keep(&mut first);
    first.settle();
    let newest = first.access.0.borrow().0.stats().current;
    disk = disk.kill(1);
    let foreign: Vec<u64> = (newest + 10..newest + 16).collect();
    let name = |number: u64| format!("segment.{number:010}");
    for &number in &foreign {
        disk.put_file(&name(number), header(Segment { log: 77, number }, [0, 0, 1, 0, 0, 10]));
        disk.keep(&name(number));
    }
    let expected: Vec<String> =
        foreign.iter().map(|it| format!("{}: it does not belong to this log", name(*it))).collect();
    let mut jobs = 40;
    for round in 0..3 {
        let mut life = Life::begin(disk.clone(), how, dawn(), 1).unwrap_or_else(|error| panic!("{round}: {error}"));
        let stats = |life: &Life| life.access.0.borrow().0.stats();
        assert_eq!((&life.report.problems, stats(&life).stuck), (&expected, 6), "round {round}");
        assert_eq!(life.model.ids().len(), jobs, "round {round}");
        life.model.ids().into_iter().skip(1).for_each(|id| life.delete(id));
        put_and_delete(&mut life, 100);
        life.settle();
        jobs = 1;
        assert!(stats(&life).current > newest + 16 && stats(&life).stuck == 6, "a name must not be reused");
        assert!(foreign.iter().all(|number| disk.names().contains(&name(*number))));
        let own = disk.names().iter().filter(|name| name.starts_with("segment.")).count() - foreign.len();
        assert!(own < foreign.len(), "round {round}: the log has {own} segments");
        if round == 2 {
            disk.heal();
            life.settle();
            assert_eq!(stats(&life).stuck, 0);
            assert!(foreign.iter().all(|number| disk.names().contains(&format!("damaged/{}", name(*number)))));
        }
        disk = disk.kill(round);
    }
    let (engine, _, _, report) = start(&disk, how, dawn()).expect("a log");
    assert_eq!((engine.stats().jobs.all(), report.problems), (1, vec![]));
}

#[test]
fn segments_are_removed_from_the_oldest_on() {
    for point in 0..200 {
        let disk = Disk::new(1);
        let mut first = life(&disk, 512);
        put_and_delete(&mut first, 40);
        disk.crash_at(disk.operations() + point);
        first.settle();
        let (engine, ..) = start(&disk.power_cut(point), settings(512, SyncMode::Always), dawn()).expect("a log");
        assert_eq!(engine.stats().jobs.all(), 0, "point {point}: deleted jobs reappeared");
    }
}

/// Puts a job, but does not write its record to the disk. A worker may nevertheless have received the job's ID.
fn put_unseen(life: &mut Life) -> u64 {
    let client = life.first_client();
    life.put(client, b"t", 1, Span::ZERO).expect("space for a job")
}

fn last_id(disk: &Disk) -> u64 {
    let (engine, ..) = start(disk, settings(512, SyncMode::Always), dawn()).expect("a log");
    engine.last_id()
}

// Tests promise P4 of beanpole-promises(7).
#[test]
fn an_id_seen_only_by_a_worker_is_not_reused_after_interrupted_starts() {
    for point in 0..30 {
        for power in [false, true] {
            let disk = Disk::new(1);
            let mut first = life(&disk, 512);
            let id = put_unseen(&mut first);
            let second = disk.kill(1);
            second.crash_at(point);
            let _ = start(&second, settings(512, SyncMode::Always), dawn());
            let third = if power { second.power_cut(point) } else { second.kill(point) };
            assert!(last_id(&third) >= id, "point {point}, power {power}: ID {id} was reused");
        }
    }
}

#[test]
fn an_id_seen_only_by_a_worker_is_not_reused_after_a_power_cut_between_segments() {
    for point in 0..12 {
        for seed in 0..10 {
            let disk = Disk::new(1);
            let mut first = life(&disk, 512);
            let mut id = 0;
            while first.access.0.borrow().0.stats().current == 1 {
                id = put_unseen(&mut first);
            }
            disk.crash_at(disk.operations() + point);
            first.settle();
            assert!(last_id(&disk.power_cut(seed)) >= id, "point {point}: ID {id} was reused");
        }
    }
}

#[test]
fn an_id_seen_only_by_a_worker_is_not_reused_after_a_completely_full_segment() {
    let mut nearly = 0;
    for length in 0..17 {
        for deletes in 10..=16 {
            let disk = Disk::new(1);
            let mut first = life(&disk, 1024);
            let client = first.first_client();
            for place in 0..16 {
                let body = Body::from(vec![b'x'; if place == 0 { 185 + length } else { 0 }]);
                let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1), body };
                first.wal.reserve(&first.access, 200);
                first.turn(|engine, now| engine.put(client, new, now).ok().map(|id| id.0)).expect("space for a job");
            }
            for id in 1..=deletes {
                first.turn(|engine, now| {
                    assert!(engine.delete(client, JobId(id), now));
                    None
                });
            }
            assert!(first.wal.write(&first.access) && first.wal.sync(&first.access));
            // The record of a delete ends with the job ID, whose last bytes are zero.
            let end = disk.bytes("segment.0000000001").iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 8);
            nearly += u64::from((1024 - 17..=1024).contains(&end));
            let id = put_unseen(&mut first);
            assert!(last_id(&disk.kill(1)) >= id, "ID {id} was reused: {length} bytes, {deletes} deletes");
        }
    }
    assert!(nearly >= 17, "only {nearly} segments were nearly full");
}

#[test]
fn an_id_seen_only_by_a_worker_is_not_reused_after_a_segment_grew() {
    for mode in [SyncMode::Always, SyncMode::Never] {
        let disk = Disk::new(1);
        let mut first = Life::begin(disk.clone(), settings(512, mode), dawn(), 1).expect("a log");
        first.settle();
        keep(&mut first);
        // After this failure, the log writes all later changes to one new segment.
        disk.fail(Operation::Write, EIO, 1);
        assert!(!first.wal.write(&first.access));
        first.wal.maintain(&first.access, true);
        assert_eq!(first.health(), Health::Ok);
        assert!(disk.names().iter().any(|name| disk.bytes(name).len() > 512), "a segment must have grown");
        let id = put_unseen(&mut first);
        assert!(last_id(&disk.kill(1)) >= id, "ID {id} was reused");
    }
}

#[test]
fn a_job_released_with_a_delay_is_recovered_as_delayed() {
    let disk = Disk::new(1);
    let how = settings(4096, SyncMode::Always);
    let mut life = Life::begin(disk.clone(), how, dawn(), 1).expect("an empty log");
    let client = life.first_client();
    let job = JobId(life.put(client, b"default", 1, Span::ZERO).expect("space for a job"));
    life.turn(|engine, now| {
        engine.reserve_job(client, job, now);
        assert!(engine.release(client, job, 1, Span::from_secs(100), now));
        None
    });
    life.settle();
    let (engine, ..) = start(&disk.power_cut(1), how, life.now).expect("a log");
    assert_eq!(engine.any_job(job).expect("a job").state(), beanpole::internals::engine::State::Delayed);
}

/// The record of a clean stop declares everything before it durable. In every mode, the server must therefore sync
/// before it writes this record.
#[test]
fn a_clean_stop_syncs_everything() {
    for mode in [SyncMode::Always, SyncMode::Every(60_000), SyncMode::Never] {
        let disk = Disk::new(1);
        let mut life = Life::begin(disk.clone(), settings(4096, mode), dawn(), 1).expect("an empty log");
        keep(&mut life);
        life.wal.close(&life.access, life.now);
        let (engine, ..) = start(&disk.power_cut(1), settings(4096, mode), dawn()).expect("a log");
        assert_eq!(engine.stats().jobs.all(), 40, "{mode:?}");
    }
}

fn put_one(life: &mut Life, body: usize) {
    let client = life.first_client();
    life.wal.reserve(&life.access, body as u64 + 10);
    let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1), body: Body::from(vec![b'x'; body]) };
    life.turn(|engine, now| engine.put(client, new, now).ok().map(|id| id.0)).expect("space for a job");
}

#[test]
fn pool_threads_write_small_amounts_to_a_fast_disk() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 8 << 20);
    let prompt = |life: &Life| (life.wal.write_promptly(&life.access), life.wal.sync_promptly(&life.access));
    put_one(&mut life, 10);
    assert_eq!((prompt(&life), life.wal.is_slow()), ((true, true), false));
    assert_eq!(life.wal.durable(), life.access.0.borrow().0.position);
    // The log's threads execute large writes. A slow large write does not show that the disk is slow.
    put_one(&mut life, 2 << 20);
    assert!(!life.wal.write_promptly(&life.access) && life.wal.write(&life.access));
    assert!(life.wal.durable() < life.access.0.borrow().0.position);
    assert_eq!(prompt(&life), (true, true));
    disk.slow_down(Duration::from_millis(10));
    for _ in 0..3 {
        put_one(&mut life, 10);
        assert!(life.wal.write(&life.access) && life.wal.sync(&life.access));
    }
    put_one(&mut life, 10);
    assert_eq!((prompt(&life), life.wal.is_slow()), ((false, false), true));
    // On a slow disk, the log's threads execute the writes, and so detect that the disk is fast again.
    disk.slow_down(Duration::ZERO);
    for _ in 0..10 {
        put_one(&mut life, 10);
        assert!(life.wal.write(&life.access) && life.wal.sync(&life.access));
    }
    put_one(&mut life, 10);
    assert_eq!((prompt(&life), life.wal.is_slow()), ((true, true), false));
}

#[test]
fn an_unremovable_segment_is_logged_once() {
    use crate::lines;
    let disk = Disk::new(1);
    let mut life = life(&disk, 512);
    for round in 0..2 {
        put_and_delete(&mut life, 40);
        disk.fail(Operation::Remove, EIO, u64::MAX);
        lines::forget();
        put_and_delete(&mut life, 8);
        life.settle();
        life.settle();
        let captured = lines::captured();
        assert_eq!(
            captured.iter().filter(|line| line.contains(": cannot be removed: ")).count(),
            1,
            "{round}: {captured:?}"
        );
        disk.heal();
        life.settle();
    }
}

// Tests promise P20 of beanpole-promises(7).
#[test]
fn an_unremovable_segment_blocks_no_other_and_its_jobs_stay_deleted() {
    const SIZE: u64 = 4096;
    for mode in [SyncMode::Always, SyncMode::Every(50), SyncMode::Never] {
        let disk = Disk::new(1);
        let mut life = Life::begin(disk.clone(), settings(SIZE, mode), dawn(), 1).expect("a log");
        life.largest = 100;
        life.settle();
        let stats = |life: &Life| life.access.0.borrow().0.stats();
        let name = format!("segment.{:010}", stats(&life).current);
        assert!(disk.names().contains(&name), "{name}: {:?}", disk.names());
        disk.keep(&name);
        for round in 0..10 {
            put_and_delete(&mut life, 100);
            life.settle();
            let (now, kept) = (stats(&life), disk.used(&name));
            assert_eq!((now.stuck, now.disk), (1, disk.used("segment.")), "{mode:?} {round}: {now:?}");
            assert!(now.disk - kept <= 2 * now.live + 2 * SIZE, "{mode:?} {round}: {now:?}");
        }
        let cut = (mode == SyncMode::Always).then(|| disk.power_cut(1));
        for after in cut.into_iter().chain([disk.kill(1)]) {
            // On `after`, the file becomes removable while a server runs; on the copy `third`, while no server runs.
            let mut second = Life::begin(after.clone(), settings(SIZE, mode), dawn(), 1).expect("a log");
            assert_eq!((second.health(), stats(&second).stuck), (Health::Ok, 1), "{mode:?}");
            assert_eq!((second.access.0.borrow().1.stats().jobs.ready, &second.report.problems), (0, &Vec::new()));
            put_and_delete(&mut second, 100);
            second.settle();
            assert!(after.names().contains(&name) && stats(&second).stuck == 1);
            let third = after.kill(1);
            after.heal();
            second.settle();
            assert!(!after.names().contains(&name) && stats(&second).stuck == 0);
            let after = third;
            after.heal();
            assert!(after.names().contains(&name));
            let (engine, _, _, report) = start(&after, settings(SIZE, mode), dawn()).expect("a log");
            assert_eq!((engine.stats().jobs.ready, report.problems), (0, Vec::new()), "{mode:?}");
            assert!(!after.names().contains(&name));
        }
        disk.heal();
        put_and_delete(&mut life, 100);
        life.settle();
        assert_eq!((stats(&life).stuck, stats(&life).disk), (0, disk.used("segment.")), "{mode:?}");
        assert!(!disk.names().contains(&name));
    }
}

/// If the log has durably reserved too few IDs, a sync provides more IDs. Additional segments would not.
#[test]
fn a_lack_of_ids_creates_no_segments() {
    let disk = Disk::new(1);
    let life = life(&disk, 65_536);
    let (client, used) = (life.first_client(), disk.used(""));
    disk.set_capacity(used + 65_536 * 10);
    let options = || JobOptions { completion: CompletionPolicy::Tell, durable: false, ..JobOptions::default() };
    let new = || NewJob { pri: 1, delay: Span::ZERO, ttr: Span::MAX, body: Body::from(vec![]) };
    life.access.with(|journal, engine| {
        engine.set_log_room(journal.engine_room());
        while let Ok(submitted) = engine.submit(client, b"default", new(), options(), dawn()) {
            engine.cancel(submitted.id, dawn());
            journal.append(engine);
        }
        assert!(journal.is_short(0));
    });
    life.wal.reserve(&life.access, 1);
    assert!(!life.access.0.borrow().0.is_short(1) && !life.wal.is_full());
    assert!(disk.used("") <= used + 65_536, "{} bytes used, {used} before", disk.used(""));
}

/// Reserves and releases a job. Writes the records, but does not sync them.
fn reserve_unsynced(life: &mut Life, id: JobId) {
    let (client, now) = (life.first_client(), life.now);
    life.access.with(|journal, engine| {
        engine.reserve_job(client, id, now);
        engine.release(client, id, 1, Span::ZERO, now);
        while engine.take_event().is_some() {}
        journal.append(engine);
        journal.compact(engine)
    });
    assert!(life.wal.write(&life.access));
    // Runs maintenance only while the first segment is the current one. Later, maintenance would sync the log in order
    // to remove the first segment.
    if life.access.0.borrow().0.stats().current == 1 {
        life.wal.maintain(&life.access, true);
    }
}

/// A power failure can undo a removal. If the removed segment reappeared with damage, recovery would ignore later
/// changes.
#[test]
fn an_unsynced_segment_of_an_earlier_process_is_synced_before_its_removal() {
    let (how, name, mut checked) = (settings(1024, SyncMode::Always), "segment.0000000001", 0);
    for count in 0..40 {
        let disk = Disk::new(1);
        let mut first = life(&disk, 1024);
        let id = JobId(put_unseen(&mut first));
        assert!(first.wal.write(&first.access) && first.wal.sync(&first.access));
        (0..count).for_each(|_| reserve_unsynced(&mut first, id));
        let disk = disk.kill(1);
        disk.keep(name);
        // The next start cannot create a segment, and the last segment may lack space for the records of the start.
        disk.fail(Operation::Create, ENOSPC, 1);
        // If the log still needs the immutable segment, the server does not start, because it cannot open the segment.
        let Ok(second) = Life::begin(disk.clone(), how, dawn(), 1) else { continue };
        assert_eq!(second.access.0.borrow().0.stats().stuck, 1);
        checked += 1;
        second.access.with(|journal, engine| {
            assert!(engine.delete(second.first_client(), id, dawn()));
            journal.append(engine)
        });
        assert!(second.wal.write(&second.access) && second.wal.sync(&second.access));
        disk.heal();
        second.wal.maintain(&second.access, true);
        assert!(!disk.names().iter().any(|other| other == name));
        for seed in 0..20 {
            let (engine, _, _, report) =
                start(&disk.without_last_removal().power_cut(seed), how, dawn()).expect("a log");
            let case = format!("{count} reservations, power cut {seed}");
            assert_eq!((engine.stats().jobs.all(), report.problems), (0, vec![]), "{case}");
        }
    }
    assert!(checked > 10, "only {checked} logs had an unremovable segment");
}

#[test]
fn the_log_is_full_until_space_is_available() {
    let disk = Disk::new(1);
    let mut life = life(&disk, 4096);
    assert!(!life.wal.is_full());
    disk.set_capacity(disk.used(""));
    let client = life.first_client();
    while life.put(client, b"default", 1, Span::ZERO).is_some() {}
    assert!(life.wal.is_full() && life.health() == Health::Full);
    // The prepared segment is already filled with zeros, so this maintenance has nothing to do.
    let operations = disk.operations();
    life.wal.maintain(&life.access, false);
    assert_eq!(disk.operations(), operations);
    life.wal.maintain(&life.access, true);
    assert!(life.wal.is_full() && disk.operations() > operations);
    disk.set_capacity(u64::MAX);
    life.wal.maintain(&life.access, true);
    assert!(!life.wal.is_full() && life.health() == Health::Ok);
}
