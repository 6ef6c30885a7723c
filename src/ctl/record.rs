//! The JSON lines of `export` and `import`: jobs, retained keys, pauses and settings. Job data that beanstalkd lacks,
//! such as idempotency keys and retries, is converted between statistics, JSON members, and tags of a `put`.

use super::prelude::*;
use crate::engine::{Recurrence, State};
use crate::protocol::beanstalk::MAX_PUT_LINE;
use crate::protocol::text::{is_any_name, is_tube_name, push_quoted};
use crate::shared::base64;
use crate::shared::json::{Object, Strays};

pub const COUNTS: [&str; 5] = ["reserves", "timeouts", "releases", "buries", "kicks"];

#[derive(Clone, Debug)]
pub struct JobLine {
    pub id: u64,
    pub state: State,
    pub pri: u32,
    /// In seconds: the remaining delay, the time until a schedule's next run, or the last delay of a buried job.
    pub delay: u32,
    pub left: u32,
    pub missed: u32,
    pub blocked_by: String,
    pub ttr: u32,
    pub age: u64,
    pub counts: [u32; 5],
    pub tags: JobTags,
}

pub fn capped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl JobLine {
    pub fn of(stats: &StatsReply) -> Option<JobLine> {
        let state = State::named(stats.text("state").as_bytes())?;
        Some(JobLine {
            id: stats.text("id").parse().ok()?,
            state,
            pri: capped(stats.number("pri")),
            delay: match state {
                State::Delayed => capped(stats.number("time-left")),
                State::Scheduled if stats.text("cron").is_empty() => capped(stats.number("time-left")),
                // A buried job has the maximum delay if it was imported into a server that cannot store the last delay.
                State::Buried if stats.number("delay") < MAX_DELAY.into() => capped(stats.number("delay")),
                State::Held | State::Scheduled => capped(stats.number("delay").saturating_sub(stats.number("age"))),
                _ => 0,
            },
            left: capped(stats.number("time-left")),
            missed: capped(stats.number("missed")),
            blocked_by: stats.text("blocked-by").to_owned(),
            ttr: capped(stats.number("ttr")),
            age: stats.number("age"),
            counts: COUNTS.map(|key| capped(stats.number(key))),
            tags: JobTags::of(stats),
        })
    }

    pub fn line(&self, tube: &str, body: &[u8]) -> String {
        json::object(|json| {
            json.number("id", self.id);
            json.bytes("tube", &yaml::name_bytes(tube));
            json.text("state", self.state.word().as_bytes());
            for (key, number) in [("pri", self.pri), ("delay", self.delay), ("ttr", self.ttr)] {
                json.number(key, number.into());
            }
            json.number("age", self.age);
            COUNTS.into_iter().zip(self.counts).for_each(|(key, count)| json.number(key, count.into()));
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
            tell(&format!("{verb} {pauses} pauses, settings of {settings} tubes, {keys} keys that outlive their jobs"));
        }
    }
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
        let object = Object::parse(line, &[&known[..], &members()].concat(), Strays::Ignored)?;
        let number = |key: &str, default: u32| Ok::<_, String>(number_of(&object, key)?.unwrap_or(default));
        let text = |key: &str| text_of(&object, key);
        let tube = bytes_of(&object, "tube", "tube-base64")?.map(|name| yaml::quote_name(&name));
        if let Some(name) = tube.as_ref().filter(|name| !yaml::is_legal_name(name)) {
            return Err(format!("invalid tube name: {name}"));
        }
        let tags = JobTags::read(&object)?;
        let state = text("state")?.unwrap_or("ready");
        let state =
            State::named(state.as_bytes()).ok_or_else(|| format!("state: unknown state {}", state.escape_debug()))?;
        let (pri, delay, ttr) = (number("pri", 1024)?, number("delay", 0)?, number("ttr", 60)?);
        // A delayed job without a remaining delay became ready during the export.
        let state = if state == State::Delayed && delay == 0 { State::Ready } else { state };
        let (pause, settings) = (number("pause", 0)?, text("settings")?);
        let is_key = !tags.key().is_empty() && tags.0.number("idempotency-ttl") > 0 && tags.0.iter().count() == 2;
        let is_of_tube = tube.is_some() && tags.is_empty();
        let content = match (bytes_of(&object, "body", "body-base64")?, pause, settings) {
            (Some(body), 0, None) => Content::Job(ImportJob { state, pri, delay, ttr, tags, body }),
            (None, 0, None) if is_key && tube.is_some() => Content::Key(tags),
            (None, 1.., None) if is_of_tube => Content::Pause(pause),
            (None, 0, Some(settings)) if is_of_tube => Content::Settings(settings.to_owned()),
            (None, 0, None) => return Err("missing body or body-base64".to_owned()),
            _ => return Err("the line must have either a body, or a key, a pause or settings of a tube".to_owned()),
        };
        Ok(ImportLine { tube, content })
    }
}

enum Value {
    /// A tube name or key. The string is the name of the JSON member for a value in base64.
    Name(&'static str),
    Text(&'static str),
    Number,
    Word,
    /// Names separated by commas, each optionally followed by a colon and a number.
    Groups,
    Cron,
}

/// The keys that JSON lines take from `stats-job`, and the types of their values.
#[rustfmt::skip]
const KEYS: [(&str, Value); 21] = [
    ("idempotency-key", Value::Name("idempotency-key-base64")), ("idempotency-ttl", Value::Number),
    ("concurrency-key", Value::Name("concurrency-key-base64")), ("concurrency-limit", Value::Number),
    ("try", Value::Number), ("backoff", Value::Number), ("fails", Value::Number), ("max-fails", Value::Number),
    ("expires-in", Value::Number), ("every", Value::Number), ("cron", Value::Cron), ("runs", Value::Number),
    ("skipped", Value::Number), ("ttl", Value::Number), ("unique", Value::Word), ("protocol", Value::Word),
    ("dead-from", Value::Name("dead-from-base64")), ("last-error", Value::Text("last-error-base64")),
    ("group", Value::Groups), ("after-group", Value::Groups), ("reducer", Value::Name("reducer-base64")),
];

pub fn members() -> Vec<&'static str> {
    let encoded = KEYS.iter().filter_map(|(_, value)| match value {
        Value::Name(encoded) | Value::Text(encoded) => Some(*encoded),
        _ => None,
    });
    KEYS.iter().map(|(key, _)| *key).chain(encoded).collect()
}

#[derive(Clone, Default, Debug)]
pub struct JobTags(pub StatsReply);

/// Tags, each preceded by a space, and the keys of data that the server does not support.
pub type Written = (String, Vec<&'static str>);

impl JobTags {
    pub fn of(all: &StatsReply) -> JobTags {
        let mut stats = StatsReply::default();
        for (key, value) in all.iter().filter(|(key, _)| KEYS.iter().any(|(known, _)| known == key)) {
            stats.push(key, value.to_owned());
        }
        JobTags(stats)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().next().is_none()
    }

    pub fn key(&self) -> &str {
        self.0.text("idempotency-key")
    }

    pub fn ttl_left(&self) -> Option<u64> {
        (!self.0.text("expires-in").is_empty()).then(|| self.0.number("expires-in"))
    }

    pub fn read(object: &Object) -> Result<JobTags, String> {
        let mut stats = StatsReply::default();
        for (key, value) in &KEYS {
            read_value(object, key, value)?.into_iter().for_each(|text| stats.push(key, text));
        }
        Ok(JobTags(stats))
    }

    pub fn dead_from(&self) -> Option<&str> {
        Some(self.0.text("dead-from")).filter(|name| !name.is_empty())
    }

    /// Separates supported tags from unsupported data. Raises a lifetime to at least `min_ttl` seconds.
    pub fn write_for(&self, can: &Abilities, min_ttl: u64) -> Written {
        let (mut tags, mut lost) = (String::new(), Vec::new());
        let mut add = |key: &'static str, tag: String, known: bool| if known { tags += &tag } else { lost.push(key) };
        let (number, text) = (|key: &str| self.0.number(key), |key: &str| self.0.text(key));
        let suffix = |number: u64| if number > 0 { format!(":{number}") } else { String::new() };
        let (key, bound, limit) = (self.key(), text("concurrency-key"), text("concurrency-limit"));
        if !key.is_empty() {
            // The other parts of the line are up to 564 bytes long, so a very long key does not fit into the line.
            let known = can.has("idp")
                && (can.has("export") || !yaml::is_quoted_name(key))
                && key.len() + 500 < MAX_PUT_LINE - 64;
            add("idempotency-key", format!(" idp:{key}{}", suffix(number("idempotency-ttl"))), known);
        }
        if !bound.is_empty() {
            let known = can.has("con") && !yaml::is_quoted_name(bound);
            add("concurrency-key", [" con:", bound, if limit.is_empty() { "" } else { ":" }, limit].concat(), known);
        }
        let is_plain = text("protocol").is_empty();
        let (tries, delay, fails) = (number("try"), number("backoff"), number("fails"));
        if is_plain && (tries > 0 || fails > 0 && can.has("export")) {
            let more = if fails > 0 && can.has("export") { format!(":{delay}:{fails}") } else { suffix(delay) };
            add("try", format!(" try:{tries}{more}"), can.has("try"));
        }
        if is_plain && fails > 0 && !can.has("export") {
            add("fails", String::new(), false);
        }
        if !text("cron").is_empty() {
            add("cron", format!(" cron:\"{}\"", text("cron")), can.has("cron"));
        }
        for key in ["every", "ttl"].into_iter().filter(|key| number(key) > 0) {
            add(key, format!(" {key}:{}", number(key)), can.has(key));
        }
        if let Some(left) = self.ttl_left() {
            add("expires-in", format!(" ttl:{}", left.max(min_ttl)), can.has("ttl"));
        }
        let mut reason = Vec::new();
        push_quoted(&mut reason, &self.0.bytes("last-error"));
        if reason.len() > 2 {
            add("last-error", format!(" err:{}", String::from_utf8_lossy(&reason)), can.has("export"));
        }
        if self.dead_from().is_some() && !can.has("export") {
            add("dead-from", String::new(), false);
        }
        for (key, tag) in [("group", "grp"), ("after-group", "aft")] {
            // `:0` makes the job wait even while the group is empty.
            let written = |group: &str| match (tag, group.contains(':')) {
                ("aft", false) => format!(" aft:{group}:0"),
                _ => format!(" {tag}:{group}"),
            };
            if !text(key).is_empty() {
                add(key, text(key).split(',').map(written).collect(), can.has(tag));
            }
        }
        for key in ["unique", "protocol", "reducer"].into_iter().filter(|key| !text(key).is_empty()) {
            add(key, String::new(), false);
        }
        if !is_plain && (tries, number("max-fails"), fails) != (0, 0, 0) {
            add("try", String::new(), false);
        }
        (tags, lost)
    }
}

fn is_group(text: &str) -> bool {
    let (name, count) = text.split_once(':').unwrap_or((text, "0"));
    is_tube_name(name.as_bytes()) && count.parse::<u32>().is_ok()
}

pub fn text_of<'a>(object: &'a Object, key: &str) -> Result<Option<&'a str>, String> {
    object.text(key).map_err(|()| format!("{key}: must be a string"))
}

pub fn number_of(object: &Object, key: &str) -> Result<Option<u32>, String> {
    let number = object.number(key).map_err(|()| format!("{key}: must be a whole number from 0 up"))?;
    number.map(|number| u32::try_from(number).map_err(|_| format!("{key}: {number} is too large"))).transpose()
}

pub fn bytes_of(object: &Object, key: &str, encoded: &str) -> Result<Option<Vec<u8>>, String> {
    match (text_of(object, key)?, text_of(object, encoded)?) {
        (None, None) => Ok(None),
        (Some(plain), None) => Ok(Some(plain.as_bytes().to_vec())),
        (None, Some(text)) => base64::decode(text.as_bytes()).map(Some).ok_or(format!("{encoded}: invalid base64")),
        (Some(_), Some(_)) => Err(format!("the line has both {key} and {encoded}")),
    }
}

fn read_value(object: &Object, key: &str, value: &Value) -> Result<Option<String>, String> {
    let valid = |is_valid: fn(&str) -> bool| match text_of(object, key)? {
        Some(text) if !is_valid(text) => Err(format!("{key}: invalid value: {}", text.escape_debug())),
        text => Ok(text.map(str::to_owned)),
    };
    match value {
        Value::Name(encoded) => match bytes_of(object, key, encoded)? {
            Some(bytes) if bytes.is_empty() => Err(format!("{key}: must not be empty")),
            Some(bytes) if key == "dead-from" && !is_any_name(&bytes) => Err(format!("{key}: invalid tube name")),
            bytes => Ok(bytes.map(|bytes| yaml::quote_name(&bytes))),
        },
        Value::Text(encoded) => {
            let bytes = bytes_of(object, key, encoded)?.filter(|bytes| !bytes.is_empty());
            Ok(bytes.map(|bytes| yaml::quote_name(&bytes)))
        }
        Value::Number => Ok(number_of(object, key)?.map(|number| number.to_string())),
        Value::Word => valid(|_| true),
        Value::Groups => valid(|groups| groups.split(',').all(is_group)),
        Value::Cron => valid(|cron| matches!(Recurrence::parse(cron.as_bytes()), Some(Recurrence::Minutes(_)))),
    }
}

/// The extensions that determine which job data the server can store.
const ABILITIES: [&str; 12] =
    ["idp", "con", "try", "ttl", "grp", "aft", "cron", "every", "limit-tube", "export", "set-tube", "tub"];

/// A set of extensions. Each bit stands for an item of [`ABILITIES`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Abilities(u16);

impl Abilities {
    /// If `stats` does not list the extensions, detects them by sending harmless commands.
    pub fn of(link: &mut Link) -> Result<Abilities> {
        let listed = match link.stats() {
            Ok(stats) => stats.text("extensions").to_owned(),
            Err(problem) if problem.code == REFUSED => String::new(),
            Err(problem) => return Err(problem),
        };
        let mut can = Abilities(0);
        for (index, word) in ABILITIES.into_iter().enumerate() {
            let is_known = match word {
                _ if !listed.is_empty() => listed.split(' ').any(|other| other == word),
                "limit-tube" | "set-tube" => link.ask(&format!("{word} "))?.line != "UNKNOWN_COMMAND",
                "export" => link.ask("list-keys x")?.line != "UNKNOWN_COMMAND",
                tag => knows(link, tag)?,
            };
            can.0 |= u16::from(is_known) << index;
        }
        Ok(can)
    }

    pub fn has(self, word: &str) -> bool {
        ABILITIES.iter().position(|known| *known == word).is_some_and(|index| self.0 >> index & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::json::object;

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
            let line = record.line(&yaml::quote_name(name), b"");
            let read = ImportLine::parse(line.as_bytes()).expect("a job");
            assert_eq!(read.tube, Some(yaml::quote_name(name)), "{line}");
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
            ("{\"tube\":\"a\",\"pause\":5,\"settings\":\"try:3\"}", "either a body, or"),
            ("{\"tube\":\"a\",\"pause\":5,\"body\":\"\"}", "either a body, or"),
            ("{\"tube\":\"a\",\"body\":\"\",\"settings\":\"try:3\"}", "either a body, or"),
            ("{\"tube\":\"a\",\"pause\":5,\"idempotency-key\":\"k\",\"idempotency-ttl\":9}", "either a body, or"),
            ("{\"tube\":\"a\",\"settings\":\"try:3\",\"try\":3}", "either a body, or"),
            ("{\"tube\":\"a\",\"idempotency-key\":\"k\",\"idempotency-ttl\":9,\"ttl\":9}", "missing body"),
            ("{\"pause\":5}", "either a body, or"),
            ("{\"body\":\"\",\"dead-from\":\"a\\u0000\"}", "dead-from: invalid tube name"),
            ("{\"body\":\"\",\"tube\":\"\"}", "invalid tube name"),
            ("{\"body\":\"\",\"tube\":\"a\\u0000\"}", "invalid tube name"),
            ("{\"body\":\"\",\"tube-base64\":\"a\"}", "invalid base64"),
            ("{\"body\":\"\",\"tube\":\"a\",\"tube-base64\":\"YQ==\"}", "both tube and tube-base64"),
        ] {
            let error = ImportLine::parse(line.as_bytes()).err().expect(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    const ALL: Abilities = Abilities(u16::MAX);

    fn of(text: &str) -> JobTags {
        JobTags::of(&StatsReply::parse(text))
    }

    #[test]
    fn tags_in_a_line_read_back_and_those_that_a_server_cannot_store_are_named() {
        let text = "pri: 7\nidempotency-key: \"a b\\xff\"\nidempotency-ttl: 60\ntry: 9\ntries-left: 6\nbackoff: 5\n\
            fails: 3\nexpires-in: 7\nconcurrency-key: c\nconcurrency-limit: 2\nlast-error: \"no \\\"host\\\"\"\n";
        let all = r#" idp:"a b\xff":60 con:c:2 try:9:5:3 ttl:7 err:"no \"host\"""#;
        let line = object(|json| of(text).0.write(json));
        let read = JobTags::read(&Object::parse(line.as_bytes(), &members(), Strays::Refused).expect("an object"));
        let read = read.expect("tags");
        assert_eq!(read.write_for(&ALL, 1), (all.to_owned(), vec![]));
        assert_eq!(read.write_for(&ALL, 60).0, all.replace("ttl:7", "ttl:60"));
        let none = vec!["idempotency-key", "concurrency-key", "try", "fails", "expires-in", "last-error"];
        assert_eq!(read.write_for(&Abilities::default(), 1), (String::new(), none));
        let older = Abilities(!(1 << 9));
        let (tags, lost) = read.write_for(&older, 1);
        assert_eq!((tags.as_str(), lost), (" con:c:2 try:9:5 ttl:7", vec!["idempotency-key", "fails", "last-error"]));
        let grouped = of("group: a,b\nafter-group: c,d:3\n");
        let line = object(|json| grouped.0.write(json));
        let read = JobTags::read(&Object::parse(line.as_bytes(), &members(), Strays::Refused).expect("an object"));
        let tags = read.expect("groups").write_for(&ALL, 1);
        assert_eq!(tags, (" grp:a grp:b aft:c:0 aft:d:3".to_owned(), vec![]));
        for wrong in ["", "a,", "a b", "a:x", "a\\r\\nquit"] {
            let line = format!("{{\"after-group\":\"{wrong}\"}}");
            let object = Object::parse(line.as_bytes(), &members(), Strays::Refused).expect("an object");
            assert!(JobTags::read(&object).is_err(), "{wrong}");
        }
        let recurs = of("cron: \"0,30 9 * * mon\"\nruns: 7\nskipped: 1\nidempotency-key: k\nttl: 60\n");
        let line = object(|json| recurs.0.write(json));
        let read = JobTags::read(&Object::parse(line.as_bytes(), &members(), Strays::Refused).expect("an object"));
        let tags = read.expect("a schedule").write_for(&ALL, 1);
        assert_eq!(tags, (" idp:k cron:\"0,30 9 * * mon\" ttl:60".to_owned(), vec![]));
        assert_eq!(of("every: 9\nidempotency-key: k\n").write_for(&ALL, 1).0, " idp:k every:9");
        let wrong = Object::parse(br#"{"cron":"* * * * *\" grp:g"}"#, &members(), Strays::Refused).expect("an object");
        assert!(JobTags::read(&wrong).is_err());
        let other = of("idempotency-key: u\nunique: id\nprotocol: workq\ntry: 3\n");
        assert_eq!(other.write_for(&ALL, 1), (" idp:u".to_owned(), vec!["unique", "protocol", "try"]));
    }
}
