//! Jobs, keys and tubes as lines of JSON: the format of `export` and `import`.
//!
//! Owns the keys, which are the server's own, and which of them are required.

use super::name;
use super::tags::{self, JobTags};
use super::yaml::Figures;
use crate::engine::State;
use crate::shared::base64;
use crate::shared::json::{self, Object, Strays};

/// The counts of events of a job, by the server's keys.
pub const COUNTS: [&str; 5] = ["reserves", "timeouts", "releases", "buries", "kicks"];

#[derive(Clone, Debug)]
pub struct JobLine {
    /// The ID on the original server.
    pub id: u64,
    pub state: State,
    pub pri: u32,
    /// Seconds until a delayed job is ready; for a held job, or a schedule with cron's fields, the rest of its delay;
    /// for another schedule, the time until it is due.
    pub delay: u32,
    /// Seconds until a schedule is due.
    pub left: u32,
    pub ttr: u32,
    pub age: u64,
    pub counts: [u32; 5],
    /// The data of the job besides beanstalkd's figures.
    pub tags: JobTags,
}

/// Converts a number, which is truncated to the maximum of 32 bits.
pub fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl JobLine {
    /// Returns a job from the reply to `stats-job`; `None` if it is invalid.
    pub fn of(figures: &Figures) -> Option<JobLine> {
        let state = State::named(figures.text("state").as_bytes())?;
        Some(JobLine {
            id: figures.text("id").parse().ok()?,
            state,
            pri: short(figures.number("pri")),
            delay: match state {
                State::Delayed => short(figures.number("time-left")),
                State::Scheduled if figures.text("cron").is_empty() => short(figures.number("time-left")),
                State::Held | State::Scheduled => short(figures.number("delay").saturating_sub(figures.number("age"))),
                _ => 0,
            },
            left: short(figures.number("time-left")),
            ttr: short(figures.number("ttr")),
            age: figures.number("age"),
            counts: COUNTS.map(|key| short(figures.number(key))),
            tags: JobTags::of(figures),
        })
    }

    /// Returns the line of the job, without a line end.
    pub fn line(&self, tube: &str, body: &[u8]) -> String {
        json::object(|json| {
            json.number("id", self.id);
            json.bytes("tube", &name::bytes(tube));
            json.text("state", self.state.word().as_bytes());
            for (key, number) in [("pri", self.pri), ("delay", self.delay), ("ttr", self.ttr)] {
                json.number(key, number.into());
            }
            json.number("age", self.age);
            for (key, count) in COUNTS.into_iter().zip(self.counts) {
                json.number(key, count.into());
            }
            self.tags.write(json);
            json.bytes("body", body);
        })
    }
}

/// Returns the line of a key that outlives its job for this many seconds.
pub fn key_line(tube: &str, key: &[u8], left: u64) -> String {
    json::object(|json| {
        json.bytes("tube", &name::bytes(tube));
        json.bytes("idempotency-key", key);
        json.number("idempotency-ttl", left);
    })
}

/// Returns the line of a tube that is paused for this many seconds.
pub fn pause_line(tube: &str, seconds: u64) -> String {
    json::object(|json| {
        json.bytes("tube", &name::bytes(tube));
        json.number("pause", seconds);
    })
}

pub fn settings_line(tube: &str, settings: &str) -> String {
    json::object(|json| {
        json.bytes("tube", &name::bytes(tube));
        json.text("settings", settings.as_bytes());
    })
}

#[derive(Debug)]
pub struct ImportLine {
    pub tube: Option<String>,
    pub content: Content,
}

#[derive(Debug)]
pub enum Content {
    Job(ImportJob),
    Key(JobTags),
    /// The tube is paused for this many seconds.
    Pause(u32),
    /// The settings of the tube, in the syntax of `set-tube`.
    Settings(String),
}

/// The arguments of a `put`, its tags and its body.
#[derive(Debug)]
pub struct ImportJob {
    /// The state of the job, ready by default.
    pub state: State,
    pub pri: u32,
    pub delay: u32,
    pub ttr: u32,
    pub tags: JobTags,
    pub body: Vec<u8>,
}

impl ImportLine {
    /// Parses a line; the error says why it is invalid.
    pub fn parse(line: &[u8]) -> Result<ImportLine, String> {
        let known = ["tube", "tube-base64", "state", "pri", "delay", "ttr", "body", "body-base64", "pause", "settings"];
        let known = [&known[..], &tags::members()].concat();
        let object = Object::parse(line, &known, Strays::Ignored)?;
        let number = |key: &str, default: u32| match object.number(key) {
            Ok(None) => Ok(default),
            Ok(Some(number)) => u32::try_from(number).map_err(|_| format!("{key}: {number} is too large")),
            Err(()) => Err(format!("{key}: no whole number from 0 up")),
        };
        let text = |key: &str| object.text(key).map_err(|()| format!("{key}: no text"));
        let encoded = text("tube-base64")?.map(|name| base64::decode(name.as_bytes()).ok_or("tube-base64: no base64"));
        let tube = match (text("tube")?, encoded.transpose()?) {
            (Some(_), Some(_)) => return Err("there must be one tube or tube-base64".to_owned()),
            (name, encoded) => name.map(|name| name.as_bytes().to_vec()).or(encoded).map(|name| name::written(&name)),
        };
        if let Some(name) = tube.as_ref().filter(|name| !name::is_legal(name)) {
            return Err(format!("invalid tube name: {name}"));
        }
        let tags = JobTags::read(&object)?;
        let body = match (text("body")?, text("body-base64")?) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(text)) => base64::decode(text.as_bytes()).ok_or("body-base64: no base64")?,
            (None, None) => {
                let pause = number("pause", 0)?;
                let settings = text("settings")?;
                let content = match tube.is_some() {
                    true if tags.has_kept_key() => Content::Key(tags),
                    true if pause > 0 => Content::Pause(pause),
                    true if settings.is_some() => Content::Settings(settings.unwrap_or_default().to_string()),
                    _ => return Err("there must be one body or body-base64".to_owned()),
                };
                return Ok(ImportLine { tube, content });
            }
            _ => return Err("there must be one body or body-base64".to_owned()),
        };
        let state = text("state")?.unwrap_or("ready");
        let state = State::named(state.as_bytes()).ok_or_else(|| format!("state: {}", state.escape_debug()))?;
        let delay = number("delay", 0)?;
        // A delay that has just ended means a ready job.
        let state = if state == State::Delayed && delay == 0 { State::Ready } else { state };
        let (pri, ttr) = (number("pri", 1024)?, number("ttr", 60)?);
        Ok(ImportLine { tube, content: Content::Job(ImportJob { state, pri, delay, ttr, tags, body }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_goes_through_a_line() {
        let record = JobLine {
            id: 7,
            state: State::Delayed,
            pri: 3,
            delay: 9,
            left: 9,
            ttr: 60,
            age: 1,
            counts: [1, 2, 3, 4, 5],
            tags: JobTags::default(),
        };
        for body in [&b"plain \"text\"\n"[..], b"", b"\xff\x00\x80", "\u{1f980}\u{0}\u{2028}".as_bytes()] {
            let line = record.line("mail", body);
            assert!(!line.contains('\n'));
            let read = ImportLine::parse(line.as_bytes()).expect("a job");
            let Content::Job(job) = read.content else { panic!("{line}") };
            assert_eq!((read.tube.as_deref(), job.state, job.pri), (Some("mail"), State::Delayed, 3));
            assert_eq!((job.delay, job.ttr, job.body.as_slice()), (9, 60, body));
        }
    }

    #[test]
    fn every_name_of_a_tube_goes_through_a_line() {
        let record = JobLine {
            id: 7,
            state: State::Ready,
            pri: 3,
            delay: 0,
            left: 0,
            ttr: 60,
            age: 1,
            counts: [0; 5],
            tags: JobTags::default(),
        };
        for name in [&b"My::Func"[..], b"a b", b"\xff", b"\"a\"", b"a\r\nquit", &[b'x'; 300]] {
            let line = record.line(&name::written(name), b"");
            let read = ImportLine::parse(line.as_bytes()).expect("a job");
            assert_eq!(read.tube, Some(name::written(name)), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (line, expected) in [
            ("x", "no JSON"),
            ("{}", "one body or"),
            ("{\"body\":\"a\",\"body-base64\":\"\"}", "one body or"),
            ("{\"body\":1}", "body: no text"),
            ("{\"body\":\"\",\"body\":\"\"}", "duplicate key body"),
            ("{\"body-base64\":\"a\"}", "no base64"),
            ("{\"body\":\"\",\"state\":\"gone\"}", "state: gone"),
            ("{\"body\":\"\",\"pri\":-1}", "pri: no whole number"),
            ("{\"body\":\"\",\"ttr\":4294967296}", "ttr: 4294967296 is too large"),
            ("{\"body\":\"\",\"tube\":\"\"}", "invalid tube name"),
            ("{\"body\":\"\",\"tube\":\"a\\u0000\"}", "invalid tube name"),
            ("{\"body\":\"\",\"tube-base64\":\"a\"}", "no base64"),
            ("{\"body\":\"\",\"tube\":\"a\",\"tube-base64\":\"YQ==\"}", "one tube or"),
        ] {
            let error = ImportLine::parse(line.as_bytes()).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
