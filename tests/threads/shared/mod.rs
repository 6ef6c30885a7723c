//! What the server's files import of `shared`, as far as schedules of threads need it.
//!
//! Owns nothing: locks have no order here, leases never end, and atomics are those that shuttle watches.

#[allow(dead_code)]
pub mod lock_order;

pub mod atomic {
    pub use crate::shims::{AtomicBool, AtomicU64, Ordering};
}

pub mod lease {
    /// A lease that lasts for ever.
    #[derive(Debug, Default)]
    pub struct Lease;

    impl Lease {
        pub fn is_over(&self) -> bool {
            false
        }
    }
}
