//! Plays the conversations against beanstalkd and gearmand, whose behavior the conversations describe.
//!
//! Run `cargo test --test oracle -- /usr/bin/beanstalkd` or `-- /usr/sbin/gearmand`. The program's name selects the
//! conversations. Each conversation gets a new daemon on its own Unix socket or port. `differences.txt` lists expected
//! failures with their reasons. A listed conversation that passes is an error, unless the reason begins with
//! "Sometimes". The tests use real time, and ages are reported in whole seconds. Under load, a conversation can fail by
//! chance. After the others, the test tries it up to `TRIALS` times, and it must pass twice in a row in one of them.

mod script;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use script::{load, run, Connection, Conversation, Sockets, Wire};

/// The number of conversations that are played in parallel. Most conversations wait most of the time.
const THREADS: usize = 16;

/// The number of times that a failed conversation is tried again. Other programs may load the machine all the time.
const TRIALS: usize = 10;

/// The host name in the handles of gearmand's jobs.
const HOST: &str = "h";

struct Daemon {
    child: Child,
    door: Door,
}

enum Door {
    Socket(PathBuf),
    Port(SocketAddr),
}

impl Door {
    fn connect(&self) -> std::io::Result<Connection> {
        match self {
            Door::Socket(path) => UnixStream::connect(path).map(Connection::Unix),
            Door::Port(address) => TcpStream::connect(address).map(Connection::Tcp),
        }
    }
}

impl Daemon {
    fn start(program: &str, folder: &Path, number: usize, conversation: &Conversation) -> Daemon {
        loop {
            let (command, door) = match wire(program) {
                Wire::Gearman => gearmand(program, folder, number, conversation),
                _ => beanstalkd(program, folder, number, conversation.max_job_size),
            };
            if let Some(daemon) = Daemon::begin(command, door) {
                return daemon;
            }
        }
    }

    /// Starts the daemon. Returns `None` if the daemon exits, usually because another process has taken its port.
    fn begin(mut command: Command, door: Door) -> Option<Daemon> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut daemon = Daemon { child: child.expect("the daemon starts"), door };
        let start = Instant::now();
        while daemon.door.connect().is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "the daemon does not listen");
            if daemon.child.try_wait().expect("a child process").is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Another process on the same port may have accepted the connection, so the daemon must still be running.
        let ended = daemon.child.try_wait().expect("a child process").is_some();
        (!ended).then_some(daemon)
    }
}

fn wire(program: &str) -> Wire {
    if program.ends_with("gearmand") {
        Wire::Gearman
    } else {
        Wire::Beanstalk
    }
}

fn beanstalkd(program: &str, folder: &Path, number: usize, max_job_size: Option<u32>) -> (Command, Door) {
    let socket = folder.join(format!("{number}.sock"));
    let mut command = Command::new(program);
    command.arg("-l").arg(format!("unix:{}", socket.display()));
    if let Some(size) = max_job_size {
        command.arg("-z").arg(size.to_string());
    }
    (command, Door::Socket(socket))
}

/// Returns a command that runs gearmand with the conversation's settings. By default, each job wakes one worker.
fn gearmand(program: &str, folder: &Path, number: usize, conversation: &Conversation) -> (Command, Door) {
    // Each daemon gets a different address, because parallel daemons with the same address could choose the same port.
    let host = Ipv4Addr::new(127, 77, (number / 250) as u8, (number % 250) as u8 + 1);
    let free = TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr()).expect("a free port");
    let mut command = Command::new(program);
    command.args([
        "-L",
        &host.to_string(),
        "-p",
        &free.port().to_string(),
        "--job-handle-prefix",
        &format!("H:{HOST}"),
    ]);
    command.arg("-l").arg(folder.join(format!("{number}.log")));
    let mut wakeup = "1";
    let mut words = conversation.options.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--job-retries" => drop(command.arg("-j").arg(words.next().expect("a number"))),
            "--worker-wakeup" => wakeup = words.next().expect("a number"),
            "--exceptions" => drop(command.arg(word)),
            _ => {}
        }
    }
    // With -R, gearmand serves functions in round-robin order, as beanpole and gearmand 2.0 do.
    command.args(["-R", "-w", wakeup]);
    (command, Door::Port(free))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Door::Socket(path) = &self.door {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Plays a conversation. Plays a Gearman conversation again, with its input sent byte by byte.
fn converse(program: &str, folder: &Path, number: usize, conversation: &Conversation) -> Result<(), String> {
    converse_in(program, folder, number, conversation, false)?;
    match wire(program) {
        Wire::Gearman => converse_in(program, folder, number, conversation, true)
            .map_err(|problem| format!("byte by byte: {problem}")),
        _ => Ok(()),
    }
}

fn converse_in(
    program: &str,
    folder: &Path,
    number: usize,
    conversation: &Conversation,
    split: bool,
) -> Result<(), String> {
    let daemon = Daemon::start(program, folder, number, conversation);
    let connect = |_| daemon.door.connect();
    let drain = || {
        kill(Pid::from_raw(daemon.child.id() as i32), Signal::SIGUSR1).expect("a signal to the child process");
        std::thread::sleep(Duration::from_millis(80));
    };
    let mut world = Sockets::new(connect, std::thread::sleep, drain, Duration::from_millis(80));
    world.split = split;
    run(conversation, &mut world)
}

/// Returns an error for a failure that is not listed, and for a listed difference that does not occur.
fn judge(conversation: &Conversation, result: Result<(), String>, reason: Option<&String>) -> Result<(), String> {
    let Conversation { title, place, .. } = conversation;
    match (result, reason) {
        // Results that depend on chance are ignored.
        (_, Some(reason)) if reason.starts_with("Sometimes") => Ok(()),
        (Ok(()), None) | (Err(_), Some(_)) => Ok(()),
        (Ok(()), Some(_)) => Err(format!("{title} ({place}): passes, but is listed as a difference")),
        (Err(problem), None) => Err(format!("{title} ({place}): {problem}")),
    }
}

// Tests promise P36 of beanpole-promises(7).
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let [program] = arguments.as_slice() else {
        eprintln!("usage: oracle PROGRAM, the original daemon: /usr/bin/beanstalkd or /usr/sbin/gearmand");
        return ExitCode::from(2);
    };
    let wire = wire(program);
    let home = if wire == Wire::Gearman { "tests/conversations/gearman" } else { "tests/conversations" };
    let (mut conversations, differences) = load(Path::new(home), HOST);
    conversations.retain(|conversation| conversation.is_all(wire));
    let folder = std::env::temp_dir().join(format!("oracle-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new directory");
    let next = AtomicUsize::new(0);
    let attempt = |number: usize| {
        let conversation = &conversations[number];
        judge(conversation, converse(program, &folder, number, conversation), differences.get(&conversation.title))
    };
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        numbers.take_while(|number| *number < conversations.len()).filter(|number| attempt(*number).is_err()).collect()
    };
    let doubtful: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|thread| -> Vec<usize> { thread.join().expect("a thread that does not panic") })
            .collect()
    });
    let pass_twice = |number| attempt(number).and_then(|()| attempt(number));
    let trials =
        |&number: &usize| (1..TRIALS).fold(pass_twice(number), |result, _| result.or_else(|_| pass_twice(number)));
    let failures: Vec<String> = doubtful.iter().filter_map(|number| trials(number).err()).collect();
    let _ = std::fs::remove_dir_all(&folder);
    failures.iter().for_each(|failure| println!("{failure}"));
    println!("known differences: {}", differences.len());
    println!(
        "{} passed, {} failed, {} tried again",
        conversations.len() - failures.len(),
        failures.len(),
        doubtful.len()
    );
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
