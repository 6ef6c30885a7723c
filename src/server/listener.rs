//! Listener threads, one per listening address. Each blocks in `accept`, and hands connections to pool threads or
//! rejects them. If a lack of descriptors or memory prevents even a rejection, the thread waits and tries again.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Registry, Token};
use nix::libc::{EMFILE, ENFILE};

use super::admission::Refusal;
use super::hub::Hub;
use super::socket::{Listener, PeerAddress, Stream};
use crate::protocol::Wire;
use crate::shared::lock_order::LeafMutex;

/// The pause if a lack of descriptors or memory prevents even the rejection of a connection.
const PAUSE: Duration = Duration::from_millis(50);

const QUIET: Duration = Duration::from_secs(60);

pub struct Threads {
    pub arrivals: Vec<Arc<Arrivals>>,
    pub next: AtomicUsize,
}

struct Acceptor<'a> {
    listener: &'a Listener,
    wire: Wire,
    hub: &'a Hub,
    threads: &'a Threads,
    /// A spare descriptor, which the thread closes to accept a connection when no other descriptor is free.
    spare: Option<OwnedFd>,
    logged: [Option<Instant>; Refusal::Memory as usize + 1],
}

pub fn run(listener: &Listener, wire: Wire, hub: &Arc<Hub>, threads: &Threads, spare: Option<OwnedFd>) {
    let mut acceptor = Acceptor { listener, wire, hub, threads, spare, logged: Default::default() };
    let mut short = false;
    loop {
        let accepted = listener.accept();
        if hub.is_stopping() {
            return;
        }
        match accepted {
            Ok((stream, peer)) => {
                short = false;
                acceptor.admit(stream, peer);
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(error) if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) && acceptor.spare.is_some() => {
                acceptor.accept_on_spare();
            }
            Err(error) => {
                if !short {
                    log::error!("{}: no connection can be accepted: {error}", listener.name());
                }
                short = true;
                std::thread::sleep(PAUSE);
                acceptor.spare = listener.duplicate().ok();
            }
        }
    }
}

impl Acceptor<'_> {
    fn admit(&mut self, stream: Stream, peer: PeerAddress) {
        let (admission, is_http) = (&self.hub.admission, self.wire == Wire::Http);
        match admission.admit(&peer, is_http) {
            Ok(()) => {
                let turn = self.threads.next.fetch_add(1, Ordering::Relaxed);
                let arrivals = &self.threads.arrivals[turn % self.threads.arrivals.len()];
                if let Err(error) = arrivals.add(Arrival { stream, peer, wire: self.wire }) {
                    log::warn!("{peer}: cannot be served: {error}");
                    admission.leave(&peer, is_http);
                }
            }
            Err(refusal) => self.reject(&stream, peer, refusal),
        }
    }

    fn accept_on_spare(&mut self) {
        self.spare = None;
        if let Ok((stream, peer)) = self.listener.accept() {
            if self.hub.is_stopping() {
                return;
            }
            self.spare = self.listener.duplicate().ok();
            if self.spare.is_some() {
                return self.admit(stream, peer);
            }
            self.reject(&stream, peer, Refusal::Files);
        }
        self.spare = self.listener.duplicate().ok();
    }

    /// Reads the input first: closing a socket with unread input resets the connection, and the reply could be lost.
    fn reject(&mut self, stream: &Stream, peer: PeerAddress, refusal: Refusal) {
        let mut scrap = [0; 4096];
        let _ = stream.read(&mut [IoSliceMut::new(&mut scrap)]);
        if !peer.is_tls {
            let _ = stream.write(&[IoSlice::new(self.wire.too_many_connections())]);
        }
        self.hub.process.rejected.fetch_add(1, Ordering::Relaxed);
        let logged = &mut self.logged[refusal as usize];
        if logged.is_none_or(|logged| logged.elapsed() >= QUIET) {
            *logged = Some(Instant::now());
            let reason = refusal.reason();
            log::warn!("{peer}: turned away: {reason} (others are too, without a line for the next minute)");
        }
    }
}

pub struct Arrival {
    pub stream: Stream,
    pub peer: PeerAddress,
    pub wire: Wire,
}

impl Arrival {
    fn token(&self) -> Token {
        Token(self.stream.as_raw_fd() as usize)
    }
}

pub struct Arrivals {
    registry: Registry,
    waiting: LeafMutex<VecDeque<Arrival>>,
}

impl Arrivals {
    pub fn new(registry: Registry) -> Arrivals {
        Arrivals { registry, waiting: LeafMutex::default() }
    }

    /// A new connection is writable, so the poller reports it immediately.
    pub fn add(&self, arrival: Arrival) -> io::Result<()> {
        let mut waiting = self.waiting.lock();
        let token = arrival.token();
        arrival.stream.register(&self.registry, token)?;
        waiting.push_back(arrival);
        Ok(())
    }

    /// Takes the first connection. The `bool` is `true` if the connection has the given token.
    pub fn take(&self, token: Token) -> Option<(Arrival, bool)> {
        let arrival = self.waiting.lock().pop_front()?;
        let is_match = arrival.token() == token;
        Some((arrival, is_match))
    }
}
