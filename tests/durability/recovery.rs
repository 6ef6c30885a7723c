//! Measures the time that beanpole and beanstalkd need to recover a million jobs. Also tests the recovery of a job that
//! waited for a group.
//!
//! The measurement runs only on request:
//! `BEANPOLE_RECOVERY=1 cargo test --release --test durability recovery -- --nocapture`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use beanpole::Client;

use super::daemon::Daemon;
use super::import::Original;
use super::support::{ask, crash, total, Home};

const JOBS: u64 = 1_000_000;
const BODY: [u8; 64] = [b'b'; 64];

/// The number of puts that are sent before their replies are read.
const AT_A_TIME: u64 = 1000;

const RUNS: usize = 3;

fn fill(stream: TcpStream) {
    let mut put = b"put 0 0 60 64\r\n".to_vec();
    put.extend_from_slice(&BODY);
    put.extend_from_slice(b"\r\n");
    let some = put.repeat(AT_A_TIME as usize);
    let (mut writer, mut reader) = (&stream, BufReader::new(&stream));
    let mut line = String::new();
    for _ in 0..JOBS / AT_A_TIME {
        writer.write_all(&some).expect("a server");
        for _ in 0..AT_A_TIME {
            line.clear();
            reader.read_line(&mut line).expect("a reply");
            assert!(line.starts_with("INSERTED "), "{line}");
        }
    }
}

fn check(mut client: Client) {
    assert_eq!(total(&mut client), JOBS);
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn recovery_of_a_million_jobs() {
    if std::env::var_os("BEANPOLE_RECOVERY").is_none() {
        return println!("skipped: BEANPOLE_RECOVERY is not set");
    }
    let (ours, theirs) = (Home::new(), Home::new());
    let daemon = ours.start(&[]);
    fill(daemon.tcp());
    crash(daemon);
    let one = || {
        let start = Instant::now();
        let daemon: Daemon = ours.start(&[]);
        check(daemon.client());
        let taken = start.elapsed();
        crash(daemon);
        taken
    };
    let our_time = median((0..RUNS).map(|_| one()).collect());
    println!("{JOBS} jobs of {} bytes: beanpole recovers in {our_time:?}", BODY.len());
    let Some(original) = Original::start(theirs.path(), &[]) else { return };
    fill(original.stream());
    drop(original);
    let one = || {
        let start = Instant::now();
        let original = Original::start(theirs.path(), &[]).expect("an installed beanstalkd");
        // beanstalkd accepts connections before it reads its log, but replies only after it has read the log.
        check(original.client());
        start.elapsed()
    };
    let their_time = median((0..RUNS).map(|_| one()).collect());
    let ratio = our_time.as_secs_f64() / their_time.as_secs_f64();
    println!("beanstalkd recovers in {their_time:?}; beanpole takes {ratio:.2} of that time");
}

/// One job waited for two members of a group that has ended. Another job waits for one member of a later group with the
/// same name. After a restart, the first job must still be released.
#[test]
fn a_released_job_stays_released_if_the_name_of_its_group_is_used_again() {
    let home = Home::new();
    let daemon = home.start(&["-f0"]);
    let stream = TcpStream::connect(daemon.address()).expect("a connection");
    let put = |tags: &str| format!("put 0 0 60 1 {tags}\r\nx");
    let lines = [
        put("grp:g"),
        put("grp:g"),
        put("aft:g:2"),
        "delete 1".to_owned(),
        "delete 2".to_owned(),
        put("grp:g"),
        put("aft:g:1"),
    ];
    let replies = ask(&stream, &lines);
    assert_eq!(replies.len(), lines.len());
    let states = |daemon: &Daemon| {
        let mut client = daemon.client();
        [3, 5].map(|id| client.figure(&format!("stats-job {id}"), "state").expect("a state"))
    };
    assert_eq!(states(&daemon), ["ready", "held"]);
    crash(daemon);
    let daemon = home.start(&["-f0"]);
    assert_eq!(states(&daemon), ["ready", "held"]);
    daemon.client().delete(4).expect("a member");
    assert_eq!(states(&daemon), ["ready", "ready"]);
}
