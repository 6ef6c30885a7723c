//! A reserved job, and the interface of an attempt to process the job.
//!
//! Owns limits that apply to commands and requests. Must not decide what happens to the job.

use std::io;
use std::time::{Duration, Instant};

use crate::client::Transport;

pub const MAX_BACKOFF: u64 = 3600;

/// The maximum size of a failure reason, in bytes.
pub const KEPT: usize = 4096;

/// The maximum time between two touches of a job. A worker detects that its job was revoked when it touches the job.
const TOUCH: Duration = Duration::from_secs(2);

pub type Spare = (Transport, Instant);

#[derive(Debug)]
pub struct Task {
    pub id: u64,
    pub tube: String,
    pub pri: u64,
    pub ttr: u64,
    pub reserves: u64,
    /// The number of tries since the last kick, including the current try.
    pub tries: u64,
    /// The number of remaining tries, including the current try, or `None` if the server does not limit the tries.
    pub left: Option<u64>,
}

impl Task {
    pub fn pace(&self) -> Duration {
        TOUCH.min(Duration::from_millis(self.ttr.saturating_mul(500)))
    }
}

/// An attempt to process a job: a running command or an HTTP request.
pub trait Attempt {
    /// Returns `None` while the attempt is running.
    fn outcome(&mut self) -> io::Result<Option<AttemptOutcome>>;
    /// Aborts the attempt, whose outcome becomes available soon afterwards.
    fn abort(&mut self);
    /// Returns the error message for an attempt that exceeded its time limit.
    fn too_long(&self, seconds: u64) -> String;
    /// Returns `message`, followed by output of the command or the endpoint.
    fn reason(&mut self, message: &str) -> Vec<u8>;
    fn spare(&mut self) -> Option<Spare> {
        None
    }
}

/// The outcome of an attempt. Strings are error messages.
pub enum AttemptOutcome {
    Done,
    Failed(String),
    /// The endpoint could not be reached. Nothing was sent.
    Unreachable(String),
    /// The endpoint requested a delay, in seconds.
    Busy(String, u64),
    /// The attempt was aborted because the worker is stopping.
    Stopped,
    /// The attempt was aborted because the job is no longer reserved by the worker.
    Lost,
}

impl AttemptOutcome {
    pub fn failure(&self) -> Option<&str> {
        match self {
            AttemptOutcome::Done => None,
            AttemptOutcome::Failed(message)
            | AttemptOutcome::Unreachable(message)
            | AttemptOutcome::Busy(message, _) => Some(message),
            AttemptOutcome::Stopped => Some("stopped"),
            AttemptOutcome::Lost => Some("killed"),
        }
    }

    /// Returns `true` if the endpoint has not processed the job.
    pub fn is_unprocessed(&self) -> bool {
        matches!(self, AttemptOutcome::Busy(..) | AttemptOutcome::Unreachable(_))
    }
}
