//! TLS settings: the server's certificate and key, and the trusted authorities.
//!
//! Owns the choice of TLS versions and cipher suites, and the interpretation of certificates. Must not parse PEM files;
//! the module `pem` does.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{crypto, CipherSuite};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::settings::config::TlsFiles;
use crate::shared::files;
use crate::shared::pem;

pub use rustls::ServerConfig;

pub fn load(paths: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let chain = pem::certificates(&paths.certificate)?;
    if let Some(reason) = chain.first().and_then(|leaf| validity_problem(leaf)) {
        let shown = paths.certificate.display();
        log::warn!("the certificate {shown} {reason}; clients that look will refuse it");
    }
    let key = pem::key(&paths.key)?;
    files::check_secret(&paths.key);
    let mut provider = crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| cost(suite.suite()));
    let provider = Arc::new(provider);
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match &paths.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(pem::authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| format!("{}: {error}", path.display()))?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(|error| pem::mismatch(&paths.certificate, &paths.key, &error))?;
    config.ignore_client_order = true;
    // Session resumption would not help, because clients open few connections and keep them open.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Returns the relative cost of a cipher suite on this machine. The cheapest suite wins even if the client prefers
/// another, which is often AES-256 with SHA-384, for which processors have no instructions. All suites are secure.
fn cost(suite: CipherSuite) -> u8 {
    use CipherSuite::*;
    match suite {
        TLS13_AES_128_GCM_SHA256 | TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 | TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => {
            u8::from(!has_aes())
        }
        TLS13_CHACHA20_POLY1305_SHA256
        | TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => u8::from(has_aes()),
        _ => 2,
    }
}

fn has_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Returns the DNS names, or the common names if there are none, in lower case.
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

pub fn validity_problem(der: &[u8]) -> Option<&'static str> {
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
