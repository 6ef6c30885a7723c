//! Dedup keys that outlive their jobs.
//!
//! Owns the job IDs, names and expiry times of the keys. The keys of existing jobs are in `job_extras`. Must not decide
//! the reply to a duplicate: `rules/ended_keys.rs` does.

use std::sync::Arc;

use super::{table::hashed, Heap, JobId, Name, Positioned, Table, Time, NIL};

#[derive(Debug)]
pub struct EndedKey {
    pub id: JobId,
    pub until: Time,
    pub tube: Arc<[u8]>,
    pub key: Name,
    hash: u32,
    chain: u32,
    pub(in crate::engine) position: u32,
    pub(in crate::engine) is_logged: bool,
}

/// Bytes charged for a key and its entries in the index and the heap, excluding its names.
pub const KEY_COST: u64 = size_of::<EndedKey>() as u64 + 24;

const _: () = assert!(KEY_COST <= 96);

impl EndedKey {
    pub fn names(&self) -> usize {
        self.tube.len() + self.key.length()
    }
}

hashed!(EndedKey, |key| key.hash, KEY_COST + key.names() as u64);

impl Positioned for EndedKey {
    fn position_mut(&mut self) -> &mut u32 {
        &mut self.position
    }
}

#[derive(Debug, Default)]
pub struct EndedKeys {
    pub table: Table<EndedKey>,
    pub ends: Heap<Time>,
}

impl EndedKeys {
    pub fn find(&self, tube: &[u8], key: &Name, hash: u32) -> Option<u32> {
        self.table.find(hash, |ended| ended.hash == hash && ended.key == *key && *ended.tube == *tube)
    }

    pub fn insert(&mut self, id: JobId, tube: Arc<[u8]>, key: Name, hash: u32, until: Time, is_logged: bool) -> u32 {
        let number = self.table.insert(EndedKey { id, until, tube, key, hash, chain: NIL, position: NIL, is_logged });
        self.ends.push(until, number, &mut self.table.items);
        number
    }

    pub fn remove(&mut self, number: u32) -> EndedKey {
        self.ends.remove(self.table.get(number).position, &mut self.table.items);
        self.table.remove(number)
    }

    pub fn next_end(&self) -> Time {
        self.ends.first().map_or(Time::NEVER, |(at, _)| at)
    }
}
