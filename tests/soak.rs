//! Runs the real program, with a log, for a configurable time under a steady load from clients of all protocols.
//!
//! Memory, descriptors, threads and the log must not grow beyond fixed limits. At the end, each acknowledged job must
//! have been completed, or must still exist. Run by `make soak MINUTES=n`. The criteria do not depend on the duration.

mod daemon;

mod soak {
    pub mod beanstalk;
    pub mod extensions;
    pub mod gearman;
    pub mod operator;
    pub mod workq;
}

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use beanpole::Client;
use daemon::{Daemon, Folder};
use soak::{beanstalk, extensions, gearman, operator, workq};

/// At the end of the run, memory usage may exceed the maximum of the first quarter by 30 % plus this number of bytes.
const SLACK: u64 = 8 << 20;

/// A flag that makes the clients stop.
#[derive(Default)]
pub struct Stage(AtomicBool);

impl Stage {
    pub fn goes_on(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The number of jobs that the clients of one kind have completed.
#[derive(Default)]
pub struct Done(AtomicU64);

impl Done {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the values that must not grow: resident memory in bytes, descriptors, threads, and bytes of the log.
fn figures(server: &Daemon, folder: &Path) -> [u64; 4] {
    let sizes = std::fs::read_dir(folder).expect("the log directory").map(|entry| {
        // The server may have removed the file since it was listed.
        entry.expect("an entry").metadata().map_or(0, |file| file.len())
    });
    [server.rss(), server.open_files() as u64, server.threads(), sizes.sum()]
}

/// Returns the address of the first listener whose name starts with `begin` and ends with `end`.
fn address(server: &Daemon, begin: &str, end: &str) -> SocketAddr {
    let fits = |name: &String| name.strip_prefix(begin)?.strip_suffix(end)?.parse().ok();
    server.names().iter().find_map(fits).unwrap_or_else(|| panic!("no {begin}...{end} in {:?}", server.names()))
}

/// Creates a certificate for `localhost`. Returns the options that make the server use the certificate.
#[cfg(feature = "tls")]
fn certificate(folder: &Folder) -> [String; 6] {
    let path = |name: &str| folder.file(name).to_str().expect("a plain path").to_owned();
    let (pem, key) = (path("server.pem"), path("server.key"));
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3"]);
    openssl.args(["-subj", "/CN=soak", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-out", &pem, "-keyout", &key]);
    let made = openssl.output().expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    ["-l".into(), "tls:127.0.0.1:0".into(), "--tls-cert".into(), pem, "--tls-key".into(), key]
}

#[cfg(feature = "tls")]
fn by_tls(folder: &Folder, address: SocketAddr) -> impl Fn() -> Client + Sync {
    let authority = Some(folder.file("server.pem"));
    let mut files = beanpole::ClientTlsFiles::default();
    files.authority = authority;
    let tls = beanpole::ClientTls::load(&files).expect("the certificate");
    move || Client::connect_tls("localhost", address.port(), &tls, daemon::PATIENCE).expect("a connection")
}

fn start(folder: &Folder, log: &Path) -> Daemon {
    let log = log.to_str().expect("a plain path");
    let plain = ["-l", "127.0.0.1:0", "--gearman=127.0.0.1:0", "--workq=127.0.0.1:0", "--http=127.0.0.1:0"];
    let more = ["--http-admin", "-b", log, "-f", "50", "-s", "1048576"];
    #[cfg(feature = "tls")]
    let secure = certificate(folder);
    #[cfg(not(feature = "tls"))]
    let (secure, _): ([String; 0], _) = ([], folder);
    let secure: Vec<&str> = secure.iter().map(String::as_str).collect();
    let mut server = Daemon::start(&[&plain[..], &more, &secure].concat());
    server.live_on();
    server
}

#[test]
#[ignore = "takes a configurable time; see make soak"]
fn nothing_grows_and_nothing_is_lost() {
    let minutes = std::env::var("MINUTES").ok().filter(|text| !text.is_empty());
    let minutes: f64 = minutes.map_or(1.0, |text| text.parse().expect("a number of minutes"));
    let folder = Folder::new();
    let log = folder.file("log");
    std::fs::create_dir(&log).expect("a directory");
    let server = start(&folder, &log);
    let plain = address(&server, "", "");
    let by_tcp = || Client::connect(plain).expect("a connection");
    #[cfg(feature = "tls")]
    let by_tls = by_tls(&folder, address(&server, "tls:", ""));
    let stage = Stage::default();
    let books = [beanstalk::Book::default(), beanstalk::Book::default()];
    let others: [Done; 4] = Default::default();
    let [with_extensions, each_gearman_packet_with_each_right, each_workq_command_with_each_right, of_http] = &others;
    let length = Duration::from_secs_f64(minutes * 60.0);
    let begin = Instant::now();
    let (mut early, mut last) = ([0; 4], [0; 4]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| beanstalk::produce(&by_tcp, "default", &stage, &books[0]));
            scope.spawn(|| beanstalk::work(&by_tcp, "default", &stage, &books[0]));
        }
        #[cfg(feature = "tls")]
        {
            scope.spawn(|| beanstalk::produce(&by_tls, "secure", &stage, &books[1]));
            scope.spawn(|| beanstalk::work(&by_tls, "secure", &stage, &books[1]));
        }
        scope.spawn(|| extensions::run(&by_tcp, &stage, with_extensions));
        scope.spawn(|| gearman::run(address(&server, "", " (Gearman)"), &stage, each_gearman_packet_with_each_right));
        scope.spawn(|| workq::run(address(&server, "", " (Workq)"), &stage, each_workq_command_with_each_right));
        scope.spawn(|| operator::run(address(&server, "http://", "/"), &stage, of_http));
        while begin.elapsed() < length {
            std::thread::sleep(length / 20);
            last = figures(&server, &log);
            if begin.elapsed() < length / 4 {
                for (early, last) in early.iter_mut().zip(last) {
                    *early = last.max(*early);
                }
            }
        }
        stage.end();
    });
    let [plainly, securely] = books.each_ref().map(|book| book.done.count());
    let [extended, gearman, workq, http] = others.each_ref().map(Done::count);
    println!(
        "{minutes} minutes, jobs done: beanstalk {plainly}, over TLS {securely}, with extensions {extended}, \
         Gearman {gearman}, Workq {workq}, HTTP {http}"
    );
    println!("resident bytes, descriptors, threads, bytes of log: {early:?}, at the end {last:?}");
    let mut client = by_tcp();
    for (book, tube) in books.iter().zip(["default", "secure"]) {
        book.settle(&mut client, tube);
    }
    for state in ["ready", "reserved", "delayed", "buried"] {
        assert_eq!(client.figure("stats", &format!("current-jobs-{state}")).expect("a figure"), "0", "{state}");
    }
    let all = [plainly, extended, gearman, workq, http];
    assert!(all.iter().all(|count| *count > 0), "clients of some kind completed no jobs");
    assert_eq!(securely > 0, cfg!(feature = "tls"), "over TLS");
    assert!(last[0] <= early[0] * 13 / 10 + SLACK, "memory grows");
    assert!(last[1] <= early[1] + 4 && last[2] <= early[2], "descriptors or threads grow");
    assert!(last[3] <= early[3] * 2 + (4 << 20), "the log grows");
}
