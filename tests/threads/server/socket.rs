//! A socket that accepts a few bytes at a time, and none while it is full; a reader at the other end makes room.
//!
//! Owns the order in which bytes arrive, and a check of each before it does.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use crate::shims::{Mutex, Ordering};

/// Checks that these bytes may be sent.
pub type Look = Arc<dyn Fn(u8) + Send + Sync>;

#[derive(Default)]
struct Pipe {
    arrived: Vec<u8>,
    /// The number of bytes that it accepts before the peer reads.
    room: usize,
    /// A thread that makes room must notify the owner, as the poller does.
    full: bool,
    /// A thread is writing.
    busy: bool,
}

/// The address of a peer, which is not used here.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress;

/// One end of the connection; a clone is the same end.
#[derive(Clone)]
pub struct Stream(Arc<Mutex<Pipe>>, Look);

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("Stream")
    }
}

impl Stream {
    pub fn new(room: usize, look: Look) -> Stream {
        Stream(Arc::new(Mutex::new(Pipe { room, ..Pipe::default() })), look)
    }

    pub fn write(&self, slices: &[IoSlice]) -> io::Result<usize> {
        // Two threads in here at once could interleave their bytes.
        assert!(!std::mem::replace(&mut self.0.lock().busy, true), "two threads write at once");
        shuttle::thread::yield_now();
        let mut pipe = self.0.lock();
        pipe.busy = false;
        if pipe.room == 0 {
            pipe.full = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(pipe.room).collect();
        bytes.iter().for_each(|byte| (self.1)(*byte));
        pipe.room -= bytes.len();
        pipe.arrived.extend_from_slice(&bytes);
        Ok(bytes.len())
    }

    pub fn unsent(&self) -> usize {
        0
    }

    /// The peer reads: sets the room to this many bytes. Returns `true` if a writer had found it full.
    pub fn make_room(&self, bytes: usize) -> bool {
        let mut pipe = self.0.lock();
        pipe.room = pipe.room.max(bytes);
        std::mem::take(&mut pipe.full)
    }

    /// Returns everything that arrived.
    pub fn arrived(&self) -> Vec<u8> {
        self.0.lock().arrived.clone()
    }
}

/// A check that allows everything.
pub fn anything() -> Look {
    Arc::new(|_| {})
}

/// A check that allows a byte only when the log is durable up to it.
pub fn only_durable(hub: Arc<super::hub::Hub>) -> Look {
    Arc::new(move |byte| {
        let durable = hub.durability().wal().durable();
        let may = u64::from(byte) <= durable || hub.lesser.load(Ordering::Acquire) >> byte & 1 == 1;
        assert!(may, "the reply to position {byte} leaves while the log is durable up to {durable}");
    })
}
