//! Tests that acknowledged changes survive faults of the process, the disk and the directory.
//!
//! Most tests run the real program with real files. They kill the program, fill the disk, and damage or remove files.
//! Other tests run a server inside the test process with a disk that is slow or fails. Must not repeat the byte-level
//! tests in `tests/crash.rs`.
//!
//! `BEANPOLE_KILLS=N` sets the number of rounds of the kill tests for each sync mode. `BEANPOLE_RECOVERY=1` measures
//! the time to recover a million jobs. `BEANSTALKD=PATH` sets the path of beanstalkd's executable. By default, the
//! tests try the usual paths.

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
#[path = "durability/faults.rs"]
mod faults;
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
