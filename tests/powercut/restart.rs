//! Restarts the program after one cut of a recorded history.
//!
//! Owns the verdict on the restart, and the creation of the directory from a trace and a cut. The verdict depends only
//! on the trace, the cut, the seed, and the age of the trace: the delays and keys of an old trace have expired.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::book::Book;
use crate::change::{Change, Wire};
use crate::check::{Case, Check, Problem, Verdict};
use crate::daemon::Daemon;
use crate::disk::{Disk, MOODS};
use crate::lanes::{heading, lanes, seen, End, Heading, Lane, Rule};
use crate::look::{look, probe, Wanted};
use crate::random::Random;
use crate::trace::Event;

/// The maximum number of times that the queue is read again while the server may be completing a flush or a move.
const MORE_LOOKS: u32 = 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    pub count: usize,
    pub end: End,
    pub seed: u64,
}

/// The files that remain after a cut, and the recorded history with which the restarted server is compared.
pub struct Left {
    pub files: BTreeMap<String, Vec<u8>>,
    pub heading: Heading,
    pub lanes: BTreeMap<u64, Lane>,
    pub rule: Rule,
    pub mood: String,
}

pub struct Starter<'a> {
    pub program: &'a Path,
    /// The directory for the log, recreated for each start.
    pub folder: PathBuf,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        let end = if self.end == End::Kill { "kill" } else { "power" };
        write!(formatter, "{}:{end}:{}", self.count, self.seed)
    }
}

impl Cut {
    pub fn read(text: &str) -> Option<Cut> {
        let words: Vec<&str> = text.split(':').collect();
        let end = match *words.get(1)? {
            "kill" => End::Kill,
            "power" => End::PowerCut,
            _ => return None,
        };
        Some(Cut { count: words[0].parse().ok()?, end, seed: words.get(2)?.parse().ok()? })
    }

    pub fn leave(&self, events: &[Event]) -> Left {
        let disk = Disk::replay(events, self.count, self.seed);
        let mut random = Random::new(self.seed);
        let mood = random.pick(&MOODS);
        let (files, mood) = match self.end {
            End::Kill => (disk.files(), "killed".to_owned()),
            End::PowerCut => (disk.cut(mood, &mut random), format!("{mood:?}")),
        };
        let heading = heading(events);
        let always = heading.options.iter().any(|option| option == "-f0");
        let failed = disk.failed.unwrap_or(usize::MAX);
        let started = events[..self.count].iter().rev().take_while(|event| **event != Event::Began);
        let starting = !started.into_iter().any(|event| matches!(event, Event::Mark(_)));
        let power_cuts = self.end == End::PowerCut || events.iter().any(|event| matches!(event, Event::Found { .. }));
        let first_unsynced = disk.first_unsynced();
        let rule = Rule { end: self.end, always, first_unsynced, failed, starting, power_cuts };
        Left { files, heading, lanes: lanes(events, self.count), rule, mood }
    }
}

pub fn write_files(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    for (path, bytes) in files {
        let path = folder.join(path);
        if path.as_os_str().to_string_lossy().ends_with('/') {
            fs::create_dir_all(path)?;
            continue;
        }
        fs::create_dir_all(path.parent().expect("a parent directory"))?;
        fs::write(path, bytes)?;
    }
    Ok(())
}

/// Returns a command that runs the program with all protocols, without the environment of a service manager.
pub fn command(program: &Path, folder: &Path, options: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1:0", "--gearman=127.0.0.1:0", "--workq=127.0.0.1:0"]);
    command.args(["--http=127.0.0.1:0", "--http-admin", "-b"]).arg(folder).args(options);
    for name in ["JOURNAL_STREAM", "LISTEN_FDNAMES", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Returns the jobs and tubes that may exist after the cut.
fn wanted(lanes: &BTreeMap<u64, Lane>) -> Wanted {
    let mut wanted = Wanted::default();
    for change in lanes.values().flat_map(|lane| lane.steps.values()).flat_map(|step| &step.changes) {
        wanted.jobs.extend(change.added().map(|(key, wire)| (key.to_owned(), wire)));
        let tube = match change {
            Change::Put { job, .. } if job.wire == Wire::Beanstalk => &job.tube,
            Change::Pause { tube, .. } | Change::Set { tube, .. } | Change::Move { tube, .. } => tube,
            Change::Shift { tube, .. } => tube,
            Change::Dead { tube, .. } | Change::MoveTube { to: tube, .. } => tube,
            _ => continue,
        };
        wanted.tubes.insert(tube.clone());
    }
    wanted
}

/// Returns the book of each lane after the number of changes that `kept` contains for the lane.
pub fn books(lanes: &BTreeMap<u64, Lane>, rule: Rule, kept: &BTreeMap<u64, usize>) -> BTreeMap<u64, Book> {
    let book = |(lane, it): (&u64, &Lane)| {
        let (count, books) = (*kept.get(lane)?, it.span(rule).books());
        Some((*lane, books.into_iter().find(|(at, _)| *at == count)?.1))
    };
    lanes.iter().filter_map(book).collect()
}

impl Starter<'_> {
    /// Starts the program with the remaining files. Returns the error message if the program refuses to start.
    fn start(&self, left: &Left, strict: bool) -> io::Result<Result<Daemon, String>> {
        let mut options = left.heading.options.clone();
        options.extend(strict.then(|| "--strict".to_owned()));
        write_files(&self.folder, &left.files)?;
        let started = Daemon::try_spawn(command(self.program, &self.folder, &options));
        Ok(started.map_err(|log| log.lines().last().unwrap_or_default().to_owned()))
    }

    /// Cuts a history and starts the program with the remaining files. Returns the violations.
    pub fn restart(&self, events: &[Event], cut: Cut) -> io::Result<Vec<Problem>> {
        let left = cut.leave(events);
        let case = Case { heading: &left.heading, lanes: &left.lanes, rule: left.rule };
        let mut problems = Vec::new();
        let mut started = self.start(&left, true)?;
        if let Err(refusal) = started {
            problems.push((case.refused(), refusal));
            started = self.start(&left, false)?;
        }
        match started {
            Ok(daemon) => {
                if let Err(error) = judge(&daemon, &left, &seen(events, cut.count), &case, &mut problems) {
                    problems
                        .push((Check::Start, format!("the server does not reply: {error}; log:\n{}", daemon.log())));
                }
            }
            Err(last) => problems.push((Check::Start, last)),
        }
        problems.iter_mut().for_each(|(_, text)| text.insert_str(0, &format!("{}: ", left.mood)));
        Ok(problems)
    }
}

/// Reads the state of the queue and compares it with the permitted states.
pub fn examine(daemon: &Daemon, case: &Case) -> io::Result<Verdict> {
    let wanted = wanted(case.lanes);
    let mut verdict = case.compare(&look(daemon, &wanted)?);
    // With each command, the server also continues an interrupted flush or move. A few more reads let it finish.
    let mut looks = if case.may_be_busy() { MORE_LOOKS } else { 0 };
    while looks > 0 && !verdict.problems.is_empty() {
        verdict = case.compare(&look(daemon, &wanted)?);
        looks -= 1;
    }
    Ok(verdict)
}

/// Compares the queue of a restarted server with the permitted states, and probes the server.
fn judge(
    daemon: &Daemon,
    left: &Left,
    seen: &[RangeInclusive<u64>],
    case: &Case,
    problems: &mut Vec<Problem>,
) -> io::Result<()> {
    let verdict = examine(daemon, case)?;
    problems.extend(verdict.problems);
    let books: Vec<Book> = books(&left.lanes, left.rule, &verdict.kept).into_values().collect();
    problems.extend(probe(daemon, &books, seen, case)?);
    Ok(())
}
