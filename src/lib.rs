//! beanpole: a small work-queue server that takes beanstalkd's place.
//!
//! The rooms, each with its own page:
//!
//! - [`engine`] is the queue: pure, without sockets, threads or a clock.
//! - [`protocol`] turns bytes into the engine's verbs and its answers into bytes: just as pure.
//! - [`server`] has the sockets, the threads, the one lock and the clock.
//! - [`ctl`] has the subcommands of the command line, which do everything beside running a server.
//! - [`options`] reads a command line into a [`Config`], whose defaults depend on the [`machine`]; [`gearmand`] reads one that
//!   was written for gearmand.
//!
//! To run a queue inside a program or test, use [`Server`] and [`Client`]; [`Server::with_manual_clock`] lets a test jump
//! over delays.

#![deny(missing_docs, unsafe_code)]

mod client;
mod config;

pub mod binlog;
pub mod ctl;
pub mod engine;
pub mod gearmand;
pub mod machine;
pub mod options;
pub mod protocol;
pub mod server;

pub use client::{Client, ClientError, Closer, Reply, ReservedJob};
pub use config::{
    Address, Config, Keepalive, CONNECTION_COST, DEFAULT_HOST, DEFAULT_MAX_JOB_SIZE, DEFAULT_PORT, MAX_JOB_SIZE_CEILING,
};
pub use server::{ManualClock, Server, StartError};
