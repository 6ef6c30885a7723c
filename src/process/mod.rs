//! The program as a process, which the library does not contain: memory, standard files, parent process, background
//! mode, and role in a cluster.

pub mod allocator;
pub mod daemon;
#[cfg(target_os = "linux")]
pub mod standard_files;
pub mod standby;
pub mod starter;
