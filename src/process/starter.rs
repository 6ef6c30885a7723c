//! The relation to the parent process, such as a test suite, a Makefile or a supervisor: the port file, the line that
//! reports the listening addresses, and the end of the parent.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use beanpole::internals::files::{FileEntry, FilePlace};
use beanpole::internals::system;
use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::unistd::{getpid, getppid, getsid, Pid};
use signal_hook::consts::SIGTERM;

/// Standard files stay open after the line is written.
const LAST_STANDARD: RawFd = 2;

/// Linux before 5.3, for example, cannot wait for the end of the parent.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

const STACK: usize = 64 * 1024;

pub struct ReadyFile(RawFd);

impl ReadyFile {
    /// Fails unless the file is open. Must be called before this process opens files, because one of them could get the
    /// same number.
    #[allow(unsafe_code)]
    pub fn claim(number: RawFd) -> io::Result<ReadyFile> {
        // SAFETY: the file is only inspected. If it is not open, the call returns an error.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        fcntl(file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        if system::is_listener(file) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "that file is a socket to listen on"));
        }
        Ok(ReadyFile(number))
    }

    /// Closes the file, unless it is a standard file.
    #[allow(unsafe_code)]
    pub fn announce(self, names: &[String]) -> io::Result<()> {
        // SAFETY: [`ReadyFile::claim`] has checked that the file is open, and no other code uses the file.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(self.0) });
        let written = (&file).write_all(format!("{}\n", names.join(" ")).as_bytes());
        if self.0 <= LAST_STANDARD {
            std::mem::forget(file);
        }
        written
    }
}

/// Dropping this value removes the port file, unless another file has replaced it.
pub struct PortFile(FileEntry);

impl PortFile {
    /// Readers never see an incomplete file.
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
    /// Readable when the parent ends; `None` if the system has no such descriptor.
    end: Option<OwnedFd>,
    is_reparented: bool,
}

impl Parent {
    /// Must be called at startup, because the parent can change.
    pub fn find() -> Parent {
        let id = getppid();
        Parent { id, end: system::end_of(id), is_reparented: is_reparented(id) }
    }

    /// A thread raises SIGTERM when the parent ends.
    pub fn tie(self) -> io::Result<()> {
        std::thread::Builder::new().name("parent".to_owned()).stack_size(STACK).spawn(move || {
            self.wait();
            log::info!("the process that started this one has ended");
            let _ = signal_hook::low_level::raise(SIGTERM);
        })?;
        Ok(())
    }

    fn wait(&self) {
        // If the parent ID has changed, the original parent has ended.
        while getppid() == self.id && !self.is_reparented {
            match &self.end {
                Some(end) => match poll(&mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
                    Err(Errno::EINTR) => {}
                    _ => return,
                },
                None => std::thread::sleep(CHECK_INTERVAL),
            }
        }
    }
}

/// A process of another session cannot have started this process, unless this process has created its own session. A
/// parent ID of 1 proves nothing, because the first process of a container can start servers.
fn is_reparented(parent: Pid) -> bool {
    let session = getsid(None);
    session != Ok(getpid()) && getsid(Some(parent)) != session
}
