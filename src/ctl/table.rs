//! THE table of subcommands: parsing, usage, the completions and the man page's test walk it.
//!
//! Owns names, operands, and which options there are for each. Must not carry anything out.

use super::call::{Call, Form};
use super::opts::*;
use super::out::Out;
use super::problem::Problem;
use super::{
    backup, check, check_access, clear, cluster, export, figures, import, jobs, list, moving, pausing, put, reserve,
    tail, top, wait, work,
};

/// What operands are, for those who complete them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandKind {
    Tube,
    Job,
    File,
    Folder,
    /// Tubes, then `--` and another program's command line.
    Command,
    /// The name of a shell.
    Shell,
    Text,
}

pub struct Subcommand {
    pub name: &'static str,
    /// What it takes beside options, as the usage says it.
    pub operands: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Its options; whoever takes a server takes what reaches it, too.
    options: &'static [&'static Flag],
    pub takes: OperandKind,
    /// How few operands it takes.
    pub least: usize,
    /// How many operands it takes.
    pub most: usize,
    pub(super) run: fn(&Call, &mut Out) -> Result<u8, Problem>,
}

impl Subcommand {
    /// All options that it takes.
    pub fn options(&self) -> Vec<&'static Flag> {
        let reach: &[&Flag] = if self.options.iter().any(|opt| opt.long == SERVER.long) { &REACH } else { &[] };
        self.options.iter().chain(reach).copied().collect()
    }

    /// The form of its command line.
    pub(super) fn form(&self) -> Form<'_> {
        let Subcommand { name, operands, least, most, .. } = *self;
        Form {
            name,
            operands,
            options: self.options(),
            has_command: self.takes == OperandKind::Command,
            bounds: least..=most,
        }
    }
}

const MANY: usize = usize::MAX;

pub static SUBCOMMANDS: [Subcommand; 26] = [
    Subcommand {
        name: "stats",
        operands: "[TUBE...]",
        help: "the figures of the server, of tubes, or of jobs",
        options: &[&SERVER, &TIMEOUT, &JSON, &JOB],
        takes: OperandKind::Tube,
        least: 0,
        most: MANY,
        run: figures::stats,
    },
    Subcommand {
        name: "tubes",
        operands: "[TUBE...]",
        help: "a table of all tubes, or of these",
        options: &[&SERVER, &TIMEOUT, &JSON],
        takes: OperandKind::Tube,
        least: 0,
        most: MANY,
        run: figures::tubes,
    },
    Subcommand {
        name: "top",
        operands: "[TUBE...]",
        help: "watch the server and its tubes; ? explains the keys",
        options: &[&SERVER, &TIMEOUT, &INTERVAL, &SORT, &FILTER, &BATCH, &ROUNDS],
        takes: OperandKind::Tube,
        least: 0,
        most: MANY,
        run: top::run,
    },
    Subcommand {
        name: "put",
        operands: "[BODY...]",
        help: "put jobs: each BODY, or else what stdin or files have",
        options: &[&SERVER, &TIMEOUT, &JSON, &TUBE, &PRI, &DELAY, &TTR, &UNIQUE, &TTL, &TRY, &LINES, &FILE],
        takes: OperandKind::Text,
        least: 0,
        most: MANY,
        run: put::run,
    },
    Subcommand {
        name: "reserve",
        operands: "[TUBE...]",
        help: "reserve a job of these tubes, print it, and give it back",
        options: &[&SERVER, &TIMEOUT, &JSON, &WAIT, &DELETE, &BURY],
        takes: OperandKind::Tube,
        least: 0,
        most: MANY,
        run: reserve::run,
    },
    Subcommand {
        name: "peek",
        operands: "[ID...]",
        help: "print jobs, or the next one of a tube",
        options: &[&SERVER, &TIMEOUT, &JSON, &OF_TUBE, &STATE],
        takes: OperandKind::Job,
        least: 0,
        most: MANY,
        run: jobs::peek,
    },
    Subcommand {
        name: "tail",
        operands: "[TUBE...]",
        help: "print jobs as they are put, and take none",
        options: &[&SERVER, &TIMEOUT, &JSON, &INTERVAL, &ENOUGH],
        takes: OperandKind::Tube,
        least: 0,
        most: MANY,
        run: tail::run,
    },
    Subcommand {
        name: "delete",
        operands: "ID...",
        help: "delete jobs",
        options: &[&SERVER, &TIMEOUT],
        takes: OperandKind::Job,
        least: 1,
        most: MANY,
        run: jobs::delete,
    },
    Subcommand {
        name: "kick",
        operands: "[ID...]",
        help: "make jobs ready that are buried or delayed",
        options: &[&SERVER, &TIMEOUT, &OF_TUBE, &COUNT],
        takes: OperandKind::Job,
        least: 0,
        most: MANY,
        run: jobs::kick,
    },
    Subcommand {
        name: "bury",
        operands: "ID...",
        help: "set jobs aside",
        options: &[&SERVER, &TIMEOUT, &NEW_PRI],
        takes: OperandKind::Job,
        least: 1,
        most: MANY,
        run: jobs::bury,
    },
    Subcommand {
        name: "release",
        operands: "ID...",
        help: "make jobs ready, now or after a delay",
        options: &[&SERVER, &TIMEOUT, &NEW_PRI, &DELAY],
        takes: OperandKind::Job,
        least: 1,
        most: MANY,
        run: jobs::release,
    },
    Subcommand {
        name: "wait",
        operands: "ID...",
        help: "wait until jobs are gone or set aside",
        options: &[&SERVER, &TIMEOUT, &UNTIL],
        takes: OperandKind::Job,
        least: 1,
        most: MANY,
        run: wait::run,
    },
    Subcommand {
        name: "pause",
        operands: "TUBE SECONDS",
        help: "give out no job of a tube for so long",
        options: &[&SERVER, &TIMEOUT],
        takes: OperandKind::Tube,
        least: 2,
        most: 2,
        run: pausing::pause,
    },
    Subcommand {
        name: "resume",
        operands: "TUBE...",
        help: "end the pauses of tubes",
        options: &[&SERVER, &TIMEOUT],
        takes: OperandKind::Tube,
        least: 1,
        most: MANY,
        run: pausing::resume,
    },
    Subcommand {
        name: "move",
        operands: "FROM TO",
        help: "bring the jobs of one tube into another",
        options: &[&SERVER, &TIMEOUT, &STATE, &MOVED, &YES],
        takes: OperandKind::Tube,
        least: 2,
        most: 2,
        run: moving::run,
    },
    Subcommand {
        name: "clear",
        operands: "TUBE...",
        help: "delete the jobs of tubes",
        options: &[&SERVER, &TIMEOUT, &STATES, &YES],
        takes: OperandKind::Tube,
        least: 1,
        most: MANY,
        run: clear::run,
    },
    Subcommand {
        name: "list",
        operands: "TUBE",
        help: "list the jobs of a tube",
        options: &[&SERVER, &TIMEOUT, &JSON, &STATES, &FROM, &SHOWN],
        takes: OperandKind::Tube,
        least: 1,
        most: 1,
        run: list::run,
    },
    Subcommand {
        name: "export",
        operands: "[TUBE...]",
        help: "write all jobs to stdout as lines of JSON",
        options: &[&SERVER, &TIMEOUT, &BINLOG],
        takes: OperandKind::Tube,
        least: 0,
        most: MANY,
        run: export::run,
    },
    Subcommand {
        name: "import",
        operands: "[FILE...]",
        help: "put the jobs that export has written",
        options: &[&SERVER, &TIMEOUT, &INTO_TUBE, &SKIP],
        takes: OperandKind::File,
        least: 0,
        most: MANY,
        run: import::run,
    },
    Subcommand {
        name: "work",
        operands: "[TUBE...] -- COMMAND [ARG...]",
        help: "run a command for each job, with the body on its stdin",
        options: &[&SERVER, &TIMEOUT, &JOBS, &ONCE, &WAIT, &RETRIES, &BACKOFF, &MAX_TIME, &QUIET],
        takes: OperandKind::Command,
        least: 0,
        most: MANY,
        run: work::run,
    },
    Subcommand {
        name: "check",
        operands: "DIR",
        help: "verify a binlog and tell what is in it",
        options: &[],
        takes: OperandKind::Folder,
        least: 1,
        most: 1,
        run: check::run,
    },
    Subcommand {
        name: "backup",
        operands: "DIR DEST",
        help: "copy a binlog, also of a running server",
        options: &[],
        takes: OperandKind::Folder,
        least: 2,
        most: 2,
        run: backup::run,
    },
    Subcommand {
        name: "check-access",
        operands: "FILE [NAME COMMAND TUBE]",
        help: "verify an access file, and tell what it allows",
        options: &[],
        takes: OperandKind::File,
        least: 1,
        most: 4,
        run: check_access::run,
    },
    Subcommand {
        name: "cluster",
        operands: "status URL | promote URL NAME | retire URL NAME",
        help: "tell of servers that share a queue, or steer them",
        options: &[],
        takes: OperandKind::Text,
        least: 2,
        most: 3,
        run: cluster::run,
    },
    Subcommand {
        name: "completion",
        operands: "SHELL",
        help: "print the completions for bash, zsh or fish",
        options: &[],
        takes: OperandKind::Shell,
        least: 1,
        most: 1,
        run: super::complete,
    },
    Subcommand {
        name: "help",
        operands: "[SUBCOMMAND]",
        help: "print all options and subcommands, or those of one",
        options: &[],
        takes: OperandKind::Text,
        least: 0,
        most: 1,
        run: super::help,
    },
];
