//! Statistics of the server, of tubes and of jobs.
//!
//! Owns the keys and their order. The beanstalk protocol and the HTTP API show the same statistics. Must not format
//! values.

use super::commands::{CommandName, CommandRow, COMMANDS};
use crate::engine::{History, Latency, Span, Stats, TubeStats};
use crate::protocol::{CommandCounters, CommandId, Context, Facts, Usage, Wire};
use crate::shared::log_figures::LogFigures;
use crate::shared::role::RoleFigures;

pub struct QueueFigures<'a> {
    /// Excludes HTTP connections from the counts.
    pub stats: Stats,
    pub role: Option<RoleFigures>,
    pub counters: &'a CommandCounters,
    pub facts: &'a Facts,
    pub usage: Usage,
    pub log: Option<LogFigures>,
    /// Seconds since the server started.
    pub uptime: u64,
    /// Failed tries in the last hour.
    pub failures: u64,
    pub paused: u64,
    /// Schedules whose last run was skipped.
    pub late: u64,
    /// Connections of each protocol, in the order of `Wire::ALL`.
    pub connections: [u64; Wire::ALL.len()],
}

impl<'a> QueueFigures<'a> {
    /// `stats` counts only what the client may view.
    pub fn of(stats: Stats, context: &'a Context) -> QueueFigures<'a> {
        let facts = context.host.facts();
        let engine = &context.engine;
        let failures = engine.past().points().map(|point| point.failed).sum();
        let problems = [failures, engine.paused_tubes() as u64, engine.late_schedules() as u64];
        // These numbers cover all tubes.
        let [failures, paused, late] = if context.sees_all() { problems } else { [0; 3] };
        QueueFigures {
            stats,
            role: context.host.role(),
            counters: context.counters,
            facts,
            usage: context.host.usage(),
            log: context.log,
            uptime: context.now.since(facts.started).secs(),
            failures,
            paused,
            late,
            connections: Wire::ALL.map(|wire| context.registry.count(wire) as u64),
        }
    }
}

/// The variant determines the format of the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FigureValue<'a> {
    Number(u64),
    Micros(u64),
    Truth(bool),
    /// Text that never needs quotes.
    Word(&'a [u8]),
    /// Quoted if beanstalkd does not allow the name.
    Name(&'a [u8]),
    Text(&'a [u8]),
}

pub struct Figure<F> {
    pub name: &'static str,
    pub of: F,
}

pub type OfServer = for<'a> fn(&'a QueueFigures) -> FigureValue<'a>;

pub type OfRole = for<'a> fn(&'a RoleFigures) -> FigureValue<'a>;

pub type TubeFigure = fn(&TubeStats) -> u64;

pub type OfHistory = fn(&History) -> u32;

const fn row<F: Copy>(name: &'static str, of: F) -> Figure<F> {
    Figure { name, of }
}

use FigureValue::{Micros, Number, Text, Truth, Word};

/// Clients require beanstalkd's binlog keys even without a binlog. Other keys follow at the end.
#[rustfmt::skip]
pub const SERVER_FIGURES: [Figure<OfServer>; 72] = [
    row("current-jobs-urgent", |it| Number(it.stats.jobs.urgent)),
    row("current-jobs-ready", |it| Number(it.stats.jobs.ready)),
    row("current-jobs-reserved", |it| Number(it.stats.jobs.reserved)),
    row("current-jobs-delayed", |it| Number(it.stats.jobs.delayed)),
    row("current-jobs-buried", |it| Number(it.stats.jobs.buried)),
    row("cmd-put", |it| count(it, CommandName::Put)),
    row("cmd-peek", |it| count(it, CommandName::Peek)),
    row("cmd-peek-ready", |it| count(it, CommandName::PeekReady)),
    row("cmd-peek-delayed", |it| count(it, CommandName::PeekDelayed)),
    row("cmd-peek-buried", |it| count(it, CommandName::PeekBuried)),
    row("cmd-reserve", |it| count(it, CommandName::Reserve)),
    row("cmd-reserve-with-timeout", |it| count(it, CommandName::ReserveWithTimeout)),
    row("cmd-delete", |it| count(it, CommandName::Delete)),
    row("cmd-release", |it| count(it, CommandName::Release)),
    row("cmd-use", |it| count(it, CommandName::Use)),
    row("cmd-watch", |it| count(it, CommandName::Watch)),
    row("cmd-ignore", |it| count(it, CommandName::Ignore)),
    row("cmd-bury", |it| count(it, CommandName::Bury)),
    row("cmd-kick", |it| count(it, CommandName::Kick)),
    row("cmd-touch", |it| count(it, CommandName::Touch)),
    row("cmd-stats", |it| count(it, CommandName::Stats)),
    row("cmd-stats-job", |it| count(it, CommandName::StatsJob)),
    row("cmd-stats-tube", |it| count(it, CommandName::StatsTube)),
    row("cmd-list-tubes", |it| count(it, CommandName::ListTubes)),
    row("cmd-list-tube-used", |it| count(it, CommandName::ListTubeUsed)),
    row("cmd-list-tubes-watched", |it| count(it, CommandName::ListTubesWatched)),
    row("cmd-pause-tube", |it| count(it, CommandName::PauseTube)),
    row("job-timeouts", |it| Number(it.stats.timeouts)),
    row("total-jobs", |it| Number(it.stats.total_jobs)),
    row("max-job-size", |it| Number(it.facts.max_job_size.into())),
    row("current-tubes", |it| Number(it.stats.tubes as u64)),
    row("current-connections", |it| Number(it.stats.connections as u64)),
    row("current-producers", |it| Number(it.stats.producers as u64)),
    row("current-workers", |it| Number(it.stats.workers as u64)),
    row("current-waiting", |it| Number(it.stats.waiting as u64)),
    row("total-connections", |it| Number(it.stats.total_connections)),
    row("pid", |it| Number(it.facts.pid.into())),
    row("version", |it| Text(it.facts.version.as_bytes())),
    row("rusage-utime", |it| Micros(it.usage.user_micros)),
    row("rusage-stime", |it| Micros(it.usage.system_micros)),
    row("uptime", |it| Number(it.uptime)),
    row("binlog-oldest-index", |it| Number(it.log.map_or(0, |log| log.oldest))),
    row("binlog-current-index", |it| Number(it.log.map_or(0, |log| log.current))),
    row("binlog-records-migrated", |it| Number(it.log.map_or(0, |log| log.migrated))),
    row("binlog-records-written", |it| Number(it.log.map_or(0, |log| log.written))),
    row("binlog-max-size", |it| Number(it.log.map_or(10_485_760, |log| log.segment_size))),
    row("draining", |it| Truth(it.stats.draining)),
    row("id", |it| Word(it.facts.id.as_bytes())),
    row("hostname", |it| Text(it.facts.hostname.as_bytes())),
    row("os", |it| Text(it.facts.os.as_bytes())),
    row("platform", |it| Text(it.facts.platform.as_bytes())),
    row("cmd-reserve-job", |it| count(it, CommandName::ReserveJob)),
    row("cmd-kick-job", |it| count(it, CommandName::KickJob)),
    row("current-memory", |it| Number(it.stats.memory.total())),
    row("max-memory", |it| Number(it.stats.max_memory)),
    row("max-connections", |it| Number(it.facts.max_connections as u64)),
    row("rejected-connections", |it| Number(it.usage.rejected_connections)),
    row("binlog-state", |it| Word(it.log.map_or("off", |log| log.health.word()).as_bytes())),
    row("binlog-records-skipped", |it| Number(it.log.map_or(0, |log| log.skipped))),
    row("binlog-segments-lost", |it| Number(it.log.map_or(0, |log| log.lost))),
    row("binlog-size", |it| Number(it.log.map_or(0, |log| log.disk))),
    row("memory-jobs", |it| Number(it.stats.memory.jobs)),
    row("memory-tubes", |it| Number(it.stats.memory.tubes)),
    row("memory-watches", |it| Number(it.stats.memory.watches)),
    row("memory-history", |it| Number(it.stats.memory.history)),
    row("memory-buffers", |it| Number(it.stats.memory.buffers)),
    row("failed-auths", |it| Number(it.usage.failed_auths)),
    row("dropped-connections", |it| Number(it.usage.dropped_connections)),
    row("total-expired", |it| Number(it.stats.evicted)),
    row("failures-last-hour", |it| Number(it.failures)),
    row("paused-tubes", |it| Number(it.paused)),
    row("late-schedules", |it| Number(it.late)),
];

pub const ROLE_FIGURES: [Figure<OfRole>; 8] = [
    row("role", |it| Word(it.role.word().as_bytes())),
    row("epoch", |it| Number(it.epoch)),
    row("journal-entry", |it| Number(it.entry)),
    row("journal-entries-written", |it| Number(it.written)),
    row("journal-bytes-written", |it| Number(it.bytes)),
    row("journal-retries", |it| Number(it.retries)),
    row("journal-size", |it| Number(it.used)),
    row("journal-quota", |it| Number(it.quota)),
];

#[rustfmt::skip]
pub const TUBE_FIGURES: [Figure<TubeFigure>; 13] = [
    row("current-jobs-urgent", |it| it.jobs.urgent),
    row("current-jobs-ready", |it| it.jobs.ready),
    row("current-jobs-reserved", |it| it.jobs.reserved),
    row("current-jobs-delayed", |it| it.jobs.delayed),
    row("current-jobs-buried", |it| it.jobs.buried),
    row("total-jobs", |it| it.total_jobs),
    row("current-using", |it| it.using.into()),
    row("current-watching", |it| it.watching.into()),
    row("current-waiting", |it| it.waiting as u64),
    row("cmd-delete", |it| it.deletes),
    row("cmd-pause-tube", |it| it.pauses),
    row("pause", |it| it.pause.secs()),
    row("pause-time-left", |it| it.pause_left.secs()),
];

pub const JOB_COUNTS: [Figure<OfHistory>; 5] = [
    row("reserves", |it| it.reserves),
    row("timeouts", |it| it.timeouts),
    row("releases", |it| it.releases),
    row("buries", |it| it.buries),
    row("kicks", |it| it.kicks),
];

/// Omits the counts of commands that beanstalkd does not have.
pub fn server_figures<'a>(figures: &'a QueueFigures, mut each: impl FnMut(&str, FigureValue<'a>)) {
    SERVER_FIGURES.iter().for_each(|row| each(row.name, (row.of)(figures)));
    if let Some(role) = &figures.role {
        ROLE_FIGURES.iter().for_each(|row| each(row.name, (row.of)(role)));
    }
}

const PERCENTS: [u64; 3] = [50, 95, 99];

/// `oldest` contains the ages of the oldest ready, delayed and buried jobs.
pub fn tube_times(tube: &TubeStats, oldest: [Span; 3], mut each: impl FnMut(&str, FigureValue<'static>)) {
    let none = Latency::default();
    let (wait, run) = tube.times.map_or((&none, &none), |times| (&times.wait, &times.run));
    for (what, latency) in [("queue", wait), ("processing", run)] {
        let mut figure = |key: &str, time: Span| each(&format!("{what}-time-{key}"), Micros(time.nanos() / 1000));
        figure("ewma", latency.average);
        figure("min", latency.min());
        figure("max", latency.max);
        PERCENTS.iter().for_each(|percent| figure(&format!("p{percent}"), latency.percentile(*percent)));
        each(&format!("{what}-time-samples"), Number(latency.samples()));
    }
    each("oldest-ready-age", Number(oldest[0].secs()));
    each("oldest-delayed-age", Number(oldest[1].secs()));
    each("oldest-buried-age", Number(oldest[2].secs()));
    let events = tube.times.map(|times| times.events).unwrap_or_default();
    each("timeouts", Number(events.timeouts));
    each("releases", Number(events.releases));
    each("buries", Number(events.buries));
}

fn count<'a>(figures: &QueueFigures, name: CommandName) -> FigureValue<'a> {
    Number(figures.counters.of(CommandId::beanstalk(name)))
}

/// Returns the counts of extended commands that `offered` accepts.
pub fn extended_counts<'a>(
    figures: &'a QueueFigures,
    offered: impl Fn(&CommandRow) -> bool + 'a,
) -> impl Iterator<Item = (String, u64)> + 'a {
    let rows = COMMANDS.iter().filter(|row| row.extension.is_some()).filter(move |row| offered(row));
    rows.map(|row| (format!("cmd-{}", row.word.trim_end()), figures.counters.of(CommandId::beanstalk(row.name))))
}
