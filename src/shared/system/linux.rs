//! Linux features, with fallbacks for older kernels and for systems without /proc.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use mio::Interest;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc::{self, c_long};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::resource::Resource;
use nix::sys::statfs::{fstatfs, PROC_SUPER_MAGIC};
use nix::time::{clock_gettime, ClockId};
use nix::unistd::{setgroups, Gid, Pid};
use socket2::SockRef;

mod proc;

pub use proc::*;

pub const O_PATH: OFlag = OFlag::O_PATH;
/// Permits files of more than 2 GiB on 32-bit systems.
pub const O_LARGEFILE: OFlag = OFlag::O_LARGEFILE;
pub const ADDRESS_SPACE: Resource = Resource::RLIMIT_AS;
/// Polled because a read stops at the urgent mark even if more data follows.
pub const URGENT: Option<Interest> = Some(Interest::PRIORITY);

const GROUPS: usize = 32;
const MAX_GROUPS: usize = 65_536;

/// Unlike other clocks, counts while the machine is suspended.
pub fn boot_time() -> Duration {
    // Available since Linux 2.6.39.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

pub fn is_proc(folder: impl AsFd) -> nix::Result<bool> {
    Ok(fstatfs(folder)?.filesystem_type() == PROC_SUPER_MAGIC)
}

pub fn nameless_file() -> io::Result<File> {
    Ok(memfd_create(c"beanpole", MFdFlags::MFD_CLOEXEC)?.into())
}

/// The process's user and groups when it connected.
pub fn peer(socket: impl AsFd) -> io::Result<(u32, Vec<u32>)> {
    // The process ID, the user ID and the group ID of the peer.
    let mut process = [0; 3];
    super::option(&socket, libc::SO_PEERCRED, &mut process)?;
    let [_, user, group] = process;
    let mut groups = vec![0; GROUPS];
    let count = super::option(&socket, libc::SO_PEERGROUPS, &mut groups).or_else(|error| {
        if error.raw_os_error() != Some(libc::ERANGE) {
            return Err(error);
        }
        groups.resize(MAX_GROUPS, 0);
        super::option(&socket, libc::SO_PEERGROUPS, &mut groups)
    });
    // Kernels before 4.13 report only the primary group.
    groups.truncate(count.unwrap_or(0));
    groups.push(group);
    Ok((user, groups))
}

pub fn limit_unacknowledged(socket: &SockRef, time: Duration) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(time))
}

pub fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

pub fn set_groups(group: Gid) -> nix::Result<()> {
    setgroups(&[group])
}

/// Programs that this process executes cannot gain privileges.
pub fn forbid_privileges() -> nix::Result<()> {
    nix::sys::prctl::set_no_new_privs()
}

/// Root loses its capabilities when the user ID changes, but other users do not.
#[allow(unsafe_code)]
pub fn drop_capabilities() -> nix::Result<()> {
    /// Version 3 of the kernel's interface, and 0 for the current thread.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    /// Effective, permitted and inheritable sets of two words each, all empty.
    const NONE: [u32; 6] = [0; 6];
    let mut present = NONE;
    // SAFETY: the calls access only the memory they are given, which is valid and large enough until they return.
    let result = unsafe {
        // Kernels before 4.3 have no ambient capabilities.
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        // A service manager that dropped all capabilities may also block capset(2).
        if libc::syscall(libc::SYS_capget, HEADER.as_ptr(), present.as_mut_ptr()) == 0 && present == NONE {
            return Ok(());
        }
        libc::syscall(libc::SYS_capset, HEADER.as_ptr(), NONE.as_ptr())
    };
    Errno::result(result).map(drop)
}

/// The descriptor becomes readable when the process ends. Requires Linux 5.3.
#[allow(unsafe_code)]
pub fn end_of(process: Pid) -> Option<OwnedFd> {
    // SAFETY: the system call takes two numbers and returns a new file descriptor, which nothing else uses.
    unsafe {
        let file: c_long = libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0);
        RawFd::try_from(file).ok().filter(|file| *file >= 0).map(|file| OwnedFd::from_raw_fd(file))
    }
}
