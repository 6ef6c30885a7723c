//! Attacks on the subcommand `export` by a hostile server.
//!
//! Owns the hostile server. Must not depend on the attacked program, except for its exit codes.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::trial::Trial;

const ANSWER: Duration = Duration::from_secs(30);

/// The exit codes after an invalid reply, and after replies that are too large for the memory.
const INVALID: i32 = 1;
const TOO_LARGE: i32 = 3;

/// A server repeats its keys or lists ever more jobs. The export must end, and must not use up the memory.
pub fn endless_lists(trial: &mut Trial) {
    let servers: [(&str, fn(&str) -> String, i32); 2] =
        [("repeated keys", repeat_keys, INVALID), ("ever more jobs", list_more_jobs, TOO_LARGE)];
    for (what, reply, code) in servers {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 64000; exec \"$0\" export -s \"$1\""]).arg(trial.program());
        command.arg(serve(reply).to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let ended = wait(command.spawn().expect("a child process"));
        trial.same(&format!("exit code after {what}"), ended, Some(code));
    }
}

fn repeat_keys(command: &str) -> String {
    match command.split(' ').next() {
        Some("list-keys") => list("- [7, 9, \"default\", \"k\"]\n"),
        Some("list-tubes") => list("- default\n"),
        _ => list(""),
    }
}

fn list_more_jobs(command: &str) -> String {
    let mut words = command.split(' ').rev();
    let last = words.next().unwrap_or_default();
    match command.split(' ').next() {
        Some("list-jobs") => {
            let above: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            list(&(1..=1000).map(|next| format!("- {}\n", above + next)).collect::<String>())
        }
        Some("list-tubes") => list("- default\n"),
        Some("stats-job") => list(&format!("id: {last}\ntube: default\nstate: ready\n")),
        _ => list(""),
    }
}

fn list(items: &str) -> String {
    format!("OK {}\r\n---\n{items}\r\n", items.len() + 4)
}

/// Starts a server that answers each command with `reply`. Returns the address.
fn serve(reply: fn(&str) -> String) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let commands = BufReader::new(stream.try_clone().expect("a connection")).lines();
            for command in commands.map_while(Result::ok) {
                if stream.write_all(reply(&command).as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    address
}

/// Returns the exit code, or `None` if the process did not exit in time or was killed by a signal.
fn wait(mut child: Child) -> Option<i32> {
    let end = Instant::now() + ANSWER;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("a child process") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("a running process");
    child.wait().expect("a child process");
    None
}
