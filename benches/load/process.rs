//! Runs servers as child processes and reads the kernel's statistics about them.
//!
//! Owns the startup of a server on a free port of 127.0.0.1, its termination when a [`Server`] is dropped, its binlog
//! directory, and the parsing of /proc. Must not depend on a protocol.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use super::wire::QUESTION;

/// Time limit for the start of a server, which can include reading a long binlog.
const START: Duration = Duration::from_secs(60);

/// The command-line option that makes this program an echo server.
pub const ECHO: &str = "--echo-server";

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Program {
    /// A server with the options `-p` for the port and `-l` for the address.
    Queue(PathBuf),
    /// Like `Queue`, but measured with another protocol. The string is the option that opens a port for this protocol.
    Door(PathBuf, &'static str),
    Gearmand(PathBuf),
    /// This program as an echo server for requests of this many bytes.
    Echo(usize),
}

#[derive(Debug)]
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// The time from the start of the server to its first reply (for the echo server, to the output of its address).
    pub started_in: Duration,
}

/// The resources that a server has used since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time in user and kernel mode, in nanoseconds.
    pub cpu: u64,
    /// The number of voluntary and involuntary context switches.
    pub switches: u64,
}

impl Program {
    pub fn start(&self, arguments: &[&str]) -> Result<Server, String> {
        match self {
            Program::Echo(length) => start_echo(*length),
            Program::Queue(path) | Program::Door(path, _) | Program::Gearmand(path) => {
                // The chosen port is free, but another program can take it before the server listens.
                let mut attempts = (0..3).map(|_| self.start_queue(path, arguments));
                attempts.find(Result::is_ok).unwrap_or_else(|| self.start_queue(path, arguments))
            }
        }
    }

    /// Returns `true` if the program supports a binlog (`-b`).
    pub fn has_binlog(&self) -> bool {
        let folder = Folder::new();
        self.start(&["-b", &folder.path()]).is_ok()
    }

    fn start_queue(&self, path: &Path, arguments: &[&str]) -> Result<Server, String> {
        let address = free_port()?;
        let mut command = Command::new(path);
        let port = address.port().to_string();
        match self {
            Program::Gearmand(_) => command.args(["-L", "127.0.0.1", "-p", &port, "-l", "none"]),
            Program::Door(_, option) => {
                let front = free_port()?.port().to_string();
                command.args(["-l", "127.0.0.1", "-p", &front, &format!("{option}={address}")])
            }
            _ => command.args(["-l", "127.0.0.1", "-p", &port]),
        };
        wait_for(command.args(arguments), address)
    }

    pub fn version(&self) -> String {
        match self {
            Program::Echo(_) => "echo".to_owned(),
            Program::Queue(path) | Program::Door(path, _) | Program::Gearmand(path) => {
                let flag = if matches!(self, Program::Gearmand(_)) { "-V" } else { "-v" };
                let output = Command::new(path).arg(flag).stdin(Stdio::null()).output();
                output.map_or("?".to_owned(), |output| {
                    let text = String::from_utf8_lossy(&output.stdout);
                    text.lines().next().unwrap_or("?").trim().to_owned()
                })
            }
        }
    }
}

fn start_echo(length: usize) -> Result<Server, String> {
    let start = Instant::now();
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    // The child process exits at the end of its standard input. It therefore cannot outlive this program.
    command.arg(ECHO).arg(length.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
    let address = line.trim().parse().map_err(|_| format!("the echo server printed {line:?}"))?;
    Ok(Server { child, address, started_in: start.elapsed() })
}

fn free_port() -> Result<SocketAddr, String> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    free.map_err(|error| error.to_string())
}

fn wait_for(command: &mut Command, address: SocketAddr) -> Result<Server, String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let mut server = Server { child, address, started_in: Duration::ZERO };
    while !answers(address) {
        if let Ok(Some(status)) = server.child.try_wait() {
            return Err(format!("{command:?}: {status}"));
        }
        if start.elapsed() > START {
            return Err(format!("{command:?} does not listen"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    server.started_in = start.elapsed();
    Ok(server)
}

/// `true` if a server replies at the address. A successful connection is not enough, because a server can listen before
/// it reads its binlog.
fn answers(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let _ = stream.set_read_timeout(Some(START));
    stream.write_all(QUESTION).is_ok() && matches!(stream.read(&mut [0; 64]), Ok(1..))
}

impl Server {
    /// Returns the resources used so far. Prefers `schedstat`, which counts nanoseconds, to `stat`, which counts ticks
    /// of 10 ms.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        let mut exact = true;
        for task in fs::read_dir(self.file("task")).into_iter().flatten().flatten() {
            match fs::read_to_string(task.path().join("schedstat")) {
                Ok(text) => usage.cpu += first_number(&text),
                Err(_) => exact = false,
            }
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            usage.switches += value(&status, "voluntary_ctxt_switches") + value(&status, "nonvoluntary_ctxt_switches");
        }
        if !exact || usage.cpu == 0 {
            let stat = fs::read_to_string(self.file("stat")).unwrap_or_default();
            // The second field is the program's name in parentheses, which can contain spaces and parentheses.
            let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
            let ticks: u64 = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
            // A tick is 10 ms on every Linux system.
            usage.cpu = ticks * 10_000_000;
        }
        usage
    }

    /// Returns the resident memory in bytes. Prefers `smaps_rollup`, which is exact.
    pub fn rss(&self) -> u64 {
        let exact = fs::read_to_string(self.file("smaps_rollup")).map_or(0, |text| value(&text, "Rss"));
        let rss = if exact > 0 { exact } else { value(&self.status(), "VmRSS") };
        rss * 1024
    }

    pub fn threads(&self) -> u64 {
        value(&self.status(), "Threads")
    }

    pub fn terminate(mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let end = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn status(&self) -> String {
        fs::read_to_string(self.file("status")).unwrap_or_default()
    }

    fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map_or(0, first_number)
}

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a directory next to the executable. /tmp may be in memory, where syncs would be too fast.
    pub fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let near = std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
        let parent = near.unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("load-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory for a binlog");
        Folder(folder)
    }

    pub fn path(&self) -> String {
        self.0.display().to_string()
    }

    /// Returns the disk space that the files use, in bytes.
    pub fn bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let files = fs::read_dir(&self.0).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|data| data.blocks() * 512).sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
