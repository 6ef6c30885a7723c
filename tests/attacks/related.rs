//! Attacks in which one event affects a large number of jobs: dead letters, groups and schedules.

use std::time::Duration;

use crate::daemon::{wait_until, Daemon};
use crate::traffic::{pieces, pipeline, reserve_all, tube_figure, wait_for_figure, Jobs};
use crate::trial::Trial;
use crate::wire::{stat, Wire};

const MANY: u64 = 1_000_000;

const SCHEDULES: u64 = 100_000;

/// Disconnects a client that holds [`MANY`] jobs with no tries left, so that all of them become dead letters.
pub fn dead_letters(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    Wire::to(&daemon).ask("set-tube attack try:1 dead:dead", "SET");
    Jobs::ready("attack", MANY).put(&daemon);
    let attacker = daemon.tcp();
    reserve_all(&attacker, "attack", MANY);
    let watcher = daemon.tcp();
    pipeline(&watcher, std::iter::once(b"watch dead\r\n".to_vec()), 1, |line| assert_eq!(line, "WATCHING 2"));
    let took = trial.beside(&daemon, |_| {
        drop(attacker);
        wait_for_figure(&daemon, "dead", "current-jobs-buried", MANY)
    });
    trial.note(format!("all buried after {} ms", took.as_millis()));
    trial.same("still reserved", tube_figure(&daemon, "attack", "current-jobs-reserved"), 0);
}

/// Deletes the last member of a group while [`MANY`] jobs wait for the group.
pub fn dependents(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    let member = put_each(&daemon, 1, "member", |_| "grp:g".to_owned());
    let first = put_each(&daemon, MANY, "attack", |_| "aft:g".to_owned());
    let mut attacker = Wire::to(&daemon);
    let took = trial.beside(&daemon, |_| {
        attacker.ask(&format!("delete {member}"), "DELETED");
        wait_for_figure(&daemon, "attack", "current-jobs-ready", MANY)
    });
    trial.note(format!("all released after {} ms", took.as_millis()));
    let ids = reserve_all(&daemon.tcp(), "attack", MANY);
    trial.check(ids.first() == Some(&first) && ids.is_sorted(), || "jobs were released in the wrong order".to_owned());
}

/// Kicks dead letters whose idempotency key is in thousands of tubes.
pub fn kick_letters_with_a_common_key(trial: &mut Trial) {
    const LETTERS: u64 = 100;
    const TUBES: u64 = 3800;
    let daemon = trial.start(&[], &["-t", "1"]);
    Wire::to(&daemon).ask("set-tube attack try:1 dead:dead", "SET");
    // Keeps the tube of the dead letters.
    let mut attacker = Wire::to(&daemon);
    attacker.ask("use dead", "USING dead");
    for letters in 1..=LETTERS {
        let id = put_each(&daemon, 1, "attack", |_| "idp:same".to_owned());
        let mut worker = Wire::to(&daemon);
        worker.send(format!("reserve-job {id}\r\n"));
        assert_eq!(worker.job().0, id);
        drop(worker);
        wait_for_figure(&daemon, "dead", "current-jobs-buried", letters);
    }
    let filler = daemon.tcp();
    let put = |number| format!("put 0 0 3600 1 tub:t{number} idp:same\r\nx\r\n").into_bytes();
    pipeline(&filler, pieces(TUBES, put), TUBES, |line| assert!(line.starts_with("INSERTED"), "{line}"));
    let reply = trial.beside(&daemon, |_| {
        attacker.send("kick 4000000000\r\n");
        attacker.line()
    });
    trial.same("the reply to kick", reply, format!("KICKED {LETTERS}"));
}

/// Creates [`SCHEDULES`] schedules that are due at the same time every second.
pub fn schedules(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    put_each(&daemon, SCHEDULES, "attack", |number| format!("every:1 idp:s{number}"));
    let runs = |daemon: &Daemon| stat(daemon, "total-jobs");
    trial.beside(&daemon, |_| {
        wait_until("each schedule has put a copy", || {
            std::thread::sleep(Duration::from_millis(20));
            runs(&daemon) >= 2 * SCHEDULES
        });
        // During this time, the schedules run several more times, while the jobs of earlier runs still exist.
        std::thread::sleep(Duration::from_secs(3));
    });
    trial.same("ready", tube_figure(&daemon, "attack", "current-jobs-ready"), SCHEDULES);
    trial.same("schedules", stat(&daemon, "current-jobs-scheduled"), SCHEDULES);
}

/// Puts `count` jobs with tags, and returns the first ID.
fn put_each(daemon: &Daemon, count: u64, tube: &str, tags: impl Fn(u64) -> String + Sync) -> u64 {
    let stream = daemon.tcp();
    let put = |number| format!("put 0 0 3600 1 tub:{tube} {}\r\nx\r\n", tags(number)).into_bytes();
    let mut first = None;
    pipeline(&stream, pieces(count, put), count, |line| {
        let id = line.strip_prefix("INSERTED ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        first = first.or(Some(id.unwrap_or_else(|| panic!("reply to put: {line}"))));
    });
    first.expect("a job")
}
