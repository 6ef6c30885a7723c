//! Tests TCP listeners: default addresses, unusable addresses, and the error messages.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use beanpole::Client;

use super::daemon::{run, shell, wait_until, Daemon, Folder, Signal, PATIENCE};
use super::{is_root, own_host, taken, NO_ADDRESS};

/// `true` if `host`, in the kernel's hexadecimal notation, is the unspecified address.
fn is_any(host: &str) -> bool {
    host.bytes().all(|digit| digit == b'0')
}

/// Returns the address, in the kernel's notation, and the port of each TCP listener.
fn listening() -> Vec<(String, u16)> {
    let mut found = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        // State 0A is LISTEN. Thousands of lines can have other states, so only lines in this state are parsed.
        for line in text.lines().filter(|line| line.contains(" 0A ")) {
            let (host, port) = line.split_whitespace().nth(1).and_then(|it| it.split_once(':')).expect("an address");
            found.push((host.to_owned(), u16::from_str_radix(port, 16).expect("a port")));
        }
    }
    found
}

#[test]
fn the_default_address_is_localhost() {
    let daemon = Daemon::start(&["-p", "0"]);
    let address = daemon.address();
    assert_eq!(daemon.names(), [format!("127.0.0.1:{}", address.port())]);
    assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
    assert_ne!(address.port(), 0);
    let localhost = format!("{:08X}", u32::from(Ipv4Addr::LOCALHOST).to_be());
    // A parallel test can use the same port on another address.
    let listening = listening();
    assert!(listening.contains(&(localhost, address.port())), "{listening:?}");
    assert!(!listening.iter().any(|(host, port)| *port == address.port() && is_any(host)), "{listening:?}");
}

#[test]
fn the_default_port_is_11300() {
    let host = own_host();
    if listening().iter().any(|(host, port)| *port == 11_300 && is_any(host)) {
        println!("skipped: another process listens on port 11300 of all addresses");
        return;
    }
    let daemon = Daemon::start(&["-l", &host]);
    assert_eq!(daemon.names(), [format!("{host}:11300")]);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
}

#[test]
fn a_port_and_an_address_can_be_combined() {
    let host = own_host();
    let daemon = Daemon::start(&["-p", "11301", "-l", &host, "-l", &format!("{host}:11302")]);
    assert_eq!(daemon.names(), [format!("{host}:11301"), format!("{host}:11302")]);
    let urls = Daemon::start(&["-l", "beanstalk://127.0.0.1:0", "-l", "tcp://127.0.0.1:0/"]);
    assert_eq!(urls.names().len(), 2);
    urls.client().put(b"x", 0, 0, 60).unwrap();
}

#[test]
fn several_addresses_are_one_queue() {
    let folder = Folder::new();
    let unix = format!("unix:{}", folder.file("socket").display());
    let mut arguments = vec!["-l", "127.0.0.1:0", "-l", &unix, "-l", "localhost:0"];
    match TcpListener::bind("[::1]:0") {
        Ok(_) => arguments.extend(["-l", "[::1]:0"]),
        Err(error) => println!("without IPv6: {error}"),
    }
    let daemon = Daemon::start(&arguments);
    assert_eq!(daemon.names().len(), arguments.len() / 2);
    let connect = |name: &String| match name.strip_prefix("unix:") {
        Some(path) => Client::connect_unix(path).expect("a connection"),
        None => Client::connect(name.parse::<SocketAddr>().expect("an address")).expect("a connection"),
    };
    let mut clients: Vec<Client> = daemon.names().iter().map(connect).collect();
    for (number, putter) in clients.iter_mut().enumerate() {
        assert_eq!(putter.put(b"x", 0, 0, 60).unwrap(), number as u64 + 1);
    }
    let count = clients.len();
    for (number, client) in clients.iter_mut().rev().enumerate() {
        assert_eq!(client.reserve(Some(0)).unwrap().expect("a job").id, number as u64 + 1);
        assert_eq!(client.figure("stats", "current-connections").unwrap(), count.to_string());
    }
}

#[test]
fn wildcard_addresses_of_both_families_can_be_combined() {
    if TcpListener::bind("[::]:0").is_err() {
        println!("skipped: no IPv6");
        return;
    }
    // This port is below the ephemeral range, from which the kernel chooses ports for other tests.
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let taken: Vec<u16> = listening().into_iter().map(|(_, port)| port).collect();
    let port = (first..first + 1000).find(|port| !taken.contains(port)).expect("a free port");
    let daemon = Daemon::start(&["-p", &port.to_string(), "-l", "0.0.0.0", "-l", "::"]);
    assert_eq!(daemon.names(), [format!("0.0.0.0:{port}"), format!("[::]:{port}")]);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(TcpStream::connect(("::1", port)).is_ok());
}

#[test]
fn a_port_in_use_exits_with_111_and_advice() {
    let (_listener, address) = taken();
    let ended = run(&["-p", &address.port().to_string()]);
    ended.failed(NO_ADDRESS, &[" ERROR ", &address.to_string(), "in use", "-p PORT", "-l ADDR"]);
    let daemon = Daemon::start(&[]);
    let ended = run(&["-l", &daemon.address().to_string()]);
    ended.failed(NO_ADDRESS, &[" ERROR ", &daemon.address().to_string(), "in use", "-p PORT"]);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
}

#[test]
fn one_unusable_address_prevents_the_start() {
    let folder = Folder::new();
    let (_listener, address) = taken();
    let unix = format!("unix:{}", folder.file("socket").display());
    let ended = run(&["-l", &unix, "-l", "127.0.0.1:0", "-l", &address.to_string()]);
    ended.failed(NO_ADDRESS, &[&address.to_string()]);
    assert!(!folder.file("socket").exists(), "a socket file was left behind");
}

#[test]
fn a_privileged_port_exits_with_111_and_advice() {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    if !is_root() || first.trim() == "0" {
        return;
    }
    let ended = super::user::run_as_nobody(&["-l", &own_host(), "-p", "80"]);
    ended.failed(NO_ADDRESS, &[" ERROR ", ":80", "below 1024", "-u USER"]);
}

/// Old connections in the state TIME_WAIT must not prevent a restart on the same address.
#[test]
fn a_restart_can_reuse_the_address() {
    let host = own_host();
    for _ in 0..3 {
        let daemon = Daemon::start(&["-l", &host, "-p", "11303"]);
        let mut client = daemon.client();
        client.put(b"x", 0, 0, 60).unwrap();
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait(PATIENCE), 0);
        // The server closes first, so the server's side of the connection remains in TIME_WAIT.
        drop(client);
    }
}

/// More clients connect than the server has descriptors for. After these clients have disconnected, the server must
/// serve new clients.
#[test]
fn a_server_without_descriptors_recovers_after_disconnections() {
    for files in ["16", "20"] {
        let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        let daemon = Daemon::spawn(shell(&script, &["-p", "0"]));
        for _ in 0..3 {
            let crowd: Vec<_> = (0..40).map(|_| daemon.tcp()).collect();
            drop(crowd);
            // Until the server has closed the connections of the crowd, it refuses or closes new connections.
            wait_until("a client is served", || {
                Client::connect(daemon.address()).is_ok_and(|mut client| client.put(b"x", 0, 0, 60).is_ok())
            });
        }
    }
}
