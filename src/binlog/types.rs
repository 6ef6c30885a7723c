//! What the rooms of the log tell each other, and others: plain data.
//!
//! Owns the words for bytes on their way, segments that go, and what the start finds. Must not do
//! anything.

use std::fmt;
use std::io;

use super::bytes::Bytes;
use super::segment::{Place, VERSION};

/// How far the log is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Synced {
    /// Everything before this place is safe.
    pub place: Place,
    /// The position of that place in what this process has appended.
    pub position: u64,
}

/// The offset within the taken bytes at which a new segment begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The place in the batch's bytes, see [`Bytes::place`], where the new segment's header stands.
    pub at: usize,
    /// The number of the new segment.
    pub segment: u64,
}

/// Bytes on their way to the disk.
#[derive(Debug, Default)]
pub struct Batch {
    /// The number of the log.
    pub log: u64,
    /// The segment that the first of them belong to.
    pub segment: u64,
    /// Records, and the headers of segments that begin among them.
    pub bytes: Bytes,
    /// Where among the bytes the new segments begin.
    pub cuts: Vec<Cut>,
    /// The position behind the last of them.
    pub end: u64,
    /// The position up to which the log must be synced soon, whatever the mode.
    pub demanded: u64,
}

/// A segment that nothing needs once the log is safe on the disk up to a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retired {
    pub number: u64,
    pub bytes: u64,
    /// The position up to which the log must be safe before it goes.
    pub after: u64,
    /// It is damaged: it is set aside, not removed.
    pub damaged: bool,
}

/// Positions behind the last records on which a reply depends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Required {
    /// The position of the last record that any reply depends on.
    pub any: u64,
    /// New jobs and results, whose replies cannot be given while the disk fails.
    pub puts: u64,
    /// How many changes a reply depends on, and how many of them are new jobs and results.
    pub count: u64,
    pub put_count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryProgress {
    pub done: usize,
    pub segments: usize,
    pub bytes: u64,
    /// Jobs found that still live.
    pub jobs: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    pub progress: RecoveryProgress,
    /// What was wrong, a line each.
    pub problems: Vec<String>,
    /// Jobs that came from a beanstalkd log.
    pub imported: Option<usize>,
}

/// Why the log cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// The folder is missing, or another server has it.
    Folder(io::Error),
    /// A file cannot be read or made.
    File(String, io::Error),
    /// There is damage, and strictness was asked for.
    Damaged(Vec<String>),
    /// A segment has another version of the format.
    Version(String, u32),
    /// A segment continues another log than the segment before it contains: both continued from copies of one.
    Mixed(String, String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            OpenError::Folder(error) => error.fmt(formatter),
            OpenError::File(name, error) => write!(formatter, "{name}: {error}"),
            OpenError::Damaged(problems) => {
                write!(formatter, "it is damaged, and --strict was given: {}", problems.join("; "))
            }
            OpenError::Mixed(name, before) => {
                write!(formatter, "{name} does not continue {before}: the files of two servers that started from ")?;
                formatter.write_str("copies of one directory are mixed; keep only those of one server")
            }
            OpenError::Version(name, version) => {
                let age = if *version > VERSION { "newer" } else { "older" };
                write!(formatter, "{name}: its format {version} is {age} than this program, which reads {VERSION}")
            }
        }
    }
}
