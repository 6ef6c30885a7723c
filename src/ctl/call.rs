//! A command line of a subcommand, read by its form.
//!
//! Owns how options and operands are told from each other, and the words for what is wrong with them.

use std::io::{BufRead, IsTerminal, Write};
use std::ops::RangeInclusive;

use getopts::{HasArg, Matches, Occur, Options};

use super::opts::{Flag, HELP};
use super::problem::Problem;
use crate::options::{self, complaint};

/// What a command line may look like.
#[derive(Debug)]
pub struct Form<'a> {
    pub name: &'a str,
    /// Its operands, as the usage says them.
    pub operands: &'a str,
    pub options: Vec<&'static Flag>,
    /// Whether it takes another program's command line behind `--`.
    pub has_command: bool,
    /// How many operands it takes.
    pub bounds: RangeInclusive<usize>,
}

/// What the command line says.
pub struct Call {
    matches: Matches,
    pub operands: Vec<String>,
    /// What stands behind `--`, where that is another program's command line.
    pub command: Vec<String>,
}

impl Call {
    /// Reads it; nothing if it asks for help.
    pub fn parse(form: &Form, arguments: &[String]) -> Result<Option<Call>, Problem> {
        let mut parser = Options::new();
        for opt in form.options.iter().chain([&&HELP]) {
            let short = opt.short.map_or(String::new(), |letter| letter.to_string());
            let has = if opt.value.is_some() { HasArg::Yes } else { HasArg::No };
            parser.opt(&short, opt.long, "", "", has, Occur::Multi);
        }
        let advice = format!("usage: beanpole {} {}", form.name, form.operands);
        // What stands behind is not for this program to read.
        let own = match arguments.iter().position(|word| word == "--") {
            Some(place) if form.has_command => &arguments[..place],
            _ => arguments,
        };
        let command = arguments[(own.len() + 1).min(arguments.len())..].to_vec();
        let matches = parser.parse(own).map_err(|fail| {
            Problem::usage(format!("{}: {} (beanpole {} -h lists the options)", form.name, complaint(fail), form.name))
        })?;
        if matches.opt_present(HELP.long) {
            return Ok(None);
        }
        let operands = matches.free.clone();
        if !form.bounds.contains(&operands.len()) {
            return Err(Problem::usage(advice));
        }
        Ok(Some(Call { matches, operands, command }))
    }

    /// Whether an option without a value was given.
    #[inline(never)]
    pub fn has(&self, opt: &Flag) -> bool {
        self.matches.opt_present(opt.long)
    }

    /// The last value of an option.
    #[inline(never)]
    pub fn value(&self, opt: &Flag) -> Option<String> {
        // Other subcommands share the function that asks.
        if !self.matches.opt_defined(opt.long) {
            return None;
        }
        self.matches.opt_strs(opt.long).pop()
    }

    /// All values of an option.
    #[inline(never)]
    pub fn values(&self, opt: &Flag) -> Vec<String> {
        self.matches.opt_strs(opt.long)
    }

    /// The value of an option that is a number.
    #[inline(never)]
    pub fn number(&self, opt: &Flag, least: u64, most: u64) -> Result<Option<u64>, Problem> {
        self.value(opt).map(|text| number(&format!("--{}", opt.long), &text, least, most)).transpose()
    }

    /// The same in 32 bits, as priorities and seconds have them.
    #[inline(never)]
    pub fn short_number(&self, opt: &Flag) -> Result<Option<u32>, Problem> {
        Ok(self.number(opt, 0, u32::MAX.into())?.map(|number| number as u32))
    }

    /// The operands, which are names of tubes.
    pub fn tubes<T: FromIterator<String>>(&self) -> Result<T, Problem> {
        self.operands.iter().map(|name| tube(name).map(str::to_owned)).collect()
    }

    /// The operands, which are ids.
    #[inline(never)]
    pub fn ids(&self) -> Result<Vec<u64>, Problem> {
        self.operands.iter().map(|text| number("a job", text, 1, u64::MAX)).collect()
    }
}

pub fn number(what: &str, text: &str, least: u64, most: u64) -> Result<u64, Problem> {
    options::number(text, least, most).map_err(|problem| Problem::usage(format!("{what}: {problem}")))
}

/// The name of a tube, which goes into commands: nothing else may.
#[inline(never)]
pub fn tube(name: &str) -> Result<&str, Problem> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte);
    let good = (1..=200).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(known);
    good.then_some(name).ok_or_else(|| Problem::usage(format!("invalid name of a tube: {}", name.escape_debug())))
}

/// Asks people whether to do something that cannot be undone; who cannot be asked must have said so.
#[inline(never)]
pub fn confirm(question: &str, is_sure: bool) -> Result<(), Problem> {
    if is_sure {
        return Ok(());
    }
    let mut stderr = std::io::stderr();
    if !std::io::stdin().is_terminal() || !stderr.is_terminal() {
        return Err(Problem::usage(format!("{question} Say so with --yes")));
    }
    let _ = write!(stderr, "{question} [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Problem::refused("nothing done")),
    }
}
