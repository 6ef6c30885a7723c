//! Names and headers of segment files. beanpole-binlog(5) describes the header byte by byte, and must be changed
//! together with this file. Must not trust the input.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub use super::fields::LogLocation;
use super::fields::{Field, Fields};

pub const MAGIC: &[u8; 8] = b"beanpole";
pub const VERSION: u32 = 3;
/// Version numbers from this limit on are treated as damage.
const VERSION_LIMIT: u32 = 1 << 16;
const COPY: usize = 96;
/// A segment starts with two copies of the header, so that one copy survives a damaged byte.
pub const HEADER: usize = 2 * COPY;
pub const ASIDE: &str = "damaged";
/// Segment numbers reach this limit only after centuries.
pub const NUMBER_LIMIT: u64 = 1 << 31;
/// A file whose number exceeds the newest number by this much does not belong to the log.
pub const MAX_NUMBER_GAP: u64 = 1 << 20;

pub fn segment_name(number: u64) -> String {
    format!("segment.{number:010}")
}

pub fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("segment.")?.parse().ok()?;
    (number < NUMBER_LIMIT && segment_name(number) == name).then_some(number)
}

pub fn numbers_in(names: &[String], parse: fn(&str) -> Option<u64>) -> Vec<u64> {
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse(name)).collect();
    numbers.sort_unstable();
    numbers
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    pub log_id: u64,
    pub segment: u64,
    /// The end of the log before this segment. `before.segment` is 0 if the log was empty.
    pub before: LogLocation,
    /// The oldest segment that the durable part of the log needed when the header was written.
    pub oldest: u64,
    pub synced: LogLocation,
    pub ids: u64,
    pub epoch: u64,
    /// The last epoch before this segment, or 0 if unknown. Shows whether two servers each continued a copy of one log.
    pub before_epoch: u64,
}

/// `whole` is `true` if both copies of the header are intact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    Header { header: Header, whole: bool },
    Version(u32),
    Nothing,
}

/// The initial value of a segment's checksums. A record that is copied to another segment or log fails the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordKey(u32);

impl RecordKey {
    pub fn new(log_id: u64, segment: u64) -> RecordKey {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&log_id.to_le_bytes());
        hasher.update(&segment.to_le_bytes());
        RecordKey(hasher.finalize())
    }

    pub fn hasher(self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial(self.0)
    }
}

impl Header {
    pub fn encode(&self) -> Vec<u8> {
        let mut copy = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let Header { log_id, segment, before, oldest, synced, ids, epoch, before_epoch } = *self;
        (log_id, segment, before, oldest, synced).write(&mut copy);
        (ids, epoch, before_epoch).write(&mut copy);
        copy.extend_from_slice(&crc32fast::hash(&copy).to_le_bytes());
        copy.repeat(2)
    }

    fn read(copy: &[u8]) -> Option<Header> {
        let (bytes, check) = copy.split_last_chunk::<4>()?;
        let numbers = bytes.strip_prefix(MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
        if copy.len() != COPY || crc32fast::hash(bytes).to_le_bytes() != *check {
            return None;
        }
        let mut fields = Fields(numbers);
        let (log_id, segment, before, oldest, synced) = fields.read()?;
        let (ids, epoch, before_epoch) = fields.read()?;
        let header = Header { log_id, segment, before, oldest, synced, ids, epoch, before_epoch };
        let is_sound = header.before.segment < header.segment && header.oldest <= header.segment;
        is_sound.then_some(header)
    }
}

impl Beginning {
    pub fn read(bytes: &[u8]) -> Beginning {
        let copies = [bytes.get(..COPY), bytes.get(COPY..HEADER)].map(|copy| copy.and_then(Header::read));
        if let Some(header) = copies[0].or(copies[1]) {
            return Beginning::Header { header, whole: copies[0] == copies[1] };
        }
        let version = |at| Some(u32::from_le_bytes(*bytes.get(at..)?.strip_prefix(MAGIC)?.first_chunk()?));
        match version(0).filter(|_| version(COPY) != Some(VERSION)) {
            Some(version) if version != VERSION && (1..VERSION_LIMIT).contains(&version) => Beginning::Version(version),
            // If the second copy has the current version, both copies are damaged, whatever version the first one has.
            _ => Beginning::Nothing,
        }
    }

    pub fn header(self) -> Option<Header> {
        let Beginning::Header { header, .. } = self else { return None };
        Some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_whatever_byte_of_it_is_damaged() {
        let location = |segment, at| LogLocation { segment, at };
        let header = Header {
            log_id: 9,
            segment: 3,
            before: location(2, 77),
            oldest: 1,
            synced: location(2, 40),
            ids: 99,
            epoch: 5,
            before_epoch: 4,
        };
        let bytes = header.encode();
        assert_eq!(Beginning::read(&bytes), Beginning::Header { header, whole: true });
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Beginning::read(&damaged), Beginning::Header { header, whole: false }, "bit {bit}");
            damaged[(bit / 8 + COPY) % HEADER] ^= 1;
            let is_version = (8..12).contains(&(bit / 8 % COPY));
            assert!(Beginning::read(&damaged).header().is_none(), "bit {bit} in both");
            assert!(is_version || Beginning::read(&damaged) == Beginning::Nothing, "bit {bit} in both");
            damaged = bytes.clone();
            (damaged[8], damaged[COPY + 12 + bit / 8 % (COPY - 12)]) = (7, 0xa5);
            assert_eq!(Beginning::read(&damaged), Beginning::Nothing, "the version and another byte");
        }
        for length in 0..HEADER {
            let expected = if length < COPY { Beginning::Nothing } else { Beginning::Header { header, whole: false } };
            assert_eq!(Beginning::read(&bytes[..length]), expected);
        }
        for version in [1, 2, 7] {
            let other = [&b"beanpole"[..], &[version, 0, 0, 0], b" whatever"].concat();
            assert_eq!(Beginning::read(&other), Beginning::Version(version.into()));
        }
    }

    #[test]
    fn names_have_ten_digits() {
        assert_eq!(segment_name(7), "segment.0000000007");
        assert_eq!(segment_number("segment.0000000007"), Some(7));
        for name in ["segment.7", "segment.00000000007", "segment.2147483648", "segment.", "other.0000000007"] {
            assert_eq!(segment_number(name), None, "{name}");
        }
    }
}
