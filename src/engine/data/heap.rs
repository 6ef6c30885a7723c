//! A four-way heap whose members know their position, so that any of them can be removed or moved in logarithmic time.
//!
//! Owns the order. A four-way heap has half the levels of a binary one, and the four children of a node share cache
//! lines. Must not know what its members are; the store of the members is notified of every move.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::slots::Slots;

/// Receives the heap position of each member.
pub trait Places {
    /// Sets the position of `member`, which the caller passes to [`Heap::remove`].
    fn set_place(&mut self, member: u32, place: u32);
}

/// A type that stores its own heap position.
pub trait Placed {
    /// Returns a mutable reference to the position.
    fn place_mut(&mut self) -> &mut u32;
}

impl<T: Placed> Places for Slots<T> {
    fn set_place(&mut self, member: u32, place: u32) {
        *self.get_mut(member).place_mut() = place;
    }
}

/// A heap below this capacity keeps its memory when it becomes empty.
const KEEP: usize = 64;

/// Smallest key first. The keys of members must differ or be interchangeable.
#[derive(Debug)]
pub struct Heap<K> {
    entries: Vec<(K, u32)>,
}

impl<K: Ord + Copy> Default for Heap<K> {
    fn default() -> Heap<K> {
        Heap::new()
    }
}

impl<K: Ord + Copy> Heap<K> {
    /// Creates an empty heap without allocating.
    pub const fn new() -> Heap<K> {
        Heap { entries: Vec::new() }
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The member with the smallest key.
    pub fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// The key and member at `place`.
    pub fn at(&self, place: u32) -> (K, u32) {
        self.entries[place as usize]
    }

    /// The members, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        self.entries.iter().copied()
    }

    /// The members in ascending order, computed lazily: the first few cost little, however many there are.
    pub fn in_order(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        let mut next = BinaryHeap::new();
        next.extend(self.first().map(|(key, _)| Reverse((key, 0))));
        std::iter::from_fn(move || {
            let Reverse((_, place)) = next.pop()?;
            let first = place * 4 + 1;
            let children = first..(first + 4).min(self.entries.len());
            next.extend(children.map(|child| Reverse((self.entries[child].0, child))));
            Some(self.entries[place])
        })
    }

    /// Panics unless every member comes after its parent and knows its position; for checks.
    #[cfg(any(test, feature = "test-support"))]
    pub fn check(&self, place_of: impl Fn(u32) -> u32) {
        for (place, (key, member)) in self.entries.iter().enumerate() {
            assert_eq!(place_of(*member), place as u32, "a member of a heap knows its place");
            assert!(place == 0 || self.entries[(place - 1) / 4].0 <= *key, "a heap is out of order");
        }
    }

    pub fn push(&mut self, key: K, member: u32, places: &mut impl Places) {
        self.entries.push((key, member));
        self.sift_up(self.entries.len() - 1, places);
    }

    /// Removes the member at `place`.
    pub fn remove(&mut self, place: u32, places: &mut impl Places) -> (K, u32) {
        let place = place as usize;
        let gone = self.entries.swap_remove(place);
        if place < self.entries.len() {
            self.sift(place, places);
        }
        self.shrink();
        gone
    }

    /// Removes the member whose removal costs least.
    pub fn pop_last(&mut self) -> Option<u32> {
        let (_, member) = self.entries.pop()?;
        self.shrink();
        Some(member)
    }

    fn shrink(&mut self) {
        let capacity = self.entries.capacity();
        if capacity > KEEP && self.entries.len() < capacity / 4 {
            self.entries.shrink_to(capacity / 2);
        }
    }

    /// Returns `true` if removing the member at `place` moves the last member up past it.
    pub fn rises(&self, place: usize) -> bool {
        place > 0 && self.entries.last().is_some_and(|(key, _)| *key < self.entries[(place - 1) / 4].0)
    }

    /// Changes the key of the member at `place`.
    pub fn change(&mut self, place: u32, key: K, places: &mut impl Places) {
        self.entries[place as usize].0 = key;
        self.sift(place as usize, places);
    }

    fn sift(&mut self, place: usize, places: &mut impl Places) {
        if place > 0 && self.entries[place].0 < self.entries[(place - 1) / 4].0 {
            self.sift_up(place, places);
        } else {
            self.sift_down(place, places);
        }
    }

    fn sift_up(&mut self, mut place: usize, places: &mut impl Places) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / 4;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.set(place, self.entries[parent], places);
            place = parent;
        }
        self.set(place, entry, places);
    }

    fn sift_down(&mut self, mut place: usize, places: &mut impl Places) {
        let entry = self.entries[place];
        loop {
            let first = place * 4 + 1;
            let children = first..(first + 4).min(self.entries.len());
            let Some(least) = children.min_by_key(|&child| self.entries[child].0) else { break };
            if self.entries[least].0 >= entry.0 {
                break;
            }
            self.set(place, self.entries[least], places);
            place = least;
        }
        self.set(place, entry, places);
    }

    fn set(&mut self, place: usize, entry: (K, u32), places: &mut impl Places) {
        self.entries[place] = entry;
        places.set_place(entry.1, place as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Places for Vec<u32> {
        fn set_place(&mut self, member: u32, place: u32) {
            self[member as usize] = place;
        }
    }

    /// A simple reproducible pseudo-random number generator.
    fn scramble(seed: u64) -> u64 {
        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 20
    }

    #[test]
    fn members_come_out_in_order_whatever_left_before() {
        let mut places = vec![0u32; 1000];
        let mut heap = Heap::new();
        for member in 0..1000u32 {
            heap.push((scramble(member.into()) % 300, member), member, &mut places);
        }
        for member in (0..1000u32).step_by(3) {
            assert_eq!(heap.remove(places[member as usize], &mut places).1, member);
        }
        for member in (1..1000u32).step_by(3) {
            heap.change(places[member as usize], (u64::from(member) % 7, member), &mut places);
        }
        let mut out = Vec::new();
        while let Some((key, member)) = heap.first() {
            assert_eq!(places[member as usize], 0);
            heap.remove(0, &mut places);
            out.push(key);
        }
        assert_eq!(out.len(), 666);
        assert!(out.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
