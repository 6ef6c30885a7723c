//! The settings of a server, and the options of beanpole and gearmand that set them.
//!
//! Owns their parsers and defaults. Must not start anything.

pub mod config;
#[allow(missing_docs)]
pub mod gearmand;
#[allow(missing_docs)]
pub mod options;
#[allow(missing_docs)]
pub mod words;
