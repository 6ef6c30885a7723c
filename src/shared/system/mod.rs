//! Limits of the machine and the process, and the differences between operating systems: `linux.rs` and `other.rs`
//! define the same names. Syncs need no code for other systems, because `File::sync_all` and `File::sync_data` use
//! F_FULLFSYNC on macOS.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::resource::{getrlimit, setrlimit, Resource, RLIM_INFINITY};
use nix::{errno::Errno, libc};

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "other.rs")]
mod kernel;

pub use kernel::*;

pub fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

pub fn is_listener(file: impl AsFd) -> bool {
    let mut listens = [0];
    option(file, libc::SO_ACCEPTCONN, &mut listens).is_ok() && listens != [0]
}

/// Reads a socket option that is a list of numbers. Returns the length of the list.
#[allow(unsafe_code)]
fn option(socket: impl AsFd, name: libc::c_int, numbers: &mut [u32]) -> io::Result<usize> {
    let socket = socket.as_fd().as_raw_fd();
    let mut length = size_of_val(numbers) as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and therefore open, and the kernel writes at most `length` bytes.
    let result = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, name, numbers.as_mut_ptr().cast(), &mut length) };
    Errno::result(result)?;
    Ok(length as usize / size_of::<u32>())
}

/// The usable bytes of a 32-bit address space. The kernel reserves one or two of the 4 GiB, and the rest is fragmented.
const NARROW_ADDRESS_SPACE: Option<u64> = if usize::BITS < 64 { Some(2 << 30) } else { None };

/// Restricts a static glibc to its built-in databases of users and hosts, because NSS modules can crash the process.
#[allow(unsafe_code)]
pub fn avoid_modules() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    for (database, sources) in [(c"passwd", c"files"), (c"group", c"files"), (c"hosts", c"files dns")] {
        extern "C" {
            fn __nss_configure_lookup(database: *const libc::c_char, sources: *const libc::c_char) -> libc::c_int;
        }
        // SAFETY: the function copies both strings, and runs before other threads start.
        unsafe { __nss_configure_lookup(database.as_ptr(), sources.as_ptr()) };
    }
}

/// Raises the limit on open files. Without permission, the old limit stays in effect.
pub fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

pub fn user_number(name: &str) -> Option<u32> {
    nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

pub fn group_number(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

pub fn file_limit() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

/// Returns the maximum memory that the process can use, in bytes, or `u64::MAX` if no limit is known.
pub fn memory() -> u64 {
    let limits = [ADDRESS_SPACE, Resource::RLIMIT_DATA].into_iter().filter_map(resource_limit);
    let of_system = group_memory_limits().into_iter().chain(machine_memory());
    of_system.chain(limits).chain(NARROW_ADDRESS_SPACE).min().unwrap_or(u64::MAX)
}

fn resource_limit(resource: Resource) -> Option<u64> {
    // On some systems, a limit is a 32-bit or a signed number.
    #[allow(clippy::unnecessary_cast)]
    getrlimit(resource).ok().map(|(soft, _)| soft).filter(|soft| *soft != RLIM_INFINITY).map(|soft| soft as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_does_not_exceed_that_of_the_machine() {
        assert!(memory() > 1 << 20 && Some(memory()) <= machine_memory());
    }
}
