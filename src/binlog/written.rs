//! The terms of a job in a record, to and from bytes: pure.
//!
//! Owns their format, which beanpole-binlog(5) describes. Must not know other records, and never trusts what it reads.

use std::borrow::Cow;

use crate::engine::{Ending, Span, Time, WrittenTerms, WrittenUnique, EXTRA};

/// Bytes of terms without names.
const FIXED: usize = 46;

/// Bytes of a number that no other job may have.
const ID: usize = 16;

const _: () = assert!(FIXED + ID <= EXTRA, "the engine counts enough");

/// Appends terms.
pub fn encode(terms: &WrittenTerms, out: &mut Vec<u8>) {
    let outcome = match terms.outcome {
        None => b'-',
        Some((true, _)) => b'd',
        Some((false, _)) => b'f',
    };
    let ending = if terms.ending == Ending::Keep { b'k' } else { b't' };
    let (kind, unique) = match &terms.unique {
        WrittenUnique::None => (b'-', Cow::default()),
        WrittenUnique::Name(name) => (b'n', Cow::from(*name)),
        WrittenUnique::Kept(name) => (b'n', name.text()),
        WrittenUnique::Body => (b'b', Cow::default()),
        WrittenUnique::Id(id) => (b'i', Cow::from(id.as_slice())),
    };
    let reducer = terms.reducer.unwrap_or_default();
    out.extend_from_slice(&[ending, kind, outcome, terms.max_attempts, terms.max_fails, terms.fails]);
    for number in [terms.ttl.nanos(), terms.expires.nanos(), terms.start.nanos(), terms.order] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&terms.outcome.map_or(0, |(_, at)| at).to_le_bytes());
    out.extend_from_slice(&(unique.len() as u16).to_le_bytes());
    out.extend_from_slice(&(reducer.len() as u16).to_le_bytes());
    out.extend_from_slice(&unique);
    out.extend_from_slice(reducer);
}

/// Reads terms from the beginning of these bytes, and what is behind them: the body, of which the last `tail` bytes are not
/// there. None if they are none.
pub fn decode(bytes: &[u8], tail: usize) -> Option<(WrittenTerms<'_>, &[u8])> {
    let (fixed, rest) = bytes.split_at_checked(FIXED)?;
    let number = |at: usize| fixed[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let short = |at: usize| fixed[at..at + 2].try_into().map(u16::from_le_bytes).ok();
    let at = u32::from_le_bytes(fixed[38..42].try_into().ok()?);
    let (unique, rest) = rest.split_at_checked(short(42)?.into())?;
    let (reducer, body) = rest.split_at_checked(short(44)?.into())?;
    let terms = WrittenTerms {
        ending: match fixed[0] {
            b't' => Ending::Tell,
            b'k' => Ending::Keep,
            _ => return None,
        },
        unique: match fixed[1] {
            b'-' if unique.is_empty() => WrittenUnique::None,
            b'b' if unique.is_empty() => WrittenUnique::Body,
            b'n' => WrittenUnique::Name(unique),
            b'i' => WrittenUnique::Id(unique.try_into().ok()?),
            _ => return None,
        },
        outcome: match fixed[2] {
            b'-' if at == 0 => None,
            letter @ (b'd' | b'f') if at as usize <= body.len() + tail => Some((letter == b'd', at)),
            _ => return None,
        },
        max_attempts: fixed[3],
        max_fails: fixed[4],
        fails: fixed[5],
        ttl: Span::from_nanos(number(6)?),
        expires: Time::from_nanos(number(14)?),
        start: Time::from_nanos(number(22)?),
        order: number(30)?,
        reducer: (!reducer.is_empty()).then_some(reducer),
    };
    Some((terms, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Terms of every kind.
    fn samples() -> Vec<WrittenTerms<'static>> {
        let plain = WrittenTerms {
            ending: Ending::Tell,
            unique: WrittenUnique::None,
            ttl: Span::MAX,
            expires: Time::NEVER,
            start: Time::NEVER,
            order: 0,
            max_attempts: 0,
            max_fails: 0,
            fails: 0,
            outcome: None,
            reducer: None,
        };
        vec![
            plain,
            WrittenTerms { unique: WrittenUnique::Name(b"only one"), reducer: Some(b"sum"), ..plain },
            WrittenTerms { unique: WrittenUnique::Body, ..plain },
            WrittenTerms {
                ending: Ending::Keep,
                unique: WrittenUnique::Id([7; 16]),
                ttl: Span::from_secs(5),
                expires: Time::from_nanos(9),
                start: Time::from_nanos(4),
                order: 1 << 63 | 8,
                max_attempts: 3,
                max_fails: 2,
                fails: 1,
                outcome: Some((true, 4)),
                ..plain
            },
        ]
    }

    #[test]
    fn terms_read_back_and_take_no_more_than_is_counted() {
        for terms in samples() {
            let mut bytes = Vec::new();
            encode(&terms, &mut bytes);
            let name = if let WrittenUnique::Name(name) = terms.unique { name.len() } else { 0 };
            assert!(bytes.len() <= EXTRA + name + terms.reducer.map_or(0, <[u8]>::len));
            let end = bytes.len();
            bytes.extend_from_slice(b"body");
            assert_eq!(decode(&bytes, 0), Some((terms, b"body".as_slice())));
            assert!((0..end).all(|length| decode(&bytes[..length], 0).is_none()), "{terms:?}");
        }
    }

    #[test]
    fn a_result_begins_within_the_body() {
        let mut bytes = Vec::new();
        encode(&samples()[3], &mut bytes);
        bytes.extend_from_slice(b"bod");
        assert_eq!(decode(&bytes, 0), None);
    }
}
