//! Tests socket activation, readiness notifications and the unit files. In place of systemd, a shell starts the server.
//! The shell gets the sockets as its standard streams, and moves them to the descriptors that systemd uses.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use beanpole::Client;
use nix::sys::signal::{signal, SigHandler};

use super::daemon::{command, run, run_command, shell, Daemon, Folder, Signal, PATIENCE};
use super::{is_socket, NO_ADDRESS};

/// A script that receives a socket on stdin, and passes this socket to the program in the same way as systemd.
const ONE: &str = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\"";

/// Like [`ONE`], for two sockets: one on stdin and one on stdout.
const TWO: &str = "exec 3<&0 4>&1 </dev/null >/dev/null; export LISTEN_PID=$$ LISTEN_FDS=2; exec \"$0\" \"$@\"";

const UNITS: [&str; 3] = ["beanpole", "beanstalkd", "gearman-job-server"];

fn inherits(script: &str, arguments: &[&str], socket: impl Into<OwnedFd>) -> Command {
    let mut command = shell(script, arguments);
    command.stdin(Stdio::from(socket.into()));
    command
}

fn stops(daemon: &Daemon) {
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
}

#[test]
fn an_inherited_tcp_socket_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // systemd passes non-blocking sockets.
    listener.set_nonblocking(true).unwrap();
    let mut early = Client::connect(address).unwrap();
    let daemon = Daemon::spawn(inherits(ONE, &[], listener));
    assert_eq!(daemon.names(), [address.to_string()]);
    early.put(b"x", 0, 0, 60).unwrap();
    daemon.client().delete(1).unwrap();
    assert!(!daemon.log().contains("ignoring"), "{}", daemon.log());
    stops(&daemon);
}

#[test]
fn an_inherited_unix_socket_is_served_and_its_file_stays() {
    let folder = Folder::new();
    let path = folder.file("s");
    let listener = UnixListener::bind(&path).unwrap();
    let daemon = Daemon::spawn(inherits(ONE, &[], listener));
    assert_eq!(daemon.names(), [format!("unix:{}", path.display())]);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
    stops(&daemon);
    assert!(is_socket(&path), "the server must not remove systemd's socket file");
}

#[test]
fn two_inherited_sockets_are_one_queue() {
    let folder = Folder::new();
    let unix = UnixListener::bind(folder.file("s")).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let mut command = inherits(TWO, &[], unix);
    command.stdout(Stdio::from(OwnedFd::from(tcp)));
    let daemon = Daemon::spawn(command);
    assert_eq!(daemon.names(), [format!("unix:{}", folder.file("s").display()), address.to_string()]);
    Client::connect(address).unwrap().put(b"x", 0, 0, 60).unwrap();
    assert_eq!(daemon.client().reserve(Some(0)).unwrap().expect("a job").id, 1);
    stops(&daemon);
}

/// The server must not call shutdown(2) on inherited sockets, because systemd keeps them open for the next server.
#[test]
fn inherited_sockets_keep_listening_after_the_server_stops() {
    let folder = Folder::new();
    let path = folder.file("s");
    let (tcp, unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
    let address = tcp.local_addr().unwrap();
    let mut early = [Client::connect(address).unwrap(), Client::connect_unix(&path).unwrap()];
    for _ in 0..3 {
        let mut command = inherits(TWO, &[], tcp.try_clone().unwrap());
        command.stdout(Stdio::from(OwnedFd::from(unix.try_clone().unwrap())));
        let daemon = Daemon::spawn(command);
        early[0].put(b"x", 0, 0, 60).unwrap();
        early[1].delete(1).unwrap();
        stops(&daemon);
        // The clients connect while no server runs. The next server must serve them.
        early = [
            Client::connect(address).expect("a TCP socket that still listens"),
            Client::connect_unix(&path).expect("a Unix socket that still listens"),
        ];
    }
}

/// During a handover, two servers share the socket. Each must stop on request, regardless of which of them accepts
/// clients.
#[test]
fn servers_that_share_a_socket_stop_separately() {
    let folder = Folder::new();
    let path = folder.file("s");
    let (tcp, unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
    let start = || {
        let mut command = inherits(TWO, &[], tcp.try_clone().unwrap());
        command.stdout(Stdio::from(OwnedFd::from(unix.try_clone().unwrap())));
        Daemon::spawn(command)
    };
    let mut old = start();
    for _ in 0..4 {
        let new = start();
        stops(&old);
        new.client().put(b"x", 0, 0, 60).unwrap();
        Client::connect_unix(&path).unwrap().put(b"x", 0, 0, 60).unwrap();
        old = new;
    }
    stops(&old);
}

#[test]
fn inherited_sockets_replace_addresses_with_a_warning() {
    let folder = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let unix = format!("unix:{}", folder.file("s").display());
    let arguments = ["-l", "127.0.0.1", "-p", "1", "-l", &unix, "-z", "7"];
    let daemon = Daemon::spawn(inherits(ONE, &arguments, listener));
    assert_eq!(daemon.names(), [address.to_string()]);
    let log = daemon.log();
    for option in ["-l 127.0.0.1", "-p 1", &format!("-l {unix}")] {
        let has_warned =
            log.lines().any(|line| line.contains(" WARN ") && line.ends_with(&format!("ignoring {option}")));
        assert!(has_warned, "no warning about {option}:\n{log}");
    }
    assert_eq!(log.matches(" WARN ").count(), 3, "{log}");
    assert!(!folder.file("s").exists());
    assert_eq!(daemon.client().figure("stats", "max-job-size").unwrap(), "7");
}

/// If the server inherited LISTEN_PID, the variable can contain the ID of another process, for example the parent.
#[test]
fn sockets_for_another_process_are_ignored() {
    for pid in ["1", "$PPID", "", "x", "-1"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = format!("exec 3<&0; export LISTEN_PID={pid} LISTEN_FDS=1; exec \"$0\" \"$@\"");
        let daemon = Daemon::spawn(inherits(&script, &["-p", "0"], listener));
        assert_ne!(daemon.names(), [address.to_string()], "LISTEN_PID={pid}");
        daemon.client().put(b"x", 0, 0, 60).unwrap();
    }
    let daemon = Daemon::start_with(&[("LISTEN_FDS", "1")], &[]);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
}

#[test]
fn inherited_descriptors_that_are_not_listeners_exit_with_111() {
    let listening = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (listener, mut connected) = (listening(), Vec::<OwnedFd>::new());
    connected.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap().into());
    connected.push(UnixDatagram::unbound().unwrap().into());
    connected.push(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into());
    connected.push(std::fs::File::open("/dev/null").unwrap().into());
    for socket in connected {
        let ended = run_command(inherits(ONE, &["-p", "0"], socket));
        ended.failed(NO_ADDRESS, &[" ERROR ", "inherited", "3"]);
    }
}

#[test]
fn invalid_socket_counts_exit_with_111() {
    for count in ["0", "", "x", "-1", "1", "2147483647", "4294967295", "4294967296"] {
        // The descriptors that LISTEN_FDS announces are closed.
        let script = format!("exec 3<&- 4<&-; export LISTEN_PID=$$ LISTEN_FDS={count}; exec \"$0\" \"$@\"");
        let ended = run_command(shell(&script, &["-p", "0", "-l", "127.0.0.1"]));
        assert_eq!(ended.code, NO_ADDRESS, "LISTEN_FDS={count}: {ended:?}");
        assert!(ended.err.contains("inherited"), "LISTEN_FDS={count}: {ended:?}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ended = run_command(inherits(&ONE.replace("LISTEN_FDS=1", "LISTEN_FDS=2"), &[], listener));
    ended.failed(NO_ADDRESS, &["inherited", "4"]);
}

fn notification(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer).expect("a notification");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

fn tells(name: &str, socket: &UnixDatagram) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let daemon = Daemon::start_with(&[("NOTIFY_SOCKET", name)], &[]);
    assert_eq!(notification(socket), "READY=1");
    daemon.client().put(b"x", 0, 0, 60).unwrap();
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_log("draining");
    stops(&daemon);
    assert_eq!(notification(socket), "STOPPING=1");
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 8]).is_err(), "unexpected notification");
}

/// `systemctl reload` sends SIGHUP even to a service that has no certificates or configuration files to reload.
#[test]
fn sighup_is_ignored_without_files_to_reload() {
    let folder = Folder::new();
    let path = folder.file("notify");
    let _manager = UnixDatagram::bind(&path).unwrap();
    let mut command = command(&["-p", "0"]);
    command.env("NOTIFY_SOCKET", &path);
    // Under nohup, the tests ignore SIGHUP. The program would inherit this setting, so the test restores the default
    // action. SAFETY: the call is async-signal-safe and therefore allowed between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| signal(Signal::SIGHUP, SigHandler::SigDfl).map(drop).map_err(Into::into));
    }
    let daemon = Daemon::spawn(command);
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("SIGHUP ignored");
    daemon.client().put(b"x", 0, 0, 60).unwrap();
    stops(&daemon);
}

/// 192.0.2.1 is reserved for documentation and not assigned to any interface. Each unit file must tell systemd to
/// restart the service any number of times after exit status 75, because an administrator may assign the address later.
#[test]
fn an_unassigned_address_has_a_separate_exit_status() {
    run(&["-l", "192.0.2.1", "-p", "0"]).failed(75, &["192.0.2.1", "no interface"]);
    for name in UNITS {
        let unit = std::fs::read_to_string(format!("pkg/systemd/{name}.service")).expect("the unit file");
        let setting = |key| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        assert!(setting("RestartPreventExitStatus=").split(' ').all(|status| status != "75"), "{unit}");
        assert_eq!([setting("Restart="), setting("RestartSec=")], ["on-failure", "1"], "{unit}");
        assert_eq!(setting("StartLimitIntervalSec="), "0", "{unit}");
        // With `Type=notify`, the failing process is the main process, whose exit status can prevent a restart.
        assert_eq!(setting("Type="), "notify", "{unit}");
    }
}

/// A name server might not be reachable yet, so a later start can succeed. The reason is the lookup and not a missing
/// interface. No DNS query can contain this name, because one of its labels has more than 63 bytes.
#[test]
fn an_unresolvable_name_has_the_same_exit_status_and_another_reason() {
    let name = format!("{}.invalid", "x".repeat(64));
    let http = format!("--http={name}:0");
    let gearman = format!("--gearman={name}:0");
    for options in [&["-l", &name][..], &["-l", "127.0.0.1:0", &http], &["-l", "127.0.0.1:0", &gearman]] {
        let ended = run(options);
        ended.failed(75, &["cannot listen on", &name, "lookup"]);
        assert!(!ended.err.contains("interface"), "{ended:?}");
    }
}

#[test]
fn readiness_is_reported_to_a_socket_with_a_path() {
    let folder = Folder::new();
    let path = folder.file("notify");
    tells(path.to_str().expect("a UTF-8 path"), &UnixDatagram::bind(&path).unwrap());
}

#[test]
fn readiness_is_reported_to_a_socket_with_an_abstract_name() {
    let name = format!("beanpole-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    tells(&format!("@{name}"), &UnixDatagram::bind_addr(&address).unwrap());
}

#[test]
fn a_missing_notify_socket_is_ignored() {
    let folder = Folder::new();
    for name in [folder.file("nobody").to_str().expect("a UTF-8 path"), "", "@"] {
        let daemon = Daemon::start_with(&[("NOTIFY_SOCKET", name)], &[]);
        daemon.client().put(b"x", 0, 0, 60).unwrap();
        stops(&daemon);
    }
}

/// A service manager that does not read notifications must delay startup and shutdown only briefly.
#[test]
fn readiness_is_not_reported_again_after_a_failure() {
    let folder = Folder::new();
    let path = folder.file("notify");
    let _deaf = UnixDatagram::bind(&path).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"x", &path).is_ok() {}
    let daemon = Daemon::start_with(&[("NOTIFY_SOCKET", path.to_str().expect("a UTF-8 path"))], &[]);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
    daemon.wait_log("was not told READY=1");
    stops(&daemon);
}

#[test]
fn a_server_that_failed_does_not_report_readiness() {
    let folder = Folder::new();
    let path = folder.file("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let (_listener, address) = super::taken();
    let mut command = super::daemon::command(&["-l", &address.to_string()]);
    command.env("NOTIFY_SOCKET", &path);
    run_command(command).failed(NO_ADDRESS, &[&address.to_string()]);
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 8]).is_err(), "unexpected notification");
}

/// Most of the exposure that systemd-analyze(1) still reports is network access, which a server needs.
#[test]
fn the_units_drop_unneeded_privileges() {
    UNITS.into_iter().for_each(judge_unit);
}

fn judge_unit(name: &str) {
    let name = format!("{name}.service");
    let unit = std::fs::read_to_string(format!("pkg/systemd/{name}")).expect("the unit file");
    // `--access` must look up users, and `--max-memory` must read the available memory.
    let stands = |text: &str| unit.lines().any(|line| line.starts_with(text));
    assert!(!stands("PrivateUsers=") && !stands("ProcSubset="), "{unit}");
    let folder = Folder::new();
    let file = folder.file(&name);
    std::fs::write(&file, unit.replace("@BINDIR@", "/usr/bin")).expect("a file");
    let judge = |threshold: &str| {
        let mut command = Command::new("systemd-analyze");
        let output = command.args(["security", "--offline=true", threshold]).arg(&file).output().ok()?;
        // systemd versions before 250 do not support this command, and print no line with this text.
        let judged = String::from_utf8_lossy(&output.stdout).contains("Overall exposure level");
        judged.then(|| output.status.success())
    };
    if let Some(good) = judge("--threshold=12") {
        assert!(good, "{name} exceeds the permitted exposure");
        assert_eq!(judge("--threshold=1"), Some(false), "the check must fail with a lower threshold");
    }
}
