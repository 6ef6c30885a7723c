//! The settings of a server, and the command-line options of beanpole and gearmand. Must not start a server.

#[deny(missing_docs)]
pub mod config;
pub mod gearmand;
pub mod options;
pub mod words;
