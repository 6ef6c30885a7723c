//! Streams and listeners, TCP or Unix.
//!
//! Owns the difference between the two, the binding of addresses, and Unix socket files: one that a living server listens
//! on is never taken away, ours is removed at the end. Must not know protocols.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections that may wait to be accepted. The kernel cuts it to its own limit.
const BACKLOG: i32 = 1024;

/// How long a silent peer may be gone before the kernel asks for it.
const KEEPALIVE: std::time::Duration = std::time::Duration::from_secs(600);

/// A non-blocking connection. Reads and writes need no exclusive access: the owner reads, whoever has a reply writes.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(mio::net::TcpStream),
    /// Over a Unix socket.
    Unix(mio::net::UnixStream),
}

impl Stream {
    /// Reads into the buffers, in order.
    pub fn read(&self, buffers: &mut [IoSliceMut]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read_vectored(buffers),
            Stream::Unix(stream) => (&mut &*stream).read_vectored(buffers),
        }
    }

    /// Writes from the buffers, in order.
    pub fn write(&self, buffers: &[IoSlice]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => match buffers {
                [one] => (&mut &*stream).write(one),
                _ => (&mut &*stream).write_vectored(buffers),
            },
            Stream::Unix(stream) => (&mut &*stream).write_vectored(buffers),
        }
    }

    /// Has `registry` report this stream's readiness under `token`, once at each change.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(stream) => stream.register(registry, token, interest),
            Stream::Unix(stream) => stream.register(registry, token, interest),
        }
    }
}

/// A blocking listener.
#[derive(Debug)]
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a Unix socket, whose file is removed at the end if we made it.
    Unix(UnixListener, Option<PathBuf>),
}

impl Listener {
    /// Listens on a TCP address.
    pub fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            // Lets "::" and "0.0.0.0" be given together.
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = Listener::Tcp(socket.into());
        listener.prepare()?;
        Ok(listener)
    }

    /// Options that accepted connections inherit.
    pub fn prepare(&self) -> io::Result<()> {
        if let Listener::Tcp(listener) = self {
            let socket = SockRef::from(listener);
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        }
        Ok(())
    }

    /// Listens on a Unix socket with this mode. A socket file that nobody listens on any more is replaced.
    pub fn bind_unix(path: &Path, mode: u32) -> io::Result<Listener> {
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is in the way"));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server is listening on it"));
            }
            log::info!("removing the socket file {} that nobody listens on", path.display());
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        Ok(Listener::Unix(listener, Some(path.to_owned())))
    }

    /// Waits for a connection; tells who it is.
    pub fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Stream::Tcp(mio::net::TcpStream::from_std(stream)), peer.to_string()))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Stream::Unix(mio::net::UnixStream::from_std(stream)), "unix".to_owned()))
            }
        }
    }

    /// Ends a blocked [`Listener::accept`] and all later ones.
    pub fn shut_down(&self) {
        let result = match self {
            Listener::Tcp(listener) => SockRef::from(listener).shutdown(std::net::Shutdown::Both),
            Listener::Unix(listener, _) => SockRef::from(listener).shutdown(std::net::Shutdown::Both),
        };
        if let Err(error) = result {
            log::debug!("shutting down {}: {error}", self.name());
        }
    }

    /// The TCP address that it listens on.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }

    /// What to call it: `127.0.0.1:11300`, `unix:/run/beanpole.sock`.
    pub fn name(&self) -> String {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map_or("tcp".to_owned(), |address| address.to_string()),
            Listener::Unix(listener, _) => {
                match listener.local_addr().ok().and_then(|it| it.as_pathname().map(Path::to_owned)) {
                    Some(path) => format!("unix:{}", path.display()),
                    None => "unix".to_owned(),
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, Some(path)) = self {
            if let Err(error) = fs::remove_file(&*path) {
                log::warn!("the socket file {} stays behind: {error}", path.display());
            }
        }
    }
}
