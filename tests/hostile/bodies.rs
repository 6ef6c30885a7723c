//! Tests lines and bodies that arrive slowly or incompletely, and bodies that are larger than the available memory.

use std::time::Duration;

use crate::daemon::{shell, wait_until, Daemon};
use crate::wire::{at_rest, calm, figure, put, served, stat, Wire};

/// The largest body size that a client can announce, in bytes.
const GIB: usize = 1 << 30;

const CROWD: usize = 20;

#[test]
fn sent_byte_by_byte() {
    let daemon = Daemon::start(&[]);
    let mut client = Wire::to(&daemon);
    let conversation = [put(b"a\r\nb", 60), b"reserve\r\npeek 1\r\ndelete 1\r\nlist-tube-used\r\n".to_vec()].concat();
    for byte in conversation {
        client.send([byte]);
        std::thread::sleep(Duration::from_micros(200));
    }
    client.expect("INSERTED 1");
    assert_eq!(client.job(), (1, b"a\r\nb".to_vec()));
    assert_eq!(client.job(), (1, b"a\r\nb".to_vec()));
    client.expect("DELETED");
    client.expect("USING default");
    calm(&daemon);
}

/// Clients stop in the middle of a line or body, and continue after the server has become idle.
#[test]
fn halves_of_lines_and_bodies() {
    let daemon = Daemon::start(&[]);
    let halves = [
        ("list-tube", "-used\r\n", "USING default"),
        ("list-tube-used\r", "\n", "USING default"),
        ("put 0 0 60 5\r\nab", "cde\r\n", "INSERTED "),
        ("put 0 0 60 5\r\nabcde\r", "\n", "INSERTED "),
        ("put 0 0 60 65535\r\n", "", "INSERTED "),
        ("put 0 0 60 70000\r\nhalf", "", "JOB_TOO_BIG"),
    ];
    let mut clients: Vec<Wire> = (0..CROWD * halves.len()).map(|_| Wire::to(&daemon)).collect();
    for (client, (first, ..)) in clients.iter_mut().zip(halves.iter().cycle()) {
        client.send(first);
    }
    calm(&daemon);
    for (client, (first, second, reply)) in clients.iter_mut().zip(halves.iter().cycle()) {
        client.send(second);
        match *first {
            "put 0 0 60 65535\r\n" => client.send([&[b'x'; 65_535][..], b"\r\n"].concat()),
            "put 0 0 60 70000\r\nhalf" => client.send([b'x'; 69_998]),
            _ => {}
        }
        let line = client.line();
        assert!(line.starts_with(reply), "reply {line} to {first:?}");
    }
    calm(&daemon);
}

/// The server must allocate memory for a body when bytes arrive, not when a client announces the body.
#[test]
fn huge_bodies_that_never_arrive() {
    let daemon = Daemon::start(&["-z", "1073741824", "--max-memory", "64G"]);
    served(&daemon);
    let before = daemon.rss();
    let mut clients: Vec<Wire> = (0..CROWD).map(|_| Wire::to(&daemon)).collect();
    for client in &mut clients {
        client.send(format!("list-tube-used\r\nput 0 0 60 {GIB}\r\nonly this"));
        client.expect("USING default");
    }
    calm(&daemon);
    let grown = daemon.rss().saturating_sub(before);
    println!("{CROWD} bodies of 1 GiB that never arrive cost {} kB", grown / 1024);
    assert!(grown < 8 << 20, "{grown} bytes for bodies that never arrived");
    drop(clients);
    calm(&daemon);
}

/// No body fits into memory. A body must not use memory before it arrives, and must be discarded when it arrives.
#[test]
fn many_huge_bodies_and_little_memory() {
    let daemon = Daemon::start(&["-z", "1073741824", "--max-memory", "1M"]);
    served(&daemon);
    let before = daemon.peak_rss();
    let mut silent: Vec<Wire> = (0..CROWD).map(|_| Wire::to(&daemon)).collect();
    silent.iter_mut().for_each(|client| client.send(format!("put 0 0 60 {GIB}\r\nonly this")));
    served(&daemon);
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..CROWD {
        let mut client = Wire::to(&daemon);
        client.send(format!("put 0 0 60 {}\r\n", 4 * chunk.len()));
        (0..4).for_each(|_| client.send(&chunk));
        client.send("\r\n");
        client.expect("OUT_OF_MEMORY");
        client.ask("list-tube-used", "USING default");
    }
    let grown = daemon.peak_rss() - before;
    assert!(grown < 8 << 20, "{grown} bytes for refused bodies");
    calm(&daemon);
}

/// A body that a client has announced must not reserve memory. Only received bytes count toward the memory limit.
#[test]
fn bodies_are_charged_as_they_arrive() {
    let daemon = Daemon::start(&["-t", "1", "-z", "1M", "--max-memory", "1M"]);
    let (line, body) = ("put 0 0 60 700000\r\n", vec![b'x'; 700_000]);
    let mut first = Wire::to(&daemon);
    first.send(format!("list-tube-used\r\n{line}"));
    first.expect("USING default");
    // The server has only one thread, so its reply to another client shows that it has processed the first line.
    served(&daemon);
    let mut second = Wire::to(&daemon);
    second.send(line);
    second.send(&body);
    second.send("\r\n");
    let id = second.line();
    let id = id.strip_prefix("INSERTED ").expect("free memory, because the other body has not arrived");
    // The server must read the whole body before it refuses the put.
    first.send(&body);
    first.send("\r\nlist-tube-used\r\n");
    first.expect("OUT_OF_MEMORY");
    first.expect("USING default");
    second.ask(&format!("delete {id}"), "DELETED");
    first.send(line);
    first.send(&body[..400_000]);
    wait_until("the first part of the body is charged", || stat(&daemon, "memory-buffers") > 400_000);
    second.send(line);
    second.send(&body);
    second.send("\r\n");
    second.expect("OUT_OF_MEMORY");
    first.send(&body[400_000..]);
    first.send("\r\n");
    assert!(first.line().starts_with("INSERTED "));
    calm(&daemon);
}

/// If the system has less memory than `--max-memory` allows, the server must reply OUT_OF_MEMORY, like beanstalkd.
#[test]
fn a_body_larger_than_the_system_s_memory() {
    let arguments = ["-p", "0", "-t", "1", "-z", "1073741824", "--max-memory", "4G"];
    let daemon = Daemon::spawn(shell("ulimit -v 400000; exec \"$0\" \"$@\"", &arguments));
    let mut client = Wire::to(&daemon);
    let chunk = vec![b'x'; 1 << 20];
    client.send(format!("put 0 0 60 {}\r\n", 400 * chunk.len()));
    at_rest(&daemon);
    served(&daemon);
    (0..400).for_each(|_| client.send(&chunk));
    client.send("\r\n");
    client.expect("OUT_OF_MEMORY");
    client.ask("list-tube-used", "USING default");
    calm(&daemon);
}

/// While memory is exhausted, the server must refuse only puts. When memory is available again, puts must succeed.
// Tests promise P21 of beanpole-promises(7).
#[test]
fn with_exhausted_memory() {
    let daemon = Daemon::start(&["--max-memory", "1M"]);
    let mut client = Wire::to(&daemon);
    let body = vec![b'x'; 10_000];
    let mut ids = Vec::new();
    loop {
        client.send(put(&body, 600));
        match client.line() {
            line if line == "OUT_OF_MEMORY" => break,
            line => ids.push(line.strip_prefix("INSERTED ").expect("an id").parse::<u64>().expect("an id")),
        }
        assert!(ids.len() < 1000);
    }
    assert!(ids.len() >= 50, "only {} bodies of 10 kB in 1 MiB", ids.len());
    client.send(put(&body, 600));
    client.expect("OUT_OF_MEMORY");
    let mut figures = daemon.client();
    assert_eq!(figure(&mut figures, "stats", "current-jobs-ready"), ids.len() as u64);
    client.send("reserve\r\n");
    assert_eq!(client.job(), (ids[0], body.clone()));
    for (command, reply) in [("touch", "TOUCHED"), ("bury", "BURIED"), ("kick-job", "KICKED")] {
        let pri = if command == "bury" { " 0" } else { "" };
        client.ask(&format!("{command} {}{pri}", ids[0]), reply);
    }
    client.send(format!("peek {}\r\n", ids[1]));
    assert_eq!(client.job(), (ids[1], body.clone()));
    for id in &ids[..3] {
        client.ask(&format!("delete {id}"), "DELETED");
    }
    assert!(client.put(&body, 600) > ids[0]);
    for id in &ids[3..] {
        client.ask(&format!("delete {id}"), "DELETED");
    }
    assert_eq!(stat(&daemon, "current-jobs-ready"), 1);
    calm(&daemon);
}
