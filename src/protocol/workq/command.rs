//! What a line asks for.
//!
//! Owns the parsed form, and what it costs in memory and in the binlog. Must not know how it is framed.

use super::reply::Words;
use super::uuid::Uuid;
use crate::engine::{Priority, Span};

/// Upper bound of the bytes of a job's record beside its payload: the longest name, and some numbers.
const ADD_OVERHEAD: u64 = 500;

/// Upper bound of the bytes of an outcome's record beside the result.
const RESULT_OVERHEAD: u64 = 100;

/// What a request asks for.
#[derive(Debug)]
#[allow(missing_docs)] // each is the command of its name, with the arguments of its name
pub enum Command {
    Add(Box<Submission>),
    Run {
        id: Uuid,
        name: Box<[u8]>,
        ttr: Span,
        pri: Priority,
        wait: Span,
    },
    Result {
        id: Uuid,
        wait: Span,
    },
    /// The names have a space between them.
    Lease {
        names: Box<[u8]>,
        wait: Span,
    },
    Complete {
        id: Uuid,
        done: bool,
    },
    Delete(Uuid),
    InspectServer,
    InspectQueues(PageBounds),
    InspectQueue(Box<[u8]>),
    InspectJobs {
        name: Box<[u8]>,
        scheduled: bool,
        page: PageBounds,
    },
    InspectJob(Uuid),
    /// Wrong by itself; this is the answer.
    Refused(Words),
    /// So wrong that the start of the next command is unknown: the connection closes.
    Close(Option<Words>),
}

/// A job as `add` or `schedule` describes it.
#[derive(Debug)]
pub struct Submission {
    /// The UUID, which only one job may have.
    pub id: Uuid,
    /// The name of its queue.
    pub name: Box<[u8]>,
    /// How long a lease of it lasts.
    pub ttr: Span,
    /// The job, or its outcome, is removed this long after it was added.
    pub ttl: Span,
    /// When it is scheduled for, in nanoseconds since the Unix epoch.
    pub time: Option<i128>,
    /// In the engine's order: the smallest comes first.
    pub pri: Priority,
    /// How often it may be leased; 0 means without end.
    pub max_attempts: u8,
    /// With how many failures it has failed for good; 0 means one.
    pub max_fails: u8,
}

/// A stretch of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageBounds {
    /// Items in front of the page, which are not shown.
    pub offset: u32,
    /// The most items to show.
    pub limit: usize,
}

impl Command {
    /// The most bytes that its records take in the binlog, with a payload or result of `data` bytes.
    pub fn log_size(&self, data: u64) -> u64 {
        match self {
            Command::Add(_) => data + ADD_OVERHEAD,
            Command::Complete { .. } => data + RESULT_OVERHEAD,
            Command::Delete(_) => 1,
            Command::Run { .. }
            | Command::Result { .. }
            | Command::Lease { .. }
            | Command::InspectServer
            | Command::InspectQueues(_)
            | Command::InspectQueue(_)
            | Command::InspectJobs { .. }
            | Command::InspectJob(_)
            | Command::Refused(_)
            | Command::Close(_) => 0,
        }
    }

    /// Bytes of memory beside the command itself.
    pub fn footprint(&self) -> usize {
        match self {
            Command::Add(submission) => size_of::<Submission>() + submission.name.len(),
            Command::Lease { names, .. } => names.len(),
            Command::Run { name, .. } | Command::InspectQueue(name) | Command::InspectJobs { name, .. } => name.len(),
            Command::Result { .. }
            | Command::Complete { .. }
            | Command::Delete(_)
            | Command::InspectServer
            | Command::InspectQueues(_)
            | Command::InspectJob(_)
            | Command::Refused(_)
            | Command::Close(_) => 0,
        }
    }
}
