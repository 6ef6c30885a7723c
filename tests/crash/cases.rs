//! Histories that chance finds too seldom.
//!
//! Owns one case for each mistake that was made, or nearly made, and that needs its own way to show.

use beanpole::binlog::SyncMode;
use beanpole::engine::Span;

use crate::disk::Disk;
use crate::driver::{dawn, settings, start, Life};

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

/// Puts jobs that keep the first segment.
fn keep(life: &mut Life) {
    let client = life.first_client();
    for _ in 0..40 {
        life.put(client, b"default", 1, Span::ZERO).expect("room");
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
            // Nobody is left who uses the tube.
            first.settle();
            first = life(&disk, 4096);
        } else {
            use_default(&mut first);
        }
        let client = first.first_client();
        first.put(client, b"closed", 1, Span::ZERO).expect("room");
        first.settle();
        assert!(!is_paused(&disk.power_cut(1), b"closed"), "restart {restart}");
    }
}

#[test]
fn a_pause_lasts_while_its_tube_holds_a_job() {
    let disk = Disk::new(1);
    let mut first = life(&disk, 4096);
    let client = first.first_client();
    first.put(client, b"open", 1, Span::ZERO).expect("room");
    pause(&mut first, b"open");
    first.settle();
    assert!(is_paused(&disk.power_cut(1), b"open"));
    assert!(is_paused(&disk.power_cut(2), b"open"));
}

/// Puts jobs, then deletes them from segments of their own.
fn put_and_delete(life: &mut Life, count: u64) -> u64 {
    let client = life.first_client();
    let ids: Vec<u64> = (0..count).map(|_| life.put(client, b"t", 1, Span::ZERO).expect("room")).collect();
    assert!(life.keeper.write(&life.desk) && life.keeper.sync(&life.desk));
    for id in &ids {
        life.turn(|engine, now| {
            assert!(engine.delete(client, beanpole::engine::JobId(*id), now));
            None
        });
    }
    assert!(life.keeper.write(&life.desk) && life.keeper.sync(&life.desk));
    ids[ids.len() - 1]
}

#[test]
fn a_damaged_header_does_not_give_an_id_again() {
    for count in 1..60 {
        let disk = Disk::new(1);
        let mut first = life(&disk, 512);
        let last = put_and_delete(&mut first, count);
        first.settle();
        // The segment that is written to has a delete in it, in most cases.
        let current = format!("segment.{:010}", first.desk.0.borrow().0.stats().current);
        let disk = disk.kill(1);
        let mut deletes = false;
        disk.alter(&current, |bytes| {
            bytes[20..28].fill(0xff);
            deletes = bytes[40..].iter().any(|&byte| byte != 0);
        });
        let (engine, ..) = start(&disk, settings(512, SyncMode::Always), dawn()).expect("a log");
        assert!(!deletes || engine.last_id() >= last, "{} of {last}", engine.last_id());
    }
}

#[test]
fn segments_go_from_the_oldest_on() {
    for point in 0..200 {
        let disk = Disk::new(1);
        let mut first = life(&disk, 512);
        put_and_delete(&mut first, 40);
        disk.crash_at(disk.deeds() + point);
        first.settle();
        let (engine, ..) = start(&disk.power_cut(point), settings(512, SyncMode::Always), dawn()).expect("a log");
        assert_eq!(engine.stats().jobs.all(), 0, "point {point}: deleted jobs come back");
    }
}
