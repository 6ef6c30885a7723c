//! Parses the tags of jobs and the settings of tubes for the reference model.
//!
//! Must not share code with the server.

use crate::reference::model::{GroupTie, JobTags, Name, Settings};
use crate::reference::Span;

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

/// Parses the tags of a put. The model has no calendar, so `cron` becomes an interval longer than any history.
pub fn tags_of(words: &[&str], name: impl Fn(&str) -> Name) -> JobTags {
    let mut tags = JobTags::default();
    for word in words {
        let parts: Vec<&str> = word.split(':').collect();
        let behind = |otherwise: u64| parts.get(2).map_or(otherwise, |word| number(word));
        match parts[0] {
            "idp" => tags.key = Some((name(parts[1]), behind(0) as u32)),
            "con" => tags.bound = Some((name(parts[1]), behind(1) as u32)),
            "try" => (tags.tries, tags.backoff) = (number(parts[1]) as u8, behind(0) as u32),
            "tub" => tags.tube = Some(name(parts[1])),
            // The model has no tag for the reason of a failure.
            "err" => {}
            "ttl" => tags.ttl = Some(Span::from_secs(number(parts[1]))),
            "every" => tags.every = Some(number(parts[1]) as u32),
            "cron" => tags.every = Some(u32::MAX),
            "grp" => tags.groups.push((name(parts[1]), GroupTie::Member)),
            "aft" => {
                let tie = match parts.get(2).map(|count| number(count) as u32) {
                    None => GroupTie::After(false),
                    Some(0) => GroupTie::After(true),
                    Some(count) => GroupTie::AfterCount(count),
                };
                tags.groups.push((name(parts[1]), tie));
            }
            other => panic!("unknown tag: {other}"),
        }
    }
    tags
}

pub fn settings_of(words: &[&str], name: impl Fn(&str) -> Name) -> Settings {
    let mut settings = Settings::default();
    for word in words {
        let (kind, value) = word.split_once(':').expect("a setting");
        let (first, rest) = value.split_once(['/', ':']).unwrap_or((value, ""));
        match kind {
            "try" => settings.tries = number(value) as u8,
            "dead" => settings.dead = Some(name(value)),
            "max" => settings.max = number(value) as u32,
            "ttl" => settings.ttl = number(value) as u32,
            "rate" => settings.rate = Some((number(first) as u32, number(rest) as u32)),
            "limit" => settings.limit = Some(number(first) as u32),
            other => panic!("unknown setting: {other}"),
        }
    }
    settings
}
