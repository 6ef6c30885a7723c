//! beanpole: a small work-queue server that takes beanstalkd's place.
//!
//! The rooms, each with its own page:
//!
//! - [`engine`] is the queue: pure, without sockets, threads or a clock.
//! - [`access`] says who may do what: just as pure.
//! - [`protocol`] turns bytes into the engine's verbs and its answers into bytes: just as pure.
//! - [`server`] has the sockets, the threads, the one lock and the clock.
//! - [`words`] does what the command line asks for beside running a server.
//! - [`options`] reads a command line into a [`Config`], whose defaults depend on the [`machine`]; [`gearmand`] reads
//!   one that was written for gearmand.
//!
//! To run a queue inside a program or test, use [`Server`] and [`Client`]; [`Server::with_manual_clock`] lets a test
//! jump over delays.

#![deny(missing_docs, unsafe_code)]

mod client;
mod config;

pub mod access;
pub mod binlog;
pub mod engine;
pub mod gearmand;
pub mod machine;
pub mod options;
pub mod protocol;
pub mod server;
pub mod words;

pub use client::{Client, ClientError, ReservedJob};
pub use config::{
    Address, Config, Keepalive, TlsFiles, CONNECTION_COST, DEFAULT_HOST, DEFAULT_MAX_JOB_SIZE, DEFAULT_PORT,
    MAX_JOB_SIZE_CEILING,
};
pub use server::{ManualClock, Server, StartError};
