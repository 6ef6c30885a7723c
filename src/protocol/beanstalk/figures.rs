//! Statistics of the server, of tubes and of jobs, for the beanstalk protocol and the HTTP API: keys, order and values.

use super::commands::{CommandName, COMMANDS};
use super::extensions::Extensions;
use crate::engine::{Latency, Span, Stats, TubeStats};
use crate::protocol::{CommandCounters, CommandId, Context, Facts, FigureValue, Usage, Wire};
use crate::shared::log_figures::LogFigures;
use crate::shared::role::RoleFigures;

pub struct QueueFigures<'a> {
    pub stats: Stats,
    pub role: Option<RoleFigures>,
    pub counters: &'a CommandCounters,
    pub facts: &'a Facts,
    pub usage: Usage,
    pub log: Option<LogFigures>,
    pub uptime: u64,
    /// Failed tries in the last hour.
    pub failures: u64,
    pub paused: u64,
    /// Schedules whose last run was skipped.
    pub late: u64,
    pub connections: [u64; Wire::ALL.len()],
}

impl<'a> QueueFigures<'a> {
    /// `stats` counts only what the client may view.
    pub fn of(stats: Stats, context: &'a Context) -> QueueFigures<'a> {
        let facts = context.host.facts();
        let engine = &context.engine;
        let failures = engine.past().points().map(|point| point.failed).sum();
        let problems = [failures, engine.paused_tubes() as u64, engine.schedule_counts()[2]];
        // These numbers cover all tubes, so a client without the right to see all tubes gets 0.
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
            connections: context.registry.counts.map(|count| count as u64),
        }
    }
}

type OfServer = for<'a> fn(&'a QueueFigures) -> FigureValue<'a>;
type OfTube = fn(&TubeStats) -> u64;

use FigureValue::{Micros, Number, Text, Truth, Word};

/// Clients require beanstalkd's binlog keys even without a binlog. Keys that beanstalkd lacks come last.
#[rustfmt::skip]
pub const SERVER_FIGURES: [(&str, OfServer); 73] = [
    ("current-jobs-urgent", |it| Number(it.stats.jobs.urgent)),
    ("current-jobs-ready", |it| Number(it.stats.jobs.ready)),
    ("current-jobs-reserved", |it| Number(it.stats.jobs.reserved)),
    ("current-jobs-delayed", |it| Number(it.stats.jobs.delayed)),
    ("current-jobs-buried", |it| Number(it.stats.jobs.buried)),
    ("cmd-put", |it| count(it, CommandName::Put)),
    ("cmd-peek", |it| count(it, CommandName::Peek)),
    ("cmd-peek-ready", |it| count(it, CommandName::PeekReady)),
    ("cmd-peek-delayed", |it| count(it, CommandName::PeekDelayed)),
    ("cmd-peek-buried", |it| count(it, CommandName::PeekBuried)),
    ("cmd-reserve", |it| count(it, CommandName::Reserve)),
    ("cmd-reserve-with-timeout", |it| count(it, CommandName::ReserveWithTimeout)),
    ("cmd-delete", |it| count(it, CommandName::Delete)),
    ("cmd-release", |it| count(it, CommandName::Release)),
    ("cmd-use", |it| count(it, CommandName::Use)),
    ("cmd-watch", |it| count(it, CommandName::Watch)),
    ("cmd-ignore", |it| count(it, CommandName::Ignore)),
    ("cmd-bury", |it| count(it, CommandName::Bury)),
    ("cmd-kick", |it| count(it, CommandName::Kick)),
    ("cmd-touch", |it| count(it, CommandName::Touch)),
    ("cmd-stats", |it| count(it, CommandName::Stats)),
    ("cmd-stats-job", |it| count(it, CommandName::StatsJob)),
    ("cmd-stats-tube", |it| count(it, CommandName::StatsTube)),
    ("cmd-list-tubes", |it| count(it, CommandName::ListTubes)),
    ("cmd-list-tube-used", |it| count(it, CommandName::ListTubeUsed)),
    ("cmd-list-tubes-watched", |it| count(it, CommandName::ListTubesWatched)),
    ("cmd-pause-tube", |it| count(it, CommandName::PauseTube)),
    ("job-timeouts", |it| Number(it.stats.timeouts)),
    ("total-jobs", |it| Number(it.stats.total_jobs)),
    ("max-job-size", |it| Number(it.facts.max_job_size.into())),
    ("current-tubes", |it| Number(it.stats.tubes as u64)),
    ("current-connections", |it| Number(it.stats.connections as u64)),
    ("current-producers", |it| Number(it.stats.producers as u64)),
    ("current-workers", |it| Number(it.stats.workers as u64)),
    ("current-waiting", |it| Number(it.stats.waiting as u64)),
    ("total-connections", |it| Number(it.stats.total_connections)),
    ("pid", |it| Number(it.facts.pid.into())),
    ("version", |it| Text(it.facts.version.as_bytes())),
    ("rusage-utime", |it| Micros(it.usage.user_micros)),
    ("rusage-stime", |it| Micros(it.usage.system_micros)),
    ("uptime", |it| Number(it.uptime)),
    ("binlog-oldest-index", |it| Number(it.log.map_or(0, |log| log.oldest))),
    ("binlog-current-index", |it| Number(it.log.map_or(0, |log| log.current))),
    ("binlog-records-migrated", |it| Number(it.log.map_or(0, |log| log.migrated))),
    ("binlog-records-written", |it| Number(it.log.map_or(0, |log| log.written))),
    ("binlog-max-size", |it| Number(it.log.map_or(10_485_760, |log| log.segment_size))),
    ("draining", |it| Truth(it.stats.draining)),
    ("id", |it| Word(it.facts.id.as_bytes())),
    ("hostname", |it| Text(it.facts.hostname.as_bytes())),
    ("os", |it| Text(it.facts.os.as_bytes())),
    ("platform", |it| Text(it.facts.platform.as_bytes())),
    ("cmd-reserve-job", |it| count(it, CommandName::ReserveJob)),
    ("cmd-kick-job", |it| count(it, CommandName::KickJob)),
    ("current-memory", |it| Number(it.stats.memory.total())),
    ("max-memory", |it| Number(it.stats.max_memory)),
    ("max-connections", |it| Number(it.facts.max_connections as u64)),
    ("rejected-connections", |it| Number(it.usage.rejected_connections)),
    ("binlog-state", |it| Word(it.log.map_or("off", |log| log.health.word()).as_bytes())),
    ("binlog-records-skipped", |it| Number(it.log.map_or(0, |log| log.skipped))),
    ("binlog-segments-lost", |it| Number(it.log.map_or(0, |log| log.lost))),
    ("binlog-segments-stuck", |it| Number(it.log.map_or(0, |log| log.stuck))),
    ("binlog-size", |it| Number(it.log.map_or(0, |log| log.disk))),
    ("memory-jobs", |it| Number(it.stats.memory.jobs)),
    ("memory-tubes", |it| Number(it.stats.memory.tubes)),
    ("memory-watches", |it| Number(it.stats.memory.watches)),
    ("memory-history", |it| Number(it.stats.memory.history)),
    ("memory-buffers", |it| Number(it.stats.memory.buffers)),
    ("failed-auths", |it| Number(it.usage.failed_auths)),
    ("dropped-connections", |it| Number(it.usage.dropped_connections)),
    ("total-expired", |it| Number(it.stats.evicted)),
    ("failures-last-hour", |it| Number(it.failures)),
    ("paused-tubes", |it| Number(it.paused)),
    ("late-schedules", |it| Number(it.late)),
];

#[rustfmt::skip]
pub const TUBE_FIGURES: [(&str, OfTube); 13] = [
    ("current-jobs-urgent", |it| it.jobs.urgent),
    ("current-jobs-ready", |it| it.jobs.ready),
    ("current-jobs-reserved", |it| it.jobs.reserved),
    ("current-jobs-delayed", |it| it.jobs.delayed),
    ("current-jobs-buried", |it| it.jobs.buried),
    ("total-jobs", |it| it.total_jobs),
    ("current-using", |it| it.using.into()),
    ("current-watching", |it| it.watching.into()),
    ("current-waiting", |it| it.waiting as u64),
    ("cmd-delete", |it| it.deletes),
    ("cmd-pause-tube", |it| it.pauses),
    ("pause", |it| it.pause.secs()),
    ("pause-time-left", |it| it.pause_left.secs()),
];

/// Omits the counts of commands that beanstalkd does not have.
pub fn server_figures<'a>(figures: &'a QueueFigures, mut each: impl FnMut(&str, FigureValue<'a>)) {
    SERVER_FIGURES.iter().for_each(|(name, of)| each(name, of(figures)));
    let Some(role) = &figures.role else { return };
    each("role", Word(role.role.word().as_bytes()));
    let numbers = [
        ("epoch", role.epoch),
        ("journal-entry", role.entry),
        ("journal-entries-written", role.written),
        ("journal-bytes-written", role.bytes),
        ("journal-retries", role.retries),
        ("journal-size", role.used),
        ("journal-quota", role.quota),
    ];
    numbers.into_iter().for_each(|(name, number)| each(name, Number(number)));
}

/// `oldest` contains the ages of the oldest ready, delayed and buried jobs.
pub fn tube_times(tube: &TubeStats, oldest: [Span; 3], mut each: impl FnMut(&str, FigureValue<'static>)) {
    let none = Latency::default();
    let (wait, run) = tube.times.map_or((&none, &none), |times| (&times.wait, &times.run));
    for (what, latency) in [("queue", wait), ("processing", run)] {
        let mut figure = |key: &str, time: Span| each(&format!("{what}-time-{key}"), Micros(time.nanos() / 1000));
        figure("ewma", latency.average);
        figure("min", latency.min());
        figure("max", latency.max);
        [50, 95, 99].iter().for_each(|percent| figure(&format!("p{percent}"), latency.percentile(*percent)));
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
    Number(figures.counters.of(CommandId::new(0, name as usize)))
}

pub fn extended_counts<'a>(figures: &'a QueueFigures, offered: Extensions) -> impl Iterator<Item = (String, u64)> + 'a {
    let rows = COMMANDS.iter().filter(move |row| row.extension.is_some_and(|extension| offered.has(extension)));
    rows.map(|row| (format!("cmd-{}", row.word.trim_end()), figures.counters.of(CommandId::new(0, row.name as usize))))
}
