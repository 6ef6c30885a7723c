//! A job in the hands of a worker, and how an attempt to carry it out ends.
//!
//! Owns the limits that commands and requests have in common. Must not decide what becomes of the job.

/// The maximum delay before a retry, in seconds.
pub const MAX_BACKOFF: u64 = 3600;

/// The maximum size of the reason of a failure, in bytes.
pub const KEPT: usize = 4096;

#[derive(Debug)]
pub struct Task {
    pub id: u64,
    pub tube: String,
    pub pri: u64,
    pub ttr: u64,
    /// The number of reservations, including the current one.
    pub reserves: u64,
    /// The number of tries since the job was kicked, including the current one.
    pub tries: u64,
    /// The number of tries left, including the current one, if the server limits it.
    pub left: Option<u64>,
}

/// How an attempt ends, with the description of a failure.
pub enum Ending {
    Done,
    Failed(String),
    /// The endpoint cannot be reached, so nothing was sent.
    Unreachable(String),
    /// The endpoint asks to be left alone for this many seconds.
    Busy(String, u64),
    /// The attempt was aborted because the worker stops.
    Stopped,
    /// The attempt was aborted because the worker no longer holds the job.
    Lost,
}

impl Ending {
    /// Returns a description of the failure, or `None` if the attempt succeeded.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Ending::Done => None,
            Ending::Failed(told) | Ending::Unreachable(told) | Ending::Busy(told, _) => Some(told),
            Ending::Stopped => Some("stopped"),
            Ending::Lost => Some("killed"),
        }
    }
}
