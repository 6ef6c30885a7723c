//! Members by hash: linear hashing, with chains through the members themselves.
//!
//! Owns the buckets. It grows and shrinks by one bucket at a time, so no insertion rehashes everything or is much
//! slower than the others. Must not know what its members are, or compare them: the caller of a search provides the
//! comparison.

use super::list::NIL;
use super::slots::Slots;

/// Buckets per chunk: one page of memory.
const BUCKETS: usize = 1024;

const FEWEST: usize = 16;

/// A member of an [`Index`], identified by its number in its [`Slots`].
pub trait Chained {
    /// Its hash, which must not change while it is indexed.
    fn hash(&self) -> usize;
    /// The next member in the same bucket.
    fn chain(&self) -> u32;
    /// A mutable reference to the next member in the same bucket.
    fn chain_mut(&mut self) -> &mut u32;
}

/// Implements [`Chained`] for a type with the 32-bit fields `hash` and `chain`.
macro_rules! chained {
    ($member:ty) => {
        impl $crate::engine::data::index::Chained for $member {
            fn hash(&self) -> usize {
                self.hash as usize
            }
            fn chain(&self) -> u32 {
                self.chain
            }
            fn chain_mut(&mut self) -> &mut u32 {
                &mut self.chain
            }
        }
    };
}
pub(in crate::engine) use chained;

#[derive(Debug)]
pub struct Index {
    chunks: Vec<Box<[u32; BUCKETS]>>,
    /// Buckets in use; the rest of the last chunk is spare.
    buckets: usize,
    len: usize,
}

impl Default for Index {
    fn default() -> Index {
        Index::new()
    }
}

impl Index {
    /// Creates an empty index without allocating.
    pub const fn new() -> Index {
        Index { chunks: Vec::new(), buckets: FEWEST, len: 0 }
    }

    #[cfg(any(test, feature = "test-support"))]
    pub fn len(&self) -> usize {
        self.len
    }

    fn bucket_of(&self, hash: usize) -> usize {
        let mask = self.buckets.next_power_of_two() - 1;
        let bucket = hash & mask;
        if bucket < self.buckets {
            bucket
        } else {
            hash & (mask >> 1)
        }
    }

    fn head(&self, bucket: usize) -> u32 {
        self.chunks.get(bucket / BUCKETS).map_or(NIL, |chunk| chunk[bucket % BUCKETS])
    }

    fn head_mut(&mut self, bucket: usize) -> &mut u32 {
        while self.chunks.len() <= bucket / BUCKETS {
            self.chunks.push(Box::new([NIL; BUCKETS]));
        }
        &mut self.chunks[bucket / BUCKETS][bucket % BUCKETS]
    }

    /// Returns the member with this hash that `matches`.
    pub fn find<T: Chained, const N: usize>(
        &self,
        hash: usize,
        store: &Slots<T, N>,
        mut matches: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let mut member = self.head(self.bucket_of(hash));
        while member != NIL {
            if matches(member) {
                return Some(member);
            }
            member = store.get(member).chain();
        }
        None
    }

    pub fn insert<T: Chained, const N: usize>(&mut self, member: u32, store: &mut Slots<T, N>) {
        self.link(self.bucket_of(store.get(member).hash()), member, store);
        self.len += 1;
        if self.len > self.buckets {
            self.grow(store);
        }
    }

    pub fn remove<T: Chained, const N: usize>(&mut self, member: u32, store: &mut Slots<T, N>) {
        let next = store.get(member).chain();
        let bucket = self.bucket_of(store.get(member).hash());
        if self.head(bucket) == member {
            *self.head_mut(bucket) = next;
        } else {
            let mut before = self.head(bucket);
            while store.get(before).chain() != member {
                before = store.get(before).chain();
            }
            *store.get_mut(before).chain_mut() = next;
        }
        self.len -= 1;
        // More than two, so that the buckets catch up with the members.
        for _ in 0..3 {
            if self.buckets > FEWEST && self.len < self.buckets / 2 {
                self.shrink(store);
            }
        }
    }

    fn link<T: Chained, const N: usize>(&mut self, bucket: usize, member: u32, store: &mut Slots<T, N>) {
        let head = std::mem::replace(self.head_mut(bucket), member);
        *store.get_mut(member).chain_mut() = head;
    }

    /// Adds one bucket, and moves to it the members that belong there, all of which are in one other bucket.
    fn grow<T: Chained, const N: usize>(&mut self, store: &mut Slots<T, N>) {
        let new = self.buckets;
        self.buckets += 1;
        let old = new - self.buckets.next_power_of_two() / 2;
        self.relink(old, store);
    }

    /// Removes the last bucket and moves its members back.
    fn shrink<T: Chained, const N: usize>(&mut self, store: &mut Slots<T, N>) {
        self.buckets -= 1;
        self.relink(self.buckets, store);
        // One spare chunk avoids repeated allocation at a chunk boundary.
        if self.chunks.len() > self.buckets.div_ceil(BUCKETS) + 1 {
            self.chunks.pop();
        }
    }

    fn relink<T: Chained, const N: usize>(&mut self, bucket: usize, store: &mut Slots<T, N>) {
        let mut member = std::mem::replace(self.head_mut(bucket), NIL);
        while member != NIL {
            let next = store.get(member).chain();
            self.link(self.bucket_of(store.get(member).hash()), member, store);
            member = next;
        }
    }
}

#[cfg(test)]
impl Index {
    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets
    }

    /// The length of each chain.
    pub fn chains<'a, T: Chained, const N: usize>(
        &'a self,
        store: &'a Slots<T, N>,
    ) -> impl Iterator<Item = usize> + 'a {
        let next = |member: u32| (member != NIL).then_some(member);
        (0..self.buckets).map(move |bucket| {
            std::iter::successors(next(self.head(bucket)), |&member| next(store.get(member).chain())).count()
        })
    }
}
