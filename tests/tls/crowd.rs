//! Tests many simultaneous clients, clients that disconnect at any moment, and replies after a key update.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{address, ask, config, connect, folder, read_line, start, Secure};
use crate::daemon::{wait_until, PATIENCE};

const CROWD: usize = 5000;
const THREADS: usize = 16;

fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(config.clone(), name).expect("a session")
}

fn figure(client: &mut Secure, key: &str) -> String {
    client.write_all(b"stats\r\n").expect("a peer that reads");
    let size = read_line(client).expect("a reply")["OK ".len()..].parse::<usize>().expect("a length");
    let mut stats = vec![0; size + 2];
    client.read_exact(&mut stats).expect("figures");
    let stats = String::from_utf8_lossy(&stats).into_owned();
    let value = stats.lines().find_map(|line| line.strip_prefix(&format!("{key}: ")));
    value.unwrap_or_else(|| panic!("no {key}")).to_owned()
}

fn wait_for_quiet(client: &mut Secure) {
    wait_until("all other clients are disconnected", || figure(client, "current-connections") == "1");
}

#[test]
fn five_thousand_handshakes_at_once() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let (at, config) = (address(&daemon, ""), config(&folder, None));
    let mut early = connect(&folder, &at, None);
    assert_eq!(ask(&mut early, "use a").expect("a reply"), "USING a");
    let served = Arc::new(AtomicUsize::new(0));
    let threads = (0..THREADS).map(|_| {
        let (at, config, served) = (at.clone(), config.clone(), served.clone());
        std::thread::spawn(move || {
            // All clients of this thread send a ClientHello before any of them reads.
            let greet = |_| {
                let mut stream = TcpStream::connect(&at).expect("a connection");
                stream.set_read_timeout(Some(PATIENCE)).expect("an option");
                let mut session = session(&config);
                let mut hello = Vec::new();
                session.write_tls(&mut hello).expect("a ClientHello");
                // The server may have refused the connection.
                let _ = stream.write_all(&hello);
                StreamOwned::new(session, stream)
            };
            let streams: Vec<_> = (0..CROWD / THREADS).map(greet).collect();
            for mut stream in streams {
                match ask(&mut stream, "list-tube-used") {
                    Ok(answer) if answer == "USING default" => _ = served.fetch_add(1, Ordering::Relaxed),
                    Ok(answer) => assert_eq!(answer, "", "a refused client must receive nothing"),
                    Err(error) => assert_ne!(
                        error.kind(),
                        io::ErrorKind::WouldBlock,
                        "the client was neither served nor disconnected"
                    ),
                }
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().expect("a client"));
    assert!(served.load(Ordering::Relaxed) > 0, "no client was served");
    assert_eq!(
        ask(&mut early, "list-tube-used").expect("a reply"),
        "USING a",
        "the earlier client must stay connected"
    );
    wait_for_quiet(&mut early);
    assert_eq!(ask(&mut connect(&folder, &at, None), "list-tube-used").expect("a reply"), "USING default");
}

#[test]
fn resources_of_vanished_peers_are_released() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let (at, config) = (address(&daemon, ""), config(&folder, None));
    let mut watcher = connect(&folder, &at, None);
    let id = ask(&mut watcher, "put 0 0 600 5\r\nhello").expect("a reply").replace("INSERTED ", "");
    for round in 0..120 {
        let stream = TcpStream::connect(&at).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        let mut session = session(&config);
        // In half of the rounds, sends a complete or incomplete ClientHello, and nothing more.
        if round % 4 < 2 {
            let mut hello = Vec::new();
            session.write_tls(&mut hello).expect("a ClientHello");
            let part = if round % 4 == 0 { hello.len() * (round + 1) / 121 } else { hello.len() };
            (&stream).write_all(&hello[..part]).expect("a peer that reads");
        } else {
            let mut client = StreamOwned::new(session, stream.try_clone().expect("a copy of the connection"));
            assert_eq!(ask(&mut client, "reserve").expect("a reply"), format!("RESERVED {id} 5"));
            // The client holds a job. It disconnects in the middle of a record, which is either the record with the
            // start of a put, or the next record.
            let mut record = Vec::new();
            client.conn.writer().write_all(b"put 0 0 60 1000\r\nabc").expect("buffer space");
            if round % 4 == 3 {
                client.conn.writer().write_all(&b"stats\r\n".repeat(500)).expect("buffer space");
            }
            client.conn.write_tls(&mut record).expect("a record");
            let _ = (&stream).write_all(&record[..record.len() / 2]);
        }
        // Ends the connection with a reset or normally.
        let linger = if round % 8 < 4 { Some(Duration::ZERO) } else { None };
        socket2::SockRef::from(&stream).set_linger(linger).expect("an option");
        drop(stream);
        if round % 4 >= 2 {
            wait_until("the job is released", || figure(&mut watcher, "current-jobs-ready") == "1");
        }
    }
    wait_for_quiet(&mut watcher);
    assert_eq!(figure(&mut watcher, "current-jobs-reserved"), "0");
}

fn records(session: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes).expect("records");
    }
    bytes
}

/// Sends bytes in two parts with a pause, so that the server almost always reads the parts separately.
fn send_cut(stream: &mut TcpStream, bytes: &[u8], cut: usize) {
    stream.write_all(&bytes[..cut]).expect("a peer that reads");
    std::thread::sleep(Duration::from_millis(1));
    stream.write_all(&bytes[cut..]).expect("a peer that reads");
}

/// Reads a complete reply line, and returns it.
fn answer(session: &mut ClientConnection, stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        assert_ne!(session.read_tls(stream).expect("a reply"), 0, "the connection was closed before the reply");
        session.process_new_packets().expect("valid records");
        match session.reader().read_to_end(&mut line) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            Ok(_) => panic!("the connection was closed before the reply"),
        }
    }
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

#[test]
fn the_reply_to_a_command_after_the_handshake_arrives_however_it_is_split() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let (at, config) = (address(&daemon, ""), config(&folder, None));
    let mut cut = 0;
    loop {
        let mut stream = TcpStream::connect(&at).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        let mut session = session(&config);
        let hello = records(&mut session);
        stream.write_all(&hello).expect("a peer that reads");
        while session.is_handshaking() {
            assert_ne!(session.read_tls(&mut stream).expect("the server's handshake records"), 0);
            session.process_new_packets().expect("valid records");
        }
        session.writer().write_all(b"list-tube-used\r\n").expect("buffer space");
        let flight = records(&mut session);
        send_cut(&mut stream, &flight, cut.min(flight.len()));
        assert_eq!(answer(&mut session, &mut stream), "USING default", "cut at {cut}");
        if cut >= flight.len() {
            return;
        }
        cut += 1;
    }
}

#[test]
fn the_reply_after_a_key_update_arrives_however_records_are_split() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let mut client = connect(&folder, &address(&daemon, ""), None);
    assert_eq!(ask(&mut client, "use a").expect("a reply"), "USING a");
    let StreamOwned { conn: mut session, sock: mut stream } = client;
    let mut cut = 0;
    loop {
        // Requests a key update. The server must update its own keys before it sends more data.
        session.refresh_traffic_keys().expect("TLS 1.3");
        session.writer().write_all(b"list-tube-used\r\n").expect("buffer space");
        let bytes = records(&mut session);
        send_cut(&mut stream, &bytes, cut.min(bytes.len()));
        assert_eq!(answer(&mut session, &mut stream), "USING a", "cut at {cut}");
        if cut >= bytes.len() {
            return;
        }
        cut += 1;
    }
}

#[test]
fn each_gearman_packet_has_its_own_record() {
    let folder = folder();
    let daemon = start(&folder, &["--gearman=tls:127.0.0.1:0"]);
    let echo = |text: &str| [b"\0REQ\0\0\0\x10\0\0\0", &[text.len() as u8][..], text.as_bytes()].concat();
    let (short, long) = (echo("a"), echo(&"b".repeat(200)));
    for (wire, commands, answers, records) in [
        ("Gearman", [&short[..], &long, &short, &short].concat(), 4 * 12 + 203, 4),
        ("", b"use a\r\nuse b\r\nuse c\r\n".to_vec(), 3 * 9, 1),
    ] {
        let client = connect(&folder, &address(&daemon, wire), None);
        let StreamOwned { conn: mut session, sock: mut stream } = client;
        session.complete_io(&mut stream).expect("a handshake");
        session.writer().write_all(&commands).expect("buffer space");
        session.complete_io(&mut stream).expect("a peer that reads");
        let (mut sealed, mut open) = (Vec::new(), Vec::new());
        while open.len() < answers {
            let mut part = [0; 4096];
            let count = stream.read(&mut part).expect("replies");
            assert_ne!(count, 0, "the connection was closed before the reply");
            sealed.extend_from_slice(&part[..count]);
            session.read_tls(&mut &part[..count]).expect("buffer space");
            session.process_new_packets().expect("valid records");
            let _ = session.reader().read_to_end(&mut open);
        }
        let (mut at, mut found) = (0, 0);
        while at < sealed.len() {
            at += 5 + usize::from(u16::from_be_bytes([sealed[at + 3], sealed[at + 4]]));
            found += 1;
        }
        assert_eq!((found, open.len()), (records, answers), "{wire}");
    }
}
