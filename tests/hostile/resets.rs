//! Resets many connections at once, in every state that a connection can have.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::daemon::{wait_until, Daemon};
use crate::wire::{allow_files, at_rest, calm, figure, put, served, stat, Random, StopAtEnd, Wire};

const STORM: usize = 500;

/// The number of connections with pending replies. It is low, because each connection uses kernel memory.
const PENDING: usize = 100;

fn connect(daemon: &Daemon, count: usize) -> Vec<Wire> {
    allow_files(4096);
    (0..count).map(|_| Wire::to(daemon)).collect()
}

/// Resets all connections at once, and waits until the server has closed them.
fn storm(daemon: &Daemon, clients: Vec<Wire>) {
    clients.into_iter().for_each(Wire::reset);
    let mut observer = daemon.client();
    wait_until("all connections are closed", || figure(&mut observer, "stats", "current-connections") == 1);
    assert_eq!(figure(&mut observer, "stats", "current-waiting"), 0);
}

#[test]
fn resets_of_idle_connections() {
    let daemon = Daemon::start(&[]);
    for _ in 0..3 {
        storm(&daemon, connect(&daemon, STORM));
    }
    calm(&daemon);
}

#[test]
fn resets_while_waiting() {
    let daemon = Daemon::start(&[]);
    let mut clients = connect(&daemon, STORM);
    clients.iter_mut().for_each(|client| client.send("reserve\r\n"));
    wait_until("all clients wait", || stat(&daemon, "current-waiting") == STORM as u64);
    storm(&daemon, clients);
    calm(&daemon);
}

/// Resets connections while half of the clients receive jobs. No job may be lost or delivered twice.
#[test]
fn resets_during_deliveries() {
    let daemon = Daemon::start(&["-t", "2"]);
    let mut clients = connect(&daemon, STORM);
    clients.iter_mut().for_each(|client| client.send("reserve\r\n"));
    wait_until("all clients wait", || stat(&daemon, "current-waiting") == STORM as u64);
    let mut producer = Wire::to(&daemon);
    producer.send(put(b"x", 60).repeat(STORM / 2));
    clients.into_iter().for_each(Wire::reset);
    for id in 1..=STORM / 2 {
        producer.expect(&format!("INSERTED {id}"));
    }
    wait_until("all other connections are closed", || stat(&daemon, "current-connections") == 2);
    take_all(&daemon, STORM / 2);
    calm(&daemon);
}

#[test]
fn resets_while_holding_jobs() {
    let daemon = Daemon::start(&[]);
    let mut clients = connect(&daemon, STORM);
    for client in &mut clients {
        let id = client.put(b"x", 600);
        client.send("reserve\r\n");
        assert_eq!(client.job().0, id);
    }
    assert_eq!(stat(&daemon, "current-jobs-reserved"), STORM as u64);
    storm(&daemon, clients);
    assert_eq!(stat(&daemon, "current-jobs-ready"), STORM as u64);
    take_all(&daemon, STORM);
    calm(&daemon);
}

/// Checks that the server has exactly `count` jobs, each of which can be reserved and deleted.
fn take_all(daemon: &Daemon, count: usize) {
    let mut worker = Wire::to(daemon);
    for expected in 1..=count as u64 {
        worker.send("reserve-with-timeout 0\r\n");
        assert_eq!(worker.job().0, expected);
        worker.ask(&format!("delete {expected}"), "DELETED");
    }
    worker.ask("reserve-with-timeout 0", "TIMED_OUT");
}

#[test]
fn resets_with_pending_replies() {
    let daemon = Daemon::start(&[]);
    Wire::to(&daemon).put(&vec![b'x'; 60_000], 60);
    let before = daemon.rss();
    let mut clients = connect(&daemon, PENDING);
    clients.iter_mut().for_each(|client| client.send("peek 1\r\n".repeat(500)));
    at_rest(&daemon);
    served(&daemon);
    storm(&daemon, clients);
    let grown = daemon.rss().saturating_sub(before);
    assert!(grown < 32 << 20, "closed connections still use {grown} bytes");
    calm(&daemon);
}

#[test]
fn resets_during_puts() {
    let daemon = Daemon::start(&[]);
    let mut clients = connect(&daemon, STORM);
    clients.iter_mut().for_each(|client| client.send("put 0 0 60 60000\r\nhalf a body"));
    served(&daemon);
    storm(&daemon, clients);
    assert_eq!(stat(&daemon, "total-jobs"), 1, "only the bystander must have put a job");
    calm(&daemon);
}

#[derive(Default)]
struct Counts {
    put: AtomicU64,
    deleted: AtomicU64,
    stop: AtomicBool,
}

impl Counts {
    fn go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Repeatedly connects, requests a job, and disconnects in different ways. A client that waits without a timeout must
/// not receive TIMED_OUT, which would be a reply for an earlier connection.
fn churn(daemon: &Daemon, counts: &Counts, seed: u64) {
    let mut random = Random::new(seed);
    let mut observer = daemon.client();
    while counts.go_on() {
        // Waits, because more connections would exceed the server's limit.
        wait_until("there are few connections", || figure(&mut observer, "stats", "current-connections") < 300);
        let mut clients: Vec<Wire> = (0..32).map(|_| Wire::to(daemon)).collect();
        clients.iter_mut().for_each(|client| client.send("reserve\r\n"));
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        for client in clients {
            client.stream().set_nonblocking(true).expect("a connection");
            let mut reply = [0; 64];
            let length = client.stream().read(&mut reply).unwrap_or(0);
            let reply = String::from_utf8_lossy(&reply[..length]);
            assert!(reply.is_empty() || reply.starts_with("RESERVED "), "{reply}");
            if random.below(2) == 0 {
                client.reset();
            }
        }
    }
}

/// Puts jobs in bursts, so that one batch of commands serves many workers. Deletes the remaining jobs, so that the
/// workers wait again.
fn produce(daemon: &Daemon, counts: &Counts, seed: u64) {
    let mut random = Random::new(seed);
    let mut producer = Wire::to(daemon);
    while counts.go_on() {
        let burst = 1 + random.below(64);
        producer.send(put(b"x", 600).repeat(burst as usize));
        (0..burst).for_each(|_| assert!(producer.line().starts_with("INSERTED ")));
        counts.put.fetch_add(burst, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(random.below(2000)));
        while take_one(&mut producer) {
            counts.deleted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reserves and deletes a job. Returns `false` if no job is ready.
fn take_one(client: &mut Wire) -> bool {
    client.send("reserve-with-timeout 0\r\n");
    let line = client.line();
    if line == "TIMED_OUT" {
        return false;
    }
    let id = line.split(' ').nth(1).expect("an id").to_owned();
    client.expect("x");
    client.ask(&format!("delete {id}"), "DELETED");
    true
}

/// Opens connections, which can reuse the slots of closed connections. Each new connection must receive only a job.
fn bystand(daemon: &Daemon, counts: &Counts) {
    while counts.go_on() {
        let mut worker = Wire::to(daemon);
        worker.send("reserve-with-timeout 3600\r\n");
        let (id, _) = worker.job();
        worker.ask(&format!("delete {id}"), "DELETED");
        counts.deleted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Workers connect, request a job and disconnect while other threads deliver jobs. Remaining workers must not receive
/// replies for closed connections, and no job may be lost.
#[test]
fn resets_amid_deliveries() {
    let daemon = Daemon::start(&["-t", "4"]);
    let counts = Counts::default();
    std::thread::scope(|scope| {
        let stop = StopAtEnd(&counts.stop);
        let (daemon, counts) = (&daemon, &counts);
        let mut threads = Vec::new();
        for seed in 1..=2 {
            threads.push(scope.spawn(move || bystand(daemon, counts)));
            threads.push(scope.spawn(move || churn(daemon, counts, seed)));
            threads.push(scope.spawn(move || produce(daemon, counts, seed + 10)));
        }
        std::thread::sleep(Duration::from_secs(3));
        drop(stop);
        // Puts jobs until the bystanders, which wait for jobs, have finished.
        let mut producer = Wire::to(daemon);
        while !threads.iter().all(|thread| thread.is_finished()) {
            producer.put(b"x", 600);
            counts.put.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    wait_until("all connections are closed", || stat(&daemon, "current-connections") == 1);
    let (put, deleted) = (counts.put.into_inner(), counts.deleted.into_inner());
    println!("{put} jobs put, {deleted} deleted");
    assert_eq!(stat(&daemon, "current-jobs-reserved"), 0);
    assert_eq!(stat(&daemon, "current-jobs-ready"), put - deleted);
    calm(&daemon);
}
