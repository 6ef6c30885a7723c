//! The end of a connection that the server closes.
//!
//! Owns what is done so that the peer still hears the last reply.

use std::io::IoSliceMut;

use super::{Connection, ThreadScratch};

/// Reads in a row of what nobody will answer.
const LAST_READS: usize = 16;

impl Connection {
    /// Reads what is there and forgets it: a TCP connection that is closed with bytes unread is reset, and what the
    /// peer has not received yet is lost.
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
