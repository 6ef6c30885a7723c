//! The parser for the server's statistics and lists, a subset of YAML. Names with special characters are quoted.

use crate::protocol::text::{self, is_any_name, push_tube_name, unquote};
use crate::shared::json::{self, Members};

/// Keys whose values can look like numbers, but are text.
#[rustfmt::skip]
const TEXTS: [&str; 12] = [
    "version", "id", "hostname", "os", "platform", "settings", "address", "client", "user", "watches", "progress",
    "verdict",
];

/// Keys whose values are names, possibly quoted.
pub const NAMES: [&str; 7] = ["name", "tube", "idempotency-key", "concurrency-key", "dead-from", "using", "job-tube"];
/// Keys whose values are arbitrary bytes, possibly quoted.
const BYTES: [&str; 3] = ["last-error", "reason", "body"];

#[derive(Clone, Default, Debug)]
pub struct StatsReply(Vec<(String, String)>);

impl StatsReply {
    pub fn parse(text: &str) -> StatsReply {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        let value = |key: &str, value: &str| match is_quoted(key) {
            true => read_name(value.as_bytes()),
            false => String::from_utf8_lossy(&name_bytes(value)).into_owned(),
        };
        StatsReply(lines.map(|(key, text)| (key.to_owned(), value(key, text))).collect())
    }

    /// The caller must quote names and arbitrary bytes if necessary.
    pub fn push(&mut self, key: &str, value: String) {
        self.0.push((key.to_owned(), value));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub fn text(&self, key: &str) -> &str {
        self.0.iter().find(|(found, _)| found == key).map_or("", |(_, value)| value)
    }

    pub fn bytes(&self, key: &str) -> Vec<u8> {
        name_bytes(self.text(key))
    }

    pub fn number(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap_or(0)
    }

    pub fn other_jobs(&self) -> u64 {
        self.number("current-jobs-held") + self.number("current-jobs-scheduled")
    }

    pub fn recurrence(&self) -> String {
        match self.text("cron") {
            "" => format!("every {} s", self.number("every")),
            cron => cron.to_owned(),
        }
    }

    pub fn object(&self) -> String {
        json::object(|json| self.write(json))
    }

    pub fn write(&self, json: &mut Members) {
        for (key, value) in self.iter() {
            // A server's ID is text, and a job's ID is a number. Only statistics of jobs contain a tube.
            let is_text = TEXTS.contains(&key) && !(key == "id" && self.0.iter().any(|(other, _)| other == "tube"));
            match value {
                _ if is_quoted(key) => json.bytes(key, &name_bytes(value)),
                "true" | "false" if !is_text => json.raw(key, value),
                _ if !is_text && is_number(value) => json.raw(key, value),
                _ => json.text(key, value.as_bytes()),
            }
        }
    }
}

/// Returns the names in a list. Quoted names stay quoted.
pub fn list(text: &[u8]) -> Vec<String> {
    text.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"- ")).map(read_name).collect()
}

pub fn objects(text: &[u8]) -> Vec<StatsReply> {
    let text = String::from_utf8_lossy(text);
    text.split("\n- ").skip(1).map(|item| StatsReply::parse(&item.replace("\n  ", "\n"))).collect()
}

/// Returns the number, remaining seconds, tube and text of each key in the reply to `list-keys`.
pub fn keys(text: &[u8]) -> Vec<(u64, u64, String, Vec<u8>)> {
    let item = |line: &[u8]| {
        let (number, rest) = text::number(line.strip_prefix(b"- [")?)?;
        let (left, rest) = text::number(rest.strip_prefix(b", ")?)?;
        let (tube, rest) = unquote(rest.strip_prefix(b", ")?)?;
        let (key, rest) = unquote(rest.strip_prefix(b", ")?)?;
        (rest == b"]").then(|| (number, left, quote_name(&tube), key))
    };
    text.split(|&byte| byte == b'\n').filter_map(item).collect()
}

fn is_quoted(key: &str) -> bool {
    NAMES.contains(&key) || BYTES.contains(&key)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain(whole) && plain(part) && (whole == "0" || !whole.starts_with('0'))
}

pub fn quote_name(name: &[u8]) -> String {
    let mut text = Vec::with_capacity(name.len());
    push_tube_name(&mut text, name);
    String::from_utf8_lossy(&text).into_owned()
}

pub fn name_bytes(written: &str) -> Vec<u8> {
    unquote_name(written.as_bytes()).unwrap_or_else(|| written.into())
}

/// Returns `None` if the text is not a single quoted name.
pub fn unquote_name(text: &[u8]) -> Option<Vec<u8>> {
    unquote(text).filter(|(_, rest)| rest.is_empty()).map(|(name, _)| name)
}

/// Malformed quotes become part of the name.
pub fn read_name(text: &[u8]) -> String {
    quote_name(&unquote_name(text).unwrap_or_else(|| text.to_vec()))
}

/// Returns `true` for a quoted name, which only a server with the extension `quote` accepts.
pub fn is_quoted_name(written: &str) -> bool {
    written.starts_with('"')
}

pub fn is_legal_name(written: &str) -> bool {
    is_any_name(&name_bytes(written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_name_reads_back() {
        for (name, expected) in [
            (&b"mail"[..], "mail"),
            (b"My::Func", "\"My::Func\""),
            (b"-x", "\"-x\""),
            (b"\"a\"", "\"\\\"a\\\"\""),
            (b"\x1b[2J\xff", "\"\\x1b[2J\\xff\""),
        ] {
            assert_eq!(quote_name(name), expected);
            assert_eq!((read_name(expected.as_bytes()), name_bytes(expected)), (expected.to_owned(), name.to_vec()));
        }
        assert_eq!((read_name(b"My::Func"), read_name(b"\"a")), (quote_name(b"My::Func"), quote_name(b"\"a")));
        assert_eq!(read_name(b"\"mail\""), "mail");
        assert!(!is_legal_name("\"\"") && !is_legal_name("\"a\\x00\"") && is_legal_name("\"\\xff\""));
    }
}
