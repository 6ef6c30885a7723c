//! Tests lists that are too long for the server to send in one piece.

use std::io::{Read, Write};
use std::net::TcpStream;

use beanpole::internals::protocol::Wire;
use beanpole::{Address, Config, Server};

use crate::daemon::wait_until;
use crate::talk::{ask, packet, say, world};

/// Sends a command to a real server. The simulated server would be slow, because it checks invariants after each job.
fn ask_server(stream: &mut TcpStream, line: &str) -> String {
    stream.write_all(format!("{line}\n").as_bytes()).expect("a connection");
    let mut answer = Vec::new();
    let mut buffer = [0; 65_536];
    while answer != b".\n" && !answer.ends_with(b"\n.\n") {
        let count = stream.read(&mut buffer).expect("a connection");
        assert!(count > 0, "the server has closed the connection");
        answer.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(answer).expect("text")
}

#[test]
fn long_lists_are_complete() {
    let config = Config::embedded().with(|config| config.gearman = vec![Address::Tcp(None, None)]);
    let server = Server::with(config).expect("a server");
    let address = server.address_of(Wire::Gearman).expect("a Gearman address");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut packets = Vec::new();
    for number in 0..1700 {
        packets.extend(packet(18, format!("function-{number}\0unique-{number}\0").as_bytes()));
        packets.extend([packet(18, b"more\0\0"), packet(18, b"more\0\0")].concat());
    }
    packets.extend(packet(16, b"all there"));
    stream.write_all(&packets).expect("a connection");
    let mut answers = Vec::new();
    let mut buffer = [0; 65_536];
    while !answers.ends_with(b"all there") {
        let count = stream.read(&mut buffer).expect("a connection");
        answers.extend_from_slice(&buffer[..count]);
    }
    for (command, wanted) in
        [("status", 1701), ("prioritystatus", 1701), ("show jobs", 5100), ("show unique jobs", 5100)]
    {
        let answer = ask_server(&mut stream, command);
        let mut lines: Vec<&str> = answer.lines().collect();
        assert_eq!(lines.pop(), Some("."), "{command}: the list must end with a dot");
        assert_eq!(lines.len(), wanted, "{command}");
        lines.sort_unstable();
        lines.dedup();
        let distinct = if command == "show unique jobs" { 1701 } else { wanted };
        assert_eq!(lines.len(), distinct, "{command}: wrong number of distinct lines");
    }
    assert_eq!(ask_server(&mut stream, "status"), ask_server(&mut stream, "status"));
    server.check();
}

#[test]
fn the_list_of_many_workers_is_complete() {
    let names: Vec<String> = (0..250).map(|number| format!("w{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = world(&Config::embedded(), &names);
    for name in &names {
        say(&mut world, name, &[(22, name.as_bytes()), (1, b"f")]);
    }
    let answer = ask(&mut world, "w7", "workers");
    let lines: Vec<&str> = answer.lines().collect();
    assert_eq!((lines.len(), lines[250]), (251, "."));
    for name in names {
        assert_eq!(lines.iter().filter(|line| line.ends_with(&format!(" {name} : f"))).count(), 1, "{name}");
    }
}

/// A list contains a limited number of names. Even after a client has used thousands of new names, the list must
/// contain a function that has a worker.
#[test]
fn many_names_do_not_hide_a_function_with_a_worker() {
    let config = Config::embedded().with(|config| config.gearman = vec![Address::Tcp(None, None)]);
    let server = Server::with(config).expect("a server");
    let address = server.address_of(Wire::Gearman).expect("a Gearman address");
    let mut junk = TcpStream::connect(address).expect("a connection");
    let names = (0..10_000).flat_map(|number| packet(1, format!("junk-{number}").as_bytes()));
    junk.write_all(&names.chain(packet(16, b"all there")).collect::<Vec<u8>>()).expect("a connection");
    junk.read_exact(&mut [0; 12 + 9]).expect("a reply");
    drop(junk);
    let mut worker = TcpStream::connect(address).expect("a connection");
    worker.write_all(&packet(1, b"realwork")).expect("a connection");
    for (command, line) in [("status", "realwork\t0\t0\t1"), ("prioritystatus", "realwork\t0\t0\t0\t1")] {
        let answer = ask_server(&mut worker, command);
        assert!(answer.lines().any(|other| other == line), "{command}");
        assert_eq!(answer.lines().count(), 10_002, "{command}");
    }
    let mut line = |line: &str| {
        worker.write_all(format!("{line}\n").as_bytes()).expect("a connection");
        let mut answer = [0];
        let mut read = || worker.read_exact(&mut answer).map(|()| answer[0]).expect("a reply");
        let mut text = Vec::new();
        while text.last() != Some(&b'\n') {
            text.push(read());
        }
        String::from_utf8(text).expect("text")
    };
    // The server must not create a function that the list would omit.
    assert_eq!(line("create function one-more"), "ERR QUEUE_ERROR Too+many+functions\r\n");
    assert_eq!(line("create function realwork"), "OK\r\n");
    // The server may still be removing the functions of the disconnected client, so the test retries.
    wait_until("the function is unused", || line("drop function junk-7") == "OK\r\n");
    assert_eq!(line("create function one-more"), "OK\r\n");
}
