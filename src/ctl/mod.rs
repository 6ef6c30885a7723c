//! The client subcommands, such as `put`, `stats` and `export`, with their output and exit codes. Most subcommands also
//! work with beanstalkd, because they use the beanstalk protocol.

mod call;
mod completion;
mod export;
mod files;
mod import;
mod input;
mod jobs;
mod link;
mod lists;
mod out;
mod put;
mod record;
mod scan;
mod top;
mod tubes;
mod work;
mod yaml;

mod prelude {
    pub(in crate::ctl) use super::yaml;
    pub use super::yaml::StatsReply;
    pub use super::{call::*, input::*, link::*, out::*, record::*, scan::*};
    pub use crate::shared::json;
}

pub use call::{Flag, OperandKind, Subcommand};
pub use out::{DONE, EMPTY, NO_CONNECTION, REFUSED};
use prelude::*;

use crate::settings::options::{self, BAD_USAGE};
use crate::settings::words::usage_line;

const MANY: usize = usize::MAX;

#[rustfmt::skip]
pub static SUBCOMMANDS: [Subcommand; 31] = [
    Subcommand { name: "stats", operands: "[TUBE...]", takes: OperandKind::Tube, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &JSON, &JOB, &OF_GROUP], run: tubes::stats, help: "show statistics of the server, of tubes, jobs or groups" },
    Subcommand { name: "tubes", operands: "[TUBE...]", takes: OperandKind::Tube, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &JSON], run: tubes::tubes, help: "list tubes in a table" },
    Subcommand { name: "top", operands: "[TUBE...]", takes: OperandKind::Tube, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &INTERVAL, &SORT, &FILTER, &BATCH, &ROUNDS], run: top::run, help: "monitor the server and its tubes; press ? for help" },
    Subcommand { name: "put", operands: "[BODY...]", takes: OperandKind::Text, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &JSON, &TUBE, &PRI, &DELAY, &TTR, &UNIQUE, &CON, &TTL, &TRY, &GROUP, &AFTER, &CRON, &EVERY, &LINES, &FILE], run: put::run, help: "put jobs from arguments, stdin or files" },
    Subcommand { name: "reserve", operands: "[TUBE...]", takes: OperandKind::Tube, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &JSON, &WAIT, &DELETE, &BURY], run: jobs::reserve, help: "reserve a job, print it and release it" },
    Subcommand { name: "peek", operands: "[ID...]", takes: OperandKind::Job, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &JSON, &OF_TUBE, &STATE], run: jobs::peek, help: "print jobs, or the next job of a tube" },
    Subcommand { name: "tail", operands: "[TUBE...]", takes: OperandKind::Tube, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &JSON, &INTERVAL, &ENOUGH], run: scan::tail, help: "print jobs as they are put" },
    Subcommand { name: "delete", operands: "ID...", takes: OperandKind::Job, count: 1..=MANY, options: &[&SERVER, &TIMEOUT], run: jobs::delete, help: "delete jobs" },
    Subcommand { name: "kick", operands: "[ID...]", takes: OperandKind::Job, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &OF_TUBE, &COUNT], run: jobs::kick, help: "make buried or delayed jobs ready" },
    Subcommand { name: "bury", operands: "ID...", takes: OperandKind::Job, count: 1..=MANY, options: &[&SERVER, &TIMEOUT, &NEW_PRI], run: jobs::bury, help: "bury jobs" },
    Subcommand { name: "release", operands: "ID...", takes: OperandKind::Job, count: 1..=MANY, options: &[&SERVER, &TIMEOUT, &NEW_PRI, &DELAY], run: jobs::release, help: "make jobs ready, now or after a delay" },
    Subcommand { name: "revoke", operands: "ID...", takes: OperandKind::Job, count: 1..=MANY, options: &[&SERVER, &TIMEOUT, &NEW_PRI], run: jobs::revoke, help: "take reserved jobs from their workers and bury them" },
    Subcommand { name: "wait", operands: "[ID...]", takes: OperandKind::Job, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &UNTIL, &OF_GROUP], run: jobs::wait, help: "wait until jobs, or all jobs of a group, end or are buried" },
    Subcommand { name: "pause", operands: "TUBE SECONDS", takes: OperandKind::Tube, count: 2..=2, options: &[&SERVER, &TIMEOUT], run: tubes::pause, help: "pause a tube, so that no job is reserved from it" },
    Subcommand { name: "resume", operands: "TUBE...", takes: OperandKind::Tube, count: 1..=MANY, options: &[&SERVER, &TIMEOUT], run: tubes::resume, help: "resume paused tubes" },
    Subcommand { name: "tube", operands: "TUBE [SETTING...]", takes: OperandKind::Settings, count: 1..=MANY, options: &[&SERVER, &TIMEOUT, &NONE], run: tubes::tube_settings, help: "show or replace the settings of a tube" },
    Subcommand { name: "move", operands: "FROM TO", takes: OperandKind::Tube, count: 2..=2, options: &[&SERVER, &TIMEOUT, &STATE, &MOVED, &YES], run: tubes::move_jobs, help: "move jobs from one tube to another" },
    Subcommand { name: "clear", operands: "TUBE...", takes: OperandKind::Tube, count: 1..=MANY, options: &[&SERVER, &TIMEOUT, &STATES, &YES], run: tubes::clear, help: "delete the jobs of tubes" },
    Subcommand { name: "list", operands: "TUBE", takes: OperandKind::Tube, count: 1..=1, options: &[&SERVER, &TIMEOUT, &JSON, &STATES, &FROM, &SHOWN], run: lists::list, help: "list the jobs of a tube" },
    Subcommand { name: "connections", operands: "", takes: OperandKind::Text, count: 0..=0, options: &[&SERVER, &TIMEOUT, &JSON], run: lists::connections, help: "list connections, their jobs and their progress" },
    Subcommand { name: "schedules", operands: "[TUBE...]", takes: OperandKind::Tube, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &JSON], run: lists::schedules, help: "list recurring jobs and their next runs" },
    Subcommand { name: "history", operands: "", takes: OperandKind::Text, count: 0..=0, options: &[&SERVER, &TIMEOUT, &JSON, &ONLY_TUBE, &FAILED, &SHOWN], run: lists::history, help: "list the jobs that ended or were buried recently" },
    Subcommand { name: "export", operands: "[TUBE...]", takes: OperandKind::Tube, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &BINLOG], run: export::run, help: "write jobs to stdout as JSON lines" },
    Subcommand { name: "import", operands: "[FILE...]", takes: OperandKind::File, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &INTO_TUBE, &SKIP], run: import::run, help: "put jobs written by export" },
    Subcommand { name: "work", operands: "[TUBE...] [-- COMMAND [ARG...]]", takes: OperandKind::Command, count: 0..=MANY, options: &[&SERVER, &TIMEOUT, &TO_URL, &JOBS, &ONCE, &WAIT, &RETRIES, &BACKOFF, &MAX_TIME, &QUIET], run: work::run, help: "run a command for each job, or send jobs to a URL" },
    Subcommand { name: "check", operands: "DIR", takes: OperandKind::Folder, count: 1..=1, options: &[], run: files::check, help: "verify a binlog and summarize it" },
    Subcommand { name: "backup", operands: "DIR DEST", takes: OperandKind::Folder, count: 2..=2, options: &[], run: files::backup, help: "copy a binlog, even of a running server" },
    Subcommand { name: "check-access", operands: "FILE [NAME COMMAND TUBE]", takes: OperandKind::File, count: 1..=4, options: &[], run: files::check_access, help: "verify an access file and show what it allows" },
    Subcommand { name: "cluster", operands: "status URL | promote URL NAME | retire URL NAME", takes: OperandKind::Text, count: 2..=3, options: &[], run: cluster, help: "show or control the servers of a cluster" },
    Subcommand { name: "completion", operands: "SHELL", takes: OperandKind::Shell, count: 1..=1, options: &[], run: completion::run, help: "print completions for bash, zsh or fish" },
    Subcommand { name: "help", operands: "[SUBCOMMAND]", takes: OperandKind::Text, count: 0..=1, options: &[], run: help, help: "print this help, or the help of a subcommand" },
];

pub fn usage() -> String {
    let mut text = String::from("Subcommands (see beanpole SUBCOMMAND -h for options):\n\n");
    let line = |row: &Subcommand| usage_line(&format!("{} {}", row.name, row.operands), 40, row.help);
    text.extend(SUBCOMMANDS.iter().map(line));
    text
}

impl Subcommand {
    pub fn usage(&self) -> String {
        let (first, rest) = self.help.split_at(1);
        let summary = first.to_ascii_uppercase() + rest;
        let mut text = format!("Usage: beanpole {} [OPTIONS] {}\n\n{summary}.\n\n", self.name, self.operands);
        self.options().into_iter().chain([&HELP]).for_each(|opt| text += &opt.usage(26));
        text + "\nSee beanpole-ctl(1).\n"
    }

    fn find(name: &str) -> Option<&'static Subcommand> {
        SUBCOMMANDS.iter().find(|row| row.name == name)
    }
}

/// Runs a subcommand, and returns its exit code. Returns `None` if the first argument is not a subcommand.
pub fn run(arguments: &[String]) -> Option<u8> {
    let (first, rest) = arguments.split_first()?;
    let row = Subcommand::find(first)?;
    let mut out = Out::new();
    let done = Call::parse(row, rest).and_then(|call| match call {
        None => out.line(row.usage().trim_end()).map(|()| DONE),
        Some(call) => (row.run)(&call, &mut out).map_err(|problem| match row.takes {
            OperandKind::Tube => call.explain(problem),
            _ => problem,
        }),
    });
    // Print earlier output even after a failure.
    let flushed = out.flush();
    let code = done.unwrap_or_else(|problem| report(&problem));
    Some(flushed.err().filter(|_| code == DONE).map_or(code, |problem| report(&problem)))
}

fn report(problem: &Problem) -> u8 {
    if !problem.text.is_empty() {
        tell(&problem.text);
    }
    problem.code
}

fn cluster(call: &Call, out: &mut Out) -> Result<u8> {
    let text = crate::cluster::command(&call.operands).map_err(|problem| {
        Problem::new(if problem.starts_with("usage") { BAD_USAGE } else { NO_CONNECTION }, problem)
    })?;
    text.lines().try_for_each(|line| out.line(line)).map(|()| DONE)
}

fn help(call: &Call, out: &mut Out) -> Result<u8> {
    let text = match call.operands.first() {
        None => format!("{}\n{}", options::usage(), usage()),
        Some(name) => {
            let problem = options::unknown_subcommand(&name.escape_debug().to_string());
            let unknown = || Problem::usage(format!("{problem} (see beanpole help)"));
            Subcommand::find(name).ok_or_else(unknown)?.usage()
        }
    };
    out.line(text.trim_end()).map(|()| DONE)
}
