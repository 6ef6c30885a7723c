//! The write-ahead log: what makes acknowledged jobs outlive the process.
//!
//! Owns everything on the disk. Four words suffice to use it: [`Journal::append`] takes the engine's changes, under the
//! engine's lock, and returns their position; [`Wal::reserve`] makes space for them beforehand; [`Wal::durable`]
//! returns the position up to which replies may be sent, and [`Wal::sync`] advances it. [`open`] reads a log back at
//! the start, and [`inspect`] without a server.
//!
//! Inside, `record` and `segment` are the format, `replay` finds records in bytes, `survey` orders segments and
//! `reading` takes them into the engine; `writer` brings bytes into files; [`Storage`] alone touches these. Must not
//! know protocols, connections or threads.

mod backup;
mod beanstalkd;
mod bytes;
mod decode;
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
