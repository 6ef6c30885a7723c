//! Attacks with many connections for which the server must store data: replies, watched tubes, commands or packets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::daemon::Daemon;
use crate::traffic::{address_of, connect_to, Clients};
use crate::trial::{Trial, MIB};
use crate::wire::Wire;

const MAX_MEMORY: &str = "64M";

/// The shell command that limits the address space to 600 MiB. ulimit(1) expects kilobytes.
const LIMIT: &str = "ulimit -v 614400";

/// Leaves replies unread, with a memory limit.
pub fn replies(trial: &mut Trial) {
    let daemon = trial.start_within(LIMIT, &[], &["-t", "1", "--max-memory", MAX_MEMORY]);
    unread_replies(trial, &daemon, 800, Some(64 * MIB));
}

/// Leaves replies unread without a memory limit. The server must release the memory after the attack.
pub fn replies_without_a_limit(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1"]);
    unread_replies(trial, &daemon, 300, None);
}

fn unread_replies(trial: &mut Trial, daemon: &Daemon, readers: usize, max_memory: Option<u64>) {
    const EACH: usize = 9000;
    Wire::to(daemon).put(&[b'x'; 1024], 3600);
    trial.watch_memory(daemon, max_memory, |trial| {
        trial.beside(daemon, |trial| {
            let mut crowd = Clients::open(daemon, readers, Some(4096));
            let taken = crowd.push(&b"peek-ready\r\n".repeat(EACH));
            trial.note(format!("{} commands accepted from each", taken / 12 / readers));
            trial.wait_until_idle(daemon);
            trial.note(format!("{} connections closed", crowd.ended));
        });
    });
}

/// Watches almost 100,000 tubes on each of many connections.
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
                trial.check(watched.is_ok(), || format!("connection {number} was closed"));
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

/// Sends many commands on connections that wait for a job.
pub fn read_ahead(trial: &mut Trial) {
    const WAITING: usize = 1000;
    let daemon = trial.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY]);
    trial.watch_memory(&daemon, Some(64 * MIB), |trial| {
        trial.beside(&daemon, |trial| {
            let mut crowd = Clients::open(&daemon, WAITING, None);
            crowd.push(b"reserve\r\n");
            let taken = crowd.push(&b"list-tube-used\r\n".repeat(16_384));
            trial.note(format!("{} KiB accepted from each", taken / WAITING / 1024));
            trial.wait_until_idle(&daemon);
            trial.same("connections closed", crowd.ended, 0);
            let waiting = crate::wire::stat(&daemon, "current-waiting");
            trial.check(waiting >= WAITING as u64, || format!("only {waiting} clients wait"));
        });
    });
}

/// Types of Gearman packets.
const CAN_DO: u32 = 1;
const SUBMIT_JOB: u32 = 7;
const GRAB_JOB: u32 = 9;
const JOB_ASSIGN: u32 = 11;
const ECHO_REQ: u32 = 16;
const WORK_DATA: u32 = 28;

fn packet(kind: u32, arguments: &[&[u8]]) -> Vec<u8> {
    let data = arguments.join(&0);
    [b"\0REQ".as_slice(), &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), &data].concat()
}

/// Returns a worker that has received its first job, and the handle of this job.
fn worker_at(daemon: &Daemon, function: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut worker = connect_to(daemon, "Gearman");
    worker.write_all(&[packet(CAN_DO, &[function]), packet(GRAB_JOB, &[])].concat()).expect("a connection");
    let mut head = [0; 12];
    worker.read_exact(&mut head).expect("a packet");
    assert_eq!(head[4..8], JOB_ASSIGN.to_be_bytes(), "expected a job");
    let mut data = vec![0; u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize];
    worker.read_exact(&mut data).expect("the rest of the packet");
    let handle = data.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    (worker, handle)
}

/// Sends partial results of a job to 3000 clients that submitted the job but do not read. Ends when the server has
/// dropped all these clients.
pub fn news(trial: &mut Trial) {
    const CLIENTS: usize = 3000;
    /// Many more results than the server accepts before it drops the last client.
    const MAX_RESULTS: usize = 5000;
    let daemon = trial.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY, "--gearman=127.0.0.1:0"]);
    let dropped = || daemon.log().lines().filter(|line| line.contains("dropped")).count();
    trial.watch_memory(&daemon, Some(64 * MIB), |trial| {
        trial.beside(&daemon, |trial| {
            let mut crowd = Clients::open_at(address_of(&daemon, "Gearman"), CLIENTS, Some(4096));
            crowd.push(&packet(SUBMIT_JOB, &[b"f", b"same", b"x"]));
            let (mut worker, handle) = worker_at(&daemon, b"f");
            let data = packet(WORK_DATA, &[&handle, &[b'y'; 60_000]]);
            let mut sent = 0;
            while dropped() < CLIENTS && sent < MAX_RESULTS {
                worker.write_all(&data).expect("an open connection");
                sent += 1;
            }
            trial.same("clients dropped", dropped(), CLIENTS);
            trial.note(format!("{sent} results sent"));
        });
    });
}

/// Sends large packets that the server echoes or forwards to clients that do not read.
pub fn large_packets(trial: &mut Trial) {
    const EACH: usize = 20;
    let daemon = trial.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY, "--gearman=127.0.0.1:0"]);
    let data = vec![b'y'; 20_000_000];
    trial.watch_memory(&daemon, Some(64 * MIB), |trial| {
        trial.beside(&daemon, |trial| {
            let mut all = Vec::new();
            for number in 0..EACH {
                let function = format!("f{number}");
                let mut client = connect_to(&daemon, "Gearman");
                client.write_all(&packet(SUBMIT_JOB, &[function.as_bytes(), b"", b"x"])).expect("a connection");
                let (mut worker, handle) = worker_at(&daemon, function.as_bytes());
                // The server closes connections that exceed the limit on buffered data, so the write may fail.
                let _ = worker.write_all(&packet(WORK_DATA, &[&handle, &data]));
                let mut echoed = connect_to(&daemon, "Gearman");
                let _ = echoed.write_all(&packet(ECHO_REQ, &[&data]));
                all.push((client, worker, echoed));
            }
            trial.wait_until_idle(&daemon);
        });
    });
}
