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
use std::time::{Duration, Instant};

use crate::shared::lock_order::LeafMutex;

/// Minimum time between two log lines about failed handshakes.
const QUIET: Duration = Duration::from_secs(1);

/// The time at which a failed handshake was last logged, and the number of failed handshakes since then.
static LOGGED: LeafMutex<(Option<Instant>, u64)> = LeafMutex::new((None, 0));

pub fn log_failure(peer: &impl Display, error: &io::Error) {
    let mut logged = LOGGED.lock();
    if logged.0.is_some_and(|at| at.elapsed() < QUIET) {
        logged.1 += 1;
        return;
    }
    let (_, silent) = std::mem::replace(&mut *logged, (Some(Instant::now()), 0));
    drop(logged);
    match silent {
        0 => log::info!("{peer}: the TLS handshake failed: {error}"),
        more => log::info!("{peer}: the TLS handshake failed: {error}; so did {more} others before"),
    }
}
