//! TLS between sockets and everything else; only with the cargo feature `tls`.
//!
//! Owns the files that make a server known to its clients, and what becomes of bytes on their way in and out. Must not
//! know protocols, nor who may do what: it tells which names a client's certificate has.

mod certificate;
mod files;
mod session;

pub use files::{load, ServerConfig};
pub use session::{TlsSession, SESSION_COST};

use std::fmt::Display;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The least time between two lines of the log about handshakes that failed.
const QUIET: Duration = Duration::from_secs(1);

/// When one was logged last, and how many were not since.
static TOLD: Mutex<(Option<Instant>, u64)> = Mutex::new((None, 0));

pub fn log_failure(peer: &impl Display, error: &io::Error) {
    let mut told = TOLD.lock();
    if told.0.is_some_and(|at| at.elapsed() < QUIET) {
        told.1 += 1;
        return;
    }
    let (_, silent) = std::mem::replace(&mut *told, (Some(Instant::now()), 0));
    drop(told);
    match silent {
        0 => log::info!("{peer}: the TLS handshake failed: {error}"),
        more => log::info!("{peer}: the TLS handshake failed: {error}; so did {more} others before"),
    }
}
