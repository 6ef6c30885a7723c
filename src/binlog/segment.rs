//! Segments, the files of the log: names and headers, to and from bytes. Pure.
//!
//! Owns the format of the header, which identifies the log of a segment and the place before it. beanpole-binlog(5)
//! describes it byte by byte and must be changed with it. Must not know records or files, and never trusts its input.

// Damaged input must not cause a panic; each exception is justified.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

/// The first bytes of every segment.
pub const MAGIC: &[u8; 8] = b"beanpole";

/// The version of the format.
pub const VERSION: u32 = 3;

/// A larger version number is damage.
const MOST_VERSIONS: u32 = 1 << 16;

/// Bytes of one copy of a header.
const COPY: usize = 96;

/// Bytes of a segment's header, which is stored twice, so that a single damaged byte cannot destroy it.
pub const HEADER: usize = 2 * COPY;

/// The subdirectory for damaged segments.
pub const ASIDE: &str = "damaged";

/// Numbers from this one on do not occur: reaching them takes centuries.
pub const NUMBERS: u64 = 1 << 31;

/// Numbers are assigned in order: one that exceeds its predecessor by more does not belong to the log.
pub const NEAR: u64 = 1 << 20;

/// Returns the file name of a segment.
pub fn segment_name(number: u64) -> String {
    format!("segment.{number:010}")
}

/// Returns the number of the segment with this file name.
pub fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("segment.")?.parse().ok()?;
    (number < NUMBERS && segment_name(number) == name).then_some(number)
}

/// A byte of the log; places are ordered as the log is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// The number of the segment.
    pub segment: u64,
    /// The offset in its file.
    pub at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The random number of the log, the same in all of its segments.
    pub log: u64,
    /// The number of the segment, which its file name contains as well.
    pub segment: u64,
    /// The end of the log when this segment was begun; segment 0 if the log was empty.
    pub before: Place,
    /// The segments before this one were not needed, and the record of that was durable.
    pub oldest: u64,
    /// Everything before this place was synced.
    pub synced: Place,
    /// The last ID that may have been assigned.
    pub ids: u64,
    /// A random number of the server process that began this segment.
    pub epoch: u64,
    /// The random number of the process that wrote the end of the log at `before`; 0 if it is unknown. It distinguishes
    /// two logs that continued from copies of one log.
    pub before_epoch: u64,
}

/// The result of decoding the first bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// A header of this version. `whole`: both copies are intact.
    Header {
        header: Header,
        whole: bool,
    },
    Version(u32),
    Nothing,
}

/// The initial value of checksums, which binds a record to one segment of one log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordKey(u32);

impl RecordKey {
    /// Returns the key of a segment.
    pub fn new(log: u64, segment: u64) -> RecordKey {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&log.to_le_bytes());
        hasher.update(&segment.to_le_bytes());
        RecordKey(hasher.finalize())
    }

    /// Returns a hasher that continues with the bytes that a checksum covers.
    pub fn hasher(self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial(self.0)
    }
}

impl Header {
    pub fn encode(&self) -> Vec<u8> {
        let mut copy = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let Header { log, segment, before, oldest, synced, ids, epoch, before_epoch } = *self;
        let places = [before.segment, before.at, oldest, synced.segment, synced.at];
        let numbers = [log, segment].into_iter().chain(places).chain([ids, epoch, before_epoch]);
        numbers.for_each(|number| copy.extend_from_slice(&number.to_le_bytes()));
        copy.extend_from_slice(&crc32fast::hash(&copy).to_le_bytes());
        copy.repeat(2)
    }

    /// Decodes one copy of a header; `None` if it is damaged.
    fn read(copy: &[u8]) -> Option<Header> {
        let (bytes, check) = copy.split_last_chunk::<4>()?;
        let numbers = bytes.strip_prefix(MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
        if copy.len() != COPY || crc32fast::hash(bytes).to_le_bytes() != *check {
            return None;
        }
        let mut numbers = numbers.chunks_exact(8).filter_map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let mut number = || numbers.next();
        let header = Header {
            log: number()?,
            segment: number()?,
            before: Place { segment: number()?, at: number()? },
            oldest: number()?,
            synced: Place { segment: number()?, at: number()? },
            ids: number()?,
            epoch: number()?,
            before_epoch: number()?,
        };
        // A segment never precedes its predecessor or depends on a later one.
        let is_sound = header.before.segment < header.segment && header.oldest <= header.segment;
        is_sound.then_some(header)
    }
}

impl Beginning {
    /// Decodes the first bytes of a file.
    pub fn read(bytes: &[u8]) -> Beginning {
        let copies = [bytes.get(..COPY), bytes.get(COPY..HEADER)].map(|copy| copy.and_then(Header::read));
        if let Some(header) = copies[0].or(copies[1]) {
            return Beginning::Header { header, whole: copies[0] == copies[1] };
        }
        let version = bytes.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk::<4>());
        match version.map(|version| u32::from_le_bytes(*version)) {
            Some(version) if version != VERSION && (1..MOST_VERSIONS).contains(&version) => Beginning::Version(version),
            _ => Beginning::Nothing,
        }
    }

    /// Returns the header, if there is one.
    pub fn header(self) -> Option<Header> {
        if let Beginning::Header { header, .. } = self {
            Some(header)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_whatever_byte_of_it_is_damaged() {
        let place = |segment, at| Place { segment, at };
        let header = Header {
            log: 9,
            segment: 3,
            before: place(2, 77),
            oldest: 1,
            synced: place(2, 40),
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
