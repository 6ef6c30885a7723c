//! Tables of numbered items in chunks, indexes of these items by hash, and sparse tables of numbers. Each table grows
//! by a chunk or a bucket at a time, so no insertion moves or rehashes many items.

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

    #[inline(always)] // called as often as `get`
    pub fn get_mut(&mut self, slot: u32) -> &mut T {
        let chunk = self.chunks.get_mut(slot as usize / N);
        match chunk.and_then(|chunk| chunk.entries.get_mut(slot as usize % N)) {
            Some(Entry::Held(item)) => item,
            _ => vacant_slot(slot),
        }
    }

    /// Returns an exclusive upper bound on the slots that contain items.
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
    panic!("slot {slot} is vacant")
}

/// The average number of items per bucket of a growing index.
const FILL: u32 = 4;
/// The number of buckets that are allocated at a time. They fill one page of memory.
const PAGE: usize = 64;

pub trait Hashed {
    /// The hash must not change while the item is in the index.
    fn hash(&self) -> u32;
    fn cost(&self) -> u64;
}

/// Implements [`Hashed`] for a type from expressions for the hash and the cost.
macro_rules! hashed {
    ($item:ty, |$this:ident| $hash:expr, $cost:expr) => {
        impl $crate::engine::data::table::Hashed for $item {
            fn hash(&self) -> u32 {
                let $this = self;
                $hash
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

/// A bucket of an index in one cache line: the hashes and slots of items, so that a search fetches only items with the
/// same hash. Unused slots are [`NIL`]. A full bucket moves its contents to a new `rest`.
#[derive(Debug)]
#[repr(align(64))]
struct Bucket {
    items: [(u32, u32); 7],
    rest: Option<Box<Bucket>>,
}

impl Bucket {
    const EMPTY: Bucket = Bucket { items: [(0, NIL); 7], rest: None };

    fn push(&mut self, item: (u32, u32)) {
        let vacant = self.items.iter().position(|(_, slot)| *slot == NIL).unwrap_or_else(|| {
            self.rest = Some(Box::new(std::mem::replace(self, Bucket::EMPTY)));
            0
        });
        self.items[vacant] = item;
    }
}

impl Drop for Bucket {
    /// Frees the chained buckets in a loop, because recursion along a long chain would overflow the stack.
    fn drop(&mut self) {
        while let Some(mut line) = self.rest.take() {
            self.rest = line.rest.take();
        }
    }
}

#[derive(Debug)]
pub struct Table<T, const N: usize = CHUNK> {
    pub items: Slots<T, N>,
    pages: Vec<Box<[Bucket; PAGE]>>,
    buckets: u32,
    pub indexed: u32,
    /// The total cost of the items. If the cost of an item changes, the owner of the table must update the total.
    pub memory: u64,
}

impl<T, const N: usize> Default for Table<T, N> {
    fn default() -> Table<T, N> {
        Table { items: Slots::default(), pages: Vec::new(), buckets: 1, indexed: 0, memory: 0 }
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
        let bucket = self.bucket_of(hash);
        let mut line = &self.pages.get(bucket / PAGE)?[bucket % PAGE];
        loop {
            for &(other, slot) in &line.items {
                if other == hash && slot != NIL && matches(self.get(slot)) {
                    return Some(slot);
                }
            }
            line = line.rest.as_deref()?;
        }
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
        self.link(self.get(slot).hash(), slot);
        self.indexed += 1;
        if self.indexed > self.buckets * FILL {
            // Linear hashing moves some items of one old bucket to the new bucket.
            self.buckets += 1;
            self.relink((self.buckets - 1 - self.buckets.next_power_of_two() / 2) as usize, NIL);
        }
    }

    pub fn unindex(&mut self, slot: u32) {
        let number = self.bucket_of(self.get(slot).hash());
        let bucket = self.bucket(number);
        match bucket.items.iter_mut().find(|item| item.1 == slot) {
            Some(item) if bucket.rest.is_none() => *item = (0, NIL),
            _ => self.relink(number, slot),
        }
        self.indexed -= 1;
        if self.buckets > 1 && self.indexed < self.buckets * FILL / 2 {
            self.buckets -= 1;
            self.relink(self.buckets as usize, NIL);
            // A spare page avoids repeated allocation while the number of buckets fluctuates around a page boundary.
            self.pages.truncate((self.buckets as usize).div_ceil(PAGE) + 1);
        }
    }

    fn bucket_of(&self, hash: u32) -> usize {
        let mask = self.buckets.next_power_of_two() - 1;
        (hash & if hash & mask < self.buckets { mask } else { mask >> 1 }) as usize
    }

    fn bucket(&mut self, bucket: usize) -> &mut Bucket {
        while self.pages.len() <= bucket / PAGE {
            self.pages.push(Box::new([const { Bucket::EMPTY }; PAGE]));
        }
        &mut self.pages[bucket / PAGE][bucket % PAGE]
    }

    fn link(&mut self, hash: u32, slot: u32) {
        self.bucket(self.bucket_of(hash)).push((hash, slot));
    }

    /// Moves the items of `bucket` to their current buckets, and removes the item in the slot `gone`.
    fn relink(&mut self, bucket: usize, gone: u32) {
        let mut next = Some(std::mem::replace(self.bucket(bucket), Bucket::EMPTY));
        while let Some(mut line) = next {
            let kept = line.items.into_iter().filter(|(_, slot)| *slot != NIL && *slot != gone);
            kept.for_each(|(hash, slot)| self.link(hash, slot));
            next = line.rest.take().map(|rest| *rest);
        }
    }
}

/// A chunk of a [`SlotTable`] is one page of memory.
pub const NUMBERS: usize = 1024;

#[derive(Debug, Default)]
pub struct SlotTable {
    chunks: Vec<Option<Box<[u32; NUMBERS]>>>,
}

impl SlotTable {
    pub fn get(&self, slot: u32) -> u32 {
        let chunk = self.chunks.get(slot as usize / NUMBERS).and_then(Option::as_ref);
        chunk.map_or(NIL, |chunk| chunk[slot as usize % NUMBERS])
    }

    pub fn set(&mut self, slot: u32, number: u32) {
        let chunk = slot as usize / NUMBERS;
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || None);
        }
        self.chunks[chunk].get_or_insert_with(|| Box::new([NIL; NUMBERS]))[slot as usize % NUMBERS] = number;
    }

    pub fn remove(&mut self, slot: u32) {
        if let Some(Some(chunk)) = self.chunks.get_mut(slot as usize / NUMBERS) {
            chunk[slot as usize % NUMBERS] = NIL;
        }
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
    fn all_empty_chunks_except_one_are_freed() {
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

    struct Thing(u32);

    hashed!(Thing, |thing| (thing.0 % 700).wrapping_mul(0x9e37_79b9), 1);

    #[test]
    fn items_with_equal_hashes_are_found_while_the_index_grows_and_shrinks() {
        let mut table: Table<Thing> = Table::default();
        assert_eq!((table.pages.len(), table.find(0, |_| true)), (0, None), "an empty table takes no memory");
        let slots: Vec<u32> = (0..14_000).map(|thing| table.insert(Thing(thing))).collect();
        let found = |table: &Table<Thing>, thing: u32| table.find(Thing(thing).hash(), |other| other.0 == thing);
        assert!((0..14_000).all(|thing| found(&table, thing) == Some(slots[thing as usize])));
        assert_eq!((table.lengths().count(), table.lengths().sum()), (3500, 14_000));
        let goes = |thing: &u32| thing % 5 != 0;
        (0..14_000).filter(goes).for_each(|thing| assert_eq!(table.remove(slots[thing as usize]).0, thing));
        assert!((0..14_000).all(|thing| found(&table, thing) == Some(slots[thing as usize]).filter(|_| !goes(&thing))));
        assert!(table.buckets <= 1400 && table.pages.len() <= 23, "{} buckets", table.buckets);
        (0..14_000).step_by(5).for_each(|thing| assert_eq!(table.remove(slots[thing as usize]).0, thing));
        assert_eq!((table.indexed, table.memory, table.buckets), (0, 0, 1));
        assert!(table.pages.iter().flat_map(|page| &page[..]).all(|bucket| bucket.rest.is_none()));
    }

    #[test]
    fn a_million_equal_hashes_do_not_overflow_the_stack() {
        struct Equal(u32);
        hashed!(Equal, |equal| equal.0, 1);
        let mut table: Table<Equal> = Table::default();
        (0..1_000_000).for_each(|_| assert_ne!(table.insert(Equal(7)), NIL));
        assert_eq!((table.lengths().max(), table.find(7, |_| false)), (Some(1_000_000), None));
        let thread = std::thread::Builder::new().stack_size(128 * 1024).spawn(|| drop(table));
        thread.expect("a thread").join().expect("no panic");
    }

    impl<T: Hashed, const N: usize> Table<T, N> {
        /// Returns the size of the entries that have held an item, and of the index.
        pub fn allocated(&self) -> u64 {
            let lines = |bucket| std::iter::successors(Some(bucket), |line: &&Bucket| line.rest.as_deref()).count();
            let buckets: usize = self.pages.iter().flat_map(|page| &page[..]).map(lines).sum();
            (self.items.used * size_of::<Entry<T>>() + buckets * size_of::<Bucket>()) as u64
        }

        /// Returns the number of items in each bucket.
        pub fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
            let buckets = self.pages.iter().flat_map(|page| &page[..]).take(self.buckets as usize);
            let lines = |bucket| std::iter::successors(Some(bucket), |line: &&Bucket| line.rest.as_deref());
            buckets
                .map(move |bucket| lines(bucket).flat_map(|line| line.items).filter(|(_, slot)| *slot != NIL).count())
        }
    }
}
