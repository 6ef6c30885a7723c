//! Stresses the real program with floods, huge bodies, full disks and broken networks, and checks that the server
//! recovers.
//!
//! After each disturbance, the server must serve new clients, have as many threads and at most as many descriptors as
//! before, use at most 30 % plus 16 MiB more memory, report at most 64 KiB more in `current-memory`, and be idle.
//! `make chaos` runs the tests. A test that lacks root privileges or a tool prints a message and is skipped.

#[path = "daemon/mod.rs"]
mod daemon;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use daemon::{can_preload, wait_until, Daemon, Folder};
use nix::sys::signal::Signal;

/// Bytes that the allocator may retain after a disturbance, in addition to 30 % of the previous memory.
const SLACK: u64 = 16 << 20;
const TABLES: u64 = 64 << 10;

/// The number of connections in the flood, if the descriptor limit allows that many.
const FLOOD: usize = 50_000;

/// Resources of the server before and after a disturbance.
struct Health {
    files: usize,
    threads: u64,
    rss: u64,
    account: u64,
}

fn health(server: &Daemon) -> Health {
    Health {
        files: server.open_files(),
        threads: server.threads(),
        rss: server.rss(),
        account: account(server).expect("a figure"),
    }
}

/// Returns the server's statistic `current-memory`, or `None` if the server has no descriptor for another connection.
fn account(server: &Daemon) -> Option<u64> {
    server.client().figure("stats", "current-memory").ok()?.parse().ok()
}

fn serves(server: &Daemon) {
    let mut client = server.client();
    client.use_tube("health").expect("a reply");
    client.watch("health").expect("a reply");
    client.ignore("default").expect("a reply");
    let id = client.put(b"well", 0, 0, 60).expect("a job");
    let job = client.reserve(Some(10)).expect("a reply").expect("a job");
    assert_eq!((job.id, job.body.as_slice()), (id, b"well".as_slice()));
    client.delete(id).expect("the job is deleted");
}

/// Runs `misfortune`. Afterwards, the server's resource usage must be close to its previous values.
fn survives(server: &Daemon, what: &str, misfortune: impl FnOnce()) {
    serves(server);
    let before = health(server);
    let start = Instant::now();
    misfortune();
    serves(server);
    wait_until("the descriptors are closed", || server.open_files() <= before.files);
    wait_until("the memory is released", || server.rss() <= before.rss * 13 / 10 + SLACK);
    wait_until("the memory for clients is released", || {
        account(server).is_some_and(|account| account <= before.account + TABLES)
    });
    let rests = || {
        let used = server.cpu_time();
        std::thread::sleep(Duration::from_millis(300));
        server.cpu_time() - used < Duration::from_millis(100)
    };
    wait_until("the server is idle", rests);
    let after = health(server);
    assert_eq!(after.threads, before.threads, "{what}: number of threads");
    println!(
        "{what}: {:.1} s; {} to {} KiB, {} descriptors",
        start.elapsed().as_secs_f64(),
        before.rss >> 10,
        after.rss >> 10,
        after.files
    );
}

/// Sends bytes. Ignores errors, because the server may close the connection.
fn send_all(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

fn stopped(server: &Daemon) {
    let mut client = server.client();
    server.signal(Signal::SIGSTOP);
    let mut others: Vec<TcpStream> = (0..20).map(|_| server.tcp()).collect();
    others.iter_mut().for_each(|other| send_all(other, b"put 0 0 1 1\r\nx\r\nreserve\r\n"));
    client.send(b"put 0 1 1 1\r\ny\r\n").expect("a socket");
    std::thread::sleep(Duration::from_millis(1500));
    server.signal(Signal::SIGCONT);
    assert!(client.line().expect("a reply").starts_with("INSERTED"));
    drop(others);
    drain(server);
}

fn drain(server: &Daemon) {
    let mut client = server.client();
    client.kick(1_000_000).expect("a reply");
    wait_until("no jobs are left", || {
        while let Some(job) = client.reserve(Some(0)).expect("a reply") {
            client.delete(job.id).expect("the job is deleted");
        }
        client.figure("stats", "current-jobs-reserved").expect("a figure") == "0"
            && client.figure("stats", "current-jobs-delayed").expect("a figure") == "0"
            && client.figure("stats", "current-jobs-ready").expect("a figure") == "0"
    });
}

/// Opens [`FLOOD`] connections, or as many as the limits of the test process and the server allow, and sends an
/// incomplete command on each.
fn flood(server: &Daemon) {
    let mut streams = Vec::new();
    while streams.len() < FLOOD {
        match TcpStream::connect(server.address()) {
            Ok(stream) => streams.push(stream),
            Err(_) => break,
        }
    }
    println!("{} of {FLOOD} connections", streams.len());
    streams.iter_mut().for_each(|stream| send_all(stream, b"put 0 0"));
}

fn slow_loris(server: &Daemon) {
    let mut streams: Vec<TcpStream> = (0..300).map(|_| server.tcp()).collect();
    for byte in b"put 0 0 10 20000\r\nabcdefghijkl" {
        streams.iter_mut().for_each(|stream| send_all(stream, &[*byte]));
    }
    serves(server);
}

/// Sends bodies of `size` MiB from `clients` clients in parallel.
fn large_bodies(server: &Daemon, clients: usize, size: usize) {
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let mut stream = server.tcp();
            std::thread::spawn(move || {
                send_all(&mut stream, format!("put 0 0 10 {}\r\n", size << 20).as_bytes());
                let piece = vec![b'x'; 1 << 20];
                (0..size).for_each(|_| send_all(&mut stream, &piece));
                send_all(&mut stream, b"\r\n");
                let mut answer = [0; 100];
                // The server drops the connection without a reply if it lacks memory.
                stream.read(&mut answer).map_or(String::new(), |count| String::from_utf8_lossy(&answer[..count]).into())
            })
        })
        .collect();
    for thread in threads {
        let answer: String = thread.join().expect("no panic");
        let known = ["INSERTED", "OUT_OF_MEMORY", "JOB_TOO_BIG", ""];
        assert!(known.iter().any(|known| answer.starts_with(known)), "{answer}");
    }
    drain(server);
}

/// Lowers the server's descriptor limit. Must be called last, because the function does not restore the limit.
fn few_descriptors(server: &Daemon) {
    let few = server.open_files() + 8;
    if !server.limit(&format!("--nofile={few}:")) {
        return println!("few descriptors: skipped, because prlimit(1) is missing");
    }
    let streams: Vec<TcpStream> = (0..40).map(|_| server.tcp()).collect();
    for mut stream in &streams {
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket option");
        // The server may reply, refuse the connection or reset it.
        let _ = stream.read(&mut [0; 100]);
    }
    drop(streams);
    wait_until("the server accepts connections again", || account(server).is_some());
}

#[test]
#[ignore = "takes a minute and much of the machine; see make chaos"]
fn the_server_recovers_from_disturbances() {
    let server = Daemon::start(&["--max-memory", "128m", "-z", "67108864", "--gearman=127.0.0.1:0"]);
    survives(&server, "stopped and continued", || stopped(&server));
    survives(&server, "a flood of connections", || flood(&server));
    survives(&server, "a slow loris", || slow_loris(&server));
    survives(&server, "bodies near all memory", || large_bodies(&server, 4, 48));
    survives(&server, "few descriptors", || few_descriptors(&server));
}

fn root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn run(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    Command::new(words[0]).args(&words[1..]).output().is_ok_and(|output| output.status.success())
}

#[test]
#[ignore = "see make chaos"]
fn a_full_file_system_accepts_deletes_and_recovers() {
    let folder = Folder::new();
    let place = folder.file("full");
    std::fs::create_dir(&place).expect("a directory");
    let path = place.to_str().expect("a UTF-8 path");
    if !root() || !run(&format!("mount -t tmpfs -o size=4m tmpfs {path}")) {
        return println!("a full file system: skipped, because only root can mount one");
    }
    let log = place.join("log");
    std::fs::create_dir(&log).expect("a directory");
    let server = Daemon::start(&["-b", log.to_str().expect("a UTF-8 path"), "-f0", "-s", "262144"]);
    let mut client = server.client();
    let mut ids = Vec::new();
    while let Ok(id) = client.put(&[b'x'; 10_000], 0, 0, 60) {
        ids.push(id);
        assert!(ids.len() < 1000, "the file system of 4 MiB does not fill up");
    }
    ids.drain(..).for_each(|id| client.delete(id).expect("the job is deleted"));
    let id = (0..1000).find_map(|_| client.put(&[b'x'; 10_000], 0, 0, 60).ok()).expect("jobs are accepted again");
    client.delete(id).expect("the job is deleted");
    drop((client, server));
    assert!(run(&format!("umount {path}")), "the file system is busy");
}

/// The memory limit permits only one of two large bodies.
#[test]
#[ignore = "see make chaos"]
fn memory_of_huge_bodies_is_released() {
    const SIZE: usize = 1 << 30;
    let machine = fs::read_to_string("/proc/meminfo").expect("memory statistics");
    let available = machine.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("a figure");
    let kibibytes: u64 = available.trim().trim_end_matches(" kB").parse().expect("a number");
    if kibibytes < 5 << 20 {
        return println!("bodies of 1 GiB: skipped, because less than 5 GiB of memory is available");
    }
    let server = Daemon::start(&["--max-memory", "1300m", "-z", &SIZE.to_string()]);
    survives(&server, "a body of 1 GiB", || {
        let mut client = server.client();
        let id = client.put(&vec![b'x'; SIZE], 0, 0, 60).expect("enough memory for one body");
        let job = client.reserve(Some(0)).expect("a reply").expect("a job");
        assert_eq!((job.id, job.body.len()), (id, SIZE));
        client.delete(id).expect("the job is deleted");
    });
    survives(&server, "two bodies of 1 GiB at once", || large_bodies(&server, 2, SIZE >> 20));
}

/// Shell commands that configure packet loss in a new network namespace and then run the test in this namespace.
/// Without the kernel's `netem` module, a rate limit drops packets instead.
const LOSSY: &str = "ip link set lo mtu 1500 up && { tc qdisc add dev lo root netem loss 10% 2>/dev/null || \
                     tc qdisc add dev lo root tbf rate 20mbit burst 16k limit 16k; } && exec \"$0\" \"$@\"";

#[test]
#[ignore = "see make chaos"]
fn lost_packets_only_cost_time() {
    if std::env::var_os("BEANPOLE_LOSSY").is_some() {
        return beside_lost_packets();
    }
    let lossy = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", LOSSY, program]);
        command
    };
    if !lossy("true").stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success()) {
        return println!("lost packets: skipped, because a network namespace requires root, ip(8) and tc(8)");
    }
    let own = std::env::current_exe().expect("the path of this program");
    let mut command = lossy(own.to_str().expect("a UTF-8 path"));
    command.args(["lost_packets_only_cost_time", "--exact", "--ignored", "--nocapture"]);
    assert!(command.env("BEANPOLE_LOSSY", "1").status().expect("an exit status").success());
}

fn beside_lost_packets() {
    let server = Daemon::start(&[]);
    survives(&server, "lost packets", || {
        std::thread::scope(|scope| {
            for number in 0..6 {
                let server = &server;
                scope.spawn(move || carry(server, &format!("lossy-{number}")));
            }
        });
    });
    let shown = Command::new("tc").args(["-s", "qdisc", "show", "dev", "lo"]).output().expect("tc");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let dropped = shown.split("dropped ").nth(1).and_then(|rest| rest.split(',').next()).expect("a figure");
    println!("{dropped} packets were dropped");
    assert_ne!(dropped, "0", "no packets were dropped: {shown}");
}

fn carry(server: &Daemon, tube: &str) {
    let mut client = server.client();
    client.use_tube(tube).expect("a reply");
    client.watch(tube).expect("a reply");
    client.ignore("default").expect("a reply");
    let body = vec![b'x'; 30_000];
    let ids: Vec<u64> = (0..20).map(|_| client.put(&body, 0, 0, 600).expect("a job")).collect();
    for id in ids {
        let job = client.reserve(Some(0)).expect("a reply").expect("a job");
        assert_eq!((job.id, job.body.len()), (id, body.len()));
        client.delete(id).expect("the job is deleted");
    }
}

/// Returns the path of libfaketime, a library that makes a program see a different time of day.
fn faketime() -> Option<String> {
    let folders =
        fs::read_dir("/usr/lib").ok()?.filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketime.so.1")));
    folders.filter(|path| path.exists()).find_map(|path| path.to_str().map(str::to_owned))
}

// Tests promise P11 of beanpole-promises(7).
#[test]
#[ignore = "see make chaos"]
fn setting_the_clock_does_not_move_deadlines() {
    let Some(library) = faketime() else {
        return println!("clock changes: skipped, because libfaketime is missing (Debian: apt-get install faketime)");
    };
    if !can_preload() {
        return;
    }
    let folder = Folder::new();
    let (log, time) = (folder.file("log"), folder.file("time"));
    fs::create_dir(&log).expect("a directory");
    let set = |when: &str| fs::write(&time, when).expect("a file");
    set("+0");
    let start = || {
        let time = time.to_str().expect("a UTF-8 path");
        let fake = [("LD_PRELOAD", &*library), ("FAKETIME_TIMESTAMP_FILE", time)];
        let more = [("FAKETIME_NO_CACHE", "1"), ("DONT_FAKE_MONOTONIC", "1")];
        Daemon::start_with(&[fake, more].concat(), &["-b", log.to_str().expect("a UTF-8 path"), "-f0"])
    };
    let server = start();
    let later = server.client().put(b"later", 0, 3600, 60).expect("a job");
    let left = |server: &Daemon| -> u64 {
        let figure = server.client().figure(&format!("stats-job {later}"), "time-left").expect("a figure");
        figure.parse().expect("a number")
    };
    for when in ["2040-01-01", "2001-01-01"] {
        survives(&server, &format!("a clock set to {when}"), || {
            set(&format!("@{when} 12:00:00"));
            let mut client = server.client();
            let soon = client.put(b"soon", 0, 1, 60).expect("a job");
            assert_eq!(client.reserve(Some(1000)).expect("a reply").map(|job| job.id), Some(soon));
            client.delete(soon).expect("the job is deleted");
            assert!((1800..=3600).contains(&left(&server)), "{} s are left", left(&server));
        });
    }
    // The timestamps in the log show that the server uses the fake time.
    server.signal(Signal::SIGUSR1);
    server.wait_log("2001-01-01T");
    server.signal(Signal::SIGKILL);
    wait_until("the server has exited", || !server.runs());
    set("+0");
    let server = start();
    assert!(left(&server) <= 3600, "{} s are left", left(&server));
    println!("after kill -9 with a clock years behind, {} s are left", left(&server));
}
