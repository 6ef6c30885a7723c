//! The bytes below a client: TCP, a Unix socket, or TLS over TCP.
//!
//! Owns what differs between them. Must not know commands.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[cfg(feature = "tls")]
use super::tls::{explain, TlsStream};

#[derive(Debug)]
pub enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(TlsStream),
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Tcp(stream) => stream.read(buffer),
            Transport::Unix(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => stream.read(buffer).map_err(explain),
        }
    }
}

impl Transport {
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Transport::Tcp(stream) => stream.write_all(bytes),
            Transport::Unix(stream) => stream.write_all(bytes),
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()).map_err(explain),
        }
    }

    /// How long a read or a write may take.
    pub fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Transport::Unix(stream) => stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)),
            Transport::Tcp(stream) => stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)),
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => {
                stream.sock.set_read_timeout(limit).and_then(|()| stream.sock.set_write_timeout(limit))
            }
        }
    }

    /// What ends it from another thread.
    pub fn closer(&self) -> io::Result<Closer> {
        Ok(Closer(match self {
            Transport::Unix(stream) => Socket::Unix(stream.try_clone()?),
            Transport::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => Socket::Tcp(stream.sock.try_clone()?),
        }))
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Ends a connection from another thread, whatever its owner waits for.
#[derive(Debug)]
pub struct Closer(Socket);

impl Closer {
    /// Ends it; who reads from it is told that it has ended.
    pub fn close(&self) {
        // It may have ended already.
        let _ = match &self.0 {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}
