//! The format of a segment, read by another program: written after the manual page, not after the server's code.
//!
//! Owns a second opinion on what can be read in damaged bytes, and records that the server would never write.

use std::collections::BTreeMap;

/// Bytes of a segment's header.
pub const HEADER: usize = 40;

/// Bytes of a record before its payload.
const PREFIX: usize = 9;

/// A record that was found.
pub struct Found<'a> {
    pub kind: u8,
    pub payload: &'a [u8],
}

fn checksum(segment: u64, length: u32, rest: &[u8]) -> u32 {
    let mut bytes = segment.to_le_bytes().to_vec();
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(rest);
    crc32fast::hash(&bytes)
}

/// A record as it stands in a segment.
pub fn record(segment: u64, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut rest = vec![kind];
    rest.extend_from_slice(payload);
    let length = payload.len() as u32;
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&checksum(segment, length, &rest).to_le_bytes());
    bytes.extend_from_slice(&rest);
    bytes
}

/// A segment's header.
pub fn header(segment: u64, last_id: u64) -> Vec<u8> {
    let mut bytes = b"beanpole\x01\0\0\0".to_vec();
    bytes.extend_from_slice(&segment.to_le_bytes());
    bytes.extend_from_slice(&last_id.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Every record with a good checksum, wherever it stands.
pub fn records(segment: u64, bytes: &[u8]) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    let mut place = 0;
    while place + PREFIX <= bytes.len() {
        let word = |at: usize| u32::from_le_bytes(bytes[place + at..place + at + 4].try_into().expect("four bytes"));
        let end = place + PREFIX + word(0) as usize;
        let good =
            end <= bytes.len() && word(0) < 1 << 20 && checksum(segment, word(0), &bytes[place + 8..end]) == word(4);
        if good && bytes[place + 8] != 0 {
            found.push(Found { kind: bytes[place + 8], payload: &bytes[place + PREFIX..end] });
            place = end;
        } else {
            place += 1;
        }
    }
    found
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Bytes of terms before the names in them.
const TERMS: usize = 46;

fn short(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

/// A job as another program finds it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// As it was submitted.
    pub body: Vec<u8>,
    /// The ending, the unique's kind, and the unique's bytes; none without terms.
    pub terms: Option<(u8, u8, Vec<u8>)>,
    /// How long it lives, when that ends, and when it was to start.
    pub times: Option<[u64; 3]>,
    /// Most attempts, most failures, failures.
    pub limits: [u8; 3],
    /// What goes with it.
    pub reducer: Vec<u8>,
    /// Done or failed, and the result.
    pub outcome: Option<(bool, Vec<u8>)>,
    /// When its lease ends.
    pub leased: Option<u64>,
    /// How often it was reserved.
    pub reserves: u32,
}

/// A number of variable length, and what is behind it.
fn variable(bytes: &[u8]) -> (u64, &[u8]) {
    let length = 1 + bytes.iter().position(|byte| byte & 0x80 == 0).expect("a last byte");
    let number = bytes[..length].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    (number, &bytes[length..])
}

impl Job {
    /// From a full record, and its id.
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
        let (state, due) = (rest[0], number(rest, 1));
        let (reserves, behind) = variable(&rest[9..]);
        rest = behind;
        for _ in 0..4 {
            rest = variable(rest).1;
        }
        let mut job = Job::read(kind, rest);
        assert_eq!(state == b'f', job.outcome.is_some());
        job.leased = (state == b'l').then_some(due);
        job.reserves = reserves as u32;
        (id, job)
    }

    /// From the rest of a payload, behind what every job has.
    fn read(kind: u8, rest: &[u8]) -> Job {
        if kind.is_ascii_uppercase() {
            return Job { body: rest.to_vec(), ..Job::default() };
        }
        let (unique, reducer) = (short(rest, 42), short(rest, 44));
        let (unique, more) = rest[TERMS..].split_at(unique);
        let (reducer, body) = more.split_at(reducer);
        let result = u32::from_le_bytes(rest[38..42].try_into().expect("four bytes")) as usize;
        let (outcome, body) = match rest[2] {
            b'-' => (None, body),
            letter => (Some((letter == b'd', body[result..].to_vec())), &body[..result]),
        };
        Job {
            body: body.to_vec(),
            terms: Some((rest[0], rest[1], unique.to_vec())),
            times: Some([number(rest, 6), number(rest, 14), number(rest, 22)]),
            limits: [rest[3], rest[4], rest[5]],
            reducer: reducer.to_vec(),
            outcome,
            ..Job::default()
        }
    }

    /// A record of another kind.
    fn change(&mut self, kind: u8, payload: &[u8]) {
        if self.outcome.is_some() {
            return;
        }
        let count = || u32::from_le_bytes(payload[8..12].try_into().expect("four bytes"));
        self.leased = None;
        match kind {
            b'A' => (self.reserves, self.leased) = (count(), Some(number(payload, 12))),
            b'R' => self.reserves = count(),
            b'O' => {
                self.limits[2] = payload[9];
                let done = payload[8] == b'd';
                self.outcome = (payload[8] != b'-').then(|| (done, payload[10..].to_vec()));
            }
            _ => {}
        }
    }
}

/// The jobs that live by these segments, in order, by their ids.
pub fn jobs(segments: &[(u64, Vec<u8>)]) -> BTreeMap<u64, Job> {
    let mut jobs = BTreeMap::<u64, Job>::new();
    for (segment, bytes) in segments {
        for Found { kind, payload } in records(*segment, bytes) {
            let id = || number(payload, 0);
            match kind {
                b'P' | b'J' | b'p' | b'j' => {
                    let (id, job) = Job::full(kind, payload);
                    jobs.insert(id, job);
                }
                b'D' => drop(jobs.remove(&id())),
                b'Z' => {}
                _ => drop(jobs.get_mut(&id()).map(|job| job.change(kind, payload))),
            }
        }
    }
    jobs
}
