//! Modules that several others use: text formats, files, locks, the machine, and the role of a server in a cluster.
//!
//! Owns its files. Imports no other module.

pub mod atomic;
pub mod base64;
#[allow(missing_docs)]
pub mod files;
pub mod json;
pub mod lease;
pub mod lock_order;
#[allow(missing_docs)]
pub mod log_figures;
#[allow(missing_docs)]
pub mod machine;
#[cfg(feature = "tls")]
#[allow(missing_docs)]
pub mod pem;
pub mod role;
#[allow(missing_docs)]
pub mod system;
