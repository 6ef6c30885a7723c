//! Tests features for parent processes: the port file, the ready line, and the option `--exit-with-parent`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;

use beanpole::Client;

use super::daemon::{command, run, run_command, shell, wait_until, Daemon, Folder, Signal, PATIENCE};
use super::NO_ADDRESS;

#[test]
fn the_port_file_exists_while_the_server_listens() {
    let folder = Folder::new();
    let path = folder.file("port");
    let daemon = Daemon::start(&["-p", "0", "--port-file", path.to_str().unwrap()]);
    let port = fs::read_to_string(&path).unwrap();
    assert_eq!(port, format!("{}\n", daemon.address().port()));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
    assert_eq!(fs::read_dir(folder.file("")).unwrap().count(), 0);
}

/// A server must not remove the port file if another server has replaced it.
#[test]
fn another_server_s_port_file_is_not_removed() {
    let folder = Folder::new();
    let path = folder.file("port");
    let daemon = Daemon::start(&["-p", "0", "--port-file", path.to_str().unwrap()]);
    fs::rename(&path, folder.file("old")).unwrap();
    fs::write(&path, "another").unwrap();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "another");
}

/// The server recognizes its own port file by the inode, so a later port file must not get the same inode.
#[test]
fn a_port_file_is_not_confused_with_a_later_file() {
    let folder = Folder::new();
    let path = folder.file("port");
    let daemon = Daemon::start(&["-p", "0", "--port-file", path.to_str().unwrap()]);
    let inode = || fs::metadata(&path).unwrap().ino();
    let first = inode();
    for _ in 0..20 {
        fs::write(folder.file("new"), "another").unwrap();
        fs::rename(folder.file("new"), &path).unwrap();
        assert_ne!(inode(), first);
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "another");
}

#[test]
fn a_port_file_that_cannot_be_written_is_reported() {
    let folder = Folder::new();
    let unix = format!("unix:{}", folder.file("s").display());
    let path = folder.file("port");
    run(&["-l", &unix, "--port-file", path.to_str().unwrap()]).failed(1, &["--port-file", "no TCP port"]);
    run(&["-p0", "--port-file", "/no/such/folder/port"]).failed(1, &["--port-file", "/no/such/folder/port"]);
    let pipe = folder.file("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    run(&["-p0", "--port-file", pipe.to_str().unwrap()]).failed(1, &["--port-file", "not regular is in the way"]);
    let link = folder.file("link");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    run(&["-p0", "--port-file", link.to_str().unwrap()]).failed(1, &["--port-file", "not regular is in the way"]);
    assert!(pipe.exists() && link.exists());
    let (_listener, address) = super::taken();
    let ended = run(&["-l", &address.to_string(), "--port-file", path.to_str().unwrap()]);
    ended.failed(NO_ADDRESS, &[&address.to_string()]);
    assert!(!path.exists());
}

/// Once the server accepts connections, it writes the ready line, closes the stream, and continues to run.
#[test]
fn the_ready_line_contains_the_addresses() {
    let folder = Folder::new();
    let (line, unix) = (folder.file("line"), format!("unix:{}", folder.file("s").display()));
    let script = format!("mkfifo {0}; cat {0} >{0}.read & exec \"$0\" \"$@\" 7>{0}", line.display());
    let daemon = Daemon::spawn(shell(&script, &["-p0", "-l", "127.0.0.1", "-l", &unix, "--ready-fd", "7"]));
    let read = line.with_extension("read");
    wait_until("the line is read", || fs::read_to_string(&read).is_ok_and(|text| text.ends_with('\n')));
    assert_eq!(fs::read_to_string(&read).unwrap(), format!("{} {unix}\n", daemon.address()));
    // The server writes the line before it closes the descriptor, so the test can have read the line before the close.
    let fd = format!("/proc/{}/fd/7", daemon.pid());
    wait_until("the descriptor is closed", || !fs::exists(&fd).unwrap() || is_other(&daemon, &line));
    daemon.client().put(b"x", 0, 0, 60).unwrap();
}

/// `true` if the server now uses the descriptor number for another file.
fn is_other(daemon: &Daemon, path: &std::path::Path) -> bool {
    fs::read_link(format!("/proc/{}/fd/7", daemon.pid())).is_ok_and(|target| target != path)
}

/// In many languages, a program can easily read only the standard output of its child process.
#[test]
fn the_ready_line_can_be_sent_to_stdout() {
    let folder = Folder::new();
    let path = folder.file("out");
    let mut command = command(&["-p0", "--ready-fd=1"]);
    command.stdout(fs::File::create(&path).unwrap());
    let daemon = Daemon::spawn(command);
    wait_until("the line is written", || fs::read_to_string(&path).unwrap().ends_with('\n'));
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", daemon.address()));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
}

#[test]
fn an_invalid_ready_descriptor_exits_with_5() {
    run(&["-p0", "--ready-fd", "77"]).failed(5, &["--ready-fd"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = shell("exec \"$0\" \"$@\" 5<&0", &["-p0", "--ready-fd", "5"]);
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)));
    run_command(command).failed(5, &["--ready-fd", "socket"]);
}

#[test]
fn the_server_stops_when_its_parent_has_ended() {
    for signal in ["TERM", "KILL"] {
        let folder = Folder::new();
        let path = folder.file("port");
        // The server is a grandchild of the test.
        let script = "\"$0\" \"$@\" & while :; do sleep 0.1; done";
        let arguments = ["-p0", "--exit-with-parent", "--port-file", path.to_str().unwrap()];
        let mut parent = shell(script, &arguments).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the server listens", || path.exists());
        let port = fs::read_to_string(&path).unwrap().trim().parse::<u16>().unwrap();
        Client::connect(("127.0.0.1", port)).unwrap().put(b"x", 0, 0, 60).unwrap();
        let killed = std::process::Command::new("kill").args(["-s", signal, &parent.id().to_string()]).status();
        assert!(killed.unwrap().success());
        parent.wait().unwrap();
        wait_until("the server has stopped", || !path.exists());
    }
}

/// When the server starts, its parent is the process that adopted the server, for example init.
#[test]
fn the_server_stops_if_its_parent_has_ended_before_it_starts() {
    let folder = Folder::new();
    let path = folder.file("log");
    // The shell starts a child in a new session. After the shell has exited, the child becomes the server.
    let script =
        "setsid sh -c 'shell=$$; { while kill -0 $shell; do sleep 0.01; done; exec \"$0\" \"$@\"; } &' \"$0\" \"$@\"";
    let arguments = ["-p0", "--exit-with-parent", "-VV"];
    let mut command = shell(script, &arguments);
    let log = fs::File::create(&path).unwrap();
    assert!(command.stderr(Stdio::from(log)).status().unwrap().success());
    let has_logged = |words: &str| fs::read_to_string(&path).unwrap().contains(words);
    wait_until("the server has noticed that its parent has exited", || {
        has_logged("the process that started this one has ended")
    });
    wait_until("the server has stopped", || has_logged("stopp"));
}

#[test]
fn the_server_runs_while_its_parent_lives() {
    let daemon = Daemon::start(&["--exit-with-parent"]);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(daemon.runs());
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
}
