//! The state and size of the log, as reported by a server.
//!
//! Owns plain data that the log provides and protocols show. Must not contain logic.

/// The state of the log, as shown by `stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// All acknowledged changes are as durable as the sync mode requires.
    #[default]
    Ok,
    /// The disk is full. New jobs are refused when the remaining log space is used up. Deletes are still durable.
    Full,
    /// The disk refuses writes or syncs. Changes are not durable until the disk accepts writes again.
    Failing,
}

impl Health {
    pub fn word(self) -> &'static str {
        match self {
            Health::Ok => "ok",
            Health::Full => "full",
            Health::Failing => "failing",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFigures {
    /// The number of the oldest segment.
    pub oldest: u64,
    /// The number of the current segment.
    pub current: u64,
    /// The number of records rewritten by compaction.
    pub migrated: u64,
    /// The number of records appended since the start.
    pub written: u64,
    /// The number of unreadable regions that were skipped at startup.
    pub skipped: u64,
    /// The number of segments that disappeared while the server was running.
    pub lost: u64,
    /// The size of a full segment in bytes.
    pub segment_size: u64,
    /// The total size of the segments on disk in bytes.
    pub disk: u64,
    /// The part of `disk` that the live jobs need, in bytes.
    pub live: u64,
    pub health: Health,
}
