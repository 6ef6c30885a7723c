//! The program as a process: memory, standard files, parent process, background mode, and role in a cluster.
//!
//! Owns the parts of the program that the library does not contain. Must not be needed by an embedded server.

pub mod allocator;
pub mod daemon;
#[cfg(target_os = "linux")]
pub mod standard_files;
pub mod standby;
pub mod starter;
