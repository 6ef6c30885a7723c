//! The words of the command line: what the program does beside running a server.
//!
//! Owns the table of words, and the exit codes that they share. Must not start a server.

mod backup;
mod check;
mod check_access;

use std::io::Write;

use crate::options::BAD_USAGE;

/// It did what it was told.
pub const DONE: u8 = 0;

pub const DAMAGED: u8 = 1;

/// It could not do it.
pub const FAILED: u8 = 2;

pub struct Word {
    pub name: &'static str,
    /// What it takes, as the usage says it.
    pub arguments: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    run: fn(&[String], &mut dyn Write) -> Result<u8, String>,
    /// How many arguments there may be.
    counts: &'static [usize],
}

pub const WORDS: [Word; 3] = [
    Word {
        name: "check",
        arguments: "DIR",
        help: "verify a binlog and tell what is in it",
        run: check::run,
        counts: &[1],
    },
    Word {
        name: "backup",
        arguments: "DIR DEST",
        help: "copy a binlog, also of a running server",
        run: backup::run,
        counts: &[2],
    },
    Word {
        name: "check-access",
        arguments: "FILE [NAME COMMAND TUBE]",
        help: "verify an access file, and tell what it allows",
        run: check_access::run,
        counts: &[1, 4],
    },
];

/// The table of words as text, for `-h`.
pub fn usage() -> String {
    let mut text = String::from("Instead of options, a word:\n\n");
    for Word { name, arguments, help, .. } in &WORDS {
        text += &format!("  {:29} {help}\n", format!("{name} {arguments}"));
    }
    text
}

/// Does what the first argument says, if it is a word; the exit code.
pub fn run(arguments: &[String], out: &mut dyn Write, complaints: &mut dyn Write) -> Option<u8> {
    let (first, rest) = arguments.split_first()?;
    let word = WORDS.iter().find(|word| word.name == *first)?;
    // What cannot be written is no reason to panic: who reads it may be gone.
    if !word.counts.contains(&rest.len()) || rest.iter().any(|argument| argument.starts_with('-')) {
        let _ = writeln!(complaints, "usage: beanpole {} {}", word.name, word.arguments);
        return Some(BAD_USAGE);
    }
    Some((word.run)(rest, out).unwrap_or_else(|problem| {
        let _ = writeln!(complaints, "beanpole: {problem}");
        FAILED
    }))
}
