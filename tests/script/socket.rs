//! Runs conversations with any server over real sockets.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{Patience, Wire, World};

const MUST: Duration = Duration::from_secs(300);

/// The time limit for expected bytes without [`Sockets::quiesce`]. It is short, because a server other than beanpole
/// might never send these bytes.
const SHOULD: Duration = Duration::from_secs(5);

/// Maximum length of an input that is sent byte by byte.
const SHORT: usize = 1000;

#[allow(dead_code)] // not every test program uses both
pub enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct Peer {
    connection: Connection,
    ended: bool,
}

/// The connections to a server, and functions that control the server or wait for it.
pub struct Sockets<'a> {
    pub connect: Box<dyn FnMut(Wire) -> std::io::Result<Connection> + 'a>,
    pub pass: Box<dyn FnMut(Duration) + 'a>,
    pub drain: Box<dyn FnMut() + 'a>,
    /// Waits until the server has processed all sent bytes. The argument is the number of connections opened so far.
    /// Without this function, the test only waits as described at [`Sockets::quiet`].
    pub quiesce: Option<Box<dyn FnMut(u64) + 'a>>,
    /// Time to wait for bytes that must not arrive. Without `quiesce`, the test also waits this long before it advances
    /// the clock or starts a drain.
    pub quiet: Duration,
    /// `true` to send short inputs one byte at a time in separate packets.
    pub split: bool,
    peers: BTreeMap<String, Peer>,
    opened: u64,
}

impl Connection {
    fn set_timeout(&self, timeout: Duration) {
        let set = match self {
            Connection::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Connection::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        };
        set.expect("a timeout");
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Connection::Tcp(stream) => stream.read(buffer),
            Connection::Unix(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.write_all(bytes),
            Connection::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Disables Nagle's algorithm on TCP connections.
    fn send_at_once(&self) {
        if let Connection::Tcp(stream) = self {
            stream.set_nodelay(true).expect("a connection");
        }
    }

    fn shut_down(&self) {
        // The server may have closed the connection first.
        let _ = match self {
            Connection::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Connection::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl<'a> Sockets<'a> {
    pub fn new(
        connect: impl FnMut(Wire) -> std::io::Result<Connection> + 'a,
        pass: impl FnMut(Duration) + 'a,
        drain: impl FnMut() + 'a,
        quiet: Duration,
    ) -> Sockets<'a> {
        let (connect, pass, drain) = (Box::new(connect), Box::new(pass), Box::new(drain));
        Sockets { connect, pass, drain, quiesce: None, quiet, split: false, peers: BTreeMap::new(), opened: 0 }
    }

    /// Waits until the server has processed all sent bytes. Without `quiesce`, sleeps for the time `quiet` instead.
    fn rest(&mut self) {
        match self.quiesce {
            Some(_) => self.quiesce(),
            None => std::thread::sleep(self.quiet),
        }
    }

    fn quiesce(&mut self) {
        if let Some(quiesce) = &mut self.quiesce {
            quiesce(self.opened);
        }
    }
}

impl World for Sockets<'_> {
    fn open(&mut self, who: &str, wire: Wire) -> Result<(), String> {
        let connection = (self.connect)(wire).map_err(|error| format!("{who} cannot connect: {error}"))?;
        self.peers.insert(who.to_owned(), Peer { connection, ended: false });
        self.opened += 1;
        self.quiesce();
        Ok(())
    }

    fn send(&mut self, who: &str, bytes: &[u8]) {
        // The server may have closed the connection. The test still compares the bytes that the server sent before.
        let connection = &mut self.peers.get_mut(who).expect("a connected peer").connection;
        if !self.split || bytes.len() > SHORT {
            let _ = connection.write(bytes);
            return self.quiesce();
        }
        connection.send_at_once();
        for byte in bytes {
            let _ = connection.write(&[*byte]);
            // Yields, so that the server usually receives the byte separately.
            std::thread::yield_now();
        }
        self.quiesce();
    }

    fn receive(&mut self, who: &str, patience: Patience) -> Vec<u8> {
        let peer = self.peers.get_mut(who).expect("a connected peer");
        let must = if self.quiesce.is_some() { MUST } else { SHOULD };
        peer.connection.set_timeout(if patience == Patience::Must { must } else { self.quiet });
        let mut buffer = vec![0; 65_536];
        match peer.connection.read(&mut buffer) {
            Ok(count) => {
                peer.ended |= count == 0;
                buffer.truncate(count);
                buffer
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Vec::new(),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
                peer.ended = true;
                Vec::new()
            }
        }
    }

    fn ended(&self, who: &str) -> bool {
        self.peers[who].ended
    }

    fn half_close(&mut self, who: &str) {
        self.peers[who].connection.shut_down();
        self.quiesce();
    }

    fn close(&mut self, who: &str) {
        self.peers.remove(who);
        self.quiesce();
    }

    fn pass(&mut self, time: Duration) {
        self.rest();
        (self.pass)(time);
        self.quiesce();
    }

    fn drain(&mut self) {
        self.rest();
        (self.drain)();
        self.quiesce();
    }
}
