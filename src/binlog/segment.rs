//! Segments, the files of the log: their names and headers, to and from bytes. Pure.
//!
//! Owns the format of the header, which says which log a segment belongs to and what must stand before it.
//! beanpole-binlog(5) describes it byte by byte and must be changed with it. Must not know records or files, and never
//! trusts what it reads.

// No byte of a file is a reason to stop: each exception has its proof.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

/// The first bytes of every segment.
pub const MAGIC: &[u8; 8] = b"beanpole";

/// The version of the format.
pub const VERSION: u32 = 3;

/// What is said to be a later version is damage.
const MOST_VERSIONS: u32 = 1 << 16;

/// Bytes of one copy of a header.
const COPY: usize = 96;

/// Bytes of a segment's header, which is stored twice, so that no single damaged byte takes it away.
pub const HEADER: usize = 2 * COPY;

/// The subfolder for what is kept and not used any more.
pub const ASIDE: &str = "damaged";

/// Numbers from this one on are not ours: it takes centuries to get there.
pub const NUMBERS: u64 = 1 << 31;

/// Numbers are given one after the other: one that is so much larger than that before it is not ours.
pub const NEAR: u64 = 1 << 20;

/// The name of a segment's file.
pub fn segment_name(number: u64) -> String {
    format!("segment.{number:010}")
}

/// The number of the segment in a file of this name.
pub fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("segment.")?.parse().ok()?;
    (number < NUMBERS && segment_name(number) == name).then_some(number)
}

/// A byte of the log. Places are in the order in which the log is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// The number of the segment.
    pub segment: u64,
    /// The offset in its file.
    pub at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The log: a random number, the same in all its segments.
    pub log: u64,
    /// The number of the segment, which is in its name as well.
    pub segment: u64,
    /// Where the log ended when this segment was begun; segment 0: there was none before.
    pub before: Place,
    /// The segments before this one were needed no longer, and that was safe on the disk.
    pub oldest: u64,
    /// Everything before this place was synced.
    pub synced: Place,
    /// Ids up to this one may have been given.
    pub ids: u64,
    /// A random number of the server process that began this segment.
    pub epoch: u64,
    /// The number of the process that wrote the end of the log at `before`; 0 if that is unknown. It tells apart two
    /// logs that continued from copies of one.
    pub before_epoch: u64,
}

/// What the first bytes of a file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// A header of this version. `whole`: both of its copies are intact.
    Header {
        header: Header,
        whole: bool,
    },
    Version(u32),
    Nothing,
}

/// What a checksum begins with, so that a record of one segment, or of another log, is never taken for one of this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordKey(u32);

impl RecordKey {
    /// Of a segment of a log.
    pub fn new(log: u64, segment: u64) -> RecordKey {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&log.to_le_bytes());
        hasher.update(&segment.to_le_bytes());
        RecordKey(hasher.finalize())
    }

    /// What continues with the bytes that a checksum covers.
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

    /// The header in one copy of it, if that is intact.
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
        // No server writes a segment that comes before the one in front of it, or that needs a later one.
        let is_sound = header.before.segment < header.segment && header.oldest <= header.segment;
        is_sound.then_some(header)
    }
}

impl Beginning {
    /// Of the first bytes of a file.
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

    /// The header, if it is one.
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
