//! The client subcommands, such as `put`, `stats` and `export`: their output and exit codes. Most subcommands also work
//! with beanstalkd, because they use the beanstalk protocol.

mod binlog;
mod bulk;
mod call;
mod check_access;
mod completion;
mod export;
mod import;
mod input;
mod jobs;
mod link;
mod lists;
mod name;
mod opts;
mod out;
mod problem;
mod put;
mod record;
mod scan;
mod server;
mod table;
mod tags;
mod tail;
mod top;
mod tubes;
mod work;
mod yaml;

mod prelude {
    pub use super::tubes::{each_tube, report_refused};
    pub use super::{bulk::MAX_DELAY, yaml::StatsReply};
    pub use super::{call::*, input::*, link::*, opts::*, out::*, problem::*, record::*, scan::*, tags::*};
    pub(in crate::ctl) use super::{name, print_stderr, yaml};
    pub use crate::shared::json;
}

use std::io::Write;

use call::Call;
pub use call::{OperandKind, Subcommand};
pub use opts::Flag;
use out::Out;
use problem::{Problem, Result};
pub use problem::{DONE, EMPTY, NO_CONNECTION, REFUSED};
pub use table::SUBCOMMANDS;

use crate::cluster;
use crate::settings::options::{self, BAD_USAGE};
use crate::settings::words::usage_line;

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
        self.options().into_iter().chain([&opts::HELP]).for_each(|opt| text += &opt.usage(26));
        text + "\nSee beanpole-ctl(1).\n"
    }

    fn find(name: &str) -> Option<&'static Subcommand> {
        SUBCOMMANDS.iter().find(|row| row.name == name)
    }
}

/// Returns the exit code, or `None` if the first argument is not a subcommand.
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
    // A failure must not suppress earlier output.
    let flushed = out.flush();
    let code = done.unwrap_or_else(|problem| report(&problem));
    Some(match flushed {
        Err(problem) if code == DONE => report(&problem),
        _ => code,
    })
}

fn report(problem: &Problem) -> u8 {
    if !problem.text.is_empty() {
        print_stderr(&problem.text);
    }
    problem.code
}

/// Unlike `eprintln!`, does not panic if stderr is closed.
fn print_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "beanpole: {}", out::shown(text.as_bytes()));
}

fn complete(call: &Call, out: &mut Out) -> Result<u8> {
    completion::run(call, out)
}

fn cluster(call: &Call, out: &mut Out) -> Result<u8> {
    let text = cluster::command(&call.operands).map_err(|problem| {
        let code = if problem.starts_with("usage") { BAD_USAGE } else { NO_CONNECTION };
        Problem::new(code, problem)
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
