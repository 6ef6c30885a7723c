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

/// What the command is told about its job.
#[derive(Clone, Debug)]
pub struct About {
    pub id: u64,
    pub tube: String,
    /// How often it was reserved, this time included.
    pub reserves: u64,
}

pub fn start(plan: &Plan, about: &About, body: &[u8]) -> io::Result<Child> {
    let mut file = File::from(memfd_create(c"job", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(body)?;
    file.rewind()?;
    Command::new(&plan.program)
        .args(&plan.arguments)
        .env("BEANPOLE_JOB_ID", about.id.to_string())
        .env("BEANPOLE_JOB_TUBE", &about.tube)
        .env("BEANPOLE_JOB_RESERVES", about.reserves.to_string())
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
