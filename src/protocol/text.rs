//! Numbers, names and words in text protocols. A parser returns the value and the rest. Must not panic on any input.

use crate::access::hex;
use crate::engine::{hex_digits, is_tube_name_byte};
use crate::shared::json::is_hostile;

pub fn past<T>(all: &[T], count: usize) -> &[T] {
    all.get(count..).unwrap_or_default()
}

pub fn upto<T>(all: &[T], count: usize) -> &[T] {
    all.get(..count).unwrap_or(all)
}

/// The digits of the numbers below 100.
const PAIRS: &[u8; 200] = b"\
    0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849\
    5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

#[expect(clippy::indexing_slicing, reason = "the index is less than 200")]
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [[0; 2]; 10];
    let mut first = 2 * digits.len();
    for pair in digits.iter_mut().rev() {
        let at = 2 * (number % 100) as usize;
        *pair = [PAIRS[at], PAIRS[at + 1]];
        first -= 1 + usize::from(number >= 10);
        number /= 100;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(past(digits.as_flattened(), first));
}

/// Parses a 64-bit number after optional spaces. A sign is an error.
pub fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = bytes;
    while let [b' ', tail @ ..] = rest {
        rest = tail;
    }
    digits(rest)
}

pub fn number32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = number(bytes)?;
    Some((u32::try_from(number).ok()?, rest))
}

/// Parses a number like C's `strtoul`. Like beanstalkd, keeps only the low 32 bits.
pub fn strtoul32(bytes: &[u8]) -> Option<u32> {
    let number = c_number(bytes)?;
    (number.unsigned_abs() <= u64::MAX.into()).then_some(number as u32)
}

/// Parses a number like C's `strtoll`, which saturates.
pub fn strtoll(bytes: &[u8]) -> Option<i64> {
    c_number(bytes).map(|number| number.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

/// Skips white space, accepts a sign, and ignores text after the digits. Saturates at 128 bits.
fn c_number(bytes: &[u8]) -> Option<i128> {
    let white = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let (sign, digits) = match past(bytes, white) {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| sign * i128::from(byte - b'0'));
    digits.fold(None, |number, digit| Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit)))
}

pub fn whole_number(text: &[u8]) -> Option<u64> {
    digits(text).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| number)
}

pub fn hex_pair(text: &[u8]) -> Option<u8> {
    text.get(..2).and_then(hex)
}

#[inline(always)] // for speed: a put has four numbers
fn digits(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number: u64 = 0;
    let mut rest = bytes;
    while let [byte @ b'0'..=b'9', tail @ ..] = rest {
        number = number.wrapping_mul(10).wrapping_add((byte - b'0').into());
        rest = tail;
    }
    match bytes.len() - rest.len() {
        0 => None,
        // 19 digits cannot overflow 64 bits.
        1..=19 => Some((number, rest)),
        length => Some((long_number(upto(bytes, length))?, rest)),
    }
}

#[cold]
fn long_number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Splits off the longest prefix that is valid in a tube name.
pub fn name_run(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().take_while(|byte| is_tube_name_byte(**byte)).count())
}

pub fn has_part(text: &[u8], part: &[u8]) -> bool {
    text.len() >= part.len() && memchr::memmem::find(text, part).is_some()
}

/// Returns `true` if beanstalkd accepts the name: 1 to 200 valid characters without a hyphen at the start.
pub fn is_tube_name(bytes: &[u8]) -> bool {
    let (run, rest) = name_run(bytes);
    rest.is_empty() && (1..=200).contains(&run.len()) && !run.starts_with(b"-")
}

/// The maximum length of a name in bytes, without quotes or escapes. Gearman function names have the same limit.
pub const MAX_QUOTED_NAME: usize = 512;

/// Adds quotes, and a backslash before `"` and `\`. Bytes outside printable ASCII become `\xNN`.
pub fn push_quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => out.extend(b"\\x".iter().copied().chain(hex_digits(byte))),
        }
    }
    out.push(b'"');
}

/// Parses the format of [`push_quoted`]. Rejects other escapes and unescaped special characters.
pub fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut name, mut rest) = (Vec::new(), text.strip_prefix(b"\"")?);
    loop {
        let (byte, tail) = match rest {
            [b'"', tail @ ..] => return Some((name, tail)),
            [b'\\', byte @ (b'"' | b'\\'), tail @ ..] => (*byte, tail),
            [b'\\', b'x', digits @ ..] => (hex_pair(digits)?, past(digits, 2)),
            [byte @ b' '..=b'~', tail @ ..] if *byte != b'\\' => (*byte, tail),
            _ => return None,
        };
        name.push(byte);
        rest = tail;
    }
}

/// Returns `true` if any protocol accepts the tube name. No protocol accepts a NUL byte.
pub fn is_any_name(name: &[u8]) -> bool {
    (1..=MAX_QUOTED_NAME).contains(&name.len()) && !name.contains(&0)
}

pub fn unquote_name(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    unquote(text).filter(|(name, _)| is_any_name(name))
}

/// Parses a string that consists of a single name, with or without quotes.
pub fn tube_name<N: for<'a> From<&'a [u8]>>(text: &[u8]) -> Option<N> {
    match unquote_name(text) {
        Some((name, rest)) => rest.is_empty().then(|| (&*name).into()),
        None => is_tube_name(text).then(|| text.into()),
    }
}

pub fn push_tube_name(out: &mut Vec<u8>, name: &[u8]) {
    match is_tube_name(name) {
        true => out.extend_from_slice(name),
        false => push_quoted(out, name),
    }
}

pub fn next_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = past(text, text.iter().position(|&byte| byte != b' ')?);
    Some(text.split_at(text.iter().position(|&byte| byte == b' ').unwrap_or(text.len())))
}

/// Escapes a name for Prometheus. Each byte of an invalid, control or invisible character becomes `\xNN`, and a
/// backslash is doubled to keep labels unique. The format requires escaping each resulting backslash again.
pub fn metric_label(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    let push_hex = |text: &mut String, bytes: &[u8]| bytes.iter().for_each(|it| *text += &format!("\\\\x{it:02x}"));
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\\\\\"),
                '"' => text.push_str("\\\""),
                letter if is_hostile(letter) => push_hex(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes()),
                letter => text.push(letter),
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_numbers() {
        let powers = (0..64).map(|bit| 1 << bit).chain((0..20).map(|digits| 10_u64.pow(digits)));
        let edges = powers.flat_map(|power: u64| [power - 1, power, power + 1]).chain([u64::MAX - 1, u64::MAX]);
        for number in (0..100_000).chain(edges) {
            let mut out = b"id ".to_vec();
            push_number(&mut out, number);
            assert_eq!(out, format!("id {number}").as_bytes());
        }
    }

    #[test]
    fn strict_numbers() {
        assert_eq!(number(b"  0012 x"), Some((12, b" x".as_slice())));
        assert_eq!(number(b"18446744073709551615"), Some((u64::MAX, b"".as_slice())));
        for wrong in ["", " ", "+1", "-1", "x", "\t1", "18446744073709551616"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(number32(b"4294967295"), Some((u32::MAX, b"".as_slice())));
        assert_eq!(number32(b"4294967296"), None);
    }

    #[test]
    fn lenient_numbers() {
        for (text, expected) in [
            ("\t9 x", Some(9)),
            ("+9", Some(9)),
            ("-1", Some(u32::MAX)),
            ("4294967297", Some(1)),
            ("18446744073709551616", None),
            ("x", None),
            ("", None),
            ("- 1", None),
        ] {
            assert_eq!(strtoul32(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_parsed_like_strtoll() {
        for (text, expected) in [
            ("3.5", Some(3)),
            (" -5x", Some(-5)),
            ("+7", Some(7)),
            ("abc", None),
            ("", None),
            ("-", None),
            ("99999999999999999999", Some(i64::MAX)),
            ("-99999999999999999999", Some(i64::MIN)),
        ] {
            assert_eq!(strtoll(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn quoted_text_is_parsed() {
        let all: Vec<u8> = (0..=255).collect();
        for text in [&b""[..], b"My::Func", b"a b", b"\"\\", b"\\x41", "caf\u{e9}".as_bytes(), &all] {
            let mut quoted = Vec::new();
            push_quoted(&mut quoted, text);
            assert!(quoted.iter().all(|byte| (b' '..=b'~').contains(byte)));
            quoted.extend(b" 7");
            assert_eq!(unquote(&quoted), Some((text.to_vec(), &b" 7"[..])));
        }
        for wrong in ["", "a", "\"", "\"a", "\"\\\"", "\"\\n\"", "\"\\x4\"", "\"\\xg0\"", "\"\t\"", "\"\u{e9}\""] {
            assert_eq!(unquote(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn tube_names() {
        assert!(is_tube_name(b"a-Z0+/;.$_()"));
        assert!(is_tube_name(&[b'a'; 200]));
        for wrong in [b"".as_slice(), b"-a", b"a b", b"a:b", b"caf\xc3\xa9", &[b'a'; 201]] {
            assert!(!is_tube_name(wrong), "{wrong:?}");
        }
    }
}
