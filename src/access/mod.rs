//! Authorization: rights on tubes, and the access file that grants them to names.
//!
//! Owns the rights, the patterns of tube names, the needs of commands, and the format of the access file. Pure: the
//! server reads the file and identifies clients. Must not know commands; each protocol's table has their needs.

mod client;
mod file;
mod right;
mod table;

pub use client::{ClientAccess, Denied};
pub use file::{parse, Accounts, FileError};
pub use right::{Need, Right, Rights, Scope};
pub use table::{AccessTable, Digest, Entry, Proof};
