//! TCP connections for HTTP, with or without TLS.
//!
//! Owns the choice between plain TCP and TLS. Must not depend on HTTP.

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
    /// Reads the certificate files, if any. An error is a one-line message.
    #[cfg(feature = "tls")]
    pub fn load(files: Option<&ClientTlsFiles>) -> Result<Security, String> {
        files.map_or(Ok(Security::Plain), |files| super::ClientTls::load(files).map(Security::Tls))
    }

    /// Returns `Plain`. Without the feature `tls`, addresses that need TLS are rejected when they are parsed.
    #[cfg(not(feature = "tls"))]
    pub fn load(_: Option<&ClientTlsFiles>) -> Result<Security, String> {
        Ok(Security::Plain)
    }

    /// Connects to `endpoint` (`HOST:PORT`) within the shorter of both times. `limit` also bounds each TLS handshake
    /// step.
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
