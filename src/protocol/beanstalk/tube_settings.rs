//! The text form of tube settings, such as `try:5:10 dead:mail-dead`.
//!
//! Owns the syntax of the settings in `set-tube`, `stats-tube` and settings files. Must not depend on the effects of
//! the settings.

use super::tags::{next_tag, whole};
use crate::engine::{Rate, TubeSettings, UNLIMITED};
use crate::protocol::text::{past, push_number, push_tube_name, tube_name};

/// Parses a value into the settings. Returns `None` if the value is malformed.
type Read = fn(&[u8], &mut TubeSettings) -> Option<()>;

/// Appends a value of the settings, or nothing if the value is not set.
type Write = fn(&TubeSettings, &mut Vec<u8>);

/// A setting. The section about `set-tube` in the manual page beanpole-beanstalk(7) contains a description.
pub struct SettingRow {
    pub word: &'static str,
    read: Read,
    write: Write,
}

/// All settings, in the order of the text form.
#[rustfmt::skip]
pub const SETTINGS: [SettingRow; 6] = [
    SettingRow { word: "try", read: read_try, write: write_try },
    SettingRow { word: "ttl", read: |value, settings| put(positive(value), &mut settings.ttl), write: |settings, text| push_positive(text, settings.ttl) },
    SettingRow { word: "dead", read: |value, settings| put(tube_name(value).map(Some), &mut settings.dead), write: write_dead },
    SettingRow { word: "max", read: |value, settings| put(positive(value), &mut settings.max), write: |settings, text| push_positive(text, settings.max) },
    SettingRow { word: "rate", read: |value, settings| put(rate(value).map(Some), &mut settings.rate), write: write_rate },
    SettingRow { word: "limit", read: |value, settings| put(limits(value), &mut settings.most), write: write_limits },
];

fn put<T>(value: Option<T>, field: &mut T) -> Option<()> {
    *field = value?;
    Some(())
}

fn read_try(value: &[u8], settings: &mut TubeSettings) -> Option<()> {
    let (count, backoff) = numbers(value, b':')?;
    settings.backoff = backoff.unwrap_or(0);
    put(u8::try_from(count).ok().filter(|tries| *tries > 0), &mut settings.tries)
}

fn write_try(settings: &TubeSettings, text: &mut Vec<u8>) {
    push_positive(text, settings.tries.into());
    if settings.tries > 0 && settings.backoff > 0 {
        text.push(b':');
        push_number(text, settings.backoff.into());
    }
}

fn write_dead(settings: &TubeSettings, text: &mut Vec<u8>) {
    if let Some(dead) = &settings.dead {
        push_tube_name(text, dead);
    }
}

fn rate(value: &[u8]) -> Option<Rate> {
    let (count, seconds) = numbers(value, b'/')?;
    let rate = Rate { count, seconds: seconds? };
    (rate.count > 0 && rate.seconds > 0).then_some(rate)
}

fn write_rate(settings: &TubeSettings, text: &mut Vec<u8>) {
    if let Some(Rate { count, seconds }) = settings.rate {
        push_number(text, count.into());
        text.push(b'/');
        push_number(text, seconds.into());
    }
}

/// Parses a single limit, or separate limits for jobs with high, normal and low priority. 0 means no limit.
fn limits(value: &[u8]) -> Option<[u32; 3]> {
    let most: Option<Vec<u32>> = value.split(|&byte| byte == b':').map(whole).collect();
    let most = match most?[..] {
        [most] => [most; 3],
        [high, normal, low] => [high, normal, low],
        _ => return None,
    };
    (most != [0; 3]).then(|| most.map(|most| if most == 0 { u32::MAX } else { most }))
}

fn write_limits(settings: &TubeSettings, text: &mut Vec<u8>) {
    if settings.most == UNLIMITED {
        return;
    }
    let [high, normal, low] = settings.most.map(|most| if most == u32::MAX { 0 } else { most });
    push_number(text, high.into());
    if (normal, low) != (high, high) {
        for most in [normal, low] {
            text.push(b':');
            push_number(text, most.into());
        }
    }
}

/// Parses settings in any order. Returns `None` if a setting is malformed or repeated.
pub fn read(text: &[u8]) -> Option<TubeSettings> {
    let (mut settings, mut seen, mut left) = (TubeSettings::default(), 0u8, text);
    while let Some((word, rest)) = next_tag(left) {
        let colon = word.iter().position(|&byte| byte == b':')?;
        let (name, value) = (word.get(..colon)?, past(word, colon + 1));
        let (index, row) = SETTINGS.iter().enumerate().find(|(_, row)| row.word.as_bytes() == name)?;
        if seen & 1 << index != 0 {
            return None;
        }
        seen |= 1 << index;
        (row.read)(value, &mut settings)?;
        left = rest;
    }
    left.is_empty().then_some(settings)
}

pub fn written(settings: &TubeSettings) -> Vec<u8> {
    let mut text = Vec::new();
    for row in &SETTINGS {
        let start = text.len();
        if start > 0 {
            text.push(b' ');
        }
        text.extend_from_slice(row.word.as_bytes());
        text.push(b':');
        let value = text.len();
        (row.write)(settings, &mut text);
        if text.len() == value {
            text.truncate(start);
        }
    }
    text
}

fn positive(value: &[u8]) -> Option<u32> {
    whole(value).filter(|number| *number > 0)
}

/// Parses a number, and a second number if the separator follows.
fn numbers(value: &[u8], separator: u8) -> Option<(u32, Option<u32>)> {
    match value.iter().position(|&byte| byte == separator) {
        Some(at) => Some((whole(value.get(..at)?)?, Some(whole(past(value, at + 1))?))),
        None => Some((whole(value)?, None)),
    }
}

fn push_positive(text: &mut Vec<u8>, number: u32) {
    if number > 0 {
        push_number(text, number.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_and_written() {
        for text in [
            "",
            "try:5",
            "try:5:10",
            "ttl:60",
            "dead:mail-dead",
            r#"dead:"a b\xff""#,
            "max:3",
            "rate:100/60",
            "limit:7",
            "limit:1:0:3",
            "try:255:4294967295 ttl:4294967295 dead:d max:1 rate:1/1 limit:1",
        ] {
            let settings = read(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(String::from_utf8_lossy(&written(&settings)), text);
        }
        assert_eq!(read(b"  max:3   try:2 "), None, "a space at the end");
        assert_eq!(read(b" limit:0:0:3  max:1"), read(b"max:1 limit:0:0:3"));
    }

    #[test]
    fn malformed_settings_are_refused() {
        for text in [
            "try",
            "try:",
            "try:0",
            "try:256",
            "try:1:",
            "try:1:2:3",
            "ttl:0",
            "ttl:-1",
            "ttl:x",
            "dead:",
            "dead:-x",
            "dead:a b",
            r#"dead:"""#,
            r#"dead:"a\x00b""#,
            r#"dead:"a"b"#,
            "max:0",
            "rate:1",
            "rate:0/1",
            "rate:1/0",
            "rate:1/1/1",
            "limit:0",
            "limit:1:2",
            "limit:0:0:0",
            "max:1 max:1",
            "foo:1",
            "max:4294967296",
            "max:1\tttl:1",
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn settings_fit_into_a_bit_set() {
        assert!(SETTINGS.len() <= 8);
    }
}
