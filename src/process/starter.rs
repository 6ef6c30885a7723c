//! The connection to the parent process, such as a test suite, a Makefile or a supervisor.
//!
//! Owns the file with the port, the line that reports that the server listens, and the wait for the end of the parent.
//! Must not know the server.

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

/// The last standard file; standard files stay open after the line is written.
const LAST_STANDARD: RawFd = 2;

/// Interval between checks of the parent where the system cannot wait for it (Linux before 5.3).
const GLANCE: Duration = Duration::from_millis(500);

/// The stack size in bytes of the thread that waits for the end of the parent.
const STACK: usize = 64 * 1024;

/// An open file to which the server writes when it listens.
pub struct ReadyFile(RawFd);

impl ReadyFile {
    /// Checks that a file with this number is open. Call this before this process opens files, since one of them might
    /// get the number.
    #[allow(unsafe_code)]
    pub fn claim(number: RawFd) -> io::Result<ReadyFile> {
        // SAFETY: the file is inspected, not taken; if it is not open, the call returns an error.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        fcntl(file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        if system::is_listener(file) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "that file is a socket to listen on"));
        }
        Ok(ReadyFile(number))
    }

    /// Writes the addresses in one line, separated by spaces, and closes the file unless it is a standard file.
    #[allow(unsafe_code)]
    pub fn tell(self, names: &[String]) -> io::Result<()> {
        // SAFETY: [`ReadyFile::claim`] has checked that the file is open, no other code uses its number, and it is
        // taken once.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(self.0) });
        let told = (&file).write_all(format!("{}\n", names.join(" ")).as_bytes());
        if self.0 <= LAST_STANDARD {
            std::mem::forget(file);
        }
        told
    }
}

/// The port file. Removed at the end of the process, unless another file has taken its place.
pub struct PortFile(FileEntry);

impl PortFile {
    /// Writes the port of this address. Readers never see an incomplete file.
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

/// The process that started this one.
pub struct Parent {
    id: Pid,
    /// Becomes readable when that process ends, where the system supports this.
    end: Option<OwnedFd>,
    /// The process that started this one has ended already, and another one is now the parent.
    is_foster: bool,
}

impl Parent {
    /// Call this at startup, because the parent may change.
    pub fn find() -> Parent {
        let id = getppid();
        Parent { id, end: system::end_of(id), is_foster: is_foster(id) }
    }

    /// Makes the end of the parent stop this process like SIGTERM.
    pub fn tie(self) -> io::Result<()> {
        std::thread::Builder::new().name("parent".to_owned()).stack_size(STACK).spawn(move || {
            self.wait();
            log::info!("the process that started this one has ended");
            let _ = signal_hook::low_level::raise(SIGTERM);
        })?;
        Ok(())
    }

    fn wait(&self) {
        // If the parent is another one, the first one has ended, perhaps before it could be watched.
        while getppid() == self.id && !self.is_foster {
            match &self.end {
                Some(end) => match poll(&mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
                    Err(Errno::EINTR) => {}
                    _ => return,
                },
                None => std::thread::sleep(GLANCE),
            }
        }
    }
}

/// `true` if this parent cannot have started this process: a process is born into the session of its parent, unless it
/// has begun one of its own. The id of the parent alone does not show that, because the first process of a container
/// may well start servers.
fn is_foster(parent: Pid) -> bool {
    let session = getsid(None);
    session != Ok(getpid()) && getsid(Some(parent)) != session
}
