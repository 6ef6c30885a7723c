//! Until when a server may answer, if another may take its place.
//!
//! Owns that moment. Every reply looks at it right before it is written to a socket, on whatever thread: a process that
//! was stopped for a while, or whose thread comes late, says nothing any more. Must not know who grants it, or why.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::shared::atomic::AtomicU64;

/// The moment up to which a server may answer its clients.
#[derive(Debug)]
pub struct Lease {
    start: Instant,
    /// Nanoseconds since `start`; 0 when it is over for good.
    until: AtomicU64,
}

/// Nanoseconds that never pass: the lease of a server that is alone.
const ENDLESS: u64 = u64::MAX;

impl Default for Lease {
    /// One without end, for a server that is alone.
    fn default() -> Lease {
        Lease { start: Instant::now(), until: AtomicU64::new(ENDLESS) }
    }
}

impl Lease {
    /// One that ends at this moment unless it is extended.
    pub fn new(until: Instant) -> Lease {
        let lease = Lease::default();
        lease.until.store(lease.nanos(until), Ordering::Release);
        lease
    }

    /// Whether nothing may be answered any more.
    pub fn is_over(&self) -> bool {
        match self.until.load(Ordering::Acquire) {
            ENDLESS => false,
            until => self.nanos(Instant::now()) >= until,
        }
    }

    /// Lets it last until this moment at least, unless it is over.
    pub fn extend(&self, until: Instant) {
        let until = self.nanos(until);
        let now = self.nanos(Instant::now());
        let later = |old: u64| (now < old && old < until).then_some(until);
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Ends it for good: it cannot be extended any more.
    pub fn end(&self) {
        self.until.store(0, Ordering::Release);
    }

    fn nanos(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_over_stays_over() {
        let now = Instant::now();
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
