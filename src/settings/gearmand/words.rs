//! From the words of a command line, or the lines of a file, to options with their values.
//!
//! Owns the forms that gearmand takes: letters in bundles, `--long value` and `--long=value`, and files of either,
//! where `long=value` and `long value` stand for it as well. Must not know what an option does.

use std::collections::VecDeque;

use log::LevelFilter;

use super::{CONFIG_FILE, OPTIONS};
use crate::settings::options;

/// An option as it was given.
#[derive(Debug)]
pub struct Given {
    pub long: String,
    /// Its value; empty if it takes none.
    pub value: String,
    pub shown: String,
}

/// Whether an option takes a value, of those that there are, and whether the value may be left out, and only stands
/// behind an equals sign.
fn takes_value(long: &str) -> Option<(bool, bool)> {
    let gearmand = OPTIONS.iter().find(|opt| opt.long == long).map(|opt| (opt.value, false));
    let own = || options::OPTIONS.iter().find(|opt| opt.long == long).map(|opt| (opt.value.is_some(), opt.optional));
    gearmand.or_else(own)
}

/// The options of these words, in order.
pub fn read(mut words: VecDeque<String>) -> Result<Vec<Given>, String> {
    let mut all = Vec::new();
    while let Some(word) = words.pop_front() {
        if let Some(long) = word.strip_prefix("--") {
            all.push(read_long(long, &mut words)?);
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            read_letters(letters, &mut words, &mut all)?;
        } else {
            return Err(format!("unknown argument: {word}; options begin with a hyphen"));
        }
    }
    Ok(all)
}

fn read_long(text: &str, words: &mut VecDeque<String>) -> Result<Given, String> {
    let (long, value) = match text.split_once('=') {
        Some((long, value)) => (long, Some(value.to_owned())),
        None => (text, None),
    };
    let shown = format!("--{long}");
    let (takes, optional) = takes_value(long).ok_or_else(|| format!("unknown option: {shown}"))?;
    let value = match (takes, value) {
        (true, Some(value)) => value,
        (true, None) if optional => String::new(),
        (true, None) => words.pop_front().ok_or_else(|| format!("{shown}: an argument is missing"))?,
        (false, None) => String::new(),
        (false, Some(_)) => return Err(format!("{shown}: takes no argument")),
    };
    Ok(Given { long: long.to_owned(), value, shown })
}

fn read_letters(letters: &str, words: &mut VecDeque<String>, all: &mut Vec<Given>) -> Result<(), String> {
    for (at, letter) in letters.char_indices() {
        let shown = format!("-{letter}");
        let opt = OPTIONS.iter().find(|opt| opt.short == Some(letter));
        let opt = opt.ok_or_else(|| format!("unknown option: {shown}"))?;
        let long = opt.long.to_owned();
        let rest = &letters[at + letter.len_utf8()..];
        // Once `-v` took no value: what is no level behind it is something else.
        let behind = if rest.is_empty() { words.front().map_or("", String::as_str) } else { rest };
        if !opt.value || (letter == 'v' && level(behind).is_none()) {
            all.push(Given { long, value: String::new(), shown });
            continue;
        }
        let value = if rest.is_empty() { words.pop_front() } else { Some(rest.trim_start_matches('=').to_owned()) };
        let value = value.ok_or_else(|| format!("{shown}: an argument is missing"))?;
        all.push(Given { long, value, shown });
        break;
    }
    Ok(())
}

/// How much is logged at the level of this name.
pub fn level(word: &str) -> Option<LevelFilter> {
    match word.to_ascii_uppercase().as_str() {
        "FATAL" | "ALERT" | "CRITICAL" | "ERROR" => Some(LevelFilter::Error),
        "WARNING" => Some(LevelFilter::Warn),
        "NOTICE" | "INFO" => Some(LevelFilter::Info),
        "DEBUG" => Some(LevelFilter::Debug),
        _ => None,
    }
}

/// The options of a file; of the usual one, if none is named, and if it is there.
pub fn read_file(named: Option<&str>) -> Result<Vec<Given>, String> {
    let path = named.unwrap_or(CONFIG_FILE);
    match std::fs::read_to_string(path) {
        Ok(text) => read(words_of(&text)).map_err(|problem| format!("{path}: {problem}")),
        Err(_) if named.is_none() => Ok(Vec::new()),
        Err(error) => Err(format!("--config-file {path}: {error}")),
    }
}

/// The words of a file. A line that begins with a hyphen has them as a command line does; any other one is an option
/// with its value. A number sign begins a comment.
fn words_of(text: &str) -> VecDeque<String> {
    let mut words = VecDeque::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('-') {
            words.extend(line.split_whitespace().map(str::to_owned));
        } else if let Some((name, value)) = line.split_once(['=', ' ', '\t']) {
            let value = value.trim_start_matches(['=', ' ', '\t']);
            words.push_back(format!("--{}={}", name.trim(), value.trim_matches('"')));
        } else if !line.is_empty() {
            words.push_back(format!("--{line}"));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_lines_of_either_form() {
        let text = "# comment\nport=4731\nlisten = 10.0.0.1 # where\ndaemon\n--log-file=/l -R\nuser me\n\n-j 3\n";
        let words: Vec<String> = words_of(text).into();
        let expected = ["--port=4731", "--listen=10.0.0.1", "--daemon", "--log-file=/l", "-R", "--user=me", "-j", "3"];
        assert_eq!(words, expected);
        let given = read(words.into()).expect("options");
        let given: Vec<_> = given.iter().map(|it| (it.long.as_str(), it.value.as_str())).collect();
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
    fn a_file_that_is_named_must_be_there() {
        assert!(read_file(Some("/nowhere/at/all")).is_err());
        assert!(read_file(Some("/dev/null")).expect("no options").is_empty());
    }
}
