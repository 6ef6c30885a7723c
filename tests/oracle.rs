//! The golden conversations against the original daemon: what we say it does, it does.
//!
//! `cargo test --test oracle -- /usr/bin/beanstalkd`. Each conversation has a fresh daemon on a Unix socket of its own. One that
//! the daemon does not satisfy must be listed in `differences.txt` with the reason; one that is listed and is satisfied all
//! the same fails, so that the list stays true.

mod script;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use script::{load, run, Connection, Conversation, Sockets, Wire};

/// Conversations at a time; most of their time is sleep.
const THREADS: usize = 16;

/// A daemon of its own for one conversation, ended with it.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    fn start(program: &str, folder: &Path, number: usize, max_job_size: Option<u32>) -> Daemon {
        let socket = folder.join(format!("{number}.sock"));
        let mut command = Command::new(program);
        command.arg("-l").arg(format!("unix:{}", socket.display()));
        if let Some(size) = max_job_size {
            command.arg("-z").arg(size.to_string());
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let daemon = Daemon { child: child.expect("the daemon starts"), socket };
        let start = Instant::now();
        while UnixStream::connect(&daemon.socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "the daemon does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn converse(program: &str, folder: &Path, number: usize, conversation: &Conversation) -> Result<(), String> {
    let daemon = Daemon::start(program, folder, number, conversation.max_job_size);
    let connect = |_| Connection::Unix(UnixStream::connect(&daemon.socket).expect("a connection"));
    let drain = || {
        kill(Pid::from_raw(daemon.child.id() as i32), Signal::SIGUSR1).expect("a signal to our own child");
        std::thread::sleep(Duration::from_millis(80));
    };
    let mut world = Sockets::new(connect, std::thread::sleep, drain, Duration::from_millis(80));
    run(conversation, &mut world)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let [program] = arguments.as_slice() else {
        eprintln!("usage: oracle PROGRAM, the original daemon, for example /usr/bin/beanstalkd");
        return ExitCode::from(2);
    };
    let (mut conversations, differences) = load(Path::new("tests/conversations"), "");
    conversations.retain(|conversation| conversation.is_all(Wire::Beanstalk));
    let folder = std::env::temp_dir().join(format!("oracle-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder of our own");
    let (next, passed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut failures = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(conversation) = conversations.get(number) else { return failures };
            let result = converse(program, &folder, number, conversation);
            let (title, place) = (&conversation.title, &conversation.place);
            match (result, differences.contains_key(title)) {
                (Ok(()), false) | (Err(_), true) => drop(passed.fetch_add(1, Ordering::Relaxed)),
                (Ok(()), true) => failures.push(format!("{title} ({place}): a listed difference is none")),
                (Err(problem), false) => failures.push(format!("{title} ({place}): {problem}")),
            }
        }
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread that ends")).collect()
    });
    let _ = std::fs::remove_dir(&folder);
    failures.iter().for_each(|failure| println!("{failure}"));
    println!("known differences: {}", differences.len());
    println!("{} passed, {} failed", passed.into_inner(), failures.len());
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
