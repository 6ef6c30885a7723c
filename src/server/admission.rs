//! Connection limits and admission.
//!
//! Owns the number of connections, in total and per address. Knows only the peer address of a connection, and replies
//! to nobody: the listener sends the reason to a rejected client.
//!
//! Promises: P23.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use slab::Slab;

use super::memory::{Memory, CONNECTION_COST};
use super::socket::PeerAddress;
use crate::settings::config::{local_connections, Config};
use crate::shared::lock_order::LeafMutex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    Connections,
    Address,
    Files,
    Memory,
    /// The limit of unauthenticated connections is reached.
    Strangers,
}

impl Refusal {
    pub const ALL: [Refusal; 5] =
        [Refusal::Connections, Refusal::Address, Refusal::Files, Refusal::Memory, Refusal::Strangers];

    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Connections => "too many connections",
            Refusal::Address => "too many connections from its address",
            Refusal::Files => "too many open files",
            Refusal::Memory => "too little memory",
            Refusal::Strangers => "too many that have not proven who they are",
        }
    }
}

/// What an admitted connection returns to [`Admission`] when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permit {
    /// Index of the peer's address; `None` if addresses are not counted.
    address: Option<u32>,
    is_operator: bool,
}

impl Permit {
    const UNCOUNTED: Permit = Permit { address: None, is_operator: false };
}

/// Maximum number of HTTP connections: enough for browsers and scrapers, and cheap to scan.
pub const MOST_OPERATORS: usize = 64;

/// Temporary HTTP connections above that limit, until the ones that have been idle longest are closed.
const EXTRA_OPERATORS: usize = 16;

/// Further HTTP connections for Unix sockets and loopback addresses.
const LOCAL_OPERATORS: usize = 8;

#[derive(Debug)]
pub struct Admission {
    most: usize,
    /// Extra connections above `most` for Unix sockets and loopback addresses.
    most_local: usize,
    most_per_address: Option<usize>,
    connections: AtomicUsize,
    operators: AtomicUsize,
    addresses: LeafMutex<Addresses>,
    memory: Arc<Memory>,
}

/// Addresses with at least one connection, indexed by small numbers.
#[derive(Debug, Default)]
struct Addresses {
    numbers: HashMap<IpAddr, u32>,
    counts: Slab<(IpAddr, usize)>,
}

impl Admission {
    pub fn new(config: &Config, memory: Arc<Memory>) -> Admission {
        Admission {
            most: config.max_connections,
            most_local: config.max_connections.saturating_add(local_connections()),
            most_per_address: config.max_connections_per_address.map(|most| most.max(1)),
            connections: AtomicUsize::new(0),
            operators: AtomicUsize::new(0),
            addresses: LeafMutex::default(),
            memory,
        }
    }

    /// Admits an HTTP connection, subject to the lower limit for these.
    pub fn admit_operator(&self, peer: &PeerAddress) -> Result<Permit, Refusal> {
        let most = MOST_OPERATORS + EXTRA_OPERATORS + if peer.is_local() { LOCAL_OPERATORS } else { 0 };
        let admitted = match self.operators.fetch_add(1, Ordering::AcqRel) < most {
            true => self.admit(peer),
            false => Err(Refusal::Connections),
        };
        match admitted {
            Ok(permit) => Ok(Permit { is_operator: true, ..permit }),
            Err(refusal) => {
                self.operators.fetch_sub(1, Ordering::AcqRel);
                Err(refusal)
            }
        }
    }

    /// If there are more than [`MOST_OPERATORS`] HTTP connections, removes one from the count and returns `true`. The
    /// caller must then close the connection, whose permit no longer counts as HTTP. Since the count changes first,
    /// concurrent callers close no more than the excess.
    pub fn evict_operator(&self, permit: &mut Permit) -> bool {
        let less = |count: usize| (count > MOST_OPERATORS).then(|| count - 1);
        let evicted =
            permit.is_operator && self.operators.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok();
        permit.is_operator &= !evicted;
        evicted
    }

    /// Counts another connection unless a limit is reached.
    pub fn admit(&self, peer: &PeerAddress) -> Result<Permit, Refusal> {
        let most = if peer.is_local() { self.most_local } else { self.most };
        if self.connections.fetch_add(1, Ordering::AcqRel) >= most {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            return Err(Refusal::Connections);
        }
        let permit = if self.memory.has_for_connection() { self.permit(peer) } else { Err(Refusal::Memory) };
        match permit {
            Ok(_) => self.memory.charge(0, CONNECTION_COST),
            Err(_) => drop(self.connections.fetch_sub(1, Ordering::AcqRel)),
        }
        permit
    }

    fn permit(&self, peer: &PeerAddress) -> Result<Permit, Refusal> {
        let (Some(most), Some(address)) = (self.most_per_address, peer.ip()) else { return Ok(Permit::UNCOUNTED) };
        self.addresses.lock().enter(address, most).ok_or(Refusal::Address)
    }

    /// Removes an admitted connection from the counts.
    pub fn leave(&self, permit: Permit) {
        self.memory.charge(CONNECTION_COST, 0);
        self.connections.fetch_sub(1, Ordering::AcqRel);
        if permit.is_operator {
            self.operators.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(number) = permit.address {
            self.addresses.lock().leave(number);
        }
    }
}

impl Addresses {
    /// Adds a connection from `address`; `most` is at least 1.
    fn enter(&mut self, address: IpAddr, most: usize) -> Option<Permit> {
        if let Some(&number) = self.numbers.get(&address) {
            let (_, count) = &mut self.counts[number as usize];
            return (*count < most).then(|| {
                *count += 1;
                Permit { address: Some(number), is_operator: false }
            });
        }
        let number = self.counts.insert((address, 1)) as u32;
        self.numbers.insert(address, number);
        Some(Permit { address: Some(number), is_operator: false })
    }

    fn leave(&mut self, number: u32) {
        let (address, count) = &mut self.counts[number as usize];
        *count -= 1;
        if *count == 0 {
            self.numbers.remove(address);
            self.counts.remove(number as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> PeerAddress {
        PeerAddress::Tcp(format!("{address}:1").parse().expect("an address"))
    }

    fn admission(most: usize, per_address: Option<usize>) -> Admission {
        let config = Config { max_connections: most, max_connections_per_address: per_address, ..Config::embedded() };
        Admission { most_local: most + 2, ..Admission::new(&config, Arc::new(Memory::new(1 << 30))) }
    }

    #[test]
    fn some_places_are_kept_for_those_on_this_machine() {
        let admission = admission(1, None);
        let far = peer("192.0.2.1");
        let permit = admission.admit(&far).expect("the first");
        assert_eq!(admission.admit(&far), Err(Refusal::Connections));
        admission.admit(&PeerAddress::Unix).expect("an operator");
        admission.admit(&peer("[::ffff:127.0.0.2]")).expect("an operator");
        assert_eq!(admission.admit(&PeerAddress::Unix), Err(Refusal::Connections));
        admission.leave(permit);
        assert_eq!(admission.admit(&far), Err(Refusal::Connections), "those of this machine count");
        admission.admit(&PeerAddress::Unix).expect("a place that is free again");
    }

    #[test]
    fn operators_count_for_their_address_and_have_places_on_this_machine() {
        let admission = admission(1000, Some(100));
        let far = peer("192.0.2.1");
        let permits: Vec<Permit> = std::iter::from_fn(|| admission.admit_operator(&far).ok()).collect();
        assert_eq!(permits.len(), MOST_OPERATORS + EXTRA_OPERATORS);
        let near = || admission.admit_operator(&peer("127.0.0.1"));
        assert_eq!(std::iter::from_fn(|| near().ok()).count(), LOCAL_OPERATORS);
        for _ in permits.len()..100 {
            admission.admit(&far).expect("a share");
        }
        assert_eq!(admission.admit(&far), Err(Refusal::Address), "those of HTTP count");
        admission.leave(permits[0]);
        admission.admit(&far).expect("a share that is free again");
    }

    #[test]
    fn threads_evict_the_excess_of_operators_once() {
        let admission = admission(1000, None);
        let permits: Vec<Permit> = (0..MOST_OPERATORS + EXTRA_OPERATORS)
            .map(|_| admission.admit_operator(&peer("192.0.2.1")).expect("a place"))
            .collect();
        // All threads see the excess before any of them has closed a connection.
        let evicted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = permits
                .chunks(20)
                .map(|own| {
                    let admission = &admission;
                    scope.spawn(move || {
                        own.to_vec().iter_mut().filter_map(|it| admission.evict_operator(it).then_some(())).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
        });
        assert_eq!(evicted, EXTRA_OPERATORS);
        // An evicted connection does not count again when it ends.
        let mut permit = admission.admit_operator(&peer("192.0.2.1")).expect("a place");
        assert!(admission.evict_operator(&mut permit) && !admission.evict_operator(&mut permit));
        admission.leave(permit);
        assert_eq!(admission.operators.load(Ordering::Relaxed), MOST_OPERATORS);
    }

    #[test]
    fn each_address_has_its_share() {
        let admission = admission(10, Some(2));
        let seats =
            [peer("192.0.2.1"), peer("[::ffff:192.0.2.1]")].map(|peer| admission.admit(&peer).expect("a share"));
        assert_eq!(admission.admit(&peer("192.0.2.1")), Err(Refusal::Address));
        admission.admit(&peer("192.0.2.2")).expect("another address");
        for _ in 0..5 {
            admission.admit(&PeerAddress::Unix).expect("Unix sockets have no address");
        }
        admission.leave(seats[1]);
        admission.admit(&peer("192.0.2.1")).expect("a share that is free again");
        assert_eq!(admission.admit(&peer("192.0.2.1")), Err(Refusal::Address));
        // Rejected connections do not count.
        assert_eq!(admission.connections.load(Ordering::Relaxed), 8);
        assert_eq!(admission.addresses.lock().counts.len(), 2);
    }
}
