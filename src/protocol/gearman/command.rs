//! What a packet or a line of text asks for.
//!
//! Owns the parsed form, and what it costs in memory. Must not know how it is framed.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::admin::{AdminCommand, ListKind};
use super::kind::Kind;
use super::listing::Cursor;
use super::names::MAX_LINE;
use super::reply::Fault;
use crate::engine::{Body, DedupKey, Fingerprint, GiveBack, JobId, Minutes, Priority, Report, Time};

/// What a request asks for.
#[derive(Debug)]
#[allow(missing_docs)] // each is the packet of its name, with the arguments of its name
pub enum Command {
    CanDo {
        function: Box<[u8]>,
        limit: Option<NonZeroU64>,
    },
    CantDo(Box<[u8]>),
    ResetAbilities,
    PreSleep,
    Submit(Box<Submission>),
    /// One of the three GRAB_JOBs, by what it is answered with.
    Grab(Kind),
    Work(Work),
    GetStatus(Box<[u8]>),
    GetStatusUnique(Box<[u8]>),
    Echo(Body),
    Option(Box<[u8]>),
    SetClientId(Box<[u8]>),
    /// A line of the text protocol.
    Text(AdminCommand),
    /// A packet that is wrong by itself: answered with an ERROR.
    Refused(Fault),
    /// No Gearman at all: the connection closes without an answer.
    Lost,
    /// The list that a line asked for, and its progress.
    List(ListKind, Cursor),
    /// Gives back the jobs of this function, or of all, that the worker has and does not want; where to go on.
    GiveBack(Option<Box<[u8]>>, Option<GiveBack>),
    /// A report of a worker on a job for which very many clients wait.
    Report(JobId, Arc<Report>),
}

/// Arguments and data of any of the SUBMIT packets.
#[derive(Debug)]
#[allow(missing_docs)] // they are the protocol's words
pub struct Submission {
    pub function: Box<[u8]>,
    pub unique: DedupKey,
    pub pri: Priority,
    pub background: bool,
    pub when: When,
    pub reducer: Option<Box<[u8]>>,
    pub body: Body,
}

/// When a job may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// As soon as there is a worker.
    Now,
    /// At this moment, or at once if it has passed.
    At(Time),
    /// At the next minute that matches.
    On(Minutes),
}

/// Arguments and data of any of the WORK packets.
#[derive(Debug)]
pub struct Work {
    pub kind: Kind,
    /// The handle, as the worker gave it.
    pub handle: Box<[u8]>,
    /// The data; of WORK_STATUS, the two numbers with a NUL between them.
    pub body: Body,
}

impl Command {
    /// Whether the data themselves are the unique id of the job.
    pub fn is_unique_by_body(&self) -> bool {
        matches!(self, Command::Submit(submission) if submission.unique == DedupKey::Body(None))
    }

    /// Takes the data of its packet; `fingerprint` is theirs, if the data are the unique id.
    pub fn set_body(&mut self, body: Body, fingerprint: Option<Fingerprint>) {
        match self {
            Command::Submit(submission) => {
                if fingerprint.is_some() {
                    submission.unique = DedupKey::Body(fingerprint);
                }
                submission.body = body;
            }
            Command::Work(work) => work.body = body,
            Command::Echo(echo) => *echo = body,
            // Rows without data leave nothing to set.
            _ => {}
        }
    }

    /// Returns `true` if it may have records in the log.
    pub fn is_logged(&self) -> bool {
        matches!(self, Command::Work(_)) || matches!(self, Command::Submit(submission) if submission.background)
    }

    /// Bytes of memory beside the command itself.
    pub fn footprint(&self) -> u64 {
        let bytes = match self {
            Command::Submit(submission) => {
                let reducer = submission.reducer.as_ref().map_or(0, |reducer| reducer.len());
                size_of::<Submission>() + submission.function.len() + reducer + submission.body.len()
            }
            Command::Work(work) => work.handle.len() + work.body.len(),
            Command::Echo(body) => body.len(),
            Command::CanDo { function, .. } | Command::CantDo(function) => function.len(),
            Command::GetStatus(text)
            | Command::GetStatusUnique(text)
            | Command::Option(text)
            | Command::SetClientId(text) => text.len(),
            Command::Text(_) => MAX_LINE,
            Command::GiveBack(Some(function), _) => function.len(),
            // The engine counts what a worker reports.
            _ => 0,
        };
        bytes as u64
    }
}
