//! What can be set: by a program, by beanpole's options, or by gearmand's.
//!
//! Owns its files. Must not start anything.

pub mod config;
#[allow(missing_docs)]
pub mod gearmand;
#[allow(missing_docs)]
pub mod options;
#[allow(missing_docs)]
pub mod words;
