//! Clients: used and watched tubes, reservations, waits, and events. The server maps client numbers to connections.

use std::ops::{Deref, Index, IndexMut};
use std::{collections::BTreeMap, num::NonZeroU16, sync::Arc};

use slab::Slab;
use smallvec::SmallVec;

use super::{linked, Body, ClientId, Handle, Heap, JobId, Links, List, Priority, Slots, Span, Time, NIL, NOBODY};

/// A waiting client receives DEADLINE_SOON when one of its reservations will expire within this time, as in beanstalkd.
pub const MARGIN: Span = Span::from_secs(1);
/// The maximum lease time. Leases need a maximum, because a disconnect does not end a lease.
pub const MAX_LEASE: Span = Span::from_secs(24 * 3600);

/// Selects the watched tube from which a client with [`ReservePolicy::PerConnection`] receives its next job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReserveMode {
    #[default]
    Urgent,
    /// A random tube, with probabilities proportional to the weights.
    Weighted,
    /// Like `Weighted`, but divides weights by average reservation times, so that tubes share worker time.
    Fair,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReservePolicy {
    /// The client holds the jobs that it reserves. A disconnect ends its reservations.
    #[default]
    PerConnection,
    /// Jobs of the most urgent priority class come first, and tubes with jobs of the same class take turns. The client
    /// can become idle, but it never waits.
    Notified,
    /// [`NOBODY`](super::NOBODY) holds the jobs until their leases end. All tubes with a ready job are equally likely.
    Lease,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IdleState {
    #[default]
    Active,
    /// The client is notified when a job is ready, and then requests the job.
    Idle,
    /// The number of the tube for which the client was notified, or [`NIL`] if the client no longer watches the tube.
    Notified(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub until: Time,
    /// The extras of the job whose outcome the client waits for, or [`NIL`] if the client waits for a job.
    pub outcome: u32,
    /// `true` if the job exists only to report its outcome to this client. A timeout removes the job if unreserved.
    pub run: bool,
}

impl Waiting {
    pub fn is_for_job(self) -> bool {
        self.outcome == NIL
    }
}

/// An unfinished search, for a client that watches too many tubes to search in one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    /// The number of searched tubes or, if `enqueueing`, the number of tubes whose queues the client has joined.
    pub(in crate::engine) seen: usize,
    pub(in crate::engine) enqueueing: bool,
    /// The total weight of the searched tubes that have a job.
    pub(in crate::engine) found: u64,
    /// The rank of the best job, its tube, and the position of the tube in the watch list.
    pub(in crate::engine) best: Option<((Priority, Time), Handle<u32>, usize)>,
    pub(in crate::engine) again: bool,
}

impl Search {
    /// Begins the second and last search, after another client took the best job. This search stops at the first job.
    pub(in crate::engine) fn again() -> Search {
        Search { again: true, ..Search::default() }
    }

    pub(in crate::engine) fn is_over(&self) -> bool {
        self.again && self.best.is_some()
    }
}

#[derive(Debug, Default)]
pub struct ClientState {
    pub(in crate::engine) reserve_policy: ReservePolicy,
    pub(in crate::engine) idle_state: IdleState,
    /// Distinguishes successive connections with the same client number.
    pub(in crate::engine) connection: u32,
    pub(in crate::engine) opened: u32,
    /// The position in the watch list at which the next search starts. A value beyond the end means the last tube.
    pub(in crate::engine) next_start: u32,
    /// The used tube, or [`NIL`] if the client's commands name their tube.
    pub(in crate::engine) used: u32,
    pub(in crate::engine) watched: WatchList,
    held: Option<Box<Heap<(Time, JobId)>>>,
    pub(in crate::engine) waiting: Option<Waiting>,
    /// The sequence number of the current wait or idle period. Watches with this number are queued.
    pub(in crate::engine) wait: u32,
    /// The value of [`Clients::waits`] at the start of the wait.
    pub(in crate::engine) since: u64,
    pub(in crate::engine) queued: bool,
    pub(in crate::engine) search: Option<Box<Search>>,
    /// The jobs of a disconnected client that are not released yet, most urgent first.
    pub(in crate::engine) leaving: Option<Box<Heap<(Priority, JobId)>>>,
    pub(in crate::engine) attached: List,
    /// `true` if the last wait was for a batch of jobs.
    pub(in crate::engine) batch: bool,
    pub(in crate::engine) mode: ReserveMode,
    pub(in crate::engine) producer: bool,
    pub(in crate::engine) worker: bool,
    /// Times in units of 2^[`ACTIVITY_UNIT`] ns.
    pub(in crate::engine) connected: u32,
    pub(in crate::engine) last_active: u32,
}

/// The initial capacity. malloc maps a table of this size separately, so a growing table leaves no gap in the heap.
const FIRST_CLIENTS: usize = 2048;
/// The unit of connection times is 2^30 ns, about a second. A power of two avoids a division.
const ACTIVITY_UNIT: u32 = 30;

pub(in crate::engine) fn time_since(then: u32, now: Time) -> Span {
    let units = ((now.nanos() >> ACTIVITY_UNIT) as u32).saturating_sub(then);
    Span::from_nanos(u64::from(units) << ACTIVITY_UNIT)
}

impl ClientState {
    pub(in crate::engine) fn new(reserve_policy: ReservePolicy, connection: u32) -> ClientState {
        ClientState { reserve_policy, connection, next_start: NIL, used: NIL, ..ClientState::default() }
    }

    pub(in crate::engine) fn waits_for_job(&self) -> bool {
        self.waiting.is_some_and(Waiting::is_for_job)
    }

    pub(in crate::engine) fn reserved(&self) -> &Heap<(Time, JobId)> {
        const NONE: &Heap<(Time, JobId)> = &Heap::new();
        self.held.as_deref().unwrap_or(NONE)
    }

    pub(in crate::engine) fn reserved_mut(&mut self) -> &mut Heap<(Time, JobId)> {
        self.held.get_or_insert_default()
    }

    pub(in crate::engine) fn nearest_end(&self) -> Time {
        self.reserved().first().map_or(Time::NEVER, |((end, _), _)| end)
    }

    pub(in crate::engine) fn in_margin(&self, now: Time) -> bool {
        self.nearest_end() != Time::NEVER && self.nearest_end() - MARGIN <= now
    }

    /// `watch` must belong to this client.
    pub(in crate::engine) fn is_queued(&self, watch: &Watch) -> bool {
        watch.wait == self.wait && (self.waits_for_job() || self.idle_state == IdleState::Idle)
    }

    /// While a search is unfinished, the wait cannot time out.
    pub(in crate::engine) fn due(&self) -> Time {
        match (self.waiting.filter(|_| self.search.is_none()), self.nearest_end()) {
            _ if self.leaving.is_some() => Time::NEVER,
            (Some(waiting), Time::NEVER) => waiting.until,
            (Some(waiting), end) => waiting.until.min(end - MARGIN),
            (None, end) => end,
        }
    }
}

#[derive(Debug, Default)]
pub struct Clients {
    states: Slab<ClientState>,
    /// An exclusive upper bound on the client numbers.
    pub(in crate::engine) end: u32,
    pub(in crate::engine) watches: Watches,
    pub(in crate::engine) waits: u64,
    pub(in crate::engine) leases: u32,
    pub(in crate::engine) connected: u64,
    /// Disconnected clients that have not been removed yet.
    pub(in crate::engine) leaving: usize,
    pub(in crate::engine) producers: usize,
    pub(in crate::engine) workers: usize,
    pub(in crate::engine) waiting: usize,
}

impl Clients {
    pub(in crate::engine) fn new() -> Clients {
        Clients { states: Slab::with_capacity(FIRST_CLIENTS), ..Clients::default() }
    }

    pub(in crate::engine) fn insert(&mut self, client: ClientState) -> ClientId {
        let number = self.states.insert(client) as u32;
        self.end = self.end.max(number + 1);
        ClientId(number)
    }

    pub(in crate::engine) fn remove(&mut self, client: ClientId) -> ClientState {
        self.states.remove(client.0 as usize)
    }

    /// Invalidates the client's queue positions from earlier waits.
    pub(in crate::engine) fn begin_wait(&mut self, client: ClientId) {
        self.waits += 1;
        let state = &mut self.states[client.0 as usize];
        // 0 is reserved for watches that are not queued.
        state.wait = state.wait.wrapping_add(1).max(1);
        state.since = self.waits;
    }

    #[inline]
    pub(in crate::engine) fn note_activity(&mut self, client: ClientId, now: Time) {
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

    pub(in crate::engine) fn mark_producer(&mut self, client: ClientId) {
        let producer = &mut self.states[client.0 as usize].producer;
        self.producers += usize::from(!std::mem::replace(producer, true));
    }

    pub(in crate::engine) fn mark_worker(&mut self, client: ClientId) {
        let worker = &mut self.states[client.0 as usize].worker;
        self.workers += usize::from(!std::mem::replace(worker, true));
    }

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

    pub(in crate::engine) fn watch(&mut self, client: ClientId, tube: u32) -> usize {
        self.states[client.0 as usize].watched.add(client.0, tube, &mut self.watches)
    }

    pub(in crate::engine) fn unwatch(&mut self, client: ClientId, tube: u32) {
        self.states[client.0 as usize].watched.remove(tube, &mut self.watches);
    }

    pub(in crate::engine) fn handle(&self, client: ClientId) -> Handle<ClientId> {
        Handle { number: client, generation: self[client].connection }
    }

    pub(in crate::engine) fn at(&self, handle: Handle<ClientId>) -> Option<ClientId> {
        let state = self.states.get(handle.number.0 as usize)?;
        (state.connection == handle.generation).then_some(handle.number)
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

/// A tube in a client's watch list. While the client waits or is idle, the watch is in a queue of the tube.
#[derive(Debug)]
pub struct Watch {
    pub(in crate::engine) client: u32,
    pub(in crate::engine) tube: u32,
    /// The maximum duration of the client's reservations of the tube's jobs, in milliseconds. 0 means unlimited.
    pub(in crate::engine) limit: u32,
    /// The sequence number of the wait or idle period for which the watch was queued, or 0. The period may be over,
    /// because some clients leave queues gradually.
    pub(in crate::engine) wait: u32,
    /// A nonzero type, so that the compiler can store the discriminant of the table's `Entry` in this field.
    pub(in crate::engine) weight: NonZeroU16,
    /// The sequence number of the last lease command whose list contained the tube.
    pub(in crate::engine) lease: u32,
    links: Links,
}

/// Bytes charged for a watch and its entries in the client's list and index.
pub const WATCH_COST: u64 = 64;
/// The number of watches per chunk. malloc maps a chunk of this size separately, and unmaps a freed chunk.
const WATCHES: usize = 8192;

pub type Watches = Slots<Watch, WATCHES>;

linked!(Watches, |watches, number| watches.get(number).links, watches.get_mut(number).links);

/// A list of at least this length has an index, so that adding a tube does not search the whole list.
const INDEXED_FROM: usize = 32;

/// Watches in insertion order, except that the last watch replaces a removed watch.
#[derive(Debug, Default)]
pub struct WatchList {
    /// The numbers of the watches, stored inline, because nearly all lists are short.
    numbers: SmallVec<[u32; 4]>,
    /// The positions of tubes in a long list.
    #[allow(clippy::box_collection)] // the box saves 16 bytes for each client
    index: Option<Box<BTreeMap<u32, u32>>>,
}

impl Deref for WatchList {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        &self.numbers
    }
}

impl WatchList {
    pub fn find(&self, tube: u32, watches: &Watches) -> Option<u32> {
        self.position(tube, watches).map(|position| self.numbers[position])
    }

    pub fn contains(&self, tube: u32, watches: &Watches) -> bool {
        self.position(tube, watches).is_some()
    }

    /// The client must not be watching `tube`. Returns the new length of the list.
    pub fn add(&mut self, client: u32, tube: u32, watches: &mut Watches) -> usize {
        let weight = NonZeroU16::MIN;
        let number = watches.insert(Watch { client, tube, limit: 0, wait: 0, weight, lease: 0, links: Links::NONE });
        let position = self.numbers.len() as u32;
        self.numbers.push(number);
        if let Some(index) = &mut self.index {
            index.insert(tube, position);
        } else if self.numbers.len() >= INDEXED_FROM {
            let tubes = self.numbers.iter().map(|&number| watches.get(number).tube);
            self.index.insert(Box::default()).extend(tubes.zip(0..));
        }
        self.numbers.len()
    }

    /// The watch must not be queued.
    pub fn remove(&mut self, tube: u32, watches: &mut Watches) {
        let Some(position) = self.position(tube, watches) else { return };
        let number = self.numbers.swap_remove(position);
        watches.remove(number);
        if let Some(index) = &mut self.index {
            index.remove(&tube);
            if let Some(&moved) = self.numbers.get(position) {
                index.insert(watches.get(moved).tube, position as u32);
            }
        }
    }

    fn position(&self, tube: u32, watches: &Watches) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(&tube).map(|&position| position as usize),
            None => self.numbers.iter().position(|&number| watches.get(number).tube == tube),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done(Body),
    Failed(Body),
    Fault(Body),
    /// The job was deleted or expired without an outcome.
    Gone,
}

impl Outcome {
    pub fn body(&self) -> Option<&Body> {
        match self {
            Outcome::Done(body) | Outcome::Failed(body) | Outcome::Fault(body) => Some(body),
            Outcome::Gone => None,
        }
    }
}

/// The `text` of `Progress` contains the numerator and the denominator as the worker sent them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    Data(Body),
    Warning(Body),
    Progress { text: Body, done: u32, total: u32 },
}

impl Report {
    pub fn body(&self) -> &Body {
        match self {
            Report::Data(body) | Report::Warning(body) | Report::Progress { text: body, .. } => body,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoJob {
    TimedOut,
    DeadlineSoon,
}

/// `Work` notifies an idle client of a ready job in a watched tube. `Freed` concerns a reserved job that was held for a
/// group: its worker must not receive the job before the log has recorded that the members have ended.
/// `DeadLetterStays` reports to the server that the dead-letter tube cannot accept the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    Reserved { client: ClientId, job: JobId },
    NoJob { client: ClientId, why: NoJob },
    Work { client: ClientId },
    Outcome { client: ClientId, job: JobId, outcome: Arc<Outcome>, logged: bool },
    Report { client: ClientId, job: JobId, report: Arc<Report> },
    Freed { job: JobId },
    DeadLetterStays { job: JobId, from: Arc<[u8]>, dead: Arc<[u8]> },
}

impl Event {
    pub fn client(&self) -> ClientId {
        match self {
            Event::Reserved { client, .. }
            | Event::NoJob { client, .. }
            | Event::Work { client }
            | Event::Outcome { client, .. }
            | Event::Report { client, .. } => *client,
            Event::Freed { .. } | Event::DeadLetterStays { .. } => NOBODY,
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
            list.remove(tube, &mut watches);
            plain.swap_remove(plain.iter().position(|&other| other == tube).unwrap());
            assert!(!list.contains(tube, &watches));
            list.remove(tube, &mut watches);
        }
        assert_eq!(tubes(&list, &watches), plain);
        assert!(plain.iter().all(|&tube| list.contains(tube, &watches)));
        assert_eq!(watches.len(), plain.len());
    }
}
