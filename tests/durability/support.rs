//! Helpers for the durability tests: a directory with a log, random numbers, and pipelined requests.
//!
//! Must not depend on a particular test.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use beanpole::{Client, ClientError};

use super::daemon::{Daemon, Folder, Signal, PATIENCE};

/// The number of requests that are sent before their replies are read.
const AT_A_TIME: usize = 200;

pub struct Home {
    folder: Folder,
    path: PathBuf,
}

impl Home {
    pub fn new() -> Home {
        let folder = Folder::new();
        let path = folder.file("log");
        fs::create_dir(&path).expect("a directory for the log");
        Home { folder, path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn name(&self) -> &str {
        self.path.to_str().expect("a plain path")
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    pub fn start(&self, options: &[&str]) -> Daemon {
        Daemon::start(&[&["-b", self.name()], options].concat())
    }

    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        files(&self.path)
    }
}

/// Returns the contents of all files in a directory by name, excluding subdirectories.
pub fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry").path());
    let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    let plain = entries.filter(|path| path.is_file());
    // The server may remove a file before the file is read.
    plain.filter_map(|path| Some((name(&path), fs::read(&path).ok()?))).collect()
}

/// Copies a directory in its current state. If the server were killed now, this state would remain.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a new directory");
    for (name, bytes) in files(from) {
        fs::write(to.join(name), bytes).expect("a copy");
    }
}

/// Stops a server with SIGTERM and checks the exit code.
pub fn stop(daemon: Daemon) {
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0, "{}", daemon.log());
}

pub fn crash(daemon: Daemon) -> String {
    daemon.signal(Signal::SIGKILL);
    let log = daemon.log();
    drop(daemon);
    assert!(!log.contains("panic"), "{log}");
    log
}

pub fn state(client: &mut Client) -> String {
    client.figure("stats", "binlog-state").expect("a figure")
}

pub fn number(client: &mut Client, command: &str, key: &str) -> u64 {
    let text = client.figure(command, key).unwrap_or_else(|error| panic!("{command}: {error}"));
    text.parse().unwrap_or_else(|_| panic!("{key}: {text}"))
}

/// Returns the total number of ready, reserved, delayed and buried jobs.
pub fn total(client: &mut Client) -> u64 {
    let text = client.text("stats").expect("statistics");
    ["ready", "reserved", "delayed", "buried"]
        .iter()
        .map(|state| {
            let key = format!("current-jobs-{state}: ");
            let value = text.lines().find_map(|line| line.strip_prefix(&key)).expect("a figure");
            value.parse::<u64>().expect("a number")
        })
        .sum()
}

/// Returns the statistics of a job, or `None` if the job does not exist.
pub fn facts(client: &mut Client, id: u64) -> Option<BTreeMap<String, String>> {
    match client.text(&format!("stats-job {id}")) {
        Ok(text) => Some(parse(&text)),
        Err(ClientError::Refused(reply)) if reply == "NOT_FOUND" => None,
        Err(error) => panic!("stats-job {id}: {error}"),
    }
}

pub fn parse(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(": "));
    pairs.map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned())).collect()
}

pub fn is_refused<T>(result: &Result<T, ClientError>) -> bool {
    matches!(result, Err(ClientError::Refused(reply)) if reply == "OUT_OF_MEMORY")
}

/// The first line and the body of a reply. The body can be empty.
pub type Answer = (String, Vec<u8>);

/// Sends many requests and returns their replies. Only replies that begin with OK or FOUND can have a body.
pub fn ask(stream: &TcpStream, questions: &[String]) -> Vec<Answer> {
    let mut reader = BufReader::new(stream);
    let mut answers = Vec::with_capacity(questions.len());
    for some in questions.chunks(AT_A_TIME) {
        let text: String = some.iter().flat_map(|question| [question, "\r\n"]).collect();
        (&mut &*stream).write_all(text.as_bytes()).expect("an open connection");
        some.iter().for_each(|_| answers.push(answer(&mut reader)));
    }
    answers
}

fn answer(reader: &mut impl BufRead) -> Answer {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a reply");
    let line = line.trim_end().to_owned();
    let mut body = Vec::new();
    if line.starts_with("OK ") || line.starts_with("FOUND ") {
        let length: usize = line.rsplit(' ').next().expect("a length").parse().expect("a length");
        body.resize(length + 2, 0);
        reader.read_exact(&mut body).expect("a body");
        body.truncate(length);
    }
    (line, body)
}

/// A reproducible random number generator.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a number less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Returns a duration of at least `min` and less than `max` milliseconds.
    pub fn millis(&mut self, min: u64, max: u64) -> Duration {
        Duration::from_millis(min + self.below(max - min))
    }
}
