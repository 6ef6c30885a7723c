//! Runs what fuzzers have found and start from: each file of the corpus goes to its target.
//!
//! Owns nothing but the link. `tests/fuzz/targets.rs` has the targets, which panic on an error; `tests/fuzz/cargo-fuzz`
//! is the package through which cargo-fuzz calls the same functions (`make fuzz`).

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

/// The minimum number of files of a corpus: a directory that is not found must not count as one without errors.
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
            // The name of the file precedes the messages of a target.
            println!("{}", file.display());
            target(&fs::read(&file).expect("a file"));
        }
    }
}
