//! The bodies of OK replies: flat YAML that tools read line by line.
//!
//! Owns the keys, their order and their quotes, which are beanstalkd's (1.13): what it has not stands behind the known
//! keys. Clients compare whole dictionaries, so the statistics of jobs have no other keys, nor those of tubes if nobody
//! wants the extension.

use super::commands::{CommandCounters, CommandName, CommandRow, COMMANDS};
use super::extensions::Extensions;
use crate::engine::{JobCounts, JobId, JobStats, Latency, Span, State, Stats, Time, TubeStats};
use crate::protocol::text::{is_tube_name, push_number};
use crate::protocol::{Host, LogFigures, Output};
use crate::role::RoleFigures;

/// Commands whose counters `stats` shows, as `cmd-NAME`, in beanstalkd's order.
#[rustfmt::skip]
const COUNTED: [CommandName; 21] = {
    use CommandName::*;
    [
        Put, Peek, PeekReady, PeekDelayed, PeekBuried, Reserve, ReserveWithTimeout, Delete, Release, Use, Watch,
        Ignore, Bury, Kick, Touch, Stats, StatsJob, StatsTube, ListTubes, ListTubeUsed, ListTubesWatched,
    ]
};

/// The percentiles that `stats-tube` shows.
const PERCENTS: [u64; 3] = [50, 95, 99];

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

    fn number(&mut self, key: &str, number: u64) {
        self.word(key, itoa::Buffer::new().format(number).as_bytes());
    }

    fn quoted(&mut self, key: &str, text: &[u8]) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b": \"");
        escape(&mut self.0, text);
        self.0.extend_from_slice(b"\"\n");
    }

    fn counter(&mut self, name: CommandName, counters: &CommandCounters) {
        self.0.extend_from_slice(b"cmd-");
        self.number(name.name(), counters.of(name));
    }

    fn jobs(&mut self, jobs: &JobCounts) {
        self.number("current-jobs-urgent", jobs.urgent);
        self.number("current-jobs-ready", jobs.ready);
        self.number("current-jobs-reserved", jobs.reserved);
        self.number("current-jobs-delayed", jobs.delayed);
        self.number("current-jobs-buried", jobs.buried);
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
    if is_tube_name(name) {
        text.extend_from_slice(b"- ");
        text.extend_from_slice(name);
    } else {
        text.extend_from_slice(b"- \"");
        escape(text, name);
        text.push(b'"');
    }
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

/// Appends text between quotes. The name of a tube may be another protocol's, and hold any bytes.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}

pub fn job(job: &JobStats) -> Vec<u8> {
    let mut yaml = Yaml::new(320);
    yaml.number("id", job.id.0);
    yaml.quoted("tube", job.tube);
    yaml.word(
        "state",
        match job.state {
            State::Ready => b"ready",
            State::Delayed => b"delayed",
            State::Reserved => b"reserved",
            State::Buried => b"buried",
            // Never asked for: it is over.
            State::Finished => b"finished",
        },
    );
    yaml.number("pri", job.pri.into());
    yaml.number("age", job.age.secs());
    yaml.number("delay", job.delay.secs());
    yaml.number("ttr", job.ttr.secs());
    yaml.number("time-left", job.left.secs());
    yaml.number("file", 0);
    yaml.number("reserves", job.history.reserves.into());
    yaml.number("timeouts", job.history.timeouts.into());
    yaml.number("releases", job.history.releases.into());
    yaml.number("buries", job.history.buries.into());
    yaml.number("kicks", job.history.kicks.into());
    yaml.0
}

pub fn tube(tube: &TubeStats) -> Vec<u8> {
    plain_tube(tube).0
}

/// The same with the times of its jobs, and the ages of the oldest ready and the oldest buried one.
pub fn tube_with_times(tube: &TubeStats, oldest: [Span; 2]) -> Vec<u8> {
    let mut yaml = plain_tube(tube);
    let none = Latency::default();
    let (wait, run) = tube.times.map_or((&none, &none), |times| (&times.wait, &times.run));
    for (what, latency) in [("queue", wait), ("processing", run)] {
        let mut figure = |key: &str, time: Span| yaml.micros(&format!("{what}-time-{key}"), time.nanos() / 1000);
        figure("ewma", latency.average());
        figure("min", latency.least());
        figure("max", latency.most());
        PERCENTS.iter().for_each(|percent| figure(&format!("p{percent}"), latency.percentile(*percent)));
        yaml.number(&format!("{what}-time-samples"), latency.samples());
    }
    yaml.number("oldest-ready-age", oldest[0].secs());
    yaml.number("oldest-buried-age", oldest[1].secs());
    yaml.0
}

fn plain_tube(tube: &TubeStats) -> Yaml {
    let mut yaml = Yaml::new(1024);
    yaml.quoted("name", tube.name);
    yaml.jobs(&tube.jobs);
    yaml.number("total-jobs", tube.total_jobs);
    yaml.number("current-using", tube.using.into());
    yaml.number("current-watching", tube.watching.into());
    yaml.number("current-waiting", tube.waiting as u64);
    yaml.number("cmd-delete", tube.deletes);
    yaml.number("cmd-pause-tube", tube.pauses);
    yaml.number("pause", tube.pause.secs());
    yaml.number("pause-time-left", tube.pause_left.secs());
    yaml
}

pub fn stats(
    stats: &Stats,
    counters: &CommandCounters,
    host: &dyn Host,
    log: Option<&LogFigures>,
    (extensions, now): (Extensions, Time),
) -> Vec<u8> {
    let mut yaml = Yaml::new(1536);
    yaml.jobs(&stats.jobs);
    COUNTED.iter().for_each(|name| yaml.counter(*name, counters));
    yaml.counter(CommandName::PauseTube, counters);
    yaml.number("job-timeouts", stats.timeouts);
    yaml.number("total-jobs", stats.total_jobs);
    process(&mut yaml, stats, host, log, now);
    yaml.counter(CommandName::ReserveJob, counters);
    yaml.counter(CommandName::KickJob, counters);
    yaml.number("current-memory", stats.memory.total());
    yaml.number("max-memory", stats.max_memory);
    yaml.number("max-connections", host.facts().max_connections as u64);
    yaml.number("rejected-connections", host.usage().rejected_connections);
    yaml.word("binlog-state", log.map_or("off", |log| log.state).as_bytes());
    yaml.number("binlog-records-skipped", log.map_or(0, |log| log.skipped));
    yaml.number("binlog-size", log.map_or(0, |log| log.disk));
    yaml.number("memory-jobs", stats.memory.jobs);
    yaml.number("memory-tubes", stats.memory.tubes);
    yaml.number("memory-watches", stats.memory.watches);
    yaml.number("memory-buffers", stats.memory.buffers);
    yaml.number("failed-auths", host.usage().failed_auths);
    yaml.number("total-expired", stats.evicted);
    host.role().iter().for_each(|figures| role(&mut yaml, figures));
    extended(&mut yaml, counters, extensions);
    yaml.0
}

/// What a server says that is one of several.
fn role(yaml: &mut Yaml, figures: &RoleFigures) {
    yaml.word("role", figures.role.word().as_bytes());
    yaml.number("epoch", figures.epoch);
    yaml.number("journal-entry", figures.entry);
    yaml.number("journal-entries-written", figures.written);
    yaml.number("journal-bytes-written", figures.bytes);
    yaml.number("journal-retries", figures.retries);
    yaml.number("journal-size", figures.used);
    yaml.number("journal-quota", figures.quota);
}

/// What a server without extensions does not say.
fn extended(yaml: &mut Yaml, counters: &CommandCounters, extensions: Extensions) {
    let has = |row: &&CommandRow| row.extension.is_some_and(|extension| extensions.has(extension));
    for row in COMMANDS.iter().filter(has) {
        yaml.number(&format!("cmd-{}", row.word.trim_end()), counters.of(row.name));
    }
    if extensions != Extensions::NONE {
        yaml.quoted("extensions", extensions.words().as_bytes());
    }
}

fn process(yaml: &mut Yaml, stats: &Stats, host: &dyn Host, log: Option<&LogFigures>, now: Time) {
    let (facts, usage) = (host.facts(), host.usage());
    yaml.number("max-job-size", facts.max_job_size.into());
    yaml.number("current-tubes", stats.tubes as u64);
    yaml.number("current-connections", stats.connections as u64);
    yaml.number("current-producers", stats.producers as u64);
    yaml.number("current-workers", stats.workers as u64);
    yaml.number("current-waiting", stats.waiting as u64);
    yaml.number("total-connections", stats.total_connections);
    yaml.number("pid", facts.pid.into());
    yaml.quoted("version", facts.version.as_bytes());
    yaml.micros("rusage-utime", usage.user_micros);
    yaml.micros("rusage-stime", usage.system_micros);
    yaml.number("uptime", now.since(facts.started).secs());
    // Clients demand these keys without a log as well.
    yaml.number("binlog-oldest-index", log.map_or(0, |log| log.oldest));
    yaml.number("binlog-current-index", log.map_or(0, |log| log.current));
    yaml.number("binlog-records-migrated", log.map_or(0, |log| log.migrated));
    yaml.number("binlog-records-written", log.map_or(0, |log| log.written));
    yaml.number("binlog-max-size", log.map_or(10_485_760, |log| log.segment_size));
    yaml.word("draining", if stats.draining { b"true" } else { b"false" });
    yaml.word("id", facts.id.as_bytes());
    yaml.quoted("hostname", facts.hostname.as_bytes());
    yaml.quoted("os", facts.os.as_bytes());
    yaml.quoted("platform", facts.platform.as_bytes());
}
