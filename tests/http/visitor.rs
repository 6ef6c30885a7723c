//! A server for HTTP tests, and an HTTP client that can send arbitrary bytes.
//!
//! Owns the parsing of replies. Must not depend on the server, except for its addresses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use beanpole::internals::protocol::Wire;
use beanpole::{Address, Client, Config, ManualClock, Server};

const PATIENCE: Duration = Duration::from_secs(300);

pub struct Visited {
    pub server: Server,
    pub clock: ManualClock,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

pub struct Visitor(BufReader<TcpStream>);

/// Starts a server that permits changes over HTTP. `change` can modify the configuration.
pub fn serve(change: impl FnOnce(&mut Config)) -> Visited {
    let mut config = Config::embedded().with(|config| config.http = vec![Address::Tcp(None, None)]);
    config.protocols.http.admin = true;
    change(&mut config);
    let (server, clock) = Server::with_manual_clock(config).expect("a server");
    Visited { server, clock }
}

impl Visited {
    pub fn visitor(&self) -> Visitor {
        Visitor::to(self.server.address_of(Wire::Http).expect("an address"))
    }

    /// Returns `true` if the server replies to a health check. At its connection limit, the server may refuse or reset
    /// the connection.
    pub fn is_healthy(&self) -> bool {
        let address = self.server.address_of(Wire::Http).expect("an address");
        let Ok(mut stream) = TcpStream::connect(address) else { return false };
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut reply = Vec::new();
        let _ = stream.write_all(request).and_then(|()| stream.read_to_end(&mut reply).map(drop));
        reply.starts_with(b"HTTP/1.1 200 ")
    }

    pub fn client(&self) -> Client {
        Client::connect(self.server.address()).expect("a connection")
    }

    /// Returns the body of a page, which must exist.
    pub fn get(&self, path: &str) -> String {
        let reply = self.visitor().get(path);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.body
    }

    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        let reply = self.visitor().post(path, body);
        (reply.status, reply.body)
    }
}

impl Visitor {
    pub fn to(address: std::net::SocketAddr) -> Visitor {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Visitor(BufReader::new(stream))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        // The server may have closed the connection after an error.
        let _ = self.0.get_mut().write_all(bytes);
    }

    pub fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        self.reply()
    }

    pub fn post(&mut self, path: &str, body: &str) -> Reply {
        let headers = "Host: localhost\r\nX-Beanpole: 1\r\nContent-Type: application/json";
        let length = body.len();
        let request = format!("POST {path} HTTP/1.1\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}");
        self.send(request.as_bytes());
        self.reply()
    }

    pub fn reply(&mut self) -> Reply {
        self.reply_of(true)
    }

    /// Reads a reply. `has_body` must be `false` for a reply to HEAD, which has a Content-Length but no body.
    pub fn reply_of(&mut self, has_body: bool) -> Reply {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(
                self.0.read_line(&mut head).expect("a line"),
                0,
                "the connection was closed within the head: {head:?}"
            );
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.filter(|_| has_body).map_or(0, |length| length.parse().expect("a length"));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        Reply { status, head, body: String::from_utf8_lossy(&body).into_owned() }
    }

    /// Returns `true` if the server has closed the connection without sending more bytes.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
