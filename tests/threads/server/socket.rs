//! A simulated socket that accepts only a few bytes until the peer reads.
//!
//! Owns the order of the received bytes, and calls a check for each byte.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use crate::shims::{Mutex, Ordering};

/// A check that is called for each byte. It panics if the byte must not be sent yet.
pub type Look = Arc<dyn Fn(u8) + Send + Sync>;

/// The maximum number of bytes in a send, so small that most sends do not send all output.
pub const MAX_SENT: usize = 1;

#[derive(Default)]
struct Pipe {
    arrived: Vec<u8>,
    /// The number of bytes that the socket accepts before the peer reads again.
    room: usize,
    /// `true` if the socket was full during a write. The thread that then makes room must wake the owner, as the poller
    /// does in the server.
    full: bool,
    busy: bool,
}

/// A stub of the peer's address, which the scenes do not use.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress;

/// One end of a connection. Clones refer to the same end.
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
        // Concurrent writes could interleave their bytes.
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

    /// Simulates that the peer reads, so that the socket accepts `bytes` bytes. Returns `true` if the socket was full
    /// during a write.
    pub fn make_room(&self, bytes: usize) -> bool {
        let mut pipe = self.0.lock();
        pipe.room = pipe.room.max(bytes);
        std::mem::take(&mut pipe.full)
    }

    pub fn arrived(&self) -> Vec<u8> {
        self.0.lock().arrived.clone()
    }
}

/// Returns a check that permits every byte.
pub fn anything() -> Look {
    Arc::new(|_| {})
}

/// Returns a check that permits a byte only if the log is durable up to the position that the byte contains, or if
/// `lesser` contains this position.
pub fn only_durable(hub: Arc<super::hub::Hub>) -> Look {
    Arc::new(move |byte| {
        let durable = hub.durability().wal.durable();
        let may = u64::from(byte) <= durable || hub.lesser.load(Ordering::Acquire) >> byte & 1 == 1;
        assert!(may, "the reply for position {byte} was sent while the log was durable up to {durable}");
    })
}
