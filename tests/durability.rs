//! Acknowledged changes survive any fault of the process, the disk or the directory.
//!
//! Owns the promises of the binlog as a user meets them: the real program and real files, killed, filled up, damaged
//! and taken away, and a server inside this process on a disk that is slow or fails. The crash tests over a simulated
//! disk, which are far more thorough about bytes, are elsewhere; here are the kernel, the sockets and the threads.
//!
//! `BEANPOLE_KILLS=N` gives the loop of kills so many rounds for each kind of sync; `BEANPOLE_RECOVERY=1` measures how
//! long a million jobs take to come back; `BEANSTALKD=/path/to/it` names the original, unless it is in one of the usual
//! places.

mod daemon;

#[path = "durability/book.rs"]
mod book;
#[path = "durability/bound.rs"]
mod bound;
#[path = "durability/copies.rs"]
mod copies;
#[path = "durability/disk.rs"]
mod disk;
#[path = "durability/support.rs"]
mod support;
#[path = "durability/wires.rs"]
mod wires;

#[path = "durability/blocked.rs"]
mod blocked;
#[path = "durability/failing.rs"]
mod failing;
#[path = "durability/fields.rs"]
mod fields;
#[path = "durability/folder.rs"]
mod folder;
#[path = "durability/full.rs"]
mod full;
#[path = "durability/gone.rs"]
mod gone;
#[path = "durability/import.rs"]
mod import;
#[path = "durability/kill.rs"]
mod kill;
#[path = "durability/promises.rs"]
mod promises;
#[path = "durability/recovery.rs"]
mod recovery;
#[path = "durability/slow.rs"]
mod slow;
#[path = "durability/three.rs"]
mod three;
