//! What fuzzers have found and what they begin with, once more: each file of the corpus goes to its target.
//!
//! Owns nothing but the way there. `tests/fuzz/targets.rs` has the targets, which panic if something is wrong;
//! `tests/fuzz/cargo-fuzz` is the package by which cargo-fuzz calls the same functions (`make fuzz`).

#[path = "fuzz/calls.rs"]
mod calls;
#[path = "fuzz/conversation.rs"]
mod conversation;
#[path = "fuzz/files.rs"]
mod files;
#[path = "fuzz/targets.rs"]
mod targets;

#[path = "crash/disk.rs"]
#[allow(dead_code)] // what only the tests of the log do
mod disk;
#[path = "crash/format.rs"]
#[allow(dead_code)]
mod format;
#[path = "crash/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "crash/reference.rs"]
mod reference;

use std::fs;
use std::path::Path;

/// Files that a corpus has at least: a folder that is not found must not count as one without a fault.
const LEAST: usize = 3;

#[test]
fn every_file_of_the_corpus_passes_its_target() {
    for (name, target) in targets::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
        let mut files: Vec<_> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.expect("an entry").path())
            .collect();
        files.sort();
        assert!(files.len() >= LEAST, "{name} has {} files", files.len());
        for file in files {
            // The name of the file stands before what a target says of it.
            println!("{}", file.display());
            target(&fs::read(&file).expect("a file"));
        }
    }
}
