//! Looking through the clients.
//!
//! Owns what the queue knows about a connection. Must not change anything but the steps that are left.
//!
//! Touches: agenda, clients, store, tubes.

use crate::engine::data::client::{heard_ago, ClientState, IdleState};
use crate::engine::data::handle::ClientId;
use crate::engine::data::job::JobView;
use crate::engine::data::list::NIL;
use crate::engine::data::steps::Progress;
use crate::engine::data::time::{Span, Time};
use crate::engine::Engine;

/// Watched tubes that are shown of one client, and considered when it is decided who may see the client.
pub const SHOWN_TUBES: usize = 16;

/// Steps of a client, beside one for each 64 bytes.
const CLIENT: u64 = 4;

/// What the queue knows about a connection.
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
    /// It waits for a job or for the end of one, or is idle until there is work.
    pub waits: bool,
    /// The number of reserved jobs, and the one whose time to run ends first.
    pub held: usize,
    pub job: Option<JobView<'a>>,
    /// The time since it connected.
    pub age: Span,
    /// The time since its last command.
    pub idle: Span,
}

impl Engine {
    /// Shows all connections from the client number `from` on, in no useful order, and the leases. What is done with
    /// each says how many bytes came of it.
    pub fn walk_clients(
        &mut self,
        from: &mut u32,
        now: Time,
        mut each: impl FnMut(&Engine, &ClientStats) -> usize,
    ) -> Progress {
        while *from < self.clients.end() {
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
            let bytes = self.client_stats(*from, now).map_or(0, |stats| each(self, &stats));
            *from += 1;
            self.agenda.steps.take(if bytes > 0 { CLIENT + bytes as u64 / 64 } else { 1 });
        }
        Progress::Done
    }

    /// The figures of the client with this number, if it is connected, or those of the leases, if there are any.
    pub fn client_stats(&self, number: u32, now: Time) -> Option<ClientStats<'_>> {
        let state = self.clients.get(number).filter(|state| state.leaving.is_none())?;
        let ClientState { connection, used, watched, connected, heard, .. } = state;
        let reserved = state.reserved();
        if *connection == 0 && reserved.len() == 0 {
            return None;
        }
        let name = |tube: u32| &*self.tubes.get(tube).name;
        let shown = watched.iter().take(SHOWN_TUBES).map(|watch| name(self.clients.watches.get(watch).tube));
        Some(ClientStats {
            client: ClientId(number),
            number: *connection,
            used: (*used != NIL).then(|| name(*used)),
            watching: watched.len(),
            watched: shown.collect(),
            waits: state.waiting.is_some() || state.idle_state != IdleState::Active,
            held: reserved.len(),
            job: reserved.first().map(|(_, slot)| self.store.jobs.view(slot)),
            age: heard_ago(*connected, now),
            idle: heard_ago(*heard, now),
        })
    }
}
