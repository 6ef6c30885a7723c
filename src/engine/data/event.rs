//! Events: notifications for clients other than the caller.
//!
//! Owns their list. A verb appends events. Its caller takes them, in order, before the next verb, and notifies each
//! client in the client's own protocol. An event for many clients stores its content once, since a body may go to very
//! many of them.

use std::sync::Arc;

use super::{Body, ClientId, JobId, NOBODY};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done(Body),
    Failed(Body),
    /// The job failed with an explanation from the worker.
    Fault(Body),
    /// The job was deleted, or its time to live ended, before a worker completed it.
    Gone,
}

impl Outcome {
    /// Returns the body that is sent with the outcome to waiting clients.
    pub fn body(&self) -> Option<&Body> {
        match self {
            Outcome::Done(body) | Outcome::Failed(body) | Outcome::Fault(body) => Some(body),
            Outcome::Gone => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    Data(Body),
    Warning(Body),
    Progress {
        /// The numerator and denominator, as the worker spelled them.
        text: Body,
        done: u32,
        total: u32,
    },
}

impl Report {
    pub fn body(&self) -> &Body {
        match self {
            Report::Data(body) | Report::Warning(body) | Report::Progress { text: body, .. } => body,
        }
    }
}

/// The reason why a client that requested a job gets none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoJob {
    TimedOut,
    /// One of its own reservations is in its last second.
    DeadlineSoon,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The client's wait ends with this job reserved for it.
    Reserved {
        client: ClientId,
        job: JobId,
    },
    NoJob {
        client: ClientId,
        why: NoJob,
    },
    /// The client is no longer idle: a tube that it watches has work.
    Work {
        client: ClientId,
    },
    /// A job that the client submitted or waits for has ended, and with it the client's wait.
    Outcome {
        client: ClientId,
        job: JobId,
        outcome: Arc<Outcome>,
        /// `true` if the end of the job is in the log.
        logged: bool,
    },
    /// The worker of a job that the client submitted reports something.
    Report {
        client: ClientId,
        job: JobId,
        report: Arc<Report>,
    },
    /// For the server: a dead letter is buried in its own tube because its dead-letter tube cannot accept it.
    DeadLetterStays {
        job: JobId,
        from: Arc<[u8]>,
        dead: Arc<[u8]>,
    },
}

impl Event {
    pub fn client(&self) -> ClientId {
        match self {
            Event::Reserved { client, .. }
            | Event::NoJob { client, .. }
            | Event::Work { client }
            | Event::Outcome { client, .. }
            | Event::Report { client, .. } => *client,
            Event::DeadLetterStays { .. } => NOBODY,
        }
    }
}
