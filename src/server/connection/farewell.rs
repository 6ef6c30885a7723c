//! The end of a connection that the server closes.
//!
//! Owns the steps that let the peer still receive the last reply.

use std::io::IoSliceMut;

use super::{Connection, ThreadScratch};

/// Maximum number of reads of input that nobody will process.
const LAST_READS: usize = 16;

impl Connection {
    /// Drains and discards pending input. Closing a TCP connection with unread bytes resets it, and data that the peer
    /// has not received yet would be lost.
    pub fn discard(&self, thread: &mut ThreadScratch) {
        if self.ended {
            return;
        }
        for _ in 0..LAST_READS {
            match self.outbox.stream().read(&mut [IoSliceMut::new(&mut thread.buffer)]) {
                Ok(1..) => {}
                _ => return,
            }
        }
    }
}
