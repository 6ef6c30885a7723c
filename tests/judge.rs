//! Runs the judge's own tests with handwritten histories. Each history is correct or contains exactly one violation.
//!
//! The judge (`make judge`) must report all violations and nothing else. The patches of `make judge-faults` must apply.
//! Must not start beanpole. Without Python or git, a test is skipped, because `make test` does not require them.

use std::fs;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn is_installed(name: &str) -> bool {
    let is_installed = Command::new(name).arg("--version").output().is_ok_and(|run| run.status.success());
    if !is_installed {
        eprintln!("skipped: {name} is missing");
    }
    is_installed
}

#[test]
fn the_judge_finds_exactly_the_violations() {
    if is_installed("python3") {
        let run = Command::new("python3").arg(format!("{ROOT}/tests/judge/test_judge.py")).output().expect("python3");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
}

/// `make judge-faults` builds a program with each patch, which takes minutes.
#[test]
fn each_planted_defect_is_documented_and_still_applies() {
    let page = fs::read_to_string(format!("{ROOT}/benches/JUDGE.md")).expect("the judge's page");
    let mut count = 0;
    for entry in fs::read_dir(format!("{ROOT}/tests/judge/faults")).expect("a directory") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a patch");
        let (defect, rest) = text.split_once(".\nRule: ").expect("a defect and a rule");
        let row =
            format!("| {}{} | {} |", defect[..1].to_lowercase(), &defect[1..], rest.lines().next().expect("a rule"));
        assert!(page.lines().any(|line| line == row), "{}: JUDGE.md has no row {row}", path.display());
        if is_installed("git") {
            let mut git = Command::new("git");
            let run = git.args(["apply", "--check"]).arg(&path).current_dir(ROOT).output().expect("git");
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        }
        count += 1;
    }
    assert_eq!(count, 5);
}
