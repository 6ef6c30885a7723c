//! Tests the disk usage of the real program's log. The segments are so small that commands must wait for new segments.
//!
//! While clients send long pipelines, the log must not exceed twice the size of the live jobs, plus two segments.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use beanpole::Client;

use super::daemon::{wait_until, Daemon};
use super::support::{number, stop, Home};

const SEGMENT: u64 = 65_536;

/// The number of live jobs, and the total number of commands in the pipelines of a round.
const JOBS: u64 = 500;

const BODY: [u8; 100] = [b'x'; 100];

/// The size of a job in the log in bytes, according to the manual: fixed part, tube, body, options and key.
const LIVE: u64 = 93 + 7 + 100 + 68 + 6;

/// Returns a put for each key in `numbers`. If a job with this key exists, the put changes its priority.
fn puts(numbers: std::ops::Range<u64>, pri: u64) -> Vec<u8> {
    let put = |number| [format!("put {pri} 0 60 100 idp:{number:06}\r\n").as_bytes(), &BODY, b"\r\n"].concat();
    numbers.flat_map(put).collect()
}

fn replies(client: &mut Client, count: u64) {
    for _ in 0..count {
        let line = client.line().expect("a reply");
        assert!(line.starts_with("INSERTED "), "{line}");
    }
}

// Tests promise P20 of beanpole-promises(7).
#[test]
fn pipelines_of_duplicates_keep_the_log_within_its_bound() {
    for mode in ["-f0", "-F"] {
        let home = Home::new();
        let daemon = home.start(&[mode, "-s", &SEGMENT.to_string()]);
        let mut clients: Vec<Client> = (0..10).map(|_| daemon.client()).collect();
        let share = JOBS / clients.len() as u64;
        let mut worst = i64::MIN;
        for round in 0..100 {
            let pri = 1_000_000 - round;
            // In even rounds, one client sends all commands. In odd rounds, each client sends an equal share.
            if round % 2 == 0 {
                clients[0].send(&puts(0..JOBS, pri)).expect("a server");
                replies(&mut clients[0], JOBS);
            } else {
                let starts = (0..JOBS).step_by(share as usize);
                for (client, start) in clients.iter_mut().zip(starts) {
                    client.send(&puts(start..start + share, pri)).expect("a server");
                }
                clients.iter_mut().for_each(|client| replies(client, share));
            }
            let used = clients[0].figure("stats", "binlog-size").expect("statistics").parse::<i64>().expect("a number");
            worst = worst.max(used - 2 * (JOBS * LIVE + SEGMENT) as i64);
        }
        assert!(worst <= 0, "{mode}: {worst} bytes above the bound");
        stop(daemon);
    }
}

fn used(client: &mut Client) -> u64 {
    number(client, "stats", "binlog-size")
}

/// Reserves all jobs. Depending on `round`, the worker then disconnects, releases all jobs, or buries all jobs.
fn reserve_and_return(daemon: &Daemon, round: u64, ids: &[u64]) {
    let mut worker = daemon.client();
    let reserved = worker.reserve_batch(JOBS as u32, Some(0)).expect("jobs");
    let commands: String = match round % 3 {
        0 => return,
        1 => ids.iter().map(|id| format!("release {id} {round} 0\r\n")).collect(),
        _ => ids.iter().map(|id| format!("bury {id} {round}\r\n")).collect(),
    };
    worker.send(commands.as_bytes()).expect("a server");
    let refused = ids.iter().filter(|_| worker.line().expect("a reply") == "NOT_FOUND").count();
    assert_eq!(ids.len() - refused, reserved.len());
    worker.kick(u32::MAX).expect("kicked jobs");
}

// Tests promise P20 of beanpole-promises(7).
#[test]
fn a_log_of_reservations_never_exceeds_its_bound() {
    for (mode, segment) in [("-f0", 4096), ("-F", 4096), ("-f0", 16_384), ("-F", 16_384)] {
        let home = Home::new();
        let daemon = home.start(&[mode, "-s", &segment.to_string()]);
        let mut client = daemon.client();
        let ids: Vec<u64> = (0..JOBS).map(|_| client.put(&BODY, 1, 0, 600).expect("a job")).collect();
        let bound = 2 * (JOBS * (94 + 7 + 100) + segment);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut observer = daemon.client();
                let mut worst = 0;
                while !is_over.load(Ordering::Relaxed) {
                    worst = worst.max(used(&mut observer));
                }
                worst
            });
            (0..30).for_each(|round| reserve_and_return(&daemon, round, &ids));
            is_over.store(true, Ordering::Relaxed);
            let worst = watch.join().expect("an observer");
            assert!(worst <= bound, "{mode}, segments of {segment}: {worst} bytes, the bound is {bound}");
        });
        stop(daemon);
    }
}

#[test]
fn schedules_with_copies_larger_than_a_segment_run() {
    let home = Home::new();
    let daemon = home.start(&["-F", "-z", "1M", "-s", &SEGMENT.to_string()]);
    let mut client = daemon.client();
    let body = "x".repeat(2 * SEGMENT as usize);
    for number in 0..10 {
        let put = format!("put 0 1 60 {} idp:{number} every:1000\r\n{body}\r\n", body.len());
        client.send(put.as_bytes()).expect("a server");
    }
    replies(&mut client, 10);
    wait_until("each schedule has run", || number(&mut client, "stats", "current-jobs-ready") == 10);
    stop(daemon);
}

#[test]
fn a_copy_larger_than_a_segment_is_put_on_request() {
    let home = Home::new();
    let segment = SEGMENT.to_string();
    let daemon = home.start(&["-F", "-z", "1M", "-s", &segment, "--http=127.0.0.1:0", "--http-admin"]);
    let mut client = daemon.client();
    let body = "x".repeat(2 * SEGMENT as usize);
    let http = daemon.names().iter().find_map(|name| name.strip_prefix("http://")).expect("an HTTP listener");
    let http = http.trim_end_matches('/');
    for number in 0..4 {
        let put = format!("put 0 0 1 {} idp:{number} every:1000\r\n{body}\r\n", body.len());
        client.send(put.as_bytes()).expect("a server");
        let line = client.line().expect("a reply");
        let id: u64 = line.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("an ID");
        if number % 2 == 0 {
            client.kick_job(id).expect("the copy is put");
            continue;
        }
        let mut stream = TcpStream::connect(http).expect("a connection");
        let head = "Host: localhost\r\nX-Beanpole: 1\r\nContent-Type: application/json\r\nConnection: close";
        write!(stream, "POST /api/jobs/{id}/kick HTTP/1.1\r\n{head}\r\nContent-Length: 0\r\n\r\n").expect("a server");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    }
    assert_eq!(number(&mut client, "stats", "current-jobs-ready"), 4);
    stop(daemon);
}
