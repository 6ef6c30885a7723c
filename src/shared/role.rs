//! The role of a server in a cluster, and statistics of the shared log. Threads that use the shared log record the
//! values, and threads that serve clients read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::lease::Moment;
use super::lock_order::LeafMutex;

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
        match self {
            Role::Standby => "standby",
            Role::Active => "active",
            Role::Closing => "closing",
        }
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
    /// In bytes, or 0 if the quota is unknown.
    pub quota: u64,
    pub failed_renewals: u64,
    /// When a standby's copy last contained the whole shared log.
    pub complete: Option<Moment>,
    /// The queue's time minus the time since this machine was started, in milliseconds; `None` if unknown. A server
    /// that takes over continues at the queue's time, regardless of its own wall clock.
    pub clock: Option<i64>,
}

impl RoleFigures {
    /// Returns zero on the active server.
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

    /// Returns milliseconds since 1970, or the wall-clock time if no server has reported a time.
    pub fn queue_time(&self) -> u64 {
        self.figures().clock.map_or_else(wall_clock, |clock| Moment::now().millis().saturating_add_signed(clock))
    }

    /// Returns milliseconds by which the queue's time exceeds this server's wall clock.
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
