//! Points in time, durations, and dates. Sums saturate, because clients can set a delay of 136 years.
//!
//! Must not read a clock: the caller passes the time.

use std::ops::{Add, Sub};

/// A point in time, in nanoseconds since the Unix epoch. The server reads the wall clock only at startup and then adds
/// the time of a monotonic clock, so the time never jumps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time(u64);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Span(u64);

impl Time {
    pub const NEVER: Time = Time(u64::MAX);

    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns zero if `earlier` is in the future.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Span {
    pub const ZERO: Span = Span(0);

    pub const MAX: Span = Span(u64::MAX);

    pub const fn from_secs(secs: u64) -> Span {
        Span(secs.saturating_mul(1_000_000_000))
    }

    pub const fn from_millis(millis: u64) -> Span {
        Span(millis.saturating_mul(1_000_000))
    }

    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos)
    }

    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Truncated as in all statistics of the protocol.
    pub const fn secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_instead_of_wrapping() {
        assert_eq!(Time::NEVER + Span::from_secs(1), Time::NEVER);
        assert_eq!(Time::from_nanos(5) - Span::from_nanos(9), Time::from_nanos(0));
        assert_eq!(Span::from_secs(u64::MAX).nanos(), u64::MAX);
    }

    #[test]
    fn seconds_are_cut_not_rounded() {
        assert_eq!(Span::from_nanos(1_999_999_999).secs(), 1);
        assert_eq!(Time::from_nanos(10).since(Time::from_nanos(30)), Span::ZERO);
    }
}
