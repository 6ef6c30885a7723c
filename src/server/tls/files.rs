//! Certificate, key and authorities of a server, put together.
//!
//! Owns the words for what is wrong with them. Each error names the file, and is one line.

use std::sync::Arc;

use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{crypto, Error};

use super::certificate::untimely;
use crate::config::TlsFiles;
use crate::pem::{authorities, certificates, private_key};

pub use rustls::ServerConfig;

/// What all new connections share.
pub fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates(&files.certificate)?;
    let shown = files.certificate.display();
    if let Some(reason) = chain.first().and_then(|leaf| untimely(leaf)) {
        log::warn!("the certificate {shown} {reason}; clients that look will refuse it");
    }
    let key = private_key(&files.key)?;
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| format!("{}: {error}", path.display()))?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        Error::InconsistentKeys(_) => format!("the key {} is not that of {shown}", files.key.display()),
        error => format!("the certificate {shown} and the key {}: {error}", files.key.display()),
    })?;
    // Nothing is kept for who comes again: connections of a queue are few and long.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
