//! Histograms of durations.
//!
//! Owns the buckets of the engine's measurements, and the counting. Each exists once for the whole server; jobs store
//! nothing for it. Must not know who reads it.

use super::Span;

/// Upper bounds of the time that a job waits for its first worker, in milliseconds: up to a day.
const WAIT_BOUNDS: [u64; 14] =
    nanos([1, 5, 25, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000]);

/// Upper bounds of the time from the reservation of a job to its completion, in milliseconds: up to an hour.
const RUN_BOUNDS: [u64; 12] = nanos([1, 10, 50, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000]);

const fn nanos<const N: usize>(mut bounds: [u64; N]) -> [u64; N] {
    let mut position = 0;
    while position < N {
        bounds[position] *= 1_000_000;
        position += 1;
    }
    bounds
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// The count of each bucket, and finally of everything longer than all bounds.
    counts: Box<[u64]>,
    /// Nanoseconds. A million jobs that each wait for a day overflow 64 bits.
    sum: u128,
}

impl Histogram {
    /// Creates an empty histogram with these ascending upper bounds in nanoseconds.
    pub fn new(bounds: &'static [u64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1].into(), sum: 0 }
    }

    pub fn observe(&mut self, time: Span) {
        let nanos = time.nanos();
        let bucket = self.bounds.iter().position(|bound| nanos <= *bound).unwrap_or(self.bounds.len());
        self.counts[bucket] += 1;
        self.sum += u128::from(nanos);
    }

    /// Each bound in nanoseconds, with the number of durations that do not exceed it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.bounds.iter().zip(&self.counts).scan(0, |below, (bound, count)| {
            *below += count;
            Some((*bound, *below))
        })
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum_nanos(&self) -> u128 {
        self.sum
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobTimes {
    /// From the put or the end of the delay to the first reservation, for jobs never kicked before.
    pub wait: Histogram,
    /// From the reservation or the last touch to the completion.
    pub run: Histogram,
}

impl Default for JobTimes {
    fn default() -> JobTimes {
        JobTimes { wait: Histogram::new(&WAIT_BOUNDS), run: Histogram::new(&RUN_BOUNDS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_the_first_bucket_that_holds_it_and_all_behind() {
        let mut histogram = Histogram::new(&[10, 100]);
        for nanos in [0, 10, 11, 100, 101] {
            histogram.observe(Span::from_nanos(nanos));
        }
        assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(10, 2), (100, 4)]);
        assert_eq!((histogram.count(), histogram.sum_nanos()), (5, 222));
    }

    #[test]
    fn bounds_rise() {
        for bounds in [&WAIT_BOUNDS[..], &RUN_BOUNDS[..]] {
            assert!(bounds.is_sorted());
        }
    }
}
