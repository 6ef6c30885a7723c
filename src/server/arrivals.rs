//! Accepted connections on their way to a pool thread.
//!
//! Owns the hand-over: the listener registers a connection with the thread's poller, whose first event makes the thread
//! take the connection. So the thread needs no other wake-up, and a request that has already arrived is reported by the
//! same event. Must not serve connections.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

use mio::{Registry, Token};

use super::socket::{PeerAddress, Stream};
use crate::protocol::Wire;
use crate::shared::lock_order::LeafMutex;

/// An admitted connection, with its peer and its protocol.
#[derive(Debug)]
pub struct Arrival {
    pub stream: Stream,
    pub peer: PeerAddress,
    pub wire: Wire,
}

impl Arrival {
    /// The token under which the poller reports it: the number of its file.
    fn token(&self) -> Token {
        Token(self.stream.as_raw_fd() as usize)
    }
}

/// The connections that one pool thread has not taken yet.
#[derive(Debug)]
pub struct Arrivals {
    registry: Registry,
    waiting: LeafMutex<VecDeque<Arrival>>,
}

impl Arrivals {
    /// Creates the queue of the thread with this poller.
    pub fn new(registry: Registry) -> Arrivals {
        Arrivals { registry, waiting: LeafMutex::default() }
    }

    /// Adds a connection, which the thread takes when the poller reports it. A new connection is writable, so the
    /// poller reports it immediately.
    pub fn add(&self, mut arrival: Arrival) -> io::Result<()> {
        let mut waiting = self.waiting.lock();
        let token = arrival.token();
        arrival.stream.register(&self.registry, token)?;
        waiting.push_back(arrival);
        Ok(())
    }

    /// Takes the first connection, and returns whether it is the one with this token.
    pub fn take(&self, token: Token) -> Option<(Arrival, bool)> {
        let arrival = self.waiting.lock().pop_front()?;
        let is_it = arrival.token() == token;
        Some((arrival, is_it))
    }
}
