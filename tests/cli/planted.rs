//! Tests that a server started by root does not follow another user's links to root's files. Requires root.

use std::fs;
use std::os::unix::fs::{chown, symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::daemon::{command, run, run_command, shell, Daemon, Folder, Signal, PATIENCE};
use super::gearmand::gearmand;
use super::is_root;
use super::user::{as_nobody, nobody};

/// A directory owned by the user nobody, and a directory owned by root that contains a private file.
struct Planted {
    theirs: Folder,
    ours: Folder,
}

impl Planted {
    fn new() -> Planted {
        let (theirs, ours) = (Folder::new(), Folder::new());
        let user = nobody();
        chown(theirs.file(""), Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("a directory");
        let planted = Planted { theirs, ours };
        fs::write(planted.secret(), "precious").expect("a file");
        fs::set_permissions(planted.secret(), fs::Permissions::from_mode(0o600)).expect("the private file");
        planted
    }

    /// The file has the name of a segment, so that a server would move it to another directory.
    fn secret(&self) -> PathBuf {
        self.ours.file("segment.0000000001")
    }

    /// Creates a symbolic link and a hard link to the private file, and returns their paths.
    fn ways(&self) -> [PathBuf; 2] {
        let (soft, hard) = (self.theirs.file("soft"), self.theirs.file("hard"));
        symlink(self.secret(), &soft).expect("a link");
        fs::hard_link(self.secret(), &hard).expect("a hard link");
        [soft, hard]
    }

    fn detour(&self) -> PathBuf {
        let link = self.theirs.file("detour");
        symlink(self.ours.file(""), &link).expect("a link");
        link
    }

    fn is_untouched(&self) {
        let facts = fs::metadata(self.secret()).expect("the private file");
        assert_eq!((facts.uid(), facts.mode() & 0o777), (0, 0o600));
        assert_eq!(fs::read_to_string(self.secret()).expect("the private file"), "precious");
        assert_eq!(fs::read_dir(self.ours.file("")).expect("a directory").count(), 1, "root created a file");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

fn gearmand_as_nobody(options: &[&str]) -> Command {
    let mut program = gearmand(&["-u", "nobody", "-L", "127.0.0.1", "-p", "0"]);
    program.args(options);
    program
}

#[test]
fn the_log_does_not_overwrite_root_s_files() {
    if !is_root() {
        return;
    }
    let planted = Planted::new();
    for way in planted.ways() {
        run_command(gearmand_as_nobody(&["-l", text(&way)])).failed(1, &["log", text(&way), "root follows no link"]);
        fs::remove_file(way).expect("a link");
    }
    let detour = planted.detour().join("new");
    run_command(gearmand_as_nobody(&["-l", text(&detour)])).failed(1, &["root follows no link"]);
    planted.is_untouched();
}

#[test]
fn the_pid_file_does_not_overwrite_root_s_files() {
    if !is_root() {
        return;
    }
    let planted = Planted::new();
    for way in planted.ways() {
        run_command(gearmand_as_nobody(&["-P", text(&way)])).failed(1, &[text(&way), "root follows no link"]);
        fs::remove_file(way).expect("a link");
    }
    planted.is_untouched();
}

#[test]
fn a_socket_is_not_created_in_root_s_directory() {
    if !is_root() {
        return;
    }
    let planted = Planted::new();
    let option = format!("unix:{}", planted.detour().join("s").display());
    run(&["-u", "nobody", "-l", &option]).failed(super::NO_ADDRESS, &[&option, "root follows no link"]);
    planted.is_untouched();
}

/// Without /proc, root can bind a socket only by its path.
#[test]
fn a_socket_in_another_user_s_directory_needs_no_proc() {
    if !is_root() {
        return;
    }
    let planted = Planted::new();
    let Some(script) = super::closed::without("/proc", "") else { return };
    let socket = planted.theirs.file("s");
    let daemon = Daemon::spawn(shell(&script, &["-l", &format!("unix:{}", socket.display())]));
    assert_eq!(daemon.path(), socket);
    daemon.client().put(b"x", 0, 0, 60).expect("a job");
}

/// As root, the server binds the socket through a shorter path in /proc, but clients can only use the long path.
#[test]
fn a_path_that_is_too_long_for_clients_is_refused() {
    if !is_root() {
        return;
    }
    let planted = Planted::new();
    let folder = planted.theirs.file(&"x".repeat(100));
    fs::create_dir(&folder).expect("a directory");
    run(&["-l", &format!("unix:{}", folder.join("s").display())]).failed(super::NO_ADDRESS, &["path must be shorter"]);
}

#[test]
fn the_binlog_is_not_created_in_root_s_directory() {
    if !is_root() {
        return;
    }
    let planted = Planted::new();
    let folder = planted.detour().join("jobs");
    run(&["-p", "0", "-u", "nobody", "-b", text(&folder)]).failed(10, &[text(&folder), "root follows no link"]);
    for detour in [planted.theirs.file("detour"), planted.theirs.file("detour/")] {
        run(&["-p", "0", "-b", text(&detour)]).failed(10, &["root follows no link"]);
    }
    planted.is_untouched();
}

/// At startup, the server moves files back from `journal.moving` or `journal.aside`, and opens a lock file.
#[test]
fn the_binlog_does_not_move_or_overwrite_root_s_files() {
    if !is_root() {
        return;
    }
    for name in ["journal.moving", "journal.aside", "lock"] {
        let planted = Planted::new();
        let target = if name == "lock" { planted.secret() } else { planted.ours.file("") };
        symlink(&target, planted.theirs.file(name)).expect("a link");
        let folder = planted.theirs.file("");
        let start = || assert_eq!(run(&["-p", "0", "-u", "nobody", "-b", text(&folder)]).code, 10, "{name}");
        start();
        planted.is_untouched();
        if name == "lock" {
            fs::remove_file(folder.join(name)).expect("a link");
            fs::hard_link(planted.secret(), folder.join(name)).expect("a hard link");
            start();
            planted.is_untouched();
        }
    }
}

/// The temporary file for the port file has a predictable name. Another user can create a link with this name.
#[test]
fn the_port_file_does_not_overwrite_root_s_files() {
    if !is_root() {
        return;
    }
    let planted = Planted::new();
    let (port, secret) = (planted.theirs.file("port"), planted.secret());
    let script = format!("ln -s {} {}.$$; exec \"$0\" \"$@\"", secret.display(), port.display());
    let daemon = Daemon::spawn(shell(&script, &["-p", "0", "--port-file", text(&port)]));
    assert_eq!(fs::read_to_string(&port).expect("a port file"), format!("{}\n", daemon.address().port()));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
    assert_eq!(fs::read_dir(planted.theirs.file("")).expect("a directory").count(), 0);
    planted.is_untouched();
}

/// Only links that other users can create must be refused. The program must follow root's own links.
#[test]
fn links_of_the_administrator_are_followed() {
    if !is_root() {
        return;
    }
    let planted = Planted::new();
    fs::set_permissions(planted.theirs.file(""), fs::Permissions::from_mode(0o755)).expect("a directory");
    let way = planted.ours.file("way");
    symlink(planted.theirs.file(""), &way).expect("a link");
    let socket = format!("unix:{}", way.join("s").display());
    let binlog = way.join("jobs");
    let mut program = command(&["-u", "nobody", "-l", &socket, "-b", text(&binlog)]);
    program.args(["--gearman=127.0.0.1:0", "--port-file"]).arg(way.join("port"));
    let daemon = Daemon::spawn(program);
    for name in ["port", "jobs"] {
        assert_eq!(fs::metadata(planted.theirs.file(name)).expect("a file").uid(), nobody().uid.as_raw(), "{name}");
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
    assert_eq!(fs::read_dir(planted.theirs.file("")).expect("a directory").count(), 1, "only the binlog must remain");
    // The log's path is a link whose target does not exist yet.
    let log = planted.ours.file("log");
    symlink(planted.theirs.file("log"), &log).expect("a link");
    let pid = planted.theirs.file("pid");
    let mut program = gearmand_as_nobody(&["-l", text(&log), "-P", text(&pid)]);
    let mut child = program.spawn().expect("a child process");
    super::daemon::wait_until("the PID file is written", || {
        fs::read_to_string(&pid).is_ok_and(|text| text == format!("{}\n", child.id()))
    });
    assert_eq!(fs::metadata(planted.theirs.file("log")).expect("a log").uid(), nobody().uid.as_raw());
    child.kill().expect("a child process");
    child.wait().expect("a child process");
}

/// Without a sync of the parent directory, a power failure can remove a new directory together with its jobs. In this
/// test, the program cannot open the parent. The error message shows that the program tried to sync the parent.
#[test]
fn the_directory_entry_of_a_new_binlog_is_synced() {
    if !is_root() {
        return;
    }
    let planted = Planted::new();
    fs::set_permissions(planted.theirs.file(""), fs::Permissions::from_mode(0o333)).expect("a directory");
    let (program, folder) = (Folder::new(), planted.theirs.file("jobs"));
    let daemon = Daemon::spawn(as_nobody(&program, &["-p", "0", "-b", text(&folder)]));
    assert!(daemon.log().contains("cannot sync the folder above jobs"), "{}", daemon.log());
}
