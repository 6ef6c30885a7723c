//! TCP connections for HTTP, with or without TLS.

use std::io;
use std::time::Duration;

use super::{connect_tcp, ClientTlsFiles, Transport};

#[derive(Clone)]
pub enum Security {
    Plain,
    #[cfg(feature = "tls")]
    Tls(super::ClientTls),
}

impl Security {
    /// An error is a one-line message about a certificate file.
    #[cfg(feature = "tls")]
    pub fn load(files: Option<&ClientTlsFiles>) -> Result<Security, String> {
        files.map_or(Ok(Security::Plain), |files| super::ClientTls::load(files).map(Security::Tls))
    }

    /// Without the feature `tls`, addresses that need TLS are rejected when they are parsed.
    #[cfg(not(feature = "tls"))]
    pub fn load(_: Option<&ClientTlsFiles>) -> Result<Security, String> {
        Ok(Security::Plain)
    }

    /// Connects to `HOST:PORT` within the shorter of both times. `limit` also bounds each step of a TLS handshake.
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
