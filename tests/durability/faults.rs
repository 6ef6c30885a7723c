//! Tests that interrupted and partial file operations lose no data, and that a new log's parent directory is synced.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::daemon::{can_preload, wait_until, Daemon};
use super::support::{crash, total, Home};

fn shim(home: &Home) -> PathBuf {
    let shim = home.beside("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durability/fault_shim.rs");
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args(["--edition", "2021", "--crate-type", "cdylib", "-C", "panic=abort", "-o"]);
    assert!(command.arg(&shim).arg(source).status().expect("rustc").success());
    shim
}

/// Starts a server with the shim. The environment variable `name` is set to the path of `folder`.
fn start(home: &Home, shim: &Path, (name, folder): (&str, &Path), options: &[&str]) -> Daemon {
    let folder = folder.canonicalize().expect("a directory");
    let [shim, folder] = [shim, &folder].map(|path| path.to_str().expect("a plain path"));
    Daemon::start_with(&[("LD_PRELOAD", shim), (name, folder)], &[&["-b", home.name()], options].concat())
}

#[test]
fn interrupted_and_partial_calls_have_no_effect() {
    const JOBS: usize = 40;
    if !can_preload() {
        return;
    }
    let home = Home::new();
    let shim = shim(&home);
    let started = |option| start(&home, &shim, ("FAULT_CALLS", home.path()), &["-f0", "-s", "8192", option]);
    let daemon = started("-V");
    let mut client = daemon.client();
    for number in 0..JOBS {
        client.put(format!("{number:0500}").as_bytes(), 0, 0, 60).expect("a job");
    }
    // A segment that is replaced by a copy is renamed, and segments without jobs are removed.
    let name = home.files().into_keys().find(|name| name.starts_with("segment.")).expect("a segment");
    fs::copy(home.path().join(&name), home.beside("copy")).expect("a copy");
    fs::rename(home.beside("copy"), home.path().join(&name)).expect("a renamed file");
    wait_until("the copy is renamed", || home.path().join("damaged").join(&name).exists());
    crash(daemon);
    assert!(home.files().len() > 3, "the jobs must need several segments: {:?}", home.files().keys());
    let daemon = started("--strict");
    assert_eq!(total(&mut daemon.client()), JOBS as u64);
    let log = crash(daemon);
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    let calls = fs::read_to_string(format!("{}.calls", home.path().canonicalize().expect("a directory").display()));
    let calls: BTreeSet<String> = calls.expect("the failed calls").lines().map(str::to_owned).collect();
    for call in ["openat", "pread", "pwrite", "fsync|fdatasync", "flock", "getdents", "mkdirat", "renameat", "unlinkat"]
    {
        let is_hooked = |other: &String| call.split('|').any(|call| other.starts_with(call));
        assert!(calls.iter().any(is_hooked), "no {call} failed: {calls:?}");
    }
}

#[test]
fn the_directory_above_a_new_log_is_synced() {
    if !can_preload() {
        return;
    }
    let home = Home::new();
    std::fs::remove_dir(home.path()).expect("an empty directory");
    let above = home.path().parent().expect("a parent directory");
    // The reported failure shows that the server attempted the sync.
    let daemon = start(&home, &shim(&home), ("FAULT_SYNC", above), &[]);
    daemon.client().put(b"x", 0, 0, 60).expect("a job");
    assert!(daemon.log().contains("cannot sync the folder above log: "), "{}", daemon.log());
    // The sync is not needed if the directory already exists.
    crash(daemon);
    let daemon = start(&home, &shim(&home), ("FAULT_SYNC", above), &[]);
    assert!(!daemon.log().contains("cannot sync"), "{}", daemon.log());
}
