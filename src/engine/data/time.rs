//! Points in time, durations, and dates. Sums saturate, because clients can set a delay of 136 years. Must not read a
//! clock: the caller passes the time.

use std::ops::{Add, Sub};

/// A point in time, in nanoseconds since the Unix epoch. The server reads the wall clock only at startup, and then adds
/// the time elapsed on a monotonic clock, so the time never jumps.
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

    /// Returns zero if `earlier` is later than `self`.
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

    /// Returns whole seconds, rounded down as in all statistics of the beanstalk protocol.
    pub const fn secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
}

const DAY: u64 = 86_400;
const ERA: i64 = 146_097;
/// The number of days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;

/// Returns the number of days since 1970-01-01. `month` and `day` start at 1, and `month` can be 13.
pub fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // The ten months from March to December have 306 days.
    year * 365 + leap_days + (month * 306 + 5) / 10 + day - 1 - EPOCH
}

/// Returns the year, the month and the day of the month. `day` is the number of days since 1970-01-01.
pub fn date_of(day: i64) -> (i64, i64, i64) {
    let (era, of_era) = ((day + EPOCH).div_euclid(ERA), (day + EPOCH).rem_euclid(ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

/// Appends a time in seconds since 1970 as `YYYY-MM-DDTHH:MM:SS`. Years have four digits, as RFC 3339 requires.
pub fn push_moment(out: &mut Vec<u8>, seconds: u64) {
    let (year, month, day) = date_of((seconds / DAY) as i64);
    let of_day = seconds % DAY;
    let parts = [(b'-', month as u64), (b'-', day as u64), (b'T', of_day / 3600), (b':', of_day / 60 % 60)];
    let pair = |number: u64| [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8];
    out.extend([year as u64 / 100, year as u64 % 100].into_iter().flat_map(pair));
    for (mark, number) in parts.into_iter().chain([(b':', of_day % 60)]) {
        out.push(mark);
        out.extend(pair(number));
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

    #[test]
    fn every_day_has_its_date() {
        assert_eq!(date_of(0), (1970, 1, 1));
        assert_eq!(date_of(-1), (1969, 12, 31));
        assert_eq!(date_of(11_016), (2000, 2, 29));
        assert_eq!(date_of(47_540), (2100, 2, 28), "2100 is no leap year");
        assert_eq!(date_of(47_541), (2100, 3, 1));
        assert_eq!(day_of(0, 1, 1), -719_528);
        let mut before = date_of(-800_000);
        for day in -799_999..3_000_000 {
            let date = date_of(day);
            assert_eq!(day_of(date.0, date.1, date.2), day);
            assert!(date > before && (1..=12).contains(&date.1) && (1..=31).contains(&date.2), "{date:?}");
            before = date;
        }
    }

    #[test]
    fn moments_have_fixed_width() {
        let written = |seconds: u64| {
            let mut out = Vec::new();
            push_moment(&mut out, seconds);
            String::from_utf8(out).expect("digits")
        };
        assert_eq!(written(0), "1970-01-01T00:00:00");
        assert_eq!(written(951_868_799), "2000-02-29T23:59:59");
        assert_eq!(written(4_102_444_800), "2100-01-01T00:00:00");
        assert_eq!(written(253_402_300_799), "9999-12-31T23:59:59");
    }

    #[test]
    fn invalid_dates_do_not_round_trip() {
        for (year, month, day) in
            [(2015, 2, 29), (1900, 2, 29), (2016, 6, 31), (2016, 13, 1), (2016, 0, 9), (2016, 1, 0)]
        {
            assert_ne!(date_of(day_of(year, month, day)), (year, month, day));
        }
    }
}
