//! 64-bit atomics on every processor: those of the standard library, or of portable_atomic on mips, armv5 and riscv32.

#[cfg(not(target_has_atomic = "64"))]
pub use portable_atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(target_has_atomic = "64")]
pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
