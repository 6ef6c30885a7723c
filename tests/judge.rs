//! Runs the tests of the judge: hand-written histories with one violation each, and correct ones.
//!
//! Owns the promise that the judge of `make judge` neither misses nor invents violations. Must not start a
//! beanpole. It is skipped without Python, which `make test` does not require otherwise.

use std::process::Command;

#[test]
fn violations_are_found_and_none_invented() {
    let suite = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/judge/test_judge.py");
    let is_installed = Command::new("python3").arg("--version").output().is_ok_and(|run| run.status.success());
    if !is_installed {
        eprintln!("skipped: python3 is missing");
        return;
    }
    let run = Command::new("python3").arg(suite).output().expect("python3 starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
