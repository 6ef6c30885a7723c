//! Statistics of connections.
//!
//! Owns the iteration over all clients, and their statistics. Must not change anything except the step budget.
//!
//! Touches: clients, store, tubes.

use crate::engine::data::{time_since, ClientId, ClientState, IdleState, JobView, Progress, Span, Time, NIL};
use crate::engine::Engine;

/// Only these watched tubes of a client determine which users may see the client.
pub const SHOWN_TUBES: usize = 16;

/// The number of steps per client, in addition to one step per 64 bytes of output.
const CLIENT: u64 = 4;

#[derive(Debug)]
pub struct ClientStats<'a> {
    pub client: ClientId,
    /// The connection number, which is never reused. 0 is the pseudo-client that holds leased jobs.
    pub number: u32,
    /// `None` if each command names a tube.
    pub used: Option<&'a [u8]>,
    pub watching: usize,
    pub watched: Vec<&'a [u8]>,
    pub waits: bool,
    pub held: usize,
    /// The reserved job whose time to run ends first.
    pub job: Option<JobView<'a>>,
    pub age: Span,
    pub idle: Span,
}

impl Engine {
    /// Includes the pseudo-client that holds leased jobs.
    pub fn walk_clients(
        &mut self,
        from: &mut u32,
        now: Time,
        mut each: impl FnMut(&Engine, &ClientStats) -> usize,
    ) -> Progress {
        self.walk(from, self.clients.end, |engine, number| {
            match engine.client_stats(number, now).map_or(0, |stats| each(engine, &stats)) {
                0 => 1,
                bytes => CLIENT + bytes as u64 / 64,
            }
        })
    }

    /// Client 0 holds the leased jobs, and has no statistics without leased jobs.
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
