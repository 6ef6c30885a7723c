//! Certificates, keys and authorities in PEM files. Each error message is one line and names the file.

use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, RootCertStore};

use super::files;

pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = files::read(path).map_err(pem::Error::Io);
    let found = bytes.and_then(|bytes| CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>());
    let found = found.and_then(|found| Some(found).filter(|it| !it.is_empty()).ok_or(pem::Error::NoItemsFound));
    found.map_err(|error| wrong(path, "certificate", &error))
}

pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = files::read(path).map_err(pem::Error::Io);
    bytes.and_then(|bytes| PrivateKeyDer::from_pem_slice(&bytes)).map_err(|error| wrong(path, "private key", &error))
}

pub fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        let bad = |error: Error| format!("{} has a certificate that is no authority: {error}", path.display());
        roots.add(authority).map_err(bad)?;
    }
    Ok(roots)
}

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
