//! Decoding of records, and detection of intact records. The encoding is in `record.rs`. Must not trust the input.
//! Enforces promises P24 and P40 of beanpole-promises(7).

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::fields::{decode_options, Fields, JobState, Rest};
use super::record::{check, head_length, GroupCounts, Record, Start, LONG_PREFIX, MAX_PAYLOAD, PREFIX, SHORT_PAYLOAD};
use super::segment::RecordKey;
use crate::engine::{GroupCount, History, JobId, Rate, RunCount, Span, State, StoredChange, StoredJob, TubeSettings};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    kind: u8,
    pub prefix: usize,
    pub length: usize,
    sum: u32,
}

/// The maximum number of bytes that [`RecordHead::read`] needs.
pub const LOOK: usize = PREFIX + SHORT_PAYLOAD;

impl RecordHead {
    /// `at` is the offset of `bytes`. Returns `None` if the head is damaged, or if the record is longer than `left`.
    pub fn read(key: RecordKey, at: u64, bytes: &[u8], left: u64) -> Option<RecordHead> {
        let start = bytes.first_chunk::<PREFIX>()?;
        let (kind, length) = (start[8], u32::from_le_bytes(*start.first_chunk()?) as usize);
        // Perform the cheap checks first: recovery calls this function for every byte of a damaged region.
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

    pub fn total(&self) -> usize {
        self.prefix + self.length
    }

    pub fn fits(&self, sum: u32) -> bool {
        self.prefix == PREFIX || sum == self.sum
    }

    pub fn record<'a>(&self, payload: &'a [u8]) -> Option<Record<'a>> {
        if self.prefix > PREFIX && crc32fast::hash(payload) != self.sum {
            return None;
        }
        fields(self.kind, payload, 0)
    }

    /// Decodes the beginning of a payload. Returns `None` unless the missing bytes are the end of a body or result.
    pub fn record_with_tail<'a>(&self, payload: &'a [u8]) -> Option<Record<'a>> {
        let tail = self.length.checked_sub(payload.len())?;
        b"PJpjcO".contains(&self.kind).then(|| fields(self.kind, payload, tail))?
    }
}

/// Decodes a payload whose last `tail` bytes are missing.
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
            let (id, pri, delay, due, JobState(state, dead_from), Rest(tube)) = fields.read()?;
            if !matches!(state, State::Ready | State::Delayed | State::Buried) {
                return None;
            }
            Record::Move { id, pri, delay, due, state, dead_from, tube }
        }
        b'Q' => {
            let settings = read_settings(&mut fields)?;
            let Rest(tube) = fields.read()?;
            Record::Settings { tube, settings }
        }
        b'W' => fields.read().map(|(id, Rest(reason))| Record::Reason { id, reason })?,
        b'F' => {
            let (number, states, bound, from, Rest(to)) = fields.read()?;
            Record::Opened { number, from, to, states, bound }
        }
        b'V' => {
            let (id, Rest(bytes)) = fields.read()?;
            if bytes.is_empty() || read_groups(bytes).any(|group| group.is_none()) {
                return None;
            }
            Record::Groups { id, groups: GroupCounts::Read(bytes) }
        }
        b'E' => fields.read().map(|(id, until, tube, Rest(key))| Record::Key { id, until, tube, key })?,
        b'O' => return read_outcome(fields, tail),
        b'C' => fields.read().map(|(last_id, time)| Record::Closed { last_id, time })?,
        b'H' => {
            fields.read().map(|(synced, ids, epoch, oldest)| Record::Start(Start { synced, ids, epoch, oldest }))?
        }
        b'Z' => fields.read().map(|(length, until, Rest(tube))| Record::Pause { tube, length, until })?,
        b'D' => Record::Delete(fields.read()?),
        b'N' => Record::Next(fields.read()?),
        b'I' => Record::Ids(fields.read()?),
        b'G' => Record::Gone(fields.read()?),
        b'Y' => Record::Done(fields.read()?),
        b'S' => Record::Synced(fields.read()?),
        _ => return None,
    };
    fields.0.is_empty().then_some(record)
}

/// Returns the counts and the name of each group. If `bytes` is malformed, the last item is `None`.
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
    let length: u8 = fields.read()?;
    let name = fields.take(length.into()).filter(|name| !name.is_empty())?;
    Some((GroupCount { ended, complete_to, created_at }, name))
}

fn read_settings<'a>(fields: &mut Fields<'a>) -> Option<TubeSettings<&'a [u8]>> {
    let (high, normal, low, backoff, ttl, max) = fields.read()?;
    let (count, seconds, tries, dead): (u32, u32, u8, &[u8]) = fields.read()?;
    let rate = (count > 0 && seconds > 0).then_some(Rate { count, seconds });
    let dead = Some(dead).filter(|dead| !dead.is_empty());
    Some(TubeSettings { max_jobs: [high, normal, low], tries, backoff, ttl, dead, max, rate })
}

fn read_change(kind: u8, fields: &mut Fields) -> Option<Record<'static>> {
    let (id, count): (u64, u32) = fields.read()?;
    let change = match kind {
        b'R' => StoredChange::Reserve(count),
        b'X' => StoredChange::Expire(count),
        b'K' => StoredChange::Kick(count),
        b'U' => StoredChange::Priority(count),
        b'T' => {
            let (delay, due) = fields.read()?;
            StoredChange::Retry { fails: u8::try_from(count).ok()?, delay, due }
        }
        b's' => {
            let (skipped, due) = fields.read()?;
            StoredChange::Scheduled { count: RunCount { runs: count, skipped }, due }
        }
        b'A' => StoredChange::Lease(count, fields.read()?),
        b'L' => {
            fields.read().map(|(pri, delay, due, fails)| StoredChange::Release { pri, delay, due, count, fails })?
        }
        _ => fields.read().map(|(pri, order, fails)| StoredChange::Bury { pri, order, count, fails })?,
    };
    Some(Record::Change(JobId(id), change))
}

fn read_job(kind: u8, mut fields: Fields, tail: usize) -> Option<Record> {
    let (created, id, pri) = (fields.read()?, fields.variable()?, fields.short()?);
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
        return job.options.is_none_or(|options| options.outcome.is_none()).then_some(Record::Put(job));
    }
    (JobState(job.state, job.dead_from), job.due) = fields.read()?;
    let (reserves, timeouts, releases) = (fields.short()?, fields.short()?, fields.short()?);
    let (buries, kicks) = (fields.short()?, fields.short()?);
    job.history = History { reserves, timeouts, releases, buries, kicks };
    job.fails = fields.read()?;
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
        let (options, fails, body) = decode_options(fields.0, tail)?;
        (job.options, job.fails, job.body) = (Some(options), fails, body);
    }
    Some(())
}

fn read_outcome(mut fields: Fields, tail: usize) -> Option<Record> {
    let (id, letter, fails) = fields.read()?;
    let done = match letter {
        b'-' if fields.0.is_empty() && tail == 0 => None,
        b'd' | b'f' => Some(letter == b'd'),
        _ => return None,
    };
    Some(Record::Outcome { id, done, fails, result: fields.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_outcome_has_no_result() {
        let none = b"\x01\0\0\0\0\0\0\0-\x02";
        let expected = Record::Outcome { id: 1, done: None, fails: 2, result: b"" };
        assert_eq!(read_outcome(Fields(none), 0), Some(expected));
        assert_eq!(read_outcome(Fields(none), 1), None);
        let more = [none.as_slice(), b"x"].concat();
        assert_eq!((read_outcome(Fields(&more), 0), read_outcome(Fields(&more), 1)), (None, None));
    }
}
