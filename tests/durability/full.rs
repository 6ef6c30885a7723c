//! Tests a full disk: the server must refuse new jobs, execute deletes and all commands that need no space, and lose no
//! acknowledged change.
//!
//! The full disk is a small tmpfs, which only root can mount. Without root privileges, the tests that need the tmpfs
//! only print a message. The other tests check that no put is refused while the disk has space.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use beanpole::Client;

use super::daemon::{wait_until, Daemon, Signal};
use super::support::{crash, is_refused, state, stop, total, Home};

const OPTIONS: [&str; 3] = ["-f0", "-s", "65536"];

struct Small(Home);

impl Small {
    fn new() -> Option<Small> {
        let home = Home::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs", home.name()]).stderr(Stdio::null());
        let mounted = mount.status().is_ok_and(|status| status.success());
        if !mounted {
            println!("skipped: no tmpfs can be mounted");
        }
        mounted.then_some(Small(home))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A server that is about to exit may still use the file system, so the file system is unmounted lazily.
        let _ = Command::new("umount").args(["-l", self.0.name()]).status();
    }
}

fn body(number: u64) -> Vec<u8> {
    let mut body = format!("job {number}:").into_bytes();
    body.resize(1000 + (number % 1000) as usize, b'.');
    body
}

/// Puts jobs until one is refused, and adds the accepted jobs to `jobs`.
fn put_all(client: &mut Client, jobs: &mut BTreeMap<u64, Vec<u8>>) {
    for number in 0..100_000 {
        let body = body(number);
        match client.put(&body, 5, 0, 60) {
            Ok(id) => {
                assert!(jobs.insert(id, body).is_none(), "ID {id} was assigned twice");
            }
            result => {
                assert!(is_refused(&result), "{result:?}");
                return;
            }
        }
    }
    panic!("the disk never became full");
}

fn compare(client: &mut Client, jobs: &BTreeMap<u64, Vec<u8>>) {
    for (&id, body) in jobs {
        let found = client.peek(id).unwrap_or_else(|error| panic!("job {id}: {error}"));
        assert_eq!(&found.body, body);
    }
    assert_eq!(total(client), jobs.len() as u64);
}

/// Checks that the server refuses jobs of 5000 bytes and executes commands that need no disk space.
fn goes_on(client: &mut Client, jobs: &BTreeMap<u64, Vec<u8>>) {
    assert_eq!(state(client), "full");
    for _ in 0..20 {
        assert!(is_refused(&client.put(&[b'x'; 5000], 0, 0, 60)));
    }
    let job = client.reserve(Some(0)).unwrap().expect("a job");
    assert_eq!(job.body, jobs[&job.id]);
    client.touch(job.id).unwrap();
    compare(client, jobs);
}

fn delete_some(daemon: &Daemon, client: &mut Client, jobs: &mut BTreeMap<u64, Vec<u8>>, count: usize) {
    for _ in 0..count {
        let (id, _) = jobs.pop_first().expect("a job");
        client.delete(id).unwrap_or_else(|error| panic!("delete {id}: {error}; log:\n{}", daemon.log()));
    }
}

/// Returns the number of log messages about a full disk, and the number of messages about its recovery.
fn counts(log: &str) -> (usize, usize) {
    let count = |words: &str| log.lines().filter(|line| line.contains("binlog") && line.contains(words)).count();
    (count(" refused"), count("taken again"))
}

fn resumes(client: &mut Client, jobs: &mut BTreeMap<u64, Vec<u8>>) {
    wait_until("the server accepts jobs again", || match client.put(b"after", 5, 0, 60) {
        Ok(id) => {
            jobs.insert(id, b"after".to_vec());
            true
        }
        result => {
            assert!(is_refused(&result), "{result:?}");
            false
        }
    });
    wait_until("the state is ok again", || state(client) == "ok");
}

fn filled(small: &Small) -> (Daemon, Client, BTreeMap<u64, Vec<u8>>) {
    let daemon = small.0.start(&OPTIONS);
    let mut client = daemon.client();
    let mut jobs = BTreeMap::new();
    put_all(&mut client, &mut jobs);
    println!("{} jobs fit on 2 MB", jobs.len());
    assert!(jobs.len() > 300, "{} jobs", jobs.len());
    (daemon, client, jobs)
}

// Tests promise P16 of beanpole-promises(7).
#[test]
fn deletes_are_durable_on_a_full_disk_and_make_space() {
    let Some(small) = Small::new() else { return };
    let (daemon, mut client, mut jobs) = filled(&small);
    goes_on(&mut client, &jobs);
    delete_some(&daemon, &mut client, &mut jobs, 20);
    crash(daemon);
    // Restarts the server on the full disk. The deleted jobs must not reappear.
    let daemon = small.0.start(&OPTIONS);
    let mut client = daemon.client();
    compare(&mut client, &jobs);
    let rest = jobs.len() - 50;
    delete_some(&daemon, &mut client, &mut jobs, rest);
    resumes(&mut client, &mut jobs);
    crash(daemon);
    let daemon = small.0.start(&OPTIONS);
    let mut client = daemon.client();
    compare(&mut client, &jobs);
    // Fills the disk again, and deletes all jobs.
    put_all(&mut client, &mut jobs);
    let all = jobs.len();
    delete_some(&daemon, &mut client, &mut jobs, all);
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let daemon = small.0.start(&OPTIONS);
    assert_eq!(total(&mut daemon.client()), 0);
    stop(daemon);
}

// Tests promise P16 of beanpole-promises(7).
#[test]
fn service_resumes_when_another_program_frees_space() {
    let Some(small) = Small::new() else { return };
    let filler = small.0.path().join("filler");
    fs::write(&filler, vec![b'x'; 1 << 20]).unwrap();
    let daemon = small.0.start(&OPTIONS);
    let mut client = daemon.client();
    let mut jobs = BTreeMap::new();
    put_all(&mut client, &mut jobs);
    goes_on(&mut client, &jobs);
    // Another thread logs the message, possibly after the client has received the refusal.
    daemon.wait_log(" refused");
    assert_eq!(counts(&daemon.log()), (1, 0), "{}", daemon.log());
    fs::remove_file(&filler).unwrap();
    // The server must resume even if no client sends a command.
    daemon.wait_log("taken again");
    resumes(&mut client, &mut jobs);
    assert_eq!(counts(&daemon.log()), (1, 1), "{}", daemon.log());
    compare(&mut client, &jobs);
    crash(daemon);
    let daemon = small.0.start(&OPTIONS);
    compare(&mut daemon.client(), &jobs);
    stop(daemon);
}

/// Several threads share the space that the log has prepared. If another thread has used the space, a put must wait for
/// more space instead of failing.
#[test]
fn no_put_is_refused_while_the_disk_has_space() {
    let home = Home::new();
    let daemon = home.start(&["-f", "50", "-s", "4096", "-t", "4"]);
    let work = || {
        let mut client = daemon.client();
        for number in 0..1500 {
            let id = client.put(&[b'x'; 300], 5, 0, 60).expect("space for a job");
            if number % 4 != 0 {
                client.delete(id).expect("a job");
            }
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(work))));
    assert_eq!(total(&mut daemon.client()), 8 * 375);
}

/// Many small jobs must not use the space that is being prepared for a large job.
#[test]
fn small_jobs_do_not_starve_large_ones() {
    let home = Home::new();
    let daemon = home.start(&["-F", "-s", "4096", "-t", "2"]);
    let done = AtomicBool::new(false);
    let flood = || {
        let mut client = daemon.client();
        while !done.load(Ordering::SeqCst) {
            let id = client.put(&[b'x'; 300], 5, 0, 60).expect("space for a job");
            client.delete(id).expect("a job");
        }
    };
    std::thread::scope(|scope| {
        (0..6).for_each(|_| drop(scope.spawn(flood)));
        let mut client = daemon.client();
        let large: Vec<_> = (0..30).map(|_| client.put(&[b'x'; 60_000], 5, 0, 60)).collect();
        done.store(true, Ordering::SeqCst);
        large.into_iter().for_each(|id| client.delete(id.expect("a large job")).expect("a job"));
    });
    assert_eq!(total(&mut daemon.client()), 0);
}
