//! Helpers for attacks that send a lot of traffic with few system calls.
//!
//! Owns functions to fill and drain tubes, a pipelining connection, and a set of connections that send as much as the
//! server accepts.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use beanpole::Client;
use socket2::{Domain, Socket, Type};

use crate::daemon::{Daemon, PATIENCE};
use crate::wire::figure;

/// Minimum number of bytes in one write. Only the last write can be shorter.
const PIECE: usize = 1 << 15;

/// Time without progress after which `Clients` stop sending.
const STALLED: Duration = Duration::from_millis(700);

/// Returns the server's address for `protocol`, which is `Gearman`, `Workq` or `HTTP`.
pub fn address_of(daemon: &Daemon, protocol: &str) -> SocketAddr {
    let mark = format!(" ({protocol})");
    let http = |name: &str| name.strip_prefix("http://")?.strip_suffix('/')?.parse().ok();
    let other = |name: &str| name.strip_suffix(&*mark)?.parse().ok();
    let address = daemon.names().iter().find_map(|name| if protocol == "HTTP" { http(name) } else { other(name) });
    address.expect("an address for this protocol")
}

pub fn connect_to(daemon: &Daemon, protocol: &str) -> TcpStream {
    let stream = TcpStream::connect(address_of(daemon, protocol)).expect("a connection");
    stream.set_nodelay(true).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a connection");
    stream
}

/// Jobs that differ only in their priorities.
pub struct Jobs<'a> {
    pub tube: &'a str,
    pub count: u64,
    /// Computes the priority from the index of the job.
    pub priority: fn(u64) -> u64,
    pub delay: u64,
    pub ttr: u64,
    pub body: &'a [u8],
}

impl Jobs<'_> {
    /// Describes ready jobs with a body of one byte.
    pub fn ready(tube: &str, count: u64) -> Jobs<'_> {
        Jobs { tube, count, priority: |_| 0, delay: 0, ttr: 3600, body: b"x" }
    }

    /// Puts all jobs, and returns the first ID.
    pub fn put(&self, daemon: &Daemon) -> u64 {
        let (first, refused) = self.put_some(daemon);
        assert_eq!(refused, 0, "puts were refused");
        first.expect("a job")
    }

    /// Like `put`, but accepts OUT_OF_MEMORY replies. Returns the first ID and the number of refused jobs.
    pub fn put_some(&self, daemon: &Daemon) -> (Option<u64>, u64) {
        let stream = daemon.tcp();
        let one = |number| {
            let priority = (self.priority)(number);
            let head = format!("put {priority} {} {} {}\r\n", self.delay, self.ttr, self.body.len());
            [head.as_bytes(), self.body, b"\r\n"].concat()
        };
        let (mut first, mut refused) = (None, 0);
        let setting = std::iter::once(format!("use {}\r\n", self.tube).into_bytes());
        pipeline(&stream, setting.chain(pieces(self.count, one)), self.count + 1, |line| {
            match line.strip_prefix("INSERTED ") {
                Some(id) => first = first.or_else(|| id.parse().ok()),
                None if line == "OUT_OF_MEMORY" => refused += 1,
                None => assert!(line.starts_with("USING"), "unexpected reply: {line}"),
            }
        });
        (first, refused)
    }
}

/// Concatenates `count` commands into pieces of at least [`PIECE`] bytes. Only the last piece can be shorter.
pub fn pieces(count: u64, one: impl Fn(u64) -> Vec<u8>) -> impl Iterator<Item = Vec<u8>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let mut piece = Vec::new();
        while next < count && piece.len() < PIECE {
            piece.extend_from_slice(&one(next));
            next += 1;
        }
        (!piece.is_empty()).then_some(piece)
    })
}

/// Writes all pieces, and meanwhile reads `lines` reply lines and passes each line to `each`.
pub fn pipeline(
    stream: &TcpStream,
    pieces: impl Iterator<Item = Vec<u8>> + Send,
    lines: u64,
    mut each: impl FnMut(&str),
) {
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    std::thread::scope(|scope| {
        let end = EndOnPanic(stream);
        // If a write fails, the reader also fails, and reports the cause.
        scope.spawn(move || pieces.map(|piece| (&*stream).write_all(&piece)).all(|sent| sent.is_ok()));
        let mut line = Vec::new();
        for number in 0..lines {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).unwrap_or_else(|error| panic!("reply {number}: {error}"));
            assert!(length > 0, "the connection ended at reply {number} of {lines}");
            each(std::str::from_utf8(&line).expect("valid UTF-8").trim_end());
        }
        drop(end);
    });
    assert!(reader.buffer().is_empty(), "more replies than commands");
}

/// Shuts down a connection if the thread that reads from it panics, so that a blocked writer ends as well.
pub struct EndOnPanic<'a>(pub &'a TcpStream);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.shutdown(Shutdown::Both);
        }
    }
}

/// Reserves `count` existing jobs of a tube, and returns their IDs in order.
pub fn reserve_all(stream: &TcpStream, tube: &str, count: u64) -> Vec<u64> {
    let mut ids = Vec::with_capacity(count as usize);
    let setting = std::iter::once(format!("watch {tube}\r\nignore default\r\n").into_bytes());
    let reserves = pieces(count, |_| b"reserve-with-timeout 0\r\n".to_vec());
    pipeline(stream, setting.chain(reserves), 2 + 2 * count, |line| {
        if let Some(rest) = line.strip_prefix("RESERVED ") {
            ids.push(rest.split(' ').next().and_then(|id| id.parse().ok()).expect("an ID"));
        } else {
            assert!(line.starts_with("WATCHING") || line == "x", "{line} after {} jobs", ids.len());
        }
    });
    ids
}

pub fn tube_figure(daemon: &Daemon, tube: &str, key: &str) -> u64 {
    figure(&mut daemon.client(), &format!("stats-tube {tube}"), key)
}

/// Waits until a tube statistic has the wanted value, and returns the waiting time.
pub fn wait_for_figure(daemon: &Daemon, tube: &str, key: &str, wanted: u64) -> Duration {
    let (began, mut client) = (Instant::now(), daemon.client());
    loop {
        let seen = figure(&mut client, &format!("stats-tube {tube}"), key);
        if seen == wanted {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "{key} of {tube} is {seen} instead of {wanted}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn list_tubes(client: &mut Client) -> Vec<String> {
    let text = client.text("list-tubes").expect("a list");
    text.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
}

/// Connections that all send the same bytes until the server stops reading. They read replies only in `received`.
pub struct Clients {
    members: Vec<(TcpStream, usize)>,
    pub ended: usize,
}

impl Clients {
    /// Opens connections. `receive_buffer` is the size of the clients' receive buffers in bytes.
    pub fn open(daemon: &Daemon, count: usize, receive_buffer: Option<usize>) -> Clients {
        Clients::open_at(daemon.address(), count, receive_buffer)
    }

    pub fn open_at(address: SocketAddr, count: usize, receive_buffer: Option<usize>) -> Clients {
        let connect = |_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            if let Some(size) = receive_buffer {
                socket.set_recv_buffer_size(size).expect("a smaller buffer");
            }
            socket.connect(&address.into()).expect("a connection");
            socket.set_tcp_nodelay(true).expect("a connection");
            socket.set_nonblocking(true).expect("a connection");
            (TcpStream::from(socket), 0)
        };
        Clients { members: (0..count).map(connect).collect(), ended: 0 }
    }

    /// Sends `bytes` on each connection until all are sent or the server stops reading. Counts lost connections in
    /// `ended`. Returns the number of bytes that the system accepted on the remaining connections.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        self.members.iter_mut().for_each(|(_, sent)| *sent = 0);
        let mut progress = Instant::now();
        while progress.elapsed() < STALLED {
            let mut open = false;
            let mut lost = 0;
            self.members.retain_mut(|(stream, sent)| match stream.write(&bytes[*sent..]) {
                _ if *sent == bytes.len() => true,
                Ok(more) => {
                    *sent += more;
                    progress = Instant::now();
                    open = true;
                    true
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    open = true;
                    true
                }
                Err(_) => {
                    lost += 1;
                    false
                }
            });
            self.ended += lost;
            if !open {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.members.iter().map(|(_, sent)| sent).sum()
    }

    /// Returns, without waiting, the first bytes that each connection has received.
    pub fn received(&mut self) -> Vec<String> {
        let hear = |(stream, _): &mut (TcpStream, usize)| {
            let mut bytes = [0; 256];
            let length = stream.read(&mut bytes).unwrap_or(0);
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        self.members.iter_mut().map(hear).collect()
    }
}
