//! The bytes below a client: a socket, or TLS over one.
//!
//! Owns what differs between them. Must not know commands.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

#[cfg(feature = "tls")]
use super::tls::{explain, TlsStream};

#[derive(Debug)]
pub enum Transport {
    /// A socket of TCP, or a Unix socket: from here on, the system's calls for both are the same.
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

    fn socket(&self) -> &TcpStream {
        match self {
            Transport::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => &stream.sock,
        }
    }

    /// How long a read or a write may take.
    pub fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        let socket = self.socket();
        socket.set_read_timeout(limit).and_then(|()| socket.set_write_timeout(limit))
    }

    /// What ends it from another thread.
    pub fn closer(&self) -> io::Result<Closer> {
        self.socket().try_clone().map(Closer)
    }
}

/// Ends a connection from another thread, whatever its owner waits for.
#[derive(Debug)]
pub struct Closer(TcpStream);

impl Closer {
    /// Ends it; who reads from it is told that it has ended.
    pub fn close(&self) {
        // It may have ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
