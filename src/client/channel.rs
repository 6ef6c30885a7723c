//! TCP connections with TLS or without, for HTTP.
//!
//! Owns the choice between them. Must not know HTTP.

use std::io;
use std::time::Duration;

use super::{connect_tcp, ClientTlsFiles, Transport};

/// Plain TCP, or TLS with the certificates that it needs.
#[derive(Clone)]
pub enum Security {
    Plain,
    #[cfg(feature = "tls")]
    Tls(super::ClientTls),
}

impl Security {
    /// Reads the files, if there are any. The error is one line.
    #[cfg(feature = "tls")]
    pub fn load(files: Option<&ClientTlsFiles>) -> Result<Security, String> {
        files.map_or(Ok(Security::Plain), |files| super::ClientTls::load(files).map(Security::Tls))
    }

    /// There is nothing to read: a location that needs files is refused when it is parsed.
    #[cfg(not(feature = "tls"))]
    pub fn load(_: Option<&ClientTlsFiles>) -> Result<Security, String> {
        Ok(Security::Plain)
    }

    /// Connects to a host and port: within `connect` over TCP, and within `limit` including the handshake.
    pub fn connect(&self, endpoint: &str, connect: Duration, limit: Duration) -> io::Result<Transport> {
        let stream = connect_tcp(endpoint, connect.min(limit))?;
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
