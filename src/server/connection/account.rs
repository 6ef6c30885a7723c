//! The memory charged for the input of a connection, and the end of the connection. The outbox charges pending output.

use std::{collections::VecDeque, io::IoSliceMut, sync::Arc, time::Instant};

use super::{Connection, Hub, ThreadScratch};
use crate::engine::LongCommand;
use crate::protocol::Request;
use crate::server::space::SpaceRequest;
use crate::server::timeouts::AwaitedPart;

/// If a connection is closed with more charged input bytes than this, another thread frees the input.
const DISCARDED: u64 = 1 << 20;

const LAST_READS: usize = 16;

/// The minimum size of a long list in bytes. Shorter lists take only a few turns, and need not wait for long lists.
const LONG_LIST: u64 = 512 * 1024;

#[derive(Default)]
pub(super) struct Backlog {
    /// Undecoded input, such as the received part of a request, or bytes that follow the pending requests.
    pub(super) rest: Box<[u8]>,
    /// Decoded requests. The first request may have been executed in part.
    pub(super) pending: VecDeque<Request>,
    /// Charged bytes: `ahead` for unprocessed input and for encryption, and `uploading` for an incomplete body.
    ahead: u64,
    uploading: u64,
    /// The time of the client's last input, recorded while input is charged.
    pub(super) last_received: Option<Instant>,
    pub(super) received: bool,
    pub(super) space_request: SpaceRequest,
}

impl Backlog {
    fn charged(&self) -> u64 {
        self.ahead + self.uploading
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
            && self.rest.is_empty()
            && self.charged() == 0
            && self.space_request == SpaceRequest::default()
    }

    /// Keeps only the space that is charged.
    pub(super) fn leave_spare_space(&mut self, queue: &mut VecDeque<Request>) {
        if self.pending.len() < self.pending.capacity() {
            let needed = self.pending.drain(..).collect();
            *queue = std::mem::replace(&mut self.pending, needed);
        }
    }
}

impl Connection {
    pub(super) fn backlog(&mut self) -> &mut Backlog {
        self.backlog.get_or_insert_default()
    }

    pub fn has_pending(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| !backlog.pending.is_empty())
    }

    pub fn has_long_list(&self) -> bool {
        let first = self.backlog.as_ref().and_then(|backlog| backlog.pending.front());
        first.is_some_and(|request| request.has_begun() && request.footprint() > LONG_LIST)
    }

    pub fn has_rest(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| !backlog.rest.is_empty())
    }

    pub(super) fn is_unauthenticated(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.name().is_none())
    }

    /// `true` if the client has hung up during the delay after a wrong token.
    pub(super) fn is_abandoned(&self) -> bool {
        self.ready.half_closed && self.is_unauthenticated() && self.awaited().1 == AwaitedPart::Delay
    }

    pub fn take_operation(&mut self) -> Option<LongCommand> {
        self.backlog.as_mut()?.pending.pop_front()?.into_operation()
    }

    /// Discards input in up to `LAST_READS` reads: closing with unread input sends a TCP reset, which can lose replies.
    pub fn discard(&self, thread: &mut ThreadScratch) {
        if self.ready.ended() {
            return;
        }
        for _ in 0..LAST_READS {
            match self.outbox.stream.read(&mut [IoSliceMut::new(&mut thread.buffer)]) {
                Ok(1..) => {}
                _ => return,
            }
        }
    }

    pub fn free(self, hub: &Hub, registry: &mio::Registry) {
        self.outbox.close_tls();
        // The outbox of a removed client gets no new references. Dropping the last reference closes the socket.
        let is_heavy = self.outbox.leave();
        if is_heavy || Arc::strong_count(&self.outbox) > 1 {
            let _ = self.outbox.stream.deregister(registry);
        }
        if let Some(backlog) = self.backlog {
            hub.memory.charge(backlog.ahead, 0);
            hub.memory.charge_upload(backlog.uploading, 0);
            if let Some(log) = &hub.log {
                log.space.cancel(backlog.space_request, &self.outbox);
                log.staging.cancel(&self.outbox);
            }
            if backlog.charged() > DISCARDED {
                hub.discard((self.dialogue, backlog));
            }
        }
        if is_heavy {
            hub.discard(self.outbox);
        }
        // Check for freed memory again, because the check after the client's removal did not count this memory as free.
        hub.alarm.advance(hub.next_give_back(hub.clock.now()));
    }

    #[inline]
    pub(super) fn charge(&mut self, ahead: u64, hub: &Hub) {
        let uploading = self.dialogue.uploading();
        if ahead + uploading + self.backlog.as_ref().map_or(0, |backlog| backlog.charged()) > 0 {
            self.replace_charge(ahead, uploading, hub);
        }
    }

    #[inline(never)] // Few requests need a charge.
    fn replace_charge(&mut self, ahead: u64, uploading: u64, hub: &Hub) {
        let backlog = self.backlog();
        hub.memory.charge(backlog.ahead, ahead);
        hub.memory.charge_upload(backlog.uploading, uploading);
        (backlog.ahead, backlog.uploading) = (ahead, uploading);
        if ahead + uploading > 0 && std::mem::take(&mut backlog.received) {
            backlog.last_received = Some(Instant::now());
        }
    }

    pub fn memory_used(&self) -> (u64, Option<Instant>) {
        let (unread, stuck) = self.outbox.memory_used();
        let Some(backlog) = &self.backlog else { return (unread, stuck) };
        let own = backlog.charged();
        (unread + own, stuck.max(backlog.last_received.filter(|_| own > 0)))
    }
}
