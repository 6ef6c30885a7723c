//! The targets of `tests/fuzz`, for the fuzzer.
//!
//! Owns nothing but the link: the same files as those of the ordinary test `tests/fuzz.rs`.

#[path = "../calls.rs"]
mod calls;
#[path = "../conversation.rs"]
mod conversation;
#[path = "../files.rs"]
mod files;
#[path = "../targets.rs"]
mod targets;

#[path = "../../crash/disk.rs"]
#[allow(dead_code)] // what only the tests of the log do
mod disk;
#[path = "../../crash/format.rs"]
#[allow(dead_code)]
mod format;
#[path = "../../crash/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "../../crash/reference.rs"]
mod reference;

/// Runs the target with this name.
pub fn run(name: &str, bytes: &[u8]) {
    let (_, target) = targets::TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    target(bytes);
}
