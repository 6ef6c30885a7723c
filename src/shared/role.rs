//! What one of several servers reports about its role.
//!
//! Owns the role, and the last figures of the shared log. Threads that use the shared log record them, and threads that
//! serve clients read them, without waiting for each other. Must not know how the role is determined.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::lease::Moment;
use super::lock_order::LeafMutex;

/// The current role of one of several servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// It follows the active server and serves no queue.
    #[default]
    Standby,
    /// It runs the queue and serves clients.
    Active,
    /// It was active, and finishes pending work.
    Closing,
}

impl Role {
    /// Returns the name of the role.
    pub fn word(self) -> &'static str {
        match self {
            Role::Standby => "standby",
            Role::Active => "active",
            Role::Closing => "closing",
        }
    }
}

/// The role, and the state of the shared log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoleFigures {
    /// The current role of this server.
    pub role: Role,
    /// The epoch of the active server, as far as this one knows.
    pub epoch: u64,
    /// The last entry that this server knows to be in the shared log and in its own directory.
    pub entry: u64,
    /// The number of entries that this server has appended.
    pub written: u64,
    /// The size of these entries in bytes.
    pub bytes: u64,
    /// The number of appends whose outcome was unknown at first.
    pub retries: u64,
    /// The last known size of the shared log in bytes.
    pub used: u64,
    /// The quota of the shared log in bytes; 0 if it is unknown.
    pub quota: u64,
    /// The number of failed renewals of the lease.
    pub failed_renewals: u64,
    /// When the copy of a standby last had all entries of the shared log.
    pub complete: Option<Moment>,
    /// The queue's time minus the milliseconds since this machine was started, if the active server's heartbeats have
    /// shown it. A server that takes over continues from this time, whatever its wall clock says.
    pub clock: Option<i64>,
}

impl RoleFigures {
    /// Returns the age of a standby's copy; zero on the active server.
    pub fn lag(&self) -> Duration {
        let complete = self.complete.filter(|_| self.role == Role::Standby);
        complete.map_or(Duration::ZERO, |complete| Moment::now().since(complete))
    }
}

/// Where the figures are recorded; its lock is a leaf.
#[derive(Debug, Default)]
pub struct RoleBoard(LeafMutex<RoleFigures>);

impl RoleBoard {
    /// Returns the last recorded figures.
    pub fn figures(&self) -> RoleFigures {
        *self.0.lock()
    }

    /// Returns the queue's time in milliseconds since 1970: that of the previously active server, or else the wall
    /// clock's.
    pub fn queue_time(&self) -> u64 {
        self.figures().clock.map_or_else(wall_clock, |clock| Moment::now().millis().saturating_add_signed(clock))
    }

    /// Returns by how many milliseconds the queue's time is ahead of this server's clock.
    pub fn ahead(&self) -> i64 {
        (self.queue_time() as i64).saturating_sub(wall_clock() as i64)
    }

    /// Records changes of the figures.
    pub fn note(&self, change: impl FnOnce(&mut RoleFigures)) {
        change(&mut self.0.lock());
    }
}

/// Returns the time of the wall clock in milliseconds since 1970.
fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
