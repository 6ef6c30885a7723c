//! Batches of records that wait to be written. A batch refers to large bodies instead of copying them, which saves
//! memory and keeps the time under the engine's lock short.

use std::sync::Arc;

use super::record::{encode, encode_head, seal, Record, LONG_PREFIX, PREFIX, SHORT_PAYLOAD};
use super::segment::{LogLocation, RecordKey};
use crate::engine::BodyRef;

/// Larger bodies are shared with the engine. Smaller ones are copied, because a copy is cheaper than a separate write.
const SHARE: usize = 16 * 1024;

#[derive(Clone, Debug)]
pub struct SharedTail {
    body: Arc<Box<[u8]>>,
    from: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Synced {
    pub location: LogLocation,
    /// The number of bytes that this process has appended before `location`.
    pub position: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The offset of the new segment's header in [`Bytes::own`], which does not contain shared bodies.
    pub at: usize,
    pub segment: u64,
}

#[derive(Debug, Default)]
pub struct Batch {
    pub segment: u64,
    /// Records, and a header at the start of each new segment.
    pub bytes: Bytes,
    pub cuts: Vec<Cut>,
    pub end: u64,
    /// A sync up to this position is required in every [`SyncMode`](super::writer::SyncMode).
    pub demanded: u64,
}

#[derive(Debug, Default)]
pub struct Bytes {
    /// The records, each without its shared tail.
    pub own: Vec<u8>,
    tails: Vec<TailEntry>,
    shared: usize,
}

#[derive(Clone, Debug)]
struct TailEntry {
    record: usize,
    /// The offset in [`Bytes::own`] where the tail belongs.
    at: usize,
    tail: SharedTail,
}

impl SharedTail {
    pub fn of(body: BodyRef, from: usize) -> Option<SharedTail> {
        let BodyRef::Large(body) = body else { return None };
        (body.len() - from > SHARE).then(|| SharedTail { body: body.clone(), from })
    }

    fn bytes(&self) -> &[u8] {
        &self.body[self.from..]
    }
}

impl Bytes {
    pub fn with(mut spare: Vec<u8>) -> Bytes {
        spare.clear();
        Bytes { own: spare, ..Bytes::default() }
    }

    pub fn len(&self) -> usize {
        self.own.len() + self.shared
    }

    /// Appends `record`, followed by `tail`. Returns their size. With a tail, [`Bytes::seal`] must be called later.
    pub fn append(&mut self, record: &Record, key: RecordKey, at: u64, tail: Option<SharedTail>) -> usize {
        let Some(tail) = tail else { return encode(record, key, at, &mut self.own) };
        let (position, length) = (self.own.len(), tail.bytes().len());
        let head = encode_head(record, length, &mut self.own);
        self.push(position, tail);
        head + length
    }

    fn push(&mut self, record: usize, tail: SharedTail) {
        self.shared += tail.bytes().len();
        self.tails.push(TailEntry { record, at: self.own.len(), tail });
    }

    /// Sets the checksums of records with shared tails. `start` is the offset in the segment where these `Bytes` begin.
    pub fn seal(&mut self, key: RecordKey, start: u64) {
        let mut shared = 0;
        for TailEntry { record, at, tail } in &self.tails {
            seal(key, start + (record + shared) as u64, &mut self.own[*record..*at], tail.bytes());
            shared += tail.bytes().len();
        }
    }

    pub fn can_append(&self, next: &Bytes, limit: usize) -> bool {
        self.shared + next.shared == 0 && self.own.len() + next.own.len() <= limit
    }

    /// Returns the records between the offsets `from` and `to`, which must be record boundaries in [`Bytes::own`].
    pub fn part(&self, from: usize, to: usize) -> Bytes {
        let mut part = Bytes { own: self.own[from..to].to_vec(), ..Bytes::default() };
        for entry in self.tails.iter().filter(|entry| (from..to).contains(&entry.record)) {
            part.shared += entry.tail.bytes().len();
            part.tails.push(TailEntry { record: entry.record - from, at: entry.at - from, tail: entry.tail.clone() });
        }
        part
    }

    /// Appends the records from offset `from` on, with new checksums, to `out`, which begins at `start` in the segment.
    pub fn recode(&self, from: usize, key: RecordKey, start: u64, out: &mut Bytes) {
        let mut tails = self.tails.iter().peekable();
        let mut at = from;
        while at < self.own.len() {
            let tail = tails.next_if(|entry| entry.record == at).map(|entry| entry.tail.clone());
            let length = u32::from_le_bytes(self.own[at..at + 4].try_into().expect("four bytes")) as usize;
            let prefix = if length > SHORT_PAYLOAD { LONG_PREFIX } else { PREFIX };
            let head = prefix + length - tail.as_ref().map_or(0, |tail| tail.bytes().len());
            let (position, offset) = (out.own.len(), start + out.len() as u64);
            out.own.extend_from_slice(&self.own[at..at + head]);
            seal(key, offset, &mut out.own[position..], tail.as_ref().map_or(&[], SharedTail::bytes));
            if let Some(tail) = tail {
                out.push(position, tail);
            }
            at += head;
        }
    }

    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.tails.iter().map(|entry| entry.at);
        let starts = std::iter::once(0).chain(ends.clone());
        let own = starts.zip(ends.chain([self.own.len()])).map(|(from, to)| &self.own[from..to]);
        let tails = self.tails.iter().map(|entry| entry.tail.bytes()).chain([&[][..]]);
        own.zip(tails).flat_map(|(own, tail)| [own, tail]).filter(|chunk| !chunk.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binlog::decode::RecordHead;
    use crate::engine::Body;

    const RESULT: &[u8] = &[7; SHARE * 2];

    const START: u64 = 1000;

    fn key(segment: u64) -> RecordKey {
        RecordKey::new(1, segment)
    }

    fn decode(segment: u64, at: u64, bytes: &[u8]) -> (Record<'_>, usize) {
        let head = RecordHead::read(key(segment), at, bytes, bytes.len() as u64).expect("a record");
        (head.record(&bytes[head.prefix..head.total()]).expect("a complete record"), head.total())
    }

    /// Returns two buffers with the same records: the first copies the job results, and the second shares them.
    fn samples(segment: u64) -> (Bytes, Bytes) {
        let body = Body::from([&[1; 100], RESULT].concat());
        let (mut plain, mut shared) = (Bytes::default(), Bytes::default());
        for id in 0..3 {
            let whole = Record::Outcome { id, done: Some(true), fails: 0, result: RESULT };
            let head = Record::Outcome { id, done: Some(true), fails: 0, result: &[] };
            let tail = SharedTail::of(body.borrow(), 100);
            assert!(tail.is_some());
            let at = START + plain.len() as u64;
            let taken = plain.append(&whole, key(segment), at, None);
            assert_eq!(taken, shared.append(&head, key(segment), at, tail));
            let at = at + taken as u64;
            plain.append(&Record::Delete(id), key(segment), at, None);
            shared.append(&Record::Delete(id), key(segment), at, None);
        }
        shared.seal(key(segment), START);
        (plain, shared)
    }

    fn all(bytes: &Bytes) -> Vec<u8> {
        bytes.chunks().collect::<Vec<_>>().concat()
    }

    #[test]
    fn shared_bodies_are_written_like_copied_ones() {
        let (plain, shared) = samples(5);
        assert_eq!((all(&plain), plain.len()), (all(&shared), shared.len()));
        assert!(shared.own.len() < 200 && shared.tails.iter().all(|entry| Arc::strong_count(&entry.tail.body) == 3));
        let bytes = all(&shared);
        let (record, length) = decode(5, START, &bytes);
        assert_eq!(record, Record::Outcome { id: 0, done: Some(true), fails: 0, result: RESULT });
        assert_eq!(decode(5, START + length as u64, &bytes[length..]).0, Record::Delete(0));
        let small = Body::from(vec![0; SHARE]);
        assert!(SharedTail::of(small.borrow(), 0).is_none());
    }

    #[test]
    fn parts_make_up_the_whole() {
        let (plain, shared) = samples(5);
        let mut positions: Vec<usize> = shared.tails.iter().flat_map(|entry| [entry.record, entry.at]).collect();
        positions.push(shared.own.len());
        for &position in &positions {
            let (front, back) = (shared.part(0, position), shared.part(position, shared.own.len()));
            assert_eq!(front.len() + back.len(), plain.len());
            assert_eq!([all(&front), all(&back)].concat(), all(&plain));
        }
    }

    #[test]
    fn records_are_recoded_for_another_segment() {
        let (plain, shared) = samples(5);
        let expected = all(&samples(6).1);
        for bytes in [plain, shared] {
            let mut out = Bytes::with(b"used before".to_vec());
            bytes.recode(0, key(6), START, &mut out);
            assert_eq!((all(&out), out.len()), (expected.clone(), expected.len()));
        }
    }
}
