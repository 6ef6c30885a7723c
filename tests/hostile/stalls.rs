//! A server that is stopped for a while: by a debugger, a full disk of the machine below, a sleeping laptop.
//!
//! When it goes on, several moments have passed at once. Whoever is told something then must be told what is true now.

use std::time::Duration;

use crate::daemon::{wait_until, Daemon, Signal};
use crate::wire::{calm, figure, put, stat, Wire};

/// Reservations that run out during one stall; many more than are looked after at a time.
const MANY: usize = 15_000;

/// Holders that ask as soon as it is over.
const HOLDERS: usize = 10;

/// Stops the server for so long.
fn stall(daemon: &Daemon, length: Duration) {
    daemon.signal(Signal::SIGSTOP);
    std::thread::sleep(length);
    daemon.signal(Signal::SIGCONT);
}

/// A worker that watches and uses one tube only.
fn worker(daemon: &Daemon, tube: &str) -> Wire {
    let mut worker = Wire::to(daemon);
    worker.ask(&format!("use {tube}"), &format!("USING {tube}"));
    worker.ask(&format!("watch {tube}"), "WATCHING 2");
    worker.ask("ignore default", "WATCHING 1");
    worker
}

/// A worker that holds a job of tube `a` with a time to run of so many seconds.
fn holder(daemon: &Daemon, ttr: u32) -> (Wire, u64) {
    let mut holder = worker(daemon, "a");
    let id = holder.put(b"job", ttr);
    holder.send("reserve\r\n");
    assert_eq!(holder.job().0, id);
    (holder, id)
}

/// Waits until so many clients wait for a job.
fn all_wait(daemon: &Daemon, count: u64) {
    wait_until("clients wait", || stat(daemon, "current-waiting") == count);
}

/// The holder is first in the queue of those that wait: its own job comes back to it, as a new reservation.
#[test]
fn over_margin_and_deadline_of_the_first_that_waits() {
    let daemon = Daemon::start(&[]);
    let (mut holder, id) = holder(&daemon, 2);
    let mut other = worker(&daemon, "a");
    holder.send("reserve\r\n");
    all_wait(&daemon, 1);
    other.send("reserve\r\n");
    all_wait(&daemon, 2);
    stall(&daemon, Duration::from_millis(2300));
    assert_eq!(holder.job(), (id, b"job".to_vec()));
    other.expect_silence(Duration::from_millis(100));
    holder.ask(&format!("delete {id}"), "DELETED");
    let id = holder.put(b"next", 60);
    assert_eq!(other.job(), (id, b"next".to_vec()));
    calm(&daemon);
}

/// Somebody else is first: the job goes there, and the holder goes on waiting, warned of nothing.
#[test]
fn over_margin_and_deadline_of_one_that_waits_behind_others() {
    let daemon = Daemon::start(&[]);
    let (mut holder, id) = holder(&daemon, 2);
    let mut other = worker(&daemon, "a");
    other.send("reserve\r\n");
    all_wait(&daemon, 1);
    holder.send("reserve\r\n");
    all_wait(&daemon, 2);
    stall(&daemon, Duration::from_millis(2300));
    assert_eq!(other.job(), (id, b"job".to_vec()));
    holder.expect_silence(Duration::from_millis(100));
    other.ask(&format!("delete {id}"), "DELETED");
    let id = other.put(b"next", 60);
    assert_eq!(holder.job(), (id, b"next".to_vec()));
    calm(&daemon);
}

/// The time-out of the wait has passed as well. What the holder had is gone, so it is told that no job came.
#[test]
fn over_margin_deadline_and_time_out() {
    let daemon = Daemon::start(&[]);
    let (mut holder, id) = holder(&daemon, 2);
    holder.ask("watch b", "WATCHING 2");
    holder.ask("ignore a", "WATCHING 1");
    holder.send("reserve-with-timeout 2\r\n");
    all_wait(&daemon, 1);
    stall(&daemon, Duration::from_millis(2300));
    holder.expect("TIMED_OUT");
    holder.ask(&format!("release {id} 0 0"), "NOT_FOUND");
    let mut other = worker(&daemon, "a");
    other.send("reserve-with-timeout 0\r\n");
    assert_eq!(other.job().0, id);
    calm(&daemon);
}

/// Only the margin was reached: the warning is due, and the job is still the holder's.
#[test]
fn over_the_margin_only() {
    let daemon = Daemon::start(&[]);
    let (mut holder, id) = holder(&daemon, 2);
    holder.send("reserve\r\n");
    all_wait(&daemon, 1);
    stall(&daemon, Duration::from_millis(1000));
    holder.expect("DEADLINE_SOON");
    holder.ask(&format!("delete {id}"), "DELETED");
    calm(&daemon);
}

/// Many reservations have run out by the time the server goes on, and holders whose own are among them ask at once:
/// none is warned of the end of what it no longer has. All jobs are ready.
#[test]
fn over_the_deadlines_of_many() {
    let daemon = Daemon::start(&[]);
    let mut crowd = worker(&daemon, "crowd");
    crowd.send(put(b"x", 3).repeat(MANY));
    (0..MANY).for_each(|_| assert!(crowd.line().starts_with("INSERTED ")));
    crowd.send("reserve\r\n".repeat(MANY));
    (0..MANY).for_each(|_| assert_eq!(crowd.job().1, b"x"));
    // The last to reserve, so that all others run out before.
    let mut holders: Vec<(Wire, u64)> = (0..HOLDERS).map(|_| holder(&daemon, 3)).collect();
    for (holder, _) in &mut holders {
        holder.ask("watch b", "WATCHING 2");
        holder.ask("ignore a", "WATCHING 1");
    }
    daemon.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(3100));
    holders.iter_mut().for_each(|(holder, _)| holder.send("reserve-with-timeout 1\r\n"));
    std::thread::sleep(Duration::from_millis(50));
    daemon.signal(Signal::SIGCONT);
    for (holder, id) in &mut holders {
        holder.expect("TIMED_OUT");
        holder.ask(&format!("touch {id}"), "NOT_FOUND");
    }
    assert_eq!(stat(&daemon, "job-timeouts"), (MANY + HOLDERS) as u64);
    assert_eq!(figure(&mut daemon.client(), "stats-tube crowd", "current-jobs-ready"), MANY as u64);
    let mut other = worker(&daemon, "crowd");
    other.send("reserve-with-timeout 0\r\n".repeat(100));
    (1..=100).for_each(|expected| assert_eq!(other.job().0, expected));
    calm(&daemon);
}
