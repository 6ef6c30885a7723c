//! Parsed Gearman packets and text commands, the tubes and jobs for their permission checks, and their size in memory.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::admin::{AdminCommand, ListKind};
use super::kind::Kind;
use super::listing::Cursor;
use super::reply::{self, job_of, Fault, MAX_LINE, MAX_UNIQUE};
use crate::access::Denied;
use crate::engine::{Body, DedupKey, Fingerprint, GiveBack, JobId, Minutes, NameSearch, Priority, Report, Time};
use crate::protocol::guard::Subject;
use crate::protocol::{Context, Flow, Output, ProtocolCommand};

#[derive(Debug)]
pub enum Command {
    CanDo { function: Box<[u8]>, limit: Option<NonZeroU64> },
    CantDo(Box<[u8]>),
    ResetAbilities,
    PreSleep,
    Submit(Box<Submission>),
    // `Kind` is the type of the reply packet: JOB_ASSIGN, JOB_ASSIGN_UNIQ or JOB_ASSIGN_ALL.
    Grab(Kind),
    Work(Work),
    GetStatus(Box<[u8]>),
    GetStatusUnique(Box<[u8]>, NameSearch),
    Echo(Body),
    Option(Box<[u8]>),
    SetClientId(Box<[u8]>),
    Text(AdminCommand),
    Refused(Fault),
    // Closes the connection without a reply.
    OutOfSync,
    List(ListKind, Cursor),
    // Ends the worker's reservations for a function, or for all functions if `None`.
    GiveBack(Option<Box<[u8]>>, Option<GiveBack>),
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Now,
    /// A job with a time in the past starts immediately.
    At(Time),
    On(Minutes),
}

#[derive(Debug)]
pub struct Work {
    pub kind: Kind,
    pub handle: Box<[u8]>,
    /// For WORK_STATUS, the numerator and the denominator, separated by a NUL byte.
    pub body: Body,
}

impl Command {
    pub fn is_unique_by_body(&self) -> bool {
        matches!(self, Command::Submit(submission) if submission.unique == DedupKey::Body(None))
    }

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
            // The search ignores jobs that the client has no right to query.
            Command::GetStatusUnique(..) => Subject::Job(None),
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

    fn job_body(&self) -> Option<&Body> {
        let Command::Submit(submission) = self else { return None };
        submission.background.then_some(&submission.body)
    }

    fn footprint(&self) -> u64 {
        let bytes = match self {
            Command::Submit(submission) => {
                let reducer = submission.reducer.as_ref().map_or(0, |reducer| reducer.len());
                size_of::<Submission>() + MAX_UNIQUE + submission.function.len() + reducer + submission.body.len()
            }
            Command::Work(work) => work.handle.len() + work.body.len(),
            Command::Echo(body) => body.len(),
            Command::CanDo { function: text, .. } | Command::CantDo(text) | Command::Option(text) => text.len(),
            Command::GetStatus(text) | Command::GetStatusUnique(text, _) | Command::SetClientId(text) => text.len(),
            Command::GiveBack(Some(text), _) => text.len(),
            Command::Text(_) => MAX_LINE,
            // The engine accounts for the memory of workers' reports.
            _ => 0,
        };
        bytes as u64
    }
}
