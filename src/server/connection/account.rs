//! What a connection has on account, and how that goes back when it ends.
//!
//! Owns the sums of what was read and is not done; what waits to be sent is the outbox's. Must not drop anybody.

use std::sync::Arc;
use std::time::Instant;

use super::{Connection, Hub};
use crate::engine::LongCommand;
use crate::protocol::Request;

/// A connection that has more than this on account when it ends is dropped where nobody waits for it.
const DISCARDED: u64 = 1 << 20;

impl Connection {
    /// The command in progress that is completed although the client is gone, if there is one.
    pub fn take_operation(&mut self) -> Option<LongCommand> {
        match self.pending.pop_front()? {
            Request::Continue(rest) => rest.into_operation(),
            _ => None,
        }
    }

    /// It is over: nothing is reported of it any more, and what it has on account is given back.
    pub fn forget(self, hub: &Hub, registry: &mio::Registry) {
        self.outbox.say_end();
        // The client is gone, so nobody can come to hold the outbox any more. If nobody does, the socket closes here,
        // which ends the reports as well.
        let is_heavy = self.outbox.leave();
        if is_heavy || Arc::strong_count(&self.outbox) > 1 {
            let _ = self.outbox.stream().deregister(registry);
        }
        hub.memory().charge(self.ahead, 0);
        hub.memory().charge_upload(self.uploading, 0);
        if self.ahead + self.uploading > DISCARDED {
            hub.discard((self.dialogue, self.pending));
        }
        if let Some(log) = hub.log() {
            log.space().forget(self.claim, &self.outbox);
        }
        if is_heavy {
            hub.discard(self.outbox);
        }
        // The turn in which the client disconnected saw all of this still taken, and there may be no other turn.
        hub.give_back_soon();
    }

    /// Takes on account what was read and is not done, and the body that is arriving.
    pub(super) fn charge(&mut self, ahead: u64, hub: &Hub) {
        let uploading = self.dialogue.uploading();
        if ahead + uploading + self.ahead + self.uploading == 0 {
            return;
        }
        hub.memory().charge(self.ahead, ahead);
        hub.memory().charge_upload(self.uploading, uploading);
        (self.ahead, self.uploading) = (ahead, uploading);
        if ahead + uploading > 0 && std::mem::take(&mut self.spoke) {
            self.heard = Some(Instant::now());
        }
    }

    /// The bytes of memory that it takes beside what everybody takes, and since when it has neither sent nor read any.
    pub fn burden(&self) -> (u64, Option<Instant>) {
        let (unread, stuck) = self.outbox.burden();
        let own = self.ahead + self.uploading;
        (unread + own, stuck.max(self.heard.filter(|_| own > 0)))
    }
}
