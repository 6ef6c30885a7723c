//! Stops the server process for some time, as a debugger, a full disk on the host, or the suspension of a laptop does.
//!
//! When the server continues, several deadlines have passed. Each reply must be correct when it is sent.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

use crate::daemon::{wait_until, Daemon};
use crate::wire::{calm, figure, put, stat, Wire};

/// The number of reservations that expire during a stall: more than the server handles before it serves clients.
const MANY: usize = 15_000;

/// The number of clients that hold a job and send a command shortly before the stall ends.
const HOLDERS: usize = 10;

/// The interval between the server's warning to the holder and the expiry of the reservation, plus a tolerance.
const MARGIN: Duration = Duration::from_millis(1100);

fn stall(daemon: &Daemon, length: Duration) {
    daemon.freeze();
    std::thread::sleep(length);
    daemon.thaw();
}

/// Runs a scene with increasing times to run. `asleep` returns how long the scene sleeps, given a time to run in
/// seconds. If the machine is too busy to finish the scene within this time to run, the scene is repeated with a longer
/// time to run.
fn play(asleep: impl Fn(u32) -> Duration, scene: impl Fn(&Daemon, u32)) {
    for ttr in [2, 4, 8, 16, 32, 64] {
        let daemon = Daemon::start(&[]);
        let begun = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| scene(&daemon, ttr)));
        let busy = begun.elapsed().saturating_sub(asleep(ttr));
        match result {
            Ok(()) => return calm(&daemon),
            Err(panic) if busy + MARGIN < Duration::from_secs(ttr.into()) => resume_unwind(panic),
            Err(_) => println!("repeated: with {ttr} s to run, everything but the stall took {busy:?}"),
        }
    }
    panic!("this machine is too busy for a time to run of a minute");
}

/// Returns the length of a stall that exceeds a time to run of `ttr` seconds.
fn over(ttr: u32) -> Duration {
    Duration::from_secs(ttr.into()) + Duration::from_millis(300)
}

fn worker(daemon: &Daemon, tube: &str) -> Wire {
    let mut worker = Wire::to(daemon);
    worker.ask(&format!("use {tube}"), &format!("USING {tube}"));
    worker.ask(&format!("watch {tube}"), "WATCHING 2");
    worker.ask("ignore default", "WATCHING 1");
    worker
}

/// Returns a worker that holds a job of tube `a` with a time to run of `ttr` seconds, and the job's ID.
fn holder(daemon: &Daemon, ttr: u32) -> (Wire, u64) {
    let mut holder = worker(daemon, "a");
    let id = holder.put(b"job", ttr);
    holder.send("reserve\r\n");
    assert_eq!(holder.job().0, id);
    (holder, id)
}

/// Waits until `count` clients wait for a job. Fails after `ttr` seconds.
fn all_wait(daemon: &Daemon, ttr: u32, count: u64) {
    let begun = Instant::now();
    while stat(daemon, "current-waiting") != count {
        assert!(begun.elapsed() < Duration::from_secs(ttr.into()), "the number of waiting clients is not {count}");
    }
}

/// The holder of the job is also the first waiting client. When its reservation expires, it must get the job again, as
/// a new reservation.
#[test]
fn a_stall_past_the_deadline_of_the_first_waiting_holder() {
    play(over, |daemon, ttr| {
        let (mut holder, id) = holder(daemon, ttr);
        let mut other = worker(daemon, "a");
        holder.send("reserve\r\n");
        all_wait(daemon, ttr, 1);
        other.send("reserve\r\n");
        all_wait(daemon, ttr, 2);
        stall(daemon, over(ttr));
        assert_eq!(holder.job(), (id, b"job".to_vec()));
        other.expect_silence(Duration::from_millis(100));
        holder.ask(&format!("delete {id}"), "DELETED");
        let id = holder.put(b"next", 3600);
        assert_eq!(other.job(), (id, b"next".to_vec()));
    });
}

/// Another client is the first waiting client, and must get the job when the holder's reservation expires. The holder
/// must continue to wait without a warning.
#[test]
fn a_stall_past_the_deadline_of_a_holder_that_waits_behind_others() {
    play(over, |daemon, ttr| {
        let (mut holder, id) = holder(daemon, ttr);
        let mut other = worker(daemon, "a");
        other.send("reserve\r\n");
        all_wait(daemon, ttr, 1);
        holder.send("reserve\r\n");
        all_wait(daemon, ttr, 2);
        stall(daemon, over(ttr));
        assert_eq!(other.job(), (id, b"job".to_vec()));
        holder.expect_silence(Duration::from_millis(100));
        other.ask(&format!("delete {id}"), "DELETED");
        let id = other.put(b"next", 3600);
        assert_eq!(holder.job(), (id, b"next".to_vec()));
    });
}

/// During the stall, the holder's wait times out and its reservation expires. The reply must be TIMED_OUT.
#[test]
fn a_stall_past_the_deadline_and_the_timeout() {
    play(over, |daemon, ttr| {
        let (mut holder, id) = holder(daemon, ttr);
        holder.ask("watch b", "WATCHING 2");
        holder.ask("ignore a", "WATCHING 1");
        holder.send(format!("reserve-with-timeout {ttr}\r\n"));
        all_wait(daemon, ttr, 1);
        stall(daemon, over(ttr));
        holder.expect("TIMED_OUT");
        holder.ask(&format!("release {id} 0 0"), "NOT_FOUND");
        let mut other = worker(daemon, "a");
        other.send("reserve-with-timeout 0\r\n");
        assert_eq!(other.job().0, id);
    });
}

/// During the stall, only the warning becomes due. The holder must keep its reservation.
#[test]
fn a_stall_past_the_warning_only() {
    const TTR: Duration = Duration::from_secs(2);
    wait_until("the machine is not busy for two seconds", || {
        let daemon = Daemon::start(&[]);
        let begun = Instant::now();
        let (mut holder, id) = holder(&daemon, 2);
        holder.send("reserve\r\n");
        wait_until("the holder waits", || stat(&daemon, "current-waiting") == 1 || begun.elapsed() > TTR / 2);
        stall(&daemon, TTR / 2);
        let reply = holder.line();
        assert!(reply == "DEADLINE_SOON" || begun.elapsed() >= TTR, "{reply}");
        if reply == "DEADLINE_SOON" {
            holder.ask(&format!("delete {id}"), "DELETED");
            calm(&daemon);
        }
        reply == "DEADLINE_SOON"
    });
}

/// During the stall, many reservations expire. Some holders send commands shortly before the stall ends. The server
/// must not warn a client about a job that the client no longer holds. All jobs must become ready.
#[test]
fn a_stall_past_many_deadlines() {
    // In addition to the stall, the scene sleeps for 50 ms, and the holders wait for one second.
    let asleep = |ttr| over(ttr) + Duration::from_millis(1050);
    play(asleep, |daemon, ttr| {
        let mut crowd = worker(daemon, "crowd");
        crowd.send(put(b"x", ttr).repeat(MANY));
        (0..MANY).for_each(|_| assert!(crowd.line().starts_with("INSERTED ")));
        crowd.send("reserve\r\n".repeat(MANY));
        (0..MANY).for_each(|_| assert_eq!(crowd.job().1, b"x"));
        // The holders reserve their jobs last, so these reservations expire after all others.
        let mut holders: Vec<(Wire, u64)> = (0..HOLDERS).map(|_| holder(daemon, ttr)).collect();
        for (holder, _) in &mut holders {
            holder.ask("watch b", "WATCHING 2");
            holder.ask("ignore a", "WATCHING 1");
        }
        daemon.freeze();
        std::thread::sleep(over(ttr));
        holders.iter_mut().for_each(|(holder, _)| holder.send("reserve-with-timeout 1\r\n"));
        std::thread::sleep(Duration::from_millis(50));
        daemon.thaw();
        for (holder, id) in &mut holders {
            holder.expect("TIMED_OUT");
            holder.ask(&format!("touch {id}"), "NOT_FOUND");
        }
        assert_eq!(stat(daemon, "job-timeouts"), (MANY + HOLDERS) as u64);
        assert_eq!(figure(&mut daemon.client(), "stats-tube crowd", "current-jobs-ready"), MANY as u64);
        let mut other = worker(daemon, "crowd");
        other.send("reserve-with-timeout 0\r\n".repeat(100));
        (1..=100).for_each(|expected| assert_eq!(other.job().0, expected));
    });
}
