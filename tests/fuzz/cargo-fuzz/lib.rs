//! Makes the targets of `tests/fuzz` available to cargo-fuzz.
//!
//! Contains no targets of its own. Includes the same files as the test `tests/fuzz.rs`.

#[path = "../calls.rs"]
mod calls;
#[path = "../conversation.rs"]
mod conversation;
#[path = "../files.rs"]
mod files;
#[path = "../peers.rs"]
mod peers;
#[path = "../targets.rs"]
mod targets;

#[path = "../../crash/disk.rs"]
#[allow(dead_code)] // parts that only tests/crash.rs uses
mod disk;
#[path = "../../crash/format.rs"]
#[allow(dead_code)]
mod format;
#[path = "../../crash/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "../../crash/reference.rs"]
mod reference;

pub fn run(name: &str, bytes: &[u8]) {
    let (_, target) = targets::TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    target(bytes);
}
