//! 64-bit atomics on every processor.
//!
//! Owns the choice between the standard library's atomics and the crate portable_atomic. The crate is used on
//! processors without 64-bit atomics, such as mips, armv5 and riscv32.

#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(target_has_atomic = "64")]
pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
