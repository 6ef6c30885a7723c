//! The time until which a server may reply, if another server can take over.
//!
//! Owns that time. Every thread checks it immediately before it writes a reply to a socket, so that a process that was
//! suspended, or a late thread, sends nothing. Must not know who grants the lease.
//!
//! Promises: P33.

use std::ops::Add;
use std::time::Duration;

use super::system;
use crate::shared::atomic::{AtomicU64, Ordering};

/// A time of the clock that never stops: unlike `Instant`, it also counts while the machine is suspended, like the
/// clocks of the other servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Moment {
    /// Returns the current time of that clock.
    pub fn now() -> Moment {
        Moment(system::boot_time().as_nanos() as u64)
    }

    /// Returns the duration since an earlier time; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the milliseconds since the machine was started.
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

/// The time until which a server may reply to its clients.
#[derive(Debug)]
pub struct Lease {
    /// The nanoseconds of a [`Moment`]; 0 if the lease has ended permanently.
    until: AtomicU64,
}

/// The lease of a single server, which never ends.
const ENDLESS: u64 = u64::MAX;

impl Default for Lease {
    /// Creates a lease without an end, for a single server.
    fn default() -> Lease {
        Lease { until: AtomicU64::new(ENDLESS) }
    }
}

impl Lease {
    /// Creates a lease that ends at this time unless it is extended.
    pub fn new(until: Moment) -> Lease {
        Lease { until: AtomicU64::new(until.0) }
    }

    /// Returns `true` if the server must not reply any more.
    pub fn is_over(&self) -> bool {
        match self.until.load(Ordering::Acquire) {
            ENDLESS => false,
            until => Moment::now().0 >= until,
        }
    }

    /// Extends the lease to at least this time, unless it has ended.
    pub fn extend(&self, until: Moment) {
        let now = Moment::now();
        let later = |old: u64| (now.0 < old && old < until.0).then_some(until.0);
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Ends the lease permanently: it cannot be extended any more.
    pub fn end(&self) {
        self.until.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_lease_cannot_be_extended() {
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
