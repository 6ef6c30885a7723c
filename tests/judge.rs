//! Runs the judge's own tests with handwritten histories. Each history is correct or contains exactly one violation.
//!
//! The judge (`make judge`) must report all violations and nothing else. Must not start a server. Without Python, this
//! test is skipped, because `make test` does not require Python.

use std::process::Command;

#[test]
fn the_judge_finds_exactly_the_violations() {
    let suite = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/judge/test_judge.py");
    let is_installed = Command::new("python3").arg("--version").output().is_ok_and(|run| run.status.success());
    if !is_installed {
        eprintln!("skipped: python3 is missing");
        return;
    }
    let run = Command::new("python3").arg(suite).output().expect("python3 starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
