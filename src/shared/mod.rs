//! Text formats, files, locks, limits of the machine, and the role in a cluster, for several other modules.

pub mod atomic;
pub mod base64;
pub mod files;
pub mod json;
pub mod lease;
pub mod lock_order;
pub mod log_figures;
pub mod machine;
#[cfg(feature = "tls")]
pub mod pem;
pub mod role;
pub mod system;
