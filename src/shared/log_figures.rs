//! The state and the size of the binlog, for the protocols that report them.

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// All acknowledged changes are as durable as the sync mode requires.
    #[default]
    Ok,
    /// New jobs are refused when the remaining log space is used up. Deletes are still durable.
    Full,
    /// Writes or syncs fail. Changes become durable when the disk recovers.
    Failing,
}

impl Health {
    pub fn word(self) -> &'static str {
        ["ok", "full", "failing"][self as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFigures {
    pub oldest: u64,
    pub current: u64,
    /// The number of records that compaction has rewritten.
    pub migrated: u64,
    pub written: u64,
    /// Unreadable regions that were skipped at startup.
    pub skipped: u64,
    /// Segments that disappeared while the server was running.
    pub lost: u64,
    /// Unneeded and foreign segments that could not be removed or moved.
    pub stuck: u64,
    /// The size of a full segment in bytes.
    pub segment_size: u64,
    /// The total size of the segments on disk in bytes.
    pub disk: u64,
    /// The number of bytes of `disk` that live jobs need.
    pub live: u64,
    pub health: Health,
}
