//! Tests that an unresponsive disk delays only clients that need the disk.
//!
//! The server runs inside the test process with one pool thread. One kind of disk operation blocks until the test
//! releases it. The tests check which clients get replies while the operation blocks, and in which order the remaining
//! replies follow. Time limits only detect hangs.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use beanpole::internals::binlog::{BinlogSettings, Folder, LogFile, Storage, SyncMode};
use beanpole::{Client, Config, Server};
use nix::libc::ENOSPC;

use super::daemon::PATIENCE;
use super::support::{number, total, Home};

const SEGMENT: u64 = 64 * 1024;

const MODES: [SyncMode; 3] = [SyncMode::Always, SyncMode::Every(50), SyncMode::Never];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Create,
    Remove,
    Write,
    Sync,
}

#[derive(Default)]
struct State {
    shut: Option<Operation>,
    /// The kind of operation that the disk delays by 30 ms, so that the server considers the disk slow.
    slow: Option<Operation>,
    blocked: usize,
    /// `true` to make writes wait for a blocked sync, as many kernels do.
    writes_wait: bool,
}

/// The controls with which the test blocks and releases operations.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// The error number with which the creation of files fails, or 0.
    create_error: AtomicI32,
}

impl Gate {
    fn pass(&self, operation: Operation) {
        let mut state = self.state.lock().unwrap();
        if state.slow == Some(operation) {
            drop(state);
            std::thread::sleep(Duration::from_millis(30));
            state = self.state.lock().unwrap();
        }
        let behind = operation == Operation::Write
            && state.writes_wait
            && state.shut == Some(Operation::Sync)
            && state.blocked > 0;
        let operation = if behind { Operation::Sync } else { operation };
        if state.shut == Some(operation) {
            state.blocked += 1;
            self.changed.notify_all();
            state = self.changed.wait_while(state, |state| state.shut == Some(operation)).unwrap();
            state.blocked -= 1;
        }
    }

    pub fn set(&self, shut: Option<Operation>, slow: Option<Operation>) {
        let mut state = self.state.lock().unwrap();
        (state.shut, state.slow) = (shut, slow);
        self.changed.notify_all();
    }

    fn is_blocking(&self) -> bool {
        self.state.lock().unwrap().blocked > 0
    }

    pub fn wait_until_blocking(&self) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| state.blocked == 0).unwrap().1;
        assert!(!waited.timed_out(), "no operation has reached the gate");
    }
}

pub struct Gated(Folder, Arc<Gate>);

struct GatedFile(Arc<dyn LogFile>, Arc<Gate>);

impl Gated {
    pub fn new(path: &Path) -> (Arc<Gated>, Arc<Gate>) {
        let gate = Arc::<Gate>::default();
        (Arc::new(Gated(Folder::new(path), gate.clone())), gate)
    }
}

impl Storage for Gated {
    fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.0.length(name)
    }

    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(name, place, bytes)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        self.1.pass(Operation::Create);
        match self.1.create_error.load(Ordering::SeqCst) {
            0 => Ok(Arc::new(GatedFile(self.0.create(name, size)?, self.1.clone()))),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(GatedFile(self.0.open(name)?, self.1.clone())))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.1.pass(Operation::Remove);
        self.0.remove(name)
    }
}

impl LogFile for GatedFile {
    fn write_at(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.1.pass(Operation::Write);
        self.0.write_at(place, bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.1.pass(Operation::Sync);
        self.0.sync()
    }
}

pub fn config(mode: SyncMode) -> Config {
    Config::embedded().with(|config| {
        config.threads = 1;
        config.log = BinlogSettings::new(SEGMENT, mode);
    })
}

fn connect(server: &Server) -> Client {
    Client::connect(server.address()).expect("a connection")
}

/// Runs `work` in a thread, and returns a channel for the result.
fn beside<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Receiver<R> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || drop(sender.send(work())));
    receiver
}

fn body(writer: usize, number: usize, length: usize) -> Vec<u8> {
    let mut body = format!("{writer}/{number}:").into_bytes();
    body.resize(length, b'.');
    body
}

/// Sends a put for each body, all in one write. After each put, also sends a delete of the next job in `deletes`, as
/// long as jobs remain in this list. Returns the IDs of the new jobs in the order of the replies.
fn pipeline(mut client: Client, bodies: &[Vec<u8>], deletes: &[u64]) -> Vec<u64> {
    let mut text = Vec::new();
    for (place, body) in bodies.iter().enumerate() {
        text.extend_from_slice(format!("put 5 0 60 {}\r\n", body.len()).as_bytes());
        text.extend_from_slice(body);
        text.extend_from_slice(b"\r\n");
        if let Some(id) = deletes.get(place) {
            text.extend_from_slice(format!("delete {id}\r\n").as_bytes());
        }
    }
    client.send(&text).expect("an open connection");
    let mut ids = Vec::new();
    for place in 0..bodies.len() {
        let line = client.line().expect("a reply");
        ids.push(line.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("{line}")).parse().expect("an id"));
        if deletes.get(place).is_some() {
            assert_eq!(client.line().expect("a reply"), "DELETED");
        }
    }
    ids
}

fn put_some(client: &mut Client, count: usize) {
    for _ in 0..count {
        client.put(b"some", 9, 0, 600).expect("a job");
    }
}

fn bystand(client: &mut Client, ready: u64) {
    assert_eq!(client.peek(ready).expect("a job").body, b"ready");
    assert!(number(client, "stats", "current-jobs-ready") > 0);
    assert!(client.text("list-tubes").expect("a list").contains("bystander"));
    assert!(client.reserve(Some(0)).expect("a reply").is_some());
}

/// Tests a blocked operation. If `known` is `true`, the server expects a slow disk, and one of the log's threads
/// executes the operation. Otherwise, a pool thread executes the operation and blocks.
fn blocked(mode: SyncMode, operation: Operation, known: bool) {
    let home = Home::new();
    let (disk, gate) = Gated::new(home.path());
    let server = Server::with_storage(config(mode), disk).expect("a server");
    let mut bystander = connect(&server);
    bystander.use_tube("bystander").unwrap();
    bystander.watch("bystander").unwrap();
    bystander.ignore("default").unwrap();
    let ready = bystander.put(b"ready", 0, 0, 600).expect("a job");
    bystander.put(b"another", 1, 0, 600).expect("a job");
    // The test deletes these jobs later, so that the server can remove their segments.
    let old: Vec<Vec<u8>> = (0..40).map(|number| body(9, number, 5000)).collect();
    let old = pipeline(connect(&server), &old, &[]);
    if known {
        gate.set(None, Some(operation));
        put_some(&mut bystander, 5);
    }
    gate.set(Some(operation), None);
    // The server removes segments if the log exceeds about twice the size of the live jobs. To test a blocked removal,
    // the test therefore puts small jobs.
    let lengths = if operation == Operation::Remove { [10, 1000, 20, 300] } else { [5000, 60_000, 10, 3000] };
    let bodies = lengths.map(|length| (0..40).map(|number| body(length, number, length)).collect::<Vec<_>>());
    let answers: Vec<_> = (0..4)
        .map(|writer| {
            let (client, bodies) = (connect(&server), bodies[writer].clone());
            let deletes = if writer == 0 { old.clone() } else { Vec::new() };
            beside(move || pipeline(client, &bodies, &deletes))
        })
        .collect();
    gate.wait_until_blocking();
    let done = beside(move || {
        bystand(&mut bystander, ready);
        // Repeats the commands, because the writers' commands may still have been arriving during the first pass.
        bystand(&mut bystander, ready);
    });
    let answered = done.recv_timeout(PATIENCE);
    let shut = gate.is_blocking();
    gate.set(None, None);
    assert!(shut && answered.is_ok(), "{mode:?}: a client waits while the disk is blocked in {operation:?}");
    let ids: Vec<Vec<u64>> = answers.iter().map(|writer| writer.recv_timeout(PATIENCE).expect("replies")).collect();
    assert!(ids.iter().all(|ids| ids.is_sorted()), "{mode:?}: jobs must be put in the order of the commands");
    server.check();
    drop(server);
    let server =
        Server::with(config(mode).with(|config| config.log_folder = Some(home.path().into()))).expect("a server");
    let mut client = connect(&server);
    for (id, body) in ids.iter().flatten().zip(bodies.iter().flatten()) {
        assert_eq!(&client.peek(*id).expect("a job that was acknowledged").body, body);
    }
    assert_eq!(total(&mut client), 2 + if known { 5 } else { 0 } + 160);
}

#[test]
fn a_blocked_segment_creation_delays_no_other_client() {
    MODES.into_iter().for_each(|mode| blocked(mode, Operation::Create, false));
}

#[test]
fn a_blocked_segment_removal_delays_no_other_client() {
    MODES.into_iter().for_each(|mode| blocked(mode, Operation::Remove, false));
}

#[test]
fn a_blocked_write_delays_no_other_client() {
    MODES
        .into_iter()
        .for_each(|mode| [false, true].into_iter().for_each(|known| blocked(mode, Operation::Write, known)));
}

#[test]
fn a_blocked_sync_delays_no_other_client() {
    MODES[..2]
        .iter()
        .for_each(|&mode| [false, true].into_iter().for_each(|known| blocked(mode, Operation::Sync, known)));
}

/// After three blocked syncs, the pool thread and its spare thread have each taken over from the other at least once.
fn an_unexpectedly_blocked_sync(threads: usize) {
    let home = Home::new();
    let (disk, gate) = Gated::new(home.path());
    let config = config(SyncMode::Always).with(|config| config.threads = threads);
    let server = Server::with_storage(config, disk).expect("a server");
    let mut bystander = connect(&server);
    bystander.watch("empty").unwrap();
    bystander.ignore("default").unwrap();
    let ready = bystander.put(b"ready", 0, 0, 600).expect("a job");
    for _ in 0..3 {
        // After these puts, the server considers the disk fast.
        put_some(&mut bystander, 100);
        gate.set(Some(Operation::Sync), None);
        let mut client = connect(&server);
        let put = beside(move || put_some(&mut client, 1));
        gate.wait_until_blocking();
        let done = beside(move || {
            assert_eq!(bystander.peek(ready).expect("a job").body, b"ready");
            assert!(bystander.reserve(Some(1)).expect("a reply").is_none(), "the reserve must time out");
            bystander
        });
        let answered = done.recv_timeout(PATIENCE);
        let shut = gate.is_blocking() && put.try_recv().is_err();
        gate.set(None, None);
        assert!(shut, "the put has been acknowledged before its sync");
        bystander = answered.expect("replies while a sync is blocked");
        put.recv_timeout(PATIENCE).expect("a reply");
    }
}

#[test]
fn an_unexpectedly_blocked_sync_delays_only_clients_that_wait_for_it() {
    [1, 2].into_iter().for_each(an_unexpectedly_blocked_sync);
}

/// A large write takes a long time even on a fast disk. Only clients whose replies depend on the write may wait.
#[test]
fn writing_a_large_body_delays_no_other_client() {
    for mode in MODES {
        let home = Home::new();
        let (disk, gate) = Gated::new(home.path());
        let config = config(mode).with(|config| config.max_job_size = 4 << 20);
        let server = Server::with_storage(config, disk).expect("a server");
        let (mut bystander, mut client) = (connect(&server), connect(&server));
        bystander.use_tube("bystander").unwrap();
        bystander.watch("bystander").unwrap();
        let ready = bystander.put(b"ready", 0, 0, 600).expect("a job");
        bystander.put(b"another", 1, 0, 600).expect("a job");
        gate.set(Some(Operation::Write), None);
        let large = body(1, 1, 3 << 20);
        let put = beside(move || {
            let id = client.put(&large, 0, 0, 60).expect("a job");
            assert_eq!(client.peek(id).expect("a job").body, large);
            id
        });
        gate.wait_until_blocking();
        let done = beside(move || bystand(&mut bystander, ready));
        let answered = done.recv_timeout(PATIENCE);
        let shut = gate.is_blocking();
        gate.set(None, None);
        assert!(shut && answered.is_ok(), "{mode:?}: a client waits while a large body is written");
        let id = put.recv_timeout(PATIENCE).expect("a reply");
        drop(server);
        let config = Config::embedded().with(|config| {
            config.max_job_size = 4 << 20;
            config.log_folder = Some(home.path().into());
        });
        let server = Server::with(config).expect("a server");
        assert_eq!(connect(&server).peek(id).expect("a job that was acknowledged").body, body(1, 1, 3 << 20));
    }
}

#[test]
fn puts_with_delayed_syncs_are_answered_while_a_sync_blocks() {
    let home = Home::new();
    let (disk, gate) = Gated::new(home.path());
    let server = Server::with_storage(config(SyncMode::Every(1)), disk).expect("a server");
    let mut client = connect(&server);
    gate.set(Some(Operation::Sync), None);
    client.put(b"first", 0, 0, 60).expect("a job");
    gate.wait_until_blocking();
    let done = beside(move || put_some(&mut client, 20));
    let answered = done.recv_timeout(PATIENCE);
    let shut = gate.is_blocking();
    gate.set(None, None);
    assert!(shut && answered.is_ok(), "a put waits for a sync");
}

/// If the disk seems fast, the pool thread writes a client's put to the log even during a sync, and this write blocks.
/// Another client of the same thread must still get its reply.
#[test]
fn a_write_after_a_new_sync_delays_no_other_client() {
    let home = Home::new();
    let (disk, gate) = Gated::new(home.path());
    let server = Server::with_storage(config(SyncMode::Every(1)), disk).expect("a server");
    let (mut bystander, mut client, mut other) = (connect(&server), connect(&server), connect(&server));
    let ready = bystander.put(b"ready", 0, 0, 600).expect("a job");
    gate.state.lock().unwrap().writes_wait = true;
    gate.set(Some(Operation::Sync), None);
    // The blocked sync may be the one for the job `ready`. If so, the put below waits for the next sync.
    let first = beside(move || put_some(&mut client, 1));
    gate.wait_until_blocking();
    let put = beside(move || put_some(&mut other, 1));
    let done = beside(move || (0..100).for_each(|_| drop(bystander.peek(ready).expect("a job"))));
    let answered = done.recv_timeout(PATIENCE);
    let shut = gate.is_blocking();
    gate.set(None, None);
    assert!(shut && answered.is_ok(), "a client that does not need the disk waits for a sync");
    first.recv_timeout(PATIENCE).expect("a reply");
    put.recv_timeout(PATIENCE).expect("a reply");
}

#[test]
fn clients_that_wait_for_a_segment_are_refused_on_a_full_disk() {
    let home = Home::new();
    let (disk, gate) = Gated::new(home.path());
    let server = Server::with_storage(config(SyncMode::Always), disk).expect("a server");
    gate.set(Some(Operation::Create), None);
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = connect(&server);
            beside(move || {
                while client.put(&[b'x'; 20_000], 0, 0, 60).is_ok() {}
                client
            })
        })
        .collect();
    gate.wait_until_blocking();
    assert!(clients.iter().all(|client| client.try_recv().is_err()), "a client was refused before the error");
    gate.create_error.store(ENOSPC, Ordering::SeqCst);
    gate.set(None, None);
    let mut clients: Vec<_> = clients.iter().map(|client| client.recv_timeout(PATIENCE).expect("a refusal")).collect();
    assert_eq!(clients[0].figure("stats", "binlog-state").unwrap(), "full");
    gate.create_error.store(0, Ordering::SeqCst);
    super::daemon::wait_until("the server accepts jobs again", || clients[0].put(b"after", 0, 0, 60).is_ok());
}
