//! What a server tells of its log: how it is, and how large.
//!
//! Owns the words for it, which the log fills in and protocols show. Plain data; must not do anything.

/// How the log is, as `stats` and the log of events say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// What is told as kept is kept.
    #[default]
    Ok,
    /// No space for another segment: new jobs are refused once the space at hand is used, deletes are still durable.
    Full,
    /// The disk refuses writes or syncs: nothing is durable until it takes them again.
    Failing,
}

impl Health {
    /// The word that operators know it by.
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
    /// Number of the oldest segment.
    pub oldest: u64,
    /// Number of the segment that is written to.
    pub current: u64,
    /// Records written again by compaction.
    pub migrated: u64,
    /// Records appended since the start.
    pub written: u64,
    /// Stretches that could not be read at the start.
    pub skipped: u64,
    /// Segments that were removed by somebody else while the server ran.
    pub lost: u64,
    /// Full size of a segment, in bytes.
    pub segment_size: u64,
    /// Bytes of all segments on the disk.
    pub disk: u64,
    /// Bytes of them that the live jobs need.
    pub live: u64,
    pub health: Health,
}
