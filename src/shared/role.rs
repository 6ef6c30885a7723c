//! The role of a server in a cluster, statistics of the shared log, and the lease, during which the server may reply.
//! Every thread checks the lease immediately before writing a reply, because the process may have been suspended.
//! Enforces promise P33 of beanpole-promises(7).

use std::ops::Add;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::lock_order::LeafMutex;
use super::system;
use crate::shared::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    #[default]
    Standby,
    Active,
    /// The server was active, and is finishing pending work.
    Closing,
}

impl Role {
    pub fn word(self) -> &'static str {
        ["standby", "active", "closing"][self as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoleFigures {
    pub role: Role,
    pub epoch: u64,
    /// The last entry that is known to be in the shared log and in this server's directory.
    pub entry: u64,
    /// Entries that this server has appended.
    pub written: u64,
    pub bytes: u64,
    /// Appends whose outcome was unknown at first, because no reply arrived.
    pub retries: u64,
    pub used: u64,
    /// The quota in bytes, or 0 if unknown.
    pub quota: u64,
    pub failed_renewals: u64,
    /// The time at which a standby's copy last contained the whole shared log.
    pub complete: Option<Moment>,
    /// The queue's time minus the time since this machine was started, in milliseconds; `None` if unknown. A server
    /// that takes over continues at the queue's time, regardless of its own wall clock.
    pub clock: Option<i64>,
}

impl RoleFigures {
    /// Returns how far a standby's copy lags behind, or zero if this is unknown or the server is not a standby.
    pub fn lag(&self) -> Duration {
        let complete = self.complete.filter(|_| self.role == Role::Standby);
        complete.map_or(Duration::ZERO, |complete| Moment::now().since(complete))
    }
}

#[derive(Debug, Default)]
pub struct RoleBoard(LeafMutex<RoleFigures>);

impl RoleBoard {
    pub fn figures(&self) -> RoleFigures {
        *self.0.lock()
    }

    /// Returns the queue's time in milliseconds since 1970, or the wall-clock time if no server has reported a time.
    pub fn queue_time(&self) -> u64 {
        self.figures().clock.map_or_else(wall_clock, |clock| Moment::now().millis().saturating_add_signed(clock))
    }

    /// Sets the queue's time in milliseconds. From then on, changes of the wall clock have no effect.
    pub fn set_time(&self, millis: u64) {
        self.note(|figures| figures.clock = Some((millis as i64).saturating_sub(Moment::now().millis() as i64)));
    }

    /// Returns the number of milliseconds by which the queue's time exceeds this server's wall clock.
    pub fn ahead(&self) -> i64 {
        (self.queue_time() as i64).saturating_sub(wall_clock() as i64)
    }

    pub fn note(&self, change: impl FnOnce(&mut RoleFigures)) {
        change(&mut self.0.lock());
    }
}

fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// A time on the boot clock. Unlike the clock of `Instant`, this clock includes time while the machine was suspended.
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
    /// The end of the lease in nanoseconds as a [`Moment`], 0 if the lease was ended permanently, or [`ENDLESS`].
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
        assert!(late.is_over(), "the lease had ended before the extension");
        assert!(!Lease::default().is_over());
    }
}
