//! Replies in YAML format, compatible with beanstalkd 1.13. Some clients compare all statistics of a job or tube, so a
//! job or tube that uses no extensions has only beanstalkd's keys.

use super::command::PartialList;
use super::extensions::{tube_settings, Extensions};
use super::figures::{extended_counts, server_figures, tube_times, QueueFigures, TUBE_FIGURES};
use crate::engine::{
    CompletionPolicy, EndedKey, GroupStats, History, JobId, JobStats, Span, State, StoredKey, StoredOptions, Time,
    TubeStats,
};
use crate::protocol::text::{push_number, push_quoted, push_tube_name, whole_number};
use crate::protocol::{show_optional, FigureValue, Output};

struct Yaml(Vec<u8>);

impl Yaml {
    fn new(size: usize) -> Yaml {
        let mut text = Vec::with_capacity(size);
        text.extend_from_slice(b"---\n");
        Yaml(text)
    }

    fn line(&mut self, key: &str, push: impl FnOnce(&mut Vec<u8>)) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b": ");
        push(&mut self.0);
        self.0.push(b'\n');
    }

    fn figure(&mut self, key: &str, value: FigureValue) {
        self.line(key, |text| match value {
            FigureValue::Number(number) => push_number(text, number),
            FigureValue::Micros(micros) => {
                text.extend_from_slice(format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000).as_bytes());
            }
            FigureValue::Truth(value) => text.extend_from_slice(if value { b"true" } else { b"false" }),
            FigureValue::Word(word) => text.extend_from_slice(word),
            FigureValue::Name(name) => push_tube_name(text, name),
            FigureValue::Text(quoted) => push_quoted(text, quoted),
        });
    }

    fn number(&mut self, key: &str, number: u64) {
        self.figure(key, FigureValue::Number(number));
    }

    fn positive(&mut self, key: &str, number: u64) {
        if number > 0 {
            self.number(key, number);
        }
    }
}

/// Returns the number of added bytes.
pub fn item(list: &mut Output, name: &[u8]) -> usize {
    let text = list.text();
    let before = text.len();
    text.extend_from_slice(b"- ");
    push_tube_name(text, name);
    text.push(b'\n');
    text.len() - before
}

pub fn ids(ids: &[JobId]) -> Output {
    let mut list = PartialList::new(0).text;
    ids.iter().for_each(|id| list.text().extend_from_slice(format!("- {}\n", id.0).as_bytes()));
    list
}

pub fn job(job: &JobStats, options: Option<&StoredOptions>, now: Time) -> Vec<u8> {
    let mut yaml = Yaml::new(320);
    job_figures(job, options, now, &mut |key, value| {
        yaml.figure(key, value);
        if key == "time-left" {
            yaml.number("file", 0);
        }
    });
    yaml.0
}

pub fn object(list: &mut Output, fill: impl FnOnce(Show)) -> usize {
    let mut lines = Yaml::new(512);
    fill(&mut |key, value| lines.figure(key, value));
    push_item(list, &lines.0)
}

pub type Show<'a> = &'a mut dyn FnMut(&'static str, FigureValue);

pub fn job_figures(job: &JobStats, options: Option<&StoredOptions>, now: Time, show: Show) {
    use FigureValue::{Number, Text, Word};
    show("id", Number(job.id.0));
    show("tube", Text(job.tube));
    show("state", Word(job.state.word().as_bytes()));
    show("pri", Number(job.pri.into()));
    let times = [("age", job.age), ("delay", job.delay), ("ttr", job.ttr), ("time-left", job.left)];
    times.into_iter().for_each(|(key, time)| show(key, Number(time.secs())));
    let History { reserves, timeouts, releases, buries, kicks } = job.history;
    let keys = ["reserves", "timeouts", "releases", "buries", "kicks"];
    let counts = keys.into_iter().zip([reserves, timeouts, releases, buries, kicks]);
    counts.for_each(|(key, count)| show(key, Number(count.into())));
    optional_figures(job, options, now, show);
}

fn optional_figures(job: &JobStats, options: Option<&StoredOptions>, now: Time, show: Show) {
    use FigureValue::{Name, Number, Text, Word};
    fn positive(key: &'static str, number: u64, show: Show) {
        show_optional(key, (number > 0).then_some(Number(number)), show);
    }
    if let Some(schedule) = options.and_then(|options| options.schedule.as_ref()) {
        match whole_number(schedule.when) {
            Some(seconds) => show("every", Number(seconds)),
            None => show("cron", Text(schedule.when)),
        }
        show("runs", Number(schedule.count.runs.into()));
        show("skipped", Number(schedule.count.skipped.into()));
    }
    positive("missed", job.missed.into(), show);
    show_optional("blocked-by", job.blocked_by.map(|id| Number(id.0)), show);
    if let Some(options) = options {
        match options.dedup_key {
            StoredKey::Kept(name) => show("idempotency-key", Name(&name.text())),
            StoredKey::Name(name) => show("idempotency-key", Name(name)),
            StoredKey::Body => show("unique", Word(b"body")),
            StoredKey::Id(_) => show("unique", Word(b"id")),
            StoredKey::None => {}
        }
        positive("idempotency-ttl", options.keep.into(), show);
        if let (StoredKey::Kept(name), limit) = options.concurrency {
            show("concurrency-key", Name(&name.text()));
            show("concurrency-limit", Number(limit.into()));
        }
        for (key, groups) in [("group", groups(options, true)), ("after-group", groups(options, false))] {
            if !groups.is_empty() {
                show(key, Word(&groups));
            }
        }
        positive("try", options.max_attempts.into(), show);
    }
    show_optional("tries-left", job.tries_left.map(|left| Number(left.into())), show);
    if let Some(options) = options {
        positive("backoff", options.backoff.into(), show);
        positive("max-fails", options.max_fails.into(), show);
        if options.schedule.is_some() && options.ttl != Span::MAX {
            show("ttl", Number(options.ttl.secs()));
        }
        if options.expires != Time::NEVER {
            show("expires-in", Number(options.expires.since(now).nanos().div_ceil(1_000_000_000)));
        }
    }
    positive("fails", job.fails.into(), show);
    match options.map(|options| options.completion) {
        Some(CompletionPolicy::Tell) => show("protocol", Word(b"gearman")),
        Some(CompletionPolicy::Keep) => show("protocol", Word(b"workq")),
        Some(CompletionPolicy::Drop) | None => {}
    }
    show_optional("reducer", options.and_then(|options| options.reducer).map(Name), show);
    show_optional("dead-from", job.dead_from.map(Name), show);
    show_optional("holder", job.holder.map(|holder| Number(holder.into())), show);
    let progress = job.progress.map(|(done, total)| format!("{done}/{total}"));
    show_optional("progress", progress.as_ref().map(|progress| Word(progress.as_bytes())), show);
    let reason = options.map(|options| options.reason).filter(|reason| !reason.is_empty());
    show_optional("last-error", reason.map(Text), show);
}

/// Returns a comma-separated list of the groups that the job belongs to (`of_member`) or waits for.
fn groups(options: &StoredOptions, of_member: bool) -> Vec<u8> {
    let mut names = Vec::new();
    for tie in options.ties.iter().filter(|tie| tie.need.is_none() == of_member) {
        names.extend_from_slice(&tie.name);
        if tie.need.is_some_and(|need| need > 0) {
            names.push(b':');
            push_number(&mut names, tie.left.into());
        }
        names.push(b',');
    }
    names.pop();
    names
}

/// The keys up to `waiting-jobs` are the same as in replies of the work queue Tuber.
pub fn group(name: &[u8], group: &GroupStats) -> Vec<u8> {
    let mut yaml = Yaml::new(256);
    yaml.figure("name", FigureValue::Text(name));
    yaml.number("pending", group.pending());
    yaml.number("buried", group.members_in(State::Buried));
    yaml.figure("complete", FigureValue::Truth(group.pending() == 0));
    yaml.number("waiting-jobs", group.waiting);
    for state in [State::Ready, State::Reserved, State::Delayed, State::Held] {
        yaml.number(state.word(), group.members_in(state));
    }
    yaml.number("deleted", group.ended);
    yaml.0
}

pub fn ended_key(list: &mut Output, number: u32, ended: &EndedKey, now: Time) {
    let text = list.text();
    let left = ended.until.since(now).nanos().div_ceil(1_000_000_000);
    text.extend_from_slice(format!("- [{number}, {left}, ").as_bytes());
    push_quoted(text, &ended.tube);
    text.extend_from_slice(b", ");
    push_quoted(text, &ended.key.text());
    text.extend_from_slice(b"]\n");
}

pub fn tube(tube: &TubeStats, oldest: Option<[Span; 3]>) -> Vec<u8> {
    let mut yaml = Yaml::new(1024);
    yaml.figure("name", FigureValue::Text(tube.name));
    TUBE_FIGURES.iter().for_each(|(name, of)| yaml.number(name, of(tube)));
    oldest.into_iter().for_each(|oldest| tube_times(tube, oldest, |key, value| yaml.figure(key, value)));
    yaml.positive("current-jobs-held", tube.jobs.held);
    yaml.positive("current-jobs-scheduled", tube.jobs.scheduled);
    tube.settings.into_iter().for_each(|it| yaml.figure("settings", FigureValue::Text(&tube_settings(it))));
    yaml.0
}

/// Adds the dictionary `lines` to the list, without the first line, `---`. Returns the number of added bytes.
pub fn push_item(list: &mut Output, lines: &[u8]) -> usize {
    let text = list.text();
    let before = text.len();
    for (index, line) in lines.split_inclusive(|&byte| byte == b'\n').skip(1).enumerate() {
        text.extend_from_slice(if index == 0 { b"- " } else { b"  " });
        text.extend_from_slice(line);
    }
    text.len() - before
}

pub fn stats(figures: &QueueFigures, extensions: Extensions) -> Vec<u8> {
    let mut yaml = Yaml::new(2048);
    server_figures(figures, |key, value| yaml.figure(key, value));
    extended_counts(figures, extensions).for_each(|(key, count)| yaml.number(&key, count));
    yaml.positive("current-jobs-held", figures.stats.jobs.held);
    yaml.positive("current-jobs-scheduled", figures.stats.jobs.scheduled);
    if extensions != Extensions::NONE {
        yaml.figure("extensions", FigureValue::Text(extensions.words().as_bytes()));
    }
    yaml.0
}
