//! The definition of an option, the format of the usage message, and the parser of command lines: bundled letters,
//! `--long value` and `--long=value`. Must not depend on the meaning of an option.

use std::collections::VecDeque;

#[derive(Debug)]
pub struct Flag<A = ()> {
    pub short: Option<char>,
    pub long: &'static str,
    pub value: Option<&'static str>,
    pub help: &'static str,
    /// An optional value is accepted only after an equals sign.
    pub optional: bool,
    pub apply: A,
}

const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("invalid UTF-8"),
    }
}

/// `name` is the long name, optionally preceded by a letter and a comma, as in `p,port`. `value` is empty for an option
/// without a value, and begins with an equals sign if the value can be omitted.
pub const fn flag<A: Copy>(name: &'static str, value: &'static str, help: &'static str, apply: A) -> Flag<A> {
    let (short, long) = match name.as_bytes() {
        [letter, b',', long @ ..] => (Some(*letter as char), text(long)),
        _ => (None, name),
    };
    let (value, optional) = match value.as_bytes() {
        [] => (None, false),
        [b'=', value @ ..] => (Some(text(value)), true),
        _ => (Some(value), false),
    };
    Flag { short, long, value, help, optional, apply }
}

impl<A> Flag<A> {
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.short.map(|letter| format!("-{letter}")).into_iter().chain([format!("--{}", self.long)])
    }

    pub fn usage(&self, width: usize) -> String {
        let short = self.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
        let shown = |value| if self.optional { format!("[={value}]") } else { format!(" {value}") };
        usage_line(&format!("{short}--{}{}", self.long, self.value.map_or(String::new(), shown)), width, self.help)
    }

    pub fn find(table: &[Flag<A>], name: &str, is_letter: bool) -> Option<Flag> {
        let has_name = |row: &&Flag<A>| match is_letter {
            true => row.short.is_some_and(|letter| name.starts_with(letter)),
            false => row.long == name,
        };
        let Flag { short, long, value, help, optional, .. } = *table.iter().find(has_name)?;
        Some(Flag { short, long, value, help, optional, apply: () })
    }
}

pub fn usage_line(name: &str, width: usize, help: &str) -> String {
    match name.len() + 3 < width {
        true => format!("  {name:0$}{help}\n", width - 2),
        false => format!("  {name}\n{:width$}{help}\n", ""),
    }
}

#[derive(Debug)]
pub struct Given {
    pub long: &'static str,
    pub value: String,
    pub shown: String,
}

/// Finds an option by name. The `bool` is `true` for a letter. The last argument is the text or word after the letter.
pub type Find<'a> = &'a dyn Fn(&str, bool, &str) -> Option<Flag>;

pub fn read(words: Vec<String>, find: Find) -> Result<(Vec<Given>, Vec<String>), String> {
    let mut words = VecDeque::from(words);
    let (mut given, mut free) = (Vec::new(), Vec::new());
    while let Some(word) = words.pop_front() {
        match word.strip_prefix('-') {
            None | Some("") => free.push(word),
            Some("-") => free.extend(words.drain(..)),
            Some(letters) => match letters.strip_prefix('-') {
                Some(long) => given.push(read_long(long, &mut words, find)?),
                None => read_letters(letters, &mut words, &mut given, find)?,
            },
        }
    }
    Ok((given, free))
}

fn read_long(text: &str, words: &mut VecDeque<String>, find: Find) -> Result<Given, String> {
    let (long, value) = text.split_once('=').map_or((text, None), |(long, value)| (long, Some(value.to_owned())));
    let shown = format!("--{long}");
    let flag = find(long, false, "").ok_or_else(|| format!("unknown flag: {shown}"))?;
    let value = match value {
        Some(_) if flag.value.is_none() => return Err(format!("flag takes no argument: {shown}")),
        Some(value) => value,
        None if flag.value.is_none() || flag.optional => String::new(),
        None => words.pop_front().ok_or_else(|| format!("flag requires an argument: {shown}"))?,
    };
    Ok(Given { long: flag.long, value, shown })
}

fn read_letters(letters: &str, words: &mut VecDeque<String>, given: &mut Vec<Given>, find: Find) -> Result<(), String> {
    for (at, letter) in letters.char_indices() {
        let shown = format!("-{letter}");
        let (name, rest) = letters[at..].split_at(letter.len_utf8());
        let next = if rest.is_empty() { words.front().map_or("", String::as_str) } else { rest };
        let flag = find(name, true, next).ok_or_else(|| format!("unknown flag: {shown}"))?;
        let value = match flag.value {
            None => Some(String::new()),
            Some(_) if rest.is_empty() => words.pop_front(),
            Some(_) => Some(rest.to_owned()),
        };
        let value = value.ok_or_else(|| format!("flag requires an argument: {shown}"))?;
        given.push(Given { long: flag.long, value, shown });
        if flag.value.is_some() {
            break;
        }
    }
    Ok(())
}
