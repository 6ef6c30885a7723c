//! Attacks with bodies that are announced but arrive incompletely or never, and with results that no client collects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::bystander::{cycle_in_parts, patient_cycle};
use crate::daemon::{wait_until, Daemon};
use crate::traffic::{address_of, connect_to, pieces, pipeline, Clients};
use crate::trial::{own_connection, Trial, MIB};
use crate::wire::{put, Wire};

const MAX_MEMORY: &str = "64M";

/// The announced sizes in bytes. Together, the connections announce more than the available memory.
const ANNOUNCED: [u32; 7] = [60_000_000, 5_000_000, 500_000, 50_000, 5000, 500, 50];

const FOR_EACH: usize = 12;

const LENGTH: Duration = Duration::from_secs(1);

/// Sends puts that announce bodies, but does not send the bodies.
pub fn announced(trial: &mut Trial) {
    let daemon = trial.start(&["-z", "67108864"], &["-t", "1", "--max-memory", MAX_MEMORY]);
    announce(trial, &daemon, || daemon.tcp(), |size| format!("put 0 0 60 {size}\r\n").into_bytes());
}

/// Sends Gearman packets that announce a large size, but contain only the function and an empty unique name.
pub fn announced_to_gearman(trial: &mut Trial) {
    const SUBMIT_JOB_BG: u32 = 18;
    let options = ["-t", "1", "--max-memory", MAX_MEMORY, "--gearman=127.0.0.1:0"];
    let daemon = trial.start(&["-z", "67108864"], &options);
    let head = |size: u32| [b"\0REQ".as_slice(), &SUBMIT_JOB_BG.to_be_bytes(), &size.to_be_bytes(), b"f\0\0"].concat();
    announce(trial, &daemon, || connect_to(&daemon, "Gearman"), head);
}

fn announce(trial: &mut Trial, daemon: &Daemon, connect: impl Fn() -> TcpStream, head: impl Fn(u32) -> Vec<u8>) {
    trial.watch_memory(daemon, Some(64 * MIB), |trial| {
        // A small body that arrives together with its command would need no separate buffer.
        trial.beside_trips(own_connection(daemon), cycle_in_parts, |_| {
            let mut attackers = Vec::new();
            for size in ANNOUNCED.into_iter().flat_map(|size| std::iter::repeat_n(size, FOR_EACH)) {
                let mut attacker = connect();
                attacker.write_all(&head(size)).expect("an open connection");
                attackers.push(attacker);
            }
            std::thread::sleep(LENGTH);
        });
    });
}

/// Sends a put with only half of its 60 KB body on each of 4000 connections.
pub fn half_sent(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY]);
    trial.watch_memory(&daemon, Some(64 * MIB), |trial| {
        trial.beside(&daemon, |trial| {
            let mut crowd = Clients::open(&daemon, 4000, None);
            crowd.push(&[b"put 0 0 60 60000\r\n".as_slice(), &[b'x'; 30_000]].concat());
            trial.wait_until_idle(&daemon);
            let replies = crowd.received();
            let refused = replies.iter().filter(|text| text.starts_with("OUT_OF_MEMORY")).count();
            let silent = replies.iter().filter(|text| text.is_empty()).count();
            trial.same("other replies", replies.len() - refused - silent, 0);
            trial.note(format!("{refused} refused, {} connections closed", crowd.ended));
        });
    });
}

/// Sends puts with long tags on each of 4000 connections, but does not send the bodies.
pub fn tags_without_a_body(trial: &mut Trial) {
    let daemon = trial.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY]);
    let groups: String = (0..16).map(|number| format!(" grp:{number:0200}")).collect();
    let [reason, name] = [4096, 512].map(|length| "x".repeat(length));
    let put = format!("put 0 0 60 10 err:\"{reason}\" tub:\"{name}\" idp:\"{name}\"{groups}\r\n");
    withhold(trial, &daemon, daemon.address(), put.as_bytes());
}

/// Sends results with long job handles on each of 4000 Gearman connections, but only a part of their data.
pub fn handles_without_data(trial: &mut Trial) {
    const WORK_COMPLETE: u32 = 13;
    let daemon = trial.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY, "--gearman=127.0.0.1:0"]);
    let head = [WORK_COMPLETE, 8192 + 20].map(u32::to_be_bytes).concat();
    let packet = [b"\0REQ".as_slice(), &head[..], &[b'h'; 8191], b"\0", &[b'x'; 10]].concat();
    withhold(trial, &daemon, address_of(&daemon, "Gearman"), &packet);
}

/// Sends requests with long queries and paths on each of 4000 HTTP connections, but only a part of their bodies.
pub fn queries_without_a_body(trial: &mut Trial) {
    let options = ["-t", "1", "--max-memory", MAX_MEMORY, "--http=127.0.0.1:0", "--http-admin"];
    let daemon = trial.start(&[], &options);
    for path in [format!("{}/kick", "x".repeat(8000)), format!("x/kick?{}", "a&".repeat(3900))] {
        let request = format!(
            "POST /api/tubes/{path} HTTP/1.1\r\nHost: localhost\r\nX-Beanpole: 1\r\n\
             Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{{\"count\""
        );
        withhold(trial, &daemon, address_of(&daemon, "HTTP"), request.as_bytes());
    }
}

fn withhold(trial: &mut Trial, daemon: &Daemon, address: SocketAddr, command: &[u8]) {
    trial.watch_memory(daemon, Some(64 * MIB), |trial| {
        trial.beside_trips(own_connection(daemon), patient_cycle, |trial| {
            let mut crowd = Clients::open_at(address, 4000, None);
            crowd.push(command);
            trial.wait_until_idle(daemon);
            trial.note(format!("{} connections closed", crowd.ended));
        });
    });
}

/// Completes Workq jobs with large results, which the server keeps until they expire, because no client collects them.
pub fn results(trial: &mut Trial) {
    const JOBS: usize = 40;
    const SIZE: usize = 1 << 20;
    let daemon = trial.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY, "--workq=127.0.0.1:0"]);
    let mut worker = Wire::of(connect_to(&daemon, "Workq"));
    let start = daemon.rss();
    let id = |number: usize| format!("6ba7b810-9dad-11d1-80b4-{number:012}");
    trial.watch_memory(&daemon, Some(64 * MIB), |trial| {
        trial.beside(&daemon, |_| {
            for number in 0..JOBS {
                worker.send(format!("add {} results 60000 600000 1\r\nx\r\n", id(number)));
                worker.expect("+OK");
                let result = vec![b'r'; SIZE];
                worker.send([format!("complete {} {SIZE}\r\n", id(number)).as_bytes(), &result, b"\r\n"].concat());
                worker.expect("+OK");
            }
        });
        let kept = daemon.peak_rss() - start;
        trial.note(format!("at most {:.2} x their size in memory", kept as f64 / (JOBS * SIZE) as f64));
        let bound = (JOBS * SIZE) as u64 * 11 / 10 + 4 * MIB;
        trial.check(kept <= bound, || format!("{} MiB for {JOBS} results", kept / MIB));
        for number in 0..JOBS {
            worker.send(format!("result {} 0\r\n", id(number)));
            worker.expect("+OK 1");
            let head = worker.line();
            trial.check(head.ends_with(&format!(" 1 {SIZE}")), || format!("unexpected result: {head}"));
            let mut body = vec![0; SIZE + 2];
            worker.reader().read_exact(&mut body).expect("a result");
            worker.send(format!("delete {}\r\n", id(number)));
            worker.expect("+OK");
        }
    });
}

/// Fills the memory with jobs of each size in turn, and deletes some of them after each size to fragment free memory.
pub fn holes(trial: &mut Trial) {
    // Job sizes in bytes, each with a number N: only every Nth job of this size is kept.
    const PLAN: [(usize, usize); 4] = [(1100, 4), (4200, 2), (9000, 2), (60_000, 1)];
    let daemon = trial.start(&[], &["-t", "1", "--max-memory", MAX_MEMORY]);
    trial.watch_memory(&daemon, Some(64 * MIB), |trial| {
        let mut kept = Vec::new();
        for (size, every) in PLAN {
            let ids = fill(&daemon, size);
            trial.note(format!("{} jobs of {size} bytes", ids.len()));
            let (stay, go): (Vec<_>, Vec<_>) = ids.into_iter().enumerate().partition(|(place, _)| place % every == 0);
            delete(&daemon, go.into_iter().map(|(_, id)| id).collect());
            kept.extend(stay.into_iter().map(|(_, id)| id));
        }
        delete(&daemon, kept);
        let mut wire = Wire::to(&daemon);
        wait_until("puts are accepted again", || {
            wire.send(put(&[b'x'; 60_000], 60));
            wire.line().starts_with("INSERTED")
        });
    });
}

/// Puts jobs of the given size until the server refuses one. Returns the IDs of the accepted jobs.
fn fill(daemon: &Daemon, size: usize) -> Vec<u64> {
    const ROUND: u64 = 500;
    let (stream, mut ids, mut refused) = (daemon.tcp(), Vec::new(), false);
    while !refused {
        pipeline(&stream, pieces(ROUND, |_| put(&vec![b'x'; size], 60)), ROUND, |line| {
            match line.strip_prefix("INSERTED ") {
                Some(id) => ids.push(id.parse().expect("an ID")),
                None => refused = true,
            }
        });
    }
    ids
}

fn delete(daemon: &Daemon, ids: Vec<u64>) {
    let command = |place: u64| format!("delete {}\r\n", ids[place as usize]).into_bytes();
    let count = ids.len() as u64;
    pipeline(&daemon.tcp(), pieces(count, command), count, |line| assert_eq!(line, "DELETED"));
}
