//! What all threads share about who is let in.
//!
//! Owns the way to the access file, to the certificate, and to the number of clients that are still unknown. Must not
//! decide anything: `gate` and `protocol::guard` do.

use std::sync::atomic::Ordering;
#[cfg(feature = "tls")]
use std::sync::Arc;

use super::gate::{Gate, MAX_STRANGERS};
use super::hub::Hub;
#[cfg(feature = "tls")]
use super::tls::ServerConfig;

impl Hub {
    /// The access file, if there is one.
    pub fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref()
    }

    /// New connections with TLS begin with this from now on.
    #[cfg(feature = "tls")]
    pub fn set_tls(&self, config: Option<Arc<ServerConfig>>) {
        *self.tls.lock() = config;
    }

    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.lock().clone()
    }

    /// Whether there are as many as may be.
    pub fn is_full_of_strangers(&self) -> bool {
        self.strangers.load(Ordering::Relaxed) >= MAX_STRANGERS
    }
}
