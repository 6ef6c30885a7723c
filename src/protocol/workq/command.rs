//! What a line asks for.
//!
//! Owns the parsed form, and what it costs in memory. Must not know how it is framed.

use super::reply::Words;
use super::uuid::Uuid;
use crate::engine::{JobPage, NamePage, Priority, Span, WantedTubes};

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
    Lease {
        names: WantedTubes,
        wait: Span,
    },
    Complete {
        id: Uuid,
        done: bool,
    },
    Delete(Uuid),
    InspectServer,
    InspectQueues(Box<NamePage>),
    InspectQueue(Box<[u8]>),
    InspectJobs {
        name: Box<[u8]>,
        page: Box<JobPage>,
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

impl Command {
    /// Returns `true` if it may have records in the log.
    pub fn is_logged(&self) -> bool {
        matches!(self, Command::Add(_) | Command::Complete { .. } | Command::Delete(_))
    }

    /// Bytes of memory beside the command itself.
    pub fn footprint(&self) -> usize {
        match self {
            Command::Add(submission) => size_of::<Submission>() + submission.name.len(),
            Command::Lease { names, .. } => names.names.len(),
            Command::Run { name, .. } | Command::InspectQueue(name) => name.len(),
            Command::InspectJobs { name, page } => size_of::<JobPage>() + name.len() + page.footprint() as usize,
            Command::InspectQueues(page) => size_of::<NamePage>() + page.footprint() as usize,
            _ => 0,
        }
    }
}
