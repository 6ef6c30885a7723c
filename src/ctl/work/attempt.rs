//! An attempt to process a job: a running command or an HTTP request.
//!
//! Owns the common interface of commands and requests. Must not decide what happens to the job afterwards.

use std::io;
use std::process::Child;

use super::child::{failure, kill, Errors};
use super::endpoint::Delivery;
use super::task::AttemptOutcome;

pub enum Attempt {
    Command(Child, Errors),
    Delivery(Delivery),
}

impl Attempt {
    /// Returns the outcome, or `None` while the attempt is running.
    pub fn outcome(&mut self) -> io::Result<Option<AttemptOutcome>> {
        Ok(match self {
            Attempt::Command(child, _) => {
                child.try_wait()?.map(|status| failure(status).map_or(AttemptOutcome::Done, AttemptOutcome::Failed))
            }
            Attempt::Delivery(delivery) => delivery.outcome(),
        })
    }

    /// Aborts the attempt. The outcome becomes available soon afterwards.
    pub fn abort(&mut self) {
        match self {
            Attempt::Command(child, _) => kill(child),
            Attempt::Delivery(delivery) => delivery.abort(),
        }
    }

    /// Returns the error message for an attempt that exceeded its time limit.
    pub fn too_long(&self, seconds: u64) -> String {
        match self {
            Attempt::Command(..) => format!("killed after {seconds} s"),
            Attempt::Delivery(_) => format!("no response within {seconds} s"),
        }
    }

    /// Returns the failure reason: `message`, followed by output of the command or the endpoint.
    pub fn reason(&mut self, message: &str) -> Vec<u8> {
        match self {
            Attempt::Command(_, errors) => errors.reason(message),
            Attempt::Delivery(delivery) => delivery.reason(message),
        }
    }
}
