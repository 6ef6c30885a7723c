//! All jobs, everything that belongs to jobs, data that outlives jobs, and the memory account.
//! Enforces promise P1 of beanpole-promises(7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slab::Slab;

use super::{
    hashed, ExtrasStore, Groups, Heap, JobCounts, JobId, Jobs, Lanes, Name, OldestIds, Positions, Schedules, Slots,
    Table, Time, NIL,
};

/// Identifies a family: the buried jobs, or all other jobs, with the same dedup key and tube. The values are the hash
/// of the key, the tube, and `true` for buried jobs. Kicked dead letters and failed jobs can join a nonempty family.
pub type Family = (u64, u32, bool);

/// Bytes charged for an entry in `Store::twins`, including its share of half-filled B-tree nodes.
pub const TWIN_COST: u64 = 48;

pub fn family_key((hash, tube, is_buried): Family) -> u64 {
    hash ^ (u64::from(tube) << 1 | u64::from(is_buried))
}

#[derive(Debug, Default)]
pub struct Store {
    pub(in crate::engine) jobs: Jobs,
    pub(in crate::engine) extras: ExtrasStore,
    /// All jobs of each family except the oldest, with their [`family_key`]. Lookups by hash find the oldest job.
    pub(in crate::engine) twins: BTreeSet<(u64, JobId)>,
    pub(in crate::engine) ended_keys: EndedKeys,
    pub(in crate::engine) lanes: Lanes,
    pub(in crate::engine) groups: Groups,
    pub(in crate::engine) origins: Origins,
    pub(in crate::engine) schedules: Schedules,
    pub(in crate::engine) last_id: u64,
    /// The last assigned rank in the order of burial.
    pub(in crate::engine) last_bury: u64,
    pub(in crate::engine) counts: JobCounts,
    pub(in crate::engine) oldest: OldestIds,
    pub(in crate::engine) total: u64,
    pub(in crate::engine) timeouts: u64,
    /// The number of unfinished jobs that expired.
    pub(in crate::engine) evicted: u64,
}

impl Store {
    pub fn memory(&self) -> u64 {
        self.jobs.memory()
            + self.extras.table.memory
            + self.ended_keys.table.memory
            + self.lanes.keys.memory
            + self.groups.table.memory
            + self.origins.memory
            + self.schedules.table.memory
    }

    /// Returns `true` if the set of twins has changed.
    pub fn set_twin(&mut self, family: Family, id: JobId, is_twin: bool) -> bool {
        let (twin, memory) = ((family_key(family), id), &mut self.extras.table.memory);
        let is_change = if is_twin { self.twins.insert(twin) } else { self.twins.remove(&twin) };
        let change = u64::from(is_change) * TWIN_COST;
        *memory = if is_twin { *memory + change } else { *memory - change };
        is_change
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    pub jobs: u64,
    pub tubes: u64,
    pub watches: u64,
    pub history: u64,
    /// Buffers of connections, as last reported by the server.
    pub buffers: u64,
}

impl Account {
    pub fn total(&self) -> u64 {
        self.jobs + self.tubes + self.watches + self.history + self.buffers
    }
}

#[derive(Debug)]
pub struct EndedKey {
    pub id: JobId,
    pub until: Time,
    pub tube: Arc<[u8]>,
    pub key: Name,
    /// 31 bits of the hash. The highest bit is 1 if the key is in the log.
    hash: u32,
    pub(in crate::engine) position: u32,
}

/// Bytes charged for the key of an ended job and its entry in the index, excluding the names.
pub const KEY_COST: u64 = size_of::<EndedKey>() as u64 + 20;

const _: () = assert!(KEY_COST <= 96);

impl EndedKey {
    pub fn names(&self) -> usize {
        self.tube.len() + self.key.length()
    }

    pub(in crate::engine) fn is_logged(&self) -> bool {
        self.hash >> 31 == 1
    }
}

hashed!(EndedKey, |key| key.hash << 1 >> 1, KEY_COST + key.names() as u64);

impl Positions for Slots<EndedKey> {
    fn set_position(&mut self, key: u32, position: u32) {
        self.get_mut(key).position = position;
    }
}

#[derive(Debug, Default)]
pub struct EndedKeys {
    pub table: Table<EndedKey>,
    pub ends: Heap<Time>,
}

impl EndedKeys {
    pub fn find(&self, tube: &[u8], key: &Name, hash: u32) -> Option<u32> {
        self.table.find(hash, |ended| ended.key == *key && *ended.tube == *tube)
    }

    pub fn insert(&mut self, id: JobId, tube: Arc<[u8]>, key: Name, hash: u32, until: Time, is_logged: bool) -> u32 {
        let hash = hash | u32::from(is_logged) << 31;
        let number = self.table.insert(EndedKey { id, until, tube, key, hash, position: NIL });
        self.ends.charged(&mut self.table.memory, |ends| ends.push(until, number, &mut self.table.items));
        number
    }

    pub fn remove(&mut self, number: u32) -> EndedKey {
        let position = self.table.get(number).position;
        self.ends.charged(&mut self.table.memory, |ends| _ = ends.remove(position, &mut self.table.items));
        self.table.remove(number)
    }
}

/// Bytes charged for an origin, excluding its name.
const ORIGIN_COST: u64 = 128;

/// The original tubes of dead letters, each with the number of its dead letters.
#[derive(Debug, Default)]
pub struct Origins {
    pub names: Slab<(Arc<[u8]>, u32)>,
    numbers: BTreeMap<Arc<[u8]>, u32>,
    pub memory: u64,
}

impl Origins {
    pub fn add(&mut self, name: &[u8]) -> u32 {
        let number = self.numbers.get(name).copied().unwrap_or_else(|| {
            let name: Arc<[u8]> = name.into();
            self.memory += ORIGIN_COST + name.len() as u64;
            let number = self.names.insert((name.clone(), 0)) as u32;
            self.numbers.insert(name, number);
            number
        });
        self.names[number as usize].1 += 1;
        number
    }

    /// Does nothing for [`NIL`], which is never the number of an origin.
    pub fn remove(&mut self, number: u32) {
        let Some((name, count)) = self.names.get_mut(number as usize) else { return };
        *count -= 1;
        if *count == 0 {
            self.memory -= ORIGIN_COST + name.len() as u64;
            self.numbers.remove(name);
            self.names.remove(number as usize);
        }
    }

    pub fn name(&self, number: u32) -> Option<&[u8]> {
        self.names.get(number as usize).map(|(name, _)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::hash_map::DefaultHasher;
    use std::hash::Hasher;

    use super::super::DedupKey;
    use super::*;

    /// The capacity of a heap with this many members has just doubled.
    const MANY: u32 = (1 << 16) + 1;

    #[test]
    fn keys_with_a_time_to_live_are_charged_what_they_allocate() {
        let (mut store, tube, name) = (Store::default(), Arc::<[u8]>::from(*b""), Name::from(&b""[..]));
        let is_exact = |what: &str, charged: u64, allocated: u64| {
            println!("{what}: {} bytes charged, {} allocated", charged / u64::from(MANY), allocated / u64::from(MANY));
            assert!(charged.abs_diff(allocated) <= 4 * u64::from(MANY), "{what}: {charged} for {allocated} bytes");
        };
        for number in 0..MANY {
            let mut hasher = DefaultHasher::new();
            hasher.write_u32(number);
            let (hash, end) = (hasher.finish(), Time::from_nanos(number.into()));
            store.ended_keys.insert(JobId(1), tube.clone(), name.clone(), (hash >> 33) as u32, end, false);
            store.extras.insert(number, DedupKey::Name(name.clone()), hash, end);
        }
        let heap = |heap: &Heap<Time>| (heap.entries.capacity() * 16) as u64;
        let (keys, extras) = (&store.ended_keys, &store.extras);
        is_exact("the key of an ended job", keys.table.memory, keys.table.allocated() + heap(&keys.ends));
        let without_heap = extras.table.allocated() + 4 * u64::from(MANY);
        is_exact("a job with a key", extras.table.counted(), without_heap);
        is_exact("a job with a key and a time to live", extras.table.memory, without_heap + heap(&extras.ends));
        assert_eq!(store.memory(), keys.table.memory + extras.table.memory);
        (0..MANY).for_each(|number| drop(store.ended_keys.remove(number)));
        (0..MANY).for_each(|slot| store.extras.remove(store.extras.of(slot)));
        assert_eq!(store.memory(), 0);
    }
}
