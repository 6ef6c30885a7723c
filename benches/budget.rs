//! Checks the costs of requests, jobs and connections against a table in the repository.
//!
//! Owns the workloads of `make budget` and the comparison with `benches/budget.txt`. callgrind counts the instructions
//! of a short run and of a long run. The difference between the counts excludes the startup costs. Memory is measured
//! as the growth of the resident set. The static program is compared with the dynamic program by processor time,
//! because instruction counts do not show how fast memcpy(3) is. The values must not depend on the load of the machine.
//!
//! Run `make budget`, or `cargo bench --bench budget -- PROGRAM [STATIC]` with the paths of optimized programs. The
//! option `--update` writes the measured values into the table. Needs valgrind and Linux.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitCode, Stdio};
use std::{env, fs};

const TABLE: &str = "benches/budget.txt";

/// Maximum percentage by which a measured value may exceed the value in the table.
const TOLERANCE: f64 = 2.0;

/// Like [`TOLERANCE`], but for instructions. Counts of the same program differ by less than 0.1 % without a log and by
/// at most 0.3 % with a log.
const INSTRUCTION_TOLERANCE: f64 = 1.0;

/// Like [`TOLERANCE`], but for a table that was measured with another compiler, which generates different code.
const OTHER_COMPILER: f64 = 10.0;

/// Like [`TOLERANCE`], but for processor times. The tolerance is low enough to detect musl's memcpy(3). In November
/// 2026, a drain with this function was 9 to 14 % slower, and the measured value exceeded the table by at least 5.8 %.
const TIMED_TOLERANCE: f64 = 5.0;

/// The number of operations in a short run and in a long run. The difference between the measurements of the two runs
/// excludes the startup costs.
const RUNS: [usize; 2] = [1_000, 5_000];

/// The minimum and the maximum number of pairs of timed runs. More pairs than the minimum are run only while the static
/// program seems slow, because other programs may have delayed some runs.
const TIMED_PAIRS: [usize; 2] = [9, 45];

const TIMED: usize = 20_000;

/// The static program seems slow if its processor time exceeds this percentage of the dynamic program's time.
const PARITY: u64 = 103;

const JOBS: usize = 200_000;
const CONNECTIONS: usize = 2_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let programs: Vec<&Path> = arguments.iter().filter(|argument| *argument != "--update").map(Path::new).collect();
    let Some(program) = programs.first() else {
        println!("cargo bench --bench budget -- PROGRAM [STATIC] [--update]");
        return ExitCode::SUCCESS;
    };
    let mut measured = measure(program);
    if let Some(other) = programs.get(1) {
        measured.extend(STATIC.map(|(name, work)| (name, relative_time(other, program, work))));
        measured.push(("size of the static program in KiB", size(other)));
    }
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    if programs.len() < arguments.len() {
        fs::write(&table, written(&measured)).expect("the table can be written");
        println!("wrote {TABLE}");
        return ExitCode::SUCCESS;
    }
    compare(&measured, &fs::read_to_string(&table).expect("the table can be read"))
}

fn size(program: &Path) -> u64 {
    fs::metadata(program).expect("the program exists").len() / 1024
}

fn measure(program: &Path) -> Vec<(&'static str, u64)> {
    let each = |options: &[&str], work: Work| {
        // With a log, the thread that prepares segments is active in some runs. The minimum of three excludes its work.
        let times = if options.is_empty() { 1 } else { 3 };
        let least =
            |operations| (0..times).map(|_| instructions(program, options, work, operations)).min().unwrap_or(0);
        let [short, long] = RUNS.map(least);
        long.saturating_sub(short) / (RUNS[1] - RUNS[0]) as u64
    };
    let mut rows = Vec::new();
    for (name, options, work) in WORKLOADS {
        rows.push((name, each(options, work)));
        eprintln!("{name}: {}", rows[rows.len() - 1].1);
    }
    rows.push(("bytes per job with a body of 64 bytes", bytes_per_job(program)));
    rows.push(("bytes in the log per job with a body of 64 bytes", log_bytes_per_job(program)));
    // Some runs use a few more pages, which add at most 20 bytes per connection. The minimum excludes these pages.
    let least = (0..5).map(|_| bytes_per_connection(program)).min().unwrap_or(0);
    rows.push(("bytes per idle connection", least));
    rows.push(("size of the program in KiB", size(program)));
    rows
}

type Work = fn(&mut Client, usize);

/// The rows that count instructions: the name, the options, and the operations. With options, the server has a log.
const WORKLOADS: [(&str, &[&str], Work); 8] = [
    ("instructions per put", &[], |client, count| puts(client, count, 1)),
    ("instructions per put, pipelined 64", &[], |client, count| puts(client, count, 64)),
    ("instructions per put, reserve and delete", &[], cycles),
    ("instructions per job that is put and drained", &[], drain),
    ("instructions per job through a relay", &[], relay),
    ("instructions per put with a log", &["-f50"], |client, count| puts(client, count, 1)),
    ("instructions per put, reserve and delete with a log", &["-f50"], cycles),
    ("instructions per durable put", &["-f0"], |client, count| puts(client, count, 1)),
];

/// The rows that compare the processor times of the static and the dynamic program: the name and the operations.
const STATIC: [(&str, Work); 2] = [
    ("% of time for puts in the static program, pipelined 64", |client, count| puts(client, count, 64)),
    ("% of time for puts and a drain in the static program", drain),
];

/// Returns the processor time of `program` as a percentage of the time of `other`. The result is the median over pairs
/// of runs, or [`PARITY`] if the median is lower. On some machines, each run has one of two speeds, which differ by a
/// factor of two. The fastest runs are therefore not compared. In most pairs, both runs have the same speed.
fn relative_time(program: &Path, other: &Path, work: Work) -> u64 {
    let time = |program: &Path| {
        let server = Server::start(Command::new(program));
        let mut client = server.client();
        work(&mut client, TIMED / 4);
        let before = server.nanos();
        work(&mut client, TIMED);
        server.nanos() - before
    };
    let mut ratios = Vec::new();
    loop {
        ratios.push((time(program) * 100).div_ceil(time(other)));
        ratios.sort_unstable();
        let median = ratios[ratios.len() / 2];
        if ratios.len() >= TIMED_PAIRS[1] || ratios.len() >= TIMED_PAIRS[0] && median <= PARITY {
            return median.max(PARITY);
        }
    }
}

const PUT: &str = "put 1024 0 60 64\r\n";

fn put(out: &mut Vec<u8>) {
    out.extend_from_slice(PUT.as_bytes());
    out.extend_from_slice(&[b'x'; 64]);
    out.extend_from_slice(b"\r\n");
}

fn puts(client: &mut Client, count: usize, depth: usize) {
    let mut left = count;
    while left > 0 {
        let now = left.min(depth);
        let mut out = Vec::new();
        (0..now).for_each(|_| put(&mut out));
        client.send(&out);
        for _ in 0..now {
            client.line("INSERTED ");
        }
        left -= now;
    }
}

fn cycles(client: &mut Client, count: usize) {
    for _ in 0..count {
        puts(client, 1, 1);
        client.send(b"reserve\r\n");
        let id = client.job();
        client.send(format!("delete {id}\r\n").as_bytes());
        client.line("DELETED");
    }
}

/// Puts all jobs first, then reserves and deletes them in batches of 64 commands.
fn drain(client: &mut Client, count: usize) {
    puts(client, count, 64);
    let mut left = count;
    while left > 0 {
        let now = left.min(64);
        client.send("reserve\r\n".repeat(now).as_bytes());
        let ids: Vec<u64> = (0..now).map(|_| client.job()).collect();
        let deletes = ids.iter().fold(String::new(), |mut text, id| {
            let _ = write!(text, "delete {id}\r\n");
            text
        });
        client.send(deletes.as_bytes());
        (0..now).for_each(|_| client.line("DELETED"));
        left -= now;
    }
}

fn relay(client: &mut Client, count: usize) {
    let mut worker = client.another();
    for _ in 0..count {
        worker.send(b"reserve\r\n");
        puts(client, 1, 1);
        let id = worker.job();
        worker.send(format!("delete {id}\r\n").as_bytes());
        worker.line("DELETED");
    }
}

/// Returns the number of instructions in user mode for `operations` operations and the startup of the program.
fn instructions(program: &Path, options: &[&str], work: Work, operations: usize) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program).args(options);
    if !options.is_empty() {
        command.arg("-b").arg(log_folder());
    }
    let server = Server::start(command);
    work(&mut server.client(), operations);
    let report = server.stop();
    let _ = fs::remove_dir_all(log_folder());
    let count = report.split_once("Collected :").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    count.unwrap_or_else(|| panic!("no count of instructions from valgrind: {report}"))
}

fn log_folder() -> PathBuf {
    env::temp_dir().join(format!("beanpole-budget.{}", std::process::id()))
}

/// Returns the total number of bytes up to the end of the last record in each segment, divided by the number of jobs.
fn log_bytes_per_job(program: &Path) -> u64 {
    let mut command = Command::new(program);
    command.arg("-b").arg(log_folder());
    let server = Server::start(command);
    puts(&mut server.client(), JOBS, 64);
    server.stop();
    let end = |bytes: Vec<u8>| bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
    let used = |path| end(fs::read(path).expect("a file"));
    let files = fs::read_dir(log_folder()).expect("a directory").map(|entry| entry.expect("a file").path());
    let bytes: u64 = files.map(used).sum();
    let _ = fs::remove_dir_all(log_folder());
    bytes.div_ceil(JOBS as u64)
}

fn bytes_per_job(program: &Path) -> u64 {
    let server = Server::start(Command::new(program));
    let mut client = server.client();
    puts(&mut client, 1_000, 64);
    let before = server.resident();
    puts(&mut client, JOBS, 64);
    (server.resident() - before) / JOBS as u64
}

fn bytes_per_connection(program: &Path) -> u64 {
    let server = Server::start(Command::new(program));
    let mut first = Vec::from_iter((0..100).map(|_| server.client()));
    first.iter_mut().for_each(|client| client.ask());
    let before = server.resident();
    let mut rest = Vec::from_iter((0..CONNECTIONS).map(|_| server.client()));
    rest.iter_mut().for_each(|client| client.ask());
    (server.resident() - before) / CONNECTIONS as u64
}

/// A server with one pool thread, on a port chosen by the system.
struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: String,
}

impl Server {
    fn start(mut command: Command) -> Server {
        command.args(["-l", "127.0.0.1", "-p", "0", "-t", "1", "-V"]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("valgrind is installed");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut server = Server { child, stderr, address: String::new() };
        let mut line = String::new();
        while server.address.is_empty() {
            line.clear();
            let length = server.stderr.read_line(&mut line).expect("the log is text");
            assert!(length > 0, "the server did not start");
            if let Some((_, address)) = line.split_once("is listening on ") {
                address.trim().clone_into(&mut server.address);
            }
        }
        server
    }

    fn client(&self) -> Client {
        Client::connect(&self.address)
    }

    /// Returns the resident memory in bytes.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a running server");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the line VmRSS");
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
    }

    /// Returns the processor time of all threads in nanoseconds.
    fn nanos(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("a running server");
        let files = threads.map(|thread| thread.expect("a directory").path().join("schedstat"));
        let first = |text: String| text.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok());
        files.filter_map(|file| first(fs::read_to_string(file).ok()?)).sum()
    }

    /// Stops the server with SIGTERM, and returns the unread lines of its log.
    fn stop(mut self) -> String {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("a running server");
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("the log is text");
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Client { stream: BufReader::new(stream) }
    }

    fn another(&self) -> Client {
        Client::connect(&self.stream.get_ref().peer_addr().expect("connected").to_string())
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the server reads");
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the server replies");
        line
    }

    fn line(&mut self, expected: &str) {
        let line = self.reply();
        assert!(line.starts_with(expected), "{line:?} instead of {expected}");
    }

    fn ask(&mut self) {
        self.send(b"list-tube-used\r\n");
        self.line("USING default");
    }

    fn job(&mut self) -> u64 {
        let line = self.reply();
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("RESERVED"), "{line:?}");
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        let (id, length) = (number(), number());
        let mut body = vec![0; length as usize + 2];
        self.stream.read_exact(&mut body).expect("the body follows");
        id
    }
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("-V").output().expect("rustc is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn written(measured: &[(&str, u64)]) -> String {
    let mut text = format!(
        "# What `make budget` allows, x86-64 with glibc, and the static program with musl. A commit that exceeds a row \
         by more than\n# {TOLERANCE} %, or a number of instructions by more than {INSTRUCTION_TOLERANCE} %, changes \
         it and says why.\n# {}\n",
        compiler()
    );
    for (name, value) in measured {
        let _ = writeln!(text, "{value:>8}  {name}");
    }
    text
}

/// Fails if a value is missing from the table, or exceeds its budget by more than the tolerance.
fn compare(measured: &[(&str, u64)], table: &str) -> ExitCode {
    let same = table.lines().any(|line| line.strip_prefix("# ") == Some(compiler().as_str()));
    let tolerance = |name: &str| match name {
        _ if name.starts_with("% of time") => TIMED_TOLERANCE,
        _ if !same => OTHER_COMPILER,
        _ if name.starts_with("instructions") => INSTRUCTION_TOLERANCE,
        _ => TOLERANCE,
    };
    let rows = table.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.trim().split_once("  "));
    let budget: BTreeMap<&str, u64> = rows.filter_map(|(value, name)| Some((name, value.parse().ok()?))).collect();
    println!("{:>10} {:>10} {:>7}", "measured", "budget", "ratio");
    let mut exceeded = Vec::new();
    for (name, value) in measured {
        let allowed = budget.get(name).copied();
        let ratio = allowed.map_or(f64::INFINITY, |allowed| *value as f64 / allowed as f64);
        println!("{value:>10} {:>10} {ratio:>7.3}  {name}", allowed.unwrap_or(0));
        if ratio > 1.0 + tolerance(name) / 100.0 {
            exceeded.push(format!("{name} (by more than {} %)", tolerance(name)));
        }
    }
    if exceeded.is_empty() {
        let [instructions, time, other] = ["instructions", "% of time", "size"].map(tolerance);
        println!("instructions within {instructions} % of {TABLE}, times within {time} %, the rest within {other} %");
        return ExitCode::SUCCESS;
    }
    println!("above {TABLE}: {}", exceeded.join("; "));
    ExitCode::FAILURE
}
