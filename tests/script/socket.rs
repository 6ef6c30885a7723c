//! Conversations over real sockets, with whatever server is at the other end.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{Patience, Wire, World};

/// How long bytes may take that must come.
const MUST: Duration = Duration::from_secs(5);

/// A connection of either kind.
#[allow(dead_code)] // not every test program uses both
pub enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct Peer {
    connection: Connection,
    ended: bool,
}

/// See the module's page. The four functions are what servers differ in.
pub struct Sockets<'a> {
    pub connect: Box<dyn FnMut(Wire) -> Connection + 'a>,
    pub pass: Box<dyn FnMut(Duration) + 'a>,
    pub drain: Box<dyn FnMut() + 'a>,
    /// How long to listen for bytes that must not come, and to let the server work before time passes.
    pub quiet: Duration,
    peers: BTreeMap<String, Peer>,
}

impl Connection {
    fn set_timeout(&self, timeout: Duration) {
        let set = match self {
            Connection::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Connection::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        };
        set.expect("a connection with time-outs");
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

    fn shut_down(&self) {
        // The server may have closed first.
        let _ = match self {
            Connection::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Connection::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl<'a> Sockets<'a> {
    /// A world of connections that `connect` makes.
    pub fn new(
        connect: impl FnMut(Wire) -> Connection + 'a,
        pass: impl FnMut(Duration) + 'a,
        drain: impl FnMut() + 'a,
        quiet: Duration,
    ) -> Sockets<'a> {
        let (connect, pass, drain) = (Box::new(connect), Box::new(pass), Box::new(drain));
        Sockets { connect, pass, drain, quiet, peers: BTreeMap::new() }
    }
}

impl World for Sockets<'_> {
    fn open(&mut self, who: &str, wire: Wire) {
        let connection = (self.connect)(wire);
        self.peers.insert(who.to_owned(), Peer { connection, ended: false });
    }

    fn send(&mut self, who: &str, bytes: &[u8]) {
        // A server that has closed may refuse them; what it said before is what counts.
        let _ = self.peers.get_mut(who).expect("a connected peer").connection.write(bytes);
    }

    fn receive(&mut self, who: &str, patience: Patience) -> Vec<u8> {
        let peer = self.peers.get_mut(who).expect("a connected peer");
        peer.connection.set_timeout(if patience == Patience::Must { MUST } else { self.quiet });
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
    }

    fn close(&mut self, who: &str) {
        self.peers.remove(who);
    }

    fn pass(&mut self, time: Duration) {
        std::thread::sleep(self.quiet);
        (self.pass)(time);
    }

    fn drain(&mut self) {
        std::thread::sleep(self.quiet);
        (self.drain)();
    }
}
