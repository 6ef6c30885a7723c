//! The write-ahead log, which makes acknowledged jobs outlive the process.
//!
//! Owns everything on disk. [`Journal::append`] records the engine's changes, under the engine's lock, and returns
//! their position; [`Wal::reserve`] creates space for them beforehand; [`Wal::durable`] returns the position up to
//! which replies may be sent, and [`Wal::sync`] advances it. [`open`] reads a log at startup, and [`inspect`] without
//! a server.
//!
//! `record` and `segment` define the format, `replay` finds records in bytes, `survey` orders segments, and `reading`
//! restores them into the engine; `writer` writes bytes to files, which only [`Storage`] accesses. Must not know
//! protocols, connections or threads.

mod backup;
mod beanstalkd;
mod bytes;
mod decode;
mod fields;
mod import;
mod job_options;
mod journal;
mod live_index;
mod migrate;
mod reading;
mod record;
mod recovery;
mod replay;
mod segment;
mod storage;
mod survey;
mod types;
mod wal;
mod writer;

pub use crate::shared::log_figures::Health;
pub use backup::back_up;
pub use journal::Journal;
pub use recovery::{inspect, open, BinlogSettings, Inspection, Opened};
pub use segment::segment_name;
pub use storage::{Folder, LogFile, Storage};
pub use types::{OpenError, RecoveryProgress, RecoveryReport, Required};
pub use wal::{is_no_space, JournalAccess, Wal};
pub use writer::SyncMode;
