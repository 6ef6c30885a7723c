//! Plain data types that the modules of the binlog exchange.
//!
//! Owns the types for bytes to write, segments to remove, and the results of recovery. Must not access files or change
//! a log.

use std::fmt;
use std::io;

use super::bytes::Bytes;
use super::segment::{Place, VERSION};

/// The end of the synced part of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Synced {
    pub place: Place,
    /// The number of bytes that this process has appended before the end of the synced part.
    pub position: u64,
}

/// A segment boundary within a [`Batch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The offset of the new segment's header in the batch, not counting bodies that the batch shares with the queue.
    pub at: usize,
    pub segment: u64,
}

/// Log bytes that are ready to be written to segment files.
#[derive(Debug, Default)]
pub struct Batch {
    pub log: u64,
    /// The number of the segment to which the first byte belongs.
    pub segment: u64,
    /// Records, and a header at the beginning of each new segment.
    pub bytes: Bytes,
    /// The segment boundaries in `bytes`, in order.
    pub cuts: Vec<Cut>,
    /// The log position after the last byte.
    pub end: u64,
    /// The log position up to which a sync is required in every [`SyncMode`](super::writer::SyncMode).
    pub demanded: u64,
}

/// A segment that can be removed once the log is durable up to a given position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retired {
    pub number: u64,
    pub bytes: u64,
    /// The log position that must be durable before the segment is removed.
    pub after: u64,
    /// `true` if the segment is damaged. A damaged segment is moved to a subdirectory instead of being removed.
    pub damaged: bool,
}

/// The log positions that must be durable before the server sends replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Required {
    /// The position after the last change that a reply acknowledges.
    pub any: u64,
    /// The position after the last new job or result, whose replies are withheld while the disk fails.
    pub puts: u64,
    /// The number of changes that replies acknowledge.
    pub count: u64,
    /// The number of new jobs and job results that replies acknowledge.
    pub put_count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryProgress {
    pub done: usize,
    pub segments: usize,
    pub bytes: u64,
    /// The number of restored jobs, not counting jobs that later records delete.
    pub jobs: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    pub progress: RecoveryProgress,
    /// One-line descriptions of damage and other problems.
    pub problems: Vec<String>,
    /// The number of jobs imported from a beanstalkd binlog, or `None` without an import.
    pub imported: Option<usize>,
}

/// The reason why a log cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The directory cannot be accessed, or another server has locked it.
    Folder(io::Error),
    File(String, io::Error),
    /// The log is damaged, and the settings require an intact log. Contains one-line descriptions of the damage.
    Damaged(Vec<String>),
    /// The named segment has an unsupported format version.
    Version(String, u32),
    /// The first segment does not continue the second: two servers started with copies of the same log.
    Mixed(String, String),
}

pub fn in_file<T>(name: &str, result: io::Result<T>) -> Result<T, OpenError> {
    result.map_err(|error| OpenError::File(name.to_owned(), error))
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
