//! Reading a segment back: pure.
//!
//! Owns the search for records in bytes that may be torn or damaged: every record with a good checksum is found, what lies
//! between is told. Must not trust the bytes: no input can make it panic, read too far or take memory.

use super::record::{decode, Header, Record, HEADER};

/// What was found in a segment beside its records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// The header, unless it is damaged.
    pub header: Option<Header>,
    /// Stretches, from and to, that are no records and have records behind them.
    pub damaged: Vec<(usize, usize)>,
    /// Where the last record ends.
    pub end: usize,
    /// Behind that, something else than zero bytes follows: a record that was never finished, or damage at the end.
    pub torn: bool,
}

/// Whether these are the bytes of a segment that was made ready and never used.
pub fn is_unused(bytes: &[u8]) -> bool {
    // A stretch at a time, since a loop that can end anywhere goes byte by byte.
    bytes.chunks(256).all(|stretch| stretch.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Whether this is segment `number` when it was just begun, and the power went off before its header was whole.
pub fn is_stillborn(number: u64, bytes: &[u8]) -> bool {
    let length = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let fixed = &Header { segment: number, last_id: 0 }.encode()[..20];
    let written = &bytes[..length.min(fixed.len())];
    length < HEADER && fixed.starts_with(written) && Header::decode(bytes).is_none()
}

/// Visits every intact record of segment `number`, in order.
pub fn scan<'a>(number: u64, bytes: &'a [u8], mut visit: impl FnMut(Record<'a>)) -> Scan {
    let header = Header::decode(bytes).filter(|header| header.segment == number);
    let start = if header.is_some() { HEADER } else { 0 };
    let mut scan = Scan { header, end: start, ..Scan::default() };
    let mut place = start;
    loop {
        while let Some((record, length)) = decode(number, &bytes[place..]) {
            visit(record);
            place += length;
            scan.end = place;
        }
        if is_unused(&bytes[place..]) {
            return scan;
        }
        let next = (place + 1..bytes.len()).find(|&place| decode(number, &bytes[place..]).is_some());
        let Some(next) = next else {
            scan.torn = true;
            return scan;
        };
        scan.damaged.push((place, next));
        place = next;
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::encode;
    use super::*;

    /// A segment with deletes of the jobs 0 to 9.
    fn segment() -> Vec<u8> {
        let mut bytes = Header { segment: 4, last_id: 10 }.encode().to_vec();
        (0..10).for_each(|id| {
            encode(&Record::Delete(id), 4, &mut bytes);
        });
        bytes
    }

    fn ids(bytes: &[u8]) -> (Vec<u64>, Scan) {
        let mut ids = Vec::new();
        let scan = scan(4, bytes, |record| match record {
            Record::Delete(id) => ids.push(id),
            other => panic!("{other:?} was never written"),
        });
        (ids, scan)
    }

    #[test]
    fn an_intact_segment_reads_whole_with_or_without_padding() {
        let mut bytes = segment();
        let length = bytes.len();
        bytes.resize(length + 1000, 0);
        for bytes in [&bytes[..length], &bytes] {
            let (found, scan) = ids(bytes);
            assert_eq!(found, (0..10).collect::<Vec<_>>());
            assert_eq!((scan.end, scan.torn, scan.damaged.len()), (length, false, 0));
            assert_eq!(scan.header.map(|header| header.last_id), Some(10));
        }
    }

    #[test]
    fn a_torn_tail_ends_it_wherever_it_is_torn() {
        let bytes = segment();
        for length in HEADER..bytes.len() {
            let (found, scan) = ids(&bytes[..length]);
            let whole = (length - HEADER) / 17;
            assert_eq!(found, (0..whole as u64).collect::<Vec<_>>());
            assert_eq!(scan.end, HEADER + whole * 17);
            assert!(scan.damaged.is_empty());
        }
    }

    #[test]
    fn any_damaged_byte_costs_one_record_at_most() {
        let bytes = segment();
        for place in 0..bytes.len() {
            for damage in [0x00, 0xff, b'D'] {
                let mut damaged = bytes.clone();
                if damaged[place] == damage {
                    continue;
                }
                damaged[place] = damage;
                let (found, scan) = ids(&damaged);
                let lost = place.checked_sub(HEADER).map(|place| (place / 17) as u64);
                assert_eq!(found, (0..10).filter(|id| Some(*id) != lost).collect::<Vec<_>>(), "byte {place}");
                assert_eq!(scan.damaged.len() + usize::from(scan.torn), 1, "byte {place}");
            }
        }
    }

    #[test]
    fn a_hole_of_zero_bytes_does_not_end_it() {
        let mut bytes = segment();
        bytes[HEADER + 17..HEADER + 5 * 17].fill(0);
        let (found, scan) = ids(&bytes);
        assert_eq!(found, [0, 5, 6, 7, 8, 9]);
        assert_eq!(scan.damaged.len(), 1);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm() {
        let mut state = 1u64;
        for round in 0..300 {
            let mut bytes = segment();
            for _ in 0..round {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let place = (state >> 33) as usize % bytes.len();
                bytes[place] = (state >> 20) as u8;
            }
            ids(&bytes);
            scan(9, &bytes, |_| panic!("a record of another segment"));
        }
    }
}
