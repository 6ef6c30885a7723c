//! A program that is started without some of its standard files, with and without /dev/null.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::daemon::{shell, wait_until, Folder};
use super::is_root;
use beanpole::Client;

/// Each of the three alone, and all of them.
const CLOSED: [&str; 4] = ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"];

/// Waits until it serves, and stops it.
fn serves(mut child: Child, path: &Path) {
    wait_until("it listens or has ended", || {
        assert_eq!(child.try_wait().expect("a child of ours"), None, "it has ended");
        UnixStream::connect(path).is_ok()
    });
    let mut client = Client::connect_unix(path).expect("a connection");
    // Its log must not arrive here.
    assert_eq!(client.put(b"x", 0, 0, 60).expect("a job"), 1);
    assert_eq!(client.reserve(Some(0)).expect("a reply").expect("the job").body, b"x");
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
}

fn start(script: &str, path: &Path) -> Child {
    let mut command = shell(script, &["-VV", "-l", &format!("unix:{}", path.display())]);
    command.stderr(Stdio::null()).spawn().expect("a program that starts")
}

#[test]
fn closed_standard_files_are_no_hindrance() {
    for closed in CLOSED {
        let folder = Folder::new();
        let path = folder.file("socket");
        serves(start(&format!("exec \"$0\" \"$@\" {closed}"), &path), &path);
    }
}

/// As in a container without devices: an empty file system is mounted over /dev, for this process only.
#[test]
fn closed_standard_files_are_no_hindrance_without_dev_null() {
    if !is_root() {
        return;
    }
    let mount = "mount -t tmpfs none /dev";
    let may = Command::new("unshare").args(["-m", "sh", "-c", mount]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return println!("skipped: file systems cannot be mounted here");
    }
    for closed in CLOSED {
        let folder = Folder::new();
        let path = folder.file("socket");
        let inner = format!("{mount} && test ! -e /dev/null && exec \"$0\" \"$@\" {closed}");
        let script = format!("exec unshare -m sh -c '{inner}' \"$0\" \"$@\"");
        serves(start(&script, &path), &path);
    }
}
