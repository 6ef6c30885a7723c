//! The figures that servers tell: lines of `key: value`, and lists of `- name`.
//!
//! Owns which values are texts and which are numbers. Must not know a server.

use crate::json::Members;

/// Keys whose values are texts, also those that look like numbers.
const TEXTS: [&str; 7] = ["version", "id", "hostname", "os", "platform", "name", "tube"];

/// Keys and values, in the server's order.
#[derive(Clone, Default, Debug)]
pub struct Figures(Vec<(String, String)>);

impl Figures {
    pub fn parse(text: &str) -> Figures {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        Figures(lines.map(|(key, value)| (key.to_owned(), bare(value).to_owned())).collect())
    }

    /// All, in the server's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of a key; empty if there is none.
    #[inline(never)]
    pub fn text(&self, key: &str) -> &str {
        self.0.iter().find(|(found, _)| found == key).map_or("", |(_, value)| value)
    }

    /// The value of a key as a number; 0 if it is none.
    #[inline(never)]
    pub fn number(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap_or(0)
    }

    /// Writes them as members of an object that has begun.
    pub fn write(&self, json: &mut Members) {
        for (key, value) in self.iter() {
            // A server's id is a text, a job's a number; they are never in one list with the other.
            let is_text = TEXTS.contains(&key) && !(key == "id" && self.0.iter().any(|(other, _)| other == "tube"));
            match value {
                _ if is_text => json.text(key, value.as_bytes()),
                "true" | "false" => json.raw(key, value),
                _ if is_number(value) => json.raw(key, value),
                _ => json.text(key, value.as_bytes()),
            }
        }
    }
}

/// The names in a list.
pub fn list(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix("- ")).map(|name| bare(name).to_owned()).collect()
}

fn bare(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// Whether JSON takes it as a number.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain(whole) && plain(part) && (whole == "0" || !whole.starts_with('0'))
}
