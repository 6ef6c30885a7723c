//! What a packet or a line of text asks for.
//!
//! Owns the parsed form, and what it costs in memory and in the binlog. Must not know how it is framed.

use std::num::NonZeroU64;

use super::admin::AdminCommand;
use super::kind::Kind;
use super::names::MAX_LINE;
use super::reply::Fault;
use crate::engine::{Body, DedupKey, Fingerprint, Minutes, Priority, Time};

/// Upper bound of the bytes of a job's record beside its body and its names.
const SUBMIT_OVERHEAD: u64 = 200;

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

    /// The most bytes that its records take in the binlog. Only a background job and the end of a job have any.
    pub fn log_size(&self) -> u64 {
        match self {
            Command::Submit(submission) if submission.background => {
                let reducer = submission.reducer.as_ref().map_or(0, |reducer| reducer.len());
                let unique = if let DedupKey::Name(name) = &submission.unique { name.length() } else { 0 };
                let names = submission.function.len() + unique + reducer;
                (names + submission.body.len()) as u64 + SUBMIT_OVERHEAD
            }
            Command::Work(work) if matches!(work.kind, Kind::WorkComplete | Kind::WorkException) => {
                work.body.len() as u64 + SUBMIT_OVERHEAD
            }
            Command::Work(_) => 1,
            Command::Submit(_)
            | Command::CanDo { .. }
            | Command::CantDo(_)
            | Command::ResetAbilities
            | Command::PreSleep
            | Command::Grab(_)
            | Command::GetStatus(_)
            | Command::GetStatusUnique(_)
            | Command::Echo(_)
            | Command::Option(_)
            | Command::SetClientId(_)
            | Command::Text(_)
            | Command::Refused(_)
            | Command::Lost => 0,
        }
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
            Command::ResetAbilities | Command::PreSleep | Command::Grab(_) | Command::Refused(_) | Command::Lost => 0,
        };
        bytes as u64
    }
}
