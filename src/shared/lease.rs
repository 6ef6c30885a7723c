//! Until when a server may answer, if another may take its place.
//!
//! Owns that moment. Every reply looks at it right before it is written to a socket, on whatever thread: a process that
//! was stopped for a while, or whose thread comes late, says nothing any more. Must not know who grants it, or why.
//!
//! Promises: P33.

use std::ops::Add;
use std::time::Duration;

use super::system;
use crate::shared::atomic::{AtomicU64, Ordering};

/// A moment of the clock that never stops: unlike `Instant`, it also counts while the machine is suspended, as the
/// clocks of the other servers do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Moment {
    /// The present, by a look at that clock.
    pub fn now() -> Moment {
        Moment(system::boot_time().as_nanos() as u64)
    }

    /// The time from an earlier moment to this one; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Milliseconds since the machine was started.
    pub fn millis(self) -> u64 {
        self.0 / 1_000_000
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, length: Duration) -> Moment {
        Moment(self.0 + length.as_nanos() as u64)
    }
}

/// The moment up to which a server may answer its clients.
#[derive(Debug)]
pub struct Lease {
    /// The nanoseconds of a [`Moment`]; 0 when it is over for good.
    until: AtomicU64,
}

/// A moment that never comes: the lease of a server that is alone.
const ENDLESS: u64 = u64::MAX;

impl Default for Lease {
    /// One without end, for a server that is alone.
    fn default() -> Lease {
        Lease { until: AtomicU64::new(ENDLESS) }
    }
}

impl Lease {
    /// One that ends at this moment unless it is extended.
    pub fn new(until: Moment) -> Lease {
        Lease { until: AtomicU64::new(until.0) }
    }

    /// Whether nothing may be answered any more.
    pub fn is_over(&self) -> bool {
        match self.until.load(Ordering::Acquire) {
            ENDLESS => false,
            until => Moment::now().0 >= until,
        }
    }

    /// Lets it last until this moment at least, unless it is over.
    pub fn extend(&self, until: Moment) {
        let now = Moment::now();
        let later = |old: u64| (now.0 < old && old < until.0).then_some(until.0);
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Ends it for good: it cannot be extended any more.
    pub fn end(&self) {
        self.until.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_stays_over() {
        let now = Moment::now();
        let lease = Lease::new(now + Duration::from_secs(3600));
        assert!(!lease.is_over());
        lease.end();
        lease.extend(now + Duration::from_secs(7200));
        assert!(lease.is_over());
        let late = Lease::new(now);
        late.extend(now + Duration::from_secs(7200));
        assert!(late.is_over(), "it had ended before it was extended");
        assert!(!Lease::default().is_over());
    }
}
