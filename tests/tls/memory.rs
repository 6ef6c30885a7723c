//! Tests the memory usage of the real program with incomplete TLS records and handshakes. Incomplete input must count
//! toward the memory limit, and when memory is short, the server must close connections that sent this input.

use std::io::Write;
use std::net::TcpStream;

use super::{address, ask, connect, folder, start};
use crate::daemon::{wait_until, Daemon, Folder};
use crate::growth::{figure, Growth};

const HOLDERS: usize = 500;

/// Starts a server that also has a listener without TLS, for observers.
fn observed(folder: &Folder, memory: &str) -> Daemon {
    start(folder, &["-l", "127.0.0.1:0", "-t", "2", "--max-memory", memory])
}

/// Completes a handshake and sends an incomplete record.
fn half_record(folder: &Folder, at: &str) -> TcpStream {
    let mut client = connect(folder, at, None);
    assert_eq!(ask(&mut client, "use a").expect("a reply"), "USING a");
    client.conn.writer().write_all(&[b'x'; 16_000]).expect("buffer space");
    let mut record = Vec::new();
    client.conn.write_tls(&mut record).expect("a record");
    client.sock.write_all(&record[..record.len() - 1]).expect("a peer that reads");
    client.sock
}

/// Sends a ClientHello of sixty thousand bytes in several records, without the last bytes.
fn half_hello(at: &str) -> TcpStream {
    let mut message = vec![0; 60_000];
    message[..4].copy_from_slice(&[1, 0, 0xea, 0x60]);
    let mut records = Vec::new();
    for part in message.chunks(16_000) {
        records.extend_from_slice(&[22, 3, 1]);
        records.extend_from_slice(&(part.len() as u16).to_be_bytes());
        records.extend_from_slice(part);
    }
    let mut stream = TcpStream::connect(at).expect("a connection");
    stream.write_all(&records).expect("a peer that reads");
    stream
}

/// Sends a complete ClientHello, and does not react to the reply.
fn hello(folder: &Folder, at: &str) -> TcpStream {
    let mut client = connect(folder, at, None);
    client.conn.write_tls(&mut client.sock).expect("a peer that reads");
    client.sock
}

#[test]
fn records_and_handshakes_are_charged_as_they_arrive() {
    type Begin = fn(&Folder, &str) -> TcpStream;
    let cases: [(&str, Begin, usize); 3] = [
        ("half a record", half_record, 16_000),
        ("half a ClientHello", |_, at| half_hello(at), 60_000),
        ("a ClientHello", hello, 4_000),
    ];
    for (what, begin, least) in cases {
        let folder = folder();
        let daemon = observed(&folder, "512M");
        let at = address(&daemon, "");
        drop(half_record(&folder, &at));
        let growth = Growth::begin(&daemon);
        let streams = (0..HOLDERS).map(|_| begin(&folder, &at)).collect();
        growth.check(what, streams, (least * HOLDERS) as u64);
    }
}

#[test]
fn connections_with_incomplete_records_are_closed_when_memory_is_short() {
    let folder = folder();
    let daemon = observed(&folder, "16M");
    let at = address(&daemon, "");
    let mut observer = daemon.client();
    // The server must not close this connection, which uses little memory.
    let mut light = connect(&folder, &at, None);
    assert_eq!(ask(&mut light, "use a").expect("a reply"), "USING a");
    let holders: Vec<TcpStream> = (0..HOLDERS).map(|_| half_record(&folder, &at)).collect();
    let quarter = figure(&mut observer, "max-memory") / 4;
    wait_until("some connections are dropped", || figure(&mut observer, "dropped-connections") > 0);
    wait_until("the buffers are within their share", || figure(&mut observer, "memory-buffers") <= quarter + (1 << 20));
    let dropped = figure(&mut observer, "dropped-connections");
    assert!(dropped < HOLDERS as u64, "all {dropped} connections were dropped");
    let logged = || daemon.log().matches("dropped, since memory is short").count() as u64;
    wait_until("each dropped connection is logged", || logged() >= dropped);
    for _ in 0..4000 {
        observer.put(&[b'x'; 1000], 0, 0, 60).expect("an accepted job");
    }
    assert_eq!(ask(&mut light, "list-tube-used").expect("a reply"), "USING a");
    drop(holders);
}
