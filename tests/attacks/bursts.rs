//! Attacks in which one command, disconnection or deadline moves hundreds of thousands of jobs.

use std::time::{Duration, Instant};

use crate::daemon::{wait_until, Daemon, Folder, Signal, PATIENCE};
use crate::traffic::{pieces, pipeline, reserve_all, tube_figure, wait_for_figure, Jobs};
use crate::trial::Trial;
use crate::wire::Wire;

const MANY: u64 = 1_000_000;

/// The number of jobs in a burst with a binlog. It is lower than [`MANY`], because a binlog slows down commands.
const LOGGED: u64 = 400_000;

/// The number of jobs whose reservations expire shortly after one another.
const EXPIRING: u64 = 500_000;

pub fn kick(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    kick_all(trial, &daemon, MANY);
    if !trial.ours {
        return;
    }
    let ids = reserve_all(&daemon.tcp(), "attack", MANY);
    trial.check(ids.is_sorted(), || "jobs of the same priority were not reserved in the order of their IDs".to_owned());
}

/// Like `kick`, but with a binlog in mode `-F` (no syncs). The server then restarts with this binlog.
pub fn kick_with_a_binlog(trial: &mut Trial) {
    let folder = Folder::new();
    let path = folder.file("binlog");
    std::fs::create_dir(&path).expect("a directory for the binlog");
    let binlog = ["-b", path.to_str().expect("a UTF-8 path"), "-F"];
    let daemon = trial.start(&binlog, &["-t", "1"]);
    kick_all(trial, &daemon, LOGGED);
    if trial.ours {
        daemon.signal(Signal::SIGTERM);
        daemon.wait(PATIENCE);
        let daemon = trial.start(&binlog, &[]);
        trial.same("ready after a restart", tube_figure(&daemon, "attack", "current-jobs-ready"), LOGGED);
    }
}

fn kick_all(trial: &mut Trial, daemon: &Daemon, count: u64) {
    Jobs { delay: 3600, ..Jobs::ready("attack", count) }.put(daemon);
    let mut attacker = Wire::to(daemon);
    attacker.ask("use attack", "USING attack");
    let reply = trial.beside(daemon, |_| {
        attacker.send("kick 4000000000\r\n");
        attacker.line()
    });
    trial.same("the reply to kick", reply, format!("KICKED {count}"));
    trial.same("ready", tube_figure(daemon, "attack", "current-jobs-ready"), count);
    trial.same("delayed", tube_figure(daemon, "attack", "current-jobs-delayed"), 0);
}

/// Moves a million jobs to another tube.
pub fn move_all(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    Jobs::ready("attack", MANY).put(&daemon);
    let mut attacker = Wire::to(&daemon);
    let reply = trial.beside(&daemon, |_| {
        attacker.send(format!("move-tube attack to ready {MANY}\r\n"));
        attacker.line()
    });
    trial.same("the reply to move-tube", reply, format!("MOVED {MANY}"));
    let ids = reserve_all(&daemon.tcp(), "to", MANY);
    trial.check(ids.is_sorted(), || "the moved jobs were not reserved in the order of their IDs".to_owned());
}

/// Disconnects a client that holds a million jobs of three priorities.
pub fn hang_up_with_jobs(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    let jobs = Jobs { priority: |number| number % 3, ..Jobs::ready("attack", MANY) };
    let first = jobs.put(&daemon);
    let attacker = daemon.tcp();
    reserve_all(&attacker, "attack", MANY);
    trial.same("reserved", tube_figure(&daemon, "attack", "current-jobs-reserved"), MANY);
    let took = trial.beside(&daemon, |_| {
        drop(attacker);
        wait_for_figure(&daemon, "attack", "current-jobs-ready", MANY)
    });
    trial.note(format!("all ready after {} ms", took.as_millis()));
    if !trial.ours {
        return;
    }
    let ids = reserve_all(&daemon.tcp(), "attack", MANY);
    let place = |id: &u64| ((id - first) % 3, *id);
    trial.check(ids.is_sorted_by_key(place), || "jobs were not reserved in the order of priority and ID".to_owned());
}

/// Disconnects clients that watch a large number of tubes that no other client uses.
pub fn hang_up_with_tubes(trial: &mut Trial) {
    const EACH: u64 = 90_000;
    let daemon = trial.start(&[], &["-t", "1"]);
    let attackers: Vec<_> = (0..3).map(|number| watcher(&daemon, &format!("a{number}-"), EACH)).collect();
    let tubes = |daemon: &Daemon| crate::wire::stat(daemon, "current-tubes");
    trial.check(tubes(&daemon) > 3 * EACH, || "some watched tubes do not exist".to_owned());
    trial.beside(&daemon, |_| {
        drop(attackers);
        wait_until("the tubes are removed", || {
            std::thread::sleep(Duration::from_millis(20));
            tubes(&daemon) < 10
        });
    });
}

/// Returns a connection that watches `count` tubes, excluding `default`.
pub fn watcher(daemon: &Daemon, prefix: &str, count: u64) -> std::net::TcpStream {
    let stream = daemon.tcp();
    let watches = pieces(count, |number| format!("watch {prefix}{number}\r\n").into_bytes());
    let ignore = std::iter::once(b"ignore default\r\n".to_vec());
    pipeline(&stream, watches.chain(ignore), count + 1, |line| assert!(line.starts_with("WATCHING"), "{line}"));
    stream
}

/// The reservations of [`EXPIRING`] jobs expire while the client that holds these jobs keeps sending `touch` for
/// another job.
pub fn expiry_beside_touches(trial: &mut Trial) {
    const TTR: u64 = 20;
    let daemon = trial.start(&[], &["-t", "1"]);
    let held = Jobs::ready("held", 1).put(&daemon);
    let attacker = daemon.tcp();
    reserve_all(&attacker, "held", 1);
    // All these jobs must be reserved before the first reservation expires.
    Jobs { ttr: TTR, ..Jobs::ready("attack", EXPIRING) }.put(&daemon);
    reserve_all(&attacker, "attack", EXPIRING);
    let reserved = tube_figure(&daemon, "attack", "current-jobs-reserved");
    trial.same("reserved in time", reserved, EXPIRING);
    trial.beside(&daemon, |_| {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let touches = pieces(20_000, |_| format!("touch {held}\r\n").into_bytes());
            pipeline(&attacker, touches, 20_000, |line| assert_eq!(line, "TOUCHED"));
            if tube_figure(&daemon, "attack", "current-jobs-ready") == EXPIRING {
                break;
            }
        }
    });
    trial.same("ready", tube_figure(&daemon, "attack", "current-jobs-ready"), EXPIRING);
    trial.same("expired reservations", crate::wire::stat(&daemon, "job-timeouts"), EXPIRING);
    trial.same("still held", tube_figure(&daemon, "held", "current-jobs-reserved"), 1);
}
