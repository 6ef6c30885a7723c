//! Histograms of durations for the whole server, and more compact measurements for each tube. Not logged. Must not
//! decide what to measure (see `rules`).

use super::Span;

/// Bounds in nanoseconds, from 1 ms to a day.
const WAIT_BOUNDS: [u64; 14] =
    nanos([1, 5, 25, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000, 86_400_000]);

/// Bounds in nanoseconds, from 1 ms to an hour.
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
    /// The last bucket has no upper bound.
    counts: Box<[u64]>,
    /// 64 bits would overflow after about 200,000 waits of one day each.
    pub sum_nanos: u128,
}

impl Histogram {
    pub fn new(bounds: &'static [u64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1].into(), sum_nanos: 0 }
    }

    pub fn observe(&mut self, time: Span) {
        let nanos = time.nanos();
        let bucket = self.bounds.iter().position(|bound| nanos <= *bound).unwrap_or(self.bounds.len());
        self.counts[bucket] += 1;
        self.sum_nanos += u128::from(nanos);
    }

    /// Returns each bound in nanoseconds, with the number of durations up to this bound.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.bounds.iter().zip(&self.counts).scan(0, |below, (bound, count)| {
            *below += count;
            Some((*bound, *below))
        })
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobTimes {
    /// The time from the put or the expiry of the delay to the first reservation, for jobs that were never kicked.
    pub wait: Histogram,
    /// The time from the reservation or the last touch to the delete or reported outcome, for jobs with a time to run.
    pub run: Histogram,
}

impl Default for JobTimes {
    fn default() -> JobTimes {
        JobTimes { wait: Histogram::new(&WAIT_BOUNDS), run: Histogram::new(&RUN_BOUNDS) }
    }
}

/// The number of ranges. Each range ends at twice the end of the previous range. The last range has no end.
pub const RANGES: usize = 32;
/// The first range ends at 2^`FIRST_POWER` ns, about 33 µs.
const FIRST_POWER: u32 = 15;
/// Each new sample contributes 1/`WEIGHT` to the moving average.
const WEIGHT: u64 = 10;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latency {
    counts: [u32; RANGES],
    pub sum_nanos: u128,
    pub average: Span,
    /// Nanoseconds, or [`u64::MAX`] before the first duration.
    min: u64,
    pub max: Span,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { counts: [0; RANGES], sum_nanos: 0, average: Span::ZERO, min: u64::MAX, max: Span::ZERO }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TubeTimes {
    pub wait: Latency,
    pub run: Latency,
    pub events: TubeEvents,
}

/// Event counts of a tube since its creation. Events are not counted while there is no memory for the counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TubeEvents {
    pub timeouts: u64,
    pub releases: u64,
    pub buries: u64,
}

pub const TIMES_COST: u64 = size_of::<TubeTimes>() as u64;
const _: () = assert!(TIMES_COST <= 400);

/// The last range includes all longer durations.
fn range_of(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    (bits.saturating_sub(FIRST_POWER) as usize).min(RANGES - 1)
}

/// Returns the exclusive end of `range` in nanoseconds.
fn end_of(range: usize) -> u64 {
    1 << (FIRST_POWER as usize + range)
}

impl Latency {
    pub fn observe(&mut self, time: Span) {
        let nanos = time.nanos();
        let count = &mut self.counts[range_of(nanos)];
        *count = count.saturating_add(1);
        self.sum_nanos += u128::from(nanos);
        let is_first = self.min == u64::MAX;
        let average = self.average.nanos();
        self.average = if is_first { time } else { Span::from_nanos(average - average / WEIGHT + nanos / WEIGHT) };
        self.min = self.min.min(nanos);
        self.max = self.max.max(time);
    }

    pub fn samples(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    pub fn min(&self) -> Span {
        Span::from_nanos(self.min.min(self.max.nanos()))
    }

    /// Interpolates within a range. Returns zero if there are no durations.
    pub fn percentile(&self, percent: u64) -> Span {
        let rank = (self.samples() * percent).div_ceil(100);
        let mut below = 0;
        for (range, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if count > 0 && below + count >= rank {
                let begin = if range == 0 { 0 } else { end_of(range - 1) };
                let end = if range == RANGES - 1 { u64::MAX } else { end_of(range) };
                let (begin, end) = (begin.max(self.min), end.min(self.max.nanos()));
                let part = u128::from(end.saturating_sub(begin)) * u128::from(rank - below) / u128::from(count);
                return Span::from_nanos(begin + part as u64);
            }
            below += count;
        }
        Span::ZERO
    }

    /// Returns, for every second range except the last, its end in nanoseconds and the number of shorter durations.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pairs = self.counts.chunks_exact(2).enumerate();
        pairs.take(RANGES / 2 - 1).scan(0, |below, (position, pair)| {
            *below += pair.iter().map(|count| u64::from(*count)).sum::<u64>();
            Some((end_of(2 * position + 1), *below))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(times: &[u64]) -> Latency {
        let mut latency = Latency::default();
        times.iter().for_each(|time| latency.observe(Span::from_nanos(*time)));
        latency
    }

    #[test]
    fn each_range_is_twice_as_long_as_the_one_before() {
        assert_eq!((range_of(0), range_of((1 << 15) - 1), range_of(1 << 15)), (0, 0, 1));
        for range in 0..RANGES - 1 {
            assert_eq!((range_of(end_of(range) - 1), range_of(end_of(range))), (range, range + 1));
        }
        assert_eq!(range_of(u64::MAX), RANGES - 1);
    }

    #[test]
    fn without_times_everything_is_zero() {
        let none = Latency::default();
        assert_eq!((none.samples(), none.average, none.percentile(99)), (0, Span::ZERO, Span::ZERO));
        assert!(none.buckets().all(|(_, count)| count == 0));
    }

    #[test]
    fn the_average_follows_slowly_and_extremes_stay() {
        let latency = nanos(&[1_000_000, 11_000_000, 0]);
        assert_eq!(latency.average, Span::from_nanos(1_800_000));
        assert_eq!((latency.min(), latency.max), (Span::ZERO, Span::from_nanos(11_000_000)));
        assert_eq!((latency.samples(), latency.sum_nanos), (3, 12_000_000));
    }

    #[test]
    fn percentiles_are_near_the_true_ones_and_inside_of_the_extremes() {
        // A thousand durations, evenly distributed from a millisecond to a second.
        let times: Vec<u64> = (1..=1000).map(|position| position * 1_000_000).collect();
        let latency = nanos(&times);
        for percent in [1, 10, 50, 90, 95, 99, 100] {
            let (found, exact) = (latency.percentile(percent).nanos(), percent * 10_000_000);
            assert!(found >= exact / 2 && found <= exact * 2, "{percent}: {found} for {exact}");
        }
        assert!(latency.percentile(50) < latency.percentile(95) && latency.percentile(95) < latency.percentile(99));
        let alone = nanos(&[123_456_789]);
        assert_eq!([50, 95, 99].map(|percent| alone.percentile(percent).nanos()), [123_456_789; 3]);
        let long = nanos(&[u64::MAX, u64::MAX]);
        assert_eq!((long.percentile(50), long.average), (Span::MAX, Span::MAX));
    }

    #[test]
    fn buckets_rise_and_hold_what_is_shorter() {
        let latency = nanos(&[0, 1 << 15, 1 << 16, 1 << 17, u64::MAX]);
        let buckets: Vec<(u64, u64)> = latency.buckets().collect();
        assert_eq!(buckets[..3], [(1 << 16, 2), (1 << 18, 4), (1 << 20, 4)]);
        assert_eq!((buckets.len(), buckets.last()), (15, Some(&(1 << 44, 4))));
    }

    #[test]
    fn a_time_counts_in_the_first_bucket_that_holds_it_and_all_later_ones() {
        let mut histogram = Histogram::new(&[10, 100]);
        for nanos in [0, 10, 11, 100, 101] {
            histogram.observe(Span::from_nanos(nanos));
        }
        assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(10, 2), (100, 4)]);
        assert_eq!((histogram.count(), histogram.sum_nanos), (5, 222));
    }

    #[test]
    fn bounds_rise() {
        for bounds in [&WAIT_BOUNDS[..], &RUN_BOUNDS[..]] {
            assert!(bounds.is_sorted());
        }
    }
}
