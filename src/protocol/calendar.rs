//! The Gregorian calendar: dates and days since 1970-01-01, in UTC.
//!
//! Owns both conversions, after Howard Hinnant's "chrono-compatible low-level date algorithms". A year begins in March
//! here, so that the leap day comes last, and eras of 400 years are all alike. Must not read a clock.

const ERA: i64 = 146_097;

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;

/// Days from 1970-01-01 to a date, negative before it. `month` and `day` count from 1. A date that is not in the
/// calendar gives a day that [`date_of`] does not turn back.
pub fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 306 days are from March to the end of the year.
    year * 365 + leap_days + (month * 306 + 5) / 10 + day - 1 - EPOCH
}

/// Year, month and day of the month, the last two counted from 1, of a day since 1970-01-01.
pub fn date_of(day: i64) -> (i64, i64, i64) {
    let (era, of_era) = ((day + EPOCH).div_euclid(ERA), (day + EPOCH).rem_euclid(ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_date_that_is_not_in_the_calendar_is_not_turned_back() {
        for (year, month, day) in
            [(2015, 2, 29), (1900, 2, 29), (2016, 6, 31), (2016, 13, 1), (2016, 0, 9), (2016, 1, 0)]
        {
            assert_ne!(date_of(day_of(year, month, day)), (year, month, day));
        }
    }
}
