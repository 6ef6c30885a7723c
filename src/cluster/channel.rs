//! Connections to etcd servers, with TLS or without.
//!
//! Owns which files say whom to trust and what to show. Must not know HTTP.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::client::{connect_tcp, Transport};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_millis(300);

/// The files that TLS needs, all in PEM.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChannelFiles {
    /// The authorities that sign etcd's certificates; the system's if there is none.
    pub authority: Option<PathBuf>,
    /// What this server shows of itself, if etcd demands a certificate.
    pub certificate: Option<PathBuf>,
    /// The key of that; in the same file if there is none.
    pub key: Option<PathBuf>,
}

/// How connections to etcd are made.
#[derive(Clone)]
pub enum Security {
    Plain,
    #[cfg(feature = "tls")]
    Tls(crate::client::ClientTls),
}

impl Security {
    /// Reads the files, if there are any; the error is one line.
    #[cfg(feature = "tls")]
    pub fn load(files: Option<&ChannelFiles>) -> Result<Security, String> {
        use crate::client::{ClientTls, ClientTlsFiles};
        let Some(ChannelFiles { authority, certificate, key }) = files.cloned() else { return Ok(Security::Plain) };
        ClientTls::load(&ClientTlsFiles { authority, certificate, key }).map(Security::Tls)
    }

    /// There is nothing to read: a location that needs files is refused where it is read.
    #[cfg(not(feature = "tls"))]
    pub fn load(_: Option<&ChannelFiles>) -> Result<Security, String> {
        Ok(Security::Plain)
    }

    /// Connects to a host and port; shaking hands may take until the time limit too.
    pub fn connect(&self, endpoint: &str, limit: Duration) -> io::Result<Transport> {
        let stream = connect_tcp(endpoint, CONNECT.min(limit))?;
        match self {
            Security::Plain => Ok(Transport::Tcp(stream)),
            #[cfg(feature = "tls")]
            Security::Tls(tls) => {
                stream.set_read_timeout(Some(limit))?;
                stream.set_write_timeout(Some(limit))?;
                let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
                tls.connect(host.trim_start_matches('[').trim_end_matches(']'), stream).map(Transport::Tls)
            }
        }
    }
}
