//! Tests that beanstalkd's binlog is imported completely and only once.
//!
//! In most tests, Debian's beanstalkd creates the binlog, and the test records each job's statistics. The final
//! operation on each job must be one that beanstalkd stores. beanstalkd does not store reservations, touches, or
//! releases without a delay.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use beanpole::Client;

use super::daemon::{command, run, wait_until};
use super::support::{copy, crash, facts, files, number, stop, total, Home, Random};

/// Returns the path of beanstalkd: the environment variable `BEANSTALKD`, or the path used by Debian or `make compat`.
pub fn beanstalkd() -> Option<PathBuf> {
    let named = std::env::var_os("BEANSTALKD").map(PathBuf::from);
    let usual = ["/usr/bin/beanstalkd", "target/compat/beanstalkd/usr/bin/beanstalkd"].map(PathBuf::from);
    let found = named.into_iter().chain(usual).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no beanstalkd");
    }
    found
}

const TUBES: [&str; 3] = ["default", "mail", "a/b+c;d.e$f_g(h)"];

pub struct Original {
    child: Child,
    address: SocketAddr,
}

/// The statistics and the body of a job.
type Described = (BTreeMap<String, String>, Vec<u8>);

impl Original {
    /// Starts beanstalkd. Returns `None` if it is not installed.
    pub fn start(path: &Path, options: &[&str]) -> Option<Original> {
        let program = beanstalkd()?;
        // Each server gets its own address, because parallel servers with one address could choose the same port.
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let host = Ipv4Addr::new(127, 78, 0, NEXT.fetch_add(1, Ordering::Relaxed));
        loop {
            let free = TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr()).expect("a free port");
            let mut command = Command::new(&program);
            command.args(["-l", &host.to_string(), "-p", &free.port().to_string(), "-b"]).arg(path).args(options);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut original = Original { child: command.spawn().expect("an executable program"), address: free };
            // A server that listens on all addresses can take the port before beanstalkd does, which then exits.
            let mut has_exited = false;
            wait_until("beanstalkd listens", || {
                has_exited = original.child.try_wait().expect("a child").is_some();
                has_exited || original.has_replied()
            });
            if !has_exited {
                return Some(original);
            }
        }
    }

    fn has_replied(&self) -> bool {
        let Ok(mut client) = Client::connect(self.address) else { return false };
        client.set_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        client.figure("stats", "pid").is_ok_and(|pid| pid == self.child.id().to_string())
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address).expect("a connection")
    }

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

/// Reserves a job. Returns `false` if the server cannot reserve the job.
fn take(client: &mut Client, id: u64) -> bool {
    client.send(format!("reserve-job {id}\r\n").as_bytes()).expect("a server");
    let line = client.line().expect("a reply");
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
    client.line().expect("a reply");
}

/// Executes random operations, and appends the IDs of new jobs to `ids`.
fn work(client: &mut Client, random: &mut Random, operations: usize, ids: &mut Vec<u64>) {
    for _ in 0..operations {
        if ids.len() < 10 || random.below(3) == 0 {
            client.use_tube(TUBES[random.below(3) as usize]).expect("a tube");
            let length = [0, 1, 30, 30, 30, 1000, 5000][random.below(7) as usize];
            let body: Vec<u8> = (0..length).map(|place| b'a' + (place % 26) as u8).collect();
            let (pri, delay) = (random.below(1 << 32) as u32, [0, 0, 0, 5000][random.below(4) as usize]);
            ids.push(client.put(&body, pri, delay, 60 + random.below(100) as u32).expect("a job"));
            continue;
        }
        let id = ids[random.below(ids.len() as u64) as usize];
        let pri = random.below(1000) as u32;
        match random.below(5) {
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

/// Lets beanstalkd create a binlog with random operations and one restart. Returns the final description of each job.
fn original(home: &Home, seed: u64) -> Option<BTreeMap<u64, Described>> {
    println!("seed {seed}");
    let (mut random, mut ids) = (Random::new(seed), Vec::new());
    let options = ["-f0", "-s", "20000"];
    let first = Original::start(home.path(), &options)?;
    work(&mut first.client(), &mut random, 400, &mut ids);
    drop(first);
    let second = Original::start(home.path(), &["-f0", "-s", "200000"])?;
    let mut client = second.client();
    // When beanstalkd restarts, it fails to read these jobs from its binlog, and ignores all records after them.
    for length in [65_533, 65_534, 65_535] {
        client.use_tube("big").expect("a tube");
        ids.push(client.put(&vec![b'B'; length], 1, 0, 60).expect("a large job"));
        work(&mut client, &mut random, 100, &mut ids);
    }
    let jobs = describe(&mut client, &ids);
    assert!(jobs.len() > 30, "{} jobs", jobs.len());
    Some(jobs)
}

/// Checks that the server has exactly these jobs. Ignores the properties that beanstalkd does not store.
fn compare(client: &mut Client, jobs: &BTreeMap<u64, Described>) {
    assert_eq!(total(client), jobs.len() as u64);
    for (&id, (before, body)) in jobs {
        let after = facts(client, id).unwrap_or_else(|| panic!("job {id} is lost: {before:?}"));
        assert_eq!(&client.peek(id).expect("a job").body, body, "job {id}");
        for key in ["id", "tube", "state", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "kicks"] {
            assert_eq!(before[key], after[key], "job {id}: {key}: {before:?} {after:?}");
        }
        let number = |facts: &BTreeMap<String, String>, key: &str| facts[key].parse::<u64>().expect("a number");
        // At startup, beanstalkd increments the bury count of each buried job, but does not always store the new count.
        let counted = number(before, "buries") - number(&after, "buries");
        assert!(counted <= u64::from(before["state"] == "buried"), "job {id}: {before:?} {after:?}");
        let aged = number(&after, "age").saturating_sub(number(before, "age"));
        assert!(number(&after, "age") + 1 >= number(before, "age") && aged < 60, "{before:?} {after:?}");
        if before["state"] == "delayed" {
            let (was, left) = (number(before, "time-left"), number(&after, "time-left"));
            assert!(left <= was + 1 && left + 60 > was, "{before:?} {after:?}");
        }
    }
}

/// Returns the contents of beanstalkd's log files by name.
fn logs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    files(path).into_iter().filter(|(name, _)| name.starts_with("binlog.")).collect()
}

// Tests promise P37 of beanpole-promises(7).
#[test]
fn every_job_of_beanstalkd_is_imported_once() {
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

/// For each size, puts several jobs and brings them into different states. Every state occurs. Returns the IDs.
fn every_state(client: &mut Client, sizes: &[usize]) -> Vec<u64> {
    let mut ids = Vec::new();
    for (place, &size) in sizes.iter().enumerate() {
        for operation in 0..7 {
            client.use_tube(TUBES[(place + operation) % 3]).expect("a tube");
            let id = client
                .put(&vec![b'a' + operation as u8; size], 10, if operation == 1 { 5000 } else { 0 }, 1000)
                .expect("a job");
            if operation > 1 && !take(client, id) {
                panic!("job {id} cannot be reserved");
            }
            match operation {
                3 => client.bury(id, 3).expect("a job to bury"),
                4 => client.release(id, 4, 6000).expect("a job to release"),
                5 => {
                    client.bury(id, 5).expect("a job to bury");
                    kick_job(client, id);
                }
                6 => client.delete(id).expect("a job to delete"),
                // The job remains ready, delayed or reserved.
                _ => {}
            }
            ids.push(id);
        }
    }
    ids
}

/// Changes the expected state of reserved jobs to ready, because the client that held them has disconnected. Sets the
/// expected number of their reservations to `reserves`.
fn without_holder(jobs: &mut BTreeMap<u64, Described>, reserves: &str) {
    for (facts, _) in jobs.values_mut().filter(|(facts, _)| facts["state"] == "reserved") {
        facts.insert("state".to_owned(), "ready".to_owned());
        facts.insert("reserves".to_owned(), reserves.to_owned());
    }
}

/// beanstalkd moves jobs out of its oldest files and removes these files. The log then contains deletes of jobs that no
/// remaining file contains.
#[test]
fn jobs_in_every_state_and_file_are_imported() {
    let home = Home::new();
    let Some(original) = Original::start(home.path(), &["-f0", "-s", "20000"]) else { return };
    let mut client = original.client();
    let moved = every_state(&mut client, &[0, 1, 100, 1000]);
    while describe(&mut client, &moved).values().any(|(facts, _)| facts["file"] == "1") {
        let id = client.put(&[b'-'; 500], 0, 0, 60).expect("a job");
        client.delete(id).expect("a job to delete");
    }
    assert!(number(&mut client, "stats", "binlog-records-migrated") > 10);
    assert!(number(&mut client, "stats", "binlog-oldest-index") > 1);
    let mut jobs = describe(&mut client, &moved);
    // beanstalkd moved the reserved jobs to newer files, so the log contains their reservations.
    without_holder(&mut jobs, "1");
    client.use_tube("buried").expect("a tube");
    let order: Vec<u64> = (0..5).map(|_| client.put(b"x", 0, 0, 60).expect("a job")).rev().collect();
    for &id in &order {
        assert!(take(&mut client, id));
        client.bury(id, 0).expect("a job to bury");
    }
    // After a restart with default settings, beanstalkd itself would fail to read the largest of these jobs.
    let unmoved = every_state(&mut client, &[0, 30, 65_533, 65_534, 65_535]);
    jobs.extend(describe(&mut client, &[unmoved, order.clone()].concat()));
    without_holder(&mut jobs, "0");
    drop(original);
    let daemon = home.start(&["-f0", "--strict"]);
    let mut client = daemon.client();
    compare(&mut client, &jobs);
    client.use_tube("buried").expect("a tube");
    for id in order {
        assert_eq!(client.peek_buried().expect("a buried job").id, id);
        assert_eq!(client.kick(1).expect("a number"), 1);
    }
    stop(daemon);
}

/// If beanstalkd cannot read a job in its binlog when it starts, it ignores this job and all later records. It then
/// assigns the IDs of the ignored jobs to new jobs.
#[test]
fn jobs_that_beanstalkd_ignored_are_imported_along_with_newer_jobs() {
    let home = Home::new();
    let Some(first) = Original::start(home.path(), &["-f0"]) else { return };
    let put = |client: &mut Client, body: &str| client.put(body.as_bytes(), 0, 0, 60).expect("a job");
    let mut client = first.client();
    let large = "L".repeat(65_535);
    let old = ["one", &large, "old three", "old four", "old five"];
    assert_eq!(old.map(|body| put(&mut client, body)), [1, 2, 3, 4, 5]);
    assert!(take(&mut client, 4));
    client.bury(4, 0).expect("a job to bury");
    drop(first);
    let second = Original::start(home.path(), &["-f0"]).expect("an installed beanstalkd");
    let mut client = second.client();
    assert_eq!(total(&mut client), 1, "beanstalkd has read records after the large job");
    assert_eq!(["new two", "new three", "new four"].map(|body| put(&mut client, body)), [2, 3, 4]);
    client.delete(4).expect("a job to delete");
    drop(second);
    let daemon = home.start(&["-f0", "--strict"]);
    let log = daemon.wait_log("imported");
    assert!(log.contains("gave the ids of 2 jobs twice"), "{log}");
    let mut client = daemon.client();
    // The old jobs 2 and 3 get new IDs, because new jobs have IDs 2 and 3. The new job 4 no longer exists.
    let jobs = ["one", "new two", "new three", "old four", "old five", &large, "old three"];
    assert_eq!(total(&mut client), jobs.len() as u64);
    for (id, body) in (1..).zip(jobs) {
        let found = client.peek(id).unwrap_or_else(|error| panic!("job {id}: {error}"));
        assert!(found.body == body.as_bytes(), "job {id}: {:?}", String::from_utf8_lossy(&found.body));
    }
    assert_eq!(facts(&mut client, 4).expect("a job")["state"], "buried");
    assert_eq!(put(&mut client, "newest"), 8);
    stop(daemon);
}

#[test]
fn a_damaged_log_is_imported_up_to_the_damage() {
    let home = Home::new();
    let Some(original) = Original::start(home.path(), &["-f0", "-s", "20000"]) else { return };
    let mut client = original.client();
    let ids: Vec<u64> = (0..100).map(|_| client.put(&[b'j'; 1000], 0, 0, 60).expect("a job")).collect();
    let jobs = describe(&mut client, &ids);
    drop(original);
    let mut names: Vec<String> = logs(home.path()).into_keys().collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    assert!(names.len() > 4, "{names:?}");
    let (damaged, missing, behind) = (&names[1], &names[2], &names[3]);
    let path = home.path().join(damaged);
    let mut bytes = fs::read(&path).expect("a file");
    let half = bytes.len() / 2;
    bytes[half..].fill(0xFF);
    fs::remove_file(&path).expect("a file of mode 400");
    fs::write(&path, bytes).expect("a file");
    fs::remove_file(home.path().join(missing)).expect("a file");
    let originals = logs(home.path());
    let refused = run(&["-p", "0", "-b", home.name(), "--strict"]);
    assert!(refused.code == 1 && refused.err.contains("were not read"), "{refused:?}");
    assert_eq!(logs(home.path()), originals);
    let daemon = home.start(&["-f0"]);
    let log = daemon.wait_log("imported");
    assert!(log.contains(&format!("{damaged}:")) && log.contains("deleted ones back"), "{log}");
    assert!(log.contains(&format!("{behind}: the files before it, from {missing} on, are missing")), "{log}");
    let mut client = daemon.client();
    assert!(number(&mut client, "stats", "binlog-records-skipped") >= 2);
    let elsewhere = |(facts, _): &&Described| ![damaged, missing].contains(&&format!("binlog.{}", facts["file"]));
    let whole: Vec<&Described> = jobs.values().filter(elsewhere).collect();
    assert!(whole.len() > 10 && whole.len() < jobs.len(), "{} of {}", whole.len(), jobs.len());
    for (facts, body) in whole {
        let id = facts["id"].parse().expect("a number");
        assert_eq!(&client.peek(id).expect("a job").body, body, "job {id}");
    }
    assert_eq!(logs(&home.path().join("beanstalkd")), originals);
    stop(daemon);
}

/// Returns a record in format version 5, whose times are in microseconds. The job has a body of five bytes.
fn record_5(tube: &str, id: u64, state: u8, age: u64, delay: u64) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros() as u64;
    let mut out = (tube.len() as u64).to_le_bytes().to_vec();
    out.extend(tube.as_bytes());
    for number in [id, 1000 + id, delay * 1_000_000, 77_000_000, 7, now - age * 1_000_000, now + delay * 1_000_000] {
        out.extend(number.to_le_bytes());
    }
    out.extend((1..=5_u32).flat_map(|count| (count * 11).to_le_bytes()));
    out.push(state);
    out
}

/// Current versions of beanstalkd do not write version 5, but Debian's version can read it.
#[test]
fn version_5_is_read_as_beanstalkd_reads_it() {
    let home = Home::new();
    let body = b"hello\r\n".to_vec();
    let mut bytes = 5_u32.to_le_bytes().to_vec();
    for (id, state, delay) in [(1, 1, 0), (2, 4, 5000), (3, 3, 0), (4, 1, 0), (5, 1, 0)] {
        bytes.extend([record_5("old.tube", id, state, 3000 + id, delay), body.clone()].concat());
    }
    // All records of a job contain the same creation time.
    let births: Vec<u8> = bytes[4 + 8 + 8 + 40..][..8].to_vec();
    let mut deleted = record_5("", 1, 0, 0, 0);
    deleted[8 + 40..][..8].copy_from_slice(&births);
    bytes.extend(deleted);
    bytes.extend([0; 1000]);
    fs::write(home.path().join("binlog.1"), bytes).expect("a file");
    let Some(original) = Original::start(home.path(), &["-f0"]) else { return };
    let mut client = original.client();
    assert_eq!(total(&mut client), 4);
    client.kick_job(3).expect("a job to kick");
    client.delete(4).expect("a job to delete");
    let jobs = describe(&mut client, &[2, 3, 4, 5]);
    assert!(jobs.len() == 3 && jobs[&2].0["ttr"] == "77" && jobs[&2].0["state"] == "delayed", "{jobs:?}");
    drop(original);
    let daemon = home.start(&["-f0", "--strict"]);
    compare(&mut daemon.client(), &jobs);
    stop(daemon);
}

#[test]
fn ids_that_beanstalkd_assigned_twice_are_reported() {
    const TOLD: &str = "beanstalkd gave the ids of 1 jobs twice; the older ones have new ids, the last is 8";
    for (ids, twice) in [([6, 7], false), ([7, 7], true)] {
        let home = Home::new();
        let mut bytes = 5_u32.to_le_bytes().to_vec();
        for (place, id) in ids.into_iter().enumerate() {
            bytes.extend([record_5("t", id, 1, 3000 - place as u64, 0), b"hello\r\n".to_vec()].concat());
        }
        fs::write(home.path().join("binlog.1"), bytes).expect("a file");
        let daemon = home.start(&["-f0"]);
        assert_eq!(total(&mut daemon.client()), 2);
        assert_eq!((daemon.log().contains(TOLD), daemon.log().contains("twice")), (twice, twice), "{}", daemon.log());
        stop(daemon);
    }
}

/// Kills the server at different moments of its first two starts. Afterwards, a third start completes the import.
// Tests promise P37 of beanpole-promises(7).
#[test]
fn an_interrupted_import_starts_over() {
    let source = Home::new();
    let Some(mut jobs) = original(&source, 4) else { return };
    let again = Original::start(source.path(), &["-f0", "-z", "100000"]).expect("an installed beanstalkd");
    let mut client = again.client();
    // With more jobs, the import takes long enough for the test to kill the server during the import.
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
            let mut child = child.stderr(Stdio::null()).spawn().expect("an executable program");
            let end = Instant::now() + Duration::from_millis(4 + round * 12 + part * 6);
            while Instant::now() < end && !path.join("import.done").exists() {
                std::thread::sleep(Duration::from_micros(300));
            }
            child.kill().expect("a child process");
            child.wait().expect("a child process");
            marks += usize::from(path.join("import.begun").exists());
        }
        let daemon = super::daemon::Daemon::start(&["-b", name, "-s", "65536"]);
        compare(&mut daemon.client(), &jobs);
        assert!(!path.join("import.begun").exists() && !path.join("import.done").exists());
        stop(daemon);
        fs::remove_dir_all(&path).expect("a copy to remove");
    }
    println!("{marks} of 8 kills interrupted an import");
}

/// A start must ignore the data that an unfinished import has written.
#[test]
fn an_unfinished_import_is_repeated() {
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
