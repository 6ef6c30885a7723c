//! The schedule in SUBMIT_JOB_SCHED. A job starts in the first minute in which all fields match.

use crate::engine::Minutes;
use crate::protocol::text::whole_number;

/// The fields are minute, hour, day of the month, month, and day of the week (0 is Monday). `*` matches any value.
pub fn parse(fields: [&[u8]; 5]) -> Option<Minutes> {
    let [minute, hour, day, month, weekday] = fields;
    Some(Minutes::at([
        field(minute, 0, 59)?,
        field(hour, 0, 23)?,
        field(day, 1, 31)?,
        field(month, 1, 12)?,
        field(weekday, 0, 6)?.map(|day| (day + 1) % 7),
    ]))
}

fn field(text: &[u8], min: u8, max: u8) -> Option<Option<u8>> {
    if matches!(text, b"" | b"*") {
        return Some(None);
    }
    let number = whole_number(text).and_then(|number| u8::try_from(number).ok());
    number.filter(|number| (min..=max).contains(number)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Time;

    /// Tuesday, 14 November 2023, 22:13:20 UTC.
    const NOW: u64 = 1_700_000_000;

    #[test]
    fn all_fields_must_match() {
        let next = |fields: [&str; 5]| {
            let minutes = parse(fields.map(str::as_bytes)).expect("fields");
            minutes.next(Time::from_nanos(NOW * 1_000_000_000)).map(|time| time.nanos() / 1_000_000_000)
        };
        assert_eq!(next(["", "", "", "", ""]), Some(1_700_000_040), "the next full minute");
        assert_eq!(next(["*", "*", "*", "*", "*"]), Some(1_700_000_040));
        assert_eq!(next(["30", "6", "1", "", ""]), Some(1_701_412_200), "1 December 2023, 06:30");
        assert_eq!(next(["0", "0", "", "", "0"]), Some(1_700_438_400), "Monday, 20 November");
        assert_eq!(next(["0", "0", "", "", "6"]), Some(1_700_352_000), "Sunday, 19 November");
        assert_eq!(next(["0", "0", "13", "", "4"]), Some(1_702_425_600 + 275 * 86_400), "Friday, 13 September 2024");
        assert_eq!(next(["", "", "30", "2", ""]), None);
    }

    #[test]
    fn fields_out_of_range_are_invalid() {
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
            assert_eq!(parse(wrong.map(str::as_bytes)), None, "{wrong:?}");
        }
    }
}
