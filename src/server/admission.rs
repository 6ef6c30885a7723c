//! Connection limits, in total and per address. Must not reply to rejected clients: the listener sends these replies.
//! Enforces promise P23 of beanpole-promises(7).

use std::collections::hash_map::{Entry, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{net::IpAddr, sync::Arc};

use super::memory::{Memory, CONNECTION_COST};
use super::socket::PeerAddress;
use super::timeouts::{HttpConnection, BUSY};
use crate::settings::config::{local_connections, Config};
use crate::shared::lock_order::LeafMutex;
use crate::shared::system;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    Connections,
    Address,
    Files,
    /// Must be the last variant, because the listener derives the size of an array from this variant's number.
    Memory,
}

impl Refusal {
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Connections => "too many connections",
            Refusal::Address => "too many connections from its address",
            Refusal::Files => "too many open files",
            Refusal::Memory => "too little memory",
        }
    }
}

/// The limit on open HTTP connections: enough for browsers and scrapers, and few enough to check all at once.
pub const MAX_HTTP: usize = 64;

/// The number of HTTP connections above [`MAX_HTTP`] that are accepted until idle connections are closed.
const EXTRA_HTTP: usize = 16;

/// Additional HTTP connections for Unix sockets and loopback addresses.
const LOCAL_HTTP: usize = 8;

/// The number of connections that unauthenticated clients leave to others, unless the limit is low.
const MAX_SPARE: usize = 16;

/// The maximum number of unauthenticated clients that have a second to authenticate if connections run short.
const MAX_SPARED: usize = 64;

/// For this long after the limit is first exceeded, connections that have sent a request are not evicted if there are
/// enough others. During its first second, a connection that has not sent a request is the last to be evicted.
const CROWDED: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Http {
    count: usize,
    /// The time since which there have been more than [`MAX_HTTP`] connections.
    crowded: Option<Instant>,
    /// The connections of each pool thread, as of the thread's last check.
    seen: Vec<(usize, HttpConnection)>,
}

impl Http {
    fn subtract(&mut self, count: usize) {
        self.count -= count;
        if self.count <= MAX_HTTP {
            self.crowded = None;
        }
    }
}

pub struct Admission {
    limit: usize,
    local_limit: usize,
    address_limit: Option<usize>,
    connections: AtomicUsize,
    http: LeafMutex<Http>,
    addresses: LeafMutex<HashMap<IpAddr, usize>>,
    memory: Arc<Memory>,
}

impl Admission {
    pub fn new(config: &Config, memory: Arc<Memory>) -> Admission {
        let limit = config.max_connections;
        let local_limit = limit.saturating_add(local_connections(system::file_limit()));
        let address_limit = config.max_connections_per_address.map(|limit| limit.max(1));
        let (connections, http, addresses) = Default::default();
        Admission { limit, local_limit, address_limit, connections, http, addresses, memory }
    }

    /// Lowers the limits if they exceed the available descriptors. `needed` is the number of open descriptors, with
    /// those of connections, plus a reserve. Returns `false` if no connection would be admitted.
    pub fn keep_descriptors(&self, needed: usize, file_limit: usize) -> bool {
        let own = needed.saturating_sub(self.connections.load(Ordering::Acquire));
        let excess = self.local_limit.saturating_sub(file_limit.saturating_sub(own));
        let is_enough = excess < self.local_limit;
        if is_enough {
            self.connections.fetch_add(excess, Ordering::AcqRel);
        }
        is_enough
    }

    /// If unauthenticated clients must make room for others, returns how many of them have a second to authenticate.
    pub fn spared(&self) -> Option<usize> {
        let free = self.limit.saturating_sub(self.connections.load(Ordering::Acquire));
        (free < (self.limit / 8).clamp(1, MAX_SPARE)).then_some(MAX_SPARED.min(self.limit / 4))
    }

    pub fn admit(&self, peer: &PeerAddress, is_http: bool) -> Result<(), Refusal> {
        if is_http {
            let mut http = self.http.lock();
            if http.count >= MAX_HTTP + EXTRA_HTTP + if peer.is_local() { LOCAL_HTTP } else { 0 } {
                return Err(Refusal::Connections);
            }
            http.count += 1;
        }
        let admitted = self.admit_any(peer);
        if admitted.is_err() && is_http {
            self.http.lock().subtract(1);
        }
        admitted
    }

    fn admit_any(&self, peer: &PeerAddress) -> Result<(), Refusal> {
        let limit = if peer.is_local() { self.local_limit } else { self.limit };
        let more = |count| (count < limit).then_some(count + 1);
        let counted = self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        counted.map_err(|_| Refusal::Connections)?;
        let admitted = if self.memory.has_for_connection() { self.admit_address(peer) } else { Err(Refusal::Memory) };
        match admitted {
            Ok(()) => self.memory.charge(0, CONNECTION_COST),
            Err(_) => drop(self.connections.fetch_sub(1, Ordering::AcqRel)),
        }
        admitted
    }

    fn admit_address(&self, peer: &PeerAddress) -> Result<(), Refusal> {
        let (Some(limit), Some(address)) = (self.address_limit, peer.ip()) else { return Ok(()) };
        let mut addresses = self.addresses.lock();
        let count = addresses.entry(address).or_default();
        // `limit` is at least 1, so this error leaves no entry with a count of 0.
        ensure!(*count < limit, Refusal::Address);
        *count += 1;
        Ok(())
    }

    /// Stops counting the excess connections among `own` (the connections of `thread`) and returns their numbers. The
    /// caller must close them. Excess connections of other threads count until those threads call this function.
    pub fn evict_http(&self, thread: usize, own: &[HttpConnection], now: Instant) -> Vec<usize> {
        let http = &mut *self.http.lock();
        http.seen.retain(|(of, _)| *of != thread);
        http.seen.extend(own.iter().map(|connection| (thread, *connection)));
        if http.count <= MAX_HTTP {
            return Vec::new();
        }
        let excess = http.count - MAX_HTTP;
        let is_new = now.saturating_duration_since(*http.crowded.get_or_insert(now)) < CROWDED;
        let used = http.seen.iter().filter(|(_, it)| it.is_used()).count();
        let spared = if is_new { http.count.saturating_sub(used).min(excess) } else { 0 };
        let rank = |(of, it): &(usize, HttpConnection)| (it.rank(now), *of, it.number, it.is_used());
        let mut order: Vec<_> = http.seen.iter().map(rank).collect();
        order.sort_unstable();
        order.truncate(excess);
        // Evict connections that wait for the server only to keep half of `EXTRA_HTTP` free for new clients.
        let mut rest = EXTRA_HTTP / 2..excess;
        order.retain(|it| rest.next().is_some() || it.0 .0 != BUSY);
        // Evict at most `excess - spared` used connections.
        let mut used = 0..excess - spared;
        order.retain(|it| !it.3 || used.next().is_some());
        let evicted: Vec<usize> = order.iter().filter(|it| it.1 == thread).map(|it| it.2).collect();
        http.seen.retain(|(of, it)| *of != thread || !evicted.contains(&it.number));
        http.subtract(evicted.len());
        evicted
    }

    pub fn leave(&self, peer: &PeerAddress, is_http: bool) {
        self.memory.charge(CONNECTION_COST, 0);
        self.connections.fetch_sub(1, Ordering::AcqRel);
        if is_http {
            self.http.lock().subtract(1);
        }
        let Some(address) = peer.ip().filter(|_| self.address_limit.is_some()) else { return };
        if let Entry::Occupied(mut count) = self.addresses.lock().entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeouts::{AwaitedPart, HttpConnections};
    use super::*;

    fn peer(address: &str) -> PeerAddress {
        PeerAddress::new(format!("{address}:1").parse().expect("an address"), false)
    }

    fn admission(limit: usize, per_address: Option<usize>) -> Admission {
        let config = Config { max_connections: limit, max_connections_per_address: per_address, ..Config::embedded() };
        Admission { local_limit: limit + 2, ..Admission::new(&config, Arc::new(Memory::new(1 << 30))) }
    }

    #[test]
    fn some_places_are_reserved_for_local_clients() {
        let admission = admission(1, None);
        let far = peer("192.0.2.1");
        admission.admit(&far, false).expect("the first connection");
        assert_eq!(admission.admit(&far, false), Err(Refusal::Connections));
        admission.admit(&PeerAddress::UNIX, false).expect("a local client");
        admission.admit(&peer("[::ffff:127.0.0.2]"), false).expect("a local client");
        assert_eq!(admission.admit(&PeerAddress::UNIX, false), Err(Refusal::Connections));
        admission.leave(&far, false);
        assert_eq!(admission.admit(&far, false), Err(Refusal::Connections), "local connections must count");
        admission.admit(&PeerAddress::UNIX, false).expect("a freed place");
    }

    #[test]
    fn connections_leave_descriptors_to_the_server() {
        let admission = admission(10, None);
        assert!(admission.keep_descriptors(28, 33));
        let far = peer("192.0.2.1");
        assert_eq!(std::iter::from_fn(|| admission.admit(&far, false).ok()).count(), 3);
        assert_eq!(std::iter::from_fn(|| admission.admit(&PeerAddress::UNIX, false).ok()).count(), 2);
        assert!(!self::admission(10, None).keep_descriptors(28, 28));
    }

    /// While the server starts, reconnecting clients already use descriptors.
    #[test]
    fn early_connections_do_not_lower_the_limit() {
        let admission = admission(10, None);
        (0..4).for_each(|_| admission.admit(&PeerAddress::UNIX, false).expect("a place"));
        assert!(admission.keep_descriptors(32, 33));
        admission.admit(&PeerAddress::UNIX, false).expect("the fifth place");
        assert_eq!(admission.admit(&PeerAddress::UNIX, false), Err(Refusal::Connections));
    }

    #[test]
    fn http_connections_count_for_their_address_and_local_ones_have_reserved_places() {
        let admission = admission(1000, Some(100));
        let far = peer("192.0.2.1");
        let count = std::iter::from_fn(|| admission.admit(&far, true).ok()).count();
        assert_eq!(count, MAX_HTTP + EXTRA_HTTP);
        let near = peer("127.0.0.1");
        assert_eq!(std::iter::from_fn(|| admission.admit(&near, true).ok()).count(), LOCAL_HTTP);
        for _ in count..100 {
            admission.admit(&far, false).expect("a share");
        }
        assert_eq!(admission.admit(&far, false), Err(Refusal::Address), "HTTP connections must count");
        admission.leave(&far, true);
        admission.admit(&far, false).expect("a freed share");
    }

    /// Returns an `Admission` with `count` HTTP connections, their address, and a thread's empty list of connections.
    fn crowd(count: usize) -> (Admission, PeerAddress, HttpConnections) {
        let (admission, far) = (admission(1000, None), peer("192.0.2.1"));
        (0..count).for_each(|_| admission.admit(&far, true).expect("a place"));
        (admission, far, HttpConnections::default())
    }

    #[test]
    fn threads_evict_the_excess_of_operators_once() {
        let (admission, far, mut http) = crowd(MAX_HTTP + EXTRA_HTTP);
        (0..20).for_each(|number| http.enter(number, Instant::now()));
        let evicted: usize = std::thread::scope(|scope| {
            let check = |thread| admission.evict_http(thread, &http.all, Instant::now()).len();
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || check(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
        });
        assert_eq!(evicted, EXTRA_HTTP);
        // An evicted connection is not subtracted from the count again when it is closed.
        admission.admit(&far, true).expect("a place");
        assert_eq!(admission.evict_http(0, &http.all, Instant::now()).len(), 1);
        admission.leave(&far, false);
        assert_eq!(admission.http.lock().count, MAX_HTTP);
    }

    #[test]
    fn a_thread_evicts_only_the_longest_idle_connections_of_all_threads() {
        let (admission, far, mut old) = crowd(MAX_HTTP + 3);
        let mut young = HttpConnections::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let evict = |thread, own: &mut HttpConnections, requests, now| {
            own.check(now, |_| (requests, AwaitedPart::Client(0)));
            let evicted = admission.evict_http(thread, &own.all, now);
            evicted.iter().for_each(|number| own.leave(*number));
            evicted
        };
        (0..MAX_HTTP).for_each(|number| old.enter(number, at(0)));
        evict(0, &mut old, 1, at(0));
        (0..3).for_each(|number| young.enter(number, at(500)));
        // Neither thread evicts its own connections, because connections of the other thread must be evicted first.
        assert_eq!(evict(1, &mut young, 0, at(500)), []);
        assert_eq!(evict(0, &mut old, 1, at(900)), [], "three unused connections suffice");
        assert_eq!(evict(1, &mut young, 1, at(1000)), [], "the connections have sent requests");
        assert_eq!(evict(0, &mut old, 1, at(1001)), [0, 1, 2], "used connections are not spared for others");
        // A connection that no thread has reported yet counts as unused, so used connections are spared at first.
        admission.admit(&far, true).expect("a place");
        assert_eq!(evict(0, &mut old, 1, at(2000)), []);
        assert_eq!(evict(0, &mut old, 1, at(3999)), []);
        // The time limit for sparing used connections restarts, because a client has left.
        admission.leave(&far, true);
        admission.admit(&far, true).expect("a place");
        assert_eq!(evict(0, &mut old, 1, at(4000)), []);
        assert_eq!(evict(0, &mut old, 1, at(5999)), []);
        assert_eq!(evict(0, &mut old, 1, at(6000)), [3]);
    }

    #[test]
    fn connections_that_wait_for_the_server_leave_room_for_new_clients() {
        let (admission, far, mut http) = crowd(MAX_HTTP + EXTRA_HTTP);
        let now = Instant::now();
        (0..MAX_HTTP + EXTRA_HTTP).for_each(|number| http.enter(number, now));
        http.check(now, |number| (1, if number == 3 { AwaitedPart::Body } else { AwaitedPart::Server }));
        let evicted = admission.evict_http(0, &http.all, now);
        assert_eq!(evicted, [3, 0, 1, 2, 4, 5, 6, 7]);
        evicted.into_iter().for_each(|number| http.leave(number));
        assert_eq!(admission.evict_http(0, &http.all, now), [], "half of the extra connections are free");
        admission.admit(&far, true).expect("a place");
        http.enter(MAX_HTTP + EXTRA_HTTP, now);
        assert_eq!(admission.evict_http(0, &http.all, now), [8], "the new client must stay");
    }

    #[test]
    fn each_address_has_its_share() {
        let admission = admission(10, Some(2));
        let (first, mapped) = (peer("192.0.2.1"), peer("[::ffff:192.0.2.1]"));
        [&first, &mapped].into_iter().for_each(|peer| admission.admit(peer, false).expect("a share"));
        assert_eq!(admission.admit(&first, false), Err(Refusal::Address));
        admission.admit(&peer("192.0.2.2"), false).expect("a client at another address");
        for _ in 0..5 {
            admission.admit(&PeerAddress::UNIX, false).expect("a client without an address");
        }
        admission.leave(&mapped, false);
        admission.admit(&first, false).expect("a freed share");
        assert_eq!(admission.admit(&first, false), Err(Refusal::Address));
        assert_eq!(admission.connections.load(Ordering::Relaxed), 8);
        assert_eq!(admission.addresses.lock().len(), 2);
    }
}
