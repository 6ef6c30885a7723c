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

/// A number of variable length, and what is behind it.
fn variable(bytes: &[u8]) -> (u64, &[u8]) {
    let length = 1 + bytes.iter().position(|byte| byte & 0x80 == 0).expect("a last byte");
    let number = bytes[..length].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    (number, &bytes[length..])
}

/// The id and the body of a full record.
fn job(kind: u8, payload: &[u8]) -> (u64, &[u8]) {
    let (id, mut rest) = variable(&payload[8..]);
    for _ in 0..3 {
        rest = variable(rest).1;
    }
    let (tube, rest) = variable(rest);
    let mut rest = &rest[tube as usize..];
    if kind == b'J' {
        rest = &rest[9..];
        for _ in 0..5 {
            rest = variable(rest).1;
        }
    }
    (id, rest)
}

/// The jobs that live by these segments, in order: their ids and bodies.
pub fn jobs(segments: &[(u64, Vec<u8>)]) -> BTreeMap<u64, Vec<u8>> {
    let mut jobs = BTreeMap::new();
    for (segment, bytes) in segments {
        for Found { kind, payload } in records(*segment, bytes) {
            let id = || number(payload, 0);
            match kind {
                b'P' | b'J' => {
                    let (id, body) = job(kind, payload);
                    jobs.insert(id, body.to_vec());
                }
                b'D' => drop(jobs.remove(&id())),
                _ => {}
            }
        }
    }
    jobs
}
