//! The write-ahead log, which makes acknowledged jobs survive a restart or a crash of the server. [`Journal::append`]
//! records changes under the engine's lock, and [`Wal`] writes and syncs the records without that lock. Must not depend
//! on protocols, connections or threads.

mod backup;
mod batch;
mod beanstalkd;
mod decode;
mod fields;
mod import;
mod journal;
mod reading;
mod record;
mod recovery;
mod replay;
mod segment;
mod storage;
mod survey;
mod wal;
mod writer;

pub use crate::shared::log_figures::Health;
pub use backup::back_up;
pub(crate) use fields::{Field, Fields, Rest};
pub use import::{is_binlog_file, is_importing};
pub use journal::{Journal, Required};
pub use reading::{RecoveryProgress, RecoveryReport};
pub use recovery::{inspect, open, BinlogSettings, Inspection, Opened};
pub use segment::segment_name;
pub use storage::{is_no_space, Folder, LogFile, OpenError, Storage};
pub use wal::{JournalAccess, Wal};
pub use writer::SyncMode;
