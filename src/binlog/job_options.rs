//! The options of a job in a record, to and from bytes: pure.
//!
//! Owns their format, which beanpole-binlog(5) describes. Must not know other records, and never trusts what it reads.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::borrow::Cow;

use crate::engine::{
    CompletionPolicy, Recurrence, RunCount, Span, StoredKey, StoredOptions, StoredSchedule, StoredTie, StoredTies,
    Time, MOST_TIES, OPTIONS_SIZE,
};

/// Bytes of options without names.
const FIXED: usize = 48;

/// Bytes of what only a job has that is dropped when it is done.
const OWN: usize = 16;

// A number that no other job may have takes 16 bytes.
const _: () = assert!(FIXED + 16 <= OPTIONS_SIZE && FIXED + OWN <= OPTIONS_SIZE, "the engine counts enough");

/// Of a job with this number of failed tries.
pub fn encode(options: &StoredOptions, fails: u8, out: &mut Vec<u8>) {
    let outcome = match options.outcome {
        None => b'-',
        Some((true, _)) => b'd',
        Some((false, _)) => b'f',
    };
    let completion = match options.completion {
        CompletionPolicy::Keep => b'k',
        CompletionPolicy::Tell => b't',
        CompletionPolicy::Drop if options.schedule.is_some() => b's',
        CompletionPolicy::Drop => b'd',
    };
    let (kind, dedup_key) = match &options.dedup_key {
        StoredKey::None => (b'-', Cow::default()),
        StoredKey::Name(name) => (b'n', Cow::from(*name)),
        StoredKey::Kept(name) => (b'n', name.text()),
        StoredKey::Body => (b'b', Cow::default()),
        StoredKey::Id(id) => (b'i', Cow::from(id.as_slice())),
    };
    let bound = match &options.concurrency.0 {
        StoredKey::Name(name) => Cow::from(*name),
        StoredKey::Kept(name) => name.text(),
        StoredKey::None | StoredKey::Body | StoredKey::Id(_) => Cow::default(),
    };
    // Schedules have no reducer.
    let reducer = match &options.schedule {
        Some(schedule) => push_schedule(schedule),
        None => Cow::from(options.reducer.unwrap_or_default()),
    };
    let mut ties_at = 0;
    out.extend_from_slice(&[completion, kind, outcome, options.max_attempts, options.max_fails, fails]);
    for number in [options.ttl.nanos(), options.expires.nanos(), options.start.nanos(), options.order] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&options.outcome.map_or(0, |(_, at)| at).to_le_bytes());
    out.extend_from_slice(&(dedup_key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(reducer.len() as u16).to_le_bytes());
    out.extend_from_slice(&(options.reason.len() as u16).to_le_bytes());
    if options.completion == CompletionPolicy::Drop {
        out.extend_from_slice(&options.keep.to_le_bytes());
        out.extend_from_slice(&options.backoff.to_le_bytes());
        out.extend_from_slice(&options.concurrency.1.to_le_bytes());
        out.extend_from_slice(&(bound.len() as u16).to_le_bytes());
        ties_at = out.len();
        out.extend_from_slice(&[0; 2]);
    }
    out.extend_from_slice(&dedup_key);
    out.extend_from_slice(&reducer);
    out.extend_from_slice(&bound);
    out.extend_from_slice(options.reason);
    if options.completion == CompletionPolicy::Drop {
        let start = out.len();
        options.ties.iter().for_each(|tie| push_tie(&tie, out));
        let length = (out.len() - start) as u16;
        if let Some(place) = out.get_mut(ties_at..ties_at + 2) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// When a schedule is due, what it has counted, and when it recurs.
fn push_schedule(schedule: &StoredSchedule) -> Cow<'static, [u8]> {
    let StoredSchedule { when, due, count: RunCount { runs, skipped } } = *schedule;
    [&due.nanos().to_le_bytes(), &runs.to_le_bytes()[..], &skipped.to_le_bytes(), when].concat().into()
}

fn read_schedule(bytes: &[u8]) -> Option<StoredSchedule<'_>> {
    let (due, rest) = bytes.split_first_chunk()?;
    let (runs, rest) = rest.split_first_chunk()?;
    let (skipped, when) = rest.split_first_chunk()?;
    let count = RunCount { runs: u32::from_le_bytes(*runs), skipped: u32::from_le_bytes(*skipped) };
    Recurrence::parse(when)?;
    Some(StoredSchedule { when, due: Time::from_nanos(u64::from_le_bytes(*due)), count })
}

/// A group: a letter, the number of members that must end if the job waits, and the name behind its length.
fn push_tie(tie: &StoredTie, out: &mut Vec<u8>) {
    match tie.need {
        None => out.push(b'm'),
        Some(need) => {
            out.push(b'a');
            out.extend_from_slice(&need.to_le_bytes());
        }
    }
    out.push(tie.name.len() as u8);
    out.extend_from_slice(&tie.name);
}

/// Reads a group from the beginning of these bytes.
fn read_tie(bytes: &[u8]) -> Option<(StoredTie<'_>, &[u8])> {
    let (need, rest) = match bytes.split_first()? {
        (b'm', rest) => (None, rest),
        (b'a', rest) => {
            let (need, rest) = rest.split_first_chunk()?;
            (Some(u32::from_le_bytes(*need)), rest)
        }
        _ => return None,
    };
    let (length, rest) = rest.split_first()?;
    let (name, rest) = rest.split_at_checked((*length).into()).filter(|(name, _)| !name.is_empty())?;
    Some((StoredTie { name: name.into(), need, left: need.unwrap_or(0) }, rest))
}

/// The groups in these bytes, which must be no more than a job may have.
fn read_ties(bytes: &[u8]) -> Option<StoredTies<'_>> {
    if bytes.is_empty() {
        return Some(StoredTies::None);
    }
    let (mut rest, mut count) = (bytes, 0);
    while !rest.is_empty() {
        (_, rest) = read_tie(rest)?;
        count += 1;
    }
    (count <= MOST_TIES).then_some(StoredTies::Read(bytes, read_tie))
}

/// Reads options from the beginning of these bytes, the number of failed tries, and what is behind them: the body, of
/// which the last `tail` bytes are not there. None if they are none.
pub fn decode(bytes: &[u8], tail: usize) -> Option<(StoredOptions<'_>, u8, &[u8])> {
    let (fixed, rest) = bytes.split_first_chunk::<FIXED>()?;
    let number = |at: usize| fixed.get(at..at + 8)?.try_into().map(u64::from_le_bytes).ok();
    let short = |at: usize| fixed.get(at..at + 2)?.try_into().map(u16::from_le_bytes).ok();
    let at = u32::from_le_bytes(fixed.get(38..42)?.try_into().ok()?);
    let own = if matches!(fixed[0], b'd' | b's') { OWN } else { 0 };
    let (own_bytes, rest) = rest.split_at_checked(own)?;
    let own = |at: usize| own_bytes.get(at..at + 4).and_then(|it| it.try_into().ok()).map_or(0, u32::from_le_bytes);
    let (dedup_key, rest) = rest.split_at_checked(short(42)?.into())?;
    let (reducer, rest) = rest.split_at_checked(short(44)?.into())?;
    let bound = own_bytes.get(12..14).and_then(|it| it.try_into().ok()).map_or(0, u16::from_le_bytes);
    let (bound, rest) = rest.split_at_checked(bound.into())?;
    let (reason, rest) = rest.split_at_checked(short(46)?.into())?;
    let ties = own_bytes.get(14..).and_then(|it| it.try_into().ok()).map_or(0, u16::from_le_bytes);
    let (ties, body) = rest.split_at_checked(ties.into())?;
    let (schedule, reducer) = match *fixed {
        [b's', b'n', ..] => (Some(read_schedule(reducer)?), &[][..]),
        [b's', ..] => return None,
        _ => (None, reducer),
    };
    let options = StoredOptions {
        schedule,
        completion: match fixed[0] {
            b't' => CompletionPolicy::Tell,
            b'k' => CompletionPolicy::Keep,
            b'd' | b's' => CompletionPolicy::Drop,
            _ => return None,
        },
        dedup_key: match fixed[1] {
            b'-' if dedup_key.is_empty() => StoredKey::None,
            b'b' if dedup_key.is_empty() => StoredKey::Body,
            b'n' => StoredKey::Name(dedup_key),
            b'i' => StoredKey::Id(dedup_key.try_into().ok()?),
            _ => return None,
        },
        outcome: match fixed[2] {
            b'-' if at == 0 => None,
            letter @ (b'd' | b'f') if at as usize <= body.len() + tail => Some((letter == b'd', at)),
            _ => return None,
        },
        max_attempts: fixed[3],
        max_fails: fixed[4],
        ttl: Span::from_nanos(number(6)?),
        expires: Time::from_nanos(number(14)?),
        start: Time::from_nanos(number(22)?),
        order: number(30)?,
        reducer: (!reducer.is_empty()).then_some(reducer),
        keep: own(0),
        backoff: own(4),
        concurrency: (if bound.is_empty() { StoredKey::None } else { StoredKey::Name(bound) }, own(8)),
        reason,
        ties: read_ties(ties)?,
    };
    Some((options, fixed[5], body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<StoredOptions<'static>> {
        let plain = StoredOptions {
            schedule: None,
            completion: CompletionPolicy::Tell,
            dedup_key: StoredKey::None,
            ttl: Span::MAX,
            expires: Time::NEVER,
            start: Time::NEVER,
            order: 0,
            max_attempts: 0,
            max_fails: 0,
            outcome: None,
            reducer: None,
            keep: 0,
            backoff: 0,
            concurrency: (StoredKey::None, 0),
            reason: b"",
            ties: StoredTies::None,
        };
        vec![
            plain,
            StoredOptions { dedup_key: StoredKey::Name(b"only one"), reducer: Some(b"sum"), ..plain },
            StoredOptions { dedup_key: StoredKey::Body, ..plain },
            StoredOptions {
                completion: CompletionPolicy::Drop,
                dedup_key: StoredKey::Name(b"a key"),
                max_attempts: 3,
                keep: 60,
                backoff: 7,
                concurrency: (StoredKey::Name(b"bound"), 2),
                reason: b"timed out",
                ties: StoredTies::Read(b"m\x05batcha\x03\0\0\0\x05other", read_tie),
                ..plain
            },
            StoredOptions {
                completion: CompletionPolicy::Keep,
                dedup_key: StoredKey::Id([7; 16]),
                ttl: Span::from_secs(5),
                expires: Time::from_nanos(9),
                start: Time::from_nanos(4),
                order: 1 << 63 | 8,
                max_attempts: 3,
                max_fails: 2,
                outcome: Some((true, 4)),
                ..plain
            },
            StoredOptions {
                schedule: Some(StoredSchedule {
                    when: b"*/5 * * * *",
                    due: Time::from_nanos(77),
                    count: RunCount { runs: 3, skipped: 1 },
                }),
                completion: CompletionPolicy::Drop,
                dedup_key: StoredKey::Name(b"nightly"),
                ttl: Span::from_secs(5),
                ..plain
            },
        ]
    }

    #[test]
    fn options_read_back_and_take_no_more_than_is_counted() {
        for options in samples() {
            let mut bytes = Vec::new();
            encode(&options, 7, &mut bytes);
            let name =
                options.reason.len() + if let StoredKey::Name(name) = options.dedup_key { name.len() } else { 0 };
            let name = name + if let StoredKey::Name(bound) = options.concurrency.0 { bound.len() } else { 0 };
            let name = name + options.schedule.map_or(0, |schedule| 16 + schedule.when.len());
            let name = name + options.ties.iter().map(|tie| 6 + tie.name.len()).sum::<usize>();
            assert!(bytes.len() <= OPTIONS_SIZE + name + options.reducer.map_or(0, <[u8]>::len));
            let end = bytes.len();
            bytes.extend_from_slice(b"body");
            assert_eq!(decode(&bytes, 0), Some((options, 7, b"body".as_slice())));
            assert!((0..end).all(|length| decode(&bytes[..length], 0).is_none()), "{options:?}");
        }
    }

    #[test]
    fn a_result_begins_within_the_body() {
        let mut bytes = Vec::new();
        encode(&samples()[4], 1, &mut bytes);
        bytes.extend_from_slice(b"bod");
        assert_eq!(decode(&bytes, 0), None);
    }
    #[test]
    fn a_result_needs_an_outcome() {
        let mut bytes = Vec::new();
        encode(&samples()[4], 1, &mut bytes);
        bytes.extend_from_slice(b"body");
        let letter = bytes.iter().position(|&byte| byte == b'd').expect("done");
        assert!(decode(&bytes, 0).is_some());
        bytes[letter] = b'-';
        assert_eq!(decode(&bytes, 0), None);
    }
}
