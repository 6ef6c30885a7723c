//! What a server tells of its part, if it is one of several.
//!
//! Owns the role, and the figures of the shared log as they were noted last: the threads that deal with that log note
//! them, those that answer clients read them, and neither waits for the other. Must not know who decides the role.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::lease::Moment;

/// What one of several servers does at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// It follows the active server and serves nobody.
    #[default]
    Standby,
    /// It runs the queue and serves clients.
    Active,
    /// It was active, and brings to its end what is under way.
    Closing,
}

impl Role {
    /// The word that operators know it by.
    pub fn word(self) -> &'static str {
        match self {
            Role::Standby => "standby",
            Role::Active => "active",
            Role::Closing => "closing",
        }
    }
}

/// The role, and how the shared log does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoleFigures {
    /// What this server does at the moment.
    pub role: Role,
    /// The turn of the active server, as far as this one knows.
    pub epoch: u64,
    /// The last entry that this server knows to be in the shared log and in its own folder.
    pub entry: u64,
    /// Entries that this server has appended.
    pub written: u64,
    /// Bytes in those entries, as they were sealed.
    pub bytes: u64,
    /// Appends whose outcome it had to ask for.
    pub retries: u64,
    /// Bytes that the shared log takes, as they were asked for last.
    pub used: u64,
    /// Bytes that it may take; 0 until it was asked.
    pub quota: u64,
    /// Renewals of the lease that failed.
    pub failed_renewals: u64,
    /// When the copy of a standby last had all entries of the shared log.
    pub complete: Option<Moment>,
    /// The queue's time minus the milliseconds since this machine was started, if the active server's heartbeats have
    /// shown it: a server that takes over continues by this, whatever its wall clock says.
    pub clock: Option<i64>,
}

impl RoleFigures {
    /// How old the copy of a standby is; zero on the active server.
    pub fn lag(&self) -> Duration {
        let complete = self.complete.filter(|_| self.role == Role::Standby);
        complete.map_or(Duration::ZERO, |complete| Moment::now().since(complete))
    }
}

/// Where they are noted; its lock is a leaf.
#[derive(Debug, Default)]
pub struct RoleBoard(Mutex<RoleFigures>);

impl RoleBoard {
    /// The figures as they were noted last.
    pub fn figures(&self) -> RoleFigures {
        *self.0.lock()
    }

    /// The queue's time, in milliseconds since 1970: that of the server which was active before, or else the wall
    /// clock's.
    pub fn queue_time(&self) -> u64 {
        self.figures().clock.map_or_else(wall_clock, |clock| Moment::now().millis().saturating_add_signed(clock))
    }

    /// Milliseconds by which the queue's time is ahead of this server's clock.
    pub fn ahead(&self) -> i64 {
        (self.queue_time() as i64).saturating_sub(wall_clock() as i64)
    }

    /// Notes what has changed since then.
    pub fn note(&self, change: impl FnOnce(&mut RoleFigures)) {
        change(&mut self.0.lock());
    }
}

/// What the wall clock says, in milliseconds since 1970.
fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
