//! THE tables of figures: what the server and a tube tell of themselves, under the names of beanstalkd's statistics.
//!
//! Owns the keys. The API and the older names of metrics are made of them. Must not format.

use crate::engine::{Stats, Time, TubeStats};
use crate::protocol::beanstalk::{CommandCounters, CommandName, COMMANDS};
use crate::protocol::{Context, LogFigures, Usage, Wire};

/// All that the server tells.
pub struct QueueFigures<'a> {
    /// The engine's, without clients of this protocol.
    pub stats: Stats,
    /// How often each command was given.
    pub counters: &'a CommandCounters,
    pub usage: Usage,
    pub log: Option<LogFigures>,
    pub uptime: u64,
    pub connections: [u64; Wire::ALL.len()],
}

impl<'a> QueueFigures<'a> {
    /// With these figures of the engine, which are what the client may see.
    pub fn of(stats: Stats, context: &'a Context) -> QueueFigures<'a> {
        let started: Time = context.host.facts().started;
        QueueFigures {
            stats,
            counters: context.counters,
            usage: context.host.usage(),
            log: context.log,
            uptime: context.now.since(started).secs(),
            connections: Wire::ALL.map(|wire| context.registry.count(wire) as u64),
        }
    }
}

/// A figure: its key, whether it only ever rises, and where it is found.
pub struct Key<F> {
    pub name: &'static str,
    /// It counts what has happened since the start.
    pub rises: bool,
    pub of: F,
}

/// Finds a figure of the server.
pub type OfServer = fn(&QueueFigures) -> u64;

/// Finds a figure of a tube.
pub type OfTube = fn(&TubeStats) -> u64;

const fn server(name: &'static str, rises: bool, of: OfServer) -> Key<OfServer> {
    Key { name, rises, of }
}

const fn tube(name: &'static str, rises: bool, of: OfTube) -> Key<OfTube> {
    Key { name, rises, of }
}

/// Those of the server, but for the counts of commands; see `commands`.
#[rustfmt::skip]
pub const SERVER_KEYS: [Key<OfServer>; 23] = [
    server("current-jobs-urgent", false, |it| it.stats.jobs.urgent),
    server("current-jobs-ready", false, |it| it.stats.jobs.ready),
    server("current-jobs-reserved", false, |it| it.stats.jobs.reserved),
    server("current-jobs-delayed", false, |it| it.stats.jobs.delayed),
    server("current-jobs-buried", false, |it| it.stats.jobs.buried),
    server("job-timeouts", true, |it| it.stats.timeouts),
    server("total-jobs", true, |it| it.stats.total_jobs),
    server("current-tubes", false, |it| it.stats.tubes as u64),
    server("current-connections", false, |it| it.stats.connections as u64),
    server("current-producers", false, |it| it.stats.producers as u64),
    server("current-workers", false, |it| it.stats.workers as u64),
    server("current-waiting", false, |it| it.stats.waiting as u64),
    server("total-connections", true, |it| it.stats.total_connections),
    server("uptime", true, |it| it.uptime),
    server("rejected-connections", true, |it| it.usage.rejected_connections),
    server("current-memory", false, |it| it.stats.memory.total()),
    server("max-memory", false, |it| it.stats.max_memory),
    server("memory-jobs", false, |it| it.stats.memory.jobs),
    server("memory-tubes", false, |it| it.stats.memory.tubes),
    server("memory-watches", false, |it| it.stats.memory.watches),
    server("memory-buffers", false, |it| it.stats.memory.buffers),
    server("binlog-size", false, |it| it.log.map_or(0, |log| log.disk)),
    server("binlog-records-written", true, |it| it.log.map_or(0, |log| log.written)),
];

#[rustfmt::skip]
pub const TUBE_KEYS: [Key<OfTube>; 13] = [
    tube("current-jobs-urgent", false, |it| it.jobs.urgent),
    tube("current-jobs-ready", false, |it| it.jobs.ready),
    tube("current-jobs-reserved", false, |it| it.jobs.reserved),
    tube("current-jobs-delayed", false, |it| it.jobs.delayed),
    tube("current-jobs-buried", false, |it| it.jobs.buried),
    tube("total-jobs", true, |it| it.total_jobs),
    tube("current-using", false, |it| it.using.into()),
    tube("current-watching", false, |it| it.watching.into()),
    tube("current-waiting", false, |it| it.waiting as u64),
    tube("cmd-delete", true, |it| it.deletes),
    tube("cmd-pause-tube", true, |it| it.pauses),
    tube("pause", false, |it| it.pause.secs()),
    tube("pause-time-left", false, |it| it.pause_left.secs()),
];

/// The commands that are counted, each with its key.
pub fn commands() -> impl Iterator<Item = (String, CommandName)> {
    let counted = COMMANDS.iter().filter(|row| row.name != CommandName::Quit);
    counted.map(|row| (format!("cmd-{}", row.name.name()), row.name))
}
