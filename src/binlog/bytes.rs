//! Bytes on their way to the disk.
//!
//! Owns a stretch of the log in which large bodies are shared with the queue: under the engine's lock nothing is copied but
//! what stands in front of them, and each is in memory once. Their checksums are left to whoever writes. Must not know
//! segments or files.

use std::sync::Arc;

use super::record::{encode, encode_head, seal, Record, PREFIX};
use crate::engine::BodyRef;

/// The ends of records longer than this are shared: a copy of so much takes about as long as a write of its own.
const SHARE: usize = 16 * 1024;

/// The end of a record: the bytes of a body from `from` on.
#[derive(Clone, Debug)]
pub struct Tail {
    body: Arc<Box<[u8]>>,
    from: usize,
}

/// See the module's page.
#[derive(Debug, Default)]
pub struct Bytes {
    /// Everything but the tails.
    own: Vec<u8>,
    tails: Vec<Placed>,
    /// Bytes of all tails.
    shared: usize,
}

#[derive(Clone, Debug)]
struct Placed {
    /// Where in [`Bytes::own`] its record begins, and where it belongs.
    record: usize,
    at: usize,
    tail: Tail,
}

impl Tail {
    /// Of a body, if the bytes from `from` on are many and can be shared.
    pub fn of(body: BodyRef, from: usize) -> Option<Tail> {
        match body {
            BodyRef::Large(body) if body.len() - from > SHARE => Some(Tail { body: body.clone(), from }),
            _ => None,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.body[self.from..]
    }
}

impl Bytes {
    /// None yet, with memory that was used before.
    pub fn with(mut spare: Vec<u8>) -> Bytes {
        spare.clear();
        Bytes { own: spare, ..Bytes::default() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.own.len() + self.shared
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// How many of them are not shared. As a place, it stays what it is when more is appended.
    pub fn place(&self) -> usize {
        self.own.len()
    }

    /// Whether they begin like this.
    pub fn starts_with(&self, bytes: &[u8]) -> bool {
        self.own.starts_with(bytes)
    }

    /// Appends bytes as they are.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
    }

    /// Appends a record of `segment`, whose last bytes are `tail` and not in `record`, if there is one. With a tail, the
    /// record must be sealed; see [`Bytes::seal`]. Tells how many bytes it took.
    pub fn append(&mut self, record: &Record, segment: u64, tail: Option<Tail>) -> usize {
        let Some(tail) = tail else { return encode(record, segment, &mut self.own) };
        let (place, length) = (self.own.len(), tail.bytes().len());
        let head = encode_head(record, length, &mut self.own);
        self.push(place, tail);
        head + length
    }

    fn push(&mut self, record: usize, tail: Tail) {
        self.shared += tail.bytes().len();
        self.tails.push(Placed { record, at: self.own.len(), tail });
    }

    /// Fills in the checksums of records with tails: records of `segment`.
    pub fn seal(&mut self, segment: u64) {
        for Placed { record, at, tail } in &self.tails {
            seal(segment, &mut self.own[*record..*at], tail.bytes());
        }
    }

    /// A part of them, between two places where records begin or end.
    pub fn part(&self, from: usize, to: usize) -> Bytes {
        let mut part = Bytes { own: self.own[from..to].to_vec(), ..Bytes::default() };
        for placed in self.tails.iter().filter(|placed| (from..to).contains(&placed.record)) {
            part.shared += placed.tail.bytes().len();
            part.tails.push(Placed { record: placed.record - from, at: placed.at - from, tail: placed.tail.clone() });
        }
        part
    }

    /// Appends all records from a place on as records of another segment, complete with their checksums.
    pub fn recode(&self, from: usize, segment: u64, out: &mut Bytes) {
        let mut tails = self.tails.iter().peekable();
        let mut at = from;
        while at < self.own.len() {
            let tail = tails.next_if(|placed| placed.record == at).map(|placed| placed.tail.clone());
            let length = u32::from_le_bytes(self.own[at..at + 4].try_into().expect("four bytes")) as usize;
            let head = PREFIX + length - tail.as_ref().map_or(0, |tail| tail.bytes().len());
            let place = out.own.len();
            out.own.extend_from_slice(&self.own[at..at + head]);
            seal(segment, &mut out.own[place..], tail.as_ref().map_or(&[], Tail::bytes));
            if let Some(tail) = tail {
                out.push(place, tail);
            }
            at += head;
        }
    }

    /// All of them, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.tails.iter().map(|placed| placed.at);
        let starts = std::iter::once(0).chain(ends.clone());
        let own = starts.zip(ends.chain([self.own.len()])).map(|(from, to)| &self.own[from..to]);
        let tails = self.tails.iter().map(|placed| placed.tail.bytes()).chain([&[][..]]);
        own.zip(tails).flat_map(|(own, tail)| [own, tail]).filter(|chunk| !chunk.is_empty())
    }

    /// The memory of what is not shared, to be used again.
    pub fn into_spare(self) -> Vec<u8> {
        self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binlog::record::decode;
    use crate::engine::Body;

    const RESULT: &[u8] = &[7; SHARE * 2];

    /// An outcome whose result is the end of a body, with and without sharing it, between records that share nothing.
    fn samples(segment: u64) -> (Bytes, Bytes) {
        let body = Body::from([&[1; 100], RESULT].concat());
        let (mut plain, mut shared) = (Bytes::default(), Bytes::default());
        for id in 0..3 {
            let whole = Record::Outcome { id, done: Some(true), fails: 0, result: RESULT };
            let head = Record::Outcome { id, done: Some(true), fails: 0, result: &[] };
            let tail = Tail::of(body.borrow(), 100);
            assert!(tail.is_some());
            assert_eq!(plain.append(&whole, segment, None), shared.append(&head, segment, tail));
            plain.append(&Record::Delete(id), segment, None);
            shared.append(&Record::Delete(id), segment, None);
        }
        shared.seal(segment);
        (plain, shared)
    }

    fn all(bytes: &Bytes) -> Vec<u8> {
        bytes.chunks().collect::<Vec<_>>().concat()
    }

    #[test]
    fn what_is_shared_is_written_like_what_is_not() {
        let (plain, shared) = samples(5);
        assert_eq!((all(&plain), plain.len()), (all(&shared), shared.len()));
        assert!(shared.place() < 200 && shared.tails.iter().all(|placed| Arc::strong_count(&placed.tail.body) == 3));
        let bytes = all(&shared);
        let (record, length) = decode(5, &bytes).expect("a record");
        assert_eq!(record, Record::Outcome { id: 0, done: Some(true), fails: 0, result: RESULT });
        assert_eq!(decode(5, &bytes[length..]).expect("a record").0, Record::Delete(0));
        let small = Body::from(vec![0; SHARE]);
        assert!(Tail::of(small.borrow(), 0).is_none());
    }

    #[test]
    fn parts_make_up_the_whole() {
        let (plain, shared) = samples(5);
        let mut places: Vec<usize> = shared.tails.iter().flat_map(|placed| [placed.record, placed.at]).collect();
        places.push(shared.place());
        for &place in &places {
            let (front, back) = (shared.part(0, place), shared.part(place, shared.place()));
            assert_eq!(front.len() + back.len(), plain.len());
            assert_eq!([all(&front), all(&back)].concat(), all(&plain));
        }
    }

    #[test]
    fn records_of_one_segment_become_those_of_another() {
        let (plain, shared) = samples(5);
        let expected = all(&samples(6).1);
        for bytes in [plain, shared] {
            let mut out = Bytes::with(b"used before".to_vec());
            bytes.recode(0, 6, &mut out);
            assert_eq!((all(&out), out.len()), (expected.clone(), expected.len()));
        }
    }
}
