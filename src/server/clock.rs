//! The clock, which is the only source of the queue's time.
//!
//! Owns the relation between the monotonic clock and the wall clock. Must not sleep.
//!
//! Enforces promise P11 of beanpole-promises(7).

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::shared::atomic::{AtomicU64, Ordering};
use nix::time::{clock_gettime, ClockId};

use crate::engine::{Span, Time};

#[derive(Debug)]
pub enum Clock {
    /// The system clock. Changes of the wall clock after startup have no effect.
    System {
        /// The wall-clock time at `anchor`.
        wall: Time,
        /// The monotonic time at which this clock was created.
        anchor: Instant,
        /// Nanoseconds between 1970 and the origin of the monotonic clock.
        offset: u64,
    },
    /// A test clock that is advanced manually, in nanoseconds since 1970.
    Manual(AtomicU64),
    /// Like `Manual`, but long work is interrupted and continued later, as with the system clock.
    #[cfg_attr(not(any(test, feature = "test-support")), expect(dead_code))]
    Stepped(AtomicU64),
}

fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// Returns the monotonic time in nanoseconds, in a third of the instructions of `Instant::now`. Called for every batch.
fn monotonic() -> u64 {
    // Every platform that supports `Instant` has this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| (time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64))
}

impl Clock {
    pub fn system() -> Clock {
        Clock::anchored(wall())
    }

    /// Creates a system clock that starts at `millis` milliseconds since 1970.
    pub fn starting_at(millis: u64) -> Clock {
        Clock::anchored(Time::from_nanos(millis.saturating_mul(1_000_000)))
    }

    fn anchored(wall: Time) -> Clock {
        let offset = wall.nanos().wrapping_sub(monotonic());
        // The anchor is read last, so that no alarm goes off early.
        Clock::System { wall, offset, anchor: Instant::now() }
    }

    /// Returns this clock, or a clock that starts at `time` if this clock is behind.
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

    pub fn manual() -> Clock {
        Clock::Manual(AtomicU64::new(wall().nanos()))
    }

    /// Returns the current time, which never decreases.
    pub fn now(&self) -> Time {
        match self {
            Clock::System { offset, .. } => Time::from_nanos(offset.wrapping_add(monotonic())),
            Clock::Manual(nanos) | Clock::Stepped(nanos) => Time::from_nanos(nanos.load(Ordering::Acquire)),
        }
    }

    /// Returns the time of a command that directly follows a command at `before` while the engine stays locked. Adding
    /// one nanosecond is cheaper than reading the clock, and never exceeds the clock, because a command takes longer.
    pub fn after(&self, before: Time) -> Time {
        match self {
            Clock::System { .. } => before + Span::from_nanos(1),
            Clock::Manual(_) | Clock::Stepped(_) => before,
        }
    }

    /// `true` if the clock is advanced manually from deadline to deadline. All due work then precedes the next command.
    pub fn is_manual(&self) -> bool {
        matches!(self, Clock::Manual(_))
    }

    /// Returns `None` if `at` is out of range or the clock is manual.
    pub fn instant(&self, at: Time) -> Option<Instant> {
        match self {
            Clock::System { wall, anchor, .. } => {
                anchor.checked_add(std::time::Duration::from_nanos(at.since(*wall).nanos()))
            }
            Clock::Manual(_) | Clock::Stepped(_) => None,
        }
    }

    pub fn set(&self, to: Time) {
        match self {
            Clock::Manual(nanos) | Clock::Stepped(nanos) => nanos.fetch_max(to.nanos(), Ordering::AcqRel),
            Clock::System { .. } => unreachable!("the machine's clock is not ours to set"),
        };
    }
}
