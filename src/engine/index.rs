//! Members by hash: linear hashing with chains through the members themselves.
//!
//! Owns the buckets. It grows and shrinks by one bucket at a time, so nothing is ever rehashed in one go and no
//! insertion is much slower than the others. Must not know what its members are, or compare them: whoever searches says
//! what matches.

use super::list::NIL;

/// Buckets in a chunk: one page.
const BUCKETS: usize = 1024;

/// Buckets of an empty index; it never has fewer.
const FEWEST: usize = 16;

/// The store of members that an [`Index`] finds.
pub trait Chained {
    /// The hash of `member`, which must not change while it is indexed.
    fn hash(&self, member: u32) -> usize;
    /// The next member in the same bucket, as it was set.
    fn chain(&self, member: u32) -> u32;
    /// Remembers the next member in the same bucket.
    fn set_chain(&mut self, member: u32, next: u32);
}

#[derive(Debug)]
pub struct Index {
    chunks: Vec<Box<[u32; BUCKETS]>>,
    /// Buckets in use; the rest of the last chunk waits.
    buckets: usize,
    len: usize,
}

impl Index {
    /// An index without members; allocates nothing.
    pub const fn new() -> Index {
        Index { chunks: Vec::new(), buckets: FEWEST, len: 0 }
    }

    /// How many members there are.
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

    /// The member with this hash that `matches`.
    pub fn find(&self, hash: usize, store: &impl Chained, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut member = self.head(self.bucket_of(hash));
        while member != NIL {
            if matches(member) {
                return Some(member);
            }
            member = store.chain(member);
        }
        None
    }

    pub fn insert(&mut self, member: u32, store: &mut impl Chained) {
        self.link(self.bucket_of(store.hash(member)), member, store);
        self.len += 1;
        if self.len > self.buckets {
            self.grow(store);
        }
    }

    pub fn remove(&mut self, member: u32, store: &mut impl Chained) {
        let next = store.chain(member);
        let bucket = self.bucket_of(store.hash(member));
        if self.head(bucket) == member {
            *self.head_mut(bucket) = next;
        } else {
            let mut before = self.head(bucket);
            while store.chain(before) != member {
                before = store.chain(before);
            }
            store.set_chain(before, next);
        }
        self.len -= 1;
        // More than two, so that the buckets catch up with the members.
        for _ in 0..3 {
            if self.buckets > FEWEST && self.len < self.buckets / 2 {
                self.shrink(store);
            }
        }
    }

    fn link(&mut self, bucket: usize, member: u32, store: &mut impl Chained) {
        let head = std::mem::replace(self.head_mut(bucket), member);
        store.set_chain(member, head);
    }

    /// Adds one bucket and moves to it what belongs there from the one bucket that can hold such members.
    fn grow(&mut self, store: &mut impl Chained) {
        let new = self.buckets;
        self.buckets += 1;
        let old = new - self.buckets.next_power_of_two() / 2;
        self.relink(old, store);
    }

    /// Takes the last bucket away and moves its members back to where they came from.
    fn shrink(&mut self, store: &mut impl Chained) {
        self.buckets -= 1;
        self.relink(self.buckets, store);
        // A chunk in hand avoids allocating and freeing in turns at a border.
        if self.chunks.len() > self.buckets.div_ceil(BUCKETS) + 1 {
            self.chunks.pop();
        }
    }

    fn relink(&mut self, bucket: usize, store: &mut impl Chained) {
        let mut member = std::mem::replace(self.head_mut(bucket), NIL);
        while member != NIL {
            let next = store.chain(member);
            self.link(self.bucket_of(store.hash(member)), member, store);
            member = next;
        }
    }
}

#[cfg(test)]
impl Index {
    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.buckets
    }

    /// The length of each chain.
    pub fn chains<'a>(&'a self, store: &'a impl Chained) -> impl Iterator<Item = usize> + 'a {
        let next = |member: u32| (member != NIL).then_some(member);
        (0..self.buckets).map(move |bucket| {
            std::iter::successors(next(self.head(bucket)), |&member| next(store.chain(member))).count()
        })
    }
}
