//! A cluster of servers that share one queue through a log on several machines. The active server appends every binlog
//! change to the shared log before it confirms the change to clients. Standbys apply the changes to their own
//! directories. If the active server's lease expires, a standby claims the log, reads the rest and becomes active.

mod active;
mod entry;
mod etcd;
#[cfg(any(test, feature = "test-support"))]
#[path = "tests/fake_log.rs"]
mod fake_log;
mod gateway;
mod mirror;
mod node;
mod relay;
mod shared_log;
mod shipping;
mod status;

pub use active::Active;
pub use entry::{merge, EntryKind, Head, Operation};
pub use etcd::Etcd;
#[cfg(any(test, feature = "test-support"))]
pub use fake_log::{Faults, MemoryLog};
pub use gateway::Location;
pub use mirror::{is_copying, leave_cluster, restore_aside};
pub use node::{Node, Step};
pub use relay::{Relay, Services, HTTP};
pub use shared_log::{Epoch, Fail, Merged, Seq, SharedLog, SharedSpace, Tail};
pub use shipping::{Shipper, LEASE};
pub use status::command;
