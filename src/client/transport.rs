//! The transport of a client: a socket, or TLS over a socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

#[cfg(feature = "tls")]
use super::tls::{explain, TlsStream};

#[derive(Debug)]
pub enum Transport {
    /// A TCP or Unix socket. `TcpStream` can hold either, because it makes the same system calls for both.
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(TlsStream),
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => stream.read(buffer).map_err(explain),
        }
    }
}

impl Transport {
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Transport::Plain(stream) => stream.write_all(bytes),
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()).map_err(explain),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => stream.write(bytes).map_err(explain),
        }
    }

    /// `true` if data or the end of the stream has arrived. Always `false` with TLS, whose records may be empty.
    pub fn has_input(&self) -> bool {
        let mut ready = [PollFd::new(self.socket().as_fd(), PollFlags::POLLIN)];
        let is_plain = matches!(self, Transport::Plain(_));
        is_plain && poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Transport::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => &stream.sock,
        }
    }

    pub fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        let socket = self.socket();
        socket.set_read_timeout(limit).and_then(|()| socket.set_write_timeout(limit))
    }

    pub fn closer(&self) -> io::Result<Closer> {
        self.socket().try_clone().map(Closer)
    }
}

/// Closes a connection from another thread, even while its owner waits for data.
#[derive(Debug)]
pub struct Closer(TcpStream);

impl Closer {
    /// Closes the connection. The owner of the connection then reads the end of the stream.
    pub fn close(&self) {
        // The connection may already be closed.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
