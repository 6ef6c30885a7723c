//! A cluster of servers that share one queue through a log on several machines.
//!
//! Owns the roles: one active server runs the queue, and every standby keeps a copy of the queue's binlog. Must not
//! depend on jobs or client protocols.
//!
//! The active server appends every binlog change to the shared log before confirming the change to clients
//! ([`shipping`]). Standbys apply the changes to their own directories ([`mirror`]). If the active server's lease
//! expires, a standby claims the log, reads the remaining entries and becomes active ([`node`]).

mod active;
mod checksums;
mod entry;
mod etcd;
#[cfg(any(test, feature = "test-support"))]
#[path = "tests/fake_log.rs"]
mod fake_log;
mod gateway;
mod merging;
mod mirror;
mod node;
mod relay;
mod shared_log;
mod shipping;
mod status;

pub use active::Active;
pub use entry::{EntryKind, Head};
pub use etcd::{Etcd, Location};
#[cfg(any(test, feature = "test-support"))]
pub use fake_log::{Faults, MemoryLog};
pub use merging::merge;
pub use mirror::{leave_cluster, restore_aside};
pub use node::{Node, Step};
pub use relay::{Relay, Services, HTTP};
pub use shared_log::{Epoch, Fail, Merged, Seq, SharedLog, SharedSpace, Tail};
pub use shipping::{Shipper, LEASE};
pub use status::command;
