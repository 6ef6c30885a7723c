//! Several machines, one queue: the binlog in a shared log that survives the loss of a machine.
//!
//! Owns the roles. Of all servers with one shared log, one is active: it runs the queue, and each change of its
//! binlog's directory is in the shared log before anything is promised ([`shipping`]). The others stand by: they apply
//! the same changes to their own directories ([`mirror`]) and serve no queue. If the active one is silent for longer
//! than its lease, one of them claims the log ([`node`]), reads the rest, and starts as from any binlog. Must not know
//! jobs, nor protocols but etcd's.

mod active;
mod checksums;
mod cluster_id;
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
pub use shared_log::{Epoch, Fail, Merged, Room, Seq, SharedLog, Tail};
pub use shipping::{Shipper, LEASE};
pub use status::command;
