//! Tests a disk whose writes, syncs or file creations fail for some time. The disk reports the errors immediately or
//! after a delay.
//!
//! The server runs inside the test process. To simulate a kill, a second server starts on a copy of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::Arc;

use beanpole::internals::binlog::{BinlogSettings, SyncMode};
use beanpole::{Client, ClientError, Config, Server};
use nix::libc::{EDQUOT, EIO};

use super::daemon::{wait_until, PATIENCE};
use super::disk::{Controls, Disk};
use super::support::{copy, facts, is_refused, state, total, Home};

struct Stage {
    home: Home,
    server: Server,
    controls: Arc<Controls>,
    client: Client,
    jobs: BTreeMap<u64, Vec<u8>>,
    copies: usize,
}

fn config(mode: SyncMode) -> Config {
    Config::embedded().with(|config| config.log = BinlogSettings::new(65_536, mode))
}

fn body(number: usize) -> Vec<u8> {
    format!("body {number} {}", ".".repeat(number * 7 % 500)).into_bytes()
}

impl Stage {
    fn new(mode: SyncMode) -> Stage {
        let home = Home::new();
        let (disk, controls) = Disk::new(home.path());
        let server = Server::with_storage(config(mode), disk).expect("a server");
        let client = Client::connect(server.address()).expect("a connection");
        let mut stage = Stage { home, server, controls, client, jobs: BTreeMap::new(), copies: 0 };
        stage.put(50);
        stage
    }

    fn connect(&self) -> Client {
        Client::connect(self.server.address()).expect("a connection")
    }

    fn put(&mut self, count: usize) {
        for number in 0..count {
            let body = body(number);
            let id = self.client.put(&body, 5, 0, 60).expect("a job");
            assert!(self.jobs.insert(id, body).is_none(), "ID {id} was assigned twice");
        }
    }

    /// Simulates a kill and checks the recovered jobs. Each job in `either` may or may not exist.
    fn compare_after_a_crash(&mut self, either: &BTreeSet<u64>) {
        self.copies += 1;
        let path = self.home.beside(&format!("copy-{}", self.copies));
        copy(self.home.path(), &path);
        let server =
            Server::with(config(SyncMode::Always).with(|config| config.log_folder = Some(path))).expect("a server");
        let mut client = Client::connect(server.address()).expect("a connection");
        let mut there = 0;
        for (&id, body) in &self.jobs {
            let found = client.peek(id).unwrap_or_else(|error| panic!("job {id}: {error}"));
            assert_eq!(&found.body, body);
            there += 1;
        }
        there += either.iter().filter(|id| facts(&mut client, **id).is_some()).count() as u64;
        assert_eq!(total(&mut client), there, "an unexpected job exists");
        server.check();
    }

    /// Makes the disk work again, waits until the server has resumed, and puts 50 jobs.
    fn heal(&mut self) {
        self.controls.fail_all(0);
        wait_until("the state is ok again", || state(&mut self.client) == "ok");
        self.put(50);
    }
}

/// Puts a job. The put is the first command to encounter the failure. The server can refuse the put, or acknowledge it
/// after the disk has recovered.
fn put_alone(mut client: Client, body: Vec<u8>) -> Option<u64> {
    match client.put(&body, 5, 0, 60) {
        Ok(id) => Some(id),
        Err(ClientError::Refused(reply)) if reply == "OUT_OF_MEMORY" => None,
        Err(error) => panic!("{error}"),
    }
}

/// Makes the disk fail with `break_it`, and puts jobs during and after the failure.
fn round(stage: &mut Stage, break_it: impl Fn(&Controls)) {
    break_it(&stage.controls);
    let (first, body) = (stage.connect(), body(49));
    let waiting = std::thread::spawn({
        let body = body.clone();
        move || put_alone(first, body)
    });
    wait_until("the failure is detected", || state(&mut stage.client) == "failing");
    let before = total(&mut stage.client);
    for _ in 0..10 {
        assert!(is_refused(&stage.client.put(b"refused", 0, 0, 60)));
    }
    assert_eq!(total(&mut stage.client), before, "a refused put left a job behind");
    // The server must still serve existing jobs. Changes to these jobs take effect in memory.
    let mut gone = BTreeSet::new();
    let own = |client: &mut Client| client.reserve(Some(0)).unwrap().expect("a job");
    for _ in 0..5 {
        let job = own(&mut stage.client);
        stage.client.delete(job.id).unwrap();
        stage.jobs.remove(&job.id);
        gone.insert(job.id);
        assert!(stage.client.peek(job.id).is_err());
    }
    let job = own(&mut stage.client);
    stage.client.release(job.id, 5, 0).unwrap();
    let first = &body;
    let (&id, body) = stage.jobs.last_key_value().expect("a job");
    assert_eq!(&stage.client.peek(id).unwrap().body, body);
    stage.heal();
    if let Some(id) = waiting.join().expect("a client") {
        stage.jobs.insert(id, first.clone());
    }
    assert_eq!(total(&mut stage.client), stage.jobs.len() as u64);
    // After the recovery, all acknowledged changes must be durable, including changes acknowledged during the failure.
    stage.compare_after_a_crash(&BTreeSet::new());
}

#[test]
fn the_server_recovers_from_write_and_sync_errors() {
    for mode in [SyncMode::Always, SyncMode::Every(20), SyncMode::Never] {
        let mut stage = Stage::new(mode);
        for error in [EIO, EDQUOT] {
            round(&mut stage, |controls| controls.fail_all(error));
            round(&mut stage, |controls| controls.write_error.store(error, Ordering::SeqCst));
            if mode != SyncMode::Never {
                round(&mut stage, |controls| controls.sync_error.store(error, Ordering::SeqCst));
            }
        }
    }
}

/// Jobs acknowledged before the failure must survive. Jobs deleted during the failure may reappear.
#[test]
fn a_crash_while_the_disk_fails_loses_nothing_acknowledged() {
    let mut stage = Stage::new(SyncMode::Always);
    let mut client = stage.connect();
    let (&deleted, _) = stage.jobs.first_key_value().expect("a job");
    stage.controls.fail_all(EIO);
    client.delete(deleted).unwrap();
    assert_eq!(state(&mut client), "failing");
    stage.jobs.remove(&deleted);
    stage.compare_after_a_crash(&BTreeSet::from([deleted]));
    stage.heal();
    stage.compare_after_a_crash(&BTreeSet::new());
}

/// A dying disk takes a long time to report each error. During this time, the server must execute commands that do not
/// need the disk.
#[test]
fn a_slowly_failing_disk_delays_no_other_client() {
    for mode in [SyncMode::Always, SyncMode::Every(20)] {
        let mut stage = Stage::new(mode);
        stage.controls.sync_error.store(EIO, Ordering::SeqCst);
        let first = stage.connect();
        let waiting = std::thread::spawn(move || put_alone(first, body(1)));
        wait_until("the failure is detected", || state(&mut stage.client) == "failing");
        stage.controls.stuck.store(true, Ordering::SeqCst);
        wait_until("the server retries", || stage.controls.waiting() > 0);
        let (mut client, (done, all_done)) = (stage.connect(), channel());
        let trips = std::thread::spawn(move || {
            (0..100).for_each(|_| round_trip(&mut client));
            done.send(()).expect("a receiver");
        });
        all_done.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{mode:?}: a client waited for the disk"));
        assert!(stage.controls.waiting() > 0, "{mode:?}: the disk was not stuck throughout");
        stage.controls.stuck.store(false, Ordering::SeqCst);
        trips.join().expect("a client");
        stage.heal();
        if let Some(id) = waiting.join().expect("a client") {
            stage.jobs.insert(id, body(1));
        }
        stage.compare_after_a_crash(&BTreeSet::new());
    }
}

fn round_trip(client: &mut Client) {
    let job = client.reserve(Some(0)).unwrap().expect("a job");
    client.release(job.id, 5, 0).unwrap();
    assert!(is_refused(&client.put(b"refused", 0, 0, 60)));
}

/// No other client sends a command, so the server itself must start the retry.
#[test]
fn a_single_client_is_answered_when_a_slow_disk_recovers() {
    let mut stage = Stage::new(SyncMode::Always);
    // After these slow syncs, the server leaves all syncs to the log's threads.
    stage.controls.sync_millis.store(20, Ordering::SeqCst);
    stage.put(20);
    let before = stage.controls.syncs();
    stage.controls.sync_error.store(EIO, Ordering::SeqCst);
    let (client, (answered, answer)) = (stage.connect(), channel());
    std::thread::spawn(move || answered.send(put_alone(client, body(1))));
    // The put causes one sync. The other syncs are retries, which also fail.
    wait_until("the server retries", || stage.controls.syncs() > before + 2);
    stage.controls.sync_error.store(0, Ordering::SeqCst);
    let answer = answer.recv_timeout(PATIENCE).expect("a reply");
    stage.jobs.extend(answer.map(|id| (id, body(1))));
    stage.put(5);
    stage.compare_after_a_crash(&BTreeSet::new());
}
