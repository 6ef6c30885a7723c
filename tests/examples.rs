//! What stands in `examples/` for other languages, run as their users run it; and the Makefile fragment.
//!
//! Owns the promise that they work. A language that is not on the machine is named and passed over.

mod daemon;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use daemon::{Folder, PROGRAM};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// Whether a program can be started here.
fn is_here(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("not tried: {program} is not here");
    }
    found
}

fn passes(command: &mut Command) -> Output {
    let run = command.env("BEANPOLE", PROGRAM).output().expect("a program that starts");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{command:?}: {}\n{out}{err}", run.status);
    run
}

#[test]
fn suites_of_other_languages_have_a_queue_of_their_own() {
    for (program, arguments, name) in [
        ("python3", &[][..], "test_queue.py"),
        ("ruby", &[], "queue_test.rb"),
        ("php", &[], "queue_test.php"),
        ("node", &["--test"], "queue.test.mjs"),
    ] {
        if is_here(program) {
            passes(Command::new(program).args(arguments).arg(example(name)));
        }
    }
    if is_here("go") {
        let folder = Folder::new();
        let mut go = Command::new("go");
        go.args(["test", "-count=1"]).arg(example("queue_test.go"));
        go.env("GOCACHE", folder.file("cache")).env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
        passes(go.current_dir(folder.file("")));
    }
}

#[test]
fn a_makefile_has_a_queue() {
    if !is_here("make") {
        return;
    }
    let folder = Folder::new();
    std::fs::write(folder.file("Makefile"), format!("include {}\n", example("queue.mk").display())).unwrap();
    let make = |word: &str| {
        let run = passes(Command::new("make").current_dir(folder.file("")).args(["-s", word]));
        String::from_utf8(run.stdout).expect("text")
    };
    let started = make("queue-start");
    let port = std::fs::read_to_string(folder.file(".queue/port")).unwrap();
    assert_eq!(started, format!("the queue listens on port {port}"));
    make("queue-wait");
    assert!(make("queue-start").contains("already"));
    let mut client = beanpole::Client::connect(("127.0.0.1", port.trim().parse::<u16>().unwrap())).unwrap();
    client.put(b"x", 0, 0, 60).unwrap();
    make("queue-stop");
    assert!(!folder.file(".queue/port").exists());
    assert!(client.figure("stats", "pid").is_err());
    make("queue-stop");
    // After a reboot, the number may belong to another process.
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    std::fs::write(folder.file(".queue/pid"), other.id().to_string()).unwrap();
    assert!(make("queue-start").contains("listens"));
    make("queue-stop");
    std::fs::write(folder.file(".queue/pid"), other.id().to_string()).unwrap();
    make("queue-stop");
    assert!(other.try_wait().unwrap().is_none(), "queue-stop killed a process that is not the queue");
    other.kill().unwrap();
    other.wait().unwrap();
}
