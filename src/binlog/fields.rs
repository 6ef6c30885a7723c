//! Encoding and decoding of the fields of records, and of job options. Must not depend on record types or trust the
//! input. beanpole-binlog(5) describes the formats.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::borrow::Cow;

use crate::engine::{
    CompletionPolicy, Recurrence, RunCount, Span, State, StoredKey, StoredOptions, StoredSchedule, StoredTie,
    StoredTies, Time, MAX_TIES, OPTIONS_SIZE,
};

/// The maximum size of a variable-length 64-bit number, in bytes.
pub const LONG: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LogLocation {
    pub segment: u64,
    pub at: u64,
}

pub struct Fields<'a>(pub &'a [u8]);

pub trait Field<'a>: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(fields: &mut Fields<'a>) -> Option<Self>;
}

pub struct JobState<'a>(pub State, pub Option<&'a [u8]>);

pub struct Rest<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn read<F: Field<'a>>(&mut self) -> Option<F> {
        F::read(self)
    }

    pub fn variable(&mut self) -> Option<u64> {
        let mut number = 0;
        for (index, &byte) in self.0.iter().enumerate().take(LONG) {
            let bits = u64::from(byte & 0x7f);
            number |= bits << (7 * index);
            if byte < 0x80 {
                self.0 = self.0.get(index + 1..).unwrap_or_default();
                // The first nine bytes contribute 63 bits, so the tenth byte contributes only one bit.
                return (index < LONG - 1 || bits < 2).then_some(number);
            }
        }
        None
    }

    pub fn short(&mut self) -> Option<u32> {
        self.variable()?.try_into().ok()
    }
}

/// Encodes seven bits per byte, least significant bits first. All bytes but the last have the top bit set.
pub fn variable(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Field<'_> for $number {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn read(fields: &mut Fields) -> Option<$number> {
                Some(<$number>::from_le_bytes(fields.take(size_of::<$number>())?.try_into().ok()?))
            }
        }
    )+};
}

numbers!(u8 u16 u32 u64);

macro_rules! stored_as {
    ($($kind:ty: |$value:ident| $to:expr, $from:expr;)+) => {$(
        impl Field<'_> for $kind {
            fn write(&self, out: &mut Vec<u8>) {
                let $value = self;
                $to.write(out);
            }

            fn read(fields: &mut Fields) -> Option<$kind> {
                fields.read().map($from)
            }
        }
    )+};
}

stored_as! {
    Time: |time| time.nanos(), Time::from_nanos;
    Span: |span| span.nanos(), Span::from_nanos;
    LogLocation: |location| (location.segment, location.at), |(segment, at)| LogLocation { segment, at };
}

macro_rules! tuples {
    ($(($($name:ident)+))+) => {$(
        #[allow(non_snake_case)]
        impl<'a, $($name: Field<'a>),+> Field<'a> for ($($name,)+) {
            fn write(&self, out: &mut Vec<u8>) {
                let ($($name,)+) = self;
                $($name.write(out);)+
            }

            fn read(fields: &mut Fields<'a>) -> Option<Self> {
                Some(($($name::read(fields)?,)+))
            }
        }
    )+};
}

tuples!((A B) (A B C) (A B C D) (A B C D E) (A B C D E F));

/// An optional field must be the last field of a payload.
impl<'a, F: Field<'a>> Field<'a> for Option<F> {
    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|field| field.write(out));
    }

    fn read(fields: &mut Fields<'a>) -> Option<Option<F>> {
        Some(fields.read())
    }
}

/// A byte string is encoded as its 16-bit length, followed by its bytes.
impl<'a> Field<'a> for &'a [u8] {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u16).write(out);
        out.extend_from_slice(self);
    }

    fn read(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
        let length: u16 = fields.read()?;
        fields.take(length.into())
    }
}

impl<'a> Field<'a> for Rest<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }

    fn read(fields: &mut Fields<'a>) -> Option<Rest<'a>> {
        Some(Rest(std::mem::take(&mut fields.0)))
    }
}

/// The byte of each state. The index of a state is its bit number in a mask. A dead letter is encoded as [`DEAD`].
pub const STATES: [(u8, State); 7] = [
    (b'r', State::Ready),
    (b'd', State::Delayed),
    (b'l', State::Reserved),
    (b'b', State::Buried),
    (b'f', State::Finished),
    (b'h', State::Held),
    (b's', State::Scheduled),
];
const DEAD: u8 = b'x';

impl<'a> Field<'a> for JobState<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        match self.1 {
            Some(origin) => (DEAD, origin).write(out),
            None => out.extend(STATES.iter().find(|(_, state)| *state == self.0).map(|(letter, _)| letter)),
        }
    }

    fn read(fields: &mut Fields<'a>) -> Option<JobState<'a>> {
        match fields.read()? {
            DEAD => Some(JobState(State::Buried, Some(fields.read()?))),
            letter => STATES.iter().find(|(other, _)| *other == letter).map(|(_, state)| JobState(*state, None)),
        }
    }
}

const FIXED: usize = 48;
/// The size in bytes of the fields that only jobs with [`CompletionPolicy::Drop`] have.
const OWN: usize = 16;

// `OPTIONS_SIZE` must suffice for the fixed fields and, in addition, either `OWN` bytes or a dedup key of 16 bytes.
const _: () = assert!(FIXED + 16 <= OPTIONS_SIZE && FIXED + OWN <= OPTIONS_SIZE, "the engine must count enough bytes");

pub fn encode_options(options: &StoredOptions, fails: u8, out: &mut Vec<u8>) {
    let outcome = options.outcome.map_or(b'-', |(done, _)| if done { b'd' } else { b'f' });
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
    let mut schedule = Vec::new();
    if let Some(StoredSchedule { when, due, count: RunCount { runs, skipped } }) = options.schedule {
        (due, runs, skipped, Rest(when)).write(&mut schedule);
    }
    // Schedules have no reducer, so the field of the reducer contains the schedule.
    let reducer = if schedule.is_empty() { options.reducer.unwrap_or_default() } else { &schedule };
    let mut ties = Vec::new();
    if options.completion == CompletionPolicy::Drop {
        for StoredTie { name, need, .. } in options.ties.iter() {
            match need {
                None => b'm'.write(&mut ties),
                Some(need) => (b'a', need).write(&mut ties),
            }
            (name.len() as u8, Rest(&name)).write(&mut ties);
        }
    }
    (completion, kind, outcome, options.max_attempts, options.max_fails, fails).write(out);
    (options.ttl, options.expires, options.start, options.order).write(out);
    let [key_size, reducer_size, reason_size] = [&*dedup_key, reducer, options.reason].map(|text| text.len() as u16);
    (options.outcome.map_or(0, |(_, at)| at), key_size, reducer_size, reason_size).write(out);
    if options.completion == CompletionPolicy::Drop {
        (options.keep, options.backoff, options.concurrency.1, (bound.len() as u16, ties.len() as u16)).write(out);
    }
    for part in [&*dedup_key, reducer, &*bound, options.reason, &*ties] {
        out.extend_from_slice(part);
    }
}

/// An entry has a role letter, the number of members that must end (only for a wait), a name length, and a group name.
fn read_tie(bytes: &[u8]) -> Option<(StoredTie<'_>, &[u8])> {
    let mut fields = Fields(bytes);
    let need = match fields.read()? {
        b'm' => None,
        b'a' => Some(fields.read()?),
        _ => return None,
    };
    let length: u8 = fields.read()?;
    let name = fields.take(length.into()).filter(|name| !name.is_empty())?;
    Some((StoredTie { name: name.into(), need, left: need.unwrap_or(0) }, fields.0))
}

fn read_ties(bytes: &[u8]) -> Option<StoredTies<'_>> {
    if bytes.is_empty() {
        return Some(StoredTies::None);
    }
    let (mut rest, mut count) = (bytes, 0);
    while !rest.is_empty() {
        (_, rest) = read_tie(rest)?;
        count += 1;
    }
    (count <= MAX_TIES).then_some(StoredTies::Read(bytes, read_tie))
}

/// Returns the options, the number of failed tries, and the body without its last `tail` bytes.
pub fn decode_options(bytes: &[u8], tail: usize) -> Option<(StoredOptions<'_>, u8, &[u8])> {
    let mut fields = Fields(bytes);
    let (completion, kind, outcome, max_attempts, max_fails, fails) = fields.read()?;
    let (ttl, expires, start, order) = fields.read()?;
    let (at, key_length, reducer_length, reason_length): (u32, u16, u16, u16) = fields.read()?;
    let own = if matches!(completion, b'd' | b's') { fields.read()? } else { Default::default() };
    let (keep, backoff, limit, (bound_length, ties_length)): (u32, u32, u32, (u16, u16)) = own;
    let dedup_key = fields.take(key_length.into())?;
    let reducer = fields.take(reducer_length.into())?;
    let bound = fields.take(bound_length.into())?;
    let reason = fields.take(reason_length.into())?;
    let ties = fields.take(ties_length.into())?;
    let body = fields.0;
    let (schedule, reducer) = match (completion, kind) {
        (b's', b'n') => {
            let (due, runs, skipped, Rest(when)) = Fields(reducer).read()?;
            Recurrence::parse(when)?;
            (Some(StoredSchedule { when, due, count: RunCount { runs, skipped } }), &[][..])
        }
        (b's', _) => return None,
        _ => (None, reducer),
    };
    let options = StoredOptions {
        schedule,
        completion: match completion {
            b't' => CompletionPolicy::Tell,
            b'k' => CompletionPolicy::Keep,
            b'd' | b's' => CompletionPolicy::Drop,
            _ => return None,
        },
        dedup_key: match kind {
            b'-' if dedup_key.is_empty() => StoredKey::None,
            b'b' if dedup_key.is_empty() => StoredKey::Body,
            b'n' => StoredKey::Name(dedup_key),
            b'i' => StoredKey::Id(dedup_key.try_into().ok()?),
            _ => return None,
        },
        outcome: match outcome {
            b'-' if at == 0 => None,
            letter @ (b'd' | b'f') if at as usize <= body.len() + tail => Some((letter == b'd', at)),
            _ => return None,
        },
        max_attempts,
        max_fails,
        ttl,
        expires,
        start,
        order,
        reducer: (!reducer.is_empty()).then_some(reducer),
        keep,
        backoff,
        concurrency: (if bound.is_empty() { StoredKey::None } else { StoredKey::Name(bound) }, limit),
        reason,
        ties: read_ties(ties)?,
    };
    Some((options, fails, body))
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
            encode_options(&options, 7, &mut bytes);
            let name =
                options.reason.len() + if let StoredKey::Name(name) = options.dedup_key { name.len() } else { 0 };
            let name = name + if let StoredKey::Name(bound) = options.concurrency.0 { bound.len() } else { 0 };
            let name = name + options.schedule.map_or(0, |schedule| 16 + schedule.when.len());
            let name = name + options.ties.iter().map(|tie| 6 + tie.name.len()).sum::<usize>();
            assert!(bytes.len() <= OPTIONS_SIZE + name + options.reducer.map_or(0, <[u8]>::len));
            let end = bytes.len();
            bytes.extend_from_slice(b"body");
            assert_eq!(decode_options(&bytes, 0), Some((options, 7, b"body".as_slice())));
            assert!((0..end).all(|length| decode_options(&bytes[..length], 0).is_none()), "{options:?}");
        }
    }

    #[test]
    fn a_result_begins_within_the_body() {
        let mut bytes = Vec::new();
        encode_options(&samples()[4], 1, &mut bytes);
        bytes.extend_from_slice(b"bod");
        assert_eq!(decode_options(&bytes, 0), None);
    }
    #[test]
    fn a_result_needs_an_outcome() {
        let mut bytes = Vec::new();
        encode_options(&samples()[4], 1, &mut bytes);
        bytes.extend_from_slice(b"body");
        let letter = bytes.iter().position(|&byte| byte == b'd').expect("done");
        assert!(decode_options(&bytes, 0).is_some());
        bytes[letter] = b'-';
        assert_eq!(decode_options(&bytes, 0), None);
    }
}
