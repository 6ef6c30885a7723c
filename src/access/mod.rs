//! Authorization: the access file gives each named client rights to tubes.
//!
//! Must not perform I/O or depend on commands: the server reads the file and identifies clients, and each protocol
//! defines the rights that its commands require.

mod file;
mod right;
mod table;

pub use file::{parse, Accounts};
pub use right::{hex, Need, Right, Rights, Scope};
pub use table::{AccessTable, ClientAccess, Credential, Denied, Digest, Entry};
