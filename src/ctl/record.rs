//! The JSON lines of `export` and `import`: jobs, retained keys, pauses and settings.

use super::prelude::*;
use crate::engine::State;
use crate::shared::json::{Members, Object, Strays};

pub const COUNTS: [&str; 5] = ["reserves", "timeouts", "releases", "buries", "kicks"];

#[derive(Clone, Debug)]
pub struct JobLine {
    pub id: u64,
    pub state: State,
    pub pri: u32,
    /// In seconds: the remaining delay, the time until a periodic schedule's next run, or the last delay of a buried
    /// job.
    pub delay: u32,
    pub left: u32,
    pub missed: u32,
    pub blocked_by: String,
    pub ttr: u32,
    pub age: u64,
    pub counts: [u32; 5],
    pub tags: JobTags,
}

pub fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl JobLine {
    pub fn of(stats: &StatsReply) -> Option<JobLine> {
        let state = State::named(stats.text("state").as_bytes())?;
        Some(JobLine {
            id: stats.text("id").parse().ok()?,
            state,
            pri: short(stats.number("pri")),
            delay: match state {
                State::Delayed => short(stats.number("time-left")),
                State::Scheduled if stats.text("cron").is_empty() => short(stats.number("time-left")),
                // An import puts a buried job with the maximum delay if its delay is unknown.
                State::Buried if stats.number("delay") < MAX_DELAY.into() => short(stats.number("delay")),
                State::Held | State::Scheduled => short(stats.number("delay").saturating_sub(stats.number("age"))),
                _ => 0,
            },
            left: short(stats.number("time-left")),
            missed: short(stats.number("missed")),
            blocked_by: stats.text("blocked-by").to_owned(),
            ttr: short(stats.number("ttr")),
            age: stats.number("age"),
            counts: COUNTS.map(|key| short(stats.number(key))),
            tags: JobTags::of(stats),
        })
    }

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
            self.tags.0.write(json);
            json.bytes("body", body);
        })
    }
}

#[derive(Default)]
pub struct Others {
    pub pauses: u64,
    pub settings: u64,
    pub keys: u64,
}

impl Others {
    pub fn report(&self, verb: &str) {
        let Others { pauses, settings, keys } = self;
        if pauses + settings + keys > 0 {
            print_stderr(&format!(
                "{verb} {pauses} pauses, settings of {settings} tubes, {keys} keys that outlive their jobs"
            ));
        }
    }
}

pub fn tube_line(tube: &str, write: impl FnOnce(&mut Members)) -> String {
    json::object(|json| {
        json.bytes("tube", &name::bytes(tube));
        write(json);
    })
}

pub struct ImportLine {
    pub tube: Option<String>,
    pub content: Content,
}

pub enum Content {
    Job(ImportJob),
    Key(JobTags),
    Pause(u32),
    Settings(String),
}

pub struct ImportJob {
    pub state: State,
    pub pri: u32,
    pub delay: u32,
    pub ttr: u32,
    pub tags: JobTags,
    pub body: Vec<u8>,
}

impl ImportLine {
    pub fn parse(line: &[u8]) -> Result<ImportLine, String> {
        let known = ["tube", "tube-base64", "state", "pri", "delay", "ttr", "body", "body-base64", "pause", "settings"];
        let known = [&known[..], &members()].concat();
        let object = Object::parse(line, &known, Strays::Ignored)?;
        let number = |key: &str, default: u32| Ok::<_, String>(number_of(&object, key)?.unwrap_or(default));
        let text = |key: &str| text_of(&object, key);
        let tube = bytes_of(&object, "tube", "tube-base64")?.map(|name| name::written(&name));
        if let Some(name) = tube.as_ref().filter(|name| !name::is_legal(name)) {
            return Err(format!("invalid tube name: {name}"));
        }
        let tags = JobTags::read(&object)?;
        let Some(body) = bytes_of(&object, "body", "body-base64")? else {
            let (pause, settings) = (number("pause", 0)?, text("settings")?);
            let content = match settings {
                _ if tube.is_some() && !tags.key().is_empty() && tags.0.number("idempotency-ttl") > 0 => {
                    Content::Key(tags)
                }
                _ if tube.is_some() && pause > 0 => Content::Pause(pause),
                Some(settings) if tube.is_some() => Content::Settings(settings.to_owned()),
                _ => return Err("missing body or body-base64".to_owned()),
            };
            return Ok(ImportLine { tube, content });
        };
        let state = text("state")?.unwrap_or("ready");
        let state =
            State::named(state.as_bytes()).ok_or_else(|| format!("state: unknown state {}", state.escape_debug()))?;
        let delay = number("delay", 0)?;
        // The delay ended during the export.
        let state = if state == State::Delayed && delay == 0 { State::Ready } else { state };
        let (pri, ttr) = (number("pri", 1024)?, number("ttr", 60)?);
        Ok(ImportLine { tube, content: Content::Job(ImportJob { state, pri, delay, ttr, tags, body }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_job_reads_back() {
        let record = JobLine {
            id: 7,
            state: State::Delayed,
            pri: 3,
            delay: 9,
            left: 9,
            missed: 0,
            blocked_by: String::new(),
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
    fn every_tube_name_in_a_line_reads_back() {
        let record = JobLine {
            id: 7,
            state: State::Ready,
            pri: 3,
            delay: 0,
            left: 0,
            missed: 0,
            blocked_by: String::new(),
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
    fn an_invalid_line_has_a_reason() {
        for (line, expected) in [
            ("x", "no JSON"),
            ("{}", "missing body or"),
            ("{\"body\":\"a\",\"body-base64\":\"\"}", "both body and body-base64"),
            ("{\"body\":1}", "body: must be a string"),
            ("{\"body\":\"\",\"body\":\"\"}", "duplicate key body"),
            ("{\"body-base64\":\"a\"}", "invalid base64"),
            ("{\"body\":\"\",\"state\":\"gone\"}", "state: unknown state gone"),
            ("{\"body\":\"\",\"pri\":-1}", "pri: must be a whole number"),
            ("{\"body\":\"\",\"ttr\":4294967296}", "ttr: 4294967296 is too large"),
            ("{\"body\":\"\",\"tube\":\"\"}", "invalid tube name"),
            ("{\"body\":\"\",\"tube\":\"a\\u0000\"}", "invalid tube name"),
            ("{\"body\":\"\",\"tube-base64\":\"a\"}", "invalid base64"),
            ("{\"body\":\"\",\"tube\":\"a\",\"tube-base64\":\"YQ==\"}", "both tube and tube-base64"),
        ] {
            let error = ImportLine::parse(line.as_bytes()).err().expect(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
