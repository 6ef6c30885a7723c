//! Many connections that make the server hold something for each: replies, watched tubes, commands.

use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::daemon::Daemon;
use crate::traffic::Crowd;
use crate::trial::{Trial, MIB};
use crate::wire::Wire;

/// What the program may take for jobs in these rows.
const MAX_MEMORY: &str = "64M";

/// Address space in kilobytes: 600 MiB.
const LIMIT: &str = "ulimit -v 614400";

/// Replies that are not read, with a limit of memory.
pub fn replies(trial: &mut Trial) {
    let daemon = trial.start_within(LIMIT, &[], &["-t", "1", "--max-memory", MAX_MEMORY]);
    unread_replies(trial, &daemon, 800, Some(64 * MIB));
}

/// Replies that are not read, without one: the memory must come back.
pub fn replies_without_a_limit(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    unread_replies(trial, &daemon, 300, None);
}

fn unread_replies(trial: &mut Trial, daemon: &Daemon, readers: usize, max_memory: Option<u64>) {
    const EACH: usize = 9000;
    Wire::to(daemon).put(&[b'x'; 1024], 3600);
    trial.watch_memory(daemon, max_memory, |trial| {
        trial.beside(daemon, |trial| {
            let mut crowd = Crowd::open(daemon, readers, Some(4096));
            let taken = crowd.push(&b"peek-ready\r\n".repeat(EACH));
            trial.note(format!("{} commands taken of each", taken / 12 / readers));
            trial.wait_until_idle(daemon);
            trial.note(format!("{} connections ended", crowd.ended));
        });
    });
}

/// Very many watched tubes on each of several connections.
pub fn watch_lists(trial: &mut Trial) {
    const WATCHES: u64 = 99_990;
    const CONNECTIONS: u64 = 60;
    let daemon = trial.start_within(LIMIT, &[], &["-t", "1", "--max-memory", MAX_MEMORY]);
    trial.watch_memory(&daemon, Some(64 * MIB), |trial| {
        trial.beside(&daemon, |trial| {
            let mut refused = 0;
            let mut connections = Vec::new();
            for number in 0..CONNECTIONS {
                let watched = catch_unwind(AssertUnwindSafe(|| watch_many(&daemon, WATCHES, &mut refused)));
                trial.check(watched.is_ok(), || format!("connection {number} was cut off"));
                let Ok(connection) = watched else { break };
                connections.push(connection);
            }
            trial.note(format!("{refused} of {} watches refused", CONNECTIONS * WATCHES));
        });
    });
}

fn watch_many(daemon: &Daemon, count: u64, refused: &mut u64) -> std::net::TcpStream {
    let stream = daemon.tcp();
    let watches = crate::traffic::pieces(count, |number| format!("watch t{number}\r\n").into_bytes());
    crate::traffic::pipeline(&stream, watches, count, |line| {
        assert!(line.starts_with("WATCHING") || line == "OUT_OF_MEMORY", "{line}");
        *refused += u64::from(line == "OUT_OF_MEMORY");
    });
    stream
}

/// Connections that wait for a job and have sent much that comes after it.
pub fn read_ahead(trial: &mut Trial) {
    const WAITING: usize = 1000;
    let daemon = trial.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY]);
    trial.watch_memory(&daemon, Some(64 * MIB), |trial| {
        trial.beside(&daemon, |trial| {
            let mut crowd = Crowd::open(&daemon, WAITING, None);
            crowd.push(b"reserve\r\n");
            let taken = crowd.push(&b"list-tube-used\r\n".repeat(16_384));
            trial.note(format!("{} KiB taken of each", taken / WAITING / 1024));
            trial.wait_until_idle(&daemon);
            trial.same("connections ended", crowd.ended, 0);
            let waiting = crate::wire::stat(&daemon, "current-waiting");
            trial.check(waiting >= WAITING as u64, || format!("{waiting} wait"));
        });
    });
}
