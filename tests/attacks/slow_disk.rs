//! Attacks on a server that writes a binlog: a slow disk, and one body that is much larger than a segment.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use beanpole::internals::binlog::{BinlogSettings, SyncMode};
use beanpole::{Config, Server};

use crate::bystander::{cycle, use_only, Bystander, Times};
use crate::daemon::{Folder, PATIENCE};
use crate::disk::Disk;
use crate::trial::{own_connection, Trial, MIB};
use crate::wire::{StopAtEnd, Wire};

/// Duration of each sync and of each creation of a segment, in milliseconds.
const SLOW_MILLIS: u64 = 500;

const LENGTH: Duration = Duration::from_secs(3);

/// Syncs a binlog with segments of the default size on a slow disk.
pub fn syncs(trial: &mut Trial) {
    slow(trial, 10 << 20);
}

/// Like `syncs`, with segments so small that the server creates new segments continuously.
pub fn segments(trial: &mut Trial) {
    slow(trial, 65_536);
}

/// Runs the server in the test process, because the real program cannot use a simulated disk.
fn slow(trial: &mut Trial, segment_size: u64) {
    let folder = Folder::new();
    let path = folder.file("binlog");
    std::fs::create_dir(&path).expect("a directory for the binlog");
    let (disk, controls) = Disk::new(&path);
    let log = BinlogSettings::new(segment_size, SyncMode::Every(50));
    let server = Server::with_storage(
        Config::embedded().with(|config| {
            config.log = log;
            config.threads = 1;
        }),
        disk,
    )
    .expect("a server");
    let connect = || {
        let stream = TcpStream::connect(server.address()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a connection");
        Wire::of(stream)
    };
    let mut bystander = connect();
    assert_eq!(bystander.put(b"first", 3600), 1);
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let write = || {
        let mut wire = connect();
        while !stop.load(Ordering::SeqCst) {
            wire.put(&[b'x'; 5000], 3600);
            acknowledged.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        scope.spawn(write);
        scope.spawn(write);
        trial.beside_trips(bystander, peek, |_| {
            controls.writes_wait.store(true, Ordering::SeqCst);
            controls.sync_millis.store(SLOW_MILLIS, Ordering::SeqCst);
            std::thread::sleep(LENGTH);
        });
        drop(end);
    });
    controls.sync_millis.store(0, Ordering::SeqCst);
    let puts = acknowledged.load(Ordering::SeqCst);
    trial.note(format!("{puts} puts"));
    trial.same("jobs", crate::wire::figure(&mut client(&server), "stats", "current-jobs-ready"), puts + 1);
}

fn client(server: &Server) -> beanpole::Client {
    beanpole::Client::connect(server.address()).expect("a connection")
}

fn peek(wire: &mut Wire) {
    wire.send("peek 1\r\n");
    assert_eq!(wire.job(), (1, b"first".to_vec()));
}

/// Writes one body that is much larger than a segment of the default size.
pub fn huge_body(trial: &mut Trial) {
    const SIZE: usize = 400_000_000;
    let folder = Folder::new();
    let path = folder.file("binlog");
    std::fs::create_dir(&path).expect("a directory for the binlog");
    let binlog = ["-b", path.to_str().expect("a UTF-8 path"), "-z", "1073741824"];
    // beanstalkd stores a job in a single file, so its files must be larger for this body.
    let sized = [&binlog[..], if trial.ours { &[] } else { &["-s", "536870912"] }].concat();
    let daemon = trial.start(&sized, &["-t", "1"]);
    let start = daemon.rss();
    let mut attacker = Wire::to(&daemon);
    let message = crate::wire::put(&vec![b'x'; SIZE], 3600);
    let mut bystander = own_connection(&daemon);
    assert_eq!(bystander.put(b"first", 3600), 1);
    // The second producer must wait for the large write, so its round trips are recorded but not checked.
    let mut producer = Wire::to(&daemon);
    use_only(&mut producer, "producer");
    let producer = Bystander::start(producer.stream().try_clone().expect("a connection"), cycle);
    let reply = trial.beside_trips(bystander, peek, |_| {
        attacker.send(&message);
        attacker.line()
    });
    let (samples, problem) = producer.finish();
    trial.check(problem.is_none(), || format!("a producer failed: {}", problem.unwrap_or_default()));
    trial.note(format!(
        "other puts took at most {:.1} ms",
        Times::of(samples).expect("a put").worst.as_secs_f64() * 1e3
    ));
    let peak = daemon.peak_rss();
    trial.note(format!("at most {:.1} x its size in memory", (peak - start) as f64 / SIZE as f64));
    trial.check(reply.starts_with("INSERTED "), || format!("unexpected reply: {reply}"));
    // The server needs memory for the body, and for a copy in the log's write buffer.
    trial.check(peak < start + 2 * SIZE as u64 + 32 * MIB, || format!("a peak of {} MiB", peak / MIB));
    let id = reply.split(' ').nth(1).unwrap_or_default();
    attacker.ask(&format!("delete {id}"), "DELETED");
}
