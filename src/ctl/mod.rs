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

use std::ops::RangeInclusive;

pub use call::{Flag, OperandKind, Subcommand};
pub use out::{DONE, EMPTY, NO_CONNECTION, REFUSED};
use prelude::*;

use crate::settings::options::{self, BAD_USAGE};
use crate::settings::words::usage_line;

const MANY: usize = usize::MAX;

const fn row(
    (name, operands): (&'static str, &'static str),
    (takes, min, max): (OperandKind, usize, usize),
    options: &'static [&'static Flag],
    run: fn(&Call, &mut Out) -> Result<u8>,
    help: &'static str,
) -> Subcommand {
    Subcommand { name, operands, help, options, takes, count: RangeInclusive::new(min, max), run }
}

#[rustfmt::skip]
pub static SUBCOMMANDS: [Subcommand; 31] = [
    row(("stats", "[TUBE...]"), (OperandKind::Tube, 0, MANY), &[&SERVER, &TIMEOUT, &JSON, &JOB, &OF_GROUP], tubes::stats, "show statistics of the server, of tubes, jobs or groups"),
    row(("tubes", "[TUBE...]"), (OperandKind::Tube, 0, MANY), &[&SERVER, &TIMEOUT, &JSON], tubes::tubes, "list tubes in a table"),
    row(("top", "[TUBE...]"), (OperandKind::Tube, 0, MANY), &[&SERVER, &TIMEOUT, &INTERVAL, &SORT, &FILTER, &BATCH, &ROUNDS], top::run, "monitor the server and its tubes; press ? for help"),
    row(("put", "[BODY...]"), (OperandKind::Text, 0, MANY), &[&SERVER, &TIMEOUT, &JSON, &TUBE, &PRI, &DELAY, &TTR, &UNIQUE, &CON, &TTL, &TRY, &GROUP, &AFTER, &CRON, &EVERY, &LINES, &FILE], put::run, "put jobs from arguments, stdin or files"),
    row(("reserve", "[TUBE...]"), (OperandKind::Tube, 0, MANY), &[&SERVER, &TIMEOUT, &JSON, &WAIT, &DELETE, &BURY], jobs::reserve, "reserve a job, print it and release it"),
    row(("peek", "[ID...]"), (OperandKind::Job, 0, MANY), &[&SERVER, &TIMEOUT, &JSON, &OF_TUBE, &STATE], jobs::peek, "print jobs, or the next job of a tube"),
    row(("tail", "[TUBE...]"), (OperandKind::Tube, 0, MANY), &[&SERVER, &TIMEOUT, &JSON, &INTERVAL, &ENOUGH], scan::tail, "print jobs as they are put"),
    row(("delete", "ID..."), (OperandKind::Job, 1, MANY), &[&SERVER, &TIMEOUT], jobs::delete, "delete jobs"),
    row(("kick", "[ID...]"), (OperandKind::Job, 0, MANY), &[&SERVER, &TIMEOUT, &OF_TUBE, &COUNT], jobs::kick, "make buried or delayed jobs ready"),
    row(("bury", "ID..."), (OperandKind::Job, 1, MANY), &[&SERVER, &TIMEOUT, &NEW_PRI], jobs::bury, "bury jobs"),
    row(("release", "ID..."), (OperandKind::Job, 1, MANY), &[&SERVER, &TIMEOUT, &NEW_PRI, &DELAY], jobs::release, "make jobs ready, now or after a delay"),
    row(("revoke", "ID..."), (OperandKind::Job, 1, MANY), &[&SERVER, &TIMEOUT, &NEW_PRI], jobs::revoke, "take reserved jobs from their workers and bury them"),
    row(("wait", "[ID...]"), (OperandKind::Job, 0, MANY), &[&SERVER, &TIMEOUT, &UNTIL, &OF_GROUP], jobs::wait, "wait until jobs, or all jobs of a group, end or are buried"),
    row(("pause", "TUBE SECONDS"), (OperandKind::Tube, 2, 2), &[&SERVER, &TIMEOUT], tubes::pause, "pause a tube, so that no job is reserved from it"),
    row(("resume", "TUBE..."), (OperandKind::Tube, 1, MANY), &[&SERVER, &TIMEOUT], tubes::resume, "resume paused tubes"),
    row(("tube", "TUBE [SETTING...]"), (OperandKind::Settings, 1, MANY), &[&SERVER, &TIMEOUT, &NONE], tubes::tube_settings, "show or replace the settings of a tube"),
    row(("move", "FROM TO"), (OperandKind::Tube, 2, 2), &[&SERVER, &TIMEOUT, &STATE, &MOVED, &YES], tubes::move_jobs, "move jobs from one tube to another"),
    row(("clear", "TUBE..."), (OperandKind::Tube, 1, MANY), &[&SERVER, &TIMEOUT, &STATES, &YES], tubes::clear, "delete the jobs of tubes"),
    row(("list", "TUBE"), (OperandKind::Tube, 1, 1), &[&SERVER, &TIMEOUT, &JSON, &STATES, &FROM, &SHOWN], lists::list, "list the jobs of a tube"),
    row(("connections", ""), (OperandKind::Text, 0, 0), &[&SERVER, &TIMEOUT, &JSON], lists::connections, "list connections, their jobs and their progress"),
    row(("schedules", "[TUBE...]"), (OperandKind::Tube, 0, MANY), &[&SERVER, &TIMEOUT, &JSON], lists::schedules, "list recurring jobs and their next runs"),
    row(("history", ""), (OperandKind::Text, 0, 0), &[&SERVER, &TIMEOUT, &JSON, &ONLY_TUBE, &FAILED, &SHOWN], lists::history, "list the jobs that ended or were buried recently"),
    row(("export", "[TUBE...]"), (OperandKind::Tube, 0, MANY), &[&SERVER, &TIMEOUT, &BINLOG], export::run, "write jobs to stdout as JSON lines"),
    row(("import", "[FILE...]"), (OperandKind::File, 0, MANY), &[&SERVER, &TIMEOUT, &INTO_TUBE, &SKIP], import::run, "put jobs written by export"),
    row(("work", "[TUBE...] [-- COMMAND [ARG...]]"), (OperandKind::Command, 0, MANY), &[&SERVER, &TIMEOUT, &TO_URL, &JOBS, &ONCE, &WAIT, &RETRIES, &BACKOFF, &MAX_TIME, &QUIET], work::run, "run a command for each job, or send jobs to a URL"),
    row(("check", "DIR"), (OperandKind::Folder, 1, 1), &[], files::check, "verify a binlog and summarize it"),
    row(("backup", "DIR DEST"), (OperandKind::Folder, 2, 2), &[], files::backup, "copy a binlog, even of a running server"),
    row(("check-access", "FILE [NAME COMMAND TUBE]"), (OperandKind::File, 1, 4), &[], files::check_access, "verify an access file and show what it allows"),
    row(("cluster", "status URL | promote URL NAME | retire URL NAME"), (OperandKind::Text, 2, 3), &[], cluster, "show or control the servers of a cluster"),
    row(("completion", "SHELL"), (OperandKind::Shell, 1, 1), &[], completion::run, "print completions for bash, zsh or fish"),
    row(("help", "[SUBCOMMAND]"), (OperandKind::Text, 0, 1), &[], help, "print this help, or the help of a subcommand"),
];

pub fn usage() -> String {
    let mut text = String::from("Subcommands (see beanpole SUBCOMMAND -h for options):\n\n");
    for Subcommand { name, operands, help, .. } in &SUBCOMMANDS {
        text += &usage_line(&format!("{name} {operands}"), 40, help);
    }
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
    Some(match flushed {
        Err(problem) if code == DONE => report(&problem),
        _ => code,
    })
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
            let unknown = || {
                let problem = options::unknown_subcommand(&name.escape_debug().to_string());
                Problem::usage(format!("{problem} (see beanpole help)"))
            };
            Subcommand::find(name).ok_or_else(unknown)?.usage()
        }
    };
    out.line(text.trim_end()).map(|()| DONE)
}
