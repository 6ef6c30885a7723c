//! The parser from the words of a command line to options with values.
//!
//! Owns the row of an option, its line of the usage, and the forms of options: letters in bundles, `--long value` and
//! `--long=value`. Must not know what an option does.

use std::collections::VecDeque;

#[derive(Debug)]
pub struct Flag<A = ()> {
    /// The letter of the option, if it has one.
    pub short: Option<char>,
    pub long: &'static str,
    /// The name of its value, if it has one.
    pub value: Option<&'static str>,
    pub help: &'static str,
    /// The value is optional, and only allowed after an equals sign.
    pub optional: bool,
    pub apply: A,
}

/// Returns the text of these bytes, which were split off a text behind an ASCII character.
const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a part of a text"),
    }
}

/// Creates a row. `name` is the long name, preceded by the letter and a comma if there is one, as in `p,port`; `value`
/// may be empty, and begins with an equals sign if it is optional.
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
    /// Returns the names with their hyphens, the letter first.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let short = self.short.map(|letter| format!("-{letter}"));
        short.into_iter().chain([format!("--{}", self.long)])
    }

    /// Returns the option's line of the usage. Names and value have at least `width` columns.
    pub fn usage(&self, width: usize) -> String {
        let short = self.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
        let shown = |value| if self.optional { format!("[={value}]") } else { format!(" {value}") };
        let value = self.value.map_or(String::new(), shown);
        format!("  {:width$} {}\n", format!("{short}--{}{value}", self.long), self.help)
    }

    fn shape(&self) -> Shape {
        Shape { long: self.long, takes_value: self.value.is_some(), optional: self.optional }
    }

    /// Returns the shape of the option with this name, a letter or a long one.
    pub fn find(table: &[Flag<A>], name: &str, is_letter: bool) -> Option<Shape> {
        let is_it = |row: &&Flag<A>| match is_letter {
            true => row.short.is_some_and(|letter| name.starts_with(letter)),
            false => row.long == name,
        };
        table.iter().find(is_it).map(Flag::shape)
    }
}

/// The properties of an option that its parser needs.
pub struct Shape {
    pub long: &'static str,
    pub takes_value: bool,
    pub optional: bool,
}

/// An option of a command line, with its value.
#[derive(Debug)]
pub struct Given {
    pub long: &'static str,
    /// The value; empty if it has none.
    pub value: String,
    /// The name, as on the command line.
    pub shown: String,
}

/// Parses the options in these words, in order, and the words that are no options. `find` returns the shape of the
/// option with this name, which is a letter if the second argument is `true`; the third argument is the text after the
/// name.
pub fn read(
    words: impl IntoIterator<Item = String>,
    find: impl Fn(&str, bool, &str) -> Option<Shape>,
) -> Result<(Vec<Given>, Vec<String>), String> {
    let mut words: VecDeque<String> = words.into_iter().collect();
    let (mut all, mut free) = (Vec::new(), Vec::new());
    while let Some(word) = words.pop_front() {
        match word.strip_prefix('-') {
            None | Some("") => free.push(word),
            Some("-") => free.extend(words.drain(..)),
            Some(letters) => match letters.strip_prefix('-') {
                Some(long) => all.push(read_long(long, &mut words, &find)?),
                None => read_letters(letters, &mut words, &mut all, &find)?,
            },
        }
    }
    Ok((all, free))
}

fn read_long(
    text: &str,
    words: &mut VecDeque<String>,
    find: &impl Fn(&str, bool, &str) -> Option<Shape>,
) -> Result<Given, String> {
    let (long, value) = text.split_once('=').map_or((text, None), |(long, value)| (long, Some(value.to_owned())));
    let shown = format!("--{long}");
    let shape = find(long, false, "").ok_or_else(|| format!("unknown flag: {shown}"))?;
    let value = match value {
        Some(_) if !shape.takes_value => return Err(format!("flag takes no argument: {shown}")),
        Some(value) => value,
        None if !shape.takes_value || shape.optional => String::new(),
        None => words.pop_front().ok_or_else(|| format!("flag requires an argument: {shown}"))?,
    };
    Ok(Given { long: shape.long, value, shown })
}

fn read_letters(
    letters: &str,
    words: &mut VecDeque<String>,
    all: &mut Vec<Given>,
    find: &impl Fn(&str, bool, &str) -> Option<Shape>,
) -> Result<(), String> {
    for (at, letter) in letters.char_indices() {
        let shown = format!("-{letter}");
        let (name, rest) = letters[at..].split_at(letter.len_utf8());
        let behind = if rest.is_empty() { words.front().map_or("", String::as_str) } else { rest };
        let Shape { long, takes_value, .. } =
            find(name, true, behind).ok_or_else(|| format!("unknown flag: {shown}"))?;
        if !takes_value {
            all.push(Given { long, value: String::new(), shown });
            continue;
        }
        let value = if rest.is_empty() { words.pop_front() } else { Some(rest.to_owned()) };
        let value = value.ok_or_else(|| format!("flag requires an argument: {shown}"))?;
        all.push(Given { long, value, shown });
        break;
    }
    Ok(())
}
