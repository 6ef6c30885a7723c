//! Who may do what: rights on tubes, and the file that grants them to names.
//!
//! Owns the rights, the patterns of tube names, the needs of commands, and the format of the access file. Pure: the
//! server reads the file and identifies clients. Must not know commands; each protocol's table says what a command
//! needs.

mod client;
mod file;
mod pattern;
mod problem;
mod right;
mod table;

pub use client::{ClientAccess, Denied};
pub use file::{parse, Accounts};
pub use problem::{AccessProblem, FileError};
pub use right::{Need, Right, Rights, Scope};
pub use table::{AccessTable, Digest, Entry, Proof};
