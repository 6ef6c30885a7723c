//! The records of the log, to and from bytes: pure.
//!
//! Owns the format of each record; beanpole-binlog(5) describes it for other programs, byte by byte, and must be
//! changed with it. All numbers are little-endian, all times nanoseconds, absolute ones since the epoch. Must not know
//! files, and never trusts what it reads.

// No byte of a file is a reason to stop: each exception has its proof.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::job_options;
use super::segment::{Place, RecordKey};
use crate::engine::{
    Engine, GroupCount, History, JobId, JobView, LoggedGroup, Pause, Span, State, StoredChange, StoredJob, Time,
    TubeSettings,
};

/// Bytes of a record before its payload: length, check, kind.
pub const PREFIX: usize = 9;

/// A longer payload has a checksum of its own behind the kind, so that the check of a record need not read far.
pub const SHORT_PAYLOAD: usize = 64;

/// Bytes before a payload of more than [`SHORT_PAYLOAD`].
pub const LONG_PREFIX: usize = PREFIX + 4;

/// Bytes that a number of variable length takes at most, if it has 64 bits or 32.
pub(super) const LONG: usize = 10;
const SHORT: usize = 5;

/// Bytes of a put record without tube and body, at most. Usually it is half of that.
pub const PUT: usize = LONG_PREFIX + 8 + 3 * LONG + SHORT + 3;

/// Bytes of a snapshot without tube and body, at most.
pub const SNAPSHOT: usize = PUT + 10 + 5 * SHORT;

/// Bytes of the record of a delete.
pub const DELETE: usize = PREFIX + 8;

/// Bytes of the record of an outcome without its result.
pub const OUTCOME: usize = LONG_PREFIX + 10;

/// Bytes of the largest record of a change to a job.
pub const CHANGE: usize = LONG_PREFIX + 32;

/// Bytes of the record of the settings of a tube, if its name and that of its dead-letter tube have `names` bytes.
pub fn settings_size(names: usize) -> u64 {
    (LONG_PREFIX + SETTINGS + names) as u64
}

/// Bytes of settings without names.
pub(super) const SETTINGS: usize = 12 + 1 + 5 * 4 + 2;

/// Bytes of the record of a key that outlives its job, if it and the name of its tube have `names` bytes.
pub fn key_size(names: usize) -> u64 {
    (LONG_PREFIX + 18 + names) as u64
}

/// Bytes of a record that holds one number and is not about a job: see [`Record::Next`] and those behind it.
pub const MARK: usize = PREFIX + 8;

/// The size of the record of a stop, with its time.
pub const CLOSED: usize = PREFIX + 16;

/// Bytes of the record of a sync.
pub const SYNCED: usize = PREFIX + 16;

/// Maximum size of the record that an operation begins, if the names of its tubes have `names` bytes.
pub fn operation_size(names: usize) -> u64 {
    (LONG_PREFIX + 15 + names) as u64
}

/// Bytes of the record of a group with a name of this length, at most.
pub fn group_size(name: usize) -> u64 {
    (LONG_PREFIX + 8 + 3 * LONG + 1 + name) as u64
}

/// Maximum size of the record that a member of this many groups has ended, if their names have `names` bytes.
pub fn ended_size(groups: usize, names: usize) -> usize {
    LONG_PREFIX + 8 + groups * (3 * LONG + 1) + names
}

/// Bytes of the record of a start.
pub const START: usize = PREFIX + 40;

/// No record is longer than this: the largest body with the largest result and the longest names.
pub const MAX_PAYLOAD: usize = (2 << 30) + (1 << 18);

/// Bytes that the full record of a job takes at most, of which the name of its tube, its options and its body take
/// `size`.
pub fn full_size(size: usize) -> u64 {
    (SNAPSHOT + size) as u64
}

/// Bytes of the record of a pause of a tube with a name of this length, at most.
pub fn pause_size(name: usize) -> u64 {
    (LONG_PREFIX + 16 + name) as u64
}

/// One record. What is counted is written as the new count, so that a record may be read twice and does no harm: after
/// a failed sync, records are written again while the old ones may be on the disk or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// A new job; its state is ready or delayed.
    Put(StoredJob<'a>),
    /// A copy that a schedule has put, and what changed about the schedule, which has this ID.
    Run(JobId, StoredChange, StoredJob<'a>),
    /// A job as it is, written again so that older segments can go.
    Snapshot(StoredJob<'a>),
    /// Something that happened to a job which is written down already.
    Change(JobId, StoredChange),
    /// A worker said how it went.
    Outcome {
        id: u64,
        /// It is over, and done or not; none: it is to be tried again.
        done: Option<bool>,
        /// So often failed by now.
        fails: u8,
        /// What stands behind the job's body from now on.
        result: &'a [u8],
    },
    /// It went to another tube.
    Move {
        id: u64,
        pri: u32,
        /// The delay last given to it.
        delay: Span,
        /// Delayed: when the delay ends. Buried: its place in the order of burying.
        due: Time,
        /// Ready, delayed or buried; no other state moves.
        state: State,
        /// Buried: the tube that it is a dead letter of.
        dead_from: Option<&'a [u8]>,
        tube: &'a [u8],
    },
    /// A tube has these settings from now on; the default ones: none any more.
    Settings {
        tube: &'a [u8],
        settings: TubeSettings<&'a [u8]>,
    },
    /// Why a job failed last.
    Reason {
        id: u64,
        reason: &'a [u8],
    },
    /// A job is gone or about to go, and no other with its key is taken in for some time.
    Key {
        id: u64,
        /// When the key is forgotten.
        until: Time,
        tube: &'a [u8],
        key: &'a [u8],
    },
    Delete(u64),
    Pause {
        /// The name of the tube.
        tube: &'a [u8],
        /// The full length; zero ends a pause.
        length: Span,
        /// The moment at which it ends, by the wall clock.
        until: Time,
    },
    /// The last record of a segment: the log continues in the one with this number.
    Next(u64),
    /// The server was stopped in order.
    Closed {
        /// The last ID that was assigned.
        last_id: u64,
        /// The queue's time, unless there was no space for it.
        time: Option<Time>,
    },
    /// Ids up to this one may be given from now on.
    Ids(u64),
    /// Everything before this place is synced.
    Synced(Place),
    /// The segments before this one are needed no longer.
    Gone(u64),
    /// A server started and continues the log here.
    Start(Start),
    /// What groups of jobs count from now on; see [`groups_of`].
    Groups {
        /// The job that was deleted, by which they count one more; 0 if there is none.
        id: u64,
        groups: GroupCounts<'a>,
    },
    /// A command that affects many jobs is in progress.
    Opened {
        number: u32,
        /// The name of the tube whose jobs it is about, and of the one that they go to, if any.
        from: &'a [u8],
        to: &'a [u8],
        /// The states of the jobs, as [`state_bits`].
        states: u8,
        bound: u64,
    },
    /// The operation with this number is complete.
    Done(u64),
}

/// The states of jobs, by the bits that stand for them.
const STATES: [State; 7] =
    [State::Ready, State::Delayed, State::Reserved, State::Buried, State::Finished, State::Held, State::Scheduled];

/// The counts of groups, in memory or from a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCounts<'a> {
    Known(&'a [LoggedGroup]),
    /// The bytes of a record: for each group three numbers of variable length, and the name behind its length.
    Read(&'a [u8]),
}

impl GroupCounts<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            GroupCounts::Read(bytes) => out.extend_from_slice(bytes),
            GroupCounts::Known(groups) => {
                for LoggedGroup { name, count, .. } in *groups {
                    let GroupCount { ended, complete_to, created_at } = *count;
                    [ended, complete_to, created_at].iter().for_each(|&number| variable(number, out));
                    out.push(name.length() as u8);
                    out.extend_from_slice(&name.text());
                }
            }
        }
    }
}

/// Returns the bits that stand for these states.
pub fn state_bits(states: &[State]) -> u8 {
    let bits = STATES.iter().enumerate().filter(|(_, state)| states.contains(state));
    bits.fold(0, |bits, (bit, _)| bits | 1 << bit)
}

/// Returns the states that these bits stand for.
pub fn states_of(bits: u8) -> Box<[State]> {
    STATES.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, &state)| state).collect()
}

/// What a server process records before anything else, if it continues in a segment that it found. The header of a new
/// segment contains the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// Everything before this place is synced.
    pub synced: Place,
    /// Ids up to this one may be given from now on.
    pub ids: u64,
    /// The random number of the process; see [`super::segment::Header::epoch`].
    pub epoch: u64,
    /// The segments before this one are needed no longer.
    pub oldest: u64,
}

impl<'a> Record<'a> {
    /// Of what the last outcome about a job has come to.
    pub fn outcome(job: &JobView<'a>, engine: &'a Engine) -> Record<'a> {
        let outcome = engine.outcome(job);
        Record::Outcome {
            id: job.id().0,
            done: outcome.map(|(done, _)| done),
            fails: job.fails(),
            result: outcome.map_or(&[], |(_, result)| result),
        }
    }

    /// Of the pause that a tube has, or has no longer.
    pub fn pause(tube: &'a [u8], pause: Option<Pause>) -> Record<'a> {
        let (length, until) = pause.map_or((Span::ZERO, Time::default()), |pause| (pause.length, pause.until));
        Record::Pause { tube, length, until }
    }
}

/// Appends a record, which will stand at this offset of the segment with this key. Returns its size.
pub fn encode(record: &Record, key: RecordKey, at: u64, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let length = encode_head(record, 0, out);
    if let Some(written) = out.get_mut(start..) {
        seal(key, at, written, &[]);
    }
    length
}

/// The same for a record whose last `tail` bytes are not in `record` and stand elsewhere. Returns the number of bytes
/// without them. Its checksums are left out; see [`seal`].
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

/// Fills in the checksums of the record that is `head` and then `tail`, and stands at this offset.
// `head` begins with the prefix of a record, which its caller has just written.
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

/// Bytes of a record that its check covers, if its payload has this length: all of a short one, else what is before the
/// payload, of which the checksum is a part.
pub(super) fn head_length(payload: usize) -> usize {
    if payload <= SHORT_PAYLOAD {
        PREFIX + payload
    } else {
        LONG_PREFIX
    }
}

/// The offset is part of it, so that a body in which a record is written is never taken for one.
#[expect(clippy::indexing_slicing, reason = "a head that is written or read has its prefix of twelve bytes")]
pub(super) fn check(key: RecordKey, at: u64, head: &[u8]) -> u32 {
    let mut hasher = key.hasher();
    hasher.update(&at.to_le_bytes());
    hasher.update(&head[..4]);
    hasher.update(&head[8..]);
    hasher.finalize()
}

fn payload(record: &Record, out: &mut Vec<u8>) -> u8 {
    match record {
        Record::Put(job) => {
            job_fields(job, out);
            options_and_body(job, b'P', out)
        }
        Record::Run(id, change, job) => {
            change_fields(*id, change, out);
            job_fields(job, out);
            options_and_body(job, b'C', out)
        }
        Record::Snapshot(job) => {
            job_fields(job, out);
            push_state(job.state, job.dead_from, out);
            out.extend_from_slice(&job.due.nanos().to_le_bytes());
            let History { reserves, timeouts, releases, buries, kicks } = job.history;
            let counts = [reserves, timeouts, releases, buries, kicks];
            counts.iter().for_each(|&count| variable(count.into(), out));
            out.push(job.fails);
            options_and_body(job, b'J', out)
        }
        Record::Change(id, change) => change_fields(*id, change, out),
        Record::Outcome { id, done, fails, result } => {
            out.extend_from_slice(&id.to_le_bytes());
            out.push(match done {
                None => b'-',
                Some(true) => b'd',
                Some(false) => b'f',
            });
            out.push(*fails);
            out.extend_from_slice(result);
            b'O'
        }
        Record::Synced(place) => {
            out.extend_from_slice(&place.segment.to_le_bytes());
            out.extend_from_slice(&place.at.to_le_bytes());
            b'S'
        }
        Record::Start(Start { synced, ids, epoch, oldest }) => {
            let numbers = [synced.segment, synced.at, *ids, *epoch, *oldest];
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            b'H'
        }
        Record::Delete(number) => one_number(*number, b'D', out),
        Record::Next(number) => one_number(*number, b'N', out),
        Record::Closed { last_id, time } => {
            out.extend_from_slice(&last_id.to_le_bytes());
            if let Some(time) = time {
                out.extend_from_slice(&time.nanos().to_le_bytes());
            }
            b'C'
        }
        Record::Ids(number) => one_number(*number, b'I', out),
        Record::Gone(number) => one_number(*number, b'G', out),
        Record::Done(number) => one_number(*number, b'Y', out),
        named => named_payload(named, out),
    }
}

/// The same of what is known by the name of a tube.
fn named_payload(record: &Record, out: &mut Vec<u8>) -> u8 {
    match record {
        Record::Pause { tube, length, until } => {
            out.extend_from_slice(&length.nanos().to_le_bytes());
            out.extend_from_slice(&until.nanos().to_le_bytes());
            out.extend_from_slice(tube);
            b'Z'
        }
        Record::Move { id, pri, delay, due, state, dead_from, tube } => {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&pri.to_le_bytes());
            out.extend_from_slice(&delay.nanos().to_le_bytes());
            out.extend_from_slice(&due.nanos().to_le_bytes());
            push_state(*state, *dead_from, out);
            out.extend_from_slice(tube);
            b'M'
        }
        Record::Settings { tube, settings } => {
            let dead = settings.dead.unwrap_or_default();
            let (count, seconds) = settings.rate.map_or((0, 0), |rate| (rate.count, rate.seconds));
            let TubeSettings { most: [high, normal, low], backoff, ttl, max, .. } = *settings;
            for number in [high, normal, low, backoff, ttl, max, count, seconds] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.push(settings.tries);
            out.extend_from_slice(&(dead.len() as u16).to_le_bytes());
            out.extend_from_slice(dead);
            out.extend_from_slice(tube);
            b'Q'
        }
        Record::Groups { id, groups } => {
            out.extend_from_slice(&id.to_le_bytes());
            groups.write(out);
            b'V'
        }
        Record::Opened { number, from, to, states, bound } => {
            out.extend_from_slice(&number.to_le_bytes());
            out.push(*states);
            out.extend_from_slice(&bound.to_le_bytes());
            out.extend_from_slice(&(from.len() as u16).to_le_bytes());
            out.extend_from_slice(from);
            out.extend_from_slice(to);
            b'F'
        }
        Record::Reason { id, reason } => {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(reason);
            b'W'
        }
        Record::Key { id, until, tube, key } => {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&until.nanos().to_le_bytes());
            out.extend_from_slice(&(tube.len() as u16).to_le_bytes());
            out.extend_from_slice(tube);
            out.extend_from_slice(key);
            b'E'
        }
        other => unreachable!("{other:?} has no name"),
    }
}

fn one_number(number: u64, kind: u8, out: &mut Vec<u8>) -> u8 {
    out.extend_from_slice(&number.to_le_bytes());
    kind
}

/// The kind of a record with options is the small letter.
fn options_and_body(job: &StoredJob, kind: u8, out: &mut Vec<u8>) -> u8 {
    if let Some(options) = &job.options {
        job_options::encode(options, job.fails, out);
    }
    out.extend_from_slice(job.body);
    if job.options.is_some() {
        kind.to_ascii_lowercase()
    } else {
        kind
    }
}

fn change_fields(id: JobId, change: &StoredChange, out: &mut Vec<u8>) -> u8 {
    let (kind, count) = match *change {
        StoredChange::Reserve(count) => (b'R', count),
        StoredChange::Expire(count) => (b'X', count),
        StoredChange::Kick(count) => (b'K', count),
        StoredChange::Lease(count, _) => (b'A', count),
        StoredChange::Release { count, .. } => (b'L', count),
        StoredChange::Bury { count, .. } => (b'B', count),
        StoredChange::Retry { fails, .. } => (b'T', fails.into()),
        StoredChange::Priority(pri) => (b'U', pri),
        StoredChange::Scheduled { count, .. } => (b's', count.runs),
    };
    out.extend_from_slice(&id.0.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    match *change {
        StoredChange::Reserve(_) | StoredChange::Expire(_) | StoredChange::Kick(_) | StoredChange::Priority(_) => {}
        StoredChange::Retry { delay, due, .. } => {
            out.extend_from_slice(&delay.nanos().to_le_bytes());
            out.extend_from_slice(&due.nanos().to_le_bytes());
        }
        StoredChange::Scheduled { due, count } => {
            out.extend_from_slice(&count.skipped.to_le_bytes());
            out.extend_from_slice(&due.nanos().to_le_bytes());
        }
        StoredChange::Lease(_, until) => out.extend_from_slice(&until.nanos().to_le_bytes()),
        StoredChange::Release { pri, delay, due, fails, .. } => {
            out.extend_from_slice(&pri.to_le_bytes());
            out.extend_from_slice(&delay.nanos().to_le_bytes());
            out.extend_from_slice(&due.nanos().to_le_bytes());
            out.push(fails);
        }
        StoredChange::Bury { pri, order, fails, .. } => {
            out.extend_from_slice(&pri.to_le_bytes());
            out.extend_from_slice(&order.to_le_bytes());
            out.push(fails);
        }
    }
    kind
}

fn job_fields(job: &StoredJob, out: &mut Vec<u8>) {
    out.extend_from_slice(&job.created.nanos().to_le_bytes());
    let numbers = [job.id.0, job.pri.into(), job.delay.nanos(), job.ttr.nanos(), job.tube.len() as u64];
    numbers.iter().for_each(|&number| variable(number, out));
    out.extend_from_slice(job.tube);
}

/// A number of variable length: seven bits a byte, the lowest first, and the top bit set in all bytes but the last.
fn variable(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A state, and of a dead letter the tube that it comes from.
fn push_state(state: State, dead_from: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(match state {
        State::Ready => b'r',
        State::Reserved => b'l',
        State::Delayed => b'd',
        State::Buried if dead_from.is_some() => b'x',
        State::Buried => b'b',
        State::Finished => b'f',
        State::Held => b'h',
        State::Scheduled => b's',
    });
    if let Some(origin) = dead_from {
        out.extend_from_slice(&(origin.len() as u16).to_le_bytes());
        out.extend_from_slice(origin);
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::{Fields, RecordHead};
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
            Record::Synced(Place { segment: 5, at: 6 }),
            Record::Gone(7),
        ];
        samples.extend(samples_of_operations().into_iter().chain(samples_of_failures(job)));
        samples
    }

    fn samples_of_operations() -> [Record<'static>; 5] {
        let start = Start { synced: Place { segment: 1, at: 2 }, ids: 3, epoch: 4, oldest: 5 };
        [
            Record::Opened { number: 3, from: b"emails", to: b"", states: 9, bound: 77 },
            Record::Opened { number: 4, from: b"emails", to: b"other", states: 1, bound: 5 },
            Record::Done(4),
            Record::Start(start),
            Record::Groups { id: 7, groups: GroupCounts::Read(b"\x01\x02\x02\x05batch\x83\x01\x02\x00\x05other") },
        ]
    }

    /// The same of tubes, of failures, and with long payloads.
    fn samples_of_failures(job: StoredJob<'static>) -> Vec<Record<'static>> {
        let (delay, due, state) = (Span::from_secs(3), Time::from_nanos(9), State::Delayed);
        vec![
            Record::Move { id: 7, pri: 5, delay, due, state, dead_from: None, tube: b"emails" },
            Record::Move { id: 7, pri: 5, delay, due, state: State::Buried, dead_from: Some(b"e"), tube: b"emails" },
            Record::Settings { tube: b"emails", settings: TubeSettings::default() },
            Record::Settings {
                tube: b"emails",
                settings: TubeSettings {
                    most: [1, 2, u32::MAX],
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
                    // An id, a priority and a delay of a byte, a time to run of six, and one for the name's length.
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
    fn the_largest_record_has_the_size_that_is_kept_for_it() {
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

    // Promises: P18.
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
            assert_eq!(decode(key(), AT + 1, &bytes), None, "a record of another place");
            for length in 0..bytes.len() {
                assert_eq!(decode(key(), AT, &bytes[..length]), None);
            }
        }
    }
}
