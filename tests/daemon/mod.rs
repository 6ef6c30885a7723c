//! Runs the real program as a child process.
//!
//! Owns the startup of the program on a free port or in its own directory, its termination when a [`Daemon`] is
//! dropped, its log, and the kernel's statistics about the process. Must not depend on the tests. A watchdog kills each
//! daemon after [`LIFETIME`], so that a hanging test fails.
//!
//! ```text
//! let daemon = Daemon::start(&["-z", "1000"]);       // adds -p 0 unless the arguments contain -l or -p
//! let mut client = daemon.client();
//! client.put(b"x", 0, 0, 60).unwrap();
//! daemon.signal(Signal::SIGTERM);
//! assert_eq!(daemon.wait(PATIENCE), 0);
//! ```

// Each test program uses only a part of this module.
#![allow(dead_code)]

pub mod everything;

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use beanpole::Client;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::kill;
pub use nix::sys::signal::Signal;
use nix::unistd::{sysconf, Pid, SysconfVar};

/// Returns the path of the program under test. The environment variable `BEANPOLE_PROGRAM` overrides the default path.
pub fn program() -> PathBuf {
    std::env::var_os("BEANPOLE_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_beanpole").into()).into()
}

/// Returns the PATH with the directory of the program first.
pub fn path() -> OsString {
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let own = program().parent().map(Path::to_owned);
    std::env::join_paths(own.into_iter().chain(std::env::split_paths(&inherited))).expect("a path")
}

/// `true` if the program loads the libraries in `LD_PRELOAD`. Otherwise, prints that a test is skipped.
pub fn can_preload() -> bool {
    let mut command = command(&["-v"]);
    // With this variable, the dynamic linker lists the libraries instead of starting the program.
    command.env("LD_TRACE_LOADED_OBJECTS", "1");
    let is_static = run_command(command).out.starts_with("beanpole ");
    if is_static {
        println!("skipped: a static program ignores LD_PRELOAD");
    }
    !is_static
}

/// Time limit for events that normally happen immediately. The limit is long, because a machine can be very busy. Only
/// failing tests wait that long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The maximum lifetime of a daemon, sufficient for several waits of [`PATIENCE`].
pub const LIFETIME: Duration = Duration::from_secs(1200);

/// The interval for polling a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub struct Daemon {
    child: Arc<Mutex<Child>>,
    pid: u32,
    log: Arc<Log>,
    collector: Option<JoinHandle<()>>,
    names: Vec<String>,
    folder: Option<Folder>,
    /// Stops the watchdog thread when dropped.
    watched: Option<Sender<()>>,
}

#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A temporary directory, removed when dropped.
pub struct Folder(PathBuf);

/// The lines that the program has written to stderr. Each query first reads all data in the pipe. A query therefore
/// finds every line that the program wrote before an event that the test has already observed.
struct Log {
    pipe: File,
    text: Mutex<Text>,
    grown: Condvar,
}

#[derive(Default)]
struct Text {
    lines: String,
    /// The beginning of an incomplete last line.
    rest: Vec<u8>,
    ended: bool,
}

const PIPE: usize = 64 * 1024;

/// Returns a command for the program, without the environment variables of a service manager.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments);
    clean(&mut command);
    command
}

/// Like [`command`], but runs a shell script, which starts the program with `exec "$0" "$@"`.
pub fn shell(script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program()).args(arguments);
    clean(&mut command);
    command
}

fn clean(command: &mut Command) {
    for name in ["JOURNAL_STREAM", "LISTEN_FDNAMES", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
}

pub fn run(arguments: &[&str]) -> Ended {
    run_command(command(arguments))
}

pub fn run_command(mut command: Command) -> Ended {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("an executable program");
    let (mut out, mut err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let out = std::thread::spawn(move || text_of(&mut out));
    let err = std::thread::spawn(move || text_of(&mut err));
    let status = ended(PATIENCE, || child.try_wait().expect("a child process"));
    let status = status.unwrap_or_else(|| {
        let _ = child.kill();
        child.wait().expect("a child process")
    });
    let (out, err) = (out.join().expect("a reader"), err.join().expect("a reader"));
    let code = status.code().unwrap_or_else(|| panic!("the process did not exit by itself: {status}\n{out}{err}"));
    Ended { code, out, err }
}

impl Daemon {
    /// Starts the server, and waits until it accepts connections. Unless the arguments contain an address, the server
    /// listens on a free port of 127.0.0.1.
    pub fn start(arguments: &[&str]) -> Daemon {
        Daemon::start_with(&[], arguments)
    }

    pub fn start_with(environment: &[(&str, &str)], arguments: &[&str]) -> Daemon {
        let placed = |word: &&str| ["-l", "-p", "--listen", "--port"].iter().any(|option| word.starts_with(option));
        let mut command = if arguments.iter().any(placed) { command(&[]) } else { command(&["-p", "0"]) };
        command.args(arguments).envs(environment.iter().copied());
        Daemon::spawn(command)
    }

    /// Starts the server on a Unix socket in a temporary directory.
    pub fn start_unix(arguments: &[&str]) -> Daemon {
        let folder = Folder::new();
        let mut command = command(&["-l", &format!("unix:{}", folder.file("socket").display())]);
        command.args(arguments);
        let mut daemon = Daemon::spawn(command);
        daemon.folder = Some(folder);
        daemon
    }

    /// Starts a server with a command from [`command`] or [`shell`], and waits until the server accepts connections.
    pub fn spawn(command: Command) -> Daemon {
        Daemon::try_spawn(command).unwrap_or_else(|log| panic!("the server does not listen:\n{log}"))
    }

    /// Like [`Daemon::spawn`], but returns the contents of stderr if the server exits or does not listen in time.
    pub fn try_spawn(command: Command) -> Result<Daemon, String> {
        let mut daemon = Daemon::begin(command);
        let marker = " is listening on ";
        let log = daemon.hear(marker)?;
        let line = log.lines().find(|line| line.contains(marker)).expect("the line");
        let (_, names) = line.split_once(marker).expect("the line");
        // In JSON format, a quotation mark and a brace follow the addresses.
        daemon.names = names.trim_end_matches("\"}").split(" and ").map(str::to_owned).collect();
        Ok(daemon)
    }

    /// Starts a server of any kind, and waits until it accepts connections on `address`.
    pub fn spawn_at(command: Command, address: SocketAddr) -> Daemon {
        let mut daemon = Daemon::begin(command);
        daemon.names = vec![address.to_string()];
        wait_until("the server listens", || {
            assert!(daemon.runs(), "the server has exited; log:\n{}", daemon.log());
            TcpStream::connect(address).is_ok()
        });
        daemon
    }

    fn begin(mut command: Command) -> Daemon {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("an executable program");
        let (pid, stderr) = (child.id(), child.stderr.take().expect("a pipe"));
        let (text, grown) = Default::default();
        let log = Arc::new(Log { pipe: File::from(OwnedFd::from(stderr)), text, grown });
        let child = Arc::new(Mutex::new(child));
        let collector = std::thread::spawn({
            let log = log.clone();
            move || log.collect()
        });
        let watched = Some(watch(child.clone()));
        Daemon { child, pid, log, collector: Some(collector), names: Vec::new(), folder: None, watched }
    }

    /// Returns the addresses that the server has reported, for example `127.0.0.1:11300` or `unix:/run/x`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn address(&self) -> SocketAddr {
        self.names.iter().find_map(|name| name.parse().ok()).expect("a TCP address")
    }

    pub fn path(&self) -> &Path {
        self.names.iter().find_map(|name| name.strip_prefix("unix:")).map(Path::new).expect("a Unix socket")
    }

    /// Connects a client to the first address.
    pub fn client(&self) -> Client {
        let client = match self.names[0].strip_prefix("unix:") {
            Some(path) => Client::connect_unix(path),
            None => Client::connect(self.address()),
        };
        client.unwrap_or_else(|error| panic!("no connection: {error}; log:\n{}", self.log()))
    }

    /// Connects to the first TCP address. The timeout of each read is [`PATIENCE`].
    pub fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("a connection");
        stream.set_nodelay(true).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a connection");
        stream
    }

    /// Connects to the first Unix socket. The timeout of each read is [`PATIENCE`].
    pub fn unix(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a connection");
        stream
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Changes a resource limit. `limit` is an option of prlimit(1). Returns `false` if prlimit is missing or fails.
    pub fn limit(&self, limit: &str) -> bool {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &self.pid.to_string(), limit]);
        command.status().is_ok_and(|status| status.success())
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid as i32), signal).expect("a child process");
    }

    /// Returns the exit code. Panics after `timeout`, or if a signal killed the process.
    pub fn wait(&self, timeout: Duration) -> i32 {
        let status = ended(timeout, || self.child().try_wait().expect("a child process"));
        let status = status.unwrap_or_else(|| panic!("the process still runs after {timeout:?}; log:\n{}", self.log()));
        wait_until("stderr is closed", || self.log.text().ended);
        status.code().unwrap_or_else(|| panic!("the process did not exit by itself: {status}; log:\n{}", self.log()))
    }

    pub fn runs(&self) -> bool {
        self.child().try_wait().expect("a child process").is_none()
    }

    /// Returns everything that the process has written to stderr.
    pub fn log(&self) -> String {
        self.log.text().lines.clone()
    }

    /// Waits until stderr contains `text`, and returns all of stderr. Panics after [`PATIENCE`], or if the process
    /// exits first.
    pub fn wait_log(&self, text: &str) -> String {
        self.hear(text).unwrap_or_else(|log| panic!("the log does not contain \"{text}\":\n{log}"))
    }

    /// Like [`Daemon::wait_log`], but returns the contents of stderr as an error if they do not contain `text`.
    fn hear(&self, text: &str) -> Result<String, String> {
        let end = Instant::now() + PATIENCE;
        let mut log = self.log.text();
        while !log.lines.contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || log.ended {
                return Err(log.lines.clone());
            }
            log = self.log.grown.wait_timeout(log, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(log.lines.clone())
    }

    /// Returns the process's CPU time in user and kernel mode, with a resolution of one clock tick, usually 10 ms.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).expect("a running process");
        // The second field is the name in parentheses, which can contain spaces and parentheses.
        let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        let mut fields = fields.split(' ').skip(11).map(|field| field.parse::<u64>().expect("a number"));
        let ticks = fields.next().expect("the user time") + fields.next().expect("the system time");
        let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().expect("a clock tick") as u64;
        Duration::from_millis(ticks * 1000 / per_second)
    }

    /// Returns the resident memory in bytes.
    pub fn rss(&self) -> u64 {
        self.kilobytes("VmRSS")
    }

    /// Returns the maximum resident memory in bytes.
    pub fn peak_rss(&self) -> u64 {
        self.kilobytes("VmHWM")
    }

    pub fn threads(&self) -> u64 {
        self.status("Threads").parse().expect("a number")
    }

    /// Returns the kernel's state letter of each thread: `R` is running or runnable, `S` is sleeping, `T` is stopped.
    pub fn states(&self) -> String {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("a running process");
        // A thread may exit after its directory is listed.
        let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
        stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next()).collect()
    }

    /// Stops the process with SIGSTOP and waits until all threads have stopped.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        wait_until("all threads are stopped", || self.states().chars().all(|state| state == 'T'));
    }

    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("a running process").count()
    }

    /// Disables the watchdog, which would kill the daemon after [`LIFETIME`]. For tests of configurable length.
    #[allow(dead_code)] // only a few tests use the method
    pub fn live_on(&mut self) {
        self.watched = None;
    }

    /// Returns the value of a line in `/proc/PID/status`.
    pub fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("a running process");
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {name} in {status}; log:\n{}", self.log())).trim().to_owned()
    }

    fn kilobytes(&self, name: &str) -> u64 {
        let value = self.status(name);
        let number = value.strip_suffix(" kB").and_then(|number| number.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("{name}: {value}")) * 1024
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.watched = None;
        let mut child = self.child();
        // The process may have exited already.
        let _ = child.kill();
        let _ = child.wait();
        drop(child);
        if let Some(collector) = self.collector.take() {
            let _ = collector.join();
        }
        if std::thread::panicking() {
            eprintln!("log of process {}:\n{}", self.pid, self.log());
        }
    }
}

impl Log {
    /// Reads all data in the pipe. Returns all lines so far, and a flag that is `true` at the end of the pipe.
    fn text(&self) -> MutexGuard<'_, Text> {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut buffer, mut taken) = (vec![0; PIPE], 0);
        while taken < PIPE && !text.ended && self.is_readable(PollTimeout::ZERO) {
            let count = (&self.pipe).read(&mut buffer).unwrap_or(0);
            taken += count;
            text.ended = count == 0;
            text.rest.extend_from_slice(&buffer[..count]);
        }
        let lines = text.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let whole = if text.ended { text.rest.len() } else { lines };
        let whole: Vec<u8> = text.rest.drain(..whole).collect();
        text.lines.push_str(&String::from_utf8_lossy(&whole));
        text
    }

    /// `true` if the pipe contains data or has reached its end.
    fn is_readable(&self, timeout: PollTimeout) -> bool {
        let mut pipe = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        poll(&mut pipe, timeout).is_ok_and(|count| count > 0)
    }

    fn collect(&self) {
        let mut has_ended = false;
        while !has_ended {
            self.is_readable(PollTimeout::NONE);
            has_ended = self.text().ended;
            self.grown.notify_all();
        }
    }
}

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("beanpole-{}-{number}", std::process::id()));
        // An earlier process with the same ID may have left a directory.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a directory for this test");
        Folder(folder)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a free port of `host` below the ports that the kernel assigns. Otherwise, a server that listens on all
/// addresses, or a connection, could take the port before the test uses it. Each call returns another port. Does not
/// bind the port, because a child process that another thread starts could keep the socket for some milliseconds.
pub fn unassigned(host: &str) -> SocketAddr {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Test programs that run at the same time often have adjacent process IDs.
    let next = || 20_000 + (std::process::id() as usize * 97 + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
    let host: IpAddr = host.parse().expect("an IP address");
    let mut addresses = (0..1000).map(|_| SocketAddr::new(host, next() as u16));
    addresses.find(|address| TcpStream::connect(address).is_err()).expect("a free port")
}

/// Polls until `condition` is true. Panics with the description `what` after [`PATIENCE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn ended(timeout: Duration, mut status: impl FnMut() -> Option<ExitStatus>) -> Option<ExitStatus> {
    let end = Instant::now() + timeout;
    loop {
        match status() {
            None if Instant::now() < end => std::thread::sleep(POLL_INTERVAL),
            status => return status,
        }
    }
}

fn watch(child: Arc<Mutex<Child>>) -> Sender<()> {
    let (watched, end) = channel();
    std::thread::spawn(move || {
        if end.recv_timeout(LIFETIME) == Err(RecvTimeoutError::Timeout) {
            let _ = child.lock().unwrap_or_else(PoisonError::into_inner).kill();
        }
    });
    watched
}

fn text_of(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("a readable pipe");
    String::from_utf8_lossy(&bytes).into_owned()
}
