//! Plain data types that the modules of the binlog exchange.

use std::fmt;
use std::io;

use super::bytes::Bytes;
use super::segment::{LogLocation, VERSION};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Synced {
    pub location: LogLocation,
    /// How many bytes this process has appended before that location.
    pub position: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The offset of the new segment's header, not counting shared bodies.
    pub at: usize,
    pub segment: u64,
}

#[derive(Debug, Default)]
pub struct Batch {
    pub log: u64,
    pub segment: u64,
    /// Records, and a header at the start of each new segment.
    pub bytes: Bytes,
    pub cuts: Vec<Cut>,
    pub end: u64,
    /// A sync up to this position is required in every [`SyncMode`](super::writer::SyncMode).
    pub demanded: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retired {
    pub number: u64,
    pub bytes: u64,
    /// The log must be durable up to this position before the removal.
    pub after: u64,
    /// A damaged segment is moved to a subdirectory instead.
    pub damaged: bool,
}

/// Replies wait until the log is durable up to these positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Required {
    /// After the last change that a reply acknowledges.
    pub any: u64,
    /// After the last new job or result. While the disk fails, its reply is withheld.
    pub puts: u64,
    pub count: u64,
    pub put_count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryProgress {
    pub done: usize,
    pub segments: usize,
    pub bytes: u64,
    pub jobs: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    pub progress: RecoveryProgress,
    pub problems: Vec<String>,
    pub imported: Option<usize>,
}

#[derive(Debug)]
pub enum OpenError {
    /// The directory cannot be accessed, or another server has locked it.
    Folder(io::Error),
    File(String, io::Error),
    Damaged(Vec<String>),
    Version(String, u32),
    /// Two servers started with copies of the same log, so the first segment does not continue the second.
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
