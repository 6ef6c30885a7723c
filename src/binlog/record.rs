//! The records of the log, to and from bytes: pure.
//!
//! Owns the format of a segment's header and of each record; beanpole-binlog(5) describes it for other programs, byte by
//! byte, and must be changed with it. All numbers are little-endian, all times nanoseconds, absolute ones since the epoch.
//! Must not know files, and never trusts what it reads.

use super::written;
use crate::engine::{Contract, Engine, History, JobId, JobView, Pause, RestoredJob, Span, State, Time, WrittenTerms};

/// The first bytes of every segment.
pub const MAGIC: &[u8; 8] = b"beanpole";

/// The version of the format.
pub const VERSION: u32 = 1;

/// Bytes of a segment's header.
pub const HEADER: usize = 40;

/// Bytes of a record before its payload: length, checksum, kind.
pub const PREFIX: usize = 9;

/// Bytes that a number of variable length takes at most, if it has 64 bits or 32.
const LONG: usize = 10;
const SHORT: usize = 5;

/// Bytes of a put record without tube and body, at most. Usually it is half of that.
pub const PUT: usize = PREFIX + 8 + 3 * LONG + SHORT + 3;

/// Bytes of a snapshot without tube and body, at most.
pub const SNAPSHOT: usize = PUT + 9 + 5 * SHORT;

/// Bytes of the record of a delete.
pub const DELETE: usize = PREFIX + 8;

/// Bytes of the record of an outcome without its result.
pub const OUTCOME: usize = PREFIX + 10;

/// Bytes of the largest record of a change to a job.
pub const CHANGE: usize = PREFIX + 32;

/// No record is longer than this: the largest body with the largest result and the longest names.
pub const MAX_PAYLOAD: usize = (2 << 30) + (1 << 18);

/// Bytes that a job's full record takes at most.
pub fn full_size(tube: usize, body: usize) -> u64 {
    (SNAPSHOT + tube + body) as u64
}

/// A segment's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The number of the segment, which is in its name as well.
    pub segment: u64,
    /// The last id that had been given when the segment was begun.
    pub last_id: u64,
}

/// What a full record says of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobRecord<'a> {
    /// Its number.
    pub id: u64,
    /// When it was put.
    pub created: Time,
    /// Its priority.
    pub pri: u32,
    /// The delay last given to it.
    pub delay: Span,
    /// Its time to run.
    pub ttr: Span,
    /// The name of its tube.
    pub tube: &'a [u8],
    /// Its body.
    pub body: &'a [u8],
    /// Where it stands; reserved only if it is leased, since no client survives a restart.
    pub state: State,
    /// Delayed: when the delay ends. Buried: its place in the order of burying. Leased: when that ends.
    pub due: Time,
    /// What happened to it.
    pub history: History,
    /// Its terms, if it has any.
    pub terms: Option<WrittenTerms<'a>>,
}

/// One record. What is counted is written as the new count, so that a record may be read twice and does no harm: after a
/// failed sync, records are written again while the old ones may be on the disk or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// A new job; its state is ready or delayed.
    Put(JobRecord<'a>),
    /// A job as it is, written again so that older segments can go.
    Snapshot(JobRecord<'a>),
    /// It was reserved, so often by now.
    Reserve(u64, u32),
    /// It was released.
    Release {
        /// The job.
        id: u64,
        /// Its new priority.
        pri: u32,
        /// Its new delay; zero makes it ready.
        delay: Span,
        /// When the delay ends.
        due: Time,
        /// So often by now.
        count: u32,
    },
    /// It was buried.
    Bury {
        /// The job.
        id: u64,
        /// Its new priority.
        pri: u32,
        /// Its place in the order of burying.
        order: u64,
        /// So often by now.
        count: u32,
    },
    /// It was kicked, so often by now.
    Kick(u64, u32),
    /// Its time to run ended, so often by now.
    Expire(u64, u32),
    /// It was leased.
    Lease {
        /// The job.
        id: u64,
        /// When the lease ends.
        due: Time,
        /// So often reserved by now.
        count: u32,
    },
    /// A worker said how it went.
    Outcome {
        /// The job.
        id: u64,
        /// It is over, and done or not; none: it is to be tried again.
        done: Option<bool>,
        /// So often failed by now.
        fails: u8,
        /// What stands behind the job's body from now on.
        result: &'a [u8],
    },
    /// It was deleted.
    Delete(u64),
    /// A tube was paused.
    Pause {
        /// The name of the tube.
        tube: &'a [u8],
        /// The full length; zero ends a pause.
        length: Span,
        /// When it ends.
        until: Time,
    },
}

impl<'a> Record<'a> {
    /// Of what the last verdict about a job has come to.
    pub fn outcome(job: &JobView<'a>, engine: &'a Engine) -> Record<'a> {
        let outcome = engine.outcome(job);
        Record::Outcome {
            id: job.id().0,
            done: outcome.map(|(done, _)| done),
            fails: engine.contract(job).map_or(0, Contract::fails),
            result: outcome.map_or(&[], |(_, result)| result),
        }
    }

    /// Of the pause that a tube has, or has no longer.
    pub fn pause(tube: &'a [u8], pause: Option<Pause>) -> Record<'a> {
        let (length, until) = pause.map_or((Span::ZERO, Time::default()), |pause| (pause.length, pause.until));
        Record::Pause { tube, length, until }
    }
}

impl<'a> JobRecord<'a> {
    /// Of a job as it is. A reserved one is ready to whoever reads this.
    pub fn of(job: JobView<'a>, engine: &'a Engine) -> JobRecord<'a> {
        JobRecord {
            id: job.id().0,
            created: job.created(),
            pri: job.priority(),
            delay: job.delay(),
            ttr: job.ttr(),
            tube: engine.tube_of(&job),
            body: job.body().bytes(),
            state: match job.state() {
                State::Reserved if !job.is_leased() => State::Ready,
                state => state,
            },
            due: job.due(),
            history: job.history(),
            terms: engine.written_terms(&job),
        }
    }

    /// As the engine takes it back.
    pub fn restore(&self) -> RestoredJob<'a> {
        let JobRecord { id, created, pri, delay, ttr, tube, body, state, due, history, terms } = *self;
        RestoredJob { id: JobId(id), tube, pri, delay, ttr, created, state, due, history, body, terms }
    }
}

impl Header {
    /// As bytes.
    pub fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.segment.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.last_id.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From the first bytes of a segment; none if they are no intact header of this version.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..HEADER)?;
        let mut fields = Fields(&bytes[8..]);
        let (version, segment, last_id) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let sum = u32::from_le_bytes(bytes[HEADER - 4..].try_into().ok()?);
        let intact = bytes.starts_with(MAGIC) && version == VERSION && crc32fast::hash(&bytes[..HEADER - 4]) == sum;
        intact.then_some(Header { segment, last_id })
    }
}

/// Appends a record of `segment` and tells how many bytes it took.
pub fn encode(record: &Record, segment: u64, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let length = encode_head(record, 0, out);
    seal(segment, &mut out[start..], &[]);
    length
}

/// The same for a record whose last `tail` bytes are not in `record` and stand elsewhere; tells how many it took without
/// them. Its checksum is left out; see [`seal`].
pub fn encode_head(record: &Record, tail: usize, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    let kind = payload(record, out);
    let length = (out.len() - start - PREFIX + tail) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 8] = kind;
    out.len() - start
}

/// Fills in the checksum of a record of `segment`, which is `head` and then `tail`.
pub fn seal(segment: u64, head: &mut [u8], tail: &[u8]) {
    let sum = checksum(segment, head, tail);
    head[4..8].copy_from_slice(&sum.to_le_bytes());
}

fn payload(record: &Record, out: &mut Vec<u8>) -> u8 {
    match record {
        Record::Put(job) => {
            job_fields(job, out);
            terms_and_body(job, b'P', out)
        }
        Record::Snapshot(job) => {
            job_fields(job, out);
            out.push(state_letter(job.state));
            out.extend_from_slice(&job.due.nanos().to_le_bytes());
            let History { reserves, timeouts, releases, buries, kicks } = job.history;
            let counts = [reserves, timeouts, releases, buries, kicks];
            counts.iter().for_each(|&count| variable(count.into(), out));
            terms_and_body(job, b'J', out)
        }
        Record::Release { id, pri, delay, due, count } => {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&pri.to_le_bytes());
            out.extend_from_slice(&delay.nanos().to_le_bytes());
            out.extend_from_slice(&due.nanos().to_le_bytes());
            b'L'
        }
        Record::Bury { id, pri, order, count } => {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&pri.to_le_bytes());
            out.extend_from_slice(&order.to_le_bytes());
            b'B'
        }
        Record::Pause { tube, length, until } => {
            out.extend_from_slice(&length.nanos().to_le_bytes());
            out.extend_from_slice(&until.nanos().to_le_bytes());
            out.extend_from_slice(tube);
            b'Z'
        }
        Record::Reserve(id, count) => counted(*id, *count, b'R', out),
        Record::Kick(id, count) => counted(*id, *count, b'K', out),
        Record::Expire(id, count) => counted(*id, *count, b'X', out),
        Record::Lease { id, due, count } => {
            counted(*id, *count, b'A', out);
            out.extend_from_slice(&due.nanos().to_le_bytes());
            b'A'
        }
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
        Record::Delete(id) => {
            out.extend_from_slice(&id.to_le_bytes());
            b'D'
        }
    }
}

/// The kind of a record with terms is the small letter.
fn terms_and_body(job: &JobRecord, kind: u8, out: &mut Vec<u8>) -> u8 {
    if let Some(terms) = &job.terms {
        written::encode(terms, out);
    }
    out.extend_from_slice(job.body);
    if job.terms.is_some() {
        kind.to_ascii_lowercase()
    } else {
        kind
    }
}

fn counted(id: u64, count: u32, kind: u8, out: &mut Vec<u8>) -> u8 {
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    kind
}

fn job_fields(job: &JobRecord, out: &mut Vec<u8>) {
    out.extend_from_slice(&job.created.nanos().to_le_bytes());
    let numbers = [job.id, job.pri.into(), job.delay.nanos(), job.ttr.nanos(), job.tube.len() as u64];
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

fn state_letter(state: State) -> u8 {
    match state {
        State::Ready => b'r',
        State::Reserved => b'l',
        State::Delayed => b'd',
        State::Buried => b'b',
        State::Finished => b'f',
    }
}

/// Of a whole record, in two parts, whose checksum field may hold anything. The segment's number is part of it, so that
/// bytes of another segment are never taken for this one's.
fn checksum(segment: u64, head: &[u8], tail: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&segment.to_le_bytes());
    hasher.update(&head[..4]);
    hasher.update(&head[8..]);
    hasher.update(tail);
    hasher.finalize()
}

/// Reads the record of `segment` that these bytes begin with, and its length; none if there is no intact one.
pub fn decode(segment: u64, bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let prefix = bytes.get(..PREFIX)?;
    let length = u32::from_le_bytes(prefix[..4].try_into().ok()?) as usize;
    let kind = prefix[8];
    // The cheap tests first: this runs at every byte of a damaged stretch.
    if !b"PJpjRLBKXAODZ".contains(&kind) || length > MAX_PAYLOAD {
        return None;
    }
    let whole = bytes.get(..PREFIX + length)?;
    let sum = u32::from_le_bytes(prefix[4..8].try_into().ok()?);
    if checksum(segment, whole, &[]) != sum {
        return None;
    }
    Some((fields(kind, &whole[PREFIX..])?, whole.len()))
}

fn fields(kind: u8, payload: &[u8]) -> Option<Record<'_>> {
    let mut fields = Fields(payload);
    let record = match kind {
        b'P' | b'J' | b'p' | b'j' => return read_job(kind, fields),
        b'R' => Record::Reserve(fields.u64()?, fields.u32()?),
        b'K' => Record::Kick(fields.u64()?, fields.u32()?),
        b'X' => Record::Expire(fields.u64()?, fields.u32()?),
        b'D' => Record::Delete(fields.u64()?),
        b'A' => {
            let (id, count) = (fields.u64()?, fields.u32()?);
            Record::Lease { id, due: fields.time()?, count }
        }
        b'L' => {
            let (id, count, pri) = (fields.u64()?, fields.u32()?, fields.u32()?);
            Record::Release { id, pri, delay: fields.span()?, due: fields.time()?, count }
        }
        b'B' => {
            let (id, count) = (fields.u64()?, fields.u32()?);
            Record::Bury { id, pri: fields.u32()?, order: fields.u64()?, count }
        }
        b'O' => return read_outcome(fields),
        b'Z' => {
            let (length, until) = (fields.span()?, fields.time()?);
            return Some(Record::Pause { tube: fields.0, length, until });
        }
        _ => return None,
    };
    fields.0.is_empty().then_some(record)
}

fn read_job(kind: u8, mut fields: Fields) -> Option<Record> {
    let (created, id, pri) = (fields.time()?, fields.variable()?, fields.short()?);
    let (delay, ttr) = (Span::from_nanos(fields.variable()?), Span::from_nanos(fields.variable()?));
    let length = u16::try_from(fields.variable()?).ok()?;
    let tube = fields.take(length.into())?;
    let mut job = JobRecord {
        id,
        created,
        pri,
        delay,
        ttr,
        tube,
        body: &[],
        state: if delay == Span::ZERO { State::Ready } else { State::Delayed },
        due: created + delay,
        history: History::default(),
        terms: None,
    };
    if kind.eq_ignore_ascii_case(&b'P') {
        read_terms_and_body(kind, fields, &mut job)?;
        // It has no outcome: that comes with a snapshot.
        return job.terms.is_none_or(|terms| terms.outcome.is_none()).then_some(Record::Put(job));
    }
    job.state = match fields.take(1)? {
        b"r" => State::Ready,
        b"d" => State::Delayed,
        b"b" => State::Buried,
        b"l" => State::Reserved,
        b"f" => State::Finished,
        _ => return None,
    };
    job.due = fields.time()?;
    job.history = History {
        reserves: fields.short()?,
        timeouts: fields.short()?,
        releases: fields.short()?,
        buries: fields.short()?,
        kicks: fields.short()?,
    };
    read_terms_and_body(kind, fields, &mut job)?;
    let is_over = job.terms.is_some_and(|terms| terms.outcome.is_some());
    (is_over == (job.state == State::Finished)).then_some(Record::Snapshot(job))
}

fn read_terms_and_body<'a>(kind: u8, fields: Fields<'a>, job: &mut JobRecord<'a>) -> Option<()> {
    job.body = fields.0;
    if kind.is_ascii_lowercase() {
        let (terms, body) = written::decode(fields.0)?;
        (job.terms, job.body) = (Some(terms), body);
    }
    Some(())
}

fn read_outcome(mut fields: Fields) -> Option<Record> {
    let id = fields.u64()?;
    let (done, fails) = match *fields.take(2)? {
        [b'-', fails] if fields.0.is_empty() => (None, fails),
        [b'd', fails] => (Some(true), fails),
        [b'f', fails] => (Some(false), fails),
        _ => return None,
    };
    Some(Record::Outcome { id, done, fails, result: fields.0 })
}

/// What is left of a payload.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A number of variable length.
    fn variable(&mut self) -> Option<u64> {
        let mut number = 0;
        for (place, &byte) in self.0.iter().enumerate().take(LONG) {
            let bits = u64::from(byte & 0x7f);
            number |= bits << (7 * place);
            if byte < 0x80 {
                self.0 = &self.0[place + 1..];
                // Of the tenth byte, one bit is left.
                return (place < LONG - 1 || bits < 2).then_some(number);
            }
        }
        None
    }

    /// The same, of 32 bits.
    fn short(&mut self) -> Option<u32> {
        self.variable()?.try_into().ok()
    }

    fn time(&mut self) -> Option<Time> {
        self.u64().map(Time::from_nanos)
    }

    fn span(&mut self) -> Option<Span> {
        self.u64().map(Span::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Ending, WrittenUnique};

    fn samples() -> Vec<Record<'static>> {
        let job = JobRecord {
            id: 7,
            created: Time::from_nanos(1000),
            pri: 9,
            delay: Span::from_nanos(50),
            ttr: Span::from_secs(60),
            tube: b"emails",
            body: b"hello",
            state: State::Delayed,
            due: Time::from_nanos(1050),
            history: History::default(),
            terms: None,
        };
        let terms = WrittenTerms {
            ending: Ending::Keep,
            unique: WrittenUnique::Id([3; 16]),
            ttl: Span::from_secs(1),
            expires: Time::from_nanos(5),
            start: Time::NEVER,
            order: 0,
            max_attempts: 1,
            max_fails: 2,
            fails: 3,
            outcome: None,
            reducer: None,
        };
        let bound = JobRecord { terms: Some(terms), ..job };
        let over = JobRecord {
            state: State::Finished,
            terms: Some(WrittenTerms { outcome: Some((false, 5)), ..terms }),
            ..job
        };
        let history = History { reserves: 1, timeouts: 2, releases: 3, buries: 4, kicks: 5 };
        vec![
            Record::Put(job),
            Record::Snapshot(JobRecord { state: State::Buried, due: Time::from_nanos(3), history, ..job }),
            Record::Put(bound),
            Record::Snapshot(bound),
            Record::Snapshot(over),
            Record::Snapshot(JobRecord { state: State::Reserved, ..job }),
            Record::Lease { id: 1, due: Time::from_nanos(9), count: 2 },
            Record::Outcome { id: 1, done: None, fails: 2, result: b"" },
            Record::Outcome { id: 1, done: Some(true), fails: 0, result: b"yes" },
            Record::Reserve(1, 2),
            Record::Release { id: 1, pri: 2, delay: Span::from_nanos(3), due: Time::from_nanos(4), count: 5 },
            Record::Bury { id: 1, pri: 2, order: 3, count: 4 },
            Record::Kick(1, 2),
            Record::Expire(1, 2),
            Record::Delete(1),
            Record::Pause { tube: b"t", length: Span::from_nanos(1), until: Time::from_nanos(2) },
        ]
    }

    #[test]
    fn every_record_reads_back_and_has_its_size() {
        for record in samples() {
            let mut bytes = Vec::new();
            let length = encode(&record, 5, &mut bytes);
            assert_eq!(decode(5, &bytes), Some((record, length)));
            assert_eq!(
                length,
                match record {
                    Record::Put(JobRecord { terms: Some(_), .. })
                    | Record::Snapshot(JobRecord { terms: Some(_), .. }) => length,
                    // An id, a priority and a delay of a byte, a time to run of six, and one for the name's length.
                    Record::Put(job) => PREFIX + 8 + 10 + job.tube.len() + job.body.len(),
                    Record::Snapshot(job) => PREFIX + 8 + 10 + 9 + 5 + job.tube.len() + job.body.len(),
                    Record::Outcome { result, .. } => OUTCOME + result.len(),
                    Record::Delete(_) => DELETE,
                    _ => length.min(CHANGE),
                }
            );
        }
        let header = Header { segment: 3, last_id: 99 };
        assert_eq!(Header::decode(&header.encode()), Some(header));
    }

    #[test]
    fn the_largest_record_has_the_size_that_is_kept_for_it() {
        let history =
            History { reserves: u32::MAX, timeouts: 1 << 28, releases: 1 << 30, buries: u32::MAX, kicks: u32::MAX };
        let (tube, body) = ([b't'; 1 << 14], b"body");
        let job = JobRecord {
            id: u64::MAX,
            created: Time::NEVER,
            pri: u32::MAX,
            delay: Span::from_nanos(u64::MAX),
            ttr: Span::from_nanos(1 << 63),
            tube: &tube,
            body,
            state: State::Buried,
            due: Time::NEVER,
            history,
            terms: None,
        };
        let mut bytes = Vec::new();
        assert_eq!(encode(&Record::Snapshot(job), 5, &mut bytes) as u64, full_size(tube.len(), body.len()));
        assert_eq!(decode(5, &bytes), Some((Record::Snapshot(job), bytes.len())));
        let put = JobRecord { state: State::Delayed, history: History::default(), ..job };
        assert_eq!(encode(&Record::Put(put), 5, &mut bytes), PUT + tube.len() + body.len());
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

    #[test]
    fn any_flipped_bit_is_noticed() {
        for record in samples() {
            let mut bytes = Vec::new();
            encode(&record, 5, &mut bytes);
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(5, &damaged), None, "bit {bit} of {record:?}");
            }
            assert_eq!(decode(6, &bytes), None, "a record of another segment");
            for length in 0..bytes.len() {
                assert_eq!(decode(5, &bytes[..length]), None);
            }
        }
        let bytes = Header { segment: 3, last_id: 99 }.encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&damaged), None);
        }
    }
}
