//! What a connection takes of the server, and what it waits for.
//!
//! Owns its part of the account of memory, and the figures by which its thread decides who must go. Must not read,
//! write or run anything.

use std::time::Instant;

use super::Connection;
use crate::server::hub::Hub;
use crate::server::operators::Standing;

impl Connection {
    /// Bytes of replies that the client has not read; none if what it is owed is not ready to be sent.
    pub fn unread(&self) -> Option<usize> {
        self.outbox.unread()
    }

    /// How many requests an operator has made, and what the connection waits for.
    pub fn standing(&self) -> (u64, Standing) {
        let (count, has_body) = self.dialogue.progress().unwrap_or_default();
        let standing = match self.outbox.unread() {
            _ if self.queued || !self.pending.is_empty() => Standing::Server,
            None => Standing::Server,
            Some(0) if has_body => Standing::Body,
            Some(0) if !self.rest.0.is_empty() => Standing::Head,
            Some(unread) => Standing::Client(unread),
        };
        (count, standing)
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
