//! Statistics: distributions, medians, and the formatting of numbers.
//!
//! Must not depend on the measurements.

use std::time::Duration;

/// Buckets per doubling of the duration. This number limits the error of a percentile to 1.6 %.
const STEPS: usize = 64;

/// The number of groups of `STEPS` buckets. The first group covers 0 to 63 ns, and each further group covers one
/// doubling. The last group ends at 2^45 ns (9.8 hours).
const DOUBLINGS: usize = 40;

/// A histogram of durations with logarithmic buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    all: u64,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; STEPS * DOUBLINGS], all: 0, longest: 0 }
    }
}

impl Histogram {
    pub fn add(&mut self, time: Duration) {
        let nanos = time.as_nanos() as u64;
        let shift = (64 - nanos.leading_zeros() as usize).saturating_sub(7);
        let bucket = shift * STEPS + (nanos >> shift) as usize;
        self.counts[bucket.min(STEPS * DOUBLINGS - 1)] += 1;
        self.all += 1;
        self.longest = self.longest.max(nanos);
    }

    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.all = 0;
        self.longest = 0;
    }

    /// Returns the duration, in microseconds, that the given share (0 to 1) of all durations does not exceed.
    pub fn percentile(&self, share: f64) -> f64 {
        let rank = (self.all as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank && *count > 0 {
                let shift = (bucket / STEPS).saturating_sub(1);
                let base = bucket - shift * STEPS;
                return ((base as u64) << shift) as f64 / 1000.0;
            }
        }
        0.0
    }

    pub fn longest(&self) -> f64 {
        self.longest as f64 / 1000.0
    }
}

/// Returns the median, or NaN if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

/// Formats a number with up to three decimals, fewer for larger numbers. Formats NaN and infinity as a dash.
pub fn short(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "–".to_owned(),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats a rate, for example 950, 14.2k or 2.31M.
pub fn rate(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".to_owned(),
        _ if value >= 999_500.0 => format!("{:.2}M", value / 1e6),
        _ if value >= 99_950.0 => format!("{:.0}k", value / 1e3),
        _ if value >= 1_000.0 => format!("{:.1}k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

pub fn megabytes(bytes: f64) -> String {
    format!("{} MB", short(bytes / 1e6))
}
