//! Events: notifications for clients other than the caller.
//!
//! Owns the kinds of events. The methods of the engine append events. The caller takes the events in order before the
//! next call, and notifies each client in the client's protocol. The content of an event for many clients is shared,
//! not copied. Must not depend on a protocol.

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

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    Data(Body),
    Warning(Body),
    Progress {
        /// The numerator and denominator of the progress, exactly as the worker sent them.
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

/// The reason why a job request returns no job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoJob {
    TimedOut,
    /// A reservation of the receiving client is in its last second.
    DeadlineSoon,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    Reserved {
        client: ClientId,
        job: JobId,
    },
    NoJob {
        client: ClientId,
        why: NoJob,
    },
    /// A watched tube of an idle client has a ready job.
    Work {
        client: ClientId,
    },
    /// A job that the client submitted or waited for has ended. The client's wait ends too.
    Outcome {
        client: ClientId,
        job: JobId,
        outcome: Arc<Outcome>,
        /// `true` if the end of the job is in the log.
        logged: bool,
    },
    Report {
        client: ClientId,
        job: JobId,
        report: Arc<Report>,
    },
    /// The job was held until group members had ended, and is now reserved. The client must not receive the job before
    /// the log contains these ends.
    Freed {
        job: JobId,
    },
    /// A failed job stays in its tube because the dead-letter tube cannot accept it. Received only by the server.
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
            Event::Freed { .. } | Event::DeadLetterStays { .. } => NOBODY,
        }
    }
}
