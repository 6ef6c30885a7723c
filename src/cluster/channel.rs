//! A connection to an etcd server, with TLS or without.
//!
//! Owns the files by which an etcd is known, and by which this server is known to it. Must not know HTTP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_millis(300);

/// The files that TLS needs, all in PEM.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChannelFiles {
    /// The authorities that sign etcd's certificates; the system's if there is none.
    pub authority: Option<PathBuf>,
    /// This server's certificate and key, if etcd demands one.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// How connections to etcd are made.
#[derive(Clone)]
pub enum Security {
    Plain,
    #[cfg(feature = "tls")]
    Tls(std::sync::Arc<rustls::ClientConfig>),
}

pub enum Channel {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

/// The authorities that Debian and many others trust.
#[cfg(feature = "tls")]
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

impl Security {
    /// Reads the files, if there are any; the error is one line.
    #[cfg(feature = "tls")]
    pub fn load(files: Option<&ChannelFiles>) -> Result<Security, String> {
        let Some(ChannelFiles { authority, own }) = files else { return Ok(Security::Plain) };
        let roots = crate::pem::authorities(authority.as_deref().unwrap_or(SYSTEM.as_ref()))?;
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (chain, secret) = (crate::pem::certificates(certificate)?, crate::pem::private_key(key)?);
                let bad = |error| format!("the certificate {} and its key: {error}", certificate.display());
                builder.with_client_auth_cert(chain, secret).map_err(bad)?
            }
        };
        Ok(Security::Tls(config.into()))
    }

    /// There is nothing to read: a location that needs files is refused where it is read.
    #[cfg(not(feature = "tls"))]
    pub fn load(_: Option<&ChannelFiles>) -> Result<Security, String> {
        Ok(Security::Plain)
    }

    /// Connects to a host and port. With TLS, hands are shaken with the first bytes that are sent.
    pub fn connect(&self, endpoint: &str) -> io::Result<Channel> {
        let stream = connect(endpoint)?;
        match self {
            Security::Plain => Ok(Channel::Plain(stream)),
            #[cfg(feature = "tls")]
            Security::Tls(config) => {
                let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = rustls::pki_types::ServerName::try_from(host).map_err(io::Error::other)?;
                let session = rustls::ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                Ok(Channel::Tls(Box::new(rustls::StreamOwned::new(session, stream))))
            }
        }
    }
}

fn connect(endpoint: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "no such host");
    for address in endpoint.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Channel {
    /// Gives each read and write of the socket so much time.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let socket = match self {
            Channel::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Channel::Tls(stream) => stream.get_ref(),
        };
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(stream) => stream.read(buffer),
            #[cfg(feature = "tls")]
            Channel::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Channel::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Channel::Plain(stream) => stream.flush(),
            #[cfg(feature = "tls")]
            Channel::Tls(stream) => stream.flush(),
        }
    }
}
