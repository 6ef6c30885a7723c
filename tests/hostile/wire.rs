//! Plain TCP connections, and functions that check whether the server is idle and serves new clients.
//!
//! Owns the definition of an idle server. Must not depend on a particular test.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use beanpole::Client;
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use socket2::SockRef;

use crate::daemon::{wait_until, Daemon, PATIENCE};

/// The number of successive successful checks after which the server counts as idle.
const CHECKS: usize = 10;
const PAUSE: Duration = Duration::from_millis(30);

/// Maximum total processor time that an idle server may use during the checks: a few clock ticks. A server that loops
/// uses much more processor time or, on a busy machine, is always ready to run.
const AT_REST: Duration = Duration::from_millis(30);

/// A connection that reads lines and bodies.
pub struct Wire(BufReader<TcpStream>);

impl Wire {
    /// Connects to the server. Reads time out after [`PATIENCE`].
    pub fn to(daemon: &Daemon) -> Wire {
        Wire::of(daemon.tcp())
    }

    pub fn of(stream: TcpStream) -> Wire {
        Wire(BufReader::with_capacity(1024, stream))
    }

    pub fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    /// Returns the buffered reader of the stream, for tests that need raw bytes.
    pub fn reader(&mut self) -> &mut impl Read {
        &mut self.0
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).expect("an open connection");
    }

    pub fn send_urgent(&self) {
        SockRef::from(self.stream()).send_out_of_band(b"!").expect("an open connection");
    }

    /// Reads a line. Returns the line without its CR LF.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).unwrap_or_else(|error| panic!("{error} after {line:?}"));
        let text = line.strip_suffix(b"\r\n").unwrap_or_else(|| panic!("the connection ended after {line:?}"));
        String::from_utf8_lossy(text).into_owned()
    }

    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    pub fn ask(&mut self, command: &str, reply: &str) {
        self.send(format!("{command}\r\n"));
        assert_eq!(self.line(), reply, "reply to {command}");
    }

    /// Puts a job with a time to run of `ttr` seconds, and returns the ID.
    pub fn put(&mut self, body: &[u8], ttr: u32) -> u64 {
        self.send(put(body, ttr));
        let line = self.line();
        line.strip_prefix("INSERTED ").and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("put: {line}"))
    }

    /// Returns the ID and the body in a RESERVED or FOUND reply.
    pub fn job(&mut self) -> (u64, Vec<u8>) {
        let line = self.line();
        let mut words = line.split(' ');
        assert!(matches!(words.next(), Some("RESERVED" | "FOUND")), "no job: {line}");
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        let (id, length) = (number(), number() as usize);
        let mut body = vec![0; length + 2];
        self.0.read_exact(&mut body).expect("a complete body");
        assert!(body.ends_with(b"\r\n"));
        body.truncate(length);
        (id, body)
    }

    /// Reads and discards lines up to and including `line`.
    pub fn skip_to(&mut self, line: &str) {
        while self.line() != line {}
    }

    /// Checks that the server has closed the connection without sending more bytes.
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(0) => {}
            // If the server closes a connection with unread input, the kernel sends a reset.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && rest.is_empty() => {}
            other => panic!("expected the end of the connection: {other:?} {:?}", String::from_utf8_lossy(&rest)),
        }
    }

    /// Checks that the server sends nothing for `length`.
    pub fn expect_silence(&mut self, length: Duration) {
        assert!(self.0.buffer().is_empty());
        self.stream().set_read_timeout(Some(length)).expect("a connection");
        let mut byte = [0];
        match self.stream().read(&mut byte) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            other => panic!("the server is not silent: {other:?} {byte:?}"),
        }
        self.stream().set_read_timeout(Some(PATIENCE)).expect("a connection");
    }

    pub fn reset(self) {
        SockRef::from(self.stream()).set_linger(Some(Duration::ZERO)).expect("a connection");
    }
}

pub fn put(body: &[u8], ttr: u32) -> Vec<u8> {
    [format!("put 0 0 {ttr} {}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat()
}

pub fn figure(client: &mut Client, command: &str, key: &str) -> u64 {
    let text = client.figure(command, key).expect("statistics");
    text.parse().unwrap_or_else(|_| panic!("{key}: {text}"))
}

/// Requests `stats` over a new connection. Returns the value of a key.
pub fn stat(daemon: &Daemon, key: &str) -> u64 {
    figure(&mut daemon.client(), "stats", key)
}

/// Checks that the server becomes idle and serves a new client. Most tests call this function at their end.
pub fn calm(daemon: &Daemon) {
    at_rest(daemon);
    served(daemon);
}

/// Waits until the server is idle. Fails if the server loops.
pub fn at_rest(daemon: &Daemon) {
    wait_until("the server becomes idle", || {
        let before = daemon.cpu_time();
        let sleeps = (0..CHECKS).all(|_| {
            std::thread::sleep(PAUSE);
            !daemon.states().contains('R')
        });
        sleeps && daemon.cpu_time() - before <= AT_REST
    });
}

pub fn served(daemon: &Daemon) {
    serves(&mut Wire::to(daemon));
}

pub fn serves(client: &mut Wire) {
    client.ask("use bystander", "USING bystander");
    let id = client.put(b"work", 3600);
    client.send("watch bystander\r\nignore default\r\nreserve\r\n");
    client.expect("WATCHING 2");
    client.expect("WATCHING 1");
    assert_eq!(client.job(), (id, b"work".to_vec()));
    client.ask(&format!("delete {id}"), "DELETED");
    client.ask("watch default", "WATCHING 2");
    client.ask("ignore bystander", "WATCHING 1");
    client.ask("use default", "USING default");
}

/// Raises the soft limit on open files to `wanted`, or to the hard limit if that is lower. Returns the resulting limit.
pub fn allow_files(wanted: u64) -> u64 {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let target = wanted.min(hard).max(soft);
    if target > soft {
        setrlimit(Resource::RLIMIT_NOFILE, target, hard).expect("a limit up to the hard limit");
    }
    target
}

/// A reproducible random number generator.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }
}

/// Sets the flag when dropped, so that other threads stop even if the test panics.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
