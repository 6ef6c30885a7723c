//! Certificates, keys and authorities in files of PEM; only with the cargo feature `tls`.
//!
//! Owns their reading, for servers and clients, and the words for what is wrong with them. Each error names the file,
//! and is one line.

use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, RootCertStore};

/// All certificates of a file, of which there is one at least.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(wrong(path, "certificate", &pem::Error::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(path, "certificate", &error)),
    }
}

/// The first private key of a file.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(path, "private key", &error))
}

/// The authorities of a file.
pub fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        let bad = |error: Error| format!("{} has a certificate that is no authority: {error}", path.display());
        roots.add(authority).map_err(bad)?;
    }
    Ok(roots)
}

/// Why a certificate and a key are of no use together.
pub fn mismatch(certificate: &Path, key: &Path, error: &Error) -> String {
    let (certificate, key) = (certificate.display(), key.display());
    match error {
        Error::InconsistentKeys(_) => format!("the key {key} is not that of {certificate}"),
        error => format!("the certificate {certificate} and the key {key}: {error}"),
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
