//! The state and size of the log, as a server reports them.
//!
//! Plain data, which the log fills in and protocols show. Must not do anything.

/// The state of the log, as `stats` and the log of events show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// All acknowledged changes are stored as promised.
    #[default]
    Ok,
    /// No space for another segment: new jobs are refused once the remaining space is used; deletes are still durable.
    Full,
    /// The disk refuses writes or syncs: nothing is durable until it accepts them again.
    Failing,
}

impl Health {
    /// Returns the name of the state.
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
    /// The number of regions that could not be read at startup.
    pub skipped: u64,
    /// The number of segments that others removed while the server ran.
    pub lost: u64,
    /// The size of a full segment in bytes.
    pub segment_size: u64,
    /// The total size of the segments on disk in bytes.
    pub disk: u64,
    /// How many of these bytes the live jobs need.
    pub live: u64,
    pub health: Health,
}
