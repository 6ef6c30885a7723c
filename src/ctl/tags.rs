//! What jobs and tubes have beyond beanstalkd's: as the server reports it, as members of a line of JSON, and as tags.
//!
//! Owns the keys, and what of them a server can store. Must not put jobs.

use super::link::Link;
use super::name::{self, is_foreign};
use super::problem::{Problem, REFUSED};
use super::put::knows;
use super::yaml::Figures;
use crate::engine::Recurrence;
use crate::protocol::beanstalk::MAX_PUT_LINE;
use crate::protocol::text::{is_tube_name, push_quoted};
use crate::shared::base64;
use crate::shared::json::{Members, Object};

/// Keys whose values are names.
const NAMES: [&str; 3] = ["idempotency-key", "concurrency-key", "dead-from"];

/// Keys whose values are numbers.
const NUMBERS: [&str; 11] = [
    "idempotency-ttl",
    "concurrency-limit",
    "try",
    "backoff",
    "fails",
    "max-fails",
    "expires-in",
    "every",
    "runs",
    "skipped",
    "ttl",
];

/// Keys whose values are names of groups with commas between them, perhaps each with a number behind a colon; and the
/// tags for them.
const GROUPS: [(&str, &str); 2] = [("group", "grp"), ("after-group", "aft")];

/// Keys whose values are words, which no tag can express.
const WORDS: [&str; 2] = ["unique", "protocol"];

/// All members of a line that this reads.
pub const MEMBERS: [&str; 24] = [
    "idempotency-key",
    "idempotency-key-base64",
    "concurrency-key",
    "concurrency-key-base64",
    "idempotency-ttl",
    "concurrency-limit",
    "try",
    "backoff",
    "fails",
    "max-fails",
    "expires-in",
    "unique",
    "protocol",
    "dead-from",
    "dead-from-base64",
    "last-error",
    "last-error-base64",
    "group",
    "after-group",
    "cron",
    "every",
    "runs",
    "skipped",
    "ttl",
];

/// Bytes of a line of `put` beside its tags, at most.
const PUT_LINE: usize = 64;

/// What a job has beside beanstalkd's figures, by the keys of `stats-job`.
#[derive(Clone, Default, Debug)]
pub struct JobTags(Figures);

/// The tags of a `put`, each with a space before it, and the keys of what they leave out.
pub type Written = (String, Vec<&'static str>);

impl JobTags {
    /// Takes them from the reply to `stats-job`.
    pub fn of(all: &Figures) -> JobTags {
        let mut figures = Figures::default();
        for (key, value) in all.iter().filter(|(key, _)| MEMBERS.contains(key)) {
            figures.push(key, value.to_owned());
        }
        JobTags(figures)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().next().is_none()
    }

    /// The job's idempotency key; empty if it has none.
    pub fn key(&self) -> &str {
        self.0.text("idempotency-key")
    }

    /// `true` if there is a key that outlives its job.
    pub fn has_kept_key(&self) -> bool {
        !self.key().is_empty() && self.0.number("idempotency-ttl") > 0
    }

    /// Seconds until the end of the job's life, if that has an end.
    pub fn ttl_left(&self) -> Option<u64> {
        (!self.0.text("expires-in").is_empty()).then(|| self.0.number("expires-in"))
    }

    /// The name of a schedule, and when it recurs.
    pub fn schedule(&self) -> (String, String) {
        let when = match self.0.text("cron") {
            "" => format!("every {} s", self.0.number("every")),
            cron => cron.to_owned(),
        };
        (self.key().to_owned(), when)
    }

    /// How often a schedule has run, and how often its last copy still existed.
    pub fn run_counts(&self) -> [u64; 2] {
        ["runs", "skipped"].map(|key| self.0.number(key))
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
        for (key, _) in GROUPS {
            if let Some(groups) = text(key)? {
                if !groups.split(',').all(is_group) {
                    return Err(format!("{key}: {}", groups.escape_debug()));
                }
                figures.push(key, groups.to_string());
            }
        }
        if let Some(cron) = text("cron")? {
            if !matches!(Recurrence::parse(cron.as_bytes()), Some(Recurrence::Minutes(_))) {
                return Err(format!("cron: {}", cron.escape_debug()));
            }
            figures.push("cron", cron.to_string());
        }
        match (text("last-error")?, text("last-error-base64")?) {
            (Some(plain), _) => figures.push("last-error", plain.to_string()),
            (None, Some(encoded)) => {
                let bytes = base64::decode(encoded.as_bytes()).ok_or("last-error-base64: no base64")?;
                figures.push("last-error", String::from_utf8_lossy(&bytes).into_owned());
            }
            (None, None) => {}
        }
        Ok(JobTags(figures))
    }

    /// The tube that the job is a dead letter of, if it is one.
    pub fn dead_from(&self) -> Option<&str> {
        Some(self.0.text("dead-from")).filter(|name| !name.is_empty())
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
        let (key, bound) = (self.key(), text("concurrency-key"));
        if !key.is_empty() {
            let known = can.idp && (can.export || !is_foreign(key)) && key.len() + 500 < MAX_PUT_LINE - PUT_LINE;
            add("idempotency-key", format!(" idp:{key}{}", suffix(number("idempotency-ttl"))), known);
        }
        if !bound.is_empty() {
            let known = can.con && !is_foreign(bound);
            add("concurrency-key", format!(" con:{bound}{}", suffix(number("concurrency-limit"))), known);
        }
        let is_plain = text("protocol").is_empty();
        let (tries, delay, fails) = (number("try"), number("backoff"), number("fails"));
        if is_plain && (tries > 0 || fails > 0 && can.export) {
            let more = if fails > 0 && can.export { format!(":{delay}:{fails}") } else { suffix(delay) };
            add("try", format!(" try:{tries}{more}"), can.tries);
        }
        if is_plain && fails > 0 && !can.export {
            add("fails", String::new(), false);
        }
        let (cron, every, ttl) = (text("cron"), number("every"), number("ttl"));
        if !cron.is_empty() {
            add("cron", format!(" cron:\"{cron}\""), can.cron);
        }
        if every > 0 {
            add("every", format!(" every:{every}"), can.cron);
        }
        if ttl > 0 {
            add("ttl", format!(" ttl:{ttl}"), can.ttl);
        }
        if let Some(left) = self.ttl_left() {
            add("expires-in", format!(" ttl:{}", left.max(least_ttl)), can.ttl);
        }
        let mut reason = Vec::new();
        push_quoted(&mut reason, text("last-error").as_bytes());
        if reason.len() > 2 {
            add("last-error", format!(" err:{}", String::from_utf8_lossy(&reason)), can.export);
        }
        if self.dead_from().is_some() && !can.export {
            add("dead-from", String::new(), false);
        }
        for ((key, tag), known) in
            GROUPS.into_iter().zip([can.grp, can.aft]).filter(|((key, _), _)| !text(key).is_empty())
        {
            // A job that was held is held even if no member is there yet.
            let written = |group: &str| match (tag, group.contains(':')) {
                ("aft", false) => format!(" aft:{group}:0"),
                _ => format!(" {tag}:{group}"),
            };
            add(key, text(key).split(',').map(written).collect(), known);
        }
        for key in WORDS.into_iter().filter(|key| !text(key).is_empty()) {
            add(key, String::new(), false);
        }
        if !is_plain && (tries, number("max-fails"), fails) != (0, 0, 0) {
            add("try", String::new(), false);
        }
        (tags, lost)
    }
}

/// Returns `true` for the name of a group, perhaps with a number behind a colon.
fn is_group(text: &str) -> bool {
    let (name, count) = text.split_once(':').unwrap_or((text, "0"));
    is_tube_name(name.as_bytes()) && count.parse::<u32>().is_ok()
}

/// What a server can store.
#[derive(Clone, Copy, Default, Debug)]
pub struct Abilities {
    idp: bool,
    con: bool,
    tries: bool,
    ttl: bool,
    grp: bool,
    aft: bool,
    /// It knows jobs that recur.
    pub cron: bool,
    /// The command `limit-tube` with a single number.
    pub limit: bool,
    /// Names in quotes, failed tries and their reasons.
    pub export: bool,
    /// Settings of tubes beside their limits.
    pub set_tube: bool,
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
            return Ok(Abilities {
                idp,
                con,
                tries,
                ttl,
                grp: has("grp"),
                aft: has("aft"),
                cron: has("cron") && has("every"),
                limit: has("limit-tube"),
                export: has("export"),
                set_tube: has("set-tube"),
            });
        }
        let (limit, export, set_tube) = (link.ask("limit-tube")?, link.ask("list-keys x")?, link.ask("set-tube ")?);
        Ok(Abilities {
            idp: knows(link, "idp")?,
            con: knows(link, "con")?,
            tries: knows(link, "try")?,
            ttl: knows(link, "ttl")?,
            grp: knows(link, "grp")?,
            aft: knows(link, "aft")?,
            cron: knows(link, "cron")?,
            limit: limit.line != "UNKNOWN_COMMAND",
            export: export.line != "UNKNOWN_COMMAND",
            set_tube: set_tube.line != "UNKNOWN_COMMAND",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::json::{object, Strays};

    const ALL: Abilities = Abilities {
        grp: true,
        aft: true,
        cron: true,
        idp: true,
        con: true,
        tries: true,
        ttl: true,
        limit: true,
        export: true,
        set_tube: true,
    };

    fn of(text: &str) -> JobTags {
        JobTags::of(&Figures::parse(text))
    }

    #[test]
    fn tags_go_through_a_line_and_what_cannot_be_stored_is_named() {
        let text = "pri: 7\nidempotency-key: \"a b\\xff\"\nidempotency-ttl: 60\ntry: 9\ntries-left: 6\nbackoff: 5\n\
            fails: 3\nexpires-in: 7\nconcurrency-key: c\nconcurrency-limit: 2\nlast-error: \"no \\\"host\\\"\"\n";
        let all = r#" idp:"a b\xff":60 con:c:2 try:9:5:3 ttl:7 err:"no \"host\"""#;
        let line = object(|json| of(text).write(json));
        let read = JobTags::read(&Object::parse(line.as_bytes(), &MEMBERS, Strays::Refused).expect("an object"));
        let read = read.expect("tags");
        assert_eq!(read.write_for(&ALL, 1), (all.to_owned(), vec![]));
        assert_eq!(read.write_for(&ALL, 60).0, all.replace("ttl:7", "ttl:60"));
        let none = vec!["idempotency-key", "concurrency-key", "try", "fails", "expires-in", "last-error"];
        assert_eq!(read.write_for(&Abilities::default(), 1), (String::new(), none));
        let older = Abilities { export: false, ..ALL };
        let (tags, lost) = read.write_for(&older, 1);
        assert_eq!((tags.as_str(), lost), (" con:c:2 try:9:5 ttl:7", vec!["idempotency-key", "fails", "last-error"]));
        let grouped = of("group: a,b\nafter-group: c,d:3\n");
        let line = object(|json| grouped.write(json));
        let read = JobTags::read(&Object::parse(line.as_bytes(), &MEMBERS, Strays::Refused).expect("an object"));
        let tags = read.expect("groups").write_for(&ALL, 1);
        assert_eq!(tags, (" grp:a grp:b aft:c:0 aft:d:3".to_owned(), vec![]));
        for wrong in ["", "a,", "a b", "a:x", "a\\r\\nquit"] {
            let line = format!("{{\"after-group\":\"{wrong}\"}}");
            let object = Object::parse(line.as_bytes(), &MEMBERS, Strays::Refused).expect("an object");
            assert!(JobTags::read(&object).is_err(), "{wrong}");
        }
        let recurs = of("cron: \"0,30 9 * * mon\"\nruns: 7\nskipped: 1\nidempotency-key: k\nttl: 60\n");
        let line = object(|json| recurs.write(json));
        let read = JobTags::read(&Object::parse(line.as_bytes(), &MEMBERS, Strays::Refused).expect("an object"));
        let tags = read.expect("a schedule").write_for(&ALL, 1);
        assert_eq!(tags, (" idp:k cron:\"0,30 9 * * mon\" ttl:60".to_owned(), vec![]));
        assert_eq!(of("every: 9\nidempotency-key: k\n").write_for(&ALL, 1).0, " idp:k every:9");
        let wrong = Object::parse(br#"{"cron":"* * * * *\" grp:g"}"#, &MEMBERS, Strays::Refused).expect("an object");
        assert!(JobTags::read(&wrong).is_err());
        let other = of("idempotency-key: u\nunique: id\nprotocol: workq\ntry: 3\n");
        assert_eq!(other.write_for(&ALL, 1), (" idp:u".to_owned(), vec!["unique", "protocol", "try"]));
    }
}
