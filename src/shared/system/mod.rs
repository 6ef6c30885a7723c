//! The differences between operating systems. `linux.rs` and `other.rs` define the same names. Syncs need no
//! replacement, because `File::sync_all` and `File::sync_data` use F_FULLFSYNC on macOS.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "other.rs")]
mod kernel;

pub use kernel::*;

pub fn is_listener(file: impl AsFd) -> bool {
    let mut listens = [0];
    option(file, libc::SO_ACCEPTCONN, &mut listens).is_ok() && listens != [0]
}

/// The option is a list of numbers. Returns how many were read.
#[allow(unsafe_code)]
fn option(socket: impl AsFd, name: libc::c_int, numbers: &mut [u32]) -> io::Result<usize> {
    let socket = socket.as_fd().as_raw_fd();
    let mut length = size_of_val(numbers) as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and therefore open, and the kernel writes at most `length` bytes.
    let result = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, name, numbers.as_mut_ptr().cast(), &mut length) };
    Errno::result(result)?;
    Ok(length as usize / size_of::<u32>())
}
