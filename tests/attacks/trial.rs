//! What a row works with: a program to attack, a bystander, and a place for results.
//!
//! Owns the start of either program, the sampling of memory, and the bounds of all rows about memory. Figures are noted
//! before they are judged, so that a row that fails still shows them.

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

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// Memory that a program may use beyond its `--max-memory`: itself, its threads, and the allocator's overhead.
const BEYOND: u64 = 32 * MIB;

/// Memory that may remain in use after the attackers have left.
const REMAINS: u64 = 16 * MIB;

/// How long a bystander is measured before the attack.
const BEFORE: Duration = Duration::from_millis(400);

/// How long the program may take to execute what was sent.
const TAKING: Duration = Duration::from_secs(10);

/// How long it must be idle, except for a bystander.
const WINDOW: Duration = Duration::from_millis(800);

/// How long after the attack memory may take to be released, under light traffic.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// Resident memory in bytes from `/proc/PID/status`, which does not include the kernel's socket buffers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Memory {
    pub start: u64,
    pub peak: u64,
    /// `None` if the program has died.
    pub after: Option<u64>,
}

/// The results of one program in one row.
#[derive(Default)]
pub struct Seen {
    /// Round trips of the bystander before and during the attack.
    pub before: Option<Times>,
    pub during: Option<Times>,
    pub memory: Option<Memory>,
    pub notes: Vec<String>,
    /// What did not hold.
    pub problems: Vec<String>,
    pub took: Duration,
}

/// A trial; see the module's documentation.
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

    /// Returns the program, for rows that start it differently.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Starts the program with options that both support, and with some that only beanpole supports.
    pub fn start(&self, both: &[&str], ours: &[&str]) -> Daemon {
        self.start_within("", both, ours)
    }

    /// Like `start`, under limits in the shell's syntax.
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

    /// Notes a problem unless a condition holds.
    pub fn check(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.seen.problems.push(problem());
        }
    }

    /// Notes a problem unless two values are equal.
    pub fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, seen: T, expected: T) {
        self.check(seen == expected, || format!("{what}: {seen:?} and not {expected:?}"));
    }

    /// Adds a note to the table.
    pub fn note(&mut self, note: String) {
        self.seen.notes.push(note);
    }

    /// Attacks while a bystander puts, reserves and deletes jobs in its own tube.
    pub fn beside<T>(&mut self, daemon: &Daemon, attack: impl FnOnce(&mut Trial) -> T) -> T {
        self.beside_trips(own_connection(daemon), cycle, attack)
    }

    /// Attacks while a bystander makes these round trips.
    pub fn beside_trips<T>(&mut self, wire: Wire, trip: RoundTrip, attack: impl FnOnce(&mut Trial) -> T) -> T {
        let stream = wire.stream().try_clone().expect("a connection");
        let bystander = Bystander::start(stream, trip);
        std::thread::sleep(BEFORE);
        self.seen.before = Times::of(bystander.take());
        let result = attack(self);
        let (samples, problem) = bystander.finish();
        self.seen.during = Times::of(samples);
        self.check(self.seen.during.is_some(), || "a bystander was not served at all".to_owned());
        self.check(problem.is_none(), || format!("a bystander: {}", problem.unwrap_or_default()));
        result
    }

    /// Attacks while memory is sampled. The attackers are gone when `attack` returns. The program must observe its
    /// `--max-memory`, and in any case release what it used for the attackers.
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
        self.check(memory.after.is_some(), || format!("it has died: {}", last_words(daemon)));
        // beanstalkd has no such option.
        if let Some(limit) = max_memory.map(|limit| limit + BEYOND).filter(|_| self.ours) {
            let excess = || format!("it took {} MiB, more than {}", memory.peak / MIB, limit / MIB);
            self.check(memory.peak <= limit, excess);
        }
        let (after, limit) = (memory.after.unwrap_or(0), start + REMAINS);
        self.check(after <= limit, || format!("it still has {} MiB, more than {}", after / MIB, limit / MIB));
    }

    /// Turns a panic into a problem, so that earlier measurements are shown.
    fn catching(&mut self, work: impl FnOnce(&mut Trial)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(self))) {
            self.seen.problems.push(message(&*panic));
        }
    }

    /// Waits until the program has executed what was sent: until its memory is constant and its processor is mostly
    /// idle. The kernel's buffers fill before the program's.
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

    /// Puts, reserves and deletes jobs until memory has this value, but not for long.
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
        self.check(problem.is_none(), || format!("a bystander afterwards: {}", problem.unwrap_or_default()));
    }
}

/// Returns the last line of the log, without the advice that a panic adds.
pub fn last_words(daemon: &Daemon) -> String {
    let log = daemon.log();
    log.lines().rfind(|line| !line.starts_with("note: ")).unwrap_or_default().to_owned()
}

/// Returns a connection that uses and watches its own tube.
pub fn own_connection(daemon: &Daemon) -> Wire {
    let mut wire = Wire::to(daemon);
    use_only(&mut wire, "bystander");
    wire
}

/// Returns a local port that is free now.
pub fn free_port() -> SocketAddr {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    free.expect("a free port")
}

/// A thread that continuously samples the memory of a process.
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
        self.thread.join().expect("a thread that reads")
    }
}

/// Returns the resident bytes of a process, and their maximum so far, or `None` if it has ended.
fn resident(pid: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some((value("VmRSS:")?, value("VmHWM:")?))
}
