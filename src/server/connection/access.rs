//! What a connection remembers of who its client is.
//!
//! Owns the change from a stranger to a client with a name, and what follows from a wrong token. The decision over
//! commands is not taken here.

use std::sync::Arc;
use std::time::Instant;

use super::Connection;
use crate::access::{AccessTable, ClientAccess};
use crate::server::delivery::Outbox;
use crate::server::gate::Stranger;
use crate::server::hub::Hub;

impl Connection {
    /// There is an access file, and this is what the client may do.
    pub fn set_access(&mut self, access: Box<ClientAccess>) {
        if let Some(name) = access.name() {
            log::debug!("{}: is {name}", self.client.0);
        }
        self.access = Some(access);
    }

    /// The client must prove who it is.
    pub fn put_on_probation(&mut self, until: Instant, place: Stranger) {
        self.probation = Some((until, place));
    }

    /// `true` if the client has not proven yet who it is.
    pub fn is_on_probation(&self) -> bool {
        self.probation.is_some()
    }

    /// Whether it must have proven who it is by then, and has not.
    pub fn must_prove_by(&self, until: Instant) -> bool {
        self.probation.as_ref().is_some_and(|(at, _)| *at == until)
    }

    /// There is a new access file; false if the connection is to be closed.
    pub fn renew(&mut self, table: &Arc<AccessTable>) -> bool {
        self.access.as_mut().is_none_or(|access| access.renew(table))
    }

    /// Its way out, if an answer was kept back there that [`Outbox::release`] is to let go.
    pub fn take_penalty(&mut self) -> Option<Arc<Outbox>> {
        std::mem::take(&mut self.punished).then(|| self.outbox.clone())
    }

    pub(super) fn is_stranger(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.name().is_none())
    }

    /// Sees whether a client has proven who it is, or tried to.
    pub(super) fn notice_access(&mut self, hub: &Hub) {
        let Some(access) = &self.access else { return };
        if self.probation.is_some() && access.name().is_some() {
            self.probation = None;
        }
        if let (true, Some(gate)) = (self.punished, hub.gate()) {
            hub.process.count_failed_auth();
            gate.log_failure(self.peer);
        }
    }
}
