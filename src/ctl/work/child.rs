//! A command that runs for one job.
//!
//! Owns what the command is given: the body on stdin, from a file without a name, so that a command that does not
//! read it holds up nobody; three variables; and a process group of its own, so that Ctrl-C reaches the worker only.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::memfd::{memfd_create, MFdFlags};

use super::Plan;

/// A job that the worker has reserved.
#[derive(Debug)]
pub struct Task {
    pub id: u64,
    pub tube: String,
    pub pri: u64,
    /// The time to run, in seconds.
    pub ttr: u64,
    /// How often it was reserved, this time included.
    pub reserves: u64,
    /// How often it was tried since it was kicked, this time included.
    pub tries: u64,
}

pub fn start(plan: &Plan, job: &Task, body: &[u8]) -> io::Result<Child> {
    let mut file = File::from(memfd_create(c"job", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(body)?;
    file.rewind()?;
    Command::new(&plan.program)
        .args(&plan.arguments)
        .env("BEANPOLE_JOB_ID", job.id.to_string())
        .env("BEANPOLE_JOB_TUBE", &job.tube)
        .env("BEANPOLE_JOB_RESERVES", job.reserves.to_string())
        .stdin(Stdio::from(file))
        .process_group(0)
        .spawn()
}

/// How it ended, in words; none if it went well.
pub fn failure(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit {code}")),
        (None, Some(signal)) => Some(format!("killed by signal {signal}")),
        (None, None) => Some("ended strangely".to_owned()),
    }
}
