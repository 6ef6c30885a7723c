//! The environment of one attack: the attacked program, a bystander, and the collected results.
//!
//! Owns the start of beanpole and of beanstalkd, the sampling of their memory, and the bounds on their memory use.
//! Measurements are recorded before they are checked. The table therefore shows the values of failed checks.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::bystander::{cycle, message, use_only, Bystander, RoundTrip, Times};
use crate::daemon::Daemon;
use crate::wire::Wire;

pub const MIB: u64 = 1 << 20;

/// Bytes that a program can use beyond `--max-memory` for code, stacks and the allocator's overhead.
const BEYOND: u64 = 32 * MIB;

/// Bytes that a program can retain after the attackers have disconnected.
const REMAINS: u64 = 16 * MIB;

/// Duration of the bystander's measurement before the attack.
const BEFORE: Duration = Duration::from_millis(400);

/// Time limit for the program to process the attackers' input.
const TAKING: Duration = Duration::from_secs(10);

/// The program counts as idle after it has done nothing but serve the bystander for this long.
const WINDOW: Duration = Duration::from_millis(800);

/// Time limit for the program to release the attackers' memory, under light traffic.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// The program's resident memory in bytes, without the kernel's socket buffers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Memory {
    pub start: u64,
    pub peak: u64,
    /// `None` if the program has exited.
    pub after: Option<u64>,
}

#[derive(Default)]
pub struct Seen {
    pub before: Option<Times>,
    pub during: Option<Times>,
    pub memory: Option<Memory>,
    pub notes: Vec<String>,
    pub problems: Vec<String>,
    pub took: Duration,
}

pub struct Trial {
    program: PathBuf,
    /// `false` for beanstalkd.
    pub ours: bool,
    pub seen: Seen,
}

impl Trial {
    pub fn new(program: PathBuf, ours: bool) -> Trial {
        Trial { program, ours, seen: Seen::default() }
    }

    /// Returns the path of the program, for rows that start the program themselves.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Starts the program with the options in `both`. beanpole also gets the options in `ours`.
    pub fn start(&self, both: &[&str], ours: &[&str]) -> Daemon {
        self.start_within("", both, ours)
    }

    /// Like `start`, but first runs a shell command that sets limits, for example `ulimit -n 20`.
    pub fn start_within(&self, limits: &str, both: &[&str], ours: &[&str]) -> Daemon {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits}\nexec \"$0\" \"$@\"")]).arg(&self.program).args(both);
        command.env_remove("RUST_BACKTRACE").stdin(Stdio::null()).stdout(Stdio::null());
        if self.ours {
            command.args(["-l", "127.0.0.1:0"]).args(ours);
            return Daemon::spawn(command);
        }
        let address = free_port();
        command.args(["-l", "127.0.0.1", "-p", &address.port().to_string()]);
        Daemon::spawn_at(command, address)
    }

    pub fn check(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.seen.problems.push(problem());
        }
    }

    pub fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, seen: T, expected: T) {
        self.check(seen == expected, || format!("{what}: {seen:?} instead of {expected:?}"));
    }

    pub fn note(&mut self, note: String) {
        self.seen.notes.push(note);
    }

    /// Runs an attack while a bystander puts, reserves and deletes jobs in its own tube.
    pub fn beside<T>(&mut self, daemon: &Daemon, attack: impl FnOnce(&mut Trial) -> T) -> T {
        self.beside_trips(own_connection(daemon), cycle, attack)
    }

    pub fn beside_trips<T>(&mut self, wire: Wire, trip: RoundTrip, attack: impl FnOnce(&mut Trial) -> T) -> T {
        let stream = wire.stream().try_clone().expect("a connection");
        let bystander = Bystander::start(stream, trip);
        std::thread::sleep(BEFORE);
        self.seen.before = Times::of(bystander.take());
        let result = attack(self);
        let (samples, problem) = bystander.finish();
        self.seen.during = Times::of(samples);
        self.check(self.seen.during.is_some(), || "the bystander was not served at all".to_owned());
        self.check(problem.is_none(), || format!("the bystander failed: {}", problem.unwrap_or_default()));
        result
    }

    /// Runs an attack while sampling memory. The attackers must have disconnected when `attack` returns. The program
    /// must never use more than `max_memory` plus [`BEYOND`], and must release the attackers' memory after the attack.
    pub fn watch_memory(&mut self, daemon: &Daemon, max_memory: Option<u64>, attack: impl FnOnce(&mut Trial)) {
        let sampler = MemorySampler::start(daemon.pid());
        self.catching(attack);
        let start = sampler.start;
        if daemon.runs() {
            self.catching(|trial| trial.light_traffic(daemon, start + REMAINS));
        }
        let mut memory = sampler.finish();
        memory.after = memory.after.filter(|_| daemon.runs());
        self.seen.memory = Some(memory);
        self.check(memory.after.is_some(), || format!("the program has exited: {}", last_words(daemon)));
        // beanstalkd has no memory limit.
        if let Some(limit) = max_memory.map(|limit| limit + BEYOND).filter(|_| self.ours) {
            let excess = || format!("the program used {} MiB, more than {}", memory.peak / MIB, limit / MIB);
            self.check(memory.peak <= limit, excess);
        }
        let (after, limit) = (memory.after.unwrap_or(0), start + REMAINS);
        self.check(after <= limit, || format!("the program still uses {} MiB, more than {}", after / MIB, limit / MIB));
    }

    /// Records a panic as a problem, so that earlier measurements are kept.
    fn catching(&mut self, work: impl FnOnce(&mut Trial)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(self))) {
            self.seen.problems.push(message(&*panic));
        }
    }

    /// Waits, for at most [`TAKING`], until the program's memory is almost constant and the program uses little
    /// processor time. The kernel's buffers may still contain unread input.
    pub fn wait_until_idle(&self, daemon: &Daemon) {
        let end = Instant::now() + TAKING;
        let state = || resident(daemon.pid()).map(|(rss, _)| (rss, daemon.cpu_time()));
        let mut before = state();
        while Instant::now() < end && daemon.runs() {
            std::thread::sleep(WINDOW);
            let now = state();
            let (Some((rss, cpu)), Some((rss_now, cpu_now))) = (before, now) else { return };
            if rss.abs_diff(rss_now) < MIB && cpu_now - cpu < WINDOW / 3 {
                return;
            }
            before = now;
        }
    }

    /// Puts, reserves and deletes jobs until the program's memory is at most `wanted` bytes or the time limit is
    /// reached.
    fn light_traffic(&mut self, daemon: &Daemon, wanted: u64) {
        let mut wire = Wire::to(daemon);
        use_only(&mut wire, "afterwards");
        let bystander = Bystander::start(wire.stream().try_clone().expect("a connection"), cycle);
        let end = Instant::now() + AFTERWARDS;
        std::thread::sleep(BEFORE);
        while Instant::now() < end && daemon.runs() && daemon.rss() > wanted {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (_, problem) = bystander.finish();
        self.check(problem.is_none(), || format!("a later bystander failed: {}", problem.unwrap_or_default()));
    }
}

/// Returns the last line of the log, without the advice about backtraces that follows a panic.
pub fn last_words(daemon: &Daemon) -> String {
    let log = daemon.log();
    log.lines().rfind(|line| !line.starts_with("note: ")).unwrap_or_default().to_owned()
}

pub fn own_connection(daemon: &Daemon) -> Wire {
    let mut wire = Wire::to(daemon);
    use_only(&mut wire, "bystander");
    wire
}

pub fn free_port() -> SocketAddr {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    free.expect("a free port")
}

struct MemorySampler {
    start: u64,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Memory>,
}

impl MemorySampler {
    fn start(pid: u32) -> MemorySampler {
        let (start, _) = resident(pid).expect("a running process");
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut memory = Memory { start, peak: start, after: None };
            loop {
                let last = stopped.load(Ordering::SeqCst);
                let now = resident(pid);
                memory.after = now.map(|(now, _)| now);
                memory.peak = now.map_or(memory.peak, |(now, peak)| memory.peak.max(now).max(peak));
                if last || now.is_none() {
                    return memory;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        MemorySampler { start, stop, thread }
    }

    fn finish(self) -> Memory {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("no panic")
    }
}

/// Returns the current and the maximum resident memory in bytes, or `None` if the process has exited.
fn resident(pid: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some((value("VmRSS:")?, value("VmHWM:")?))
}
