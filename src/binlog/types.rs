//! Plain data that the parts of the log exchange.
//!
//! Owns the types of bytes that are about to be written, of segments to be removed, and of what is found at startup.
//! Must not do anything.

use std::fmt;
use std::io;

use super::bytes::Bytes;
use super::segment::{Place, VERSION};

/// How far the log is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Synced {
    /// Everything before this place is synced.
    pub place: Place,
    /// The position of that place in the records of this process.
    pub position: u64,
}

/// Where a new segment begins in a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The offset of the new segment's header among the batch's bytes; see [`Bytes::place`].
    pub at: usize,
    /// The number of the new segment.
    pub segment: u64,
}

/// Bytes that are about to be written.
#[derive(Debug, Default)]
pub struct Batch {
    /// The random number of the log.
    pub log: u64,
    /// The segment that the first bytes belong to.
    pub segment: u64,
    /// Records, and the headers of segments that begin between them.
    pub bytes: Bytes,
    /// Where new segments begin among the bytes.
    pub cuts: Vec<Cut>,
    /// The position after the last byte.
    pub end: u64,
    /// The position up to which the log must be synced soon in any mode.
    pub demanded: u64,
}

/// A segment that nothing needs once the log is durable up to a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retired {
    pub number: u64,
    pub bytes: u64,
    /// The position up to which the log must be durable before the segment is removed.
    pub after: u64,
    /// The segment is damaged: it is set aside instead of being removed.
    pub damaged: bool,
}

/// The positions after the last records on which replies depend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Required {
    /// The position of the last record that any reply depends on.
    pub any: u64,
    /// The position of the last new job or result, whose replies are withheld while the disk fails.
    pub puts: u64,
    /// The number of changes on which replies depend, and how many of them are new jobs or results.
    pub count: u64,
    pub put_count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryProgress {
    pub done: usize,
    pub segments: usize,
    pub bytes: u64,
    /// The number of live jobs found.
    pub jobs: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    pub progress: RecoveryProgress,
    /// The problems found, one line each.
    pub problems: Vec<String>,
    /// The number of jobs imported from a beanstalkd binlog, if there was one.
    pub imported: Option<usize>,
}

/// Why the log cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// The directory is missing, or another server uses it.
    Folder(io::Error),
    /// A file cannot be read or created.
    File(String, io::Error),
    /// The log is damaged, and strict mode is on.
    Damaged(Vec<String>),
    /// A segment has another format version.
    Version(String, u32),
    /// A segment does not continue the segment before it: the files of two servers that started from copies of one log
    /// are mixed.
    Mixed(String, String),
}

/// Adds the name of the file to an error.
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
