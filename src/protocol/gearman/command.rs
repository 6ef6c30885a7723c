//! Parsed packets and lines of text.
//!
//! Owns the parsed form, the tubes and jobs that it concerns, and its memory costs. Must not know the framing.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::admin::{AdminCommand, ListKind};
use super::kind::Kind;
use super::listing::Cursor;
use super::names::{job_of, MAX_LINE};
use super::reply::{self, Fault};
use crate::access::{Denied, Need};
use crate::engine::{Body, DedupKey, Fingerprint, GiveBack, JobId, Minutes, Priority, Report, Time};
use crate::protocol::guard::Subject;
use crate::protocol::{Context, Flow, Output, ProtocolCommand};

#[derive(Debug)]
pub enum Command {
    CanDo {
        function: Box<[u8]>,
        limit: Option<NonZeroU64>,
    },
    CantDo(Box<[u8]>),
    ResetAbilities,
    PreSleep,
    Submit(Box<Submission>),
    /// A GRAB_JOB packet, identified by its reply.
    Grab(Kind),
    Work(Work),
    GetStatus(Box<[u8]>),
    GetStatusUnique(Box<[u8]>),
    Echo(Body),
    Option(Box<[u8]>),
    SetClientId(Box<[u8]>),
    Text(AdminCommand),
    /// An invalid packet: the reply is an ERROR.
    Refused(Fault),
    /// Not the Gearman protocol: the connection closes without a reply.
    OutOfSync,
    List(ListKind, Cursor),
    /// Returns the jobs of this function, or of all functions, that the worker was assigned but has not requested; and
    /// the progress.
    GiveBack(Option<Box<[u8]>>, Option<GiveBack>),
    /// Sends a worker's report on a job to the clients that wait for the job.
    Report(JobId, Arc<Report>),
}

#[derive(Debug)]
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
            _ => {}
        }
    }
}

impl ProtocolCommand for Command {
    fn subject(&self, context: &Context) -> Subject<'_> {
        let job = |handle: &[u8]| Subject::Job(job_of(handle, &context.host.facts().handle_prefix));
        match self {
            Command::CanDo { function, .. } | Command::CantDo(function) => Subject::Tube(function),
            Command::Submit(submission) => Subject::Tube(&submission.function),
            Command::Work(work) => job(&work.handle),
            Command::GetStatus(handle) | Command::Text(AdminCommand::CancelJob(handle)) => job(handle),
            Command::GetStatusUnique(unique) => Subject::Job(find_unique(unique, context)),
            Command::Text(
                AdminCommand::CreateFunction(name) | AdminCommand::DropFunction(name) | AdminCommand::Maxqueue(name, _),
            ) => Subject::Tube(name),
            _ => Subject::Nothing,
        }
    }

    fn deny(&self, denied: Denied, out: &mut Output) -> Flow {
        let (fault, line) = match denied {
            Denied::Unknown => (reply::UNAUTHORIZED, "ERR UNAUTHORIZED Client+is+not+known\r\n"),
            Denied::Forbidden => (reply::FORBIDDEN, "ERR FORBIDDEN Client+may+not+do+this\r\n"),
        };
        match self {
            Command::Text(_) => out.text().extend_from_slice(line.as_bytes()),
            _ => reply::error(out, &fault),
        }
        Flow::denied(denied)
    }

    fn is_logged(&self) -> bool {
        matches!(self, Command::Work(_)) || matches!(self, Command::Submit(submission) if submission.background)
    }

    fn footprint(&self) -> u64 {
        let bytes = match self {
            Command::Submit(submission) => {
                let reducer = submission.reducer.as_ref().map_or(0, |reducer| reducer.len());
                size_of::<Submission>() + submission.function.len() + reducer + submission.body.len()
            }
            Command::Work(work) => work.handle.len() + work.body.len(),
            Command::Echo(body) => body.len(),
            Command::CanDo { function: text, .. }
            | Command::CantDo(text)
            | Command::GetStatus(text)
            | Command::GetStatusUnique(text)
            | Command::Option(text)
            | Command::SetClientId(text)
            | Command::GiveBack(Some(text), _) => text.len(),
            Command::Text(_) => MAX_LINE,
            // The engine counts the memory of a worker's reports.
            _ => 0,
        };
        bytes as u64
    }
}

/// Returns the oldest job with this unique ID that the client may query.
pub fn find_unique(unique: &[u8], context: &Context) -> Option<JobId> {
    let sees = |tube: &[u8]| context.access.as_ref().is_none_or(|it| it.check(Need::FOLLOW_JOB, Some(tube)).is_ok());
    context.engine.find_name(unique, sees)
}
