//! Notifications for clients other than the caller, which the caller takes in order before its next call of the engine.
//! The content of an event for many clients is shared. Must not depend on a protocol.

use std::sync::Arc;

use super::{Body, ClientId, JobId, NOBODY};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done(Body),
    Failed(Body),
    Fault(Body),
    /// The job was deleted or expired without an outcome.
    Gone,
}

impl Outcome {
    pub fn body(&self) -> Option<&Body> {
        match self {
            Outcome::Done(body) | Outcome::Failed(body) | Outcome::Fault(body) => Some(body),
            Outcome::Gone => None,
        }
    }
}

/// The `text` of `Progress` is the numerator and the denominator as the worker sent them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    Data(Body),
    Warning(Body),
    Progress { text: Body, done: u32, total: u32 },
}

impl Report {
    pub fn body(&self) -> &Body {
        match self {
            Report::Data(body) | Report::Warning(body) | Report::Progress { text: body, .. } => body,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoJob {
    TimedOut,
    DeadlineSoon,
}

/// `Work` is for an idle client with a ready job in a watched tube. The client of a `Freed` job, which was held for a
/// group, must not receive it before the log contains the ends of the members. `DeadLetterStays` is for the server only:
/// the dead-letter tube cannot accept the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    Reserved { client: ClientId, job: JobId },
    NoJob { client: ClientId, why: NoJob },
    Work { client: ClientId },
    Outcome { client: ClientId, job: JobId, outcome: Arc<Outcome>, logged: bool },
    Report { client: ClientId, job: JobId, report: Arc<Report> },
    Freed { job: JobId },
    DeadLetterStays { job: JobId, from: Arc<[u8]>, dead: Arc<[u8]> },
}

impl Event {
    pub fn client(&self) -> ClientId {
        match self {
            Event::Reserved { client, .. }
            | Event::NoJob { client, .. }
            | Event::Work { client }
            | Event::Outcome { client, .. }
            | Event::Report { client, .. } => *client,
            Event::Freed { .. } | Event::DeadLetterStays { .. } => NOBODY,
        }
    }
}
