//! Starts the program with closed standard streams, with and without /dev/null.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::daemon::{shell, wait_until, Folder};
use super::is_root;
use beanpole::Client;

/// Redirections that close one of the standard streams, or all three.
const CLOSED: [&str; 4] = ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"];

fn serves(mut child: Child, path: &Path) {
    wait_until("the server listens", || {
        assert_eq!(child.try_wait().expect("a child process"), None, "the server has exited");
        UnixStream::connect(path).is_ok()
    });
    let mut client = Client::connect_unix(path).expect("a connection");
    // On the server, the connection may have the descriptor number of a standard stream that was closed. Even then, the
    // server must not send log lines to the client.
    assert_eq!(client.put(b"x", 0, 0, 60).expect("a job"), 1);
    assert_eq!(client.reserve(Some(0)).expect("a reply").expect("the job").body, b"x");
    child.kill().expect("a child process");
    child.wait().expect("a child process");
}

fn start(script: &str, path: &Path) -> Child {
    let mut command = shell(script, &["-VV", "-l", &format!("unix:{}", path.display())]);
    command.stderr(Stdio::null()).spawn().expect("a child process")
}

/// Returns a script that starts the program in a private namespace, in which an empty file system is mounted over
/// `folder`. Returns `None` if this test may not mount file systems.
pub fn without(folder: &str, redirections: &str) -> Option<String> {
    let mount = format!("mount -t tmpfs none {folder}");
    let may = Command::new("unshare").args(["-m", "sh", "-c", &mount]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        println!("skipped: file systems cannot be mounted here");
        return None;
    }
    let inner = format!("{mount} && test -z \"$(ls {folder})\" && exec \"$0\" \"$@\" {redirections}");
    Some(format!("exec unshare -m sh -c '{inner}' \"$0\" \"$@\""))
}

#[test]
fn closed_standard_streams_do_not_prevent_the_start() {
    for closed in CLOSED {
        let folder = Folder::new();
        let path = folder.file("socket");
        serves(start(&format!("exec \"$0\" \"$@\" {closed}"), &path), &path);
    }
}

/// Simulates a container without devices: mounts an empty file system over /dev in a private namespace.
#[test]
fn closed_standard_streams_do_not_prevent_the_start_without_dev_null() {
    if !is_root() {
        return;
    }
    for closed in CLOSED {
        let folder = Folder::new();
        let path = folder.file("socket");
        let Some(script) = without("/dev", closed) else { return };
        serves(start(&script, &path), &path);
    }
}
