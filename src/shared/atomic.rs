//! 64-bit atomics on every processor.
//!
//! Owns the choice: the standard library's where the processor has them, and those of a crate on mips, armv5, powerpc
//! and riscv32.

#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(target_has_atomic = "64")]
pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
