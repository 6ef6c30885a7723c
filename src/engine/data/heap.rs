//! A four-way heap whose members store their positions, so that any member can be removed or moved. The heap has half
//! the levels of a binary heap, and the four children of a node share cache lines. While the members are sorted, the
//! heap works as a queue: members that are inserted in order and removed from the front never move.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Linked;

pub trait Positions {
    fn set_position(&mut self, member: u32, position: u32);
}

/// A member of a heap stores its position in its list links.
impl<T: Linked> Positions for T {
    fn set_position(&mut self, member: u32, position: u32) {
        self.links_mut(member).prev = position;
    }
}

/// The capacity that an empty heap can keep.
const KEEP: usize = 64;
/// The maximum of [`Heap::left`], so that all positions stay below [`NIL`](super::NIL).
const MAX_LEFT: u32 = u32::MAX / 2;

/// Smallest key first. Members with equal keys must be interchangeable.
#[derive(Debug)]
pub struct Heap<K> {
    pub entries: VecDeque<(K, u32)>,
    /// The number of members removed from the front of the sorted queue.
    pub left: u32,
    pub is_sorted: bool,
}

impl<K: Ord + Copy> Default for Heap<K> {
    fn default() -> Heap<K> {
        Heap::new()
    }
}

impl<K: Ord + Copy> Heap<K> {
    pub const fn new() -> Heap<K> {
        Heap { entries: VecDeque::new(), left: 0, is_sorted: true }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds to `memory` the bytes that `change` allocates. Does not count the bytes that an empty heap can keep.
    pub fn charged(&mut self, memory: &mut u64, change: impl FnOnce(&mut Heap<K>)) {
        let bytes = |heap: &Heap<K>| (heap.entries.capacity().saturating_sub(KEEP) * size_of::<(K, u32)>()) as u64;
        *memory -= bytes(self);
        change(self);
        *memory += bytes(self);
    }

    pub fn first(&self) -> Option<(K, u32)> {
        self.entries.front().copied()
    }

    pub fn key_at(&self, position: u32) -> K {
        self.entries[self.index_of(position)].0
    }

    fn index_of(&self, position: u32) -> usize {
        (position - self.left) as usize
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        self.entries.iter().copied()
    }

    /// Iterates lazily, so that the cost of the first members does not depend on the size of the heap.
    pub fn in_order(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        let mut next = BinaryHeap::new();
        next.extend(self.first().map(|(key, _)| Reverse((key, 0))));
        std::iter::from_fn(move || {
            let Reverse((_, index)) = next.pop()?;
            let first = index * 4 + 1;
            let children = first..(first + 4).min(self.entries.len());
            next.extend(children.map(|child| Reverse((self.entries[child].0, child))));
            Some(self.entries[index])
        })
    }

    pub fn push(&mut self, key: K, member: u32, positions: &mut impl Positions) {
        self.is_sorted &= self.entries.back().is_none_or(|(last, _)| *last <= key);
        self.entries.push_back((key, member));
        self.sift_up(self.entries.len() - 1, positions);
    }

    pub fn remove(&mut self, position: u32, positions: &mut impl Positions) -> (K, u32) {
        let index = self.index_of(position);
        if index == 0 && self.is_sorted && self.left < MAX_LEFT {
            self.left += 1;
            return self.shrunk(|entries| entries.pop_front()).expect("a member");
        }
        let gone = self.shrunk(|entries| entries.swap_remove_back(index)).expect("a member");
        if index < self.entries.len() {
            self.is_sorted = false;
            self.sift(index, positions);
        }
        gone
    }

    /// Removes the last entry of the array without moving any other member.
    pub fn pop_last(&mut self) -> Option<u32> {
        self.shrunk(|entries| entries.pop_back()).map(|(_, member)| member)
    }

    fn shrunk(&mut self, remove: impl FnOnce(&mut VecDeque<(K, u32)>) -> Option<(K, u32)>) -> Option<(K, u32)> {
        let gone = remove(&mut self.entries);
        if self.entries.is_empty() {
            (self.left, self.is_sorted) = (0, true);
        }
        let capacity = self.entries.capacity();
        if capacity > KEEP && self.entries.len() < capacity / 4 {
            self.entries.shrink_to(capacity / 2);
        }
        gone
    }

    /// Returns `true` if removing the member at `index` moves the last member toward the front of the heap.
    pub fn rises(&self, index: usize) -> bool {
        index > 0 && self.entries.back().is_some_and(|(key, _)| *key < self.entries[(index - 1) / 4].0)
    }

    pub fn change(&mut self, position: u32, key: K, positions: &mut impl Positions) {
        let index = self.index_of(position);
        self.entries[index].0 = key;
        self.is_sorted = self.len() == 1;
        self.sift(index, positions);
    }

    fn sift(&mut self, index: usize, positions: &mut impl Positions) {
        if index > 0 && self.entries[index].0 < self.entries[(index - 1) / 4].0 {
            self.sift_up(index, positions);
        } else {
            self.sift_down(index, positions);
        }
    }

    fn sift_up(&mut self, mut index: usize, positions: &mut impl Positions) {
        let entry = self.entries[index];
        while index > 0 {
            let parent = (index - 1) / 4;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.set(index, self.entries[parent], positions);
            index = parent;
        }
        self.set(index, entry, positions);
    }

    fn sift_down(&mut self, mut index: usize, positions: &mut impl Positions) {
        let entry = self.entries[index];
        loop {
            let first = index * 4 + 1;
            let children = first..(first + 4).min(self.entries.len());
            let Some(least) = children.min_by_key(|&child| self.entries[child].0) else { break };
            if self.entries[least].0 >= entry.0 {
                break;
            }
            self.set(index, self.entries[least], positions);
            index = least;
        }
        self.set(index, entry, positions);
    }

    fn set(&mut self, index: usize, entry: (K, u32), positions: &mut impl Positions) {
        self.entries[index] = entry;
        positions.set_position(entry.1, self.left + index as u32);
    }
}

const KEPT: usize = 4096;
const MAX_SAMPLES: usize = 1024;
/// If at least this many keys must be skipped, sampling and counting are cheaper than one pass per `KEPT` keys.
const SAMPLED: usize = 4 * KEPT;

#[derive(Debug)]
pub struct Smallest<K> {
    skip: usize,
    take: usize,
    /// The largest key that was skipped in an earlier pass.
    floor: Option<K>,
    best: BinaryHeap<K>,
    /// The number of keys above the floor that were offered in this pass.
    offered: usize,
    /// One of every `stride` keys above the floor.
    samples: Vec<K>,
    stride: usize,
    /// In a counting pass, the number of keys below the first sample, between samples, and above the last. Else empty.
    counts: Vec<usize>,
}

impl<K: Ord + Clone> Smallest<K> {
    /// Skips the `skip` smallest keys, and selects the `take` (at most 1,000) smallest of the remaining keys.
    pub fn new(skip: usize, take: usize) -> Smallest<K> {
        let (best, samples, counts) = (BinaryHeap::new(), Vec::new(), Vec::new());
        Smallest { skip, take: take.min(1000), floor: None, best, offered: 0, samples, stride: 1, counts }
    }

    pub fn footprint(&self) -> u64 {
        ((self.best.capacity() + self.samples.capacity()) * size_of::<K>() + self.counts.capacity() * 8) as u64
    }

    /// Returns all stored keys, some of them twice.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.best.iter().chain(&self.samples).chain(&self.floor)
    }

    pub fn offer(&mut self, key: K) {
        if self.floor.as_ref().is_some_and(|floor| key <= *floor) {
            return;
        }
        self.offered += 1;
        if !self.counts.is_empty() {
            self.counts[self.samples.partition_point(|sample| *sample < key)] += 1;
            return;
        }
        if self.skip >= SAMPLED && self.offered % self.stride == 0 {
            if self.samples.len() == MAX_SAMPLES {
                let mut is_kept = true;
                self.samples.retain(|_| {
                    is_kept = !is_kept;
                    is_kept
                });
                self.stride *= 2;
            }
            self.samples.push(key.clone());
        }
        if self.best.len() < self.skip.saturating_add(self.take).min(KEPT) {
            self.best.push(key);
        } else if let Some(mut largest) = self.best.peek_mut() {
            if key < *largest {
                *largest = key;
            }
        }
    }

    /// Ends a pass over all keys. Returns the selected range, or `None` if the caller must offer all keys again.
    pub fn finish(&mut self) -> Option<Vec<K>> {
        let offered = std::mem::take(&mut self.offered);
        if !self.counts.is_empty() {
            for (sample, count) in std::mem::take(&mut self.samples).into_iter().zip(std::mem::take(&mut self.counts)) {
                if count > self.skip {
                    break;
                }
                if count > 0 {
                    self.floor = Some(sample);
                    self.skip -= count;
                }
            }
            self.stride = 1;
            return None;
        }
        let mut best = std::mem::take(&mut self.best).into_sorted_vec();
        let passed = self.skip.min(best.len());
        if best.len() == KEPT && self.skip.saturating_add(self.take) > KEPT && offered > self.skip {
            self.floor = Some(best[passed - 1].clone());
            self.skip -= passed;
            self.samples.sort_unstable();
            self.counts = if self.samples.is_empty() { Vec::new() } else { vec![0; self.samples.len() + 1] };
            return None;
        }
        best.drain(..passed);
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Positions for Vec<u32> {
        fn set_position(&mut self, member: u32, position: u32) {
            self[member as usize] = position;
        }
    }

    fn scramble(seed: u64) -> u64 {
        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 20
    }

    #[test]
    fn members_are_removed_in_order_after_any_other_removals() {
        let mut positions = vec![0u32; 1000];
        let mut heap = Heap::new();
        for member in 0..1000u32 {
            heap.push((scramble(member.into()) % 300, member), member, &mut positions);
        }
        for member in (0..1000u32).step_by(3) {
            assert_eq!(heap.remove(positions[member as usize], &mut positions).1, member);
        }
        for member in (1..1000u32).step_by(3) {
            heap.change(positions[member as usize], (u64::from(member) % 7, member), &mut positions);
        }
        let mut out = Vec::new();
        while let Some((key, member)) = heap.first() {
            heap.remove(positions[member as usize], &mut positions);
            out.push(key);
        }
        assert_eq!(out.len(), 666);
        assert!(out.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// Keys ascend, except for every `odd`-th key. Most removals are from the front.
    #[test]
    fn a_queue_that_becomes_a_heap_keeps_its_order() {
        for odd in [u64::MAX, 1000, 7] {
            let (mut positions, mut heap, mut inside) =
                (vec![0u32; 10_000], Heap::new(), std::collections::BTreeSet::new());
            for member in 0..10_000u32 {
                let number = u64::from(member);
                let key = if number % odd == odd - 1 { number / 2 } else { number };
                heap.push((key, member), member, &mut positions);
                inside.insert((key, member));
                if number % 3 > 0 {
                    let gone = if number % odd == 1 { *inside.last().unwrap() } else { *inside.first().unwrap() };
                    inside.remove(&gone);
                    assert_eq!(heap.remove(positions[gone.1 as usize], &mut positions), (gone, gone.1));
                }
                if number % 64 == 0 {
                    heap.check(|member| positions[member as usize]);
                    assert_eq!(heap.first().map(|(key, _)| key), inside.first().copied());
                }
            }
            assert_eq!(heap.is_sorted, odd == u64::MAX);
            assert!(heap.in_order().map(|(key, _)| key).eq(inside));
            while heap.pop_last().is_some() {}
            assert!((heap.left, heap.is_sorted) == (0, true) && heap.entries.capacity() <= KEEP);
        }
    }

    #[test]
    fn a_stretch_equals_that_part_of_the_sorted_list() {
        let mixed: Vec<u32> = (0..60_000).map(|number| number * 7919 % 60_013).collect();
        let mut sorted = mixed.clone();
        sorted.sort_unstable();
        for (all, skip) in [&mixed, &sorted].into_iter().flat_map(|all| {
            [0, 1, 4000, 4095, 4096, 4097, 9000, 16_384, 59_950, 59_999, 60_000, 1 << 40].map(|skip| (all, skip))
        }) {
            for take in [0, 1, 100] {
                let mut smallest = Smallest::new(skip, take);
                let (found, rounds) = (1..)
                    .find_map(|round| {
                        all.iter().for_each(|&key| smallest.offer(key));
                        assert!(smallest.best.len() <= KEPT && smallest.samples.len() <= MAX_SAMPLES);
                        smallest.finish().map(|found| (found, round))
                    })
                    .expect("a result");
                let expected: Vec<u32> = sorted.iter().copied().skip(skip).take(take).collect();
                assert_eq!(found, expected, "{take} from {skip}");
                assert!(rounds <= 5, "{rounds} rounds for {take} from {skip}");
            }
        }
    }
}
