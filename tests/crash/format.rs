//! An independent reader of the segment format, written from the manual page instead of the server's code.
//!
//! Owns a second implementation of reading damaged segments. Can create records that the server never writes.

use std::collections::BTreeMap;

/// The size of a segment's header in bytes.
pub const HEADER: usize = 192;

/// A header contains two copies of its fields. Each copy is this many bytes long.
const COPY: usize = 96;

/// The size of a record's prefix before a payload of up to 64 bytes.
const PREFIX: usize = 9;
const LONG_PREFIX: usize = 13;

pub struct Found<'a> {
    pub kind: u8,
    pub payload: &'a [u8],
    /// The offset of the record in the segment, in bytes.
    pub at: usize,
    pub end: usize,
}

/// The identifier of a log and the number of a segment.
#[derive(Clone, Copy)]
pub struct Segment {
    pub log: u64,
    pub number: u64,
}

fn check(segment: Segment, at: usize, length: u32, rest: &[u8]) -> u32 {
    let mut bytes = segment.log.to_le_bytes().to_vec();
    bytes.extend_from_slice(&segment.number.to_le_bytes());
    bytes.extend_from_slice(&(at as u64).to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(rest);
    crc32fast::hash(&bytes)
}

/// Returns a record that is valid at offset `at` of a segment.
pub fn record(segment: Segment, at: usize, kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut rest = vec![kind];
    if payload.len() > 64 {
        rest.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    }
    let covered = if payload.len() > 64 { rest.clone() } else { [&rest, payload].concat() };
    let check = check(segment, at, length, &covered);
    [&length.to_le_bytes(), &check.to_le_bytes(), &*rest, payload].concat()
}

/// Returns a segment header without an epoch. `numbers` are the fields that follow the log number and the segment
/// number in the manual page.
pub fn header(segment: Segment, numbers: [u64; 6]) -> Vec<u8> {
    epoch_header(segment, numbers, [0; 2])
}

/// Like `header`, with the epochs of two processes: the process that started the segment, and the process that wrote
/// the preceding data.
pub fn epoch_header(segment: Segment, numbers: [u64; 6], epochs: [u64; 2]) -> Vec<u8> {
    let mut bytes = b"beanpole\x03\0\0\0".to_vec();
    for number in [segment.log, segment.number].into_iter().chain(numbers).chain(epochs) {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let check = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes.repeat(2)
}

#[derive(Clone, Copy)]
pub struct Header {
    pub log: u64,
    /// The end of the log before this segment: a segment number and an offset.
    pub before: (u64, u64),
    /// The position up to which the log is synced: a segment number and an offset.
    pub synced: (u64, u64),
    pub oldest: u64,
}

/// Decodes a segment header. Returns `None` if both copies are damaged.
fn read_header(bytes: &[u8]) -> Option<Header> {
    let mut copies = bytes.chunks_exact(COPY).take(2);
    let copy = copies.find(|copy| crc32fast::hash(&copy[..92]).to_le_bytes() == copy[92..])?;
    let pair = |at: usize| (number(copy, at), number(copy, at + 8));
    Some(Header { log: number(copy, 12), before: pair(28), oldest: number(copy, 44), synced: pair(52) })
}

/// Returns all records that have valid checksums, at any offset.
pub fn records(segment: Segment, bytes: &[u8]) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    let mut at = HEADER;
    while at + PREFIX <= bytes.len() {
        let word = |place: usize| u32::from_le_bytes(bytes[place..place + 4].try_into().expect("four bytes"));
        let length = word(at) as usize;
        let prefix = if length > 64 { LONG_PREFIX } else { PREFIX };
        let end = at + prefix + length;
        let good = bytes[at + 8] != 0 && length < 1 << 30 && end <= bytes.len() && {
            let covered = if length > 64 { &bytes[at + 8..at + 13] } else { &bytes[at + 8..end] };
            let whole = length <= 64 || crc32fast::hash(&bytes[at + 13..end]) == word(at + 9);
            check(segment, at, word(at), covered) == word(at + 4) && whole
        };
        if good {
            found.push(Found { kind: bytes[at + 8], payload: &bytes[at + prefix..end], at, end });
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The size of a job's extra fields in bytes, excluding names.
const TERMS: usize = 48;

fn short(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// The body as submitted by the client.
    pub body: Vec<u8>,
    /// For a job with options: the completion letter, the kind of the unique name, and the name.
    pub options: Option<(u8, u8, Vec<u8>)>,
    /// The time to live, the time at which the job expires, and the scheduled time.
    pub times: Option<[u64; 3]>,
    /// The maximum number of attempts, the maximum number of failures, and the number of failures.
    pub limits: [u8; 3],
    pub reducer: Vec<u8>,
    /// `true` for a completed job or `false` for a failed one, and the result.
    pub outcome: Option<(bool, Vec<u8>)>,
    pub leased: Option<u64>,
    pub reserves: u32,
}

/// Decodes a variable-length number. Returns the number and the remaining bytes.
fn variable(bytes: &[u8]) -> (u64, &[u8]) {
    let length = 1 + bytes.iter().position(|byte| byte & 0x80 == 0).expect("a last byte");
    let number = bytes[..length].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    (number, &bytes[length..])
}

impl Job {
    /// Returns the ID and the job in a full record.
    fn full(kind: u8, payload: &[u8]) -> (u64, Job) {
        let (id, mut rest) = variable(&payload[8..]);
        for _ in 0..3 {
            rest = variable(rest).1;
        }
        let (tube, rest) = variable(rest);
        let mut rest = &rest[tube as usize..];
        if kind.eq_ignore_ascii_case(&b'P') {
            return (id, Job::read(kind, rest));
        }
        let state = rest[0];
        rest = &rest[1..];
        if state == b'x' {
            rest = &rest[2 + short(rest, 0)..];
        }
        let due = number(rest, 0);
        let (reserves, behind) = variable(&rest[8..]);
        rest = behind;
        for _ in 0..4 {
            rest = variable(rest).1;
        }
        let mut job = Job::read(kind, &rest[1..]);
        job.limits[2] = rest[0];
        assert_eq!(state == b'f', job.outcome.is_some());
        job.leased = (state == b'l').then_some(due);
        job.reserves = reserves as u32;
        (id, job)
    }

    /// Decodes a job, including the fields that only some jobs have.
    fn read(kind: u8, rest: &[u8]) -> Job {
        if kind.is_ascii_uppercase() {
            return Job { body: rest.to_vec(), ..Job::default() };
        }
        let (dedup_key, reducer) = (short(rest, 42), short(rest, 44));
        let own = if rest[0] == b'd' { 16 } else { 0 };
        let bound = if own > 0 { short(rest, TERMS + 12) + short(rest, TERMS + 14) } else { 0 };
        let (dedup_key, more) = rest[TERMS + own..].split_at(dedup_key);
        let (reducer, more) = more.split_at(reducer);
        let (_, body) = more.split_at(bound + short(rest, 46));
        let result = u32::from_le_bytes(rest[38..42].try_into().expect("four bytes")) as usize;
        let (outcome, body) = match rest[2] {
            b'-' => (None, body),
            letter => (Some((letter == b'd', body[result..].to_vec())), &body[..result]),
        };
        Job {
            body: body.to_vec(),
            options: Some((rest[0], rest[1], dedup_key.to_vec())),
            times: Some([number(rest, 6), number(rest, 14), number(rest, 22)]),
            limits: [rest[3], rest[4], rest[5]],
            reducer: reducer.to_vec(),
            outcome,
            ..Job::default()
        }
    }

    fn change(&mut self, kind: u8, payload: &[u8]) {
        if kind == b'W' && self.options.is_none() {
            self.options = Some((b'd', b'-', Vec::new()));
            self.times = Some([u64::MAX; 3]);
        }
        if self.outcome.is_some() {
            return;
        }
        let count = || u32::from_le_bytes(payload[8..12].try_into().expect("four bytes"));
        // A failure reason (W) or a new priority (U) does not end the lease.
        if !b"WU".contains(&kind) {
            self.leased = None;
        }
        match kind {
            b'A' => (self.reserves, self.leased) = (count(), Some(number(payload, 12))),
            b'R' => self.reserves = count(),
            b'T' => self.limits[2] = count() as u8,
            b'L' => self.limits[2] = payload[32],
            b'K' => self.limits[2] = 0,
            b'B' => self.limits[2] = payload[24],
            b'O' => {
                self.limits[2] = payload[9];
                let done = payload[8] == b'd';
                self.outcome = (payload[8] != b'-').then(|| (done, payload[10..].to_vec()));
            }
            _ => {}
        }
    }
}

/// Returns the jobs by ID. Stops at the first gap at or after the last synced position. Ignores segments that the log
/// no longer needs.
pub fn jobs(segments: &[(u64, Vec<u8>)]) -> BTreeMap<u64, Job> {
    let headers = || segments.iter().filter_map(|(_, bytes)| read_header(bytes));
    let Some(log) = headers().next().map(|header| header.log) else { return BTreeMap::new() };
    let used: Vec<_> = segments.iter().filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0)).collect();
    let mut oldest = headers().map(|header| header.oldest).max().unwrap_or_default();
    let exists = |number| number < oldest.max(1) || segments.iter().any(|(other, _)| *other == number);
    let synced = proven_by_removals(log, &used, &exists);
    counted(log, &used, synced, &mut |segment, kind, payload| match kind {
        b'G' => oldest = oldest.max(number(payload, 0).min(segment)),
        b'H' => oldest = oldest.max(number(payload, 32).min(segment)),
        _ => {}
    });
    let mut jobs = BTreeMap::<u64, Job>::new();
    counted(log, &used, synced, &mut |segment, kind, payload| {
        if segment >= oldest || used.len() == 1 {
            apply(kind, payload, &mut jobs);
        }
    });
    jobs
}

/// Returns the last position that is known to be synced because a segment was removed: the server syncs the record that
/// permits a removal before it removes the segment. A segment was removed if it does not exist, but a header names it,
/// or the segment before it names it and no other segment continues that segment.
fn proven_by_removals(log: u64, used: &[&(u64, Vec<u8>)], exists: &dyn Fn(u64) -> bool) -> (u64, u64) {
    let (mut named, mut gone) = (Vec::new(), Vec::new());
    let continued: Vec<u64> =
        used.iter().filter_map(|(_, bytes)| read_header(bytes)).map(|header| header.before.0).collect();
    for (segment, bytes) in used {
        named.extend(read_header(bytes).map(|header| header.before.0));
        for Found { kind, payload, at, .. } in records(Segment { log, number: *segment }, bytes) {
            match kind {
                b'N' if !continued.contains(segment) && number(payload, 0) > *segment => {
                    named.push(number(payload, 0));
                }
                b'G' => gone.push((number(payload, 0), (*segment, at as u64))),
                _ => {}
            }
        }
    }
    named.retain(|number| !exists(*number));
    let first = |number: &u64| gone.iter().find(|(oldest, _)| oldest > number).map(|(_, place)| *place);
    named.iter().filter_map(first).max().unwrap_or_default()
}

/// Calls `visit` with the segment, the kind and the payload of each record before the end of the log. The log is synced
/// at least up to `synced`.
fn counted(log: u64, used: &[&(u64, Vec<u8>)], synced: (u64, u64), visit: &mut dyn FnMut(u64, u8, &[u8])) {
    let stated = used.iter().map(|(segment, bytes)| last_synced(Segment { log, number: *segment }, bytes)).max();
    let is_end = |gap: (u64, usize)| stated.unwrap_or_default().max(synced) <= (gap.0, gap.1 as u64);
    for (place, (segment, bytes)) in used.iter().enumerate() {
        if read_header(bytes).is_none() && is_end((*segment, 0)) {
            return;
        }
        let mut behind = HEADER;
        for Found { kind, payload, at, end } in records(Segment { log, number: *segment }, bytes) {
            if at != behind && is_end((*segment, behind)) {
                return;
            }
            behind = end;
            visit(*segment, kind, payload);
        }
        let next = used.get(place + 1).and_then(|(_, bytes)| read_header(bytes)).map(|header| header.before);
        if next.is_some_and(|(before, at)| before == *segment && behind < at as usize) && is_end((*segment, behind)) {
            return;
        }
    }
}

fn apply(kind: u8, payload: &[u8], jobs: &mut BTreeMap<u64, Job>) {
    let id = || number(payload, 0);
    match kind {
        b'P' | b'J' | b'p' | b'j' => {
            let (id, job) = Job::full(kind, payload);
            jobs.insert(id, job);
        }
        b'D' | b'V' => drop(jobs.remove(&id())),
        b'Z' | b'N' | b'C' | b'I' | b'S' | b'G' | b'Q' | b'E' | b'F' | b'Y' | b'H' => {}
        _ => drop(jobs.get_mut(&id()).map(|job| job.change(kind, payload))),
    }
}

/// Returns the last synced position that a segment records.
fn last_synced(segment: Segment, bytes: &[u8]) -> (u64, u64) {
    let header = read_header(bytes).map(|header| header.synced);
    let stated = records(segment, bytes).into_iter().filter_map(|found| match found.kind {
        b'S' | b'H' => Some((number(found.payload, 0), number(found.payload, 8))),
        b'C' => Some((segment.number, found.at as u64)),
        _ => None,
    });
    stated.chain(header).max().unwrap_or_default()
}
