//! The clock, which is the only source of the queue's time.
//! Enforces promise P11 of beanpole-promises(7).

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::shared::atomic::{AtomicU64, Ordering};
use nix::time::{clock_gettime, ClockId};

use crate::engine::{Span, Time};

pub enum Clock {
    /// Changes to the system's wall clock after startup have no effect.
    System {
        wall: Time,
        anchor: Instant,
        /// Nanoseconds from 1970 to the origin of the monotonic clock.
        offset: u64,
    },
    /// A test clock, in nanoseconds since 1970, that is advanced manually.
    Manual(AtomicU64),
    /// Like `Manual`, but long work is interrupted and continued later, as with the system clock.
    #[cfg_attr(not(any(test, feature = "test-support")), expect(dead_code))]
    Stepped(AtomicU64),
}

fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// Returns nanoseconds. Each batch reads the clock, and `Instant::now` would need three times as many instructions.
fn monotonic() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| (time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64))
}

impl Clock {
    pub fn system() -> Clock {
        Clock::anchored(wall())
    }

    pub fn starting_at(millis: u64) -> Clock {
        Clock::anchored(Time::from_nanos(millis.saturating_mul(1_000_000)))
    }

    fn anchored(wall: Time) -> Clock {
        let offset = wall.nanos().wrapping_sub(monotonic());
        // The anchor is read last, so that no alarm goes off early.
        Clock::System { wall, offset, anchor: Instant::now() }
    }

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

    pub fn now(&self) -> Time {
        match self {
            Clock::System { offset, .. } => Time::from_nanos(offset.wrapping_add(monotonic())),
            Clock::Manual(nanos) | Clock::Stepped(nanos) => Time::from_nanos(nanos.load(Ordering::Acquire)),
        }
    }

    /// Returns the end time of a command. `System` adds the minimum duration, 1 ns, because reading the clock is slow.
    pub fn after(&self, before: Time) -> Time {
        before + Span::from_nanos(matches!(self, Clock::System { .. }).into())
    }

    /// `true` if time advances only on request and stops at each deadline. All due work runs before the next command.
    pub fn is_manual(&self) -> bool {
        matches!(self, Clock::Manual(_))
    }

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
            Clock::System { .. } => unreachable!("the system clock cannot be set"),
        };
    }
}
