//! Limits that are reached: connections, files, tubes, watched tubes. Each refuses one thing and nothing else.

use std::time::{Duration, Instant};

use crate::daemon::{shell, wait_until, Daemon, PATIENCE};
use crate::wire::{at_rest, calm, serves, Wire};

/// The server's line when it turns connections away.
const TURNED_AWAY: &str = "too many connections";

/// Its line when the system has no file for a connection.
const NO_FILES: &str = "no connection can be accepted";

fn lines_with(daemon: &Daemon, text: &str) -> usize {
    daemon.log().lines().filter(|line| line.contains(text)).count()
}

/// Connects until it is let in.
fn let_in(daemon: &Daemon) -> Wire {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut client = Wire::to(daemon);
        client.send("list-tube-used\r\n");
        match client.line().as_str() {
            "USING default" => return client,
            "OUT_OF_MEMORY" => assert!(Instant::now() < end, "nobody is let in any more"),
            other => panic!("{other}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_connection_too_many() {
    let daemon = Daemon::start(&["--max-connections", "10"]);
    let mut clients: Vec<Wire> = (0..10).map(|_| let_in(&daemon)).collect();
    for number in 0..20 {
        let mut refused = Wire::to(&daemon);
        if number % 2 == 1 {
            // A client that speaks first, as most do.
            refused.send("list-tube-used\r\n");
        }
        refused.expect("OUT_OF_MEMORY");
        refused.expect_end();
        serves(&daemon, &mut clients[number % 10]);
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

/// Too many at once do not end in fewer places than there were.
#[test]
fn a_crowd_at_a_full_server() {
    let daemon = Daemon::start(&["--max-connections", "10"]);
    let clients: Vec<Wire> = (0..10).map(|_| let_in(&daemon)).collect();
    for _ in 0..10 {
        let mut crowd: Vec<Wire> = (0..50).map(|_| Wire::to(&daemon)).collect();
        for refused in &mut crowd {
            refused.expect("OUT_OF_MEMORY");
        }
    }
    drop(clients);
    let clients: Vec<Wire> = (0..10).map(|_| let_in(&daemon)).collect();
    drop(clients);
    wait_until("all are gone", || let_in(&daemon).stream().peer_addr().is_ok());
    calm(&daemon);
}

/// A server that may have fewer files than it thinks: they were more when it started.
fn few_files() -> Option<Daemon> {
    let daemon = Daemon::start(&["-t", "1", "--max-connections", "100"]);
    let limited = daemon.limit("--nofile=32");
    if !limited {
        println!("skipped: no prlimit");
    }
    limited.then_some(daemon)
}

/// The system's limit is lower than the server's own: those that cannot be accepted wait, until others leave.
#[test]
fn no_files_left() {
    let Some(daemon) = few_files() else { return };
    let mut clients: Vec<Wire> = (0..34).map(|_| Wire::to(&daemon)).collect();
    clients.iter_mut().for_each(|client| client.send("list-tube-used\r\n"));
    daemon.wait_log(NO_FILES);
    clients[0].expect("USING default");
    std::thread::sleep(Duration::from_millis(200));
    at_rest(&daemon);
    serves(&daemon, &mut clients[0]);
    assert_eq!(lines_with(&daemon, NO_FILES), 1, "{}", daemon.log());
    let waiting = clients.split_off(15);
    for client in &mut clients[1..] {
        client.expect("USING default");
    }
    drop(clients);
    for mut client in waiting {
        client.expect("USING default");
        serves(&daemon, &mut client);
    }
    calm(&daemon);
}

/// Without a file for one connection more, connections come and go for a while: no crash, and no flood of log lines.
#[test]
fn no_files_left_for_a_while() {
    let Some(daemon) = few_files() else { return };
    let mut clients: Vec<Wire> = (0..40).map(|_| Wire::to(&daemon)).collect();
    daemon.wait_log(NO_FILES);
    for _ in 0..60 {
        drop(clients.remove(0));
        clients.push(Wire::to(&daemon));
    }
    serves(&daemon, &mut clients[0]);
    let lines = lines_with(&daemon, NO_FILES);
    assert!(lines <= 61, "{lines} lines of log for 60 connections");
    drop(clients);
    calm(&daemon);
}

/// What the system has no files for is not promised: those too many are told so, as with any other limit.
#[test]
fn more_connections_than_files() {
    let script = "ulimit -n 100; exec \"$0\" \"$@\"";
    let daemon = Daemon::spawn(shell(script, &["-p", "0", "--max-connections", "1000"]));
    let warning = daemon.wait_log("--max-connections 1000");
    assert!(warning.contains("room for 36"), "{warning}");
    let mut clients: Vec<Wire> = (0..36).map(|_| let_in(&daemon)).collect();
    let mut refused = Wire::to(&daemon);
    assert_eq!(refused.line(), "OUT_OF_MEMORY");
    clients[0].ask("stats-job 1", "NOT_FOUND");
    assert_eq!(lines_with(&daemon, NO_FILES), 0, "{}", daemon.log());
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
    let daemon = Daemon::start(&["--max-tubes", "10"]);
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
