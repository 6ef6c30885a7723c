//! Tests jobs scheduled for a Unix timestamp or for the next minute that matches a pattern, and workers' time limits.

use std::time::Duration;

use beanpole::Config;

use crate::script::World;
use crate::talk::{hear, say, world, NOW};

const SUBMIT_SCHED: u32 = 35;
const SUBMIT_EPOCH: u32 = 36;
const NOOP: (u32, Vec<u8>) = (6, Vec::new());

#[test]
fn a_scheduled_job_wakes_a_sleeping_worker_when_due() {
    let mut world = world(&Config::embedded(), &["client", "worker"]);
    assert_eq!(say(&mut world, "worker", &[(1, b"f"), (4, b"")]), []);
    let body = format!("f\0u\0{}\0x", NOW + 100);
    let created = say(&mut world, "client", &[(SUBMIT_EPOCH, body.as_bytes())]);
    assert_eq!(created, [(8, b"H:h:1".to_vec())]);
    world.pass(Duration::from_millis(99_999));
    assert_eq!(hear(&mut world, "worker"), []);
    assert_eq!(say(&mut world, "worker", &[(9, b""), (4, b"")]), [(10, Vec::new())]);
    world.pass(Duration::from_millis(1));
    assert_eq!(hear(&mut world, "worker"), [NOOP]);
    assert_eq!(say(&mut world, "worker", &[(9, b"")]), [(11, b"H:h:1\0f\0x".to_vec())]);
}

#[test]
fn scheduled_jobs_are_delivered_in_order() {
    let mut world = world(&Config::embedded(), &["a"]);
    for (name, after) in [("late", 30), ("soon", 10), ("between", 20)] {
        say(&mut world, "a", &[(SUBMIT_EPOCH, format!("f\0\0{}\0{name}", NOW + after).as_bytes())]);
    }
    say(&mut world, "a", &[(1, b"f")]);
    for name in ["soon", "between", "late"] {
        world.pass(Duration::from_secs(10));
        let got = say(&mut world, "a", &[(9, b""), (9, b"")]);
        assert!(got[0].1.ends_with(name.as_bytes()), "{name}: {got:?}");
        assert_eq!(got[1].0, 10, "only {name} must be due");
    }
}

#[test]
fn a_schedule_runs_at_its_minute() {
    for (fields, wait) in [
        ("\0\0\0\0", 40),
        ("34\0\0\0\0", 40),
        ("0\x004\0\0\0", 26 * 60 + 40),
        ("34\x003\x0019\0\0", 86_400 + 40),
        ("*\0*\0*\x006\0*", (13 * 24 + 20) * 3600 + 26 * 60 + 40),
        ("33\x003\0\0\x003", 86_400 - 20),
    ] {
        let mut world = world(&Config::embedded(), &["a"]);
        let created = say(&mut world, "a", &[(SUBMIT_SCHED, format!("f\0u\0{fields}\0x").as_bytes()), (1, b"f")]);
        assert_eq!(created, [(8, b"H:h:1".to_vec())], "{fields:?}");
        world.pass(Duration::from_secs(wait - 1));
        assert_eq!(say(&mut world, "a", &[(9, b"")]), [(10, Vec::new())], "{fields:?}: the job runs too early");
        world.pass(Duration::from_secs(1));
        assert_eq!(say(&mut world, "a", &[(9, b"")])[0].0, 11, "{fields:?}: the job does not run");
    }
}

#[test]
fn a_worker_s_limit_applies_to_each_of_many_jobs() {
    let mut world = world(&Config::embedded(), &["client", "worker"]);
    say(&mut world, "worker", &[(23, b"f\x001000")]);
    for number in 0..20 {
        say(&mut world, "client", &[(18, format!("f\0{number}\0").as_bytes())]);
        assert_eq!(say(&mut world, "worker", &[(9, b"")])[0].0, 11);
        world.pass(Duration::from_millis(30));
    }
    // The first job was reserved 600 ms ago, and the last job 30 ms ago.
    for lost in 1..=20 {
        world.pass(Duration::from_millis(if lost == 1 { 400 } else { 30 }));
        let status = crate::talk::ask(&mut world, "client", "status");
        assert_eq!(status, format!("f\t20\t{}\t1\n.\n", 20 - lost), "after {lost} expired reservations");
    }
}
