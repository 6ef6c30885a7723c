//! Runs the real program as one of several servers, with clocks that a test can set.
//!
//! Owns the directory, the addresses and the process of a server. Must not contain tests.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nix::errno::Errno;

use super::daemon::{command, unassigned, wait_until, Daemon, Folder, Signal, PATIENCE};
use super::engine::Served;

pub struct Member {
    pub daemon: Daemon,
    pub beanstalk: SocketAddr,
    pub http: SocketAddr,
    /// Receives the server's systemd notifications.
    manager: UnixDatagram,
    pub folder: Folder,
}

/// Returns an address and a port that no other test and no later server uses.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1 << 8);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    unassigned(&format!("127.77.{high}.{low}"))
}

impl Member {
    /// Starts a server. Waits until the server listens for HTTP.
    pub fn start(served: &Served, name: &str, more: &[&str]) -> Member {
        Member::start_in(served, name, more, Folder::new())
    }

    pub fn start_in(served: &Served, name: &str, more: &[&str], folder: Folder) -> Member {
        Member::start_with(served, name, more, folder, &[])
    }

    pub fn start_with(
        served: &Served,
        name: &str,
        more: &[&str],
        folder: Folder,
        environment: &[(&str, PathBuf)],
    ) -> Member {
        let (beanstalk, http) = (free_address(), free_address());
        let _ = std::fs::remove_file(folder.file("manager"));
        let manager = UnixDatagram::bind(folder.file("manager")).expect("a socket");
        manager.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut program = command(&["--journal", &served.url(), "--node", name, &format!("--http={http}")]);
        program.args(["-l", &beanstalk.to_string(), "-b"]).arg(folder.file("jobs")).args(more);
        program.env("NOTIFY_SOCKET", folder.file("manager")).envs(environment.iter().cloned());
        let daemon = Daemon::spawn_at(program, http);
        Member { daemon, beanstalk, http, manager, folder }
    }

    /// Kills the server, waits until it has released its directory, and returns the directory.
    pub fn kill(self) -> Folder {
        self.daemon.signal(Signal::SIGKILL);
        drop(self.daemon);
        self.folder
    }

    pub fn serves(&self) -> bool {
        TcpStream::connect(self.beanstalk).is_ok()
    }

    pub fn wait_active(&self) {
        wait_until("the server is active", || self.serves());
    }

    pub fn client(&self) -> beanpole::Client {
        beanpole::Client::connect(self.beanstalk).expect("an active server")
    }

    pub fn figure(&self, key: &str) -> String {
        self.client().figure("stats", key).expect("a figure")
    }

    /// Requests a path over HTTP, and returns the status and the body. Retries while the server restarts.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut answer = String::new();
        wait_until("the server responds over HTTP", || {
            answer.clear();
            let Ok(mut stream) = TcpStream::connect(self.http) else { return false };
            let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http);
            let is_sent = stream.write_all(request.as_bytes()).is_ok();
            is_sent && stream.read_to_string(&mut answer).is_ok() && answer.contains("\r\n\r\n")
        });
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer.split_once("\r\n\r\n").expect("a head").1.to_owned())
    }

    /// Returns the systemd notifications since the last call, up to and including the line `last`.
    pub fn notifications(&self, last: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut buffer = [0; 1000];
        while !lines.iter().any(|line| line == last) {
            let length = self.manager.recv(&mut buffer).unwrap_or_else(|error| panic!("no {last}: {error}; {lines:?}"));
            lines.extend(String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned));
        }
        lines
    }
}

impl Member {
    pub fn restart(self, served: &Served, clocks: &Clocks) -> Member {
        clocks.start_in(served, "a", self.folder)
    }
}

/// The clocks and the disk of one server, which `clock_shim.rs` reads.
pub struct Clocks {
    folder: Folder,
    shim: PathBuf,
}

impl Clocks {
    pub fn new() -> Clocks {
        let folder = Folder::new();
        let (file, shim) = (folder.file("clocks"), folder.file("shim.so"));
        std::fs::write(file, [0; 32]).expect("a file");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/clock_shim.rs");
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command.args(["--edition", "2021", "--crate-type", "cdylib", "-C", "panic=abort", "-o"]);
        assert!(command.arg(&shim).arg(source).status().expect("rustc").success());
        Clocks { folder, shim }
    }

    pub fn start(&self, served: &Served, name: &str) -> Member {
        self.start_in(served, name, Folder::new())
    }

    fn start_in(&self, served: &Served, name: &str, folder: Folder) -> Member {
        let environment = [("LD_PRELOAD", self.shim.clone()), ("CLOCK_SHIM", self.folder.file("clocks"))];
        Member::start_with(served, name, &[], folder, &environment)
    }

    /// Sets the offset of the wall clock, and the time for which the machine was suspended.
    pub fn set(&self, wall: Duration, suspended: Duration) {
        self.write(0, wall.as_nanos() as u64);
        self.write(1, suspended.as_nanos() as u64);
    }

    /// Sets the duration of each sync of a file.
    pub fn delay_syncs(&self, delay: Duration) {
        self.write(2, delay.as_nanos() as u64);
    }

    /// Makes the creation of each file fail.
    pub fn refuse_files(&self, error: Errno) {
        self.write(3, error as u64);
    }

    fn write(&self, index: u64, number: u64) {
        // The file is overwritten in place, because the program has mapped it into memory.
        let file = OpenOptions::new().write(true).open(self.folder.file("clocks")).expect("a file");
        file.write_all_at(&number.to_ne_bytes(), index * 8).expect("a write");
    }
}
