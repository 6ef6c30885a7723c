//! A cluster: several servers with one queue, whose binlog is in a shared log that survives the loss of a machine.
//!
//! Owns the roles. One server is active: it runs the queue, and each change of its binlog is in the shared log before
//! clients receive a confirmation ([`shipping`]). The others are standbys: they apply the same changes to their own
//! directories ([`mirror`]). If the active server is silent for longer than its lease, a standby claims the log
//! ([`node`]), reads the rest, and starts from its directory. Must not know jobs, nor protocols except etcd's.

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
