//! beanpole: a small work-queue server, compatible with beanstalkd.
//!
//! [`Server`] runs a queue inside a program or test, [`Client`] connects to this server or to any other beanstalk
//! server, and [`Server::with_manual_clock`] lets a test skip delays. [`Config`] contains all limits and other
//! settings. ARCHITECTURE.md describes the design of the server.

#![deny(unsafe_code)]

/// If the condition is false, returns the error from the function as `?` does.
macro_rules! ensure {
    ($condition:expr, $error:expr) => {
        if !$condition {
            Err::<(), _>($error)?;
        }
    };
}

mod access;
mod binlog;
// Internal items are documented only where the name is not enough. The public interface is fully documented.
#[cfg_attr(not(feature = "test-support"), deny(missing_docs))]
mod client;
mod cluster;
mod ctl;
mod engine;
mod protocol;
#[deny(missing_docs)]
mod server;
mod settings;
mod shared;

pub use binlog::{BinlogSettings, SyncMode};
pub use client::{Client, ClientError, Closer, PutResult, PutTags, Reply, ReservedJob, WaitResult};
#[cfg(feature = "tls")]
pub use client::{ClientTls, ClientTlsFiles};
pub use engine::State as JobState;
pub use protocol::{beanstalk::Extensions, http::HttpSettings, ProtocolSettings, Wire};
pub use server::{JobInfo, JobTotals, ManualClock, Server, ServerStats, StartError, TubeInfo};
pub use settings::config::{Address, Config, Keepalive, TlsFiles};
#[doc(hidden)]
pub use shared::role::{Lease, Role, RoleBoard, RoleFigures};

/// Internal modules for the program, tests and benchmarks of this package. They can change without notice.
#[doc(hidden)]
pub mod internals {
    macro_rules! export {
        ($($name:ident $(in $folder:ident)?),+) => {
            $(pub mod $name { pub use crate::$($folder::)?$name::*; })+
        };
    }
    export!(access, binlog, cluster, ctl, engine, protocol, server);
    export!(config in settings, gearmand in settings, options in settings);
    export!(base64 in shared, files in shared, system in shared);
    #[cfg(feature = "test-support")]
    export!(client);
}
