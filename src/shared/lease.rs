//! The time until which a server of a cluster may reply. Every thread checks the lease immediately before it writes a
//! reply, so that a process that was suspended sends nothing. Enforces promise P33 of beanpole-promises(7).

use std::ops::Add;
use std::time::Duration;

use super::system;
use crate::shared::atomic::{AtomicU64, Ordering};

/// The boot clock, unlike `Instant`, also counts while the machine is suspended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Moment {
    pub fn now() -> Moment {
        Moment(system::boot_time().as_nanos() as u64)
    }

    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

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

#[derive(Debug)]
pub struct Lease {
    /// In nanoseconds as in [`Moment`], 0 if the lease was ended permanently, or [`ENDLESS`].
    until: AtomicU64,
}

const ENDLESS: u64 = u64::MAX;

impl Default for Lease {
    fn default() -> Lease {
        Lease { until: AtomicU64::new(ENDLESS) }
    }
}

impl Lease {
    pub fn new(until: Moment) -> Lease {
        Lease { until: AtomicU64::new(until.0) }
    }

    pub fn is_over(&self) -> bool {
        match self.until.load(Ordering::Acquire) {
            ENDLESS => false,
            until => Moment::now().0 >= until,
        }
    }

    pub fn extend(&self, until: Moment) {
        let now = Moment::now();
        let later = |old: u64| (now.0 < old && old < until.0).then_some(until.0);
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

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
