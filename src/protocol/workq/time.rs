//! Times in Workq: RFC 3339 in UTC, ending in `Z`.

use crate::engine::Time;
use crate::engine::{date_of, day_of, push_moment};

const NANOS: u64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// Returns nanoseconds since 1970, which can be negative. Rejects other offsets, leap seconds and invalid dates.
pub fn parse(text: &[u8]) -> Option<i128> {
    let (seconds, behind) = text.split_at_checked(19)?;
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = |(byte, shape): (&u8, &u8)| if *shape == b'd' { byte.is_ascii_digit() } else { byte == shape };
    if !seconds.iter().zip(shape).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| {
        seconds.iter().take(to).skip(from).fold(0, |sum, byte| sum * 10 + i64::from(byte - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
    let date = day_of(year, month, day);
    let is_valid = date_of(date) == (year, month, day) && hour < 24 && minute < 60 && second < 60;
    let seconds = date * DAY + hour * 3600 + minute * 60 + second;
    is_valid.then_some(i128::from(seconds) * i128::from(NANOS) + i128::from(fraction(behind)?))
}

/// Parses `Z` or `.digitsZ`. Digits after the ninth are dropped.
fn fraction(text: &[u8]) -> Option<u64> {
    if text == b"Z" {
        return Some(0);
    }
    let digits = text.strip_prefix(b".")?.strip_suffix(b"Z")?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nine = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    Some(nine.fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0')))
}

/// Workq replies contain no fractions of a second.
pub fn push(out: &mut Vec<u8>, time: Time) {
    push_moment(out, time.nanos() / NANOS);
    out.push(b'Z');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<i128> {
        parse(text.as_bytes()).map(|nanos| nanos / i128::from(NANOS))
    }

    fn shown(seconds: u64) -> String {
        let mut out = Vec::new();
        push(&mut out, Time::from_nanos(seconds.saturating_mul(NANOS)));
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn times_are_parsed() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2016-06-14T06:46:46Z"), Some(1_465_886_806));
        assert_eq!(seconds("2000-02-29T23:59:59Z"), Some(951_868_799));
        assert_eq!(seconds("1969-12-31T23:59:59Z"), Some(-1));
        assert_eq!(seconds("0000-01-01T00:00:00Z"), Some(-62_167_219_200));
        assert_eq!(seconds("9999-12-31T23:59:59Z"), Some(253_402_300_799));
        assert_eq!(parse(b"1970-01-01T00:00:01.5Z"), Some(1_500_000_000));
        assert_eq!(parse(b"1970-01-01T00:00:01.1234567899999Z"), Some(1_123_456_789));
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "Z",
            "2016-06-14",
            "2016-06-14T06:46:46",
            "2016-06-14T06:46:46z",
            "2016-06-14t06:46:46Z",
            "2016-06-14T06:46:46+00:00",
            "2016-06-14T06:46:46Z+00:00",
            "2016-06-14T06:46Z",
            "2016-6-14T06:46:46Z",
            "2016-13-14T06:46:46Z",
            "2016-00-14T06:46:46Z",
            "2016-02-30T06:46:46Z",
            "2015-02-29T06:46:46Z",
            "1900-02-29T06:46:46Z",
            "2016-06-31T06:46:46Z",
            "2016-06-00T06:46:46Z",
            "2016-06-14T24:00:00Z",
            "2016-06-14T06:60:46Z",
            "2016-06-14T06:46:60Z",
            "2016-06-14T06:46:46.Z",
            "2016-06-14T06:46:46,5Z",
            "2016-06-14T06:46:46.5",
            "2016-06-14T06:46:46.5xZ",
            "+016-06-14T06:46:46Z",
            "02016-06-14T06:46:46Z",
            "2016-06-14T06:46:4\u{e4}Z",
        ] {
            assert_eq!(seconds(text), None, "{text:?}");
        }
    }

    #[test]
    fn every_day_is_parsed_and_written() {
        // Every day in the range of the engine's clock.
        for day in 0..213_503 {
            let second = day * 86_400 + day % 86_400;
            assert_eq!(seconds(&shown(second)), Some(second.into()));
        }
        assert_eq!(shown(u64::MAX), "2554-07-21T23:34:33Z");
    }
}
