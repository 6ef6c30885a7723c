//! Certificate, key and authorities, from files in PEM.
//!
//! Owns their reading and the words for what is wrong with them. Each error names the file, and is one line.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{crypto, Error, RootCertStore};

use super::certificate::untimely;
use crate::config::TlsFiles;

pub use rustls::ServerConfig;

/// What all new connections share.
pub fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates(&files.certificate)?;
    let shown = files.certificate.display();
    if let Some(reason) = chain.first().and_then(|leaf| untimely(leaf)) {
        log::warn!("the certificate {shown} {reason}; clients that look will refuse it");
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, "private key", &error))?;
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                let bad = |error: Error| format!("{} has a certificate that is no authority: {error}", path.display());
                roots.add(authority).map_err(bad)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
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

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(wrong(path, "certificate", &pem::Error::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(path, "certificate", &error)),
    }
}

fn wrong(path: &Path, what: &str, error: &pem::Error) -> String {
    let path = path.display();
    match error {
        pem::Error::Io(error) => format!("{path} cannot be read: {error}"),
        pem::Error::NoItemsFound => format!("{path} has no {what} in PEM"),
        error => format!("{path} has no {what} that is whole: {error:?}"),
    }
}
