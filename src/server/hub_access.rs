//! Authentication state shared by all threads.
//!
//! Owns access to the access file, the certificate, and the number of unauthenticated clients. Must not decide
//! anything: `gate` and `protocol::guard` do.

use std::sync::atomic::Ordering;
#[cfg(feature = "tls")]
use std::sync::Arc;

use super::gate::{Gate, MAX_STRANGERS};
use super::hub::Hub;
#[cfg(feature = "tls")]
use super::tls::ServerConfig;

impl Hub {
    pub fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref()
    }

    #[cfg(feature = "tls")]
    pub fn set_tls(&self, config: Option<Arc<ServerConfig>>) {
        *self.tls.lock() = config;
    }

    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.lock().clone()
    }

    /// Returns `true` if the limit of unauthenticated clients is reached.
    pub fn is_full_of_strangers(&self) -> bool {
        self.strangers.load(Ordering::Relaxed) >= MAX_STRANGERS
    }
}
