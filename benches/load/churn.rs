//! Measures clients that connect, put one job and disconnect.
//!
//! Varies the source addresses within 127.0.0.0/8, because connections in the state TIME_WAIT would use up the ports of
//! one address.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use super::measure::{Bench, Outcome, Span};
use super::process::Server;
use super::stats::Histogram;
use super::verify::{Bodies, Ledger};
use super::wire::{next, Out, Reply};

const CLIENTS: usize = 32;

const PER_ADDRESS: usize = 4096;

const MAX_CONNECTIONS: usize = 60_000;

struct Churn<'a> {
    server: &'a Server,
    poll: Poll,
    clients: Vec<Option<(mio::net::TcpStream, usize, Instant)>>,
    bodies: Bodies,
    ledger: Ledger,
    out: Out,
    done: u64,
    times: Histogram,
}

/// Returns the next source address, from a part of 127.0.0.0/8 that nothing else uses.
fn source() -> SocketAddr {
    static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);
    let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed) / PER_ADDRESS;
    (Ipv4Addr::new(127, 77, (number / 250 % 250) as u8, (number % 250) as u8 + 1), 0).into()
}

impl Churn<'_> {
    fn open(&mut self, place: usize) -> std::io::Result<()> {
        let now = Instant::now();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&source().into())?;
        // Connecting over loopback does not block, so connect first, and make the socket nonblocking afterwards.
        socket.connect(&self.server.address.into())?;
        socket.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(socket.into());
        let number = self.ledger.next();
        self.bodies.put(number, &mut self.out);
        stream.write_all(&self.out.bytes)?;
        self.out.bytes.clear();
        self.poll.registry().register(&mut stream, Token(place), Interest::READABLE)?;
        self.clients[place] = Some((stream, number, now));
        Ok(())
    }

    fn close(&mut self, place: usize) -> Result<(), String> {
        let Some((mut stream, number, since)) = self.clients[place].take() else { return Ok(()) };
        let mut buffer = [0; 64];
        let count = stream.read(&mut buffer).map_err(|error| error.to_string())?;
        match next(&mut &buffer[..count])? {
            Some(Reply::Inserted(id)) => self.ledger.inserted(number, id)?,
            other => return Err(format!("an unexpected reply: {other:?}")),
        }
        drop(stream);
        self.times.add(since.elapsed());
        self.done += 1;
        Ok(())
    }

    /// Opens and closes connections until `count` of them are closed or `time` has passed.
    fn run(&mut self, count: usize, time: Duration) -> Result<(), String> {
        let (start, end) = (Instant::now(), self.done + count as u64);
        let mut events = Events::with_capacity(CLIENTS);
        while self.done < end && start.elapsed() < time {
            for place in 0..CLIENTS {
                if self.clients[place].is_none() {
                    self.open(place).map_err(|error| format!("no connection: {error}"))?;
                }
            }
            self.poll.poll(&mut events, Some(Duration::from_secs(5))).map_err(|error| error.to_string())?;
            for event in &events {
                self.close(event.token().0)?;
            }
        }
        Ok(())
    }
}

pub fn churn(bench: Bench) -> Result<Outcome, String> {
    let server = bench.program.start(&[])?;
    let mut churn = Churn {
        server: &server,
        poll: Poll::new().map_err(|error| error.to_string())?,
        clients: (0..CLIENTS).map(|_| None).collect(),
        bodies: Bodies::new(64),
        ledger: Ledger::default(),
        out: Out::default(),
        done: 0,
        times: Histogram::default(),
    };
    churn.run(MAX_CONNECTIONS / 10, bench.scale.warm_up)?;
    churn.times.clear();
    let before = churn.done;
    let span = Span::start(&server);
    churn.run(MAX_CONNECTIONS, bench.scale.time)?;
    Ok(Outcome::of(span.end(churn.done - before, &churn.times)))
}
