//! The client side of most scenarios. It handles many connections in one thread.
//!
//! Owns the sockets, the buffers and the number of outstanding replies. A single connection uses blocking reads, like a
//! client library. Several connections are nonblocking and multiplexed. A [`Load`] creates the requests and checks
//! every reply. Must not depend on the measurement.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::wire::{self, Out, Reply};

/// The server is considered hung after this time without any reply.
pub const PATIENCE: Duration = Duration::from_secs(30);

const BUFFER: usize = 256 * 1024;

/// The number of connections to open before waiting for the server. Must be less than the server's listen backlog.
const CONNECT_GROUP: usize = 100;

/// Creates the requests of all connections and checks the replies.
pub trait Load {
    /// Appends the first requests of a connection, or the next requests of a connection that `poke` has returned.
    fn start(&mut self, connection: usize, now: Instant, out: &mut Out);

    /// Checks a reply and appends the next requests.
    fn reply(&mut self, connection: usize, now: Instant, reply: Reply, out: &mut Out) -> Result<(), String>;

    /// Returns the index of another connection that can send its next requests as a result of the last reply.
    fn poke(&mut self) -> Option<usize> {
        None
    }

    fn operations(&self) -> u64 {
        0
    }
}

/// The condition that ends a run.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// This many operations are complete, or this much time has passed.
    Work(u64, Duration),
    /// At most this many replies are outstanding, for example to workers that wait for a job.
    Quiet(usize),
}

#[derive(Debug)]
enum Stream {
    Blocking(std::net::TcpStream),
    Polled(mio::net::TcpStream),
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    /// The received part of an incomplete reply.
    rest: Vec<u8>,
    unsent: Vec<u8>,
    expected: usize,
}

#[derive(Debug)]
pub struct Driver {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    address: SocketAddr,
    buffer: Vec<u8>,
    out: Out,
    expected: usize,
}

fn text(error: io::Error) -> String {
    format!("the connection failed: {error}")
}

impl Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Blocking(stream) => stream.read(buffer),
            Stream::Polled(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Blocking(stream) => stream.write(bytes),
            Stream::Polled(stream) => stream.write(bytes),
        }
    }
}

impl Driver {
    pub fn connect(address: SocketAddr, count: usize) -> Result<Driver, String> {
        let mut driver = Driver {
            poll: Poll::new().map_err(text)?,
            events: Events::with_capacity(1024),
            connections: Vec::new(),
            address,
            buffer: vec![0; BUFFER],
            out: Out::default(),
            expected: 0,
        };
        if count == 1 {
            let stream = std::net::TcpStream::connect(address).map_err(text)?;
            stream.set_nodelay(true).map_err(text)?;
            stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
            driver.connections.push(Connection::of(Stream::Blocking(stream)));
        } else {
            driver.add(count)?;
        }
        Ok(driver)
    }

    /// Opens `count` more connections, which are nonblocking. Must not be called if the driver has a single connection,
    /// because that connection is blocking.
    pub fn add(&mut self, count: usize) -> Result<(), String> {
        for number in 1..=count {
            let mut stream = std::net::TcpStream::connect(self.address).map_err(text)?;
            stream.set_nodelay(true).map_err(text)?;
            if number % CONNECT_GROUP == 0 {
                settle(&mut stream).map_err(text)?;
            }
            stream.set_nonblocking(true).map_err(text)?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(self.connections.len());
            self.poll.registry().register(&mut stream, token, interest).map_err(text)?;
            self.connections.push(Connection::of(Stream::Polled(stream)));
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.connections.len()
    }

    pub fn is_quiet(&self, waiting: usize) -> bool {
        self.expected <= waiting
    }

    pub fn start(&mut self, load: &mut impl Load, which: std::ops::Range<usize>) -> Result<(), String> {
        for connection in which {
            load.start(connection, Instant::now(), &mut self.out);
            self.send(connection)?;
        }
        Ok(())
    }

    /// Sends the requests that `ask` appends for each connection in `which`, and waits for all replies. Fails if a
    /// reply is an error.
    pub fn ask(&mut self, which: std::ops::Range<usize>, ask: impl FnMut(usize, &mut Out)) -> Result<(), String> {
        let waiting = self.expected;
        let mut polite = Polite { ask };
        for connection in which {
            self.start(&mut polite, connection..connection + 1)?;
            // Waits after each group of connections, so that the server's socket buffers do not fill up.
            if connection % CONNECT_GROUP == 0 {
                self.run(&mut polite, Until::Quiet(waiting))?;
            }
        }
        self.run(&mut polite, Until::Quiet(waiting))
    }

    pub fn run(&mut self, load: &mut impl Load, until: Until) -> Result<(), String> {
        let start = Instant::now();
        let mut last = (start, 0);
        let mut now = start;
        loop {
            let over = match until {
                Until::Work(count, time) => load.operations() >= count || now.duration_since(start) >= time,
                Until::Quiet(waiting) => self.is_quiet(waiting),
            };
            if over {
                return Ok(());
            }
            if self.expected == 0 {
                return Err("no replies are outstanding".to_owned());
            }
            now = self.turn(load, Some(Duration::from_millis(100)))?;
            let progress = load.operations() ^ (self.expected as u64) << 40;
            if progress != last.1 {
                last = (now, progress);
            } else if now.duration_since(last.0) > PATIENCE {
                return Err(format!("no progress in {PATIENCE:?}; {} replies are missing", self.expected));
            }
        }
    }

    /// Handles replies that arrive within `timeout` (on a blocking connection, within [`PATIENCE`]). Returns the
    /// current time.
    pub fn turn(&mut self, load: &mut impl Load, timeout: Option<Duration>) -> Result<Instant, String> {
        if let [Connection { stream: Stream::Blocking(_), .. }] = self.connections[..] {
            self.receive(0, load)?;
            return Ok(Instant::now());
        }
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        match self.poll.poll(&mut events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(text(error)),
            _ => {}
        }
        for event in &events {
            let connection = event.token().0;
            if event.is_writable() && !self.connections[connection].unsent.is_empty() {
                self.send(connection)?;
            }
            if event.is_readable() {
                self.receive(connection, load)?;
            }
        }
        self.events = events;
        Ok(Instant::now())
    }

    fn receive(&mut self, number: usize, load: &mut impl Load) -> Result<(), String> {
        loop {
            let connection = &mut self.connections[number];
            let kept = connection.rest.len();
            if self.buffer.len() < kept + BUFFER / 2 {
                self.buffer.resize(kept + BUFFER, 0);
            }
            self.buffer[..kept].copy_from_slice(&connection.rest);
            let count = match connection.stream.read(&mut self.buffer[kept..]) {
                Ok(0) => return Err("the server closed a connection".to_owned()),
                Ok(count) => count,
                Err(error)
                    if matches!(connection.stream, Stream::Polled(_)) && error.kind() == ErrorKind::WouldBlock =>
                {
                    return Ok(())
                }
                Err(error) => return Err(text(error)),
            };
            let now = Instant::now();
            let mut input = &self.buffer[..kept + count];
            let mut answered = 0;
            while let Some(reply) = wire::next(&mut input)? {
                answered += 1;
                load.reply(number, now, reply, &mut self.out)?;
            }
            connection.rest.clear();
            connection.rest.extend_from_slice(input);
            if answered > connection.expected {
                return Err(format!("{} unexpected replies", answered - connection.expected));
            }
            connection.expected -= answered;
            self.expected -= answered;
            let whole = kept + count == self.buffer.len();
            self.send(number)?;
            while let Some(other) = load.poke() {
                load.start(other, now, &mut self.out);
                self.send(other)?;
            }
            if !whole || matches!(self.connections[number].stream, Stream::Blocking(_)) {
                return Ok(());
            }
        }
    }

    fn send(&mut self, number: usize) -> Result<(), String> {
        let connection = &mut self.connections[number];
        connection.expected += self.out.replies;
        self.expected += self.out.replies;
        self.out.replies = 0;
        if !connection.unsent.is_empty() {
            connection.unsent.append(&mut self.out.bytes);
            std::mem::swap(&mut connection.unsent, &mut self.out.bytes);
        }
        let mut sent = 0;
        while sent < self.out.bytes.len() {
            match connection.stream.write(&self.out.bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(text(error)),
            }
        }
        connection.unsent.clear();
        connection.unsent.extend_from_slice(&self.out.bytes[sent..]);
        self.out.bytes.clear();
        Ok(())
    }
}

impl Connection {
    fn of(stream: Stream) -> Connection {
        Connection { stream, rest: Vec::new(), unsent: Vec::new(), expected: 0 }
    }
}

/// Waits until the server has accepted this connection and all earlier ones.
fn settle(stream: &mut std::net::TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(wire::QUESTION)?;
    let mut answer = vec![0; wire::ANSWER];
    stream.read_exact(&mut answer)
}

/// A load that accepts all replies except errors.
struct Polite<F> {
    ask: F,
}

impl<F: FnMut(usize, &mut Out)> Load for Polite<F> {
    fn start(&mut self, connection: usize, _: Instant, out: &mut Out) {
        (self.ask)(connection, out);
    }

    fn reply(&mut self, _: usize, _: Instant, reply: Reply, _: &mut Out) -> Result<(), String> {
        match reply {
            reply @ Reply::Other(_) => Err(wire::unexpected(reply)),
            _ => Ok(()),
        }
    }
}
