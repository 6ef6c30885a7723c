//! Interaction with the parent process: the background mode and the PID file, which are used under the program name
//! gearmand, and options that tie the program to its parent, such as a test suite, a Makefile or a supervisor.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::{net::SocketAddr, os::unix::net::UnixStream, path::Path, process::ExitCode, time::Duration};

use beanpole::internals::files::{FileEntry, FilePlace};
use beanpole::internals::system;
use nix::fcntl::{fcntl, FcntlArg, FdFlag, OFlag};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, fork, getpid, getppid, getsid, setsid, ForkResult, Pid};
use nix::{errno::Errno, libc::STDERR_FILENO};
use signal_hook::consts::SIGTERM;

pub enum Side {
    Background(Ready),
    Foreground(ExitCode),
}

pub struct Ready(UnixStream);

/// Returns immediately in the background process. In the original process, waits until the background process is ready
/// or has exited, and returns the exit code.
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
            let code = if let Ok(WaitStatus::Exited(_, code)) = waitpid(child, None) { code as u8 } else { 1 };
            Ok(Side::Foreground(ExitCode::from(code.max(1))))
        }
    }
}

impl Ready {
    /// Redirects the standard streams to /dev/null. With `keeps_stderr`, does not redirect stderr. Notifies the parent.
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

pub struct ReadyFile(RawFd);

impl ReadyFile {
    /// Fails if the file is not open or is a listening socket. Must be called before this process opens files, because
    /// one of them could get the same number.
    #[allow(unsafe_code)]
    pub fn claim(number: RawFd) -> io::Result<ReadyFile> {
        // SAFETY: the borrow is used only for system calls in this function, and does not close the file. If the file
        // is not open, `fcntl` returns an error.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        fcntl(file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        if system::is_listener(file) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "that file is a socket to listen on"));
        }
        Ok(ReadyFile(number))
    }

    /// Writes `names`. Closes the file, unless it is a standard stream.
    #[allow(unsafe_code)]
    pub fn announce(self, names: &[String]) -> io::Result<()> {
        // SAFETY: [`ReadyFile::claim`] has checked that the file is open, and no other code uses the file.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(self.0) });
        let written = (&file).write_all(format!("{}\n", names.join(" ")).as_bytes());
        if self.0 <= STDERR_FILENO {
            std::mem::forget(file);
        }
        written
    }
}

pub struct PortFile(FileEntry);

impl PortFile {
    /// Replaces the file atomically, so readers never see an incomplete file.
    pub fn write(path: &Path, address: Option<SocketAddr>) -> io::Result<PortFile> {
        let port = address.map(|address| address.port());
        let port = port.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the server has no TCP port"))?;
        Ok(PortFile(FilePlace::find(path)?.replace(format!("{port}\n").as_bytes())?))
    }
}

impl Drop for PortFile {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

pub struct Parent {
    id: Pid,
    end: Option<OwnedFd>,
    is_reparented: bool,
}

impl Parent {
    /// Must be called at startup, because the kernel assigns another parent when the original parent exits.
    pub fn find() -> Parent {
        let (id, session) = (getppid(), getsid(None));
        // A process of another session cannot have started this process, unless this process has created its own
        // session. A parent ID of 1 proves nothing, because a container's first process can start servers.
        let is_reparented = session != Ok(getpid()) && getsid(Some(id)) != session;
        Parent { id, end: system::end_of(id), is_reparented }
    }

    /// Starts a thread that raises SIGTERM when the parent exits.
    pub fn tie(self) -> io::Result<()> {
        std::thread::Builder::new().name("parent".to_owned()).stack_size(64 * 1024).spawn(move || {
            self.wait();
            log::info!("the process that started this one has ended");
            let _ = signal_hook::low_level::raise(SIGTERM);
        })?;
        Ok(())
    }

    fn wait(&self) {
        // If the parent ID has changed, the original parent has exited.
        while getppid() == self.id && !self.is_reparented {
            match &self.end {
                Some(end) => match poll(&mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
                    Err(Errno::EINTR) => {}
                    _ => return,
                },
                // Linux before 5.3, for example, cannot wait for the parent to exit.
                None => std::thread::sleep(Duration::from_millis(500)),
            }
        }
    }
}
