//! Runs each file of the fuzzing corpus through its fuzz target.
//!
//! `tests/fuzz/targets.rs` contains the targets, which panic on an error. `tests/fuzz/cargo-fuzz` contains the package
//! that runs the same targets under cargo-fuzz (`make fuzz`).

#[path = "fuzz/calls.rs"]
mod calls;
#[path = "fuzz/conversation.rs"]
mod conversation;
#[path = "fuzz/files.rs"]
mod files;
#[path = "fuzz/peers.rs"]
mod peers;
#[path = "fuzz/targets.rs"]
mod targets;

#[path = "crash/disk.rs"]
#[allow(dead_code)] // parts that only tests/crash.rs uses
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

/// The minimum number of files for each target. If there are fewer, a part of the corpus is probably missing.
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
        assert!(files.len() >= LEAST, "{name} has only {} files", files.len());
        for file in files {
            // If the target panics, the last printed line is the path of the file.
            println!("{}", file.display());
            target(&fs::read(&file).expect("a file"));
        }
    }
}
