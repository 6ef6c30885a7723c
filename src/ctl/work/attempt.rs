//! An attempt to carry out a job: a running command, or a request.
//!
//! Owns their common interface. Must not decide what becomes of the job.

use std::io;
use std::process::Child;

use super::child::{failure, kill, Errors};
use super::endpoint::Delivery;
use super::task::Ending;

/// An attempt to carry out a job.
pub enum Attempt {
    Command(Child, Errors),
    Delivery(Delivery),
}

impl Attempt {
    /// Returns how the attempt ended, if it has.
    pub fn ending(&mut self) -> io::Result<Option<Ending>> {
        Ok(match self {
            Attempt::Command(child, _) => {
                child.try_wait()?.map(|status| failure(status).map_or(Ending::Done, Ending::Failed))
            }
            Attempt::Delivery(delivery) => delivery.ending(),
        })
    }

    /// Aborts the attempt, which then ends soon.
    pub fn abort(&mut self) {
        match self {
            Attempt::Command(child, _) => kill(child),
            Attempt::Delivery(delivery) => delivery.abort(),
        }
    }

    /// Returns the description of a failure that took this many seconds.
    pub fn too_long(&self, seconds: u64) -> String {
        match self {
            Attempt::Command(..) => format!("killed after {seconds} s"),
            Attempt::Delivery(_) => format!("no response within {seconds} s"),
        }
    }

    /// Returns the reason of a failure with this description.
    pub fn reason(&mut self, told: &str) -> Vec<u8> {
        match self {
            Attempt::Command(_, errors) => errors.reason(told),
            Attempt::Delivery(delivery) => delivery.reason(told),
        }
    }
}
