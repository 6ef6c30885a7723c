//! Code for several modules: 64-bit atomics, text formats, files, locks, limits, binlog state, and role in a cluster.

/// portable_atomic provides the 64-bit atomics that mips, armv5 and riscv32 lack.
pub mod atomic {
    #[cfg(not(target_has_atomic = "64"))]
    pub use portable_atomic::{AtomicBool, AtomicU64, Ordering};
    #[cfg(target_has_atomic = "64")]
    pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}
pub mod base64;
pub mod files;
pub mod json;
pub mod lock_order;
pub mod log_figures;
#[cfg(feature = "tls")]
pub mod pem;
pub mod role;
pub mod system;
