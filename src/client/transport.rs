//! The transport of a client: a socket, or TLS over a socket. An HTTP client selects its transport with [`Security`].

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::{os::fd::AsFd, time::Duration};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

#[cfg(feature = "tls")]
use super::tls::{explain, ClientTls, TlsStream};
use super::{connect_tcp, ClientTlsFiles};

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

    /// Returns `true` if data or the end of the stream has arrived. Always `false` with TLS: a TLS record can be empty.
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

#[derive(Clone)]
pub enum Security {
    Plain,
    #[cfg(feature = "tls")]
    Tls(ClientTls),
}

impl Security {
    /// An error is a one-line message about a TLS file.
    #[cfg(feature = "tls")]
    pub fn load(files: Option<&ClientTlsFiles>) -> Result<Security, String> {
        files.map_or(Ok(Security::Plain), |files| ClientTls::load(files).map(Security::Tls))
    }

    /// Without the feature `tls`, addresses that need TLS are rejected when they are parsed.
    #[cfg(not(feature = "tls"))]
    pub fn load(_: Option<&ClientTlsFiles>) -> Result<Security, String> {
        Ok(Security::Plain)
    }

    /// Connects to `HOST:PORT`. `limit` bounds each connection attempt and each TLS step.
    pub fn connect(&self, endpoint: &str, limit: Duration) -> io::Result<Transport> {
        self.secure(endpoint, connect_tcp(endpoint, limit)?, limit)
    }

    #[cfg_attr(not(feature = "tls"), allow(unused_variables))]
    pub fn secure(&self, endpoint: &str, stream: TcpStream, limit: Duration) -> io::Result<Transport> {
        match self {
            Security::Plain => Ok(Transport::Plain(stream)),
            #[cfg(feature = "tls")]
            Security::Tls(tls) => {
                let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
                tls.connect(host.trim_start_matches('[').trim_end_matches(']'), stream, limit).map(Transport::Tls)
            }
        }
    }
}
