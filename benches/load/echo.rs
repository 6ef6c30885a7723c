//! A server that only reads and writes. Its costs are the minimum costs of the socket operations.
//!
//! Owns a single-threaded echo server on `mio`. The server counts bytes to find the number of requests in a read, and
//! replies to all of them with one write. It parses only the greeting.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

/// The reply to every request. It is as long as a server's reply to a put.
const REPLY: &[u8] = b"INSERTED 1000000\r\n";

/// The request with which the benchmark checks that the server is ready, and the reply to this request.
const GREETING: (&[u8], &[u8]) = (b"list-tube-used\r\n", b"USING default\r\n");

const LISTENER: Token = Token(usize::MAX);

/// Prints the address, then serves until the end of standard input.
pub fn run(request_length: usize) -> io::Result<()> {
    std::thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let mut listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    println!("{}", listener.local_addr()?);
    let mut events = Events::with_capacity(256);
    let mut connections: Vec<(TcpStream, usize)> = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    poll.registry().register(&mut stream, Token(connections.len()), Interest::READABLE)?;
                    connections.push((stream, 0));
                }
            } else {
                let (stream, pending) = &mut connections[event.token().0];
                // A slot is not reused after its connection has closed, so a failed connection needs no cleanup.
                let _ = answer(stream, pending, request_length, &mut buffer);
            }
        }
    }
}

fn answer(stream: &mut TcpStream, pending: &mut usize, length: usize, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        let count = match stream.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        if &buffer[..count] == GREETING.0 {
            stream.write_all(GREETING.1)?;
            return Ok(());
        }
        *pending += count;
        let replies = *pending / length;
        *pending %= length;
        if replies == 1 {
            stream.write_all(REPLY)?;
        } else if replies > 1 {
            stream.write_all(&REPLY.repeat(replies))?;
        }
        if count < buffer.len() {
            return Ok(());
        }
    }
}
