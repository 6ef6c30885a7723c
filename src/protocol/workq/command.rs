//! Parsed Workq requests.
//!
//! Owns the parsed form, and its memory costs. Must not know the framing.

use super::reply::Words;
use super::uuid::Uuid;
use crate::engine::{JobPage, NamePage, Priority, Span, WantedTubes};

/// A parsed request, without its data.
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
    /// The command is invalid; this is the reply.
    Refused(Words),
    /// The start of the next command cannot be determined: the connection closes.
    Close(Option<Words>),
}

/// A job as described by `add` or `schedule`.
#[derive(Debug)]
pub struct Submission {
    /// The UUID, which must be unique among jobs.
    pub id: Uuid,
    /// The name of its queue.
    pub name: Box<[u8]>,
    /// The duration of a lease.
    pub ttr: Span,
    /// The job, or its outcome, is removed after this time since it was added.
    pub ttl: Span,
    /// The scheduled time, in nanoseconds since the Unix epoch.
    pub time: Option<i128>,
    /// In the engine's order, which starts with the smallest.
    pub pri: Priority,
    /// The maximum number of leases; 0 means no limit.
    pub max_attempts: u8,
    /// The number of failures after which the job has failed permanently; 0 means one.
    pub max_fails: u8,
}

impl Command {
    /// Returns `true` if the command may have records in the log.
    pub fn is_logged(&self) -> bool {
        matches!(self, Command::Add(_) | Command::Complete { .. } | Command::Delete(_))
    }

    /// The memory in use besides the command itself, in bytes.
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
