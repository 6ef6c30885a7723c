//! Parsed Workq requests, the tubes and jobs that permission checks use, and the memory footprint.

use super::lookup::find;
use super::reply::{self, Words};
use super::uuid::Uuid;
use crate::access::Denied;
use crate::engine::{Body, JobPage, NamePage, Priority, Span, WantedTubes};
use crate::protocol::guard::Subject;
use crate::protocol::{Context, Flow, Output, ProtocolCommand};

#[derive(Debug)]
pub enum Command {
    Add(Box<Submission>),
    Run { id: Uuid, name: Box<[u8]>, ttr: Span, pri: Priority, wait: Span },
    // The second field is the maximum wait.
    Result(Uuid, Span),
    Lease(WantedTubes, Span),
    // `complete` if `true`, and `fail` if `false`.
    Complete(Uuid, bool),
    Delete(Uuid),
    InspectServer,
    InspectQueues(Box<NamePage>),
    InspectQueue(Box<[u8]>),
    InspectJobs(Box<[u8]>, Box<JobPage>),
    InspectJob(Uuid),
    Refused(Words),
    // The start of the next command is unknown, so the connection closes after the reply, if any.
    Close(Option<Words>),
}

#[derive(Debug)]
pub struct Submission {
    pub id: Uuid,
    pub name: Box<[u8]>,
    pub ttr: Span,
    /// After this time, the job or its outcome is deleted.
    pub ttl: Span,
    /// Nanoseconds since the Unix epoch; `None` for `add`.
    pub time: Option<i128>,
    /// In the engine's order: small numbers are served first.
    pub pri: Priority,
    /// Maximum leases. 0 means unlimited.
    pub max_attempts: u8,
    /// A job fails permanently after this many failures. 0 means 1.
    pub max_fails: u8,
}

#[derive(Debug)]
pub struct Request {
    pub command: Command,
    /// The payload or result; can be empty.
    pub data: Body,
}

impl ProtocolCommand for Request {
    fn subject(&self, context: &Context) -> Subject<'_> {
        match &self.command {
            Command::Add(submission) => Subject::Tube(&submission.name),
            Command::Run { name, .. } | Command::InspectQueue(name) | Command::InspectJobs(name, _) => {
                Subject::Tube(name)
            }
            Command::Lease(names, _) => Subject::Tubes(&names.names),
            Command::Result(id, _) | Command::Complete(id, _) | Command::Delete(id) | Command::InspectJob(id) => {
                Subject::Job(find(context.engine, id))
            }
            _ => Subject::Nothing,
        }
    }

    fn deny(&self, denied: Denied, out: &mut Output) -> Flow {
        reply::words(out, if denied == Denied::Unknown { reply::UNAUTHORIZED } else { reply::FORBIDDEN });
        Flow::denied(denied)
    }

    fn is_logged(&self) -> bool {
        matches!(self.command, Command::Add(_) | Command::Complete(..) | Command::Delete(_))
    }

    fn job_body(&self) -> Option<&Body> {
        matches!(self.command, Command::Add(_)).then_some(&self.data)
    }

    fn footprint(&self) -> u64 {
        let command = match &self.command {
            Command::Add(submission) => size_of::<Submission>() + submission.name.len(),
            Command::Lease(names, _) => names.names.len(),
            Command::Run { name, .. } | Command::InspectQueue(name) => name.len(),
            Command::InspectJobs(name, page) => size_of::<JobPage>() + name.len() + page.footprint() as usize,
            Command::InspectQueues(page) => size_of::<NamePage>() + page.footprint() as usize,
            _ => 0,
        };
        (size_of::<Request>() + command + self.data.len()) as u64
    }
}
