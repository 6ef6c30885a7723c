//! A slow disk delays only those whom it must, and syncs happen neither too often nor too late.
//!
//! The server runs inside this process, on a disk whose syncs are counted and take as long as the test says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use beanpole::internals::binlog::{BinlogSettings, SyncMode};
use beanpole::{Client, Config, Server};

use super::daemon::wait_until;
use super::disk::{Controls, Disk};
use super::support::Home;

/// What a sync takes on the slow disk.
const SLOW: u64 = 50;

/// A command that needs no disk takes at most this long, in most cases.
const PROMPT: Duration = Duration::from_millis(5);

/// What a busy machine may add to anything.
const SLACK: Duration = Duration::from_secs(2);

fn serve(home: &Home, mode: SyncMode, sync_millis: u64) -> (Server, Arc<Controls>) {
    serve_segments(home, mode, 1 << 20, sync_millis)
}

fn serve_segments(home: &Home, mode: SyncMode, segment_size: u64, sync_millis: u64) -> (Server, Arc<Controls>) {
    let (disk, controls) = Disk::new(home.path());
    controls.sync_millis.store(sync_millis, Ordering::SeqCst);
    let log = BinlogSettings { segment_size, mode, strict: false };
    let server = Server::with_storage(Config { log, ..Config::embedded() }, disk).expect("a server");
    (server, controls)
}

fn client(server: &Server) -> Client {
    Client::connect(server.address()).expect("a connection")
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Prints the median and the maximum, and holds the median against [`PROMPT`].
fn judge(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{what}, {} round trips: median {median:?}, maximum {most:?}", times.len());
    assert!(median < PROMPT && most < SLACK, "{what}: median {median:?}, maximum {most:?}");
}

/// Puts `count` jobs, one after the other; when each was sent and acknowledged.
fn put_some(mut client: Client, count: usize) -> Vec<(Instant, Instant)> {
    let put = |_| {
        let sent = Instant::now();
        client.put(b"x", 0, 0, 60).expect("a job");
        (sent, Instant::now())
    };
    (0..count).map(put).collect()
}

#[test]
fn a_slow_disk_delays_those_alone_who_rely_on_it() {
    const WRITERS: usize = 8;
    const EACH: usize = 6;
    let home = Home::new();
    let (server, controls) = serve(&home, SyncMode::Always, SLOW);
    let mut other = client(&server);
    let first = other.put(b"first", 0, 0, 60).expect("a job");
    let before = controls.syncs();
    let (done, mut times) = (AtomicBool::new(false), Vec::new());
    let puts: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(|| put_some(client(&server), EACH))).collect();
        let bystander = scope.spawn(|| {
            other.watch("empty").unwrap();
            other.ignore("default").unwrap();
            while !done.load(Ordering::SeqCst) {
                times.push(timed(|| drop(other.text("stats").unwrap())));
                times.push(timed(|| drop(other.peek(first).unwrap())));
                times.push(timed(|| assert!(other.reserve(Some(0)).unwrap().is_none())));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let puts = writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect();
        done.store(true, Ordering::SeqCst);
        bystander.join().expect("a bystander");
        puts
    });
    let syncs = controls.syncs() - before;
    let times_of_syncs = controls.times();
    for (sent, acknowledged) in &puts {
        let covered = times_of_syncs.iter().any(|(begun, ended)| begun >= sent && ended <= acknowledged);
        let near = || times_of_syncs.iter().filter(|(_, ended)| ended > sent).take(2).collect::<Vec<_>>();
        assert!(covered, "{sent:?} to {acknowledged:?}: acknowledged without a sync; next syncs: {:?}", near());
    }
    println!("{} puts of {WRITERS} clients on a disk of {SLOW} ms: {syncs} syncs", puts.len());
    assert!(syncs * 2 < puts.len(), "{syncs} syncs for {} puts", puts.len());
    judge("beside syncs of 50 ms", times);
}

#[test]
fn a_slow_disk_delays_nobody_if_syncs_may_come_later() {
    let home = Home::new();
    let (server, _) = serve(&home, SyncMode::Every(10), SLOW);
    let mut client = client(&server);
    let times = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        timed(|| assert!(client.put(b"x", 0, 0, 60).is_ok()))
    });
    judge("puts with -f10 and syncs of 50 ms", times.collect());
}

#[test]
fn many_connections_share_a_sync() {
    const CONNECTIONS: usize = 64;
    for (sync_millis, each) in [(1, 4), (5, 1)] {
        let home = Home::new();
        let (server, controls) = serve(&home, SyncMode::Always, sync_millis);
        let (before, start) = (controls.syncs(), Barrier::new(CONNECTIONS));
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                let (client, start) = (client(&server), &start);
                scope.spawn(move || {
                    start.wait();
                    put_some(client, each);
                });
            }
        });
        let (puts, syncs) = (CONNECTIONS * each, controls.syncs() - before);
        println!("{puts} puts of {CONNECTIONS} connections, {sync_millis} ms a sync: {syncs} syncs");
        assert!(syncs * 2 < puts, "{syncs} syncs for {puts} puts");
    }
}

/// Nobody says anything after the burst: the sync comes by time alone.
#[test]
fn the_last_write_of_a_burst_is_synced_in_time() {
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
        assert!(late < Duration::from_millis(50) + SLACK / 4, "{late:?}");
    }
}

fn put_some_more(client: &mut Client, count: usize) {
    for _ in 0..count {
        client.put(b"x", 0, 0, 60).expect("a job");
    }
}

#[test]
fn without_syncs_only_files_that_were_left_are_synced() {
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
    assert_eq!(controls.syncs(), before, "nothing was left");
    // Several segments. Each may go when all of its jobs are deleted.
    for _ in 0..20 * few {
        let id = client.put(&body, 0, 0, 60).expect("a job");
        client.delete(id).expect("a job to delete");
    }
    wait_until("those that were left are synced", || controls.syncs() > before);
    let segments = 2 + 20 * few * (BODY + 200) / SEGMENT;
    // At most one for each segment and its file, and one before it is removed.
    assert!(controls.syncs() - before <= 4 * segments, "{} syncs of {segments} segments", controls.syncs() - before);
}
