//! The settings of a server, and the command-line options of beanpole and gearmand. Must not start a server.

pub mod config;
#[allow(missing_docs)]
pub mod gearmand;
#[allow(missing_docs)]
pub mod options;
#[allow(missing_docs)]
pub mod words;
