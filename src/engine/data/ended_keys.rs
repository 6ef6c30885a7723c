//! What is left of jobs whose keys outlive them.
//!
//! Owns the ids, the names and the ends of that time. The keys of living jobs are in `job_extras`. Must not decide what
//! a duplicate is told: `rules/ended_keys.rs` does.

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
    /// The number of the job.
    pub id: JobId,
    /// The end of the time for which the key is kept.
    pub until: Time,
    /// The name of the tube that the job was in.
    pub tube: Arc<[u8]>,
    pub key: Name,
    hash: u32,
    /// The next in the same bucket of the index.
    chain: u32,
    /// Its place in the order of ends.
    place: u32,
    /// Whether the log has a record of it.
    pub(in crate::engine) is_logged: bool,
}

/// Bytes of account of a key beside the names: itself, and its places in the index and in the order of ends.
pub const KEY_COST: u64 = size_of::<EndedKey>() as u64 + 24;

const _: () = assert!(KEY_COST <= 96);

impl EndedKey {
    /// Returns the bytes of both names.
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

/// All of them, by their names and by when they are forgotten.
#[derive(Debug, Default)]
pub struct EndedKeys {
    store: Slots<EndedKey>,
    index: Index,
    ends: Heap<Time>,
    /// Bytes of account of all of them.
    memory: u64,
}

impl EndedKeys {
    /// The key with this number.
    pub fn get(&self, number: u32) -> &EndedKey {
        self.store.get(number)
    }

    /// Returns the number of the key of these names, which have this hash.
    pub fn find(&self, tube: &[u8], key: &Name, hash: u32) -> Option<u32> {
        self.index.find(hash as usize, &self.store, |number| {
            let ended = self.get(number);
            ended.hash == hash && ended.key == *key && *ended.tube == *tube
        })
    }

    /// Keeps this key, whose names have this hash and which must be new, and returns its number.
    pub fn insert(&mut self, id: JobId, tube: Arc<[u8]>, key: Name, hash: u32, until: Time, is_logged: bool) -> u32 {
        let ended = EndedKey { id, until, tube, key, hash, chain: NIL, place: NIL, is_logged };
        self.memory += ended.cost();
        let number = self.store.insert(ended);
        self.index.insert(number, &mut self.store);
        self.ends.push(until, number, &mut self.store);
        number
    }

    /// Forgets the key with this number.
    pub fn remove(&mut self, number: u32) -> EndedKey {
        self.index.remove(number, &mut self.store);
        self.ends.remove(self.get(number).place, &mut self.store);
        let gone = self.store.remove(number);
        self.memory -= gone.cost();
        gone
    }

    /// Returns the bytes of account of all of them.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns when the next one is forgotten.
    pub fn next_end(&self) -> Time {
        self.ends.first().map_or(Time::NEVER, |(at, _)| at)
    }

    /// Returns the number of the one that is forgotten next.
    pub fn next(&self) -> Option<u32> {
        self.ends.first().map(|(_, number)| number)
    }

    /// Returns the number of the first one from this number on.
    pub fn next_from(&self, number: u32) -> Option<u32> {
        self.store.next(number)
    }

    /// Returns all of them, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = &EndedKey> {
        self.store.iter().map(|(_, ended)| ended)
    }

    pub fn is_empty(&self) -> bool {
        self.ends.len() == 0
    }

    /// Bytes of account of all, counted one by one; for checks.
    #[cfg(any(test, feature = "test-support"))]
    pub fn counted(&self) -> u64 {
        self.ends.check(|number| self.get(number).place);
        assert_eq!((self.index.len(), self.ends.len()), (self.store.len(), self.store.len()));
        self.store.iter().map(|(_, ended)| ended.cost()).sum()
    }
}
