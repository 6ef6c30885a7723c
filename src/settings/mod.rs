//! The settings: of a program, of beanpole's options, and of gearmand's.
//!
//! Owns their parsers and defaults. Must not start anything.

pub mod config;
#[allow(missing_docs)]
pub mod gearmand;
#[allow(missing_docs)]
pub mod options;
#[allow(missing_docs)]
pub mod words;
