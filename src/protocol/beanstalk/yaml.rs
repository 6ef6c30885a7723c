//! The bodies of OK replies: flat YAML that tools read line by line.
//!
//! Owns the keys, their order and their quotes, which are beanstalkd's (1.13): what it has not stands behind the known
//! keys. Clients compare whole dictionaries, so the statistics of jobs have no other keys, nor those of tubes if nobody
//! wants the extension.

use super::commands::CommandRow;
use super::extensions::Extensions;
use super::figures::{
    extended_counts, server_figures, tube_times, FigureValue, QueueFigures, JOB_COUNTS, TUBE_FIGURES,
};
use super::tube_settings::written;
use crate::engine::{CompletionPolicy, EndedKey, JobId, JobStats, Span, StoredKey, StoredOptions, Time, TubeStats};
use crate::protocol::text::{push_number, push_quoted, push_tube_name};
use crate::protocol::Output;

/// A body in the making.
struct Yaml(Vec<u8>);

impl Yaml {
    fn new(size: usize) -> Yaml {
        let mut text = Vec::with_capacity(size);
        text.extend_from_slice(b"---\n");
        Yaml(text)
    }

    fn word(&mut self, key: &str, word: &[u8]) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(word);
        self.0.push(b'\n');
    }

    fn figure(&mut self, key: &str, value: FigureValue) {
        match value {
            FigureValue::Number(number) => self.number(key, number),
            FigureValue::Micros(micros) => self.micros(key, micros),
            FigureValue::Truth(value) => self.word(key, if value { b"true" } else { b"false" }),
            FigureValue::Word(word) => self.word(key, word.as_bytes()),
            FigureValue::Text(text) => self.quoted(key, text.as_bytes()),
        }
    }

    fn number(&mut self, key: &str, number: u64) {
        self.word(key, itoa::Buffer::new().format(number).as_bytes());
    }

    /// A number that is shown unless it is 0.
    fn positive(&mut self, key: &str, number: u64) {
        if number > 0 {
            self.number(key, number);
        }
    }

    fn quoted(&mut self, key: &str, text: &[u8]) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b": ");
        push_quoted(&mut self.0, text);
        self.0.push(b'\n');
    }

    fn name(&mut self, key: &str, name: &[u8]) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b": ");
        push_tube_name(&mut self.0, name);
        self.0.push(b'\n');
    }

    fn micros(&mut self, key: &str, micros: u64) {
        let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        self.word(key, text.as_bytes());
    }
}

/// An empty list of names.
pub fn list() -> Output {
    let mut list = Output::new();
    list.text().extend_from_slice(b"---\n");
    list
}

/// One more name in a list; tells how many bytes it takes.
pub fn item(list: &mut Output, name: &[u8]) -> usize {
    let text = list.text();
    let before = text.len();
    text.extend_from_slice(b"- ");
    push_tube_name(text, name);
    text.push(b'\n');
    text.len() - before
}

/// The list that answers `list-jobs`.
pub fn ids(ids: &[JobId]) -> Output {
    let mut list = list();
    let text = list.text();
    for id in ids {
        text.extend_from_slice(b"- ");
        push_number(text, id.0);
        text.push(b'\n');
    }
    list
}

/// What `stats-job` answers: beanstalkd's keys, and behind them what the job has beside them.
pub fn job(job: &JobStats, options: Option<&StoredOptions>, now: Time) -> Vec<u8> {
    let mut yaml = Yaml::new(320);
    yaml.number("id", job.id.0);
    yaml.quoted("tube", job.tube);
    yaml.word("state", job.state.word().as_bytes());
    yaml.number("pri", job.pri.into());
    yaml.number("age", job.age.secs());
    yaml.number("delay", job.delay.secs());
    yaml.number("ttr", job.ttr.secs());
    yaml.number("time-left", job.left.secs());
    yaml.number("file", 0);
    JOB_COUNTS.iter().for_each(|row| yaml.number(row.name, (row.of)(&job.history).into()));
    marks(&mut yaml, job, options, now);
    yaml.0
}

/// What only some jobs have: by their tags, by the protocol that they came by, and by their failures.
fn marks(yaml: &mut Yaml, job: &JobStats, options: Option<&StoredOptions>, now: Time) {
    if let Some(options) = options {
        match options.dedup_key {
            StoredKey::Kept(name) => yaml.name("idempotency-key", name.key()),
            StoredKey::Name(name) => yaml.name("idempotency-key", name),
            StoredKey::Body => yaml.word("unique", b"body"),
            StoredKey::Id(_) => yaml.word("unique", b"id"),
            StoredKey::None => {}
        }
        yaml.positive("idempotency-ttl", options.keep.into());
        if let (StoredKey::Kept(name), most) = options.concurrency {
            yaml.name("concurrency-key", name.key());
            yaml.number("concurrency-limit", most.into());
        }
        yaml.positive("try", options.max_attempts.into());
    }
    if let Some(left) = job.tries_left {
        yaml.number("tries-left", left.into());
    }
    if let Some(options) = options {
        yaml.positive("backoff", options.backoff.into());
        yaml.positive("max-fails", options.max_fails.into());
        if options.expires != Time::NEVER {
            yaml.number("expires-in", options.expires.since(now).nanos().div_ceil(1_000_000_000));
        }
    }
    yaml.positive("fails", job.fails.into());
    match options.map(|options| options.completion) {
        Some(CompletionPolicy::Tell) => yaml.word("protocol", b"gearman"),
        Some(CompletionPolicy::Keep) => yaml.word("protocol", b"workq"),
        Some(CompletionPolicy::Drop) | None => {}
    }
    if let Some(tube) = job.dead_from {
        yaml.name("dead-from", tube);
    }
    if let Some(reason) = options.map(|options| options.reason).filter(|reason| !reason.is_empty()) {
        yaml.quoted("last-error", reason);
    }
}

/// One more key in the list that answers `list-keys`.
pub fn ended_key(list: &mut Output, number: u32, ended: &EndedKey, now: Time) {
    let text = list.text();
    let left = ended.until.since(now).nanos().div_ceil(1_000_000_000);
    text.extend_from_slice(format!("- [{number}, {left}, ").as_bytes());
    push_quoted(text, &ended.tube);
    text.extend_from_slice(b", ");
    push_quoted(text, ended.key.key());
    text.extend_from_slice(b"]\n");
}

pub fn tube(tube: &TubeStats) -> Vec<u8> {
    let mut yaml = plain_tube(tube);
    show_settings(&mut yaml, tube);
    yaml.0
}

/// What only tubes with settings have.
fn show_settings(yaml: &mut Yaml, tube: &TubeStats) {
    if let Some(settings) = tube.settings {
        yaml.quoted("settings", &written(settings));
    }
}

/// The same with the times of its jobs, the ages of the oldest ones, and what happened to them.
pub fn tube_with_times(tube: &TubeStats, oldest: [Span; 3]) -> Vec<u8> {
    let mut yaml = plain_tube(tube);
    tube_times(tube, oldest, |key, value| yaml.figure(key, value));
    show_settings(&mut yaml, tube);
    yaml.0
}

/// Adds the statistics of a tube, without its times, to the list that answers `stats-tubes`, and returns the number of
/// bytes added.
pub fn tube_item(list: &mut Output, tube: &TubeStats) -> usize {
    let lines = self::tube(tube);
    let text = list.text();
    let before = text.len();
    for (place, line) in lines.split_inclusive(|&byte| byte == b'\n').skip(1).enumerate() {
        text.extend_from_slice(if place == 0 { b"- " } else { b"  " });
        text.extend_from_slice(line);
    }
    text.len() - before
}

fn plain_tube(tube: &TubeStats) -> Yaml {
    let mut yaml = Yaml::new(1024);
    yaml.quoted("name", tube.name);
    TUBE_FIGURES.iter().for_each(|row| yaml.number(row.name, (row.of)(tube)));
    yaml
}

/// Of a server that offers these extensions.
pub fn stats(figures: &QueueFigures, extensions: Extensions) -> Vec<u8> {
    let mut yaml = Yaml::new(2048);
    server_figures(figures, |key, value| yaml.figure(key, value));
    let offered = |row: &CommandRow| row.extension.is_some_and(|extension| extensions.has(extension));
    extended_counts(figures, offered).for_each(|(key, count)| yaml.number(&key, count));
    if extensions != Extensions::NONE {
        yaml.quoted("extensions", extensions.words().as_bytes());
    }
    yaml.0
}
