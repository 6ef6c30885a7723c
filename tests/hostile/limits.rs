//! Tests the limits on connections, descriptors, tubes and watched tubes. At a limit, the server must refuse only the
//! command or connection that would exceed the limit.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::daemon::{shell, wait_until, Daemon, Folder, PATIENCE};
use crate::wire::{at_rest, calm, serves, Wire};

/// The text that the server logs when it refuses connections because of `--max-connections`.
const TURNED_AWAY: &str = "too many connections";

/// The text that the server logs when it has no descriptor for a new connection.
const NO_FILES: &str = "too many open files";

/// The number of connections reserved for local clients. All clients in these tests are local.
const KEPT: usize = 8;

fn lines_with(daemon: &Daemon, text: &str) -> usize {
    daemon.log().lines().filter(|line| line.contains(text)).count()
}

/// Connects repeatedly until the server admits the client.
fn let_in(daemon: &Daemon) -> Wire {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut client = Wire::to(daemon);
        client.send("list-tube-used\r\n");
        match client.line().as_str() {
            "USING default" => return client,
            "OUT_OF_MEMORY" => assert!(Instant::now() < end, "the server admits no more clients"),
            other => panic!("{other}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_connection_too_many() {
    let daemon = Daemon::start(&["--max-connections", "10"]);
    let mut clients: Vec<Wire> = (0..10 + KEPT).map(|_| let_in(&daemon)).collect();
    for number in 0..20 {
        let mut refused = Wire::to(&daemon);
        if number % 2 == 1 {
            // Real clients usually send a command before they read.
            refused.send("list-tube-used\r\n");
        }
        refused.expect("OUT_OF_MEMORY");
        refused.expect_end();
        serves(&mut clients[number % 10]);
    }
    assert_eq!(lines_with(&daemon, TURNED_AWAY), 1, "{}", daemon.log());
    at_rest(&daemon);
    for _ in 0..3 {
        clients.remove(0);
        clients.push(let_in(&daemon));
        let mut refused = Wire::to(&daemon);
        refused.expect("OUT_OF_MEMORY");
        refused.expect_end();
    }
    drop(clients.split_off(5));
    drop(let_in(&daemon));
    calm(&daemon);
}

/// Refusing many clients at the same time must not reduce the number of available connections.
// Tests promise P23 of beanpole-promises(7).
#[test]
fn many_refused_clients_at_a_full_server() {
    let daemon = Daemon::start(&["--max-connections", "10"]);
    let clients: Vec<Wire> = (0..10 + KEPT).map(|_| let_in(&daemon)).collect();
    for _ in 0..10 {
        let mut crowd: Vec<Wire> = (0..50).map(|_| Wire::to(&daemon)).collect();
        for refused in &mut crowd {
            refused.expect("OUT_OF_MEMORY");
        }
    }
    drop(clients);
    let clients: Vec<Wire> = (0..10 + KEPT).map(|_| let_in(&daemon)).collect();
    drop(clients);
    wait_until("the server admits clients again", || let_in(&daemon).stream().peer_addr().is_ok());
    calm(&daemon);
}

/// Starts a server, then lowers its descriptor limit. Returns `None` if the limit cannot be changed.
fn few_files() -> Option<Daemon> {
    let daemon = Daemon::start(&["-t", "1", "--max-connections", "100"]);
    let limited = daemon.limit("--nofile=32");
    if !limited {
        println!("skipped: no prlimit");
    }
    limited.then_some(daemon)
}

/// Reads the reply to a command. Returns `true` if the server admitted the client.
fn is_let_in(client: &mut Wire) -> bool {
    match client.line().as_str() {
        "USING default" => true,
        "OUT_OF_MEMORY" => {
            client.expect_end();
            false
        }
        other => panic!("{other}"),
    }
}

/// The process's descriptor limit is lower than the server's connection limit. The server must refuse clients for which
/// it has no descriptor, and serve all other clients.
#[test]
fn no_files_left() {
    let Some(daemon) = few_files() else { return };
    let mut clients: Vec<Wire> = (0..34).map(|_| Wire::to(&daemon)).collect();
    clients.iter_mut().for_each(|client| client.send("list-tube-used\r\n"));
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for mut client in clients {
        let side = if is_let_in(&mut client) { &mut inside } else { &mut outside };
        side.push(client);
    }
    assert!(inside.len() >= 15 && outside.len() >= 5, "{} of 34 clients were admitted", inside.len());
    at_rest(&daemon);
    serves(&mut inside[0]);
    assert_eq!(lines_with(&daemon, NO_FILES), 1, "{}", daemon.log());
    let mut other = Wire::to(&daemon);
    assert_eq!(other.line(), "OUT_OF_MEMORY");
    let rejected = outside.len() as u64 + 1;
    let mut client = daemon_client(&mut inside, &daemon);
    assert_eq!(client.figure("stats", "rejected-connections").unwrap(), rejected.to_string());
    drop((client, inside, outside, other));
    drop(let_in(&daemon));
    calm(&daemon);
}

fn daemon_client(inside: &mut Vec<Wire>, daemon: &Daemon) -> beanpole::Client {
    // Waits, because the server uses its reserved descriptor for a short time to refuse a client.
    at_rest(daemon);
    let open = daemon.open_files();
    drop(inside.pop());
    wait_until("a descriptor is closed", || daemon.open_files() < open);
    daemon.client()
}

/// Clients connect and disconnect while no descriptors are available. The server must not crash or fill the log.
// Tests promise P23 of beanpole-promises(7).
#[test]
fn no_files_left_for_a_while() {
    let Some(daemon) = few_files() else { return };
    let mut clients: Vec<Wire> = (0..40).map(|_| Wire::to(&daemon)).collect();
    daemon.wait_log(NO_FILES);
    for _ in 0..60 {
        drop(clients.remove(0));
        clients.push(Wire::to(&daemon));
    }
    drop(clients.split_off(1));
    drop(clients);
    let mut client = let_in(&daemon);
    serves(&mut client);
    assert_eq!(lines_with(&daemon, NO_FILES), 1, "{}", daemon.log());
    drop(client);
    calm(&daemon);
}

/// If the system permits fewer connections than `--max-connections`, the server must refuse excess clients as usual.
#[test]
fn more_connections_than_files() {
    let script = "ulimit -n 100; exec \"$0\" \"$@\"";
    let daemon = Daemon::spawn(shell(script, &["-p", "0", "--max-connections", "1000"]));
    let warning = daemon.wait_log("--max-connections 1000");
    assert!(warning.contains("using 50,"), "{warning}");
    let mut clients: Vec<Wire> = (0..50 + 6).map(|_| let_in(&daemon)).collect();
    let mut refused = Wire::to(&daemon);
    assert_eq!(refused.line(), "OUT_OF_MEMORY");
    clients[0].ask("stats-job 1", "NOT_FOUND");
    assert_eq!(lines_with(&daemon, NO_FILES), 0, "{}", daemon.log());
}

#[test]
fn hardly_any_files() {
    for files in [14, 16, 20, 40] {
        // Descriptors that this test inherited also count, for example those of make's jobserver.
        let inherited = "$(($(ls /proc/self/fd | wc -l) - 4))";
        let script = format!("ulimit -n $(({files} + {inherited})); exec \"$0\" \"$@\"");
        let daemon = Daemon::spawn(shell(&script, &["-p", "0", "-t", "1"]));
        let mut clients: Vec<Wire> = (0..30).map(|_| Wire::to(&daemon)).collect();
        clients.iter_mut().for_each(|client| client.send("list-tube-used\r\n"));
        let inside = clients.iter_mut().filter_map(|client| is_let_in(client).then_some(())).count();
        assert!((1..30).contains(&inside), "{inside} clients were admitted with {files} descriptors");
        at_rest(&daemon);
        drop(clients);
        // The server must admit clients again as soon as it has closed the old connections.
        for _ in 0..10 {
            serves(&mut let_in(&daemon));
        }
        calm(&daemon);
    }
}

fn from(daemon: &Daemon, host: [u8; 4]) -> Wire {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((host, 0)).into()).expect("a local address");
    socket.connect(&daemon.address().into()).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a connection");
    Wire::of(socket.into())
}

#[test]
fn too_many_connections_from_one_address() {
    let folder = Folder::new();
    let unix = format!("unix:{}", folder.file("socket").display());
    let daemon = Daemon::start(&["-l", "0.0.0.0:0", "-l", &unix, "--max-connections-per-address", "3"]);
    let (one, two) = ([127, 0, 0, 1], [127, 0, 0, 2]);
    let mut inside: Vec<Wire> = (0..3).map(|_| from(&daemon, one)).collect();
    inside.iter_mut().for_each(|client| client.ask("list-tube-used", "USING default"));
    for _ in 0..5 {
        let mut refused = from(&daemon, one);
        refused.expect("OUT_OF_MEMORY");
        refused.expect_end();
    }
    let line = "127.0.0.1:";
    let what = "too many connections from its address";
    let log = daemon.wait_log(what);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(what)).collect();
    assert!(lines.len() == 1 && lines[0].contains(line), "{log}");
    from(&daemon, two).ask("list-tube-used", "USING default");
    let operators: Vec<_> = (0..5).map(|_| daemon.unix()).collect();
    let mut operator = beanpole::Client::connect_unix(daemon.path()).expect("a connection");
    assert_eq!(operator.figure("stats", "rejected-connections").unwrap(), "5");
    drop(operators);
    drop(inside.pop());
    wait_until("another client is admitted", || {
        let mut client = from(&daemon, one);
        client.send("list-tube-used\r\n");
        client.line() == "USING default"
    });
}

/// The last connections are reserved for local clients. The server must admit a local operator even if remote clients
/// use all other connections.
// Tests promise P23 of beanpole-promises(7).
#[test]
fn some_connections_are_reserved_for_unix_sockets() {
    let folder = Folder::new();
    let unix = format!("unix:{}", folder.file("socket").display());
    let daemon = Daemon::start(&["-l", "127.0.0.1:0", "-l", &unix, "--max-connections", "2"]);
    let mut clients: Vec<Wire> = (0..2 + KEPT).map(|_| let_in(&daemon)).collect();
    Wire::to(&daemon).expect("OUT_OF_MEMORY");
    drop(clients.pop());
    wait_until("a connection is available", || {
        let client = beanpole::Client::connect_unix(daemon.path());
        client.and_then(|mut it| it.figure("stats", "max-connections").map_err(std::io::Error::other)).is_ok()
    });
}

#[test]
fn too_many_watched_tubes() {
    let daemon = Daemon::start(&["--max-watched", "5"]);
    let mut client = Wire::to(&daemon);
    for number in 2..=5 {
        client.ask(&format!("watch w{number}"), &format!("WATCHING {number}"));
    }
    client.ask("watch more", "OUT_OF_MEMORY");
    client.ask("watch w3", "WATCHING 5");
    client.ask("stats-tube more", "NOT_FOUND");
    client.ask("ignore w2", "WATCHING 4");
    client.ask("watch more", "WATCHING 5");
    Wire::to(&daemon).ask("watch w2", "WATCHING 2");
    client.ask("use more", "USING more");
    let id = client.put(b"x", 60);
    client.send("reserve\r\n");
    assert_eq!(client.job().0, id);
    calm(&daemon);
}

#[test]
fn too_many_tubes() {
    let daemon = Daemon::start(&["--max-tubes", "17"]);
    let mut client = Wire::to(&daemon);
    for number in 2..=10 {
        client.ask(&format!("watch w{number}"), &format!("WATCHING {number}"));
    }
    for _ in 0..3 {
        client.ask("watch more", "OUT_OF_MEMORY");
        client.ask("use more", "OUT_OF_MEMORY");
    }
    client.ask("list-tube-used", "USING default");
    client.ask("use w3", "USING w3");
    let id = client.put(b"x", 60);
    client.send("reserve\r\n");
    assert_eq!(client.job().0, id);
    client.ask(&format!("delete {id}"), "DELETED");
    client.ask("ignore w2", "WATCHING 9");
    client.ask("use more", "USING more");
    client.ask("watch others", "OUT_OF_MEMORY");
    client.ask("watch more", "WATCHING 10");
    drop(client);
    calm(&daemon);
}

/// A tube counts toward the limit of its creator while the creator is connected, even if the creator uses other tubes.
#[test]
fn one_client_cannot_use_all_tubes() {
    let daemon = Daemon::start(&["--max-tubes", "17"]);
    let mut greedy = Wire::to(&daemon);
    for number in 1..=9 {
        greedy.ask(&format!("use u{number}"), &format!("USING u{number}"));
        greedy.put(b"x", 60);
    }
    greedy.ask("use more", "OUT_OF_MEMORY");
    let mut second = Wire::to(&daemon);
    for number in 2..=5 {
        second.ask(&format!("watch w{number}"), &format!("WATCHING {number}"));
    }
    second.ask("watch more", "OUT_OF_MEMORY");
    let mut third = Wire::to(&daemon);
    third.ask("watch a", "WATCHING 2");
    third.ask("watch b", "WATCHING 3");
    third.ask("watch c", "OUT_OF_MEMORY");
    drop(second);
    let mut fourth = Wire::to(&daemon);
    fourth.ask("watch z", "WATCHING 2");
    drop((greedy, third, fourth));
    calm(&daemon);
}
