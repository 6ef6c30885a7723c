//! TLS for clients, and the messages about failed TLS connections.

use std::{error::Error as _, io, net::TcpStream, path::Path, sync::Arc, time::Duration};

use rustls::pki_types::ServerName;
use rustls::CertificateError as Wrong;
use rustls::{crypto, AlertDescription, ClientConfig, ClientConnection, Error, StreamOwned};

use super::ClientTlsFiles;
use crate::shared::pem;

/// The system's certificate authorities: on Debian or Alpine, on Fedora, on openSUSE, and on other systems.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub type TlsStream = Box<StreamOwned<ClientConnection, TcpStream>>;

/// A TLS configuration, which can be used for any number of connections.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Reads the files. An error is a one-line message.
    pub fn load(files: &ClientTlsFiles) -> Result<ClientTls, String> {
        let authority = match &files.authority {
            Some(path) => path,
            None => SYSTEM.iter().map(Path::new).find(|path| path.exists()).ok_or_else(|| {
                "this system has no authorities that could vouch for a server; name a file with some".to_owned()
            })?,
        };
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(pem::authorities(authority)?);
        let Some(chain) = &files.certificate else { return Ok(ClientTls(Arc::new(builder.with_no_client_auth()))) };
        let key = files.key.as_ref().unwrap_or(chain);
        let config = builder.with_client_auth_cert(pem::certificates(chain)?, pem::key(key)?);
        Ok(ClientTls(Arc::new(config.map_err(|error| pem::mismatch(chain, key, &error))?)))
    }

    /// Performs the handshake. The server's certificate must be valid for `name`, a host name or an IP address.
    /// `limit` is the timeout of each step, and remains the connection's timeout.
    pub fn connect(&self, name: &str, mut stream: TcpStream, limit: Duration) -> io::Result<TlsStream> {
        stream.set_read_timeout(Some(limit)).and_then(|()| stream.set_write_timeout(Some(limit)))?;
        let fits = ServerName::try_from(name.to_owned());
        let fits = fits.map_err(|_| io::Error::other(format!("{name} can stand in no certificate")))?;
        let mut session =
            ClientConnection::new(self.0.clone(), fits).map_err(|error| io::Error::other(words(&error)))?;
        while session.is_handshaking() {
            session.complete_io(&mut stream).map_err(explain)?;
        }
        Ok(Box::new(StreamOwned::new(session, stream)))
    }
}

/// Converts a TLS error to a message for operators. Returns other errors unchanged.
pub fn explain(error: io::Error) -> io::Error {
    let found = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).map(words);
    found.map_or(error, io::Error::other)
}

fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(wrong) => match wrong {
            Wrong::UnknownIssuer => "no authority that is trusted has signed the server's certificate".into(),
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "the server's certificate is for another name".into()
            }
            Wrong::Expired | Wrong::ExpiredContext { .. } => "the server's certificate has expired".into(),
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "the server's certificate is not valid yet".into(),
            Wrong::Other(inner) => {
                let inner = inner.source().map_or(inner.to_string(), ToString::to_string);
                format!("the server's certificate is of no use: {inner}")
            }
            wrong => format!("the server's certificate is of no use: {wrong}"),
        },
        Error::InvalidMessage(_) => "what answers there does not speak TLS".into(),
        Error::AlertReceived(AlertDescription::CertificateRequired) => "the server wants a certificate".into(),
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError,
        ) => "the server refused the certificate that it was shown".into(),
        Error::AlertReceived(alert) => format!("the server gave up: {alert:?}"),
        error => format!("TLS: {error}"),
    }
}
