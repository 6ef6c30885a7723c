//! THE table of subcommands: parsing, usage, the completions and the man page's test walk it.
//!
//! Owns names, options, operands, and one line of help for each. Must not carry anything out.

use super::call::Call;
use super::out::Out;
use super::problem::Problem;
use super::{
    backup, check, clear, completion, export, figures, import, jobs, list, moving, pausing, put, reserve, tail, top,
    work,
};

/// An option of one or several subcommands.
pub struct Opt {
    /// Its letter, if it has one.
    pub short: Option<char>,
    /// Its long name.
    pub long: &'static str,
    /// What its value is called, if it takes one.
    pub value: Option<&'static str>,
    /// What it does, in one line.
    pub help: &'static str,
}

/// What operands are, for those who complete them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Names of tubes.
    Tube,
    /// Ids of jobs.
    Job,
    /// Files.
    File,
    /// Directories.
    Folder,
    /// Tubes, then `--` and another program's command line.
    Command,
    /// The name of a shell.
    Shell,
    /// Anything.
    Text,
}

/// A row.
pub struct Subcommand {
    /// Its word.
    pub name: &'static str,
    /// What it takes beside options, as the usage says it.
    pub operands: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Its options, without `-h`.
    pub options: &'static [&'static Opt],
    /// What its operands are.
    pub takes: Kind,
    /// How few operands it takes.
    pub least: usize,
    /// How many operands it takes.
    pub most: usize,
    pub(super) run: fn(&Call, &mut Out) -> Result<u8, Problem>,
}

const fn flag(short: Option<char>, long: &'static str, help: &'static str) -> Opt {
    Opt { short, long, value: None, help }
}

const fn value(short: Option<char>, long: &'static str, value: &'static str, help: &'static str) -> Opt {
    Opt { short, long, value: Some(value), help }
}

pub(super) static HELP: Opt = flag(Some('h'), "help", "print this and end");
pub(super) static SERVER: Opt =
    value(Some('s'), "server", "SERVER", "HOST, HOST:PORT, :PORT or unix:PATH (default 127.0.0.1:11300)");
pub(super) static TIMEOUT: Opt =
    value(None, "timeout", "SECONDS", "give up a server that is silent for so long (default 5; 0: never)");
pub(super) static JSON: Opt = flag(None, "json", "print objects of JSON, one a line");
pub(super) static YES: Opt = flag(Some('y'), "yes", "do not ask first");
pub(super) static TUBE: Opt = value(Some('t'), "tube", "TUBE", "the tube (default: default)");
pub(super) static OF_TUBE: Opt = value(Some('t'), "tube", "TUBE", "jobs of this tube instead of ids");
pub(super) static INTO_TUBE: Opt = value(Some('t'), "tube", "TUBE", "put all jobs into this tube");
pub(super) static JOB: Opt = value(Some('i'), "job", "ID", "the figures of this job; may be repeated");
pub(super) static PRI: Opt = value(Some('p'), "pri", "PRI", "priority, 0 is the most urgent (default 1024)");
pub(super) static NEW_PRI: Opt = value(Some('p'), "pri", "PRI", "a new priority (default: as it is)");
pub(super) static DELAY: Opt = value(Some('d'), "delay", "SECONDS", "ready only after so long (default 0)");
pub(super) static TTR: Opt = value(Some('r'), "ttr", "SECONDS", "time to run (default 60)");
pub(super) static LINES: Opt = flag(Some('l'), "lines", "each line of the input is a job");
pub(super) static FILE: Opt = value(Some('f'), "file", "FILE", "read this file instead of stdin; may be repeated");
pub(super) static WAIT: Opt = value(Some('w'), "wait", "SECONDS", "wait for a job for so long (default: without end)");
pub(super) static DELETE: Opt = flag(None, "delete", "delete the job when it is printed");
pub(super) static BURY: Opt = flag(None, "bury", "bury the job when it is printed");
pub(super) static STATE: Opt = value(None, "state", "STATE", "jobs that are ready, delayed or buried (default ready)");
pub(super) static STATES: Opt = value(None, "state", "STATE", "only jobs in this state; may be repeated");
pub(super) static COUNT: Opt = value(Some('n'), "count", "N", "at most so many jobs (default 1)");
pub(super) static SHOWN: Opt = value(Some('n'), "count", "N", "at most so many jobs (default 100; 0: all)");
pub(super) static MOVED: Opt = value(Some('n'), "count", "N", "at most so many jobs (default: all)");
pub(super) static ENOUGH: Opt = value(Some('n'), "count", "N", "end after so many jobs");
pub(super) static FROM: Opt = value(None, "from", "ID", "only jobs whose ids are above this one");
pub(super) static BINLOG: Opt = value(Some('b'), "binlog", "DIR", "read a binlog that no server uses, not a server");
pub(super) static SKIP: Opt = value(None, "skip", "N", "leave out the first N lines");
pub(super) static INTERVAL: Opt = value(None, "interval", "SECONDS", "look so often (default 1)");
pub(super) static JOBS: Opt = value(Some('j'), "jobs", "N", "run so many at a time (default 1, at most 256)");
pub(super) static ONCE: Opt = flag(None, "once", "end after one job");
pub(super) static RETRIES: Opt = value(None, "retries", "N", "bury a job that fails once more than this (default 3)");
pub(super) static BACKOFF: Opt =
    value(None, "backoff", "SECONDS", "wait before the first retry, then twice as long (default 1)");
pub(super) static MAX_TIME: Opt = value(None, "max-time", "SECONDS", "kill a command that takes longer: it has failed");
pub(super) static QUIET: Opt = flag(Some('q'), "quiet", "log only what goes wrong");
pub(super) static BATCH: Opt = flag(Some('b'), "batch", "print tables instead of taking the terminal");
pub(super) static ROUNDS: Opt = value(Some('n'), "count", "N", "end after so many looks");
pub(super) static SORT: Opt = value(None, "sort", "COLUMN", "sort by this column (default: tube)");
pub(super) static FILTER: Opt = value(None, "filter", "TEXT", "only tubes whose names have this in them");

const MANY: usize = usize::MAX;

/// See the module's page.
pub static SUBCOMMANDS: [Subcommand; 23] = [
    Subcommand {
        name: "stats",
        operands: "[TUBE...]",
        help: "the figures of the server, of tubes, or of jobs",
        options: &[&SERVER, &TIMEOUT, &JSON, &JOB],
        takes: Kind::Tube,
        least: 0,
        most: MANY,
        run: figures::stats,
    },
    Subcommand {
        name: "tubes",
        operands: "[TUBE...]",
        help: "a table of all tubes, or of these",
        options: &[&SERVER, &TIMEOUT, &JSON],
        takes: Kind::Tube,
        least: 0,
        most: MANY,
        run: figures::tubes,
    },
    Subcommand {
        name: "top",
        operands: "[TUBE...]",
        help: "watch the server and its tubes; ? explains the keys",
        options: &[&SERVER, &TIMEOUT, &INTERVAL, &SORT, &FILTER, &BATCH, &ROUNDS],
        takes: Kind::Tube,
        least: 0,
        most: MANY,
        run: top::run,
    },
    Subcommand {
        name: "put",
        operands: "[BODY...]",
        help: "put jobs: each BODY, or else what stdin or files have",
        options: &[&SERVER, &TIMEOUT, &JSON, &TUBE, &PRI, &DELAY, &TTR, &LINES, &FILE],
        takes: Kind::Text,
        least: 0,
        most: MANY,
        run: put::run,
    },
    Subcommand {
        name: "reserve",
        operands: "[TUBE...]",
        help: "reserve a job of these tubes, print it, and give it back",
        options: &[&SERVER, &TIMEOUT, &JSON, &WAIT, &DELETE, &BURY],
        takes: Kind::Tube,
        least: 0,
        most: MANY,
        run: reserve::run,
    },
    Subcommand {
        name: "peek",
        operands: "[ID...]",
        help: "print jobs, or the next one of a tube",
        options: &[&SERVER, &TIMEOUT, &JSON, &OF_TUBE, &STATE],
        takes: Kind::Job,
        least: 0,
        most: MANY,
        run: jobs::peek,
    },
    Subcommand {
        name: "tail",
        operands: "[TUBE...]",
        help: "print jobs as they are put, and take none",
        options: &[&SERVER, &TIMEOUT, &JSON, &INTERVAL, &ENOUGH],
        takes: Kind::Tube,
        least: 0,
        most: MANY,
        run: tail::run,
    },
    Subcommand {
        name: "delete",
        operands: "ID...",
        help: "delete jobs",
        options: &[&SERVER, &TIMEOUT],
        takes: Kind::Job,
        least: 1,
        most: MANY,
        run: jobs::delete,
    },
    Subcommand {
        name: "kick",
        operands: "[ID...]",
        help: "make jobs ready that are buried or delayed",
        options: &[&SERVER, &TIMEOUT, &OF_TUBE, &COUNT],
        takes: Kind::Job,
        least: 0,
        most: MANY,
        run: jobs::kick,
    },
    Subcommand {
        name: "bury",
        operands: "ID...",
        help: "set jobs aside",
        options: &[&SERVER, &TIMEOUT, &NEW_PRI],
        takes: Kind::Job,
        least: 1,
        most: MANY,
        run: jobs::bury,
    },
    Subcommand {
        name: "release",
        operands: "ID...",
        help: "make jobs ready, now or after a delay",
        options: &[&SERVER, &TIMEOUT, &NEW_PRI, &DELAY],
        takes: Kind::Job,
        least: 1,
        most: MANY,
        run: jobs::release,
    },
    Subcommand {
        name: "pause",
        operands: "TUBE SECONDS",
        help: "give out no job of a tube for so long",
        options: &[&SERVER, &TIMEOUT],
        takes: Kind::Tube,
        least: 2,
        most: 2,
        run: pausing::pause,
    },
    Subcommand {
        name: "resume",
        operands: "TUBE...",
        help: "end the pauses of tubes",
        options: &[&SERVER, &TIMEOUT],
        takes: Kind::Tube,
        least: 1,
        most: MANY,
        run: pausing::resume,
    },
    Subcommand {
        name: "move",
        operands: "FROM TO",
        help: "bring the jobs of one tube into another",
        options: &[&SERVER, &TIMEOUT, &STATE, &MOVED, &YES],
        takes: Kind::Tube,
        least: 2,
        most: 2,
        run: moving::run,
    },
    Subcommand {
        name: "clear",
        operands: "TUBE...",
        help: "delete the jobs of tubes",
        options: &[&SERVER, &TIMEOUT, &STATES, &YES],
        takes: Kind::Tube,
        least: 1,
        most: MANY,
        run: clear::run,
    },
    Subcommand {
        name: "list",
        operands: "TUBE",
        help: "list the jobs of a tube",
        options: &[&SERVER, &TIMEOUT, &JSON, &STATES, &FROM, &SHOWN],
        takes: Kind::Tube,
        least: 1,
        most: 1,
        run: list::run,
    },
    Subcommand {
        name: "export",
        operands: "[TUBE...]",
        help: "write all jobs to stdout as lines of JSON",
        options: &[&SERVER, &TIMEOUT, &BINLOG],
        takes: Kind::Tube,
        least: 0,
        most: MANY,
        run: export::run,
    },
    Subcommand {
        name: "import",
        operands: "[FILE...]",
        help: "put the jobs that export has written",
        options: &[&SERVER, &TIMEOUT, &INTO_TUBE, &SKIP],
        takes: Kind::File,
        least: 0,
        most: MANY,
        run: import::run,
    },
    Subcommand {
        name: "work",
        operands: "[TUBE...] -- COMMAND [ARG...]",
        help: "run a command for each job, with the body on its stdin",
        options: &[&SERVER, &TIMEOUT, &JOBS, &ONCE, &WAIT, &RETRIES, &BACKOFF, &MAX_TIME, &QUIET],
        takes: Kind::Command,
        least: 0,
        most: MANY,
        run: work::run,
    },
    Subcommand {
        name: "check",
        operands: "DIR",
        help: "verify a binlog and tell what is in it",
        options: &[],
        takes: Kind::Folder,
        least: 1,
        most: 1,
        run: check::run,
    },
    Subcommand {
        name: "backup",
        operands: "DIR DEST",
        help: "copy a binlog, also of a running server",
        options: &[],
        takes: Kind::Folder,
        least: 2,
        most: 2,
        run: backup::run,
    },
    Subcommand {
        name: "completion",
        operands: "SHELL",
        help: "print the completions for bash, zsh or fish",
        options: &[],
        takes: Kind::Shell,
        least: 1,
        most: 1,
        run: completion::run,
    },
    Subcommand {
        name: "help",
        operands: "[SUBCOMMAND]",
        help: "print all options and subcommands, or those of one",
        options: &[],
        takes: Kind::Text,
        least: 0,
        most: 1,
        run: super::help,
    },
];
