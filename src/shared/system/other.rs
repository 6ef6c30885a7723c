//! Replacements for Linux features on other Unix systems; type-checked for macOS and FreeBSD. Without a replacement, a
//! function does nothing, fails, or reports that the value is unknown.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{
    io, os::unix::fs::OpenOptionsExt, os::unix::net::SocketAddr, path::PathBuf, time::Duration, time::UNIX_EPOCH,
};

use mio::Interest;
pub use nix::sys::stat::{fstat, fstatat, FileStat};
use nix::time::{clock_gettime, ClockId};
use nix::unistd::{Gid, Pid};
use nix::{dir::Dir, errno::Errno, fcntl::OFlag, libc, sys::resource::Resource};
use socket2::SockRef;

pub const O_PATH: OFlag = OFlag::O_RDONLY;
pub const OPEN_FILES: Option<&str> = None;
pub const O_LARGEFILE: OFlag = OFlag::empty();
#[cfg(target_os = "freebsd")]
pub const ADDRESS_SPACE: Resource = Resource::RLIMIT_VMEM;
#[cfg(not(target_os = "freebsd"))]
pub const ADDRESS_SPACE: Resource = Resource::RLIMIT_AS;
pub const URGENT: Option<Interest> = None;

/// On macOS, this clock includes time while the machine was suspended.
pub fn boot_time() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

pub fn is_proc(_folder: impl AsFd) -> nix::Result<bool> {
    Ok(false)
}

pub fn created(file: &File) -> Option<(i64, u32)> {
    let created = file.metadata().and_then(|found| found.created()).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((created.as_secs() as i64, created.subsec_nanos()))
}

pub fn names(folder: File) -> io::Result<Vec<String>> {
    let entries = Dir::from_fd(folder.into())?.into_iter();
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

pub fn nameless_file() -> io::Result<File> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("beanpole-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

#[allow(unsafe_code)]
pub fn peer(socket: impl AsFd) -> io::Result<(u32, Vec<u32>)> {
    let (mut user, mut group) = (0, 0);
    // SAFETY: the descriptor is borrowed and therefore open, and the call writes two numbers.
    Errno::result(unsafe { libc::getpeereid(socket.as_fd().as_raw_fd(), &mut user, &mut group) })?;
    Ok((user, vec![group]))
}

pub fn limit_unacknowledged(_socket: &SockRef, _time: Duration) -> io::Result<()> {
    Ok(())
}

pub fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

#[allow(unsafe_code)]
pub fn set_groups(group: Gid) -> nix::Result<()> {
    // SAFETY: the call reads one number.
    Errno::result(unsafe { libc::setgroups(1, &group.as_raw()) }).map(drop)
}

pub fn forbid_privileges() -> nix::Result<()> {
    Ok(())
}

pub fn drop_capabilities() -> nix::Result<()> {
    Ok(())
}

pub fn end_of(_process: Pid) -> Option<OwnedFd> {
    None
}

pub fn own_program() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

pub fn open_files() -> u64 {
    fs::read_dir("/dev/fd").map_or(0, |files| files.count().saturating_sub(1) as u64)
}

pub fn group_memory_limits() -> Vec<u64> {
    Vec::new()
}

#[allow(unsafe_code)]
pub fn machine_memory() -> Option<u64> {
    // SAFETY: the call takes a number and returns one.
    let number = |name| u64::try_from(unsafe { libc::sysconf(name) }).ok();
    Some(number(libc::_SC_PHYS_PAGES)? * number(libc::_SC_PAGESIZE)?)
}

/// Returns 0, which means unknown, as on Linux without /proc.
pub fn resident_memory() -> u64 {
    0
}
