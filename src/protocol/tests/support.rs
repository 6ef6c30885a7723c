//! Contexts for tests and benchmarks, which the server does not need.
//!
//! Owns no data. Must not depend on any protocol.

use super::{ClientRegistry, CommandCounters, Context, Host, Peers, ProtocolSettings};
use crate::engine::{ClientId, Engine, Time};

impl Peers for () {
    fn address(&self, _: ClientId) -> Option<String> {
        None
    }
}

impl<'a> Context<'a> {
    /// Returns a context in which the client has all rights and the server has no binlog.
    pub fn plain(
        engine: &'a mut Engine,
        (counters, registry): (&'a mut CommandCounters, &'a mut ClientRegistry),
        (settings, host): (&'a ProtocolSettings, &'a dyn Host),
        client: ClientId,
        now: Time,
    ) -> Context<'a> {
        let (peers, log, access, half_closed, input) = (&(), None, None, false, &[]);
        Context { engine, counters, registry, settings, host, peers, log, access, now, client, half_closed, input }
    }
}
