//! A reserved job, and the attempts to process it. A command gets the job body in an unnamed file, because a command
//! that does not read a pipe would block the worker. A separate process group protects the command from Ctrl-C.

use std::io::{self, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{path::Path, sync::Arc};

use crossbeam_channel::{bounded, Receiver};
use nix::errno::Errno;
use nix::sys::signal::{killpg, Signal};
use nix::unistd::{write, Pid};
use parking_lot::Mutex;

use crate::client::Transport;
use crate::shared::system;

pub const MAX_BACKOFF: u64 = 3600;
/// The maximum length of a failure reason in bytes.
pub const KEPT: usize = 4096;

pub type Spare = (Transport, Instant);

pub struct Task {
    pub id: u64,
    pub tube: String,
    pub pri: u64,
    pub ttr: u64,
    pub reserves: u64,
    /// The number of tries, including the current try. A kick resets the number.
    pub tries: u64,
    /// The number of remaining tries, including the current try. `None` if the server does not limit the tries.
    pub left: Option<u64>,
}

impl Task {
    pub fn pace(&self) -> Duration {
        // Touch often: only the reply to a touch shows the worker that its job was revoked.
        Duration::from_secs(2).min(Duration::from_millis(self.ttr.saturating_mul(500)))
    }
}

pub trait Attempt {
    fn outcome(&mut self) -> io::Result<Option<Outcome>>;
    /// Aborts the attempt. The outcome becomes available soon afterwards.
    fn abort(&mut self);
    /// Returns at most `capacity` bytes: the end of the command's stderr, or the start of the endpoint's response body.
    fn output(&mut self, capacity: usize) -> Vec<u8>;
    fn spare(&mut self) -> Option<Spare> {
        None
    }
}

/// The strings are error messages of attempts.
pub(super) enum Outcome {
    Done,
    Failed(String),
    /// Nothing was sent, because the endpoint is unreachable.
    Unreachable(String),
    /// The endpoint requested a delay. The number is the delay in seconds.
    Busy(String, u64),
    Stopped,
    /// The worker no longer holds the job.
    Lost,
}

impl Outcome {
    pub fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Done => None,
            Outcome::Failed(message) | Outcome::Unreachable(message) | Outcome::Busy(message, _) => Some(message),
            Outcome::Stopped => Some("stopped"),
            Outcome::Lost => Some("killed"),
        }
    }

    pub fn is_unprocessed(&self) -> bool {
        matches!(self, Outcome::Busy(..) | Outcome::Unreachable(_))
    }
}

/// The maximum wait for EOF on stderr after the command has exited. A background process can keep stderr open.
const PATIENCE: Duration = Duration::from_millis(200);

pub struct CommandAttempt {
    child: Child,
    /// The last [`KEPT`] bytes of stderr.
    end: Arc<Mutex<Vec<u8>>>,
    is_over: Receiver<()>,
}

impl CommandAttempt {
    pub fn start(path: &Path, arguments: &[String], job: &Task, body: &[u8]) -> io::Result<CommandAttempt> {
        let mut file = system::nameless_file()?;
        file.write_all(body)?;
        file.rewind()?;
        let mut child = Command::new(path)
            .args(arguments)
            .env("BEANPOLE_JOB_ID", job.id.to_string())
            .env("BEANPOLE_JOB_TUBE", &job.tube)
            .env("BEANPOLE_JOB_RESERVES", job.reserves.to_string())
            .stdin(Stdio::from(file))
            // If stdout is closed, the command gets /dev/null instead, so that it does not fail.
            .stdout(if write(io::stdout(), &[]) != Err(Errno::EBADF) { Stdio::inherit() } else { Stdio::null() })
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let mut stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let end = Arc::new(Mutex::new(Vec::new()));
        let (over, is_over) = bounded(1);
        let kept = end.clone();
        std::thread::Builder::new().spawn(move || {
            let mut bytes = [0; KEPT];
            while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                let _ = io::stderr().write_all(&bytes[..count]);
                let mut kept = kept.lock();
                kept.extend_from_slice(&bytes[..count]);
                let excess = kept.len().saturating_sub(KEPT);
                kept.drain(..excess);
            }
            let _ = over.send(());
        })?;
        Ok(CommandAttempt { child, end, is_over })
    }
}

impl Attempt for CommandAttempt {
    fn outcome(&mut self) -> io::Result<Option<Outcome>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        Ok(Some(match (status.code(), status.signal()) {
            (Some(0), _) => Outcome::Done,
            (Some(code), _) => Outcome::Failed(format!("exit {code}")),
            (None, Some(signal)) => Outcome::Failed(format!("killed by signal {signal}")),
            (None, None) => Outcome::Failed("ended strangely".to_owned()),
        }))
    }

    fn abort(&mut self) {
        // The process ID is still the command's: only `try_wait` releases the ID, after which `abort` is never called.
        if killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL).is_err() {
            let _ = self.child.kill();
        }
    }

    fn output(&mut self, capacity: usize) -> Vec<u8> {
        let _ = self.is_over.recv_timeout(PATIENCE);
        let kept = self.end.lock();
        let last = kept.trim_ascii();
        let from = last.len().saturating_sub(capacity);
        // A UTF-8 character may have been truncated.
        let from = (from..last.len()).find(|at| last[*at] & 0xc0 != 0x80).unwrap_or(last.len());
        last[from..].to_vec()
    }
}
