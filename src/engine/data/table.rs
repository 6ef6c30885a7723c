//! Tables of numbered items in chunks, hash tables whose chains link these items, and sparse tables of numbers. Each
//! table grows by a chunk or a bucket at a time, so no insertion moves or rehashes many items.

use super::NIL;

/// The default chunk size. With items of 70 bytes, a chunk exceeds 128 KiB, so the allocator unmaps a freed chunk.
pub const CHUNK: usize = 2048;

#[derive(Debug)]
enum Entry<T> {
    Held(T),
    /// The next vacant entry of the same chunk, or [`NIL`].
    Vacant(u32),
}

#[derive(Debug)]
struct Chunk<T> {
    entries: Vec<Entry<T>>,
    first_vacant: u32,
    held: usize,
    next_open: u32,
}

/// Items never move in memory. The slot of an item is `chunk number × N + entry`.
#[derive(Debug)]
pub struct Slots<T, const N: usize = CHUNK> {
    chunks: Vec<Chunk<T>>,
    open: u32,
    /// The only allocated chunk without items, or [`NIL`].
    idle: u32,
    len: usize,
    /// The number of entries that have ever held an item, in the chunks that are still allocated.
    used: usize,
}

impl<T> Chunk<T> {
    const EMPTY: Chunk<T> = Chunk { entries: Vec::new(), first_vacant: NIL, held: 0, next_open: NIL };
}

impl<T, const N: usize> Default for Slots<T, N> {
    fn default() -> Slots<T, N> {
        Slots { chunks: Vec::new(), open: NIL, idle: NIL, len: 0, used: 0 }
    }
}

impl<T, const N: usize> Slots<T, N> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn spare(&self) -> u64 {
        ((self.used - self.len) * size_of::<Entry<T>>()) as u64
    }

    pub fn insert(&mut self, item: T) -> u32 {
        if self.open == NIL {
            self.open = self.chunks.len() as u32;
            self.chunks.push(Chunk::EMPTY);
        }
        let number = self.open;
        if self.idle == number {
            self.idle = NIL;
        }
        let chunk = &mut self.chunks[number as usize];
        chunk.held += 1;
        let mut entry = chunk.first_vacant as usize;
        if chunk.first_vacant == NIL {
            if chunk.entries.capacity() == 0 {
                chunk.entries.reserve_exact(N);
            }
            entry = chunk.entries.len();
            chunk.entries.push(Entry::Held(item));
            self.used += 1;
        } else if let Entry::Vacant(next) = std::mem::replace(&mut chunk.entries[entry], Entry::Held(item)) {
            chunk.first_vacant = next;
        } else {
            unreachable!("an item in the list of vacant entries");
        }
        if chunk.held == N {
            self.open = chunk.next_open;
        }
        self.len += 1;
        number * N as u32 + entry as u32
    }

    pub fn remove(&mut self, slot: u32) -> T {
        let number = slot as usize / N;
        let chunk = &mut self.chunks[number];
        if chunk.held == N {
            chunk.next_open = std::mem::replace(&mut self.open, number as u32);
        }
        let vacant = Entry::Vacant(std::mem::replace(&mut chunk.first_vacant, (slot as usize % N) as u32));
        let Entry::Held(item) = std::mem::replace(&mut chunk.entries[slot as usize % N], vacant) else {
            unreachable!("a vacant slot was removed");
        };
        chunk.held -= 1;
        self.len -= 1;
        if chunk.held == 0 {
            self.rest(number as u32);
        }
        item
    }

    fn rest(&mut self, number: u32) {
        if let Some(gone) = replace_idle(&mut self.idle, number, |number| self.chunks[number as usize].entries.as_ptr())
        {
            let chunk = &mut self.chunks[gone as usize];
            self.used -= chunk.entries.len();
            *chunk = Chunk { next_open: chunk.next_open, ..Chunk::EMPTY };
        }
    }

    #[inline(always)] // Each command calls this method a dozen times, so inline it even when optimizing for size.
    pub fn get(&self, slot: u32) -> &T {
        self.try_get(slot).unwrap_or_else(|| vacant_slot(slot))
    }

    #[inline]
    pub fn try_get(&self, slot: u32) -> Option<&T> {
        match self.chunks.get(slot as usize / N)?.entries.get(slot as usize % N)? {
            Entry::Held(item) => Some(item),
            Entry::Vacant(_) => None,
        }
    }

    #[inline(always)] // as frequent as `get`
    pub fn get_mut(&mut self, slot: u32) -> &mut T {
        let chunk = self.chunks.get_mut(slot as usize / N);
        match chunk.and_then(|chunk| chunk.entries.get_mut(slot as usize % N)) {
            Some(Entry::Held(item)) => item,
            _ => vacant_slot(slot),
        }
    }

    /// Returns an exclusive upper bound of the slots that contain items.
    pub fn end(&self) -> u32 {
        (self.chunks.len() * N) as u32
    }

    pub fn next_from(&self, slot: u32) -> Option<u32> {
        let mut entry = slot as usize % N;
        for (number, chunk) in self.chunks.iter().enumerate().skip(slot as usize / N) {
            let mut rest = chunk.entries.iter().skip(entry);
            if let Some(further) = rest.position(|held| matches!(held, Entry::Held(_))) {
                return Some((number * N + entry + further) as u32);
            }
            entry = 0;
        }
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.chunks.iter().enumerate().flat_map(|(number, chunk)| {
            chunk.entries.iter().enumerate().filter_map(move |(entry, held)| match held {
                Entry::Held(item) => Some(((number * N + entry) as u32, item)),
                Entry::Vacant(_) => None,
            })
        })
    }
}

/// Returns the number of the empty chunk or page to deallocate, if any. Of two empty chunks, keeps the chunk at the
/// lower address for reuse, because the allocator may be unable to return the memory below an allocated block.
pub(super) fn replace_idle<T>(idle: &mut u32, number: u32, start: impl Fn(u32) -> *const T) -> Option<u32> {
    let is_lower = *idle == NIL || start(number) < start(*idle);
    let gone = if is_lower { std::mem::replace(idle, number) } else { number };
    (gone != NIL).then_some(gone)
}

#[cold]
#[inline(never)] // keeps the panic out of the callers of `get`
fn vacant_slot(slot: u32) -> ! {
    panic!("nothing is in slot {slot}")
}

const MIN_BUCKETS: u32 = 16;

pub trait Hashed {
    /// The hash must not change while the item is in the index.
    fn hash(&self) -> u32;
    fn chain(&self) -> u32;
    fn chain_mut(&mut self) -> &mut u32;
    fn cost(&self) -> u64;
}

/// Implements [`Hashed`] for a type with a `u32` field named `chain`, from expressions for the hash and the cost.
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
    /// The total cost of the items. If the cost of an item changes, the owner of the table must update the total.
    pub memory: u64,
}

impl<T, const N: usize> Default for Table<T, N> {
    fn default() -> Table<T, N> {
        let (items, heads) = (Slots::default(), SlotTable::default());
        Table { items, heads, buckets: MIN_BUCKETS, indexed: 0, memory: 0 }
    }
}

impl<T: Hashed, const N: usize> Table<T, N> {
    #[inline(always)] // only calls an inlined method
    pub fn get(&self, slot: u32) -> &T {
        self.items.get(slot)
    }

    #[inline(always)] // only calls an inlined method
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

    /// Changes an item, and updates `memory`. The item's hash must not change.
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
        // Remove up to three buckets per removed item, until there are at most twice as many buckets as items.
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
        hash & if hash & mask < self.buckets { mask } else { mask >> 1 }
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

    /// The entries of the removed chunks must be [`NIL`].
    pub fn truncate(&mut self, chunks: usize) {
        self.chunks.truncate(chunks);
    }

    pub fn clear(&mut self) {
        self.chunks = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Job, JobExtras, Row};
    use super::*;

    #[test]
    fn spare_bytes_are_those_of_vacated_entries() {
        let mut things: Slots<u64> = Slots::default();
        let slots: Vec<u32> = (0..5).map(|thing| things.insert(thing)).collect();
        assert_eq!((things.len(), things.spare()), (5, 0));
        for (gone, &slot) in slots[..3].iter().enumerate() {
            things.remove(slot);
            assert_eq!(things.spare(), (gone + 1) as u64 * size_of::<Entry<u64>>() as u64);
        }
        things.insert(9);
        assert_eq!((things.len(), things.spare()), (3, 2 * size_of::<Entry<u64>>() as u64));
    }

    #[test]
    fn empty_chunks_give_their_memory_back_but_one() {
        let mut things: Slots<_> = Slots::default();
        let chunks = |things: &Slots<u64>| things.chunks.iter().filter(|chunk| chunk.entries.capacity() > 0).count();
        let slots: Vec<u32> = (0..5 * CHUNK as u64).map(|thing| things.insert(thing)).collect();
        assert_eq!(chunks(&things), 5);
        // Remove every other item first, then the rest.
        for &slot in slots.iter().step_by(2).chain(slots.iter().skip(1).step_by(2)) {
            assert_eq!(things.remove(slot), u64::from(slot));
        }
        assert_eq!((chunks(&things), things.idle != NIL, things.len()), (1, true, 0));
        let again: Vec<u32> = (0..6 * CHUNK as u64).map(|thing| things.insert(thing)).collect();
        assert_eq!((chunks(&things), things.chunks.len(), things.idle), (6, 6, NIL));
        assert!(again.iter().enumerate().all(|(thing, &slot)| *things.get(slot) == thing as u64));
    }

    #[test]
    fn a_walk_from_slot_to_slot_passes_all() {
        let mut things: Slots<_> = Slots::default();
        let slots: Vec<u32> = (0..3 * CHUNK).map(|_| things.insert(())).collect();
        let gone = |slot: &u32| *slot % 3 == 0 || (10..2 * CHUNK as u32 + 5).contains(slot);
        slots.iter().filter(|slot| gone(slot)).for_each(|&slot| things.remove(slot));
        let walk = std::iter::successors(things.next_from(0), |&slot| things.next_from(slot + 1));
        assert!(walk.eq(things.iter().map(|(slot, ())| slot)));
        assert!(things.iter().map(|(slot, ())| slot).eq(slots.into_iter().filter(|slot| !gone(slot))));
    }

    #[test]
    fn an_entry_costs_no_more_than_what_it_holds() {
        assert_eq!(size_of::<Entry<Job>>(), size_of::<Job>());
        assert_eq!(size_of::<Entry<Row>>(), size_of::<Row>());
        assert_eq!(size_of::<Entry<JobExtras>>(), size_of::<JobExtras>());
        assert!(CHUNK * size_of::<Job>().min(size_of::<JobExtras>()) >= 128 * 1024);
    }

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
