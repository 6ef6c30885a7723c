//! The text form of tube settings, such as `try:5:10 dead:mail-dead`, in commands and settings files.

use super::tags::{next_tag, split, whole};
use crate::engine::{Rate, TubeSettings};
use crate::protocol::text::{past, push_tube_name, tube_name, upto};

/// Settings in the order of the text form; see `set-tube` in beanpole-beanstalk(7).
pub const SETTINGS: [&str; 6] = ["try", "ttl", "dead", "max", "rate", "limit"];

pub fn read(text: &[u8]) -> Option<TubeSettings> {
    let (mut settings, mut seen, mut left) = (TubeSettings::default(), Vec::new(), text);
    while let Some((word, rest)) = next_tag(left) {
        let colon = word.iter().position(|&byte| byte == b':')?;
        let name = upto(word, colon);
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
        read_one(name, past(word, colon + 1), &mut settings)?;
        left = rest;
    }
    left.is_empty().then_some(settings)
}

fn read_one(name: &[u8], value: &[u8], settings: &mut TubeSettings) -> Option<()> {
    match name {
        b"try" => {
            let (tries, backoff) = split(value, b':')?;
            settings.tries = u8::try_from(positive(tries)?).ok()?;
            settings.backoff = backoff.unwrap_or(0);
        }
        b"ttl" => settings.ttl = positive(value)?,
        b"dead" => settings.dead = Some(tube_name(value)?),
        b"max" => settings.max = positive(value)?,
        b"rate" => {
            let (count, seconds) = split(value, b'/')?;
            settings.rate = Some(Rate { count: positive(count)?, seconds: seconds.filter(|seconds| *seconds > 0)? });
        }
        b"limit" => settings.max_jobs = limits(value)?,
        _ => return None,
    }
    Some(())
}

/// A single limit applies to all priorities. Three limits are for high, normal and low priority. 0 means unlimited.
fn limits(value: &[u8]) -> Option<[u32; 3]> {
    let limits: Option<Vec<u32>> = value.split(|&byte| byte == b':').map(whole).collect();
    let limits = match limits?[..] {
        [limit] => [limit; 3],
        [high, normal, low] => [high, normal, low],
        _ => return None,
    };
    (limits != [0; 3]).then(|| limits.map(|limit| if limit == 0 { u32::MAX } else { limit }))
}

fn positive(value: &[u8]) -> Option<u32> {
    whole(value).filter(|number| *number > 0)
}

pub fn written(settings: &TubeSettings) -> Vec<u8> {
    let numbers = |numbers: &[u32], separator| {
        let texts = || numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(separator);
        numbers.iter().any(|number| *number > 0).then(texts)
    };
    let dead = settings.dead.as_ref().map(|dead| {
        let mut name = Vec::new();
        push_tube_name(&mut name, dead);
        String::from_utf8_lossy(&name).into_owned()
    });
    let tries = [settings.tries.into(), settings.backoff];
    let used = if settings.tries == 0 { 0 } else { 1 + usize::from(settings.backoff > 0) };
    let rate = settings.rate.map_or([0; 2], |rate| [rate.count, rate.seconds]);
    let limits = settings.max_jobs.map(|limit| if limit == u32::MAX { 0 } else { limit });
    let differ = limits.iter().any(|limit| *limit != limits[0]);
    let values = [
        numbers(upto(&tries, used), ":"),
        numbers(&[settings.ttl], ""),
        dead,
        numbers(&[settings.max], ""),
        numbers(&rate, "/"),
        numbers(upto(&limits, if differ { 3 } else { 1 }), ":"),
    ];
    let words = SETTINGS.iter().zip(values).filter_map(|(word, value)| Some(format!("{word}:{}", value?)));
    words.collect::<Vec<_>>().join(" ").into_bytes()
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
}
