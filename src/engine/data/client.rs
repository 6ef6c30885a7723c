//! Clients, as the engine sees them: which tube they use, which they watch, what they hold, and whether they wait.
//!
//! Owns those, and how a client takes jobs. Must not know connections: a client is a number that the server gives
//! meaning to.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use slab::Slab;

use super::handle::{ClientHandle, ClientId, Handle, TubeHandle};
use super::heap::Heap;
use super::job::{JobId, Priority};
use super::list::{Linked, Links, List, NIL};
use super::slots::Slots;
use super::time::{Span, Time};

/// The last part of a time to run, in which its holder is warned instead of made to wait (beanstalk protocol, reserve).
pub const MARGIN: Span = Span::from_secs(1);

/// The longest that a lease lasts, whatever the job's time to run: nobody holds it, so nothing else would ever end it.
pub const LONGEST_LEASE: Span = Span::from_secs(24 * 3600);

/// How a client that holds what it reserves chooses among its watched tubes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReserveMode {
    /// The most urgent job of all.
    #[default]
    Urgent,
    /// A tube by chance, in proportion to its weight.
    Weighted,
    /// A tube by chance, in proportion to its weight divided by the average time for which its jobs are reserved, so
    /// that tubes share the workers' time, not their number of jobs.
    Fair,
}

/// How a client takes jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReservePolicy {
    /// It holds what it reserves until it hangs up. Of all tubes that it watches, the smallest priority comes first.
    #[default]
    PerConnection,
    /// It holds what it grabs until it hangs up. Of all tubes that it watches, the smallest priority class comes first,
    /// and tubes that are equal in that take turns. It is not made to wait, but may be idle and be notified of work.
    Notified,
    /// [`NOBODY`](super::handle::NOBODY) holds what it leases, until the time to run ends, whatever becomes of the
    /// client. All tubes that it watches and that have a ready job have the same chance.
    Lease,
}

/// Whether a client wants to be told of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IdleState {
    /// It asks for jobs itself.
    #[default]
    Active,
    /// It wants to be told, and is to ask for a job then.
    Idle,
    /// It was told of a job in this tube, and has not come yet; [`NIL`] if it no longer watches that tube.
    Notified(u32),
}

/// A client that wants a job, or the outcome of one, and has none.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// When it gives up; [`Time::NEVER`] if it does not.
    pub until: Time,
    /// The extras of the job whose outcome it waits for; [`NIL`] if it waits for a job.
    pub outcome: u32,
    /// It has submitted that job just for the outcome, and takes it back when it gives up.
    pub run: bool,
}

impl Waiting {
    pub const fn for_job(until: Time) -> Waiting {
        Waiting { until, outcome: NIL, run: false }
    }

    /// Whether it waits for a job.
    pub fn is_for_job(self) -> bool {
        self.outcome == NIL
    }
}

/// A search through the tubes of a client that is not over: they are too many for one turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    /// How many tubes it has looked at, or stood in the queue of.
    pub(in crate::engine) seen: usize,
    /// Nothing was found: the client is taking its place in the queue of each tube.
    pub(in crate::engine) standing: bool,
    /// Tubes with a job that were seen, each as often as it weighs.
    pub(in crate::engine) found: u64,
    /// The best of them so far: its rank, its tube, and its place in the watch list.
    pub(in crate::engine) best: Option<((Priority, Time), TubeHandle, usize)>,
    /// What a first search had found was taken by somebody else: this one ends at the first tubes that have a job.
    pub(in crate::engine) again: bool,
}

impl Search {
    /// A second search, since somebody else has taken what the first one had found. There is no third: what this one
    /// finds is given to the client in the same turn.
    pub(in crate::engine) fn again() -> Search {
        Search { again: true, ..Search::default() }
    }

    /// Whether the rest of the tubes need not be looked at.
    pub(in crate::engine) fn is_over(&self) -> bool {
        self.again && self.best.is_some()
    }
}

#[derive(Debug, Default)]
pub struct ClientState {
    pub(in crate::engine) reserve_policy: ReservePolicy,
    pub(in crate::engine) idle_state: IdleState,
    /// Tells its connection from others of the same number, which come before or after it.
    pub(in crate::engine) connection: u32,
    /// Tubes that it has opened and that are still there.
    pub(in crate::engine) opened: u32,
    /// The place in its watch list where it looks first, with [`ReservePolicy::Notified`]; beyond the end, at the end.
    /// It goes down from there.
    pub(in crate::engine) turn: u32,
    /// The tube it uses; [`NIL`] if it names the tube each time.
    pub(in crate::engine) used: u32,
    pub(in crate::engine) watched: WatchList,
    /// What it has reserved, by the end of the time to run.
    pub(in crate::engine) reserved: Heap<(Time, JobId)>,
    pub(in crate::engine) waiting: Option<Waiting>,
    /// The number of its wait, or of its idle time: it stands in the queues of those tubes whose watches have this
    /// number.
    pub(in crate::engine) wait: u32,
    /// The place of that wait or idle time among those of all clients.
    pub(in crate::engine) since: u64,
    /// The engine goes on with its search, which stands in the queue of deferred work once.
    pub(in crate::engine) queued: bool,
    /// A search that goes on in another turn.
    pub(in crate::engine) search: Option<Box<Search>>,
    /// It has disconnected; what it held and is to give back, in the order of service.
    pub(in crate::engine) leaving: Option<Box<Heap<(Priority, JobId)>>>,
    /// Its attachments to jobs whose outcome it is told.
    pub(in crate::engine) attached: List,
    /// What it waited for last was a batch.
    pub(in crate::engine) batch: bool,
    pub(in crate::engine) mode: ReserveMode,
    /// Whether it has ever tried to put a job, for `stats`.
    pub(in crate::engine) producer: bool,
    /// Whether it has ever asked for a job, for `stats`.
    pub(in crate::engine) worker: bool,
}

impl ClientState {
    /// One that uses and watches nothing yet.
    pub(in crate::engine) fn new(reserve_policy: ReservePolicy, connection: u32) -> ClientState {
        ClientState { reserve_policy, connection, turn: NIL, used: NIL, ..ClientState::default() }
    }

    /// Whether it waits for a job.
    pub(in crate::engine) fn waits_for_job(&self) -> bool {
        self.waiting.is_some_and(Waiting::is_for_job)
    }

    /// When the time to run of its most urgent reservation ends.
    pub(in crate::engine) fn nearest_end(&self) -> Time {
        self.reserved.first().map_or(Time::NEVER, |((end, _), _)| end)
    }

    /// Whether a reservation is in its last second.
    pub(in crate::engine) fn in_margin(&self, now: Time) -> bool {
        self.nearest_end() != Time::NEVER && self.nearest_end() - MARGIN <= now
    }

    /// Whether it stands in the queue of the tube of this watch, which must be one of its own.
    pub(in crate::engine) fn stands(&self, watch: &Watch) -> bool {
        watch.wait == self.wait && (self.waits_for_job() || self.idle_state == IdleState::Idle)
    }

    /// When something happens to this client by itself. A wait is not over before its search is.
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

/// All clients by their numbers, and their watches.
#[derive(Debug, Default)]
pub struct Clients {
    states: Slab<ClientState>,
    pub(in crate::engine) watches: Watches,
    /// How often a client began to wait or to be idle.
    pub(in crate::engine) waits: u64,
    /// The number of the last lease.
    pub(in crate::engine) leases: u32,
    /// Clients that have connected since the start.
    pub(in crate::engine) connected: u64,
    /// Clients that have disconnected and still hold or watch something.
    pub(in crate::engine) leaving: usize,
    /// Clients that have put a job.
    pub(in crate::engine) producers: usize,
    /// Clients that have asked for a job.
    pub(in crate::engine) workers: usize,
    /// Clients that wait for a job now.
    pub(in crate::engine) waiting: usize,
}

impl Clients {
    /// Adds a client under the smallest number that is free.
    pub(in crate::engine) fn insert(&mut self, client: ClientState) -> ClientId {
        ClientId(self.states.insert(client) as u32)
    }

    /// Takes out a client, whose number is free from now on.
    pub(in crate::engine) fn remove(&mut self, client: ClientId) -> ClientState {
        self.states.remove(client.0 as usize)
    }

    /// Begins another wait of a client: places in queues that it has from before count no longer.
    pub(in crate::engine) fn begin_wait(&mut self, client: ClientId) {
        self.waits += 1;
        let state = &mut self.states[client.0 as usize];
        // Zero is no wait's number.
        state.wait = state.wait.wrapping_add(1).max(1);
        state.since = self.waits;
    }

    /// Counts a client that has tried to put a job.
    pub(in crate::engine) fn mark_producer(&mut self, client: ClientId) {
        let producer = &mut self.states[client.0 as usize].producer;
        self.producers += usize::from(!std::mem::replace(producer, true));
    }

    /// Counts a client that has asked for a job.
    pub(in crate::engine) fn mark_worker(&mut self, client: ClientId) {
        let worker = &mut self.states[client.0 as usize].worker;
        self.workers += usize::from(!std::mem::replace(worker, true));
    }

    /// Takes a client that has disconnected out of the counts. It stays until it holds and watches nothing more.
    pub(in crate::engine) fn begin_to_leave(&mut self, client: ClientId) {
        let state = &mut self.states[client.0 as usize];
        state.leaving = Some(Box::new(Heap::new()));
        state.search = None;
        self.producers -= usize::from(std::mem::take(&mut state.producer));
        self.workers -= usize::from(std::mem::take(&mut state.worker));
        self.leaving += 1;
    }

    /// Returns the bytes of account of all watches.
    pub(in crate::engine) fn memory(&self) -> u64 {
        self.watches.len() as u64 * WATCH_COST
    }

    /// Adds a tube to those that a client watches, which must not be watched yet, and returns how many those are.
    pub(in crate::engine) fn watch(&mut self, client: ClientId, tube: u32) -> usize {
        let watched = &mut self.states[client.0 as usize].watched;
        watched.add(client.0, tube, &mut self.watches);
        watched.len()
    }

    /// Takes a tube from those that a client watches. The watch must stand in no queue.
    pub(in crate::engine) fn unwatch(&mut self, client: ClientId, tube: u32) {
        self.states[client.0 as usize].watched.remove(tube, &mut self.watches);
    }

    /// The handle of this client.
    pub(in crate::engine) fn handle(&self, client: ClientId) -> ClientHandle {
        Handle::new(client.0, self[client].connection)
    }

    /// The client with this handle, unless it has gone.
    pub(in crate::engine) fn at(&self, handle: ClientHandle) -> Option<ClientId> {
        let client = self.states.get(handle.number as usize)?;
        (client.connection == handle.birth).then_some(ClientId(handle.number))
    }

    #[cfg(any(test, feature = "test-support"))]
    pub(in crate::engine) fn contains(&self, client: ClientId) -> bool {
        self.states.contains(client.0 as usize)
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

/// That one client watches one tube. While the client waits or is idle, the watch stands in the tube's queue for that.
#[derive(Debug)]
pub struct Watch {
    pub(in crate::engine) client: u32,
    pub(in crate::engine) tube: u32,
    /// The most time to run, in milliseconds, that this client gives itself for a job of this tube; zero for no limit.
    pub(in crate::engine) limit: u32,
    /// The number of the wait or idle time for which it stands in a queue; zero if it stands in none. It may be one
    /// that is over: a client that watches very many tubes does not leave all their queues at once.
    pub(in crate::engine) wait: u32,
    /// How often the tube is chosen among others by a client that reserves by weights.
    pub(in crate::engine) weight: u16,
    /// Of the last lease that named the tube.
    pub(in crate::engine) lease: u32,
    links: Links,
}

/// Bytes of account of a watch: itself, its place in the client's list, and the index of a long list.
pub const WATCH_COST: u64 = 64;

/// Watches in a chunk: enough that malloc maps it.
const WATCHES: usize = 8192;

/// All watches of all clients.
pub type Watches = Slots<Watch, WATCHES>;

impl Linked for Watches {
    fn links(&self, number: u32) -> Links {
        self.get(number).links
    }
    fn links_mut(&mut self, number: u32) -> &mut Links {
        &mut self.get_mut(number).links
    }
}

/// From this length on a watch list has an index, so that adding the thousandth tube costs what the second did.
const INDEXED_FROM: usize = 32;

/// The watches of one client, in the order that the protocol lists them: as added, but the last one moves into the
/// place of one that is removed, as in beanstalkd.
#[derive(Debug, Default)]
pub struct WatchList {
    numbers: Vec<u32>,
    /// Tube to place in `numbers`; only for long lists.
    index: Option<BTreeMap<u32, u32>>,
}

impl WatchList {
    /// How many tubes are watched.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The numbers of the watches.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.numbers.iter().copied()
    }

    /// The number of the watch at `place`.
    pub fn at(&self, place: usize) -> u32 {
        self.numbers[place]
    }

    /// The number of the last one.
    pub fn last(&self) -> Option<u32> {
        self.numbers.last().copied()
    }

    /// The number of the watch of `tube`, if it is watched.
    pub fn find(&self, tube: u32, watches: &Watches) -> Option<u32> {
        self.place(tube, watches).map(|place| self.numbers[place])
    }

    pub fn contains(&self, tube: u32, watches: &Watches) -> bool {
        self.place(tube, watches).is_some()
    }

    /// Watches `tube`, which must not be watched yet.
    pub fn add(&mut self, client: u32, tube: u32, watches: &mut Watches) {
        let number = watches.insert(Watch { client, tube, limit: 0, wait: 0, weight: 1, lease: 0, links: Links::NONE });
        let place = self.numbers.len() as u32;
        self.numbers.push(number);
        match &mut self.index {
            Some(index) => {
                index.insert(tube, place);
            }
            None if self.numbers.len() >= INDEXED_FROM => {
                let tubes = self.numbers.iter().map(|&number| watches.get(number).tube);
                self.index = Some(tubes.zip(0..).collect());
            }
            None => {}
        }
    }

    /// Stops watching `tube`, and tells whether it was watched. The watch must stand in no queue.
    pub fn remove(&mut self, tube: u32, watches: &mut Watches) -> bool {
        let Some(place) = self.place(tube, watches) else { return false };
        let number = self.numbers.swap_remove(place);
        watches.remove(number);
        if let Some(index) = &mut self.index {
            index.remove(&tube);
            if let Some(&moved) = self.numbers.get(place) {
                index.insert(watches.get(moved).tube, place as u32);
            }
        }
        true
    }

    fn place(&self, tube: u32, watches: &Watches) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(&tube).map(|&place| place as usize),
            None => self.numbers.iter().position(|&number| watches.get(number).tube == tube),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tubes(list: &WatchList, watches: &Watches) -> Vec<u32> {
        list.iter().map(|number| watches.get(number).tube).collect()
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
