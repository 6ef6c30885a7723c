//! TLS for connections; only with the Cargo feature `tls`. An idle session has no buffers, because a session uses the
//! buffers of the thread that serves it.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
pub use rustls::ServerConfig;
use rustls::{crypto, CipherSuite, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::prelude::{ASN1Time, FromDer, GeneralName, X509Certificate};

use super::socket::{Stream, MAX_SENT};
use crate::protocol::Output;
use crate::settings::config::TlsFiles;
use crate::shared::files;
use crate::shared::pem;
use crate::shared::role::Lease;

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
            let verifier = verifier.map_err(|error| format!("{}: {error}", path.display()))?;
            builder.with_client_cert_verifier(Arc::new(BoundedVerifier(verifier)))
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

/// The number of intermediate certificates of a client that are considered. The cost of a search for a path to an
/// authority grows exponentially with this number, and a client without any key can make the server search.
const MAX_INTERMEDIATES: usize = 3;

/// Passes at most [`MAX_INTERMEDIATES`] certificates to another verifier.
#[derive(Debug)]
struct BoundedVerifier(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for BoundedVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify_client_cert(leaf, &others[..others.len().min(MAX_INTERMEDIATES)], now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Returns the relative cost of a cipher suite on this machine. The server selects the cheapest suite that the client
/// offers: clients often prefer AES-256 with SHA-384, but few processors accelerate SHA-384. All suites are secure.
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

/// Returns the certificate's DNS names, or its common names if it has no DNS names, in lower case.
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
    let (from, to) = (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
    match ASN1Time::now().timestamp() {
        now if now < from => Some("is not valid yet"),
        now if now > to => Some("has expired"),
        _ => None,
    }
}

/// The memory charged for a session in bytes, in addition to the cost of the connection.
pub const SESSION_COST: u64 = 4096;

/// The memory in bytes for keys, hashes and the reply during a handshake, in addition to the received data.
const HANDSHAKE_COST: u64 = 4096;

/// The maximum number of plaintext bytes that are encrypted before a write: several full records.
const SEAL: usize = 64 * 1024;

const READ: usize = 64 * 1024;

/// The maximum number of unsent bytes of handshake messages. A peer that does not read them is disconnected.
const MAX_PENDING: usize = 64 * 1024;

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

#[derive(Default)]
struct Buffers {
    sealed: Vec<u8>,
    open: Vec<u8>,
}

/// Returns the number of bytes at the start of the plaintext that must form a separate record.
pub type Unit = fn(&[u8]) -> usize;

pub struct TlsSession {
    connection: Box<UnbufferedServerConnection>,
    /// An incomplete record, or incomplete handshake messages.
    incoming: Vec<u8>,
    /// The bytes that the TLS state uses: handshake data during the handshake, and afterwards the peer's certificates.
    held: u64,
    outgoing: Vec<u8>,
    /// Plaintext bytes in `outgoing`, which count as unsent until all of `outgoing` is sent.
    unconfirmed: usize,
    unit: Unit,
    /// Bytes of the current unit that have not been encrypted yet.
    left: usize,
    lease: Arc<Lease>,
    broken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    pub count: usize,
    pub more: bool,
    pub ended: bool,
}

impl TlsSession {
    pub fn new(config: Arc<ServerConfig>, lease: Arc<Lease>, unit: Unit) -> Result<TlsSession, Error> {
        let connection = Box::new(UnbufferedServerConnection::new(config)?);
        let (incoming, held, outgoing, unconfirmed, left, broken) = Default::default();
        Ok(TlsSession { connection, incoming, held, outgoing, unconfirmed, unit, left, lease, broken })
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub fn footprint(&self) -> u64 {
        let handshake = if self.is_handshaking() { HANDSHAKE_COST } else { 0 };
        (self.incoming.capacity() + self.outgoing.capacity()) as u64 + self.held + handshake
    }

    pub fn names(&self) -> Vec<String> {
        self.connection.peer_certificates().and_then(|chain| chain.first()).map_or(Vec::new(), |leaf| names(leaf))
    }

    /// Reads once, at most `max` bytes, and passes the plaintext to `take`. Sends handshake messages and alerts.
    pub fn read(&mut self, stream: &Stream, max: usize, take: &mut dyn FnMut(&[u8])) -> io::Result<Arrived> {
        BUFFERS.with_borrow_mut(|buffers| {
            let buffer = &mut buffers.sealed;
            let begun = self.incoming.len();
            let end = begun + max.min(READ);
            if buffer.len() < end {
                buffer.resize(end, 0);
            }
            buffer[..begun].copy_from_slice(&self.incoming);
            let count = stream.read(&mut [IoSliceMut::new(&mut buffer[begun..end])])?;
            if count == 0 {
                return Ok(Arrived { count, more: false, ended: true });
            }
            let was_handshaking = self.is_handshaking();
            let decrypted = self.decrypt(&mut buffer[..begun + count], take);
            if was_handshaking {
                self.held = match self.is_handshaking() {
                    true => self.held + (begun + count - self.incoming.len()) as u64,
                    false => self.certificates(),
                };
            }
            // Before returning an error, send the alert to the peer.
            let sent = self.push(stream);
            let ended = decrypted?;
            match sent {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ if self.outgoing.len() > MAX_PENDING && self.unconfirmed == 0 => {
                    return Err(io::Error::other("it does not read what it asks for"));
                }
                _ => {}
            }
            Ok(Arrived { count, more: count == end - begun, ended })
        })
    }

    fn certificates(&self) -> u64 {
        let chain = self.connection.peer_certificates().unwrap_or_default();
        chain.iter().map(|certificate| (certificate.len() + size_of_val(certificate)) as u64).sum()
    }

    /// Returns `true` if the peer will send no more data.
    fn decrypt(&mut self, bytes: &mut [u8], take: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let (mut from, mut ended) = (0, false);
        let mut failed = None;
        loop {
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(&mut bytes[from..]);
            let mut more = true;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(io::Error::other)?;
                        discard += record.discard;
                        take(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut answer)) => {
                    encode(&mut self.outgoing, |out| answer.encode(out))?;
                    // After the alert, the same bytes would fail again.
                    more = failed.is_none();
                }
                Ok(ConnectionState::TransmitTlsData(transmit)) => transmit.done(),
                Ok(ConnectionState::PeerClosed) => ended = true,
                Ok(ConnectionState::Closed) => (ended, more) = (true, false),
                Ok(_) => more = false,
                // Try once more, to create the alert.
                Err(error) if failed.is_none() => failed = Some(error),
                Err(_) => more = false,
            }
            from += discard;
            if !more {
                break;
            }
        }
        if let Some(error) = failed {
            self.broken = true;
            self.incoming = Vec::new();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        self.incoming = bytes[from..].to_vec();
        Ok(ended)
    }

    /// Encrypts and sends up to about [`MAX_SENT`] bytes. Returns `true` if all output was sent. Fails with
    /// `WouldBlock` if the socket is full.
    pub fn send(&mut self, stream: &Stream, output: &mut Output) -> io::Result<bool> {
        ensure!(!self.broken, ErrorKind::BrokenPipe);
        let before = output.len();
        loop {
            self.push(stream)?;
            output.consume(std::mem::take(&mut self.unconfirmed));
            if output.is_empty() || before - output.len() >= MAX_SENT {
                return Ok(output.is_empty());
            }
            BUFFERS.with_borrow_mut(|Buffers { sealed, open }| {
                let bytes = match output.only() {
                    Some(bytes) => &bytes[..bytes.len().min(SEAL)],
                    None => {
                        gather(output, open);
                        open
                    }
                };
                let count = self.seal(bytes, sealed)?;
                self.unconfirmed = bytes.len();
                // `seal` may have added a TLS message to `outgoing`. This message must precede the new data.
                let sent = if self.outgoing.is_empty() { write(stream, &self.lease, &sealed[..count])? } else { 0 };
                self.outgoing.extend_from_slice(&sealed[sent..count]);
                Ok::<(), io::Error>(())
            })?;
        }
    }

    fn seal(&mut self, mut bytes: &[u8], sealed: &mut Vec<u8>) -> io::Result<usize> {
        let mut end = 0;
        while !bytes.is_empty() {
            if self.left == 0 {
                self.left = (self.unit)(bytes);
            }
            let (now, behind) = bytes.split_at(self.left.min(bytes.len()));
            end += self.seal_unit(now, end, sealed)?;
            self.left -= now.len();
            bytes = behind;
        }
        Ok(end)
    }

    fn seal_unit(&mut self, bytes: &[u8], from: usize, sealed: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let UnbufferedStatus { state, .. } = self.connection.process_tls_records(&mut self.incoming);
            match state.map_err(io::Error::other)? {
                ConnectionState::WriteTraffic(mut traffic) => loop {
                    match traffic.encrypt(bytes, &mut sealed[from..]) {
                        Ok(count) => return Ok(count),
                        Err(EncryptError::InsufficientSize(size)) => sealed.resize(from + size.required_size, 0),
                        Err(error) => return Err(io::Error::other(error)),
                    }
                },
                ConnectionState::EncodeTlsData(mut own) => encode(&mut self.outgoing, |out| own.encode(out))?,
                ConnectionState::TransmitTlsData(transmit) => transmit.done(),
                ConnectionState::PeerClosed => {}
                other => return Err(io::Error::other(format!("nothing can be sent: {other:?}"))),
            }
        }
    }

    pub fn push(&mut self, stream: &Stream) -> io::Result<()> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let sent = write(stream, &self.lease, &self.outgoing)?;
        if sent == self.outgoing.len() {
            self.outgoing = Vec::new();
            return Ok(());
        }
        self.outgoing.drain(..sent);
        Err(ErrorKind::WouldBlock.into())
    }

    pub fn close(&mut self, stream: &Stream) {
        if self.broken || !self.outgoing.is_empty() {
            return;
        }
        let mut buffer = [0; 256];
        let UnbufferedStatus { state, .. } = self.connection.process_tls_records(&mut self.incoming);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
            if let Ok(count) = traffic.queue_close_notify(&mut buffer) {
                let _ = write(stream, &self.lease, &buffer[..count]);
            }
        }
    }
}

fn gather(output: &Output, open: &mut Vec<u8>) {
    open.clear();
    for chunk in output.chunks() {
        let count = chunk.len().min(SEAL - open.len());
        open.extend_from_slice(&chunk[..count]);
        if open.len() == SEAL {
            return;
        }
    }
}

fn encode(to: &mut Vec<u8>, mut put: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) -> io::Result<()> {
    let length = to.len();
    match put(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => to.resize(length + size.required_size, 0),
        Ok(_) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    }
    put(&mut to[length..]).map_err(io::Error::other)?;
    Ok(())
}

/// Writes bytes until all are sent or the socket is full. Fails if the lease has ended. Returns the number sent.
fn write(stream: &Stream, lease: &Lease, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        ensure!(!lease.is_over(), ErrorKind::ConnectionAborted);
        match stream.write(&[IoSlice::new(&bytes[sent..])]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
