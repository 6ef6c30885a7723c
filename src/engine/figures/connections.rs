//! Figures of connections.
//!
//! Owns the walk over clients, and the queue's view of a connection. Must not change anything but the remaining steps.
//!
//! Touches: clients, store, tubes.

use crate::engine::data::{time_since, ClientId, ClientState, IdleState, JobView, Progress, Span, Time, NIL};
use crate::engine::Engine;

/// The maximum number of watched tubes that are shown of one client, and that determine which users may see the client.
pub const SHOWN_TUBES: usize = 16;

/// Steps per client, in addition to one per 64 bytes.
const CLIENT: u64 = 4;

/// The queue's view of a connection.
#[derive(Debug)]
pub struct ClientStats<'a> {
    pub client: ClientId,
    /// The number of the connection, which no other connection has had; 0 for the leases, which no connection holds.
    pub number: u32,
    /// The tube that it uses, unless its commands name a tube.
    pub used: Option<&'a [u8]>,
    /// The number of watched tubes, and the first [`SHOWN_TUBES`] of them.
    pub watching: usize,
    pub watched: Vec<&'a [u8]>,
    /// `true` if it waits for a job or for the end of one, or is idle until there is work.
    pub waits: bool,
    /// The number of reserved jobs, and the one whose time to run ends first.
    pub held: usize,
    pub job: Option<JobView<'a>>,
    /// The time since it connected.
    pub age: Span,
    pub idle: Span,
}

impl Engine {
    /// Passes all connections and the leases from the client number `from` on to `each`, which returns the bytes it
    /// wrote.
    pub fn walk_clients(
        &mut self,
        from: &mut u32,
        now: Time,
        mut each: impl FnMut(&Engine, &ClientStats) -> usize,
    ) -> Progress {
        self.walk(from, self.clients.end(), |engine, number| {
            match engine.client_stats(number, now).map_or(0, |stats| each(engine, &stats)) {
                0 => 1,
                bytes => CLIENT + bytes as u64 / 64,
            }
        })
    }

    /// Returns the figures of the connected client with this number, or of the leases if there are any.
    pub fn client_stats(&self, number: u32, now: Time) -> Option<ClientStats<'_>> {
        let state = self.clients.get(number).filter(|state| state.leaving.is_none())?;
        let ClientState { connection, used, watched, connected, last_active, .. } = state;
        let reserved = state.reserved();
        if *connection == 0 && reserved.len() == 0 {
            return None;
        }
        let name = |tube: u32| &*self.tubes.get(tube).name;
        let shown = watched.iter().copied().take(SHOWN_TUBES).map(|watch| name(self.clients.watches.get(watch).tube));
        Some(ClientStats {
            client: ClientId(number),
            number: *connection,
            used: (*used != NIL).then(|| name(*used)),
            watching: watched.len(),
            watched: shown.collect(),
            waits: state.waiting.is_some() || state.idle_state != IdleState::Active,
            held: reserved.len(),
            job: reserved.first().map(|(_, slot)| self.store.jobs.view(slot)),
            age: time_since(*connected, now),
            idle: time_since(*last_active, now),
        })
    }
}
