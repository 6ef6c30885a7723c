//! Accepted connections that a pool thread has not taken yet.
//!
//! Owns the hand-over of connections. A listener registers a connection with the pool thread's poller, and the first
//! event makes the thread take the connection. Therefore, the thread needs no other wake-up, and a request that has
//! already arrived is reported by the same event. Must not serve connections.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

use mio::{Registry, Token};

use super::socket::{PeerAddress, Stream};
use crate::protocol::Wire;
use crate::shared::lock_order::LeafMutex;

#[derive(Debug)]
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

#[derive(Debug)]
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

    /// Takes the first connection. The flag is `true` if the connection has the given token.
    pub fn take(&self, token: Token) -> Option<(Arrival, bool)> {
        let arrival = self.waiting.lock().pop_front()?;
        let is_match = arrival.token() == token;
        Some((arrival, is_match))
    }
}
