//! The subcommands of the command line: everything but running a server.
//!
//! `table` lists all of them, `opts` their options, and `call` parses a command line with these. They connect to a
//! server through a `link`, like any other client, so that most of them work with beanstalkd as well; `scan` finds the
//! jobs of a server that cannot list them. Owns the output and the exit codes (`problem`). Must not start a server.

mod backup;
mod call;
mod check;
mod check_access;
mod clear;
mod cluster;
mod completion;
mod connections;
mod export;
mod feed;
mod figures;
mod history;
mod identity;
mod import;
mod input;
mod jobs;
mod link;
mod list;
mod moving;
mod name;
mod opts;
mod out;
mod pausing;
mod problem;
mod progress;
mod put;
mod record;
mod reserve;
mod scan;
mod schedules;
mod server;
mod table;
mod tags;
mod tail;
mod top;
mod tube;
mod wait;
mod work;
mod yaml;

use std::io::Write;

use call::Call;
pub use call::{OperandKind, Subcommand};
pub use opts::Flag;
use out::Out;
use problem::Problem;
pub use problem::{DONE, EMPTY, NO_CONNECTION, REFUSED};
pub use table::SUBCOMMANDS;

use crate::settings::words::usage_line;

pub fn usage() -> String {
    let mut text = String::from("Subcommands (beanpole SUBCOMMAND -h lists the options of one):\n\n");
    for Subcommand { name, operands, help, .. } in &SUBCOMMANDS {
        text += &usage_line(&format!("{name} {operands}"), 40, help);
    }
    text
}

impl Subcommand {
    /// Returns the usage: options and operands.
    pub fn usage(&self) -> String {
        let mut text = format!("Usage: beanpole {} [OPTIONS] {}\n\n{}.\n\n", self.name, self.operands, self.help);
        self.options().into_iter().chain([&opts::HELP]).for_each(|opt| text += &opt.usage(24));
        text + "\nSee beanpole-ctl(1).\n"
    }
}

/// Runs the subcommand in the first argument, if it is one. Returns the exit code.
pub fn run(arguments: &[String]) -> Option<u8> {
    let (first, rest) = arguments.split_first()?;
    let row = SUBCOMMANDS.iter().find(|row| row.name == *first)?;
    let mut out = Out::new();
    let done = Call::parse(row, rest).and_then(|call| match call {
        None => out.line(row.usage().trim_end()).map(|()| DONE),
        Some(call) => (row.run)(&call, &mut out),
    });
    // The output before a failure is valid.
    let flushed = out.flush();
    let code = done.unwrap_or_else(complain);
    Some(match flushed {
        Err(problem) if code == DONE => complain(problem),
        _ => code,
    })
}

/// Reports the problem, if it has a text. Returns the exit code.
fn complain(problem: Problem) -> u8 {
    if !problem.text.is_empty() {
        tell(&problem.text);
    }
    problem.code
}

/// Writes a line to stderr. A failed write is no reason to panic: the reader may be gone.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "beanpole: {}", out::shown(text.as_bytes()));
}

/// Prints the completions, which are generated from the table.
fn complete(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    completion::run(call, out)
}

fn help(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let text = match call.operands.first() {
        None => format!("{}\n{}", crate::settings::options::usage(), usage()),
        Some(name) => match SUBCOMMANDS.iter().find(|row| row.name == *name) {
            Some(row) => row.usage(),
            None => return Err(Problem::usage(format!("there is no subcommand {}", name.escape_debug()))),
        },
    };
    out.line(text.trim_end())?;
    Ok(DONE)
}
