//! Tests that a slow disk delays only clients that wait for it, and that the number of syncs is as expected.
//!
//! The server runs inside the test process, with a disk that can count, delay and block syncs. The tests check which
//! clients get replies while a sync is blocked, and which sync precedes each reply.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use beanpole::internals::binlog::{BinlogSettings, SyncMode};
use beanpole::{Client, Config, Server};

use super::daemon::wait_until;
use super::disk::{Controls, Disk};
use super::support::{number, Home};

/// The duration of a sync in milliseconds. After the first sync of this duration, the server considers the disk slow.
const SLOW: u64 = 50;

fn serve(home: &Home, mode: SyncMode, sync_millis: u64) -> (Server, Arc<Controls>) {
    serve_segments(home, mode, 1 << 20, sync_millis)
}

fn serve_segments(home: &Home, mode: SyncMode, segment_size: u64, sync_millis: u64) -> (Server, Arc<Controls>) {
    let (disk, controls) = Disk::new(home.path());
    controls.sync_millis.store(sync_millis, Ordering::SeqCst);
    let log = BinlogSettings::new(segment_size, mode);
    let server = Server::with_storage(Config::embedded().with(|config| config.log = log), disk).expect("a server");
    (server, controls)
}

fn client(server: &Server) -> Client {
    Client::connect(server.address()).expect("a connection")
}

/// Blocks syncs, lets each client put a job, runs `meanwhile`, and releases the syncs. For each job, returns the times
/// of the put and of the acknowledgment.
fn put_at_once(
    clients: &mut [Client],
    controls: &Controls,
    meanwhile: impl FnOnce(),
) -> impl Iterator<Item = (Instant, Instant)> {
    controls.stuck.store(true, Ordering::SeqCst);
    let sent: Vec<Instant> = clients
        .iter_mut()
        .map(|client| {
            let sent = Instant::now();
            client.send(b"put 0 0 60 1\r\nx\r\n").expect("an open connection");
            sent
        })
        .collect();
    wait_until("a sync is blocked", || controls.waiting() > 0);
    meanwhile();
    assert!(controls.waiting() > 0, "no sync was blocked throughout");
    controls.stuck.store(false, Ordering::SeqCst);
    let acknowledged: Vec<Instant> = clients
        .iter_mut()
        .map(|client| {
            let line = client.line().expect("a reply");
            assert!(line.starts_with("INSERTED "), "{line}");
            Instant::now()
        })
        .collect();
    sent.into_iter().zip(acknowledged)
}

#[test]
fn a_slow_disk_delays_only_clients_that_depend_on_it() {
    const WRITERS: usize = 8;
    const EACH: usize = 6;
    let home = Home::new();
    let (server, controls) = serve(&home, SyncMode::Always, SLOW);
    let mut other = client(&server);
    let first = other.put(b"first", 0, 0, 60).expect("a job");
    other.watch("empty").unwrap();
    other.ignore("default").unwrap();
    let mut writers: Vec<Client> = (0..WRITERS).map(|_| client(&server)).collect();
    let (before, mut puts) = (controls.syncs(), Vec::new());
    for round in 1..=EACH {
        let jobs = (1 + round * WRITERS) as u64;
        puts.extend(put_at_once(&mut writers, &controls, || {
            wait_until("all jobs exist", || number(&mut other, "stats", "total-jobs") == jobs);
            for _ in 0..20 {
                assert_eq!(other.peek(first).unwrap().body, b"first");
                assert!(other.reserve(Some(0)).unwrap().is_none());
            }
        }));
    }
    let syncs = controls.syncs() - before;
    let times_of_syncs = controls.times();
    for (sent, acknowledged) in &puts {
        let covered = times_of_syncs.iter().any(|(begun, ended)| begun >= sent && ended <= acknowledged);
        let near = || times_of_syncs.iter().filter(|(_, ended)| ended > sent).take(2).collect::<Vec<_>>();
        assert!(covered, "{sent:?} to {acknowledged:?}: acknowledged without a sync; next syncs: {:?}", near());
    }
    println!("{} puts of {WRITERS} clients on a disk of {SLOW} ms: {syncs} syncs", puts.len());
    assert!(syncs * 2 < puts.len(), "{syncs} syncs for {} puts", puts.len());
}

#[test]
fn a_slow_disk_delays_no_client_with_delayed_syncs() {
    let home = Home::new();
    let (server, controls) = serve(&home, SyncMode::Every(10), SLOW);
    let mut client = client(&server);
    for _ in 0..3 {
        controls.stuck.store(true, Ordering::SeqCst);
        client.put(b"x", 0, 0, 60).expect("a job");
        wait_until("a sync is blocked", || controls.waiting() > 0);
        (0..30).for_each(|_| assert!(client.put(b"x", 0, 0, 60).is_ok()));
        assert!(controls.waiting() > 0, "no sync was blocked throughout");
        let before = controls.times().len();
        controls.stuck.store(false, Ordering::SeqCst);
        wait_until("all jobs are synced", || controls.times().len() > before + 1);
    }
}

#[test]
fn many_connections_share_a_sync() {
    const CONNECTIONS: usize = 64;
    for (sync_millis, each) in [(1, 4), (5, 1)] {
        let home = Home::new();
        let (server, controls) = serve(&home, SyncMode::Always, sync_millis);
        let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| client(&server)).collect();
        let before = controls.syncs();
        for _ in 0..each {
            assert_eq!(put_at_once(&mut clients, &controls, || {}).count(), CONNECTIONS);
        }
        let (puts, syncs) = (CONNECTIONS * each, controls.syncs() - before);
        println!("{puts} puts of {CONNECTIONS} connections, {sync_millis} ms a sync: {syncs} syncs");
        assert!(syncs * 2 < puts, "{syncs} syncs for {puts} puts");
    }
}

/// After the burst, no client sends a command, so a timer must trigger the last sync.
#[test]
fn the_last_write_of_a_burst_is_synced() {
    let home = Home::new();
    let (server, controls) = serve(&home, SyncMode::Every(50), 0);
    let mut client = client(&server);
    for count in [1, 30] {
        let before = controls.syncs();
        put_some_more(&mut client, count);
        let written = controls.last_write().expect("a write");
        let synced = || controls.times().iter().filter(|(begun, _)| *begun >= written).map(|(_, ended)| *ended).min();
        wait_until("the last write is synced", || synced().is_some());
        let late = synced().expect("a sync") - written;
        println!("-f50, a burst of {count}: synced {late:?} after the last write, {} syncs", controls.syncs() - before);
    }
}

fn put_some_more(client: &mut Client, count: usize) {
    for _ in 0..count {
        client.put(b"x", 0, 0, 60).expect("a job");
    }
}

#[test]
fn without_syncs_only_completed_files_are_synced() {
    const SEGMENT: usize = 65_536;
    const BODY: usize = 5000;
    let home = Home::new();
    let (server, controls) = serve_segments(&home, SyncMode::Never, SEGMENT as u64, 0);
    let mut client = client(&server);
    let before = controls.syncs();
    let body = vec![b'x'; BODY];
    let few = SEGMENT / BODY / 2;
    for _ in 0..few {
        client.put(&body, 0, 0, 60).expect("a job");
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(controls.syncs(), before, "an incomplete segment must not be synced");
    // Puts and deletes jobs, so that their segments become removable.
    for _ in 0..20 * few {
        let id = client.put(&body, 0, 0, 60).expect("a job");
        client.delete(id).expect("a job to delete");
    }
    wait_until("completed segments are synced", || controls.syncs() > before);
    let segments = 2 + 20 * few * (BODY + 200) / SEGMENT;
    // The server syncs each segment when the segment is complete, and again before it removes the segment. Before each
    // removal, it also syncs the copies of live items, and then the rest of the log. The test permits six syncs per
    // segment.
    assert!(controls.syncs() - before <= 6 * segments, "{} syncs of {segments} segments", controls.syncs() - before);
}
