//! beanpole: a small work-queue server that takes beanstalkd's place.
//!
//! [`Server`] runs a queue inside a program or test, [`Client`] talks to it or to any other beanstalk server, and
//! [`Server::with_manual_clock`] lets a test jump over delays. [`Config`] has every limit. How the server is built
//! stands in ARCHITECTURE.md.

// Rooms document what a name does not say; what the library shows is documented in full.
#![deny(missing_docs, unsafe_code)]

#[allow(missing_docs)]
mod access;
mod base64;
#[allow(missing_docs)]
mod binlog;
mod client;
#[allow(missing_docs)]
mod cluster;
mod config;
#[allow(missing_docs)]
mod ctl;
#[allow(missing_docs)]
mod engine;
#[allow(missing_docs)]
mod files;
#[allow(missing_docs)]
mod gearmand;
mod json;
mod lease;
mod lock_order;
#[allow(missing_docs)]
mod log_figures;
#[allow(missing_docs)]
mod machine;
#[allow(missing_docs)]
mod options;
#[cfg(feature = "tls")]
#[allow(missing_docs)]
mod pem;
#[allow(missing_docs)]
mod protocol;
mod role;
mod server;

pub use binlog::{BinlogSettings, SyncMode};
pub use client::{Client, ClientError, Closer, PutResult, PutTags, Reply, ReservedJob, WaitResult};
#[cfg(feature = "tls")]
pub use client::{ClientTls, ClientTlsFiles};
pub use config::{Address, Config, Keepalive, TlsFiles};
pub use engine::State as JobState;
pub use lease::Lease;
pub use protocol::{ProtocolSettings, Wire};
pub use role::{Role, RoleBoard, RoleFigures};
pub use server::{JobInfo, JobTotals, ManualClock, Server, ServerStats, StartError, TubeInfo};

/// The rooms, for the program, the tests and the benchmarks of this package. They change without notice.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod internals {
    pub mod access {
        pub use crate::access::*;
    }
    pub mod base64 {
        pub use crate::base64::*;
    }
    pub mod binlog {
        pub use crate::binlog::*;
    }
    pub mod cluster {
        pub use crate::cluster::*;
    }
    pub mod config {
        pub use crate::config::*;
    }
    pub mod ctl {
        pub use crate::ctl::*;
    }
    pub mod engine {
        pub use crate::engine::*;
    }
    pub mod files {
        pub use crate::files::*;
    }
    pub mod gearmand {
        pub use crate::gearmand::*;
    }
    pub mod machine {
        pub use crate::machine::*;
    }
    pub mod options {
        pub use crate::options::*;
    }
    pub mod protocol {
        pub use crate::protocol::*;
    }
    pub mod server {
        pub use crate::server::*;
    }
}
