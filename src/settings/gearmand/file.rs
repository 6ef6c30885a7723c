//! The syntax of gearmand's command line and configuration file.
//!
//! Owns the differences from beanpole's syntax: `-v` with or without a level, and lines `long=value` and `long value`
//! in a file. Must not depend on the meaning of an option.

use log::LevelFilter;

use super::{CONFIG_FILE, OPTIONS};
use crate::settings::options;
use crate::settings::words::{self, Flag, Given};

pub fn read(words: Vec<String>) -> Result<Vec<Given>, String> {
    let (given, free) = words::read(words, &|name, is_letter, next| {
        let mut flag = Flag::find(&OPTIONS, name, is_letter);
        // Old versions of gearmand had no value for `-v`, so a word that is not a level is a separate argument.
        if is_letter && name == "v" && level(next).is_none() {
            flag.iter_mut().for_each(|flag| flag.value = None);
        }
        flag.or_else(|| Flag::find(&options::OPTIONS, name, false))
    })?;
    match free.first() {
        Some(stray) => Err(format!("unknown argument: {stray}; options begin with a hyphen")),
        None => Ok(given),
    }
}

pub fn level(word: &str) -> Option<LevelFilter> {
    match word.to_ascii_uppercase().as_str() {
        "FATAL" | "ALERT" | "CRITICAL" | "ERROR" => Some(LevelFilter::Error),
        "WARNING" => Some(LevelFilter::Warn),
        "NOTICE" | "INFO" => Some(LevelFilter::Info),
        "DEBUG" => Some(LevelFilter::Debug),
        _ => None,
    }
}

pub fn read_file(named: Option<&str>) -> Result<Vec<Given>, String> {
    let path = named.unwrap_or(CONFIG_FILE);
    match std::fs::read_to_string(path) {
        Ok(text) => read(words_of(&text)).map_err(|problem| format!("{path}: {problem}")),
        Err(_) if named.is_none() => Ok(Vec::new()),
        Err(error) => Err(format!("cannot read --config-file {path}: {error}")),
    }
}

/// A line that begins with a hyphen has the syntax of a command line. Any other line contains one option. `#` begins a
/// comment.
fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('-') {
            words.extend(line.split_whitespace().map(str::to_owned));
        } else if let Some((name, value)) = line.split_once(['=', ' ', '\t']) {
            let value = value.trim_start_matches(['=', ' ', '\t']);
            words.push(format!("--{}={}", name.trim(), value.trim_matches('"')));
        } else if !line.is_empty() {
            words.push(format!("--{line}"));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_lines_of_both_forms() {
        let text = "# comment\nport=4731\nlisten = 10.0.0.1 # where\ndaemon\n--log-file=/l -R\nuser me\n\n-j 3\n";
        let words = words_of(text);
        let expected = ["--port=4731", "--listen=10.0.0.1", "--daemon", "--log-file=/l", "-R", "--user=me", "-j", "3"];
        assert_eq!(words, expected);
        let given = read(words).expect("options");
        let given: Vec<_> = given.iter().map(|it| (it.long, it.value.as_str())).collect();
        let expected = [
            ("port", "4731"),
            ("listen", "10.0.0.1"),
            ("daemon", ""),
            ("log-file", "/l"),
            ("round-robin", ""),
            ("user", "me"),
            ("job-retries", "3"),
        ];
        assert_eq!(given, expected);
    }

    #[test]
    fn a_named_file_must_exist() {
        assert!(read_file(Some("/nowhere/at/all")).is_err());
        assert!(read_file(Some("/dev/null")).expect("no options").is_empty());
    }
}
