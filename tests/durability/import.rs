//! A folder in which beanstalkd kept its log is taken over, whole and once.
//!
//! Debian's beanstalkd does the work and is asked about every job in the end. Each job ends with a deed that beanstalkd
//! writes down: what it does not write (that a job was reserved or touched, or released without a delay), nobody can know.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use beanpole::Client;

use super::daemon::{command, wait_until};
use super::support::{copy, crash, facts, files, number, stop, total, Dice, Home};

/// The original, where Debian has it.
pub const BEANSTALKD: &str = "/usr/bin/beanstalkd";

const TUBES: [&str; 3] = ["default", "mail", "a/b+c;d.e$f_g(h)"];

/// A running beanstalkd.
pub struct Original {
    child: Child,
    address: SocketAddr,
}

/// A job as beanstalkd describes it, and its body.
type Described = (BTreeMap<String, String>, Vec<u8>);

impl Original {
    /// Starts it on this folder; none if it is not installed.
    pub fn start(path: &Path, options: &[&str]) -> Option<Original> {
        if !Path::new(BEANSTALKD).exists() {
            println!("skipped: no {BEANSTALKD}");
            return None;
        }
        // An address for each: another server that starts meanwhile must not be given the same port.
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let host = Ipv4Addr::new(127, 78, 0, NEXT.fetch_add(1, Ordering::Relaxed));
        let free = TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr()).expect("a free port");
        let mut command = Command::new(BEANSTALKD);
        command.args(["-l", &host.to_string(), "-p", &free.port().to_string(), "-b"]).arg(path).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let original = Original { child: command.spawn().expect("a program that starts"), address: free };
        wait_until("beanstalkd listens", || Client::connect(free).is_ok());
        Some(original)
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(self.address).expect("a connection")
    }

    /// The same, bare.
    pub fn stream(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("a connection")
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes a job if it can be had: ready or delayed.
fn take(client: &mut Client, id: u64) -> bool {
    client.send(format!("reserve-job {id}\r\n").as_bytes()).expect("a server");
    let line = client.line().expect("an answer");
    let Some((_, length)) = line.strip_prefix("RESERVED ").and_then(|rest| rest.split_once(' ')) else { return false };
    let length: usize = length.parse().expect("a length");
    let mut read = 0;
    while read < length + 2 {
        read += client.line().expect("a body").len() + 2;
    }
    true
}

fn kick_job(client: &mut Client, id: u64) {
    client.send(format!("kick-job {id}\r\n").as_bytes()).expect("a server");
    client.line().expect("an answer");
}

/// Some random deeds; the ids of all jobs that were put.
fn work(client: &mut Client, dice: &mut Dice, deeds: usize, ids: &mut Vec<u64>) {
    for _ in 0..deeds {
        if ids.len() < 10 || dice.below(3) == 0 {
            client.use_tube(TUBES[dice.below(3) as usize]).expect("a tube");
            let length = [0, 1, 30, 30, 30, 1000, 5000][dice.below(7) as usize];
            let body: Vec<u8> = (0..length).map(|place| b'a' + (place % 26) as u8).collect();
            let (pri, delay) = (dice.below(1 << 32) as u32, [0, 0, 0, 5000][dice.below(4) as usize]);
            ids.push(client.put(&body, pri, delay, 60 + dice.below(100) as u32).expect("a job"));
            continue;
        }
        let id = ids[dice.below(ids.len() as u64) as usize];
        let pri = dice.below(1000) as u32;
        match dice.below(5) {
            0 => drop(client.delete(id)),
            1 | 2 if take(client, id) => client.bury(id, pri).expect("a job to bury"),
            3 if take(client, id) => client.release(id, pri, 6000).expect("a job to release"),
            _ => kick_job(client, id),
        }
    }
}

fn describe(client: &mut Client, ids: &[u64]) -> BTreeMap<u64, Described> {
    let one = |&id: &u64| Some((id, (facts(client, id)?, client.peek(id).ok()?.body)));
    ids.iter().filter_map(one).collect()
}

/// A folder of beanstalkd after a mixed workload with a restart in it, and what it said of its jobs in the end.
fn original(home: &Home, seed: u64) -> Option<BTreeMap<u64, Described>> {
    println!("seed {seed}");
    let (mut dice, mut ids) = (Dice::new(seed), Vec::new());
    let options = ["-f0", "-s", "20000"];
    let first = Original::start(home.path(), &options)?;
    work(&mut first.client(), &mut dice, 400, &mut ids);
    drop(first);
    let second = Original::start(home.path(), &["-f0", "-s", "200000"])?;
    let mut client = second.client();
    // It would read none of these back, nor what is behind them.
    for length in [65_533, 65_534, 65_535] {
        client.use_tube("big").expect("a tube");
        ids.push(client.put(&vec![b'B'; length], 1, 0, 60).expect("a large job"));
        work(&mut client, &mut dice, 100, &mut ids);
    }
    let jobs = describe(&mut client, &ids);
    assert!(jobs.len() > 30, "{} jobs", jobs.len());
    Some(jobs)
}

/// The very jobs are there, as far as beanstalkd has written them down.
fn compare(client: &mut Client, jobs: &BTreeMap<u64, Described>) {
    assert_eq!(total(client), jobs.len() as u64);
    for (&id, (before, body)) in jobs {
        let after = facts(client, id).unwrap_or_else(|| panic!("job {id} is lost: {before:?}"));
        assert_eq!(&client.peek(id).expect("a job").body, body, "job {id}");
        for key in ["id", "tube", "state", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks"]
        {
            assert_eq!(before[key], after[key], "job {id}: {key}: {before:?} {after:?}");
        }
        let number = |facts: &BTreeMap<String, String>, key: &str| facts[key].parse::<u64>().expect("a number");
        let aged = number(&after, "age").saturating_sub(number(before, "age"));
        assert!(number(&after, "age") + 1 >= number(before, "age") && aged < 60, "{before:?} {after:?}");
        if before["state"] == "delayed" {
            let (was, left) = (number(before, "time-left"), number(&after, "time-left"));
            assert!(left <= was + 1 && left + 60 > was, "{before:?} {after:?}");
        }
    }
}

/// The files of beanstalkd's log.
fn logs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    files(path).into_iter().filter(|(name, _)| name.starts_with("binlog.")).collect()
}

#[test]
fn every_job_of_beanstalkd_is_taken_over_once() {
    for seed in 1..=2 {
        let home = Home::new();
        let Some(jobs) = original(&home, seed) else { return };
        let originals = logs(home.path());
        let daemon = home.start(&["-f0", "-s", "65536"]);
        assert!(daemon.log().contains("imported"), "{}", daemon.log());
        let mut client = daemon.client();
        compare(&mut client, &jobs);
        assert!(logs(home.path()).is_empty());
        assert_eq!(logs(&home.path().join("beanstalkd")), originals);
        assert_eq!(number(&mut client, "stats", "binlog-records-skipped"), 0);
        let newest = *jobs.keys().next_back().expect("a job");
        let id = client.put(b"new", 0, 0, 60).expect("a job");
        assert!(id > newest);
        crash(daemon);
        let daemon = home.start(&["-f0", "-s", "65536"]);
        assert!(!daemon.log().contains("imported"), "{}", daemon.log());
        let mut client = daemon.client();
        client.delete(id).expect("a job to delete");
        compare(&mut client, &jobs);
        stop(daemon);
    }
}

/// Kills the server at a moment of its start, again and again, and lets it finish in the end.
#[test]
fn an_interrupted_import_starts_over() {
    let source = Home::new();
    let Some(mut jobs) = original(&source, 4) else { return };
    let again = Original::start(source.path(), &["-f0", "-z", "100000"]).expect("it is there");
    let mut client = again.client();
    // So many that it takes a while.
    let more: Vec<u64> = (0..600).map(|_| client.put(&[b'm'; 500], 0, 0, 60).expect("a job")).collect();
    let ids: Vec<u64> = jobs.keys().copied().chain(more).collect();
    jobs = describe(&mut client, &ids);
    drop(again);
    let mut marks = 0;
    for round in 0..4 {
        let path = source.beside(&format!("copy-{round}"));
        copy(source.path(), &path);
        let name = path.to_str().expect("a plain path");
        for part in 1..=2 {
            let mut child = command(&["-p", "0", "-b", name, "-s", "65536"]);
            let mut child = child.stderr(Stdio::null()).spawn().expect("a program that starts");
            let end = Instant::now() + Duration::from_millis(4 + round * 12 + part * 6);
            while Instant::now() < end && !path.join("import.done").exists() {
                std::thread::sleep(Duration::from_micros(300));
            }
            child.kill().expect("a child of ours");
            child.wait().expect("a child of ours");
            marks += usize::from(path.join("import.begun").exists());
        }
        let daemon = super::daemon::Daemon::start(&["-b", name, "-s", "65536"]);
        compare(&mut daemon.client(), &jobs);
        assert!(!path.join("import.begun").exists() && !path.join("import.done").exists());
        stop(daemon);
        fs::remove_dir_all(&path).expect("a copy to remove");
    }
    println!("{marks} of 8 kills met an import under way");
}

/// What an import left unfinished counts for nothing, whatever it is.
#[test]
fn the_mark_of_an_unfinished_import_makes_it_start_over() {
    let home = Home::new();
    let Some(jobs) = original(&home, 5) else { return };
    let other = Home::new();
    let daemon = other.start(&["-f0"]);
    let mut client = daemon.client();
    for _ in 0..100 {
        client.put(b"unfinished", 0, 0, 60).expect("a job");
    }
    crash(daemon);
    for (name, bytes) in other.files().into_iter().filter(|(name, _)| name.starts_with("segment.")) {
        fs::write(home.path().join(name), bytes).expect("a file");
    }
    fs::write(home.path().join("import.begun"), "").expect("a mark");
    for imported in [true, false] {
        let daemon = home.start(&["-f0"]);
        assert_eq!(daemon.log().contains("imported"), imported, "{}", daemon.log());
        compare(&mut daemon.client(), &jobs);
        crash(daemon);
    }
}
