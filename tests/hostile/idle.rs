//! Tests which silent clients a server with the option `--idle-timeout` disconnects.

use std::io::Write;
use std::net::TcpStream;

use crate::daemon::{wait_until, Daemon};
use crate::wire::{calm, Wire};

/// The timeout is long enough for a busy machine to process the clients' activity in time, and short enough for a test.
const TIMEOUT: [&str; 2] = ["--idle-timeout", "3"];

/// Returns the line that the server logs when it drops a client.
fn dropped(stream: &TcpStream) -> String {
    format!("{}: closed: it was silent for 3 seconds", stream.local_addr().expect("a bound socket"))
}

#[test]
fn silent_clients_are_dropped_even_with_incomplete_commands() {
    let daemon = Daemon::start(&TIMEOUT);
    let mut clients: Vec<Wire> = (0..4).map(|_| Wire::to(&daemon)).collect();
    for (client, bytes) in clients.iter_mut().zip(["", "put 0 0 1", "put 0 0 60 10\r\nhello", "list-tube-used\r\n"]) {
        client.send(bytes);
    }
    clients[3].expect("USING default");
    for client in &mut clients {
        client.expect_end();
        daemon.wait_log(&dropped(client.stream()));
    }
    drop(clients);
    calm(&daemon);
}

#[test]
fn clients_that_wait_hold_jobs_or_send_occasionally_stay() {
    let daemon = Daemon::start(&[&TIMEOUT[..], &["--gearman=127.0.0.1:0"]].concat());
    let gearman = daemon.names().iter().find_map(|name| name.strip_suffix(" (Gearman)")).expect("a Gearman address");
    let gearman = || TcpStream::connect(gearman).expect("a connection");
    let (mut waits, mut holds, mut speaks) = (Wire::to(&daemon), Wire::to(&daemon), Wire::to(&daemon));
    let id = holds.put(b"held", 3600);
    holds.send("reserve\r\n");
    assert_eq!(holds.job().0, id);
    waits.send("watch work\r\nreserve\r\n");
    waits.expect("WATCHING 2");
    let (mut sleeps, mut submits) = (gearman(), gearman());
    // One client sends CAN_DO for the function f, and then PRE_SLEEP. The other sends SUBMIT_JOB for the function g.
    sleeps.write_all(b"\0REQ\0\0\0\x01\0\0\0\x01f\0REQ\0\0\0\x04\0\0\0\0").expect("a connection");
    submits.write_all(b"\0REQ\0\0\0\x07\0\0\0\x05g\0u\0x").expect("a connection");
    // Waits until three later clients have been dropped in sequence. By then, the first clients, except the one that
    // sends commands, have been silent for several times the timeout.
    for _ in 0..3 {
        let mut silent = Wire::to(&daemon);
        wait_until("a silent client is dropped", || {
            speaks.ask("list-tube-used", "USING default");
            daemon.log().contains(&dropped(silent.stream()))
        });
        silent.expect_end();
    }
    assert_eq!(daemon.log().matches(": closed: ").count(), 3, "{}", daemon.log());
    speaks.ask("use work", "USING work");
    speaks.put(b"new", 60);
    assert_eq!(waits.job().1, b"new");
    holds.ask(&format!("delete {id}"), "DELETED");
    // Sends ECHO_REQ and reads ECHO_RES. The client that submitted a job must first read the reply to SUBMIT_JOB.
    for client in [&mut sleeps, &mut submits] {
        client.write_all(b"\0REQ\0\0\0\x10\0\0\0\x02on").expect("a connection");
        let mut client = Wire::of(client.try_clone().expect("a connection"));
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\0RES\0\0\0\x11\0\0\0\x02on") {
            let mut byte = [0];
            std::io::Read::read_exact(client.reader(), &mut byte).expect("a reply");
            bytes.push(byte[0]);
        }
    }
}

#[test]
fn the_idle_timeout_starts_after_a_wait() {
    let daemon = Daemon::start(&TIMEOUT);
    let mut client = Wire::to(&daemon);
    client.send("reserve-with-timeout 7\r\n");
    client.expect("TIMED_OUT");
    client.ask("list-tube-used", "USING default");
    client.expect_end();
    daemon.wait_log(&dropped(client.stream()));
}

/// The server must drop a client that stops reading, log its address, and discard its replies.
#[test]
fn a_client_that_does_not_read_is_dropped() {
    let daemon = Daemon::start(&TIMEOUT);
    let mut client = Wire::to(&daemon);
    client.put(&[b'x'; 60_000], 60);
    client.send("peek-ready\r\n".repeat(1000));
    daemon.wait_log(&dropped(client.stream()));
    drop(client);
    calm(&daemon);
}

#[test]
fn without_the_option_no_client_is_dropped() {
    let (with, without) = (Daemon::start(&TIMEOUT), Daemon::start(&[]));
    let (mut first, mut second) = (Wire::to(&with), Wire::to(&without));
    second.send("put 0 0 60 3\r\nab");
    first.expect_end();
    second.send("c\r\n");
    second.expect("INSERTED 1");
}
