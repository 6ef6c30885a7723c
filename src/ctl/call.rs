//! The definition of a subcommand, and the parser for its command line.

use std::io::{BufRead, IsTerminal, Write};
use std::ops::RangeInclusive;

use getopts::{Fail, HasArg, Matches, Occur, Options};

use super::prelude::*;
use crate::protocol::text::is_tube_name;
use crate::settings::options;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandKind {
    Tube,
    Settings,
    Job,
    File,
    Folder,
    /// Tube names, then `--` and another program's command line.
    Command,
    Shell,
    Text,
}

pub struct Subcommand {
    pub name: &'static str,
    pub operands: &'static str,
    pub help: &'static str,
    pub(super) options: &'static [&'static Flag],
    pub takes: OperandKind,
    pub count: RangeInclusive<usize>,
    pub(super) run: fn(&Call, &mut Out) -> Result<u8>,
}

impl Subcommand {
    /// Excludes the option [`HELP`] of all subcommands.
    pub fn options(&self) -> Vec<&'static Flag> {
        let connection: &[&Flag] =
            if self.options.iter().any(|opt| opt.long == SERVER.long) { &CONNECTION_OPTIONS } else { &[] };
        self.options.iter().chain(connection).copied().collect()
    }
}

pub struct Call {
    matches: Matches,
    pub operands: Vec<String>,
    pub command: Vec<String>,
}

impl Call {
    /// Returns `None` if the user has requested help.
    pub fn parse(row: &Subcommand, arguments: &[String]) -> Result<Option<Call>> {
        let mut parser = Options::new();
        for opt in row.options().into_iter().chain([&HELP]) {
            let short = opt.short.map_or(String::new(), |letter| letter.to_string());
            let has = if opt.value.is_some() { HasArg::Yes } else { HasArg::No };
            parser.opt(&short, opt.long, "", "", has, Occur::Multi);
        }
        let own = match arguments.iter().position(|word| word == "--") {
            Some(index) if row.takes == OperandKind::Command => &arguments[..index],
            _ => arguments,
        };
        let command = arguments[(own.len() + 1).min(arguments.len())..].to_vec();
        let name = row.name;
        let matches = parser.parse(own);
        let matches =
            matches.map_err(|fail| Problem::usage(format!("{name}: {} (see beanpole {name} -h)", message(fail))))?;
        if matches.opt_present(HELP.long) {
            return Ok(None);
        }
        let operands = matches.free.clone();
        if !row.count.contains(&operands.len()) {
            let usage = format!("usage: beanpole {name} [OPTIONS] {}", row.operands);
            return Err(Problem::usage(format!("{} (see beanpole {name} -h)", usage.trim_end())));
        }
        Ok(Some(Call { matches, operands, command }))
    }

    /// Adds a hint if the connection failed and an operand looks like the address of a server.
    pub fn explain(&self, problem: Problem) -> Problem {
        let is_address = |word: &&String| word.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match self.operands.iter().find(is_address) {
            Some(word) if problem.code == NO_CONNECTION && !self.has(&SERVER) => {
                Problem::new(problem.code, format!("{}; to select a server, use -s {word}", problem.text))
            }
            _ => problem,
        }
    }

    pub fn has(&self, opt: &Flag) -> bool {
        self.matches.opt_present(opt.long)
    }

    pub fn value(&self, opt: &Flag) -> Option<String> {
        self.values(opt).pop()
    }

    pub fn values(&self, opt: &Flag) -> Vec<String> {
        // `opt_strs` panics for undefined options.
        match self.matches.opt_defined(opt.long) {
            true => self.matches.opt_strs(opt.long),
            false => Vec::new(),
        }
    }

    pub fn number(&self, opt: &Flag, min: u64, max: u64) -> Result<Option<u64>> {
        self.value(opt).map(|text| number(&format!("--{}", opt.long), &text, min, max)).transpose()
    }

    pub fn short_number(&self, opt: &Flag) -> Result<Option<u32>> {
        Ok(self.number(opt, 0, u32::MAX.into())?.map(|number| number as u32))
    }

    pub fn tubes(&self) -> Result<Vec<String>> {
        self.operands.iter().map(|name| tube(name)).collect()
    }

    pub fn groups(&self) -> Result<Vec<String>> {
        let groups = self.values(&OF_GROUP);
        match groups.iter().find(|name| !is_tube_name(name.as_bytes())) {
            Some(name) => Err(Problem::usage(format!("--group: invalid name: {}", name.escape_debug()))),
            None => Ok(groups),
        }
    }

    pub fn ids(&self) -> Result<Vec<u64>> {
        self.operands.iter().map(|text| number("job ID", text, 1, u64::MAX)).collect()
    }
}

fn message(fail: Fail) -> String {
    let dashed = |name: &str| if name.chars().count() == 1 { format!("-{name}") } else { format!("--{name}") };
    match fail {
        Fail::ArgumentMissing(name) => format!("flag requires an argument: {}", dashed(&name)),
        Fail::UnrecognizedOption(name) => format!("unknown flag: {}", dashed(&name)),
        Fail::UnexpectedArgument(name) => format!("flag takes no argument: {}", dashed(&name)),
        other => other.to_string(),
    }
}

pub fn number(what: &str, text: &str, min: u64, max: u64) -> Result<u64> {
    options::number(text, min, max).map_err(|problem| Problem::usage(format!("{what}: {problem}")))
}

/// The name can be quoted already.
pub fn tube(name: &str) -> Result<String> {
    let written = name::read(name.as_bytes());
    match name::is_legal(&written) {
        true => Ok(written),
        false => Err(Problem::usage(format!("invalid tube name: {}", name.escape_debug()))),
    }
}

/// Fails if the user declines or there is no terminal.
pub fn confirm(question: &str, is_confirmed: bool) -> Result {
    if is_confirmed {
        return Ok(());
    }
    let mut stderr = std::io::stderr();
    if !std::io::stdin().is_terminal() || !stderr.is_terminal() {
        return Err(Problem::usage(format!("{question} Confirm with --yes")));
    }
    let _ = write!(stderr, "{question} [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Problem::refused("canceled")),
    }
}
