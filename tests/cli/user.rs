//! Tests switching to another user, and running as an unprivileged user. Most tests require root.

use std::fs;
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::unistd::User;

use super::daemon::{program, run, run_command, Daemon, Ended, Folder, Signal, PATIENCE};
use super::{is_root, NO_ADDRESS};

/// Exit codes of beanstalkd.
const NO_SUCH_USER: i32 = 33;
const CANNOT_BECOME: i32 = 34;

pub fn nobody() -> User {
    User::from_name("nobody").expect("a user database").expect("the user nobody")
}

/// Copies the program to a world-readable directory, and returns a command that runs the copy as nobody. Requires root.
pub fn as_nobody(folder: &Folder, arguments: &[&str]) -> Command {
    let copy = folder.file("beanpole");
    // Uses cp(1), because a child process of another test could inherit the descriptor with which this process would
    // write the copy. Executing the copy fails while any process has it open for writing.
    assert!(Command::new("cp").arg(program()).arg(&copy).status().expect("cp").success());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("a copy");
    fs::set_permissions(folder.file(""), fs::Permissions::from_mode(0o755)).expect("a directory");
    let mut command = Command::new(copy);
    command.args(arguments).uid(nobody().uid.as_raw()).gid(nobody().gid.as_raw()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

pub fn run_as_nobody(arguments: &[&str]) -> Ended {
    let folder = Folder::new();
    run_command(as_nobody(&folder, arguments))
}

/// Checks that every thread has only the IDs of the user nobody and no capabilities, cannot gain privileges, and has a
/// strict umask.
fn is_nobody(daemon: &Daemon) {
    let (uid, gid) = (nobody().uid.to_string(), nobody().gid.to_string());
    for thread in fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("a running process") {
        let status = fs::read_to_string(thread.expect("a thread").path().join("status")).expect("a running thread");
        let words = |name: &str| -> Vec<String> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words("Uid:"), vec![uid.clone(); 4]);
        assert_eq!(words("Gid:"), vec![gid.clone(); 4]);
        assert!(words("Groups:").iter().all(|group| *group == gid), "{status}");
        assert_eq!(words("CapEff:"), ["0000000000000000"]);
        assert_eq!(words("CapPrm:"), ["0000000000000000"]);
        assert_eq!(words("CapAmb:"), ["0000000000000000"]);
        assert_eq!(words("CapInh:"), ["0000000000000000"]);
        assert_eq!(words("NoNewPrivs:"), ["1"]);
        let umask = u32::from_str_radix(&words("Umask:")[0], 8).expect("a mode");
        assert_eq!(umask & 0o027, 0o027);
    }
}

fn status(daemon: &Daemon, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("a running process");
    status.lines().find_map(|line| line.strip_prefix(name)).expect("a line").trim().to_owned()
}

#[test]
fn the_server_cannot_gain_privileges_and_restricts_its_files() {
    // A stricter umask of the parent must stay in effect.
    for (before, after) in [("022", 0o027), ("0", 0o027), ("077", 0o077)] {
        let folder = Folder::new();
        let binlog = folder.file("jobs");
        let script = format!("umask {before}; exec \"$0\" \"$@\"");
        let options = ["-p", "0", "-b", binlog.to_str().expect("a UTF-8 path")];
        let daemon = Daemon::spawn(super::daemon::shell(&script, &options));
        assert_eq!(status(&daemon, "NoNewPrivs:"), "1");
        assert_eq!(status(&daemon, "Seccomp:"), "0", "the unit file, not the server, enables a seccomp filter");
        let umask = u32::from_str_radix(&status(&daemon, "Umask:"), 8).expect("a mode");
        assert_eq!(umask, after, "after umask {before}");
        for entry in fs::read_dir(&binlog).expect("a directory") {
            let entry = entry.expect("a file");
            let mode = std::os::unix::fs::MetadataExt::mode(&entry.metadata().expect("metadata")) & 0o777;
            assert_eq!(mode & after, 0, "{}: {mode:o}", entry.path().display());
        }
    }
}

#[test]
fn root_changes_to_the_user_after_binding() {
    if !is_root() {
        return;
    }
    // Only root can create a socket file in this directory and bind this port.
    let (folder, host) = (Folder::new(), super::own_host());
    let unix = format!("unix:{}", folder.file("s").display());
    let daemon = Daemon::start(&["-u", "nobody", "-l", &format!("{host}:81"), "-l", &unix]);
    is_nobody(&daemon);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
}

#[test]
fn an_unknown_user_exits_with_33() {
    let folder = Folder::new();
    let path = folder.file("s");
    let ended = run(&["-u", "no-such-user", "-l", &format!("unix:{}", path.display())]);
    ended.failed(NO_SUCH_USER, &[" ERROR ", "no such user", "no-such-user"]);
    assert!(!path.exists(), "a socket file was left behind");
    run(&["-p0", "-u", ""]).failed(NO_SUCH_USER, &[" ERROR ", "no such user"]);
}

/// Like beanstalkd, the program reports an invalid address before an unknown user.
#[test]
fn an_invalid_address_is_reported_before_an_unknown_user() {
    let (_listener, address) = super::taken();
    let ended = run(&["-u", "no-such-user", "-l", &address.to_string()]);
    ended.failed(NO_ADDRESS, &[&address.to_string()]);
}

#[test]
fn an_unprivileged_user_cannot_become_another_user() {
    if !is_root() {
        return;
    }
    run_as_nobody(&["-p", "0", "-u", "root"]).failed(CANNOT_BECOME, &[" ERROR ", "root", "permitted"]);
}

/// A service manager may already have switched to the user that a shared configuration file names with `-u`.
#[test]
fn becoming_the_same_user_works_without_root() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let daemon = Daemon::spawn(as_nobody(&folder, &["-p", "0", "-u", "nobody"]));
    is_nobody(&daemon);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
}

#[test]
fn inherited_capabilities_are_dropped() {
    // Skips the test if setpriv(1), a part of util-linux, cannot grant the capability.
    let give = ["--ambient-caps", "+net_bind_service", "--inh-caps", "+net_bind_service", "--clear-groups"];
    let mut try_it = Command::new("setpriv");
    if !is_root() || !try_it.args(give).arg("true").status().is_ok_and(|status| status.success()) {
        return;
    }
    let folder = Folder::new();
    let program = as_nobody(&folder, &[]).get_program().to_owned();
    let (uid, gid) = (nobody().uid.to_string(), nobody().gid.to_string());
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &uid, "--regid", &gid]).args(give).arg(program);
    command.args(["-p", "0", "-l", "127.0.0.1", "-u", "nobody"]).stdin(Stdio::null()).stdout(Stdio::null());
    is_nobody(&Daemon::spawn(command));
}

/// A numeric user must work without a user database, for example in a container.
#[test]
fn a_user_can_be_numeric() {
    if !is_root() {
        return;
    }
    let (uid, gid) = (nobody().uid.to_string(), nobody().gid.to_string());
    for name in [uid.clone(), format!("{uid}:{gid}")] {
        let daemon = Daemon::start(&["-u", &name]);
        is_nobody(&daemon);
        daemon.client().put(b"x", 0, 0, 60).unwrap();
    }
    let daemon = Daemon::start(&["-u", "54321"]);
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    assert!(status.contains("Uid:\t54321\t54321\t54321\t54321\nGid:\t54321\t54321\t54321\t54321"), "{status}");
    for name in ["1:", ":1", "1:x", "4294967295", "-1"] {
        run(&["-p0", &format!("-u{name}")]).failed(NO_SUCH_USER, &["no such user", name, "-u"]);
    }
}

#[test]
fn the_parent_of_a_new_binlog_directory_is_synced() {
    if !is_root() {
        return;
    }
    let (program, place) = (Folder::new(), Folder::new());
    let parent = place.file("parent");
    fs::create_dir(&parent).expect("a directory");
    // Without the permission to read the directory, the server cannot sync it, and must report the failure.
    chown(&parent, Some(nobody().uid.as_raw()), None).expect("the owner is changed");
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o300)).expect("the mode is changed");
    let log = parent.join("log");
    let daemon = Daemon::spawn(as_nobody(&program, &["-p", "0", "-b", log.to_str().expect("a UTF-8 path")]));
    daemon.wait_log("cannot sync the folder above log");
    assert!(log.is_dir());
}
