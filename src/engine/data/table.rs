//! Numbered items in chunks, hash tables of them with chains through the items, and sparse tables of numbers. All grow
//! by a chunk or a bucket at a time, so no insertion moves or rehashes many items.

use super::{Slots, CHUNK, NIL};

const MIN_BUCKETS: u32 = 16;

pub trait Hashed {
    /// The hash must not change while the item is in the index.
    fn hash(&self) -> u32;
    fn chain(&self) -> u32;
    fn chain_mut(&mut self) -> &mut u32;
    fn cost(&self) -> u64;
}

/// Implements [`Hashed`] for a type with the 32-bit field `chain`, from expressions for the hash and the cost.
macro_rules! hashed {
    ($item:ty, |$this:ident| $hash:expr, $cost:expr) => {
        impl $crate::engine::data::table::Hashed for $item {
            fn hash(&self) -> u32 {
                let $this = self;
                $hash
            }
            fn chain(&self) -> u32 {
                self.chain
            }
            fn chain_mut(&mut self) -> &mut u32 {
                &mut self.chain
            }
            #[allow(unused_variables)]
            fn cost(&self) -> u64 {
                let $this = self;
                $cost
            }
        }
    };
}
pub(in crate::engine) use hashed;

#[derive(Debug)]
pub struct Table<T, const N: usize = CHUNK> {
    pub items: Slots<T, N>,
    heads: SlotTable,
    buckets: u32,
    pub indexed: u32,
    /// If the cost of an item changes, the owner of the table must update the sum.
    pub memory: u64,
}

impl<T, const N: usize> Default for Table<T, N> {
    fn default() -> Table<T, N> {
        let (items, heads) = (Slots::default(), SlotTable::default());
        Table { items, heads, buckets: MIN_BUCKETS, indexed: 0, memory: 0 }
    }
}

impl<T: Hashed, const N: usize> Table<T, N> {
    #[inline(always)]
    pub fn get(&self, slot: u32) -> &T {
        self.items.get(slot)
    }

    #[inline(always)]
    pub fn get_mut(&mut self, slot: u32) -> &mut T {
        self.items.get_mut(slot)
    }

    pub fn find(&self, hash: u32, mut matches: impl FnMut(&T) -> bool) -> Option<u32> {
        let mut slot = self.heads.get(self.bucket_of(hash));
        while slot != NIL {
            let item = self.get(slot);
            if matches(item) {
                return Some(slot);
            }
            slot = item.chain();
        }
        None
    }

    pub fn insert(&mut self, item: T) -> u32 {
        self.memory += item.cost();
        let slot = self.items.insert(item);
        self.index(slot);
        slot
    }

    pub fn remove(&mut self, slot: u32) -> T {
        self.unindex(slot);
        let item = self.items.remove(slot);
        self.memory -= item.cost();
        item
    }

    /// Updates `memory`. The hash must not change.
    pub fn edit<R>(&mut self, slot: u32, change: impl FnOnce(&mut T) -> R) -> R {
        let item = self.items.get_mut(slot);
        let before = item.cost();
        let result = change(item);
        self.memory = self.memory + item.cost() - before;
        result
    }

    pub fn index(&mut self, slot: u32) {
        self.link(slot);
        self.indexed += 1;
        if self.indexed > self.buckets {
            // Linear hashing moves some items of one old bucket to the new bucket.
            self.buckets += 1;
            self.relink(self.buckets - 1 - self.buckets.next_power_of_two() / 2);
        }
    }

    pub fn unindex(&mut self, slot: u32) {
        let item = self.get(slot);
        let (next, bucket) = (item.chain(), self.bucket_of(item.hash()));
        let mut before = self.heads.get(bucket);
        if before == slot {
            self.heads.set(bucket, next);
        } else {
            while self.get(before).chain() != slot {
                before = self.get(before).chain();
            }
            *self.get_mut(before).chain_mut() = next;
        }
        self.indexed -= 1;
        // Remove buckets faster than items, so that the number of buckets approaches the number of items.
        for _ in 0..3 {
            if self.buckets > MIN_BUCKETS && self.indexed < self.buckets / 2 {
                self.buckets -= 1;
                self.relink(self.buckets);
                // One spare chunk avoids repeated allocation at a chunk boundary.
                self.heads.truncate((self.buckets as usize).div_ceil(BUCKETS) + 1);
            }
        }
    }

    fn bucket_of(&self, hash: u32) -> u32 {
        let mask = self.buckets.next_power_of_two() - 1;
        let bucket = hash & mask;
        if bucket < self.buckets {
            bucket
        } else {
            hash & (mask >> 1)
        }
    }

    fn link(&mut self, slot: u32) {
        let bucket = self.bucket_of(self.get(slot).hash());
        *self.get_mut(slot).chain_mut() = self.heads.get(bucket);
        self.heads.set(bucket, slot);
    }

    fn relink(&mut self, bucket: u32) {
        let mut slot = self.heads.get(bucket);
        self.heads.set(bucket, NIL);
        while slot != NIL {
            let next = self.get(slot).chain();
            self.link(slot);
            slot = next;
        }
    }
}

/// A chunk of a [`SlotTable`] is one page of memory.
pub const BUCKETS: usize = 1024;

#[derive(Debug, Default)]
pub struct SlotTable {
    chunks: Vec<Option<Box<[u32; BUCKETS]>>>,
}

impl SlotTable {
    pub fn get(&self, slot: u32) -> u32 {
        let chunk = self.chunks.get(slot as usize / BUCKETS).and_then(Option::as_ref);
        chunk.map_or(NIL, |chunk| chunk[slot as usize % BUCKETS])
    }

    pub fn set(&mut self, slot: u32, number: u32) {
        let chunk = slot as usize / BUCKETS;
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || None);
        }
        self.chunks[chunk].get_or_insert_with(|| Box::new([NIL; BUCKETS]))[slot as usize % BUCKETS] = number;
    }

    pub fn remove(&mut self, slot: u32) {
        if let Some(Some(chunk)) = self.chunks.get_mut(slot as usize / BUCKETS) {
            chunk[slot as usize % BUCKETS] = NIL;
        }
    }

    /// The entries of the other chunks must be [`NIL`].
    pub fn truncate(&mut self, chunks: usize) {
        self.chunks.truncate(chunks);
    }

    pub fn clear(&mut self) {
        self.chunks = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T: Hashed, const N: usize> Table<T, N> {
        /// Returns the length of each chain.
        pub fn chains(&self) -> impl Iterator<Item = usize> + '_ {
            let next = |slot: u32| (slot != NIL).then_some(slot);
            (0..self.buckets).map(move |bucket| {
                let chain = std::iter::successors(next(self.heads.get(bucket)), |&slot| next(self.get(slot).chain()));
                chain.count()
            })
        }
    }
}
