//! The clock: the only place where the queue's time is read.
//!
//! Owns the anchor between the machine's monotonic clock and the wall clock. Must not sleep.
//!
//! Promises: P11.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::shared::atomic::{AtomicU64, Ordering};
use nix::time::{clock_gettime, ClockId};

use crate::engine::{Span, Time};

#[derive(Debug)]
pub enum Clock {
    /// The system clock. Changes of the wall clock after the start have no effect.
    System {
        /// Wall clock time at the anchor.
        wall: Time,
        /// Monotonic clock time at the anchor.
        anchor: Instant,
        /// Nanoseconds between 1970 and the origin of the monotonic clock.
        offset: u64,
    },
    /// A test clock that is moved by hand, in nanoseconds since the epoch.
    Manual(AtomicU64),
    /// A test clock, but turns have budgets as with the system clock: unfinished work continues in the next turn.
    #[cfg_attr(not(any(test, feature = "test-support")), expect(dead_code))]
    Stepped(AtomicU64),
}

fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// Returns the nanoseconds of the clock behind `Instant` with a third of the instructions: every turn reads it, and
/// reads it twice when turn lengths are recorded.
fn monotonic() -> u64 {
    // Every platform that supports `Instant` has this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| (time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64))
}

impl Clock {
    pub fn system() -> Clock {
        Clock::anchored(wall())
    }

    /// Creates a system clock for a queue whose current time is `millis` milliseconds since 1970.
    pub fn starting_at(millis: u64) -> Clock {
        Clock::anchored(Time::from_nanos(millis.saturating_mul(1_000_000)))
    }

    fn anchored(wall: Time) -> Clock {
        let offset = wall.nanos().wrapping_sub(monotonic());
        // Read last, so that no alarm goes off early.
        Clock::System { wall, offset, anchor: Instant::now() }
    }

    /// Returns this clock, or one that starts at `time` if this clock has not reached `time` yet.
    pub fn continued(self, time: Time) -> Clock {
        let behind = time.since(self.now());
        match self {
            _ if behind == Span::ZERO => self,
            Clock::System { .. } => {
                let seconds = behind.nanos() / 1_000_000_000;
                log::warn!(
                    "the system clock is {seconds} s behind the binlog; the queue continues at the binlog's time"
                );
                Clock::anchored(time)
            }
            Clock::Manual(_) | Clock::Stepped(_) => {
                self.set(time);
                self
            }
        }
    }

    /// Creates a manual clock at the current time.
    pub fn manual() -> Clock {
        Clock::Manual(AtomicU64::new(wall().nanos()))
    }

    /// Returns nanoseconds since 1970; never goes back.
    pub fn now(&self) -> Time {
        match self {
            Clock::System { offset, .. } => Time::from_nanos(offset.wrapping_add(monotonic())),
            Clock::Manual(nanos) | Clock::Stepped(nanos) => Time::from_nanos(nanos.load(Ordering::Acquire)),
        }
    }

    /// Returns the time of the command that follows one at `before` in the same turn. A command takes longer than the
    /// nanosecond added here, so this time is never ahead of the clock, and it saves reading the clock.
    pub fn after(&self, before: Time) -> Time {
        match self {
            Clock::System { .. } => before + Span::from_nanos(1),
            Clock::Manual(_) | Clock::Stepped(_) => before,
        }
    }

    /// Returns `true` if the clock is moved by hand from deadline to deadline, and each turn finishes what it starts.
    pub fn is_manual(&self) -> bool {
        matches!(self, Clock::Manual(_))
    }

    /// Returns the `Instant` of this time, or `None` if it is out of range or the clock is manual.
    pub fn instant(&self, at: Time) -> Option<Instant> {
        match self {
            Clock::System { wall, anchor, .. } => {
                anchor.checked_add(std::time::Duration::from_nanos(at.since(*wall).nanos()))
            }
            Clock::Manual(_) | Clock::Stepped(_) => None,
        }
    }

    /// Moves a manual clock forward to `to`.
    pub fn set(&self, to: Time) {
        match self {
            Clock::Manual(nanos) | Clock::Stepped(nanos) => nanos.fetch_max(to.nanos(), Ordering::AcqRel),
            Clock::System { .. } => unreachable!("the machine's clock is not ours to set"),
        };
    }
}
