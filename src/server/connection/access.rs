//! The identity of a connection's client.
//!
//! Owns the change from an unauthenticated to a named client, and the consequences of a wrong token. Must not decide
//! which commands are allowed.

use std::sync::Arc;
use std::time::Instant;

use super::{Connection, WrongToken};
use crate::access::{AccessTable, ClientAccess};
use crate::server::delivery::Outbox;
use crate::server::hub::Hub;

impl Connection {
    pub fn set_access(&mut self, access: Box<ClientAccess>) {
        if let Some(name) = access.name() {
            log::debug!("{}: is {name}", self.client.0);
        }
        self.access = Some(access);
    }

    pub fn must_authenticate_by(&self, until: Instant) -> bool {
        self.probation.as_ref().is_some_and(|probation| probation.0 == until)
    }

    /// Applies a new access file. Returns `false` if the file does not admit the client.
    pub fn renew(&mut self, table: &Arc<AccessTable>) -> bool {
        self.access.as_mut().is_none_or(|access| access.renew(table))
    }

    /// Returns the outbox if its last reply is delayed until [`Outbox::release`].
    pub fn take_delayed(&mut self) -> Option<Arc<Outbox>> {
        if self.wrong_token != WrongToken::Last {
            return None;
        }
        self.wrong_token = WrongToken::Earlier;
        Some(self.outbox.clone())
    }

    pub(super) fn is_unauthenticated(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.name().is_none())
    }

    pub(super) fn notice_access(&mut self, hub: &Hub) {
        if self.wrong_token == WrongToken::Last {
            hub.process.record_wrong_token(self.outbox.peer);
        }
        if self.access.as_ref().is_some_and(|access| access.name().is_some()) {
            self.probation = None;
        }
    }
}
