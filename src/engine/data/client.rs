//! Clients, as the engine sees them: the tube they use, the tubes they watch, their reservations, and their waits.
//!
//! Owns these, and how a client gets jobs. Must not know connections: the server maps the number of a client to one.

use std::collections::BTreeMap;
use std::ops::{Deref, Index, IndexMut};

use slab::Slab;
use smallvec::SmallVec;

use super::{
    ClientHandle, ClientId, Handle, Heap, JobId, Linked, Links, List, Priority, Slots, Span, Time, TubeHandle, NIL,
};

/// The last part of a reservation, in which its holder is warned instead of waiting, as in beanstalkd.
pub const MARGIN: Span = Span::from_secs(1);

/// The maximum lease time, whatever the job's time to run: nothing else ends a lease, which no client holds.
pub const MAX_LEASE: Span = Span::from_secs(24 * 3600);

/// The choice of a client that holds its reservations among its watched tubes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReserveMode {
    /// The most urgent job of all tubes.
    #[default]
    Urgent,
    /// A random tube, in proportion to its weight.
    Weighted,
    /// A random tube, in proportion to its weight divided by the average time that its jobs are reserved, so that tubes
    /// share the workers' time equally, not the number of jobs.
    Fair,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReservePolicy {
    /// The client holds its reservations until it disconnects. The smallest priority of all watched tubes comes first.
    #[default]
    PerConnection,
    /// The client holds the jobs it grabs until it disconnects. The smallest priority class of all watched tubes comes
    /// first; tubes with equal classes take turns. The client does not wait, but may be idle and is notified of work.
    Notified,
    /// [`NOBODY`](super::handle::NOBODY) holds the leased jobs until the time to run ends, whatever happens to the
    /// client. All watched tubes with a ready job are equally likely.
    Lease,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IdleState {
    #[default]
    Active,
    /// The client is to be notified, and then requests a job.
    Idle,
    /// The client was notified of a job in this tube, or [`NIL`] if it no longer watches it, and has not requested it.
    Notified(u32),
}

/// A client that waits for a job, or for the outcome of one.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The end of the wait; [`Time::NEVER`] without a timeout.
    pub until: Time,
    /// The extras of the job whose outcome the client waits for; [`NIL`] if it waits for a job.
    pub outcome: u32,
    /// The client submitted that job only for its outcome, and withdraws it when the wait times out.
    pub run: bool,
}

impl Waiting {
    pub const fn for_job(until: Time) -> Waiting {
        Waiting { until, outcome: NIL, run: false }
    }

    pub fn is_for_job(self) -> bool {
        self.outcome == NIL
    }
}

/// An unfinished search through the tubes of a client that watches too many tubes for one turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    /// The number of tubes that were searched, or whose queues the client was added to.
    pub(in crate::engine) seen: usize,
    /// `true` while the client is added to the queue of each tube, because no job was found.
    pub(in crate::engine) enqueueing: bool,
    /// The tubes with a job found so far, each counted by its weight.
    pub(in crate::engine) found: u64,
    /// The best tube so far: the rank of its first job, the tube, and its position in the watch list.
    pub(in crate::engine) best: Option<((Priority, Time), TubeHandle, usize)>,
    /// `true` for a second search, which ends at the first tubes with a job.
    pub(in crate::engine) again: bool,
}

impl Search {
    /// Returns a second and last search, after another client took the found job.
    pub(in crate::engine) fn again() -> Search {
        Search { again: true, ..Search::default() }
    }

    /// Returns `true` if the remaining tubes need not be searched.
    pub(in crate::engine) fn is_over(&self) -> bool {
        self.again && self.best.is_some()
    }
}

#[derive(Debug, Default)]
pub struct ClientState {
    pub(in crate::engine) reserve_policy: ReservePolicy,
    pub(in crate::engine) idle_state: IdleState,
    /// Distinguishes the connection from earlier and later ones with the same number.
    pub(in crate::engine) connection: u32,
    pub(in crate::engine) opened: u32,
    /// The position in the watch list where the next search starts, counting down; past the end means the end.
    pub(in crate::engine) turn: u32,
    /// The tube it uses; [`NIL`] if its commands name a tube.
    pub(in crate::engine) used: u32,
    pub(in crate::engine) watched: WatchList,
    /// See [`ClientState::reserved`]; `None` before the first one.
    held: Option<Box<Heap<(Time, JobId)>>>,
    pub(in crate::engine) waiting: Option<Waiting>,
    /// The number of the current wait or idle period. The client is queued in the tubes whose watches have this number.
    pub(in crate::engine) wait: u32,
    /// The rank of the wait or idle period among those of all clients.
    pub(in crate::engine) since: u64,
    pub(in crate::engine) queued: bool,
    pub(in crate::engine) search: Option<Box<Search>>,
    /// After a disconnect, the reservations still to be released, in the order of service.
    pub(in crate::engine) leaving: Option<Box<Heap<(Priority, JobId)>>>,
    /// The client's attachments to jobs whose outcome it receives.
    pub(in crate::engine) attached: List,
    /// The last wait was for a batch.
    pub(in crate::engine) batch: bool,
    pub(in crate::engine) mode: ReserveMode,
    pub(in crate::engine) producer: bool,
    pub(in crate::engine) worker: bool,
    /// The times of the connection and of the last command, in units of [`ACTIVITY_UNIT`].
    pub(in crate::engine) connected: u32,
    pub(in crate::engine) last_active: u32,
}

/// Times of connections are counted in units of 2^30 ns, about a second: shifting costs less than dividing.
const ACTIVITY_UNIT: u32 = 30;

/// Returns the time since a moment counted in units of [`ACTIVITY_UNIT`].
pub(in crate::engine) fn time_since(then: u32, now: Time) -> Span {
    let units = ((now.nanos() >> ACTIVITY_UNIT) as u32).saturating_sub(then);
    Span::from_nanos(u64::from(units) << ACTIVITY_UNIT)
}

impl ClientState {
    /// Returns a client that uses and watches no tube yet.
    pub(in crate::engine) fn new(reserve_policy: ReservePolicy, connection: u32) -> ClientState {
        ClientState { reserve_policy, connection, turn: NIL, used: NIL, ..ClientState::default() }
    }

    pub(in crate::engine) fn waits_for_job(&self) -> bool {
        self.waiting.is_some_and(Waiting::is_for_job)
    }

    /// Returns the reserved jobs, ordered by the end of their time to run.
    pub(in crate::engine) fn reserved(&self) -> &Heap<(Time, JobId)> {
        const NONE: &Heap<(Time, JobId)> = &Heap::new();
        self.held.as_deref().unwrap_or(NONE)
    }

    pub(in crate::engine) fn reserved_mut(&mut self) -> &mut Heap<(Time, JobId)> {
        self.held.get_or_insert_default()
    }

    /// Returns the end of its first reservation.
    pub(in crate::engine) fn nearest_end(&self) -> Time {
        self.reserved().first().map_or(Time::NEVER, |((end, _), _)| end)
    }

    /// Returns `true` if a reservation is in its last second.
    pub(in crate::engine) fn in_margin(&self, now: Time) -> bool {
        self.nearest_end() != Time::NEVER && self.nearest_end() - MARGIN <= now
    }

    /// Returns `true` if the client is queued in the tube of this watch, which must be its own.
    pub(in crate::engine) fn is_queued(&self, watch: &Watch) -> bool {
        watch.wait == self.wait && (self.waits_for_job() || self.idle_state == IdleState::Idle)
    }

    /// Returns the next deadline of this client. A wait does not end before its search does.
    pub(in crate::engine) fn due(&self) -> Time {
        if self.leaving.is_some() {
            return Time::NEVER;
        }
        if self.search.is_some() {
            return self.nearest_end();
        }
        match (self.waiting, self.nearest_end()) {
            (Some(waiting), Time::NEVER) => waiting.until,
            (Some(waiting), end) => waiting.until.min(end - MARGIN),
            (None, end) => end,
        }
    }
}

/// All clients by number, and their watches.
#[derive(Debug, Default)]
pub struct Clients {
    states: Slab<ClientState>,
    pub(in crate::engine) watches: Watches,
    /// The number of waits and idle periods so far.
    pub(in crate::engine) waits: u64,
    pub(in crate::engine) leases: u32,
    pub(in crate::engine) connected: u64,
    /// The number of disconnected clients that still hold jobs or watch tubes.
    pub(in crate::engine) leaving: usize,
    pub(in crate::engine) producers: usize,
    pub(in crate::engine) workers: usize,
    pub(in crate::engine) waiting: usize,
}

impl Clients {
    /// Adds a client with the smallest free number.
    pub(in crate::engine) fn insert(&mut self, client: ClientState) -> ClientId {
        ClientId(self.states.insert(client) as u32)
    }

    pub(in crate::engine) fn remove(&mut self, client: ClientId) -> ClientState {
        self.states.remove(client.0 as usize)
    }

    /// Begins another wait of a client. This invalidates its queue positions from earlier waits.
    pub(in crate::engine) fn begin_wait(&mut self, client: ClientId) {
        self.waits += 1;
        let state = &mut self.states[client.0 as usize];
        // 0 means no wait.
        state.wait = state.wait.wrapping_add(1).max(1);
        state.since = self.waits;
    }

    #[inline]
    pub(in crate::engine) fn hear(&mut self, client: ClientId, now: Time) {
        if let Some(state) = self.states.get_mut(client.0 as usize) {
            state.last_active = (now.nanos() >> ACTIVITY_UNIT) as u32;
            if state.connected == 0 {
                state.connected = state.last_active;
            }
        }
    }

    pub(in crate::engine) fn get(&self, number: u32) -> Option<&ClientState> {
        self.states.get(number as usize)
    }

    /// Returns a number above those of all clients.
    pub(in crate::engine) fn end(&self) -> u32 {
        self.states.capacity() as u32
    }

    /// Counts a client that has tried to put a job.
    pub(in crate::engine) fn mark_producer(&mut self, client: ClientId) {
        let producer = &mut self.states[client.0 as usize].producer;
        self.producers += usize::from(!std::mem::replace(producer, true));
    }

    pub(in crate::engine) fn mark_worker(&mut self, client: ClientId) {
        let worker = &mut self.states[client.0 as usize].worker;
        self.workers += usize::from(!std::mem::replace(worker, true));
    }

    /// Removes a disconnected client from the counts. The client stays until it holds and watches nothing.
    pub(in crate::engine) fn begin_to_leave(&mut self, client: ClientId) {
        let state = &mut self.states[client.0 as usize];
        state.leaving = Some(Box::new(Heap::new()));
        state.search = None;
        self.producers -= usize::from(std::mem::take(&mut state.producer));
        self.workers -= usize::from(std::mem::take(&mut state.worker));
        self.leaving += 1;
    }

    pub(in crate::engine) fn memory(&self) -> u64 {
        self.watches.len() as u64 * WATCH_COST
    }

    /// Adds a tube, which must not be watched yet, to the watch list of a client, and returns the length of the list.
    pub(in crate::engine) fn watch(&mut self, client: ClientId, tube: u32) -> usize {
        let watched = &mut self.states[client.0 as usize].watched;
        watched.add(client.0, tube, &mut self.watches);
        watched.len()
    }

    /// Removes a tube from the watch list of a client. The watch must not be queued.
    pub(in crate::engine) fn unwatch(&mut self, client: ClientId, tube: u32) {
        self.states[client.0 as usize].watched.remove(tube, &mut self.watches);
    }

    pub(in crate::engine) fn handle(&self, client: ClientId) -> ClientHandle {
        Handle::new(client.0, self[client].connection)
    }

    /// Returns the client with this handle, unless it has disconnected.
    pub(in crate::engine) fn at(&self, handle: ClientHandle) -> Option<ClientId> {
        let client = self.states.get(handle.number as usize)?;
        (client.connection == handle.birth).then_some(ClientId(handle.number))
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.states.len()
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (ClientId, &ClientState)> {
        self.states.iter().map(|(number, client)| (ClientId(number as u32), client))
    }
}

impl Index<ClientId> for Clients {
    type Output = ClientState;
    fn index(&self, client: ClientId) -> &ClientState {
        &self.states[client.0 as usize]
    }
}

impl IndexMut<ClientId> for Clients {
    fn index_mut(&mut self, client: ClientId) -> &mut ClientState {
        &mut self.states[client.0 as usize]
    }
}

/// A tube that a client watches. While the client waits or is idle, the watch is in the tube's queue of such clients.
#[derive(Debug)]
pub struct Watch {
    pub(in crate::engine) client: u32,
    pub(in crate::engine) tube: u32,
    /// The longest time to run, in milliseconds, that this client accepts for a job of this tube; 0: unlimited.
    pub(in crate::engine) limit: u32,
    /// The number of the wait or idle period for which the watch is queued; 0 if it is not queued. That period may be
    /// over: a client that watches very many tubes does not leave all queues at once.
    pub(in crate::engine) wait: u32,
    /// The weight of the tube for a client that reserves by weights.
    pub(in crate::engine) weight: u16,
    /// The number of the last lease command that named the tube.
    pub(in crate::engine) lease: u32,
    links: Links,
}

/// Bytes of account of a watch: itself, its entry in the client's list, and the index of a long list.
pub const WATCH_COST: u64 = 64;

/// Watches per chunk: enough that malloc maps the chunk separately.
const WATCHES: usize = 8192;

pub type Watches = Slots<Watch, WATCHES>;

impl Linked for Watches {
    fn links(&self, number: u32) -> Links {
        self.get(number).links
    }
    fn links_mut(&mut self, number: u32) -> &mut Links {
        &mut self.get_mut(number).links
    }
}

/// Watch lists of this length have an index, so that adding the thousandth tube costs as much as adding the second.
const INDEXED_FROM: usize = 32;

/// The watches of one client in the order of their addition, except that the last one replaces a removed one.
#[derive(Debug, Default)]
pub struct WatchList {
    /// Nearly all lists are short and need no allocation.
    numbers: SmallVec<[u32; 4]>,
    /// Maps a tube to its position in `numbers`; only for long lists.
    #[allow(clippy::box_collection)] // 16 bytes less for each client
    index: Option<Box<BTreeMap<u32, u32>>>,
}

impl Deref for WatchList {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        &self.numbers
    }
}

impl WatchList {
    /// Returns the number of the watch of `tube`, if it is watched.
    pub fn find(&self, tube: u32, watches: &Watches) -> Option<u32> {
        self.position(tube, watches).map(|position| self.numbers[position])
    }

    pub fn contains(&self, tube: u32, watches: &Watches) -> bool {
        self.position(tube, watches).is_some()
    }

    /// Adds `tube`, which must not be watched yet.
    pub fn add(&mut self, client: u32, tube: u32, watches: &mut Watches) {
        let number = watches.insert(Watch { client, tube, limit: 0, wait: 0, weight: 1, lease: 0, links: Links::NONE });
        let position = self.numbers.len() as u32;
        self.numbers.push(number);
        match &mut self.index {
            Some(index) => {
                index.insert(tube, position);
            }
            None if self.numbers.len() >= INDEXED_FROM => {
                let tubes = self.numbers.iter().map(|&number| watches.get(number).tube);
                self.index = Some(Box::new(tubes.zip(0..).collect()));
            }
            None => {}
        }
    }

    /// Removes `tube`. Returns `true` if it was watched. The watch must not be queued.
    pub fn remove(&mut self, tube: u32, watches: &mut Watches) -> bool {
        let Some(position) = self.position(tube, watches) else { return false };
        let number = self.numbers.swap_remove(position);
        watches.remove(number);
        if let Some(index) = &mut self.index {
            index.remove(&tube);
            if let Some(&moved) = self.numbers.get(position) {
                index.insert(watches.get(moved).tube, position as u32);
            }
        }
        true
    }

    fn position(&self, tube: u32, watches: &Watches) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(&tube).map(|&position| position as usize),
            None => self.numbers.iter().position(|&number| watches.get(number).tube == tube),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tubes(list: &WatchList, watches: &Watches) -> Vec<u32> {
        list.iter().map(|&number| watches.get(number).tube).collect()
    }

    #[test]
    fn a_long_watch_list_keeps_the_order_of_a_short_one() {
        let mut watches = Watches::default();
        let (mut list, mut plain) = (WatchList::default(), Vec::new());
        for tube in 0..100 {
            list.add(0, tube, &mut watches);
            plain.push(tube);
        }
        for tube in [3, 99, 50, 0, 98, 7] {
            assert!(list.remove(tube, &mut watches));
            plain.swap_remove(plain.iter().position(|&other| other == tube).unwrap());
            assert!(!list.contains(tube, &watches));
            assert!(!list.remove(tube, &mut watches));
        }
        assert_eq!(tubes(&list, &watches), plain);
        assert!(plain.iter().all(|&tube| list.contains(tube, &watches)));
        assert_eq!(watches.len(), plain.len());
    }
}
