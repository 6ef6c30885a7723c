//! TLS for connections; only with the Cargo feature `tls`.
//!
//! Owns the certificate files, and the encryption and decryption of data. Must not depend on protocols or access
//! rights.

mod files;
mod session;

pub use files::{load, ServerConfig};
pub use session::{TlsSession, SESSION_COST};

use std::fmt::Display;
use std::io;

use super::gate::LogLimit;

static LOGGED: LogLimit = LogLimit::new();

pub fn log_failure(peer: &impl Display, error: &io::Error) {
    LOGGED.log(log::Level::Info, format_args!("{peer}: the TLS handshake failed: {error}"));
}
