//! The program as a process: its memory, its standard files, its parent, the background, and its role in a cluster.
//!
//! Owns the parts of the program that the library does not contain.

pub mod allocator;
pub mod daemon;
#[cfg(target_os = "linux")]
pub mod standard_files;
pub mod standby;
pub mod starter;
