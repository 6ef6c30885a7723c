//! The keys of ended jobs, which outlive them.
//!
//! Owns their IDs, names and ends. The keys of existing jobs are in `job_extras`. Must not decide the reply to a
//! duplicate: `rules/ended_keys.rs` does.

use std::sync::Arc;

use super::heap::{Heap, Placed};
use super::index::{chained, Index};
use super::job::JobId;
use super::list::NIL;
use super::name::Name;
use super::slots::Slots;
use super::time::Time;

/// The key of a job that has ended.
#[derive(Debug)]
pub struct EndedKey {
    pub id: JobId,
    pub until: Time,
    pub tube: Arc<[u8]>,
    pub key: Name,
    hash: u32,
    /// The next key in the same bucket of the index.
    chain: u32,
    /// The heap position in the order of ends.
    place: u32,
    /// `true` if the log has a record of the key.
    pub(in crate::engine) is_logged: bool,
}

/// Bytes of account of a key without its names: itself, and its entries in the index and in the order of ends.
pub const KEY_COST: u64 = size_of::<EndedKey>() as u64 + 24;

const _: () = assert!(KEY_COST <= 96);

impl EndedKey {
    pub fn names(&self) -> usize {
        self.tube.len() + self.key.length()
    }

    fn cost(&self) -> u64 {
        KEY_COST + self.names() as u64
    }
}

chained!(EndedKey);

impl Placed for EndedKey {
    fn place_mut(&mut self) -> &mut u32 {
        &mut self.place
    }
}

/// All keys of ended jobs, indexed by their names and by the time of their removal.
#[derive(Debug, Default)]
pub struct EndedKeys {
    store: Slots<EndedKey>,
    index: Index,
    ends: Heap<Time>,
    memory: u64,
}

impl EndedKeys {
    pub fn get(&self, number: u32) -> &EndedKey {
        self.store.get(number)
    }

    /// Returns the number of the key with these names and this hash.
    pub fn find(&self, tube: &[u8], key: &Name, hash: u32) -> Option<u32> {
        self.index.find(hash as usize, &self.store, |number| {
            let ended = self.get(number);
            ended.hash == hash && ended.key == *key && *ended.tube == *tube
        })
    }

    /// Adds this key, which must be new and have this hash, and returns its number.
    pub fn insert(&mut self, id: JobId, tube: Arc<[u8]>, key: Name, hash: u32, until: Time, is_logged: bool) -> u32 {
        let ended = EndedKey { id, until, tube, key, hash, chain: NIL, place: NIL, is_logged };
        self.memory += ended.cost();
        let number = self.store.insert(ended);
        self.index.insert(number, &mut self.store);
        self.ends.push(until, number, &mut self.store);
        number
    }

    pub fn remove(&mut self, number: u32) -> EndedKey {
        self.index.remove(number, &mut self.store);
        self.ends.remove(self.get(number).place, &mut self.store);
        let gone = self.store.remove(number);
        self.memory -= gone.cost();
        gone
    }

    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the time at which the next key is removed.
    pub fn next_end(&self) -> Time {
        self.ends.first().map_or(Time::NEVER, |(at, _)| at)
    }

    /// Returns the number of the key that is removed next.
    pub fn next(&self) -> Option<u32> {
        self.ends.first().map(|(_, number)| number)
    }

    /// Returns the number of the first key at or after this number.
    pub fn next_from(&self, number: u32) -> Option<u32> {
        self.store.next(number)
    }

    /// Returns all keys, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &EndedKey> {
        self.store.iter().map(|(_, ended)| ended)
    }

    pub fn is_empty(&self) -> bool {
        self.ends.len() == 0
    }

    /// Bytes of account of all keys, counted one by one; for checks.
    #[cfg(any(test, feature = "test-support"))]
    pub fn counted(&self) -> u64 {
        self.ends.check(|number| self.get(number).place);
        assert_eq!((self.index.len(), self.ends.len()), (self.store.len(), self.store.len()));
        self.store.iter().map(|(_, ended)| ended.cost()).sum()
    }
}
