//! The log: what makes acknowledged jobs outlive the process.
//!
//! Owns everything on the disk. The [`Journal`] takes the engine's changes under the engine's lock and decides where each
//! record stands; the `writer` brings the bytes into files and knows how far they are safe; [`open`] reads them back at the
//! start. `record` and `replay` are pure; [`Storage`] alone touches files. Must not know protocols, connections or threads.

mod bytes;
mod homes;
mod import;
mod journal;
mod keeper;
mod migrate;
mod open;
mod record;
mod replay;
mod storage;
mod terms;
mod writer;
mod written;

pub use journal::Journal;
pub use keeper::{Books, Keeper};
pub use open::{open, OpenError, Opened, Progress, Report, Settings};
pub use storage::{Folder, LogFile, Storage};
pub use terms::{Health, LogStats, Promised};
pub use writer::{segment_name, SyncMode};
