//! The records of the log, from bytes: pure.
//!
//! Owns how a record is found intact and read; `record` has the format. Never trusts what it reads.
//!
//! Promises: P24.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::job_options;
use super::record::{
    check, head_length, GroupCounts, Record, Start, LONG, LONG_PREFIX, MAX_PAYLOAD, PREFIX, SHORT_PAYLOAD,
};
use super::segment::{Place, RecordKey};
use crate::engine::{
    GroupCount, History, JobId, Rate, RunCount, Span, State, StoredChange, StoredJob, Time, TubeSettings,
};

/// What stands before a payload, and may be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    kind: u8,
    /// Bytes of the record before its payload.
    pub prefix: usize,
    pub length: usize,
    /// The checksum of a payload that is not short.
    sum: u32,
}

/// The number of bytes that show whether a record begins with them.
pub const LOOK: usize = PREFIX + SHORT_PAYLOAD;

impl RecordHead {
    /// Of the record that begins with these bytes, which stand at this offset; none if there is no intact one, or if
    /// fewer than `left` bytes would hold it. Takes no more than [`LOOK`] bytes to find out.
    pub fn read(key: RecordKey, at: u64, bytes: &[u8], left: u64) -> Option<RecordHead> {
        let start = bytes.first_chunk::<PREFIX>()?;
        let (kind, length) = (start[8], u32::from_le_bytes(*start.first_chunk()?) as usize);
        // The cheap tests first: this runs at every byte of a damaged stretch.
        if !b"PJpjcsRLBKXAODZNCISGTUEMQWHFYV".contains(&kind) || length > MAX_PAYLOAD {
            return None;
        }
        let prefix = if length <= SHORT_PAYLOAD { PREFIX } else { LONG_PREFIX };
        let head = bytes.get(..head_length(length))?;
        if (prefix + length) as u64 > left || check(key, at, head).to_le_bytes() != start[4..8] {
            return None;
        }
        let sum = if prefix == PREFIX { 0 } else { u32::from_le_bytes(*head.last_chunk()?) };
        Some(RecordHead { kind, prefix, length, sum })
    }

    /// Bytes of the whole record.
    pub fn total(&self) -> usize {
        self.prefix + self.length
    }

    /// Whether the payload, of which this is the checksum, is intact.
    pub fn fits(&self, sum: u32) -> bool {
        self.prefix == PREFIX || sum == self.sum
    }

    /// The record with this payload; none if it is damaged, or no server would write it.
    pub fn record<'a>(&self, payload: &'a [u8]) -> Option<Record<'a>> {
        if self.prefix > PREFIX && crc32fast::hash(payload) != self.sum {
            return None;
        }
        fields(self.kind, payload, 0)
    }

    /// The record with a payload that begins so; what is behind is `tail` bytes of a job's body or of a result, and is
    /// not looked at. None if such a record does not end in these.
    pub fn record_with_tail<'a>(&self, payload: &'a [u8]) -> Option<Record<'a>> {
        let tail = self.length.checked_sub(payload.len())?;
        b"PJpjcO".contains(&self.kind).then(|| fields(self.kind, payload, tail))?
    }
}

/// `tail`: bytes of the payload that are not there.
fn fields(kind: u8, payload: &[u8], tail: usize) -> Option<Record<'_>> {
    let mut fields = Fields(payload);
    let record = match kind {
        b'P' | b'J' | b'p' | b'j' => return read_job(kind, fields, tail),
        b'c' => {
            let Record::Change(id, change) = read_change(b's', &mut fields)? else { return None };
            let Record::Put(job) = read_job(b'p', fields, tail)? else { return None };
            return Some(Record::Run(id, change, job));
        }
        b'R' | b'X' | b'K' | b'A' | b'L' | b'B' | b'T' | b'U' | b's' => read_change(kind, &mut fields)?,
        b'M' => {
            let (id, pri) = (fields.u64()?, fields.u32()?);
            let (delay, due) = (fields.span()?, fields.time()?);
            let (state, dead_from) = match fields.state()? {
                (State::Reserved | State::Held | State::Finished | State::Scheduled, _) => return None,
                state => state,
            };
            return Some(Record::Move { id, pri, delay, due, state, dead_from, tube: fields.0 });
        }
        b'Q' => {
            let settings = read_settings(&mut fields)?;
            return Some(Record::Settings { tube: fields.0, settings });
        }
        b'W' => {
            let id = fields.u64()?;
            return Some(Record::Reason { id, reason: fields.0 });
        }
        b'F' => {
            let (number, states, bound) = (fields.u32()?, fields.u8()?, fields.u64()?);
            let from = fields.name()?;
            return Some(Record::Opened { number, from, to: fields.0, states, bound });
        }
        b'V' => {
            let id = fields.u64()?;
            let groups = GroupCounts::Read(fields.0);
            return (!fields.0.is_empty() && read_groups(fields.0).all(|group| group.is_some()))
                .then_some(Record::Groups { id, groups });
        }
        b'E' => {
            let (id, until) = (fields.u64()?, fields.time()?);
            let tube = fields.name()?;
            return Some(Record::Key { id, until, tube, key: fields.0 });
        }
        b'D' => Record::Delete(fields.u64()?),
        b'O' => return read_outcome(fields, tail),
        b'N' => Record::Next(fields.u64()?),
        b'C' => Record::Closed { last_id: fields.u64()?, time: fields.time() },
        b'I' => Record::Ids(fields.u64()?),
        b'G' => Record::Gone(fields.u64()?),
        b'Y' => Record::Done(fields.u64()?),
        b'S' => Record::Synced(Place { segment: fields.u64()?, at: fields.u64()? }),
        b'H' => Record::Start(Start {
            synced: Place { segment: fields.u64()?, at: fields.u64()? },
            ids: fields.u64()?,
            epoch: fields.u64()?,
            oldest: fields.u64()?,
        }),
        b'Z' => {
            let (length, until) = (fields.span()?, fields.time()?);
            return Some(Record::Pause { tube: fields.0, length, until });
        }
        _ => return None,
    };
    fields.0.is_empty().then_some(record)
}

/// The groups in the bytes of [`GroupCounts::Read`], with their names; `None` ends them if they are damaged.
pub fn read_groups(bytes: &[u8]) -> impl Iterator<Item = Option<(GroupCount, &[u8])>> {
    let mut fields = Some(Fields(bytes)).filter(|fields| !fields.0.is_empty());
    std::iter::from_fn(move || {
        let mut left = fields.take()?;
        let group = read_group(&mut left);
        fields = group.is_some().then_some(left).filter(|left| !left.0.is_empty());
        Some(group)
    })
}

fn read_group<'a>(fields: &mut Fields<'a>) -> Option<(GroupCount, &'a [u8])> {
    let (ended, complete_to, created_at) = (fields.variable()?, fields.variable()?, fields.variable()?);
    let length = fields.u8()?;
    let name = fields.take(length.into()).filter(|name| !name.is_empty())?;
    Some((GroupCount { ended, complete_to, created_at }, name))
}

fn read_settings<'a>(fields: &mut Fields<'a>) -> Option<TubeSettings<&'a [u8]>> {
    let most = [fields.u32()?, fields.u32()?, fields.u32()?];
    let (backoff, ttl, max) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (count, seconds) = (fields.u32()?, fields.u32()?);
    let rate = (count > 0 && seconds > 0).then_some(Rate { count, seconds });
    let tries = fields.u8()?;
    let dead = Some(fields.name()?).filter(|dead| !dead.is_empty());
    Some(TubeSettings { most, tries, backoff, ttl, dead, max, rate })
}

fn read_change(kind: u8, fields: &mut Fields) -> Option<Record<'static>> {
    let (id, count) = (JobId(fields.u64()?), fields.u32()?);
    let change = match kind {
        b'R' => StoredChange::Reserve(count),
        b'X' => StoredChange::Expire(count),
        b'K' => StoredChange::Kick(count),
        b'U' => StoredChange::Priority(count),
        b'T' => StoredChange::Retry { fails: u8::try_from(count).ok()?, delay: fields.span()?, due: fields.time()? },
        b's' => {
            let skipped = fields.u32()?;
            StoredChange::Scheduled { count: RunCount { runs: count, skipped }, due: fields.time()? }
        }
        b'A' => StoredChange::Lease(count, fields.time()?),
        b'L' => {
            let (pri, delay, due) = (fields.u32()?, fields.span()?, fields.time()?);
            StoredChange::Release { pri, delay, due, count, fails: fields.u8()? }
        }
        _ => {
            let (pri, order) = (fields.u32()?, fields.u64()?);
            StoredChange::Bury { pri, order, count, fails: fields.u8()? }
        }
    };
    Some(Record::Change(id, change))
}

fn read_job(kind: u8, mut fields: Fields, tail: usize) -> Option<Record> {
    let (created, id, pri) = (fields.time()?, fields.variable()?, fields.short()?);
    let (delay, ttr) = (Span::from_nanos(fields.variable()?), Span::from_nanos(fields.variable()?));
    let length = u16::try_from(fields.variable()?).ok()?;
    let tube = fields.take(length.into())?;
    let mut job = StoredJob {
        id: JobId(id),
        created,
        pri,
        delay,
        ttr,
        tube,
        body: &[],
        state: if delay == Span::ZERO { State::Ready } else { State::Delayed },
        due: created + delay,
        history: History::default(),
        fails: 0,
        dead_from: None,
        options: None,
    };
    if kind.eq_ignore_ascii_case(&b'P') {
        read_options_and_body(kind, fields, tail, &mut job)?;
        if job.options.is_some_and(|options| options.ties.iter().any(|tie| tie.need.is_some())) {
            job.state = State::Held;
        }
        if let Some(schedule) = job.options.and_then(|options| options.schedule) {
            (job.state, job.due) = (State::Scheduled, schedule.due);
        }
        // It has no outcome: that comes with a snapshot.
        return job.options.is_none_or(|options| options.outcome.is_none()).then_some(Record::Put(job));
    }
    (job.state, job.dead_from) = fields.state()?;
    job.due = fields.time()?;
    job.history = History {
        reserves: fields.short()?,
        timeouts: fields.short()?,
        releases: fields.short()?,
        buries: fields.short()?,
        kicks: fields.short()?,
    };
    job.fails = fields.u8()?;
    read_options_and_body(kind, fields, tail, &mut job)?;
    let is_scheduled = job.options.is_some_and(|options| options.schedule.is_some());
    if is_scheduled != (job.state == State::Scheduled) {
        return None;
    }
    let is_over = job.options.is_some_and(|options| options.outcome.is_some());
    (is_over == (job.state == State::Finished)).then_some(Record::Snapshot(job))
}

fn read_options_and_body<'a>(kind: u8, fields: Fields<'a>, tail: usize, job: &mut StoredJob<'a>) -> Option<()> {
    job.body = fields.0;
    if kind.is_ascii_lowercase() {
        let (options, fails, body) = job_options::decode(fields.0, tail)?;
        (job.options, job.fails, job.body) = (Some(options), fails, body);
    }
    Some(())
}

fn read_outcome(mut fields: Fields, tail: usize) -> Option<Record> {
    let id = fields.u64()?;
    let (done, fails) = match *fields.take(2)? {
        [b'-', fails] if fields.0.is_empty() && tail == 0 => (None, fails),
        [b'd', fails] => (Some(true), fails),
        [b'f', fails] => (Some(false), fails),
        _ => return None,
    };
    Some(Record::Outcome { id, done, fails, result: fields.0 })
}

/// What is left of a payload.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A state, and of a dead letter the tube that it comes from.
    fn state(&mut self) -> Option<(State, Option<&'a [u8]>)> {
        Some(match self.take(1)? {
            b"r" => (State::Ready, None),
            b"d" => (State::Delayed, None),
            b"b" => (State::Buried, None),
            b"x" => (State::Buried, Some(self.name()?)),
            b"l" => (State::Reserved, None),
            b"f" => (State::Finished, None),
            b"h" => (State::Held, None),
            b"s" => (State::Scheduled, None),
            _ => return None,
        })
    }

    /// A name behind its length.
    fn name(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        self.take(length.into())
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A number of variable length.
    pub fn variable(&mut self) -> Option<u64> {
        let mut number = 0;
        for (place, &byte) in self.0.iter().enumerate().take(LONG) {
            let bits = u64::from(byte & 0x7f);
            number |= bits << (7 * place);
            if byte < 0x80 {
                self.0 = self.0.get(place + 1..).unwrap_or_default();
                // Of the tenth byte, one bit is left.
                return (place < LONG - 1 || bits < 2).then_some(number);
            }
        }
        None
    }

    /// The same, of 32 bits.
    pub fn short(&mut self) -> Option<u32> {
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

    #[test]
    fn an_outcome_that_is_none_has_no_result_in_the_record_or_behind_it() {
        let none = b"\x01\0\0\0\0\0\0\0-\x02";
        let expected = Record::Outcome { id: 1, done: None, fails: 2, result: b"" };
        assert_eq!(read_outcome(Fields(none), 0), Some(expected));
        assert_eq!(read_outcome(Fields(none), 1), None);
        let more = [none.as_slice(), b"x"].concat();
        assert_eq!((read_outcome(Fields(&more), 0), read_outcome(Fields(&more), 1)), (None, None));
    }
}
