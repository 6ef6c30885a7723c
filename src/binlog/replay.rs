//! Search for records in segments that may be incomplete or damaged. Must not trust the input: no input may cause a
//! panic, a read beyond the end, or a large allocation.
//! Enforces promise P18 of beanpole-promises(7).

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::{io, ops::Range};

use super::decode::{RecordHead, LOOK};
use super::record::Record;
use super::segment::RecordKey;
use crate::engine::Body;

/// Bytes that are read at a time. A longer record is read in two parts.
const WINDOW: usize = 1 << 20;
/// Maximum bytes of a record before the body. All names and keys have limited lengths.
const FRONT: usize = 256 << 10;

/// Reads bytes at an offset. Returns the number of bytes read, or 0 at the end.
pub type Source<'a> = &'a dyn Fn(u64, &mut [u8]) -> io::Result<usize>;

/// Reads until the end of `bytes` or of the source. Returns the number of bytes read.
pub fn fill(source: Source, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source(at + filled as u64, rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A record, or a gap between two offsets. At the second offset, a record begins. If a record exceeds the read window,
/// `body` is `Some`, and contains the body or result that `record` lacks.
// Only one value exists at a time, and values are never moved.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Scanned<'a> {
    Record { at: u64, record: Record<'a>, body: Option<Body> },
    Gap(u64, u64),
}

/// Returns `false` to end the scan.
pub type Visit<'a> = &'a mut dyn FnMut(Scanned) -> bool;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    pub at: u64,
    /// The offset after the last nonzero byte that the scan has read, or `at` if it has read only zeros from `at` on.
    pub used: u64,
}

struct Scan<'a> {
    source: Source<'a>,
    key: RecordKey,
    limit: u64,
    window: Vec<u8>,
    /// The offset of the window in the segment.
    start: u64,
}

pub fn scan(source: Source, key: RecordKey, range: Range<u64>, visit: Visit) -> io::Result<End> {
    let mut scan = Scan { source, key, limit: range.end, window: Vec::new(), start: 0 };
    let mut at = range.start;
    loop {
        let left = range.end.saturating_sub(at);
        let record = RecordHead::read(key, at, scan.bytes(at, LOOK)?, left);
        if let Some(head) = record {
            let next = at + head.total() as u64;
            match scan.visit(at, head, visit)? {
                Some(true) => {
                    at = next;
                    continue;
                }
                Some(false) => return Ok(End { at: next, used: next }),
                None => {}
            }
        }
        // If only the payload is damaged, continue the search after the record.
        let from = record.map_or(at + 1, |head| at + head.total() as u64);
        let (next, used) = scan.search(at, from)?;
        let Some(next) = next.filter(|next| visit(Scanned::Gap(at, *next))) else { return Ok(End { at, used }) };
        at = next;
    }
}

impl Scan<'_> {
    /// Returns at least `count` bytes, or fewer at the end of the range.
    fn bytes(&mut self, at: u64, count: usize) -> io::Result<&[u8]> {
        let count = count.min((self.limit.saturating_sub(at)) as usize);
        if count == 0 {
            return Ok(&[]);
        }
        let position = at.wrapping_sub(self.start) as usize;
        if at < self.start || position + count > self.window.len() {
            let wanted = count.max(WINDOW).min(self.limit.saturating_sub(at) as usize);
            self.start = at;
            self.window.resize(wanted, 0);
            let filled = fill(self.source, at, &mut self.window)?;
            self.window.truncate(filled);
        }
        let position = (at - self.start) as usize;
        Ok(self.window.get(position..).unwrap_or_default())
    }

    /// Returns `None` if the payload is damaged.
    fn visit(&mut self, at: u64, head: RecordHead, visit: Visit) -> io::Result<Option<bool>> {
        if head.total() > WINDOW {
            return self.visit_large(at, head, visit);
        }
        let bytes = self.bytes(at, head.total())?;
        let record = bytes.get(head.prefix..head.total()).and_then(|payload| head.record(payload));
        Ok(record.map(|record| visit(Scanned::Record { at, record, body: None })))
    }

    fn visit_large(&mut self, at: u64, head: RecordHead, visit: Visit) -> io::Result<Option<bool>> {
        let bytes = self.bytes(at, head.prefix + FRONT)?;
        let Some(front) = bytes.get(head.prefix..head.prefix + FRONT) else { return Ok(None) };
        let Some(record) = head.record_with_tail(front) else { return Ok(None) };
        let content = match &record {
            Record::Put(job) | Record::Snapshot(job) | Record::Run(.., job) => job.body.len(),
            Record::Outcome { result, .. } => result.len(),
            _ => return Ok(None),
        };
        let Some(front) = front.get(..FRONT - content).map(<[u8]>::to_vec) else { return Ok(None) };
        let length = head.length - front.len();
        let mut body = Vec::new();
        body.try_reserve_exact(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        body.resize(length, 0);
        if fill(self.source, at + (head.prefix + front.len()) as u64, &mut body)? < length {
            return Ok(None);
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&front);
        hasher.update(&body);
        if !head.fits(hasher.finalize()) {
            return Ok(None);
        }
        // `front` does not contain the body or result, so this field of the decoded record is empty.
        let Some(record) = head.record_with_tail(&front) else { return Ok(None) };
        Ok(Some(visit(Scanned::Record { at, record, body: Some(Body::from(body)) })))
    }

    /// Finds the first record at or after `from`. Returns the offset of the record, and the value of [`End::used`].
    fn search(&mut self, at: u64, from: u64) -> io::Result<(Option<u64>, u64)> {
        let (key, limit) = (self.key, self.limit);
        let (mut position, mut used) = (at, at);
        while position < limit {
            let bytes = self.bytes(position, LOOK)?;
            if bytes.is_empty() {
                break;
            }
            // A head may continue in the next window, so leave the last bytes to that window unless the segment ends.
            let whole =
                if position + bytes.len() as u64 == limit { bytes.len() } else { bytes.len().max(LOOK) - LOOK + 1 };
            let mut offset = 0;
            while offset < whole {
                let here = position + offset as u64;
                let rest = bytes.get(offset..).unwrap_or_default();
                if rest.first().is_some_and(|byte| *byte != 0) {
                    used = here + 1;
                } else if let Some(chunk) = rest.get(..64) {
                    // The last eight zero bytes may belong to a head, whose ninth byte is never zero.
                    if chunk.iter().fold(0, |all, byte| all | byte) == 0 {
                        offset += 56;
                        continue;
                    }
                }
                if here >= from && RecordHead::read(key, here, rest, limit - here).is_some() {
                    return Ok((Some(here), used));
                }
                offset += 1;
            }
            position += offset as u64;
        }
        Ok((None, used.min(limit)))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::record::{encode, PREFIX, SETTINGS};
    use super::super::segment::HEADER;
    use super::*;
    use crate::engine::TubeSettings;

    const START: u64 = HEADER as u64;

    fn key() -> RecordKey {
        RecordKey::new(7, 4)
    }

    fn append(record: &Record, bytes: &mut Vec<u8>) {
        let at = bytes.len() as u64;
        encode(record, key(), at, bytes);
    }

    fn read(source: &[u8], at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut source.get(at as usize..).unwrap_or_default(), bytes)
    }

    #[test]
    fn short_and_interrupted_reads_are_continued() {
        let mut bytes = [0; 8];
        let fails = Cell::new(true);
        let source = |at, bytes: &mut [u8]| {
            if fails.replace(!fails.get()) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = bytes.len().min(1);
            read(b"0123456789", at, &mut bytes[..count])
        };
        assert_eq!((fill(&source, 1, &mut bytes).expect("bytes"), &bytes), (8, b"12345678"));
        assert_eq!((fill(&source, 5, &mut bytes).expect("bytes"), &bytes[..5]), (5, &b"56789"[..]));
    }

    fn segment() -> Vec<u8> {
        let mut bytes = vec![1; HEADER];
        (0..10).for_each(|id| append(&Record::Delete(id), &mut bytes));
        bytes
    }

    fn ids(bytes: &[u8]) -> (Vec<u64>, Vec<(u64, u64)>, End) {
        let (mut ids, mut gaps) = (Vec::new(), Vec::new());
        let range = START..bytes.len() as u64;
        let end = scan(&|at, out| read(bytes, at, out), key(), range, &mut |found| {
            match found {
                Scanned::Record { record: Record::Delete(id), .. } => ids.push(id),
                Scanned::Record { record, .. } => panic!("{record:?} was never written"),
                Scanned::Gap(from, to) => gaps.push((from, to)),
            }
            true
        });
        (ids, gaps, end.expect("memory can be read"))
    }

    #[test]
    fn an_intact_segment_is_read_completely_with_or_without_trailing_zeros() {
        let mut bytes = segment();
        let length = bytes.len();
        bytes.resize(length + 1000, 0);
        for bytes in [&bytes[..length], &bytes] {
            let (found, gaps, end) = ids(bytes);
            assert_eq!(found, (0..10).collect::<Vec<_>>());
            assert_eq!((end.at, end.used, gaps.len()), (length as u64, length as u64, 0));
        }
    }

    #[test]
    fn a_torn_tail_ends_the_scan() {
        let bytes = segment();
        for length in HEADER..bytes.len() {
            let (found, gaps, end) = ids(&bytes[..length]);
            let whole = (length - HEADER) / 17;
            assert_eq!(found, (0..whole as u64).collect::<Vec<_>>());
            assert_eq!(end.at, (HEADER + whole * 17) as u64);
            assert!(gaps.is_empty());
        }
    }

    #[test]
    fn a_torn_record_after_a_gap_is_no_record() {
        let mut bytes = segment();
        let at = bytes.len() as u64;
        bytes.resize(bytes.len() + 10, 0xff);
        append(&Record::Outcome { id: 1, done: Some(true), fails: 0, result: &[b'r'; 100] }, &mut bytes);
        bytes.pop();
        let end = End { at, used: bytes.len() as u64 };
        assert_eq!(ids(&bytes), ((0..10).collect(), vec![], end));
    }

    #[test]
    fn any_damaged_byte_costs_one_record_and_is_reported() {
        let bytes = segment();
        for position in HEADER..bytes.len() {
            for damage in [0x00, 0xff, b'D'] {
                let mut damaged = bytes.clone();
                if damaged[position] == damage {
                    continue;
                }
                damaged[position] = damage;
                let (found, gaps, end) = ids(&damaged);
                let lost = (position - HEADER) as u64 / 17;
                assert_eq!(found, (0..10).filter(|id| *id != lost).collect::<Vec<_>>(), "byte {position}");
                let from = START + lost * 17;
                let expected = if lost < 9 { vec![(from, from + 17)] } else { vec![] };
                assert_eq!(gaps, expected, "byte {position}");
                assert_eq!(end.used > end.at, lost == 9, "byte {position}");
            }
        }
    }

    #[test]
    fn a_gap_of_zero_bytes_is_reported() {
        let mut bytes = segment();
        bytes[HEADER + 17..HEADER + 5 * 17].fill(0);
        let (found, gaps, _) = ids(&bytes);
        assert_eq!(found, [0, 5, 6, 7, 8, 9]);
        assert_eq!(gaps, [(START + 17, START + 85)]);
    }

    /// A head that crosses the end of the window is found in the next window. The test uses a head of maximum size.
    #[test]
    fn no_record_after_a_gap_at_the_end_of_the_window_is_lost() {
        let settings = TubeSettings { max: 1, ..TubeSettings::default() };
        let longest = Record::Settings { tube: &[b't'; LOOK - PREFIX - SETTINGS], settings };
        for (less, before) in
            (0..4).flat_map(|less| [0, 1, 8, 9, 10, LOOK - 2, LOOK - 1, LOOK].map(|before| (less, before)))
        {
            let mut bytes = vec![1; HEADER];
            let result = vec![b'r'; WINDOW - 1000 - less];
            append(&Record::Outcome { id: 1, done: Some(true), fails: 0, result: &result }, &mut bytes);
            let from = bytes.len() as u64;
            bytes.resize(HEADER + WINDOW - before, 0xff);
            let to = bytes.len() as u64;
            append(&longest, &mut bytes);
            let behind = bytes.len() as u64;
            append(&Record::Delete(1), &mut bytes);
            bytes.resize(HEADER + WINDOW + 3000, 0);
            let (mut positions, mut gaps) = (Vec::new(), Vec::new());
            let range = START..bytes.len() as u64;
            scan(&|at, out| read(&bytes, at, out), key(), range, &mut |found| {
                match found {
                    Scanned::Record { at, .. } => positions.push(at),
                    Scanned::Gap(from, to) => gaps.push((from, to)),
                }
                true
            })
            .expect("memory can be read");
            assert_eq!((positions, gaps), (vec![START, to, behind], vec![(from, to)]), "{before} bytes before its end");
        }
    }

    #[test]
    fn a_scan_stops_on_request() {
        let mut count = 0;
        let bytes = segment();
        let range = START..bytes.len() as u64;
        let end = scan(&|at, out| read(&bytes, at, out), key(), range, &mut |_| {
            count += 1;
            count < 3
        });
        assert_eq!((end.expect("memory").at, count), (START + 3 * 17, 3));
    }

    /// Tests bodies that are shorter and longer than the read window.
    #[test]
    fn large_bodies_are_restored_unless_damaged() {
        use crate::engine::{History, JobId, Span, State, StoredJob, Time};
        fn job(body: &[u8]) -> StoredJob<'_> {
            StoredJob {
                id: JobId(3),
                created: Time::from_nanos(1),
                pri: 0,
                delay: Span::ZERO,
                ttr: Span::from_secs(1),
                tube: b"t",
                body,
                state: State::Ready,
                due: Time::from_nanos(1),
                fails: 0,
                dead_from: None,
                history: History::default(),
                options: None,
            }
        }
        for length in [100, WINDOW - 100, WINDOW, 3 * WINDOW + 5] {
            let body: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let mut bytes = vec![1; HEADER];
            append(&Record::Delete(1), &mut bytes);
            append(&Record::Put(job(&body)), &mut bytes);
            append(&Record::Delete(2), &mut bytes);
            for damaged in [false, true] {
                let position = bytes.len() - 30;
                bytes[position] ^= u8::from(damaged);
                let (mut bodies, mut deletes, mut gaps) = (0, 0, 0);
                let range = START..bytes.len() as u64;
                let end = scan(&|at, out| read(&bytes, at, out), key(), range, &mut |found| {
                    match found {
                        Scanned::Record { record: Record::Put(job), body: large, .. } => {
                            let found = large.as_ref().map_or(job.body, |body| body.bytes());
                            assert!(found == body, "{length} bytes");
                            assert_eq!(large.is_some(), length >= WINDOW);
                            bodies += 1;
                        }
                        Scanned::Record { .. } => deletes += 1,
                        Scanned::Gap(..) => gaps += 1,
                    }
                    true
                });
                assert_eq!((bodies, deletes, gaps), (usize::from(!damaged), 2, usize::from(damaged)));
                assert_eq!(end.expect("memory").at, bytes.len() as u64);
            }
        }
    }

    /// Recovery must not be slow if a hostile body contains the beginnings of many long records.
    #[test]
    fn hostile_bytes_are_read_a_few_times_at_most() {
        let fake = [0x50, 0x50, 0x90, 0x00];
        for pattern in
            [&fake[..], &[b'P'; 4], b"PJ\0\0\0\0\0\0", &[0x50, 0, 0, 0, 1, 2, 3, 4, b'D'], b"\0\0\0\0\0\0\0\0R"]
        {
            let mut bytes = segment();
            bytes.extend(pattern.iter().cycle().take(4 << 20));
            let at = bytes.len() as u64;
            encode(&Record::Delete(10), key(), at, &mut bytes);
            let counted = Cell::new(0);
            let source = |at, out: &mut [u8]| {
                let count = read(&bytes, at, out)?;
                counted.set(counted.get() + count);
                Ok(count)
            };
            let mut gaps = Vec::new();
            let range = START..bytes.len() as u64;
            let end = scan(&source, key(), range, &mut |found| {
                if let Scanned::Gap(from, to) = found {
                    gaps.push((from, to));
                }
                true
            });
            assert_eq!(end.expect("memory").at, bytes.len() as u64);
            assert_eq!(gaps, [(START + 170, at)]);
            let (read, length) = (counted.get() as u64, bytes.len() as u64);
            println!("{length} bytes, most of them {pattern:?}: {read} were read");
            assert!(read < 2 * length, "{read} bytes were read");
        }
    }

    // Tests promise P24 of beanpole-promises(7).
    #[test]
    fn arbitrary_bytes_do_no_harm() {
        let mut state = 1u64;
        for round in 0..300 {
            let mut bytes = segment();
            for _ in 0..round {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let position = (state >> 33) as usize % bytes.len();
                bytes[position] = (state >> 20) as u8;
            }
            ids(&bytes);
            let range = START..bytes.len() as u64;
            let other = RecordKey::new(7, 9);
            let end = scan(&|at, out| read(&bytes, at, out), other, range, &mut |found| {
                panic!("{found:?} of another segment")
            });
            assert_eq!(end.expect("memory").at, START);
        }
    }
}
