//! Selection of a range of the smallest keys without sorting all keys.
//!
//! Owns the kept keys, at most [`KEPT`]. If the range ends beyond that number of keys, the caller must offer all keys
//! several times. Must not depend on what the keys belong to.

use std::collections::BinaryHeap;

const KEPT: usize = 4096;

#[derive(Debug)]
pub struct Smallest<K> {
    skip: usize,
    take: usize,
    /// The largest key that was skipped in an earlier pass.
    floor: Option<K>,
    best: BinaryHeap<K>,
}

impl<K: Ord + Clone> Smallest<K> {
    /// Selects the `take` smallest keys (at most 1,000) after the first `skip` keys.
    pub fn new(skip: usize, take: usize) -> Smallest<K> {
        Smallest { skip, take: take.min(1000), floor: None, best: BinaryHeap::new() }
    }

    pub fn footprint(&self) -> u64 {
        (self.best.capacity() * size_of::<K>()) as u64
    }

    pub fn offer(&mut self, key: K) {
        if self.floor.as_ref().is_some_and(|floor| key <= *floor) {
            return;
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
        let mut best = std::mem::take(&mut self.best).into_sorted_vec();
        let passed = self.skip.min(best.len());
        if best.len() == KEPT && self.skip.saturating_add(self.take) > KEPT {
            self.floor = Some(best[passed - 1].clone());
            self.skip -= passed;
            return None;
        }
        best.drain(..passed);
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_what_stands_there_when_all_is_in_order() {
        let all: Vec<u32> = (0..20_000).map(|number| number * 7919 % 20_011).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        for skip in [0, 1, 4000, 4095, 4096, 4097, 9000, 19_950, 19_999, 20_000, 1 << 40] {
            for take in [0, 1, 100] {
                let mut smallest = Smallest::new(skip, take);
                let (found, rounds) = (1..)
                    .find_map(|round| {
                        all.iter().for_each(|&key| smallest.offer(key));
                        assert!(smallest.best.len() <= KEPT);
                        smallest.finish().map(|found| (found, round))
                    })
                    .expect("an end");
                let expected: Vec<u32> = sorted.iter().copied().skip(skip).take(take).collect();
                assert_eq!(found, expected, "{take} from {skip}");
                assert!(rounds <= 20_000 / KEPT + 2, "{rounds} rounds for {take} from {skip}");
            }
        }
    }
}
