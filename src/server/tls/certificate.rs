//! Reading certificates.
//!
//! Owns the names that a certificate contains, and the check of its validity period. The caller has verified its
//! signature.

use std::time::{SystemTime, UNIX_EPOCH};

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Returns the names in lower case: the DNS names among its alternative names, otherwise its common name.
pub fn names(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let dns = alternatives.iter().flat_map(|found| &found.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    let names: Vec<String> = dns.collect();
    if !names.is_empty() {
        return names;
    }
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    common.map(str::to_ascii_lowercase).collect()
}

/// Returns why the certificate is not valid at this time, if it is not.
pub fn untimely(der: &[u8]) -> Option<&'static str> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let (from, to) = (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    match now {
        now if now < from => Some("is not valid yet"),
        now if now > to => Some("has expired"),
        _ => None,
    }
}
