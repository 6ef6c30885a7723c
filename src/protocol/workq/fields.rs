//! The fields of Workq commands: their syntax and limits, and the error for an invalid field. A client chooses the UUID
//! of a job, or the server derives the UUID from the job ID.

use super::reply::{self, Words};
use super::Uuid;
use crate::engine::{date_of, day_of, push_moment, Engine, Job, JobId, Priority, Span, Time, UUID_HYPHENS};
use crate::protocol::text::{hex_pair, past, whole_number};

/// The maximum size of data in bytes, as the protocol document defines.
pub const MAX_DATA: u64 = 1 << 20;
/// The maximum time to run: 24 hours in milliseconds, as the protocol document defines.
pub const MAX_TTR: u64 = 86_400_000;
/// The maximum wait: 24 hours in milliseconds, as in the original server.
pub const MAX_WAIT: u64 = 86_400_000;
/// The maximum length of a name in bytes, as the protocol document defines.
pub const MAX_NAME: usize = 255;
pub const MAX_LIMIT: u64 = 100;

pub fn is_name(name: &[u8]) -> bool {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    (1..=MAX_NAME).contains(&name.len()) && name.iter().all(legal)
}

pub fn name(text: &[u8]) -> Result<&[u8], Words> {
    is_name(text).then_some(text).ok_or(reply::INVALID_NAME)
}

fn signed(text: &[u8]) -> Option<i64> {
    let (negative, digits_only) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let number = i128::from(whole_number(digits_only)?);
    i64::try_from(if negative { -number } else { number }).ok()
}

/// Accepts a sign, as the original server does. The size can exceed `MAX_DATA`.
pub fn size(text: &[u8]) -> Option<u64> {
    signed(text).and_then(|size| u64::try_from(size).ok())
}

pub fn id(text: &[u8]) -> Result<Uuid, Words> {
    parse_uuid(text).ok_or(reply::INVALID_ID)
}

pub fn id_version(id: Uuid) -> Result<Uuid, Words> {
    is_rfc(&id).then_some(id).ok_or(reply::INVALID_ID)
}

/// Rejects UUIDs with an unknown version or variant, and UUIDs that the server could derive from a job ID.
pub fn new_id_version(id: Uuid) -> Result<(), Words> {
    id_version(id)?;
    underive(&id).is_none().then_some(()).ok_or(reply::INVALID_ID)
}

pub fn time(text: &[u8], error: Words) -> Result<u64, Words> {
    whole_number(text).ok_or(error)
}

pub fn ttr_range(millis: u64) -> Result<Span, Words> {
    (1..=MAX_TTR).contains(&millis).then(|| Span::from_millis(millis)).ok_or(reply::INVALID_TTR)
}

/// A time to live beyond the range of the engine's clock never expires.
pub fn ttl_range(millis: u64) -> Result<Span, Words> {
    (millis > 0).then(|| Span::from_millis(millis)).ok_or(reply::INVALID_TTL)
}

pub fn wait(text: &[u8]) -> Result<Span, Words> {
    whole_number(text).filter(|millis| *millis <= MAX_WAIT).map(Span::from_millis).ok_or(reply::INVALID_WAIT)
}

pub fn millis(span: Span) -> u64 {
    span.nanos() / 1_000_000
}

pub fn count(text: Option<&[u8]>, error: Words) -> Result<u8, Words> {
    text.map_or(Some(0), |text| u8::try_from(whole_number(text)?).ok()).ok_or(error)
}

pub fn priority(text: Option<&[u8]>) -> Result<Priority, Words> {
    text.map_or(Some(0), |text| i32::try_from(signed(text)?).ok()).map(engine_priority).ok_or(reply::INVALID_PRIORITY)
}

/// Workq serves the largest priority first, but the engine serves the smallest first.
pub fn engine_priority(priority: i32) -> Priority {
    priority as u32 ^ 0x7fff_ffff
}

pub fn shown_priority(pri: Priority) -> i32 {
    (pri ^ 0x7fff_ffff) as i32
}

pub fn offset(text: &[u8]) -> Result<u32, Words> {
    whole_number(text).and_then(|offset| u32::try_from(offset).ok()).ok_or(reply::INVALID_OFFSET)
}

pub fn limit(text: &[u8]) -> Result<usize, Words> {
    let limit = whole_number(text).filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.map(|limit| limit as usize).ok_or(reply::INVALID_LIMIT)
}

const NANOS: u64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// Returns nanoseconds since 1970, possibly negative. Rejects leap seconds, invalid dates, and offsets except `Z`.
pub fn parse_time(text: &[u8]) -> Option<i128> {
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
    let digits = if text == b"Z" { b"0" } else { text.strip_prefix(b".")?.strip_suffix(b"Z")? };
    let is_valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let nine = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    is_valid.then(|| nine.fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0')))
}

/// Workq replies contain no fractions of a second.
pub fn push_time(out: &mut Vec<u8>, time: Time) {
    push_moment(out, time.nanos() / NANOS);
    out.push(b'Z');
}

/// `beanpol` in ASCII, except that the high nibble of the last byte is 4, the UUID version that some clients require.
const PREFIX: [u8; 7] = *b"beanpoL";
/// The eighth byte. Its two low bits are XORed with the two high bits of the job ID.
const LETTER: u8 = b'e';
/// The two high bits of the ninth byte, which indicate the layout of RFC 4122.
const VARIANT: u64 = 0b10 << 62;

/// Accepts each form of a UUID that the original server accepts: with or without hyphens, plain, in braces, or after
/// `urn:uuid:`, in any case. Rejects truncated UUIDs and trailing text, which crashed the original server.
fn parse_uuid(text: &[u8]) -> Option<Uuid> {
    let bare = match text {
        [b'{', inside @ .., b'}'] => inside,
        _ => match text.split_at_checked(9) {
            Some((urn, rest)) if urn.eq_ignore_ascii_case(b"urn:uuid:") => rest,
            _ => text,
        },
    };
    let mut uuid = [0; 16];
    let mut rest = bare;
    for (index, byte) in uuid.iter_mut().enumerate() {
        if bare.len() == 36 && UUID_HYPHENS.contains(&index) {
            rest = rest.strip_prefix(b"-")?;
        }
        *byte = hex_pair(rest)?;
        rest = past(rest, 2);
    }
    rest.is_empty().then_some(uuid)
}

/// The original server accepts only version 4, and therefore rejects the example in its own documentation.
fn is_rfc(uuid: &Uuid) -> bool {
    (1..=8).contains(&(uuid[6] >> 4)) && uuid[8] >> 6 == 0b10
}

/// Returns the UUID of a job for which no client has chosen a UUID. A restart does not change the UUID.
pub fn derive(id: JobId) -> Uuid {
    let mut uuid = [0; 16];
    uuid[..7].copy_from_slice(&PREFIX);
    uuid[7] = LETTER ^ (id.0 >> 62) as u8;
    uuid[8..].copy_from_slice(&(id.0 & !(0b11 << 62) | VARIANT).to_be_bytes());
    uuid
}

pub fn underive(uuid: &Uuid) -> Option<JobId> {
    let [prefix @ .., _, _, _, _, _, _, _, _, _] = uuid;
    let [_, _, _, _, _, _, _, letter, low @ ..] = uuid;
    let top = u64::from(letter ^ LETTER);
    let low = u64::from_be_bytes(*low);
    let derived = *prefix == PREFIX && top <= 0b11 && low >> 62 == 0b10;
    derived.then_some(JobId(low & !VARIANT | top << 62))
}

/// Finds a job by the UUID that a client has chosen or that the server has derived from the job ID.
pub fn find(engine: &Engine, id: &Uuid) -> Option<JobId> {
    engine
        .find_id(id)
        .or_else(|| underive(id).filter(|job| engine.any_job(*job).is_some_and(|job| own(engine, &job).is_none())))
}

pub fn name_of(engine: &Engine, job: &Job) -> Uuid {
    own(engine, job).unwrap_or_else(|| derive(job.id()))
}

fn own(engine: &Engine, job: &Job) -> Option<Uuid> {
    engine.extras(job).and_then(|extras| extras.id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{push_uuid, MAX_LEASE};

    #[test]
    fn only_sizes_may_have_a_sign() {
        for (text, expected) in [
            ("0", Some(0)),
            ("+1", Some(1)),
            ("001", Some(1)),
            ("-0", Some(0)),
            ("1048577", Some(1_048_577)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("99999999999999999999999999", None),
            ("-1", None),
            ("x", None),
            ("1.0", None),
            ("1x", None),
            ("", None),
            ("+", None),
            ("-", None),
            ("+-1", None),
        ] {
            assert_eq!(size(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(time(b"005", reply::INVALID_TTR), Ok(5));
        for wrong in ["+5", "-1", "abc", "", "18446744073709551616"] {
            assert_eq!(time(wrong.as_bytes(), reply::INVALID_TTR), Err(reply::INVALID_TTR), "{wrong:?}");
            assert_eq!(wait(wrong.as_bytes()), Err(reply::INVALID_WAIT), "{wrong:?}");
        }
    }

    #[test]
    fn ranges_of_fields() {
        assert_eq!(MAX_TTR, millis(MAX_LEASE));
        assert!(ttr_range(1).is_ok() && ttr_range(MAX_TTR).is_ok());
        assert!(ttr_range(0).is_err() && ttr_range(MAX_TTR + 1).is_err());
        assert_eq!(time(b"18446744073709551615", OK).and_then(ttl_range), Ok(Span::from_millis(u64::MAX)));
        assert!(ttl_range(0).is_err());
        assert!(wait(b"86400000").is_ok() && wait(b"86400001").is_err() && wait(b"0").is_ok());
        assert!(offset(b"4294967295").is_ok() && offset(b"4294967296").is_err());
        assert!(limit(b"100").is_ok() && limit(b"101").is_err() && limit(b"0").is_err());
        assert_eq!(count(None, OK), Ok(0));
        assert_eq!(count(Some(b"255"), OK), Ok(255));
        for wrong in ["256", "-1", "+1", "x", ""] {
            assert!(count(Some(wrong.as_bytes()), OK).is_err(), "{wrong:?}");
        }
    }

    const OK: Words = b"";

    #[test]
    fn priorities_are_reversed_in_the_engine() {
        let numbers = [i32::MAX, 10, 1, 0, -1, -5, i32::MIN];
        let converted = numbers.map(engine_priority);
        assert!(converted.is_sorted());
        assert_eq!(converted[0], 0);
        assert_eq!(converted.map(shown_priority), numbers);
        assert_eq!(priority(Some(b"+5")), Ok(engine_priority(5)));
        assert_eq!(priority(Some(b"-2147483648")), Ok(u32::MAX));
        assert_eq!(priority(None), Ok(0x7fff_ffff));
        for wrong in ["2147483648", "-2147483649", "abc", ""] {
            assert_eq!(priority(Some(wrong.as_bytes())), Err(reply::INVALID_PRIORITY), "{wrong:?}");
        }
    }

    #[test]
    fn names() {
        for good in [b"ping".as_slice(), b"-x", b".", b"A-Z_a.z-09", &[b'a'; 255]] {
            assert!(is_name(good), "{good:?}");
        }
        for wrong in [b"".as_slice(), b"b@d", b"a/b", b"a\0", b"caf\xc3\xa9", b"a\tb", &[b'a'; 256]] {
            assert!(!is_name(wrong), "{wrong:?}");
        }
    }

    fn seconds(text: &str) -> Option<i128> {
        parse_time(text.as_bytes()).map(|nanos| nanos / i128::from(NANOS))
    }

    fn shown(seconds: u64) -> String {
        let mut out = Vec::new();
        push_time(&mut out, Time::from_nanos(seconds.saturating_mul(NANOS)));
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
        assert_eq!(parse_time(b"1970-01-01T00:00:01.5Z"), Some(1_500_000_000));
        assert_eq!(parse_time(b"1970-01-01T00:00:01.1234567899999Z"), Some(1_123_456_789));
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
        for day in 0..213_503 {
            let second = day * 86_400 + day % 86_400;
            assert_eq!(seconds(&shown(second)), Some(second.into()));
        }
        assert_eq!(shown(u64::MAX), "2554-07-21T23:34:33Z");
    }

    fn spelled(uuid: &Uuid) -> String {
        let mut out = Vec::new();
        push_uuid(&mut out, uuid);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn all_spellings_are_parsed() {
        let canonical = "6ba7b810-9dad-11d1-80b4-00c04fd430c4";
        for text in [
            canonical,
            "6BA7B810-9DAD-11D1-80B4-00C04FD430C4",
            "6ba7b8109dad11d180b400c04fd430c4",
            "{6ba7b810-9dad-11d1-80b4-00c04fd430c4}",
            "{6ba7b8109dad11d180b400c04fd430c4}",
            "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c4",
            "URN:UUID:6ba7b8109dad11d180b400c04fd430c4",
        ] {
            assert_eq!(parse_uuid(text.as_bytes()).map(|uuid| spelled(&uuid)).as_deref(), Some(canonical), "{text}");
        }
    }

    #[test]
    fn invalid_uuids_are_refused() {
        for text in [
            "",
            "-",
            "abc",
            "{}",
            "urn:uuid:",
            "urn:uuid:6ba7b810-9dad-41d1-80b4",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c4x",
            "6ba7b810-9dad-11d1-80b400c04fd430c4",
            "6ba7b8109-dad-11d1-80b4-00c04fd430c4",
            "6ba7b810-9dad-11d1-80b4-00c04fd430cg",
            "{6ba7b810-9dad-11d1-80b4-00c04fd430c4",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c4}",
            "urn:uuid:{6ba7b810-9dad-11d1-80b4-00c04fd430c4}",
            "6ba7b8109dad11d180b400c04fd430c\u{e4}",
        ] {
            assert_eq!(parse_uuid(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn known_versions_are_accepted() {
        let with = |text: &str| is_rfc(&parse_uuid(text.as_bytes()).expect("a UUID"));
        for version in 1..=8 {
            assert!(with(&format!("6ba7b810-9dad-{version}1d1-80b4-00c04fd430c4")));
        }
        assert!(!with("00000000-0000-0000-0000-000000000000"));
        assert!(!with("ffffffff-ffff-ffff-ffff-ffffffffffff"));
        for variant in ["00", "7f", "c0", "ff"] {
            assert!(!with(&format!("6ba7b810-9dad-41d1-{variant}b4-00c04fd430c4")));
        }
    }

    #[test]
    fn derived_ids_are_parsed() {
        assert_eq!(spelled(&derive(JobId(1))), "6265616e-706f-4c65-8000-000000000001");
        for id in [1, 2, 255, 1 << 32, (1 << 62) - 1, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX] {
            let uuid = derive(JobId(id));
            assert_eq!(underive(&uuid), Some(JobId(id)));
            assert!(is_rfc(&uuid) && uuid[6] >> 4 == 4);
        }
        for other in ["6265616e-706f-4c61-8000-000000000001", "6265616e-706f-4c65-c000-000000000001"] {
            assert_eq!(underive(&parse_uuid(other.as_bytes()).expect("a UUID")), None, "{other}");
        }
    }
}
