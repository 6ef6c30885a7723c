//! Connections to etcd servers, with TLS or without.
//!
//! Owns which of the two it is. Must not know HTTP.

use std::io;
use std::time::Duration;

use crate::client::{connect_tcp, ClientTlsFiles, Transport};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_millis(300);

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
    pub fn load(files: Option<&ClientTlsFiles>) -> Result<Security, String> {
        files.map_or(Ok(Security::Plain), |files| crate::client::ClientTls::load(files).map(Security::Tls))
    }

    /// There is nothing to read: a location that needs files is refused where it is read.
    #[cfg(not(feature = "tls"))]
    pub fn load(_: Option<&ClientTlsFiles>) -> Result<Security, String> {
        Ok(Security::Plain)
    }

    /// Connects to a host and port; shaking hands may take until the time limit too.
    pub fn connect(&self, endpoint: &str, limit: Duration) -> io::Result<Transport> {
        let stream = connect_tcp(endpoint, CONNECT.min(limit))?;
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
