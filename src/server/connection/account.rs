//! The memory charged for a connection's input, and the end of a connection.
//!
//! Owns the number of bytes read and not yet processed; pending output belongs to the outbox. Must not close
//! connections.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::Instant;

use super::{Connection, Hub, ThreadScratch};
use crate::engine::LongCommand;
use crate::protocol::Request;
use crate::server::space::SpaceRequest;

/// A connection with more than this charged to it is freed on another thread when it ends.
const DISCARDED: u64 = 1 << 20;

/// Maximum number of reads of input that nobody will process.
const LAST_READS: usize = 16;

/// Input that a connection keeps while its thread serves others.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Bytes that are not a complete request yet, or that follow an unfinished request.
    pub(super) rest: Box<[u8]>,
    /// Requests that follow an unfinished request.
    pub(super) pending: VecDeque<Request>,
    /// Bytes charged to the memory account for input: unfinished requests and a partially received body.
    ahead: u64,
    uploading: u64,
    /// When the client last sent something, if input is charged to the account.
    pub(super) last_received: Option<Instant>,
    /// `true` if the client has sent something since the last charge.
    pub(super) received: bool,
    /// Log space that the next command waits for.
    pub(super) space_request: SpaceRequest,
}

impl Backlog {
    /// Bytes charged to the memory account.
    fn charged(&self) -> u64 {
        self.ahead + self.uploading
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
            && self.rest.is_empty()
            && self.charged() == 0
            && self.space_request == SpaceRequest::default()
    }
}

impl Connection {
    pub(super) fn backlog(&mut self) -> &mut Backlog {
        self.backlog.get_or_insert_default()
    }

    pub fn has_pending(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| !backlog.pending.is_empty())
    }

    pub fn has_rest(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| !backlog.rest.is_empty())
    }

    /// Takes the command in progress that is completed even after the client has disconnected, if there is one.
    pub fn take_operation(&mut self) -> Option<LongCommand> {
        self.backlog.as_mut()?.pending.pop_front()?.into_operation()
    }

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

    /// Ends the connection: deregisters it from the poller and returns its charges.
    pub fn free(self, hub: &Hub, registry: &mio::Registry) {
        self.outbox.close_tls();
        // The client is gone, so no other thread can get a new reference to the outbox. If this is the last reference,
        // the socket closes here, which also deregisters it.
        let is_heavy = self.outbox.leave();
        if is_heavy || Arc::strong_count(&self.outbox) > 1 {
            let _ = self.outbox.stream().deregister(registry);
        }
        if let Some(backlog) = self.backlog {
            hub.memory.charge(backlog.ahead, 0);
            hub.memory.charge_upload(backlog.uploading, 0);
            if let Some(log) = hub.log() {
                log.space().cancel(backlog.space_request, &self.outbox);
            }
            if backlog.charged() > DISCARDED {
                hub.discard((self.dialogue, backlog));
            }
        }
        if is_heavy {
            hub.discard(self.outbox);
        }
        // The turn in which the client disconnected still counted this memory as used, and there may be no other turn.
        hub.give_back_soon();
    }

    /// Charges `ahead` bytes of unprocessed input, including a partially received body.
    #[inline]
    pub(super) fn charge(&mut self, ahead: u64, hub: &Hub) {
        let uploading = self.dialogue.uploading();
        if ahead + uploading + self.backlog.as_ref().map_or(0, |backlog| backlog.charged()) > 0 {
            self.replace_charge(ahead, uploading, hub);
        }
    }

    #[inline(never)] // few requests are charged to the account
    fn replace_charge(&mut self, ahead: u64, uploading: u64, hub: &Hub) {
        let backlog = self.backlog();
        hub.memory.charge(backlog.ahead, ahead);
        hub.memory.charge_upload(backlog.uploading, uploading);
        (backlog.ahead, backlog.uploading) = (ahead, uploading);
        if ahead + uploading > 0 && std::mem::take(&mut backlog.received) {
            backlog.last_received = Some(Instant::now());
        }
    }

    /// Returns the memory that the connection uses above the base amount, and the time of its last activity.
    pub fn burden(&self) -> (u64, Option<Instant>) {
        let (unread, stuck) = self.outbox.burden();
        let Some(backlog) = &self.backlog else { return (unread, stuck) };
        let own = backlog.charged();
        (unread + own, stuck.max(backlog.last_received.filter(|_| own > 0)))
    }
}
