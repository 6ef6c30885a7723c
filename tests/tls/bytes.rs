//! Tests TLS records in arbitrary pieces, slow and blocked readers, and meaningless bytes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::{address, ask, config, connect, folder, read_line, s_client_steps, start};
use crate::daemon::{wait_until, PATIENCE};

/// A connection that reads and writes at most `size` bytes at a time.
struct Pieces {
    stream: TcpStream,
    size: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.size.min(buffer.len());
        self.stream.read(&mut buffer[..size])
    }
}

impl Write for Pieces {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.write(&buffer[..self.size.min(buffer.len())])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[test]
fn records_can_be_split_anywhere() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    for size in [1, 2, 3, 5, 7, 64, 1000] {
        let stream = TcpStream::connect(address(&daemon, "")).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(config(&folder, None), name).expect("a session");
        let mut client = StreamOwned::new(session, Pieces { stream, size });
        assert_eq!(ask(&mut client, "use a").expect("a reply"), "USING a");
        client.write_all(b"put 0 0 60 300\r\n").expect("a peer that reads");
        client.write_all(&[b'x'; 300]).expect("a peer that reads");
        assert!(ask(&mut client, "").expect("a reply").starts_with("INSERTED "), "in pieces of {size}");
        assert_eq!(ask(&mut client, "peek-ready").expect("a reply").split(' ').next(), Some("FOUND"));
    }
}

#[test]
fn events_of_other_connections_reach_a_waiting_client() {
    let folder = folder();
    let daemon = start(&folder, &["-t", "2"]);
    let (mut worker, mut producer) =
        (connect(&folder, &address(&daemon, ""), None), connect(&folder, &address(&daemon, ""), None));
    assert_eq!(ask(&mut worker, "list-tube-used").expect("a reply"), "USING default");
    for number in 1..200 {
        worker.write_all(b"reserve\r\n").expect("a peer that reads");
        assert_eq!(ask(&mut producer, "put 0 0 60 3\r\nabc").expect("a reply"), format!("INSERTED {number}"));
        assert_eq!(read_line(&mut worker).expect("a job"), format!("RESERVED {number} 3"));
        assert_eq!(read_line(&mut worker).expect("the body"), "abc");
        assert_eq!(ask(&mut worker, &format!("delete {number}")).expect("a reply"), "DELETED");
    }
}

#[test]
fn a_client_that_reads_late_gets_everything_in_order() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let mut client = connect(&folder, &address(&daemon, ""), None);
    let body: Vec<u8> = (0..60_000_u32).map(|place| b'a' + (place % 23) as u8).collect();
    client.write_all(b"put 0 0 60 60000\r\n").expect("a peer that reads");
    client.write_all(&body).expect("a peer that reads");
    assert_eq!(ask(&mut client, "").expect("a reply"), "INSERTED 1");
    const TIMES: usize = 200;
    // Together, the replies exceed the size of the socket buffers. The server must stop reading, and buffer only a
    // limited number of replies.
    for _ in 0..TIMES {
        client.write_all(b"peek 1\r\n").expect("space for short commands");
    }
    std::thread::sleep(Duration::from_millis(200));
    for number in 0..TIMES {
        assert_eq!(read_line(&mut client).expect("a reply"), "FOUND 1 60000", "{number}");
        let mut found = vec![0; body.len() + 2];
        client.read_exact(&mut found).expect("a body");
        assert!(found[..body.len()] == body, "{number}");
    }
}

#[test]
fn incomplete_handshakes_and_garbage_harm_no_client() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let at = address(&daemon, "");
    let mut hello = Vec::new();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(config(&folder, None), name).expect("a session");
    session.write_tls(&mut hello).expect("a ClientHello");
    let mut open = Vec::new();
    let mut seed = 1_u32;
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    for cut in (0..hello.len()).step_by(3) {
        // Sends truncated handshakes (alone or followed by random bytes), handshakes with one changed byte, and random
        // bytes. Then leaves the connection open, half-closes it, or closes it.
        let mut bytes = hello[..cut].to_vec();
        match cut % 4 {
            0 => {}
            1 => bytes.extend((0..100).map(|_| random())),
            2 => {
                let mut whole = hello.clone();
                whole[cut] ^= random() | 1;
                bytes = whole;
            }
            _ => bytes = (0..cut * 7).map(|_| random()).collect(),
        }
        let mut stream = TcpStream::connect(&at).expect("a connection");
        let _ = stream.write_all(&bytes);
        match cut % 3 {
            0 => open.push(stream),
            1 => drop(stream.shutdown(Shutdown::Write)),
            _ => drop(stream),
        }
    }
    let mut client = connect(&folder, &at, None);
    // Sends meaningless bytes after a complete handshake.
    assert_eq!(ask(&mut client, "list-tube-used").expect("a reply"), "USING default");
    for length in [1, 5, 100, 20_000] {
        let mut client = connect(&folder, &at, None);
        assert_eq!(ask(&mut client, "list-tube-used").expect("a reply"), "USING default");
        let noise: Vec<u8> = (0..length).map(|_| random()).collect();
        client.sock.write_all(&noise).expect("a peer that reads");
        drop(client.sock.shutdown(Shutdown::Write));
        assert!(read_line(&mut client).is_err() || length < 5);
    }
    drop(open);
    assert_eq!(ask(&mut client, "list-tube-used").expect("a reply"), "USING default");
    wait_until("all other clients are disconnected", || {
        client.write_all(b"stats\r\n").expect("a peer that reads");
        let size = read_line(&mut client).expect("a reply")["OK ".len()..].parse::<usize>().expect("a length");
        let mut stats = vec![0; size + 2];
        client.read_exact(&mut stats).expect("figures");
        String::from_utf8_lossy(&stats).contains("current-connections: 1\n")
    });
}

#[test]
fn unfinished_handshakes_are_closed() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let mut silent = TcpStream::connect(address(&daemon, "")).expect("a connection");
    silent.set_read_timeout(Some(PATIENCE)).expect("an option");
    let begin = Instant::now();
    assert_eq!(silent.read(&mut [0; 100]).expect("the end of the stream"), 0);
    assert!(begin.elapsed() >= Duration::from_secs(9), "after {:?}", begin.elapsed());
}

#[test]
fn renegotiation_is_refused_and_key_updates_are_accepted() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let steps = [("use a\r\n", "USING a\r\n"), ("R\n", "RENEGOTIATING\n"), ("use b\r\n", "USING b\r\n")];
    let output = s_client_steps(&folder, &address(&daemon, ""), "-tls1_2", &steps);
    assert!(output.contains("USING a") && output.contains("RENEGOTIATING") && !output.contains("USING b"), "{output}");
    let steps =
        [("use a\r\n", "USING a\r\n"), ("K\n", "KEYUPDATE\n"), ("use b\r\n", "USING b\r\n"), ("k\n", "KEYUPDATE\n")];
    let steps = [&steps[..], &[("use c\r\n", "USING c\r\n"), ("Q\n", "DONE")]].concat();
    let output = s_client_steps(&folder, &address(&daemon, ""), "-tls1_3", &steps);
    assert!(["USING a", "USING b", "USING c"].iter().all(|line| output.contains(line)), "{output}");
}
