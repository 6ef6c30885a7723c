//! Tests Unix sockets: the server replaces stale socket files but not live ones, and removes its own file at exit.

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use beanpole::Client;
use nix::fcntl::{Flock, FlockArg};
use socket2::{Domain, SockAddr, Socket, Type};

use super::daemon::{run, Daemon, Folder, Signal, PATIENCE};
use super::user::run_as_nobody;
use super::{is_root, is_socket, NO_ADDRESS};

fn option(path: &Path) -> String {
    format!("unix:{}", path.display())
}

fn start(path: &Path) -> Daemon {
    Daemon::start(&["-l", &option(path)])
}

fn serves(path: &Path) {
    let mut client = Client::connect_unix(path).expect("a connection");
    client.put(b"x", 0, 0, 60).expect("a job");
}

/// Creates a socket file that has no listener. The test cannot close a real listener, because a child process of
/// another test may have inherited the listener.
fn leave_behind(path: &Path) {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    socket.bind(&SockAddr::unix(path).expect("a path")).expect("a free path");
}

#[test]
fn a_unix_socket_ignores_the_port_option() {
    let folder = Folder::new();
    let daemon = Daemon::start(&["-l", &option(&folder.file("s")), "-p", "1"]);
    assert_eq!(daemon.names(), [option(&folder.file("s"))]);
    serves(&folder.file("s"));
}

/// A lock on the socket's directory must not prevent the start. The script that starts the server may hold this lock.
#[test]
fn a_lock_on_the_socket_s_directory_is_ignored() {
    let folder = Folder::new();
    let path = folder.file("s");
    let locked = fs::File::open(path.parent().expect("a directory")).expect("a directory");
    let _lock = Flock::lock(locked, FlockArg::LockExclusive).map_err(|(_, error)| error).expect("a lock");
    let daemon = start(&path);
    assert!(daemon.log().contains("locked by somebody else"), "{}", daemon.log());
    serves(&path);
}

#[test]
fn a_socket_file_of_a_dead_server_is_replaced() {
    let folder = Folder::new();
    let path = folder.file("s");
    leave_behind(&path);
    assert!(is_socket(&path));
    let daemon = start(&path);
    assert!(daemon.log().contains(&format!("removing the socket file {}", path.display())), "{}", daemon.log());
    serves(&path);
    // The socket file of a killed server must not prevent the next start.
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    assert!(is_socket(&path));
    let daemon = start(&path);
    serves(daemon.path());
}

#[test]
fn a_living_server_keeps_its_socket() {
    let folder = Folder::new();
    let path = folder.file("s");
    let first = start(&path);
    for _ in 0..2 {
        let ended = run(&["-l", &option(&path)]);
        ended.failed(NO_ADDRESS, &[" ERROR ", &option(&path), "another server", "-l ADDR"]);
        assert!(!ended.err.contains("-p PORT"), "the advice must not mention a port: {ended:?}");
        serves(&path);
    }
    assert_eq!(first.client().figure("stats", "total-jobs").unwrap(), "2");
}

/// A paused or overloaded server still owns its socket. A second server must not wait until its connection is accepted.
#[test]
fn a_busy_server_keeps_its_socket() {
    let folder = Folder::new();
    let path = folder.file("s");
    let busy = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    busy.bind(&SockAddr::unix(&path).expect("a path")).expect("a free path");
    busy.listen(0).expect("a listener");
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        socket.connect(&SockAddr::unix(&path).expect("a path")).map(|()| socket)
    };
    let mut waiting = Vec::new();
    while let Ok(socket) = connect() {
        waiting.push(socket);
    }
    run(&["-l", &option(&path)]).failed(NO_ADDRESS, &["another server"]);
    assert!(is_socket(&path));
}

/// Without the permission to connect, the server cannot know whether the socket is in use, and must not replace it.
#[test]
fn a_living_server_of_another_user_keeps_its_socket() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    fs::set_permissions(folder.file(""), fs::Permissions::from_mode(0o777)).expect("a directory");
    let path = folder.file("s");
    let first = Daemon::start(&["-l", &option(&path), "--socket-mode", "600"]);
    let ended = run_as_nobody(&["-l", &option(&path)]);
    ended.failed(NO_ADDRESS, &[" ERROR ", &option(&path)]);
    serves(first.path());
}

/// A socket of another type belongs to another program: `-l unix:/dev/log` must not replace the socket of syslog.
#[test]
fn a_socket_of_another_kind_is_left_alone() {
    let folder = Folder::new();
    let path = folder.file("s");
    let log = UnixDatagram::bind(&path).expect("a socket");
    log.set_read_timeout(Some(PATIENCE)).expect("a socket");
    run(&["-l", &option(&path)]).failed(NO_ADDRESS, &[" ERROR ", &option(&path)]);
    UnixDatagram::unbound().expect("a socket").send_to(b"x", &path).expect("an existing socket");
    assert_eq!(log.recv(&mut [0; 8]).expect("a message"), 1);
}

#[test]
fn other_files_are_not_replaced() {
    let folder = Folder::new();
    let path = folder.file("s");
    fs::write(&path, "precious").expect("a file");
    run(&["-l", &option(&path)]).failed(NO_ADDRESS, &[" ERROR ", &option(&path), "no socket"]);
    assert_eq!(fs::read(&path).expect("the file"), b"precious");
    let (link, target) = (folder.file("link"), folder.file("target"));
    symlink(&target, &link).expect("a link");
    run(&["-l", &option(&link)]).failed(NO_ADDRESS, &[" ERROR ", &option(&link), "no socket"]);
    assert!(link.is_symlink() && !target.exists());
    fs::create_dir(folder.file("folder")).expect("a directory");
    run(&["-l", &option(&folder.file("folder"))]).failed(NO_ADDRESS, &[" ERROR ", "no socket"]);
    run(&["-l", &option(&folder.file("none/s"))]).failed(NO_ADDRESS, &[" ERROR ", "none/s"]);
}

#[test]
fn a_path_that_is_too_long_exits_with_111() {
    let folder = Folder::new();
    let path = folder.file(&"x".repeat(108));
    let ended = run(&["-l", &option(&path)]);
    ended.failed(NO_ADDRESS, &[" ERROR ", "path"]);
    assert!(!path.exists());
}

/// The message must not mention ports, which are unrelated to the permissions of a directory.
#[test]
fn an_unwritable_path_exits_with_111() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let ended = run_as_nobody(&["-l", &option(&folder.file("s"))]);
    ended.failed(NO_ADDRESS, &[" ERROR ", "denied"]);
    assert!(!ended.err.contains("1024"), "{}", ended.err);
}

#[test]
fn the_socket_file_is_removed_with_the_server() {
    for signal in super::stopping::ends() {
        let daemon = Daemon::start_unix(&[]);
        let mut client = daemon.client();
        client.put(b"x", 0, 0, 60).unwrap();
        assert!(is_socket(daemon.path()));
        daemon.signal(signal);
        assert_eq!(daemon.wait(PATIENCE), 0);
        assert!(!daemon.path().exists(), "after {signal}");
        assert!(!daemon.log().contains("stays behind"), "{}", daemon.log());
    }
}

/// The first server must not remove a socket file that another server has created in its place.
#[test]
fn a_successor_s_socket_file_is_not_removed() {
    let folder = Folder::new();
    let path = folder.file("s");
    let first = start(&path);
    fs::remove_file(&path).expect("the socket file");
    let second = start(&path);
    first.signal(Signal::SIGTERM);
    assert_eq!(first.wait(PATIENCE), 0);
    assert!(is_socket(&path), "the second server's socket file was removed; log of the first:\n{}", first.log());
    serves(second.path());
}

#[test]
fn the_option_sets_the_mode_of_the_socket_file() {
    let folder = Folder::new();
    let mode = |arguments: &[&str]| {
        let path = folder.file("s");
        let daemon = Daemon::start(&[&["-l", &option(&path)], arguments].concat());
        let mode = fs::metadata(&path).expect("a socket file").permissions().mode() & 0o7777;
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait(PATIENCE), 0);
        mode
    };
    assert_eq!(mode(&[]), 0o666);
    assert_eq!(mode(&["--socket-mode", "600"]), 0o600);
    assert_eq!(mode(&["--socket-mode=0660"]), 0o660);
}

/// The umask of the parent process must not affect the file mode.
#[test]
fn the_umask_does_not_affect_the_socket_file() {
    let folder = Folder::new();
    let path = folder.file("s");
    let daemon = Daemon::spawn(super::daemon::shell("umask 077; exec \"$0\" \"$@\"", &["-l", &option(&path)]));
    assert_eq!(fs::metadata(daemon.path()).expect("a socket file").permissions().mode() & 0o777, 0o666);
}
