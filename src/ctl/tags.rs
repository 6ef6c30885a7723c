//! What jobs and tubes have beyond beanstalkd's: as the server reports it, as members of a line of JSON, and as tags.
//!
//! Owns the keys, and what of them a server can store. Must not put jobs.

use super::link::Link;
use super::name::{self, is_foreign};
use super::problem::{Problem, REFUSED};
use super::put::knows;
use super::yaml::Figures;
use crate::protocol::beanstalk::MAX_PUT_LINE;
use crate::shared::base64;
use crate::shared::json::{Members, Object};

/// Keys whose values are names.
const NAMES: [&str; 2] = ["idempotency-key", "concurrency-key"];

/// Keys whose values are numbers.
const NUMBERS: [&str; 7] =
    ["idempotency-ttl", "concurrency-limit", "tries", "try-delay", "tries-lost", "max-fails", "ttl-left"];

/// Keys whose values are words, which no tag can express.
const WORDS: [&str; 2] = ["unique", "protocol"];

/// All members of a line that this reads.
pub const MEMBERS: [&str; 13] = [
    "idempotency-key",
    "idempotency-key-base64",
    "concurrency-key",
    "concurrency-key-base64",
    "idempotency-ttl",
    "concurrency-limit",
    "tries",
    "try-delay",
    "tries-lost",
    "max-fails",
    "ttl-left",
    "unique",
    "protocol",
];

/// Bytes of a line of `put` beside its tags, at most.
const PUT_LINE: usize = 64;

/// The options of a job, by the keys of `job-options`.
#[derive(Clone, Default, Debug)]
pub struct JobTags(Figures);

/// The tags of a `put`, each with a space before it, and the keys of what they leave out.
pub type Written = (String, Vec<&'static str>);

impl JobTags {
    /// Takes them from the reply to `job-options`.
    pub fn of(figures: Figures) -> JobTags {
        JobTags(figures)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().next().is_none()
    }

    /// `true` if there is a key that outlives its job.
    pub fn has_kept_key(&self) -> bool {
        !self.0.text("idempotency-key").is_empty() && self.0.number("idempotency-ttl") > 0
    }

    /// Seconds until the end of the job's life, if that has an end.
    pub fn ttl_left(&self) -> Option<u64> {
        (!self.0.text("ttl-left").is_empty()).then(|| self.0.number("ttl-left"))
    }

    /// Writes them as members of an object that has begun.
    pub fn write(&self, json: &mut Members) {
        self.0.write(json);
    }

    pub fn read(object: &Object) -> Result<JobTags, String> {
        let mut figures = Figures::default();
        let text = |key: &str| object.text(key).map_err(|()| format!("{key}: no text"));
        for key in NAMES {
            let encoded = format!("{key}-base64");
            let bytes = match (text(key)?, text(&encoded)?) {
                (None, None) => continue,
                (Some(plain), None) => plain.as_bytes().to_vec(),
                (None, Some(text)) => base64::decode(text.as_bytes()).ok_or(format!("{encoded}: no base64"))?,
                _ => return Err(format!("there must be one {key} or {encoded}")),
            };
            if bytes.is_empty() {
                return Err(format!("{key}: it is empty"));
            }
            figures.push(key, name::written(&bytes));
        }
        for key in NUMBERS {
            let number = object.number(key).map_err(|()| format!("{key}: no whole number from 0 up"))?;
            if let Some(number) = number {
                let number = u32::try_from(number).map_err(|_| format!("{key}: {number} is too large"))?;
                figures.push(key, number.to_string());
            }
        }
        for key in WORDS {
            if let Some(word) = text(key)? {
                figures.push(key, word.to_owned());
            }
        }
        Ok(JobTags(figures))
    }

    /// The tags for a server that can do this. A job that lives on for less than `least_ttl` seconds is given that.
    pub fn write_for(&self, can: &Abilities, least_ttl: u64) -> Written {
        let (mut tags, mut lost) = (String::new(), Vec::new());
        let mut add = |key: &'static str, tag: String, known: bool| match known {
            true => tags += &tag,
            false => lost.push(key),
        };
        let (number, text) = (|key: &str| self.0.number(key), |key: &str| self.0.text(key));
        let suffix = |number: u64| if number > 0 { format!(":{number}") } else { String::new() };
        let (key, bound) = (text("idempotency-key"), text("concurrency-key"));
        if !key.is_empty() {
            let known = can.idp && (can.export || !is_foreign(key)) && key.len() + 500 < MAX_PUT_LINE - PUT_LINE;
            add("idempotency-key", format!(" idp:{key}{}", suffix(number("idempotency-ttl"))), known);
        }
        if !bound.is_empty() {
            let known = can.con && !is_foreign(bound);
            add("concurrency-key", format!(" con:{bound}{}", suffix(number("concurrency-limit"))), known);
        }
        let is_plain = text("protocol").is_empty();
        if number("tries") > 0 && is_plain {
            let (delay, tries_lost) = (number("try-delay"), number("tries-lost"));
            let more = if tries_lost > 0 && can.export { format!(":{delay}:{tries_lost}") } else { suffix(delay) };
            add("tries", format!(" try:{}{more}", number("tries")), can.tries);
            if tries_lost > 0 && can.tries && !can.export {
                add("tries-lost", String::new(), false);
            }
        }
        if let Some(left) = self.ttl_left() {
            add("ttl-left", format!(" ttl:{}", left.max(least_ttl)), can.ttl);
        }
        for key in WORDS.into_iter().filter(|key| !text(key).is_empty()) {
            add(key, String::new(), false);
        }
        if !is_plain && (number("tries"), number("max-fails"), number("tries-lost")) != (0, 0, 0) {
            add("tries", String::new(), false);
        }
        (tags, lost)
    }
}

/// What a server can store.
#[derive(Clone, Copy, Default, Debug)]
pub struct Abilities {
    idp: bool,
    con: bool,
    tries: bool,
    ttl: bool,
    /// The command `limit-tube` with a single number.
    pub limit: bool,
    /// Names in quotes, tries that are lost, and limits by class.
    pub export: bool,
}

impl Abilities {
    /// Asks the server: by its list of extensions, or if it shows none, by harmless commands.
    pub fn of(link: &mut Link) -> Result<Abilities, Problem> {
        let words = match link.stats() {
            Ok(figures) => figures.text("extensions").to_owned(),
            Err(problem) if problem.code == REFUSED => String::new(),
            Err(problem) => return Err(problem),
        };
        if !words.is_empty() {
            let has = |word: &str| words.split(' ').any(|other| other == word);
            let (idp, con, tries, ttl) = (has("idp"), has("con"), has("try"), has("ttl"));
            return Ok(Abilities { idp, con, tries, ttl, limit: has("limit-tube"), export: has("export") });
        }
        let (limit, export) = (link.ask("limit-tube")?, link.ask("list-keys x")?);
        Ok(Abilities {
            idp: knows(link, "idp")?,
            con: knows(link, "con")?,
            tries: knows(link, "try")?,
            ttl: knows(link, "ttl")?,
            limit: limit.line != "UNKNOWN_COMMAND",
            export: export.line != "UNKNOWN_COMMAND",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::json::{object, Strays};

    const ALL: Abilities = Abilities { idp: true, con: true, tries: true, ttl: true, limit: true, export: true };

    fn of(text: &str) -> JobTags {
        JobTags::of(Figures::parse(text))
    }

    #[test]
    fn tags_go_through_a_line_and_what_cannot_be_stored_is_named() {
        let text = "idempotency-key: \"a b\\xff\"\nidempotency-ttl: 60\ntries: 9\ntry-delay: 5\ntries-lost: 3\n\
            ttl-left: 7\nconcurrency-key: c\nconcurrency-limit: 2\n";
        let all = r#" idp:"a b\xff":60 con:c:2 try:9:5:3 ttl:7"#;
        let line = object(|json| of(text).write(json));
        let read = JobTags::read(&Object::parse(line.as_bytes(), &MEMBERS, Strays::Refused).expect("an object"));
        let read = read.expect("tags");
        assert_eq!(read.write_for(&ALL, 1), (all.to_owned(), vec![]));
        assert_eq!(read.write_for(&ALL, 60).0, all.replace("ttl:7", "ttl:60"));
        let none = vec!["idempotency-key", "concurrency-key", "tries", "ttl-left"];
        assert_eq!(read.write_for(&Abilities::default(), 1), (String::new(), none));
        let older = Abilities { export: false, ..ALL };
        let (tags, lost) = read.write_for(&older, 1);
        assert_eq!((tags.as_str(), lost), (" con:c:2 try:9:5 ttl:7", vec!["idempotency-key", "tries-lost"]));
        let other = of("idempotency-key: u\nunique: id\nprotocol: workq\ntries: 3\n");
        assert_eq!(other.write_for(&ALL, 1), (" idp:u".to_owned(), vec!["unique", "protocol", "tries"]));
    }
}
