//! Events: what other clients than the caller must be told.
//!
//! Owns the list of such news. A verb appends events; whoever called it takes them, in order, before the next verb, and
//! tells each client in its own protocol. What many are told is there once: a body of some bytes may have very many to
//! hear it.

use std::sync::Arc;

use super::body::Body;
use super::handle::{ClientId, NOBODY};
use super::job::JobId;

/// How a job has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done(Body),
    Failed(Body),
    /// So badly that the worker has to explain it.
    Fault(Body),
    /// It was taken away, or its time to live has ended, before anybody did it.
    Gone,
}

impl Outcome {
    /// What those who wait are told with it.
    pub fn body(&self) -> Option<&Body> {
        match self {
            Outcome::Done(body) | Outcome::Failed(body) | Outcome::Fault(body) => Some(body),
            Outcome::Gone => None,
        }
    }
}

/// What a worker says about a job that it is at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// A part of the result.
    Data(Body),
    Warning(Body),
    Progress {
        /// In the worker's own words.
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

/// Why a client that asked for a job gets none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoJob {
    /// It waited as long as it wanted to.
    TimedOut,
    /// A reservation of its own is in its last second.
    DeadlineSoon,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Its wait is over: it has this job reserved.
    Reserved { client: ClientId, job: JobId },
    /// Its wait is over, without a job.
    NoJob { client: ClientId, why: NoJob },
    /// It is idle no longer: a tube that it watches has work.
    Work { client: ClientId },
    /// A job that it submitted or waits for has ended. If it waited, it no longer does.
    Outcome {
        client: ClientId,
        /// The job, which may be gone.
        job: JobId,
        outcome: Arc<Outcome>,
        /// The log, if there is one, records that the job has ended.
        logged: bool,
    },
    /// The worker at a job that it submitted says something.
    Report { client: ClientId, job: JobId, report: Arc<Report> },
    /// No client's: a job that was given up is buried in its own tube, since its dead-letter tube cannot take it.
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
            Event::DeadLetterStays { .. } => NOBODY,
        }
    }
}
