//! Running in the background, and the PID file, under the name gearmand. The original process exits only when the
//! server listens or has failed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use beanpole::internals::files::{FileEntry, FilePlace};
use nix::fcntl::OFlag;
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid, ForkResult};

pub enum Side {
    /// Must call [`Ready::announce`] when the server listens.
    Background(Ready),
    /// The original process exits with this code.
    Foreground(ExitCode),
}

pub struct Ready(UnixStream);

/// Returns immediately in the background process. The original process first waits until the background process is
/// ready or has exited, and gets the corresponding exit code.
#[allow(unsafe_code)]
pub fn detach() -> io::Result<Side> {
    let (mut here, there) = UnixStream::pair()?;
    // SAFETY: there is no other thread yet, so the child may call any function.
    match unsafe { fork() }? {
        ForkResult::Child => {
            setsid()?;
            Ok(Side::Background(Ready(there)))
        }
        ForkResult::Parent { child } => {
            drop(there);
            if here.read_exact(&mut [0]).is_ok() {
                return Ok(Side::Foreground(ExitCode::SUCCESS));
            }
            let code = match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, code)) => code as u8,
                _ => 1,
            };
            Ok(Side::Foreground(ExitCode::from(code.max(1))))
        }
    }
}

impl Ready {
    /// The original process exits. The standard files of this process become /dev/null, except stderr with
    /// `keeps_stderr`.
    pub fn announce(mut self, keeps_stderr: bool) -> io::Result<()> {
        let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&nothing)?;
        dup2_stdout(&nothing)?;
        if !keeps_stderr {
            dup2_stderr(&nothing)?;
        }
        self.0.write_all(&[1])
    }
}

/// Dropping this value removes the PID file, if the process is permitted to do so.
pub struct PidFile {
    file: File,
    entry: FileEntry,
    written: bool,
}

impl PidFile {
    /// Must be called before privileges are dropped. The file keeps its contents until [`PidFile::write`].
    pub fn open(path: &Path) -> io::Result<PidFile> {
        let (file, _, entry) = FilePlace::open(path, OFlag::O_WRONLY)?;
        Ok(PidFile { file, entry, written: false })
    }

    pub fn write(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.written = true;
        writeln!(self.file, "{}", std::process::id())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let is_empty = self.file.metadata().is_ok_and(|facts| facts.len() == 0);
        if self.written || is_empty {
            let _ = self.entry.remove();
        }
    }
}
