//! A reserved job, and the interface of an attempt to process the job.

use std::io;
use std::time::{Duration, Instant};

use crate::client::Transport;

pub const MAX_BACKOFF: u64 = 3600;

/// Bytes of a failure reason.
pub const KEPT: usize = 4096;

/// A worker learns at a touch that its job was revoked.
const TOUCH: Duration = Duration::from_secs(2);

pub type Spare = (Transport, Instant);

#[derive(Debug)]
pub struct Task {
    pub id: u64,
    pub tube: String,
    pub pri: u64,
    pub ttr: u64,
    pub reserves: u64,
    /// Includes the current try. A kick resets the number.
    pub tries: u64,
    /// Includes the current try. `None` if the server does not limit the tries.
    pub left: Option<u64>,
}

impl Task {
    pub fn pace(&self) -> Duration {
        TOUCH.min(Duration::from_millis(self.ttr.saturating_mul(500)))
    }
}

/// A running command or an HTTP request.
pub trait Attempt {
    fn outcome(&mut self) -> io::Result<Option<AttemptOutcome>>;
    /// The outcome becomes available soon afterwards.
    fn abort(&mut self);
    fn too_long(&self, seconds: u64) -> String;
    /// Returns `message` with output of the command or the endpoint.
    fn reason(&mut self, message: &str) -> Vec<u8>;
    fn spare(&mut self) -> Option<Spare> {
        None
    }
}

/// Strings are error messages of attempts.
pub enum AttemptOutcome {
    Done,
    Failed(String),
    /// Nothing was sent, because the endpoint is unreachable.
    Unreachable(String),
    /// The endpoint requested a delay in seconds.
    Busy(String, u64),
    Stopped,
    /// The worker no longer holds the job.
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

    /// `true` if the endpoint has not processed the job.
    pub fn is_unprocessed(&self) -> bool {
        matches!(self, AttemptOutcome::Busy(..) | AttemptOutcome::Unreachable(_))
    }
}
