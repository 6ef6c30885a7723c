//! The clock: the only place where the queue's time is read.
//!
//! Owns the anchor between the machine's monotonic clock and the wall clock. Must not sleep.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::shared::atomic::{AtomicU64, Ordering};
use nix::time::{clock_gettime, ClockId};

use crate::engine::{Span, Time};

#[derive(Debug)]
pub enum Clock {
    /// The machine. A jump of the wall clock after the start moves nothing.
    System {
        /// The wall clock at the anchor.
        wall: Time,
        /// The monotonic clock at the anchor.
        anchor: Instant,
        /// Nanoseconds between 1970 and the beginning of the monotonic clock.
        offset: u64,
    },
    /// A test, which moves it by hand; nanoseconds since the epoch.
    Manual(AtomicU64),
    /// The same, but all else is as with the machine's clock: what a turn leaves undone waits for the next one.
    #[cfg_attr(not(any(test, feature = "test-support")), expect(dead_code))]
    Stepped(AtomicU64),
}

fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// Nanoseconds of the clock that `Instant` reads, for a third of its instructions: each turn looks at it, and twice
/// where its length is counted.
fn monotonic() -> u64 {
    // Whoever has `Instant` has this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| (time.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec() as u64))
}

impl Clock {
    pub fn system() -> Clock {
        Clock::anchored(wall())
    }

    /// The machine's clock for a queue whose time is this now, in milliseconds since 1970.
    pub fn starting_at(millis: u64) -> Clock {
        Clock::anchored(Time::from_nanos(millis.saturating_mul(1_000_000)))
    }

    fn anchored(wall: Time) -> Clock {
        let offset = wall.nanos().wrapping_sub(monotonic());
        // Last, so that no alarm comes before its time.
        Clock::System { wall, offset, anchor: Instant::now() }
    }

    /// A clock that stands still at the present.
    pub fn manual() -> Clock {
        Clock::Manual(AtomicU64::new(wall().nanos()))
    }

    /// Nanoseconds since 1970, which never go back.
    pub fn now(&self) -> Time {
        match self {
            Clock::System { offset, .. } => Time::from_nanos(offset.wrapping_add(monotonic())),
            Clock::Manual(nanos) | Clock::Stepped(nanos) => Time::from_nanos(nanos.load(Ordering::Acquire)),
        }
    }

    /// The time of the command behind one at `before`, in the same turn. Each takes longer than the nanosecond that is
    /// put between them, so this is never ahead of the clock, and costs no look at it.
    pub fn after(&self, before: Time) -> Time {
        match self {
            Clock::System { .. } => before + Span::from_nanos(1),
            Clock::Manual(_) | Clock::Stepped(_) => before,
        }
    }

    /// Whether it is moved by hand from deadline to deadline, and each turn finishes what it begins.
    pub fn is_manual(&self) -> bool {
        matches!(self, Clock::Manual(_))
    }

    /// When the machine's monotonic clock shows this time; none if that is out of its reach or the clock is manual.
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
