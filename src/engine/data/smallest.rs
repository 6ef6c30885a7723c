//! Selection of a range of the smallest keys without sorting all keys.
//!
//! Owns the kept keys, at most [`KEPT`]. If the range ends beyond that number of keys, the caller must offer all keys
//! several times: the second pass counts the keys between samples of the first pass, to skip most keys at once. Must
//! not depend on what the keys belong to.

use std::collections::BinaryHeap;

const KEPT: usize = 4096;

const MAX_SAMPLES: usize = 1024;

/// From this number of skipped keys on, samples are cheaper than further passes.
const SAMPLED: usize = 4 * KEPT;

#[derive(Debug)]
pub struct Smallest<K> {
    skip: usize,
    take: usize,
    /// The largest key that was skipped in an earlier pass.
    floor: Option<K>,
    best: BinaryHeap<K>,
    /// Keys above the floor in this pass.
    offered: usize,
    /// One in `stride` of the keys above the floor.
    samples: Vec<K>,
    stride: usize,
    /// In a counting pass, the number of keys up to each sample but above the previous sample. Otherwise empty.
    counts: Vec<usize>,
}

impl<K: Ord + Clone> Smallest<K> {
    /// Selects the `take` smallest keys (at most 1,000) after the first `skip` keys.
    pub fn new(skip: usize, take: usize) -> Smallest<K> {
        let (best, samples, counts) = (BinaryHeap::new(), Vec::new(), Vec::new());
        Smallest { skip, take: take.min(1000), floor: None, best, offered: 0, samples, stride: 1, counts }
    }

    pub fn footprint(&self) -> u64 {
        ((self.best.capacity() + self.samples.capacity()) * size_of::<K>() + self.counts.capacity() * 8) as u64
    }

    pub fn offer(&mut self, key: K) {
        if self.floor.as_ref().is_some_and(|floor| key <= *floor) {
            return;
        }
        self.offered += 1;
        if !self.counts.is_empty() {
            let at = self.samples.partition_point(|sample| *sample < key);
            self.counts[at] += 1;
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

    #[test]
    fn a_stretch_is_what_stands_there_when_all_is_in_order() {
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
                    .expect("an end");
                let expected: Vec<u32> = sorted.iter().copied().skip(skip).take(take).collect();
                assert_eq!(found, expected, "{take} from {skip}");
                assert!(rounds <= 5, "{rounds} rounds for {take} from {skip}");
            }
        }
    }
}
