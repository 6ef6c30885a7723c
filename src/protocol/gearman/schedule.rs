//! When a scheduled job is due.
//!
//! Owns the fields of SUBMIT_JOB_SCHED: finds the next minute, in UTC, that matches all its fields. Must not know what
//! a job is.

use crate::engine::{Span, Time};
use crate::protocol::text::whole_number;
use crate::shared::calendar::date_of;

const MINUTE: u64 = 60_000_000_000;
const DAY: u64 = 24 * 60 * MINUTE;

/// Days to look ahead. The 29th of February falls on each day of the week at least once in 40 years (2096 to 2104 has
/// no leap year between).
const HORIZON: u64 = 41 * 366;

/// The fields of SUBMIT_JOB_SCHED; none matches everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    minute: Option<u8>,
    hour: Option<u8>,
    day: Option<u8>,
    month: Option<u8>,
    /// 0 to 6, of which 0 is Monday.
    weekday: Option<u8>,
}

impl Schedule {
    /// Reads the five fields; none if one is no number in its range. An empty field, or `*`, matches everything.
    pub fn parse(fields: [&[u8]; 5]) -> Option<Schedule> {
        let [minute, hour, day, month, weekday] = fields;
        Some(Schedule {
            minute: field(minute, 0, 59)?,
            hour: field(hour, 0, 23)?,
            day: field(day, 1, 31)?,
            month: field(month, 1, 12)?,
            weekday: field(weekday, 0, 6)?,
        })
    }

    /// The first minute that matches and begins at `now` or later; none if there is none.
    pub fn next(&self, now: Time) -> Option<Time> {
        let first = now.nanos().div_ceil(MINUTE).saturating_mul(MINUTE);
        let today = first / DAY;
        (today..today + HORIZON).find_map(|date| {
            if !self.matches(date) {
                return None;
            }
            let midnight = date.saturating_mul(DAY);
            let from = first.saturating_sub(midnight) / MINUTE;
            self.minute_from(from).map(|minute| Time::from_nanos(midnight) + Span::from_nanos(minute * MINUTE))
        })
    }

    /// Whether a day matches; days count from the first of January 1970, which was a Thursday.
    fn matches(&self, date: u64) -> bool {
        let (_, month, day) = date_of(date as i64);
        let is = |field: Option<u8>, value: u64| field.is_none_or(|wanted| u64::from(wanted) == value);
        is(self.weekday, (date + 3) % 7) && is(self.day, day as u64) && is(self.month, month as u64)
    }

    /// The first minute of a day that matches and is not before `from`.
    fn minute_from(&self, from: u64) -> Option<u64> {
        let hours = self.hour.map_or(0..=23, |hour| u64::from(hour)..=u64::from(hour));
        hours.into_iter().find_map(|hour| {
            let earliest = from.saturating_sub(hour * 60);
            let minute = self.minute.map_or(earliest, u64::from);
            (minute >= earliest && minute < 60).then_some(hour * 60 + minute)
        })
    }
}

fn field(text: &[u8], least: u8, most: u8) -> Option<Option<u8>> {
    if matches!(text, b"" | b"*") {
        return Some(None);
    }
    let number = whole_number(text).and_then(|number| u8::try_from(number).ok());
    number.filter(|number| (least..=most).contains(number)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds since 1970 of the next match of `fields`.
    fn next(fields: [&str; 5], now: u64) -> Option<u64> {
        let schedule = Schedule::parse(fields.map(str::as_bytes)).expect("a schedule");
        schedule.next(Time::from_nanos(now * 1_000_000_000)).map(|time| time.nanos() / 1_000_000_000)
    }

    /// Tuesday, 14 November 2023, 22:13:20.
    const NOW: u64 = 1_700_000_000;

    #[test]
    fn the_next_match_is_found() {
        assert_eq!(next(["", "", "", "", ""], NOW), Some(1_700_000_040), "the next full minute");
        assert_eq!(next(["*", "*", "*", "*", "*"], 1_700_000_040), Some(1_700_000_040), "this very minute");
        assert_eq!(next(["14", "", "", "", ""], NOW), Some(1_700_000_040));
        assert_eq!(next(["13", "", "", "", ""], NOW), Some(1_700_003_580), "the minute has begun: in an hour");
        assert_eq!(next(["0", "22", "", "", ""], NOW), Some(1_700_085_600), "tomorrow");
        assert_eq!(next(["", "21", "", "", ""], 1_699_999_200), Some(1_700_082_000), "the hour is just over: tomorrow");
        assert_eq!(next(["30", "6", "1", "", ""], NOW), Some(1_701_412_200), "1 December 2023, 06:30");
        assert_eq!(next(["0", "0", "", "", "0"], NOW), Some(1_700_438_400), "Monday, 20 November");
        assert_eq!(next(["59", "23", "31", "12", ""], NOW), Some(1_704_067_140));
        assert_eq!(next(["0", "12", "29", "2", ""], NOW), Some(1_709_208_000), "29 February 2024");
    }

    #[test]
    fn rare_dates_are_found_and_impossible_ones_are_not() {
        let monday = next(["0", "0", "29", "2", "0"], NOW).expect("a Monday") / 86_400;
        let (_, month, day) = date_of(monday as i64);
        assert_eq!((month, day), (2, 29));
        for weekday in ["0", "1", "2", "3", "4", "5", "6"] {
            // From March 2096 on: no leap year before 2104.
            assert!(next(["", "", "29", "2", weekday], 3_981_398_400).is_some());
        }
        assert_eq!(next(["", "", "30", "2", ""], NOW), None);
        assert_eq!(next(["", "", "31", "4", ""], NOW), None);
    }

    #[test]
    fn a_field_out_of_its_range_is_none() {
        for wrong in [
            ["60", "", "", "", ""],
            ["", "24", "", "", ""],
            ["", "", "0", "", ""],
            ["", "", "32", "", ""],
            ["", "", "", "13", ""],
            ["", "", "", "0", ""],
            ["", "", "", "", "7"],
            ["-1", "", "", "", ""],
            ["+1", "", "", "", ""],
            ["1 ", "", "", "", ""],
            ["300", "", "", "", ""],
            ["x", "", "", "", ""],
        ] {
            assert_eq!(Schedule::parse(wrong.map(str::as_bytes)), None, "{wrong:?}");
        }
    }
}
