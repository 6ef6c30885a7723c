//! The interface to systemd: inherited sockets and readiness notifications. Does nothing if the environment variables
//! LISTEN_PID, LISTEN_FDS and NOTIFY_SOCKET are not set.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::{env, io, os::unix::ffi::OsStrExt, time::Duration};

use socket2::{Domain, SockRef, Socket, Type};

use super::socket::Listener;
use crate::shared::system;

const FIRST: RawFd = 3;

pub fn inherited() -> io::Result<Vec<Listener>> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    ensure!(count != 0, io::Error::new(io::ErrorKind::InvalidInput, "LISTEN_FDS names no socket"));
    let end = RawFd::try_from(count).ok().and_then(|count| FIRST.checked_add(count));
    let end = end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "LISTEN_FDS is too large"))?;
    (FIRST..end).map(take).collect()
}

#[allow(unsafe_code)]
fn take(number: RawFd) -> io::Result<Listener> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidInput, format!("inherited file {number} is no {what}"));
    // SAFETY: the descriptor is only inspected, and stays open because this is the only thread.
    let look = unsafe { BorrowedFd::borrow_raw(number) };
    let is_usable = system::is_listener(look) && SockRef::from(&look).r#type()? == Type::STREAM;
    ensure!(is_usable, wrong("listening stream socket"));
    // SAFETY: LISTEN_PID states that the file was opened for this process, and no other code takes it.
    let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(number) });
    socket.set_cloexec(true)?;
    socket.set_nonblocking(false)?;
    match socket.local_addr()?.domain() {
        Domain::UNIX => Ok(Listener::unix(socket, None)),
        Domain::IPV4 | Domain::IPV6 => Ok(Listener::tcp(socket)),
        _ => Err(wrong("TCP or Unix socket")),
    }
}

pub fn is_managed() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some_and(|path| !path.is_empty())
}

pub fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = path.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => system::abstract_address(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        // The thread that handles signals must not block for long.
        socket.set_write_timeout(Some(Duration::from_secs(1)))?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        log::warn!("systemd was not told {state}: {error}");
    }
}
