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
pub const VERSION: u32 = 2;

/// What is said to be a later version is damage.
const MOST_VERSIONS: u32 = 1 << 16;

/// Bytes of a segment's header.
pub const HEADER: usize = 80;

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
    /// The oldest segment that is needed to read this one.
    pub oldest: u64,
    /// Everything before this place was synced.
    pub synced: Place,
    /// Ids up to this one may have been given.
    pub ids: u64,
}

/// What the first bytes of a file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// A header of this version.
    Header(Header),
    Version(u32),
    Nothing,
}

/// What a checksum begins with, so that a record of one segment, or of another log, is never taken for one of this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Key(u32);

impl Key {
    /// Of a segment of a log.
    pub fn new(log: u64, segment: u64) -> Key {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&log.to_le_bytes());
        hasher.update(&segment.to_le_bytes());
        Key(hasher.finalize())
    }

    /// What continues with the bytes that a checksum covers.
    pub fn hasher(self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial(self.0)
    }
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let Header { log, segment, before, oldest, synced, ids } = *self;
        let numbers = [log, segment, before.segment, before.at, oldest, synced.segment, synced.at, ids];
        for (number, bytes) in numbers.iter().zip(bytes[12..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        let check = crc32fast::hash(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&check.to_le_bytes());
        bytes
    }
}

impl Beginning {
    /// Of the first bytes of a file.
    pub fn read(bytes: &[u8]) -> Beginning {
        let Some(version) = bytes.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk::<4>()) else {
            return Beginning::Nothing;
        };
        let version = u32::from_le_bytes(*version);
        let ours = bytes.first_chunk::<HEADER>().filter(|bytes| {
            let mut bytes = **bytes;
            // A version that is damaged is not that of another program.
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            crc32fast::hash(&bytes[..HEADER - 4]).to_le_bytes() == bytes[HEADER - 4..]
        });
        let Some(bytes) = ours.filter(|_| version == VERSION) else {
            let other = version != VERSION && ours.is_none() && (1..MOST_VERSIONS).contains(&version);
            return if other { Beginning::Version(version) } else { Beginning::Nothing };
        };
        // A slice of eight bytes is an array of eight bytes.
        #[allow(clippy::expect_used)]
        #[expect(clippy::indexing_slicing, reason = "a header has room for its numbers")]
        let number = |place: usize| {
            let at = 12 + 8 * place;
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        let header = Header {
            log: number(0),
            segment: number(1),
            before: Place { segment: number(2), at: number(3) },
            oldest: number(4),
            synced: Place { segment: number(5), at: number(6) },
            ids: number(7),
        };
        // No server writes a segment that comes before the one in front of it, or that needs a later one.
        let is_sound = header.before.segment < header.segment && header.oldest <= header.segment;
        if is_sound {
            Beginning::Header(header)
        } else {
            Beginning::Nothing
        }
    }

    /// The header, if it is one.
    pub fn header(self) -> Option<Header> {
        if let Beginning::Header(header) = self {
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
    fn a_header_reads_back_unless_a_bit_of_it_is_flipped() {
        let place = |segment, at| Place { segment, at };
        let header = Header { log: 9, segment: 3, before: place(2, 77), oldest: 1, synced: place(2, 40), ids: 99 };
        let bytes = header.encode();
        assert_eq!(Beginning::read(&bytes), Beginning::Header(header));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Beginning::read(&damaged), Beginning::Nothing, "bit {bit}");
        }
        assert!((0..HEADER).all(|length| Beginning::read(&bytes[..length]) == Beginning::Nothing));
        for version in [1, 7] {
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
