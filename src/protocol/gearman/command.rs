//! Parsed packets and lines of text.
//!
//! Owns the parsed form, and its memory costs. Must not know the framing.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::admin::{AdminCommand, ListKind};
use super::kind::Kind;
use super::listing::Cursor;
use super::names::MAX_LINE;
use super::reply::Fault;
use crate::engine::{Body, DedupKey, Fingerprint, GiveBack, JobId, Minutes, Priority, Report, Time};

/// A parsed packet or line of text.
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
    /// One of the three GRAB_JOB packets, identified by the reply to it.
    Grab(Kind),
    Work(Work),
    GetStatus(Box<[u8]>),
    GetStatusUnique(Box<[u8]>),
    Echo(Body),
    Option(Box<[u8]>),
    SetClientId(Box<[u8]>),
    /// A line of the text protocol.
    Text(AdminCommand),
    /// An invalid packet: the reply is an ERROR.
    Refused(Fault),
    /// Not the Gearman protocol: the connection closes without a reply.
    Lost,
    /// The requested list, and its progress.
    List(ListKind, Cursor),
    /// Returns the jobs of this function, or of all functions, that the worker has and does not want; the place to
    /// continue.
    GiveBack(Option<Box<[u8]>>, Option<GiveBack>),
    /// A worker's report on a job for which many clients wait.
    Report(JobId, Arc<Report>),
}

/// The arguments and data of a SUBMIT packet.
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

/// The time at which a job may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// As soon as a worker is available.
    Now,
    /// At this time, or at once if it has passed.
    At(Time),
    /// At the next minute that matches.
    On(Minutes),
}

/// The arguments and data of a WORK packet.
#[derive(Debug)]
pub struct Work {
    pub kind: Kind,
    /// The handle, as sent by the worker.
    pub handle: Box<[u8]>,
    /// The data; for WORK_STATUS, the two numbers separated by a NUL.
    pub body: Body,
}

impl Command {
    /// Returns `true` if the data are the unique ID of the job.
    pub fn is_unique_by_body(&self) -> bool {
        matches!(self, Command::Submit(submission) if submission.unique == DedupKey::Body(None))
    }

    /// Sets the data of the packet; `fingerprint` is the fingerprint of the data, if they are the unique ID.
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
            // Rows without data have nothing to set.
            _ => {}
        }
    }

    /// Returns `true` if the command may have records in the log.
    pub fn is_logged(&self) -> bool {
        matches!(self, Command::Work(_)) || matches!(self, Command::Submit(submission) if submission.background)
    }

    /// The memory in use besides the command itself, in bytes.
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
            // The engine counts the memory of a worker's reports.
            _ => 0,
        };
        bytes as u64
    }
}
