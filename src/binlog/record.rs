//! Encoding of records. The decoding is in `decode.rs`. beanpole-binlog(5) describes the format byte by byte, and must
//! be changed together with this file.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::fields::{encode_options, variable, Field, JobState, Rest, LONG, STATES};
use super::segment::{LogLocation, RecordKey};
use crate::engine::{
    GroupCount, History, JobId, LoggedGroup, RunCount, Span, State, StoredChange, StoredJob, Time, TubeSettings,
};

/// Bytes before a short payload: payload length, checksum, and kind.
pub const PREFIX: usize = 9;
/// A longer payload has its own checksum, so that the beginning of the record can be checked without the payload.
pub const SHORT_PAYLOAD: usize = 64;
pub const LONG_PREFIX: usize = PREFIX + 4;
const SHORT: usize = 5;
/// The maximum size of a put record in bytes, without the tube name, options and body.
pub const PUT: usize = LONG_PREFIX + 8 + 3 * LONG + SHORT + 3;
pub const SNAPSHOT: usize = PUT + 10 + 5 * SHORT;
pub const DELETE: usize = PREFIX + 8;
pub const OUTCOME: usize = LONG_PREFIX + 10;
pub const CHANGE: usize = LONG_PREFIX + 32;
pub(super) const SETTINGS: usize = 12 + 1 + 5 * 4 + 2;
pub const START: usize = PREFIX + 40;
pub const SYNCED: usize = PREFIX + 16;
pub const CLOSED: usize = PREFIX + 16;
/// Bytes of a record with one number, such as [`Record::Next`].
pub const MARK: usize = PREFIX + 8;

pub fn ended_size(groups: usize, names: usize) -> usize {
    LONG_PREFIX + 8 + groups * (3 * LONG + 1) + names
}

/// Sufficient for the largest body and result with the longest names.
pub const MAX_PAYLOAD: usize = (2 << 30) + (1 << 18);

macro_rules! sizes {
    ($($name:ident: $fixed:expr;)+) => {$(
        pub fn $name(texts: usize) -> u64 {
            ($fixed + texts) as u64
        }
    )+};
}

// The maximum sizes of records in bytes. `texts` is the total length of the strings, including options and body.
sizes! {
    settings_size: LONG_PREFIX + SETTINGS;
    key_size: LONG_PREFIX + 18;
    operation_size: LONG_PREFIX + 15;
    group_size: LONG_PREFIX + 8 + 3 * LONG + 1;
    full_size: SNAPSHOT;
    pause_size: LONG_PREFIX + 16;
}

/// Records contain new values instead of differences, because after a failed sync, records are written twice.
///
/// A put job's state follows from its delay and options. `Run` contains a schedule's ID and new state, and the copy
/// that the schedule puts. The result of an outcome is the end of the job's body; `done` is `None` before a retry. A
/// moved job that is not delayed or buried is recorded as ready. Default settings remove the tube's settings. A pause
/// of length zero ends a pause. `Gone` contains the oldest needed segment. `Groups` deletes member `id` unless it is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    Put(StoredJob<'a>),
    Run(JobId, StoredChange, StoredJob<'a>),
    Snapshot(StoredJob<'a>),
    Change(JobId, StoredChange),
    Outcome { id: u64, done: Option<bool>, fails: u8, result: &'a [u8] },
    Move { id: u64, pri: u32, delay: Span, due: Time, state: State, dead_from: Option<&'a [u8]>, tube: &'a [u8] },
    Settings { tube: &'a [u8], settings: TubeSettings<&'a [u8]> },
    Reason { id: u64, reason: &'a [u8] },
    Key { id: u64, until: Time, tube: &'a [u8], key: &'a [u8] },
    Delete(u64),
    Pause { tube: &'a [u8], length: Span, until: Time },
    Next(u64),
    Closed { last_id: u64, time: Option<Time> },
    Ids(u64),
    Synced(LogLocation),
    Gone(u64),
    Start(Start),
    Groups { id: u64, groups: GroupCounts<'a> },
    Opened { number: u32, from: &'a [u8], to: &'a [u8], states: u8, bound: u64 },
    Done(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCounts<'a> {
    Known(&'a [LoggedGroup]),
    /// Each group is encoded as three variable-length numbers, the length of its name, and the name.
    Read(&'a [u8]),
}

pub fn state_bits(states: &[State]) -> u8 {
    let bits = STATES.iter().enumerate().filter(|(_, (_, state))| states.contains(state));
    bits.fold(0, |bits, (bit, _)| bits | 1 << bit)
}

pub fn states_of(bits: u8) -> Box<[State]> {
    STATES.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, (_, state))| *state).collect()
}

/// The first record of a process that continues an existing segment. A new segment contains these fields in its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    pub synced: LogLocation,
    pub ids: u64,
    pub epoch: u64,
    pub oldest: u64,
}

pub fn encode(record: &Record, key: RecordKey, at: u64, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let length = encode_head(record, 0, out);
    if let Some(written) = out.get_mut(start..) {
        seal(key, at, written, &[]);
    }
    length
}

/// Appends a record without its last `tail` bytes. Returns the size without the tail. [`seal`] must be called later.
#[expect(clippy::indexing_slicing, reason = "the prefix has just been written")]
pub fn encode_head(record: &Record, tail: usize, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; LONG_PREFIX]);
    let kind = payload(record, out);
    let length = out.len() - start - LONG_PREFIX + tail;
    if length <= SHORT_PAYLOAD {
        out.drain(start + PREFIX..start + LONG_PREFIX);
    }
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 8] = kind;
    out.len() - start
}

/// Sets the checksums of a record for offset `at` of a segment.
// `head` begins with a complete prefix.
#[allow(clippy::expect_used)]
#[expect(clippy::indexing_slicing, reason = "as above")]
pub fn seal(key: RecordKey, at: u64, head: &mut [u8], tail: &[u8]) {
    let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
    if length > SHORT_PAYLOAD {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head[LONG_PREFIX..]);
        hasher.update(tail);
        head[PREFIX..LONG_PREFIX].copy_from_slice(&hasher.finalize().to_le_bytes());
    }
    let end = head_length(length);
    let check = check(key, at, &head[..end]);
    head[4..8].copy_from_slice(&check.to_le_bytes());
}

/// Returns the size of the part that the first checksum covers. This part contains the checksum of a long payload.
pub(super) fn head_length(payload: usize) -> usize {
    if payload <= SHORT_PAYLOAD {
        PREFIX + payload
    } else {
        LONG_PREFIX
    }
}

/// The checksum depends on the record's offset, so a copy of a record inside a job's body is never valid.
#[expect(clippy::indexing_slicing, reason = "a head that is written or read has its prefix of twelve bytes")]
pub(super) fn check(key: RecordKey, at: u64, head: &[u8]) -> u32 {
    let mut hasher = key.hasher();
    hasher.update(&at.to_le_bytes());
    hasher.update(&head[..4]);
    hasher.update(&head[8..]);
    hasher.finalize()
}

fn payload(record: &Record, out: &mut Vec<u8>) -> u8 {
    match *record {
        Record::Put(ref job) => {
            job_fields(job, out);
            options_and_body(job, b'P', out)
        }
        Record::Run(id, ref change, ref job) => {
            change_fields(id, change, out);
            job_fields(job, out);
            options_and_body(job, b'C', out)
        }
        Record::Snapshot(ref job) => {
            job_fields(job, out);
            (JobState(job.state, job.dead_from), job.due).write(out);
            let History { reserves, timeouts, releases, buries, kicks } = job.history;
            let counts = [reserves, timeouts, releases, buries, kicks];
            counts.iter().for_each(|&count| variable(count.into(), out));
            out.push(job.fails);
            options_and_body(job, b'J', out)
        }
        Record::Change(id, ref change) => change_fields(id, change, out),
        Record::Outcome { id, done, fails, result } => {
            let letter = done.map_or(b'-', |done| if done { b'd' } else { b'f' });
            push(b'O', (id, letter, fails, Rest(result)), out)
        }
        Record::Synced(location) => push(b'S', location, out),
        Record::Start(Start { synced, ids, epoch, oldest }) => push(b'H', (synced, ids, epoch, oldest), out),
        Record::Delete(id) => push(b'D', id, out),
        Record::Next(segment) => push(b'N', segment, out),
        Record::Closed { last_id, time } => push(b'C', (last_id, time), out),
        Record::Ids(last) => push(b'I', last, out),
        Record::Gone(oldest) => push(b'G', oldest, out),
        Record::Done(number) => push(b'Y', number, out),
        Record::Pause { tube, length, until } => push(b'Z', (length, until, Rest(tube)), out),
        Record::Move { id, pri, delay, due, state, dead_from, tube } => {
            push(b'M', (id, pri, delay, due, JobState(state, dead_from), Rest(tube)), out)
        }
        Record::Settings { tube, ref settings } => {
            let (count, seconds) = settings.rate.map_or((0, 0), |rate| (rate.count, rate.seconds));
            let TubeSettings { max_jobs: [high, normal, low], backoff, ttl, max, .. } = *settings;
            [high, normal, low, backoff, ttl, max, count, seconds].iter().for_each(|number| number.write(out));
            push(b'Q', (settings.tries, settings.dead.unwrap_or_default(), Rest(tube)), out)
        }
        Record::Groups { id, ref groups } => {
            id.write(out);
            match groups {
                GroupCounts::Read(bytes) => out.extend_from_slice(bytes),
                GroupCounts::Known(groups) => {
                    for LoggedGroup { name, count: GroupCount { ended, complete_to, created_at }, .. } in *groups {
                        [ended, complete_to, created_at].iter().for_each(|number| variable(**number, out));
                        (name.length() as u8, Rest(&name.text())).write(out);
                    }
                }
            }
            b'V'
        }
        Record::Opened { number, from, to, states, bound } => push(b'F', (number, states, bound, from, Rest(to)), out),
        Record::Reason { id, reason } => push(b'W', (id, Rest(reason)), out),
        Record::Key { id, until, tube, key } => push(b'E', (id, until, tube, Rest(key)), out),
    }
}

fn push<'a>(kind: u8, fields: impl Field<'a>, out: &mut Vec<u8>) -> u8 {
    fields.write(out);
    kind
}

fn options_and_body(job: &StoredJob, mut kind: u8, out: &mut Vec<u8>) -> u8 {
    if let Some(options) = &job.options {
        encode_options(options, job.fails, out);
        kind.make_ascii_lowercase();
    }
    out.extend_from_slice(job.body);
    kind
}

fn change_fields(JobId(id): JobId, change: &StoredChange, out: &mut Vec<u8>) -> u8 {
    match *change {
        StoredChange::Reserve(count) => push(b'R', (id, count), out),
        StoredChange::Expire(count) => push(b'X', (id, count), out),
        StoredChange::Kick(count) => push(b'K', (id, count), out),
        StoredChange::Priority(pri) => push(b'U', (id, pri), out),
        StoredChange::Lease(count, until) => push(b'A', (id, count, until), out),
        StoredChange::Retry { fails, delay, due } => push(b'T', (id, u32::from(fails), delay, due), out),
        StoredChange::Scheduled { due, count: RunCount { runs, skipped } } => push(b's', (id, runs, skipped, due), out),
        StoredChange::Release { pri, delay, due, count, fails } => push(b'L', (id, count, pri, delay, due, fails), out),
        StoredChange::Bury { pri, order, count, fails } => push(b'B', (id, count, pri, order, fails), out),
    }
}

fn job_fields(job: &StoredJob, out: &mut Vec<u8>) {
    out.extend_from_slice(&job.created.nanos().to_le_bytes());
    let numbers = [job.id.0, job.pri.into(), job.delay.nanos(), job.ttr.nanos(), job.tube.len() as u64];
    numbers.iter().for_each(|&number| variable(number, out));
    out.extend_from_slice(job.tube);
}

#[cfg(test)]
mod tests {
    use super::super::decode::RecordHead;
    use super::super::fields::Fields;
    use super::*;
    use crate::engine::{CompletionPolicy, Rate, StoredKey, StoredOptions, StoredTies, ORIGIN_SIZE};

    fn options() -> StoredOptions<'static> {
        StoredOptions {
            schedule: None,
            completion: CompletionPolicy::Keep,
            dedup_key: StoredKey::Id([3; 16]),
            ttl: Span::from_secs(1),
            expires: Time::from_nanos(5),
            start: Time::NEVER,
            order: 0,
            max_attempts: 1,
            max_fails: 2,
            outcome: None,
            reducer: None,
            keep: 0,
            backoff: 0,
            concurrency: (StoredKey::None, 0),
            reason: b"no such host",
            ties: StoredTies::None,
        }
    }

    fn samples() -> Vec<Record<'static>> {
        let job = StoredJob {
            id: JobId(7),
            created: Time::from_nanos(1000),
            pri: 9,
            delay: Span::from_nanos(50),
            ttr: Span::from_secs(60),
            tube: b"emails",
            body: b"hello",
            state: State::Delayed,
            due: Time::from_nanos(1050),
            history: History::default(),
            fails: 0,
            dead_from: None,
            options: None,
        };
        let options = options();
        let bound = StoredJob { options: Some(options), fails: 3, ..job };
        let over = StoredJob {
            state: State::Finished,
            options: Some(StoredOptions { outcome: Some((false, 5)), ..options }),
            ..job
        };
        let history = History { reserves: 1, timeouts: 2, releases: 3, buries: 4, kicks: 5 };
        let retry = StoredChange::Retry { fails: 2, delay: Span::from_secs(3), due: Time::from_nanos(9) };
        let (delay, due) = (Span::from_secs(3), Time::from_nanos(9));
        let mut samples = vec![
            Record::Change(JobId(7), retry),
            Record::Change(JobId(7), StoredChange::Priority(5)),
            Record::Key { id: 7, until: due, tube: b"emails", key: b"only-one" },
            Record::Put(job),
            Record::Snapshot(StoredJob { state: State::Buried, due: Time::from_nanos(3), history, ..job }),
            Record::Put(bound),
            Record::Snapshot(bound),
            Record::Snapshot(over),
            Record::Snapshot(StoredJob { state: State::Reserved, ..job }),
            Record::Change(JobId(1), StoredChange::Lease(2, Time::from_nanos(9))),
            Record::Outcome { id: 1, done: None, fails: 2, result: b"" },
            Record::Outcome { id: 1, done: Some(true), fails: 0, result: b"yes" },
            Record::Change(JobId(1), StoredChange::Reserve(2)),
            Record::Change(JobId(1), StoredChange::Release { pri: 2, delay, due, count: 5, fails: 3 }),
            Record::Change(JobId(1), StoredChange::Bury { pri: 2, order: 3, count: 4, fails: 5 }),
            Record::Change(JobId(1), StoredChange::Kick(2)),
            Record::Change(JobId(1), StoredChange::Expire(2)),
            Record::Delete(1),
            Record::Pause { tube: b"t", length: Span::from_nanos(1), until: Time::from_nanos(2) },
            Record::Next(2),
            Record::Closed { last_id: 3, time: None },
            Record::Closed { last_id: 3, time: Some(Time::from_nanos(4)) },
            Record::Ids(4),
            Record::Synced(LogLocation { segment: 5, at: 6 }),
            Record::Gone(7),
        ];
        samples.extend(samples_of_operations().into_iter().chain(samples_of_failures(job)));
        samples
    }

    fn samples_of_operations() -> [Record<'static>; 5] {
        let start = Start { synced: LogLocation { segment: 1, at: 2 }, ids: 3, epoch: 4, oldest: 5 };
        [
            Record::Opened { number: 3, from: b"emails", to: b"", states: 9, bound: 77 },
            Record::Opened { number: 4, from: b"emails", to: b"other", states: 1, bound: 5 },
            Record::Done(4),
            Record::Start(start),
            Record::Groups { id: 7, groups: GroupCounts::Read(b"\x01\x02\x02\x05batch\x83\x01\x02\x00\x05other") },
        ]
    }

    /// Returns records that concern tubes or failures, and records with long payloads.
    fn samples_of_failures(job: StoredJob<'static>) -> Vec<Record<'static>> {
        let (delay, due, state) = (Span::from_secs(3), Time::from_nanos(9), State::Delayed);
        vec![
            Record::Move { id: 7, pri: 5, delay, due, state, dead_from: None, tube: b"emails" },
            Record::Move { id: 7, pri: 5, delay, due, state: State::Buried, dead_from: Some(b"e"), tube: b"emails" },
            Record::Settings { tube: b"emails", settings: TubeSettings::default() },
            Record::Settings {
                tube: b"emails",
                settings: TubeSettings {
                    max_jobs: [1, 2, u32::MAX],
                    tries: 5,
                    backoff: 10,
                    ttl: 60,
                    dead: Some(b"dead-emails"),
                    max: 3,
                    rate: Some(Rate { count: 7, seconds: 8 }),
                },
            },
            Record::Reason { id: 7, reason: b"no such host" },
            Record::Put(StoredJob { body: &[b'x'; 100], ..job }),
            Record::Outcome { id: 1, done: Some(false), fails: 0, result: &[b'r'; 55] },
            Record::Snapshot(StoredJob { state: State::Buried, fails: 9, dead_from: Some(b"emails"), ..job }),
        ]
    }

    const AT: u64 = 4096;

    fn key() -> RecordKey {
        RecordKey::new(77, 5)
    }

    fn decode(key: RecordKey, at: u64, bytes: &[u8]) -> Option<(Record<'_>, usize)> {
        let head = RecordHead::read(key, at, bytes, bytes.len() as u64)?;
        Some((head.record(&bytes[head.prefix..head.total()])?, head.total()))
    }

    #[test]
    fn every_record_reads_back_and_has_its_size() {
        let prefix = |content: usize| if content > 50 { LONG_PREFIX } else { PREFIX };
        for record in samples() {
            let mut bytes = Vec::new();
            let length = encode(&record, key(), AT, &mut bytes);
            assert_eq!(decode(key(), AT, &bytes), Some((record, length)));
            assert_eq!(
                length,
                match record {
                    Record::Put(StoredJob { options: Some(_), .. })
                    | Record::Snapshot(StoredJob { options: Some(_), .. }) => length,
                    // ID, priority, delay and name length take one byte each, and the TTR takes six.
                    Record::Put(job) => prefix(job.body.len()) + 8 + 10 + job.tube.len() + job.body.len(),
                    Record::Snapshot(job) => {
                        let origin = job.dead_from.map_or(0, |origin| 2 + origin.len());
                        PREFIX + 8 + 10 + 10 + 5 + origin + job.tube.len() + job.body.len()
                    }
                    Record::Outcome { result, .. } => prefix(result.len()) + 10 + result.len(),
                    Record::Delete(_) => DELETE,
                    Record::Closed { time: Some(_), .. } => CLOSED,
                    Record::Synced(_) => SYNCED,
                    Record::Next(_)
                    | Record::Closed { time: None, .. }
                    | Record::Ids(_)
                    | Record::Gone(_)
                    | Record::Done(_) => MARK,
                    Record::Start(_) => START,
                    Record::Opened { from, to, .. } => length.min(operation_size(from.len() + to.len()) as usize),
                    Record::Move { tube, dead_from, .. } => {
                        length.min(CHANGE + tube.len() + dead_from.map_or(0, |origin| ORIGIN_SIZE + origin.len()))
                    }
                    Record::Settings { tube, settings } => {
                        let names = tube.len() + settings.dead.map_or(0, <[u8]>::len);
                        length.min(settings_size(names) as usize)
                    }
                    Record::Groups { .. } => length.min(ended_size(2, 10)),
                    _ => length.min(CHANGE),
                }
            );
        }
    }

    #[test]
    fn the_largest_record_has_its_reserved_size() {
        let history =
            History { reserves: u32::MAX, timeouts: 1 << 28, releases: 1 << 30, buries: u32::MAX, kicks: u32::MAX };
        let (tube, body) = ([b't'; 1 << 14], b"body");
        let job = StoredJob {
            id: JobId(u64::MAX),
            created: Time::NEVER,
            pri: u32::MAX,
            delay: Span::from_nanos(u64::MAX),
            ttr: Span::from_nanos(1 << 63),
            tube: &tube,
            body,
            state: State::Buried,
            due: Time::NEVER,
            history,
            fails: u8::MAX,
            dead_from: None,
            options: None,
        };
        let mut bytes = Vec::new();
        assert_eq!(encode(&Record::Snapshot(job), key(), AT, &mut bytes) as u64, full_size(tube.len() + body.len()));
        assert_eq!(decode(key(), AT, &bytes), Some((Record::Snapshot(job), bytes.len())));
        let put = StoredJob { state: State::Delayed, history: History::default(), fails: 0, ..job };
        assert_eq!(encode(&Record::Put(put), key(), AT, &mut bytes), PUT + tube.len() + body.len());
    }

    #[test]
    fn numbers_of_variable_length_are_read_to_their_last_bit_and_no_further() {
        let numbers = (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]).chain([u64::MAX]);
        for number in numbers {
            let mut bytes = Vec::new();
            variable(number, &mut bytes);
            assert_eq!(bytes.len(), (64 - number.leading_zeros() as usize).div_ceil(7).max(1));
            let mut fields = Fields(&bytes);
            assert_eq!((fields.variable(), fields.0.len()), (Some(number), 0));
            assert_eq!(Fields(&bytes[..bytes.len() - 1]).variable(), None);
            assert_eq!(Fields(&bytes).short(), u32::try_from(number).ok());
        }
        let ten = |last: u8| [vec![0xff; 9], vec![last]].concat();
        assert_eq!((Fields(&ten(1)).variable(), Fields(&ten(2)).variable()), (Some(u64::MAX), None));
        assert_eq!(Fields(&ten(0x81)).variable(), None);
    }

    // Tests promise P18 of beanpole-promises(7).
    #[test]
    fn any_flipped_bit_is_noticed() {
        for record in samples() {
            let mut bytes = Vec::new();
            encode(&record, key(), AT, &mut bytes);
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(key(), AT, &damaged), None, "bit {bit} of {record:?}");
            }
            assert_eq!(decode(RecordKey::new(77, 6), AT, &bytes), None, "a record of another segment");
            assert_eq!(decode(RecordKey::new(78, 5), AT, &bytes), None, "a record of another log");
            assert_eq!(decode(key(), AT + 1, &bytes), None, "a record at another offset");
            for length in 0..bytes.len() {
                assert_eq!(decode(key(), AT, &bytes[..length]), None);
            }
        }
    }
}
