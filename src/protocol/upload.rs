//! Data of a known size that arrives in parts, such as the body of a job. Large bodies are read from the socket
//! directly into their final memory. Data that are refused or exceed the available memory are skipped.

use super::text::{past, upto};
use crate::engine::{Body, Fingerprint, Fingerprinting, Fingerprints};

/// The maximum number of bytes that [`Upload::gap`] initializes at a time.
const WINDOW: usize = 64 * 1024;
const FIRST_ALLOCATION: usize = 4 * 1024;

/// Allocates memory as bytes arrive, not for the announced size. If memory is exhausted, the data are skipped.
#[derive(Debug)]
pub struct Upload {
    /// The received bytes, and initialized space for more. Empty if the body was dropped.
    bytes: Vec<u8>,
    size: u64,
    filled: u64,
    is_dropped: bool,
    /// Hashing a large body at once would delay other clients, so each part is hashed when it arrives.
    fingerprint: Option<Box<Fingerprinting>>,
}

impl Upload {
    /// Returns `None` if `size` exceeds `room`, the number of available bytes.
    pub fn begin(size: usize, room: u64) -> Option<Upload> {
        (size as u64 <= room).then(|| Upload { is_dropped: false, ..Upload::skip(size as u64) })
    }

    pub fn skip(size: u64) -> Upload {
        Upload { bytes: Vec::new(), size, filled: 0, is_dropped: true, fingerprint: None }
    }

    pub fn with_fingerprint(mut self, fingerprints: Fingerprints) -> Upload {
        self.fingerprint = Some(fingerprints.begin().into());
        self
    }

    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint.as_ref().map(|fingerprint| fingerprint.finish())
    }

    pub fn footprint(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    pub fn kept(&mut self) -> Option<&mut Upload> {
        (!self.is_dropped).then_some(self)
    }

    /// Doubles the capacity up to the size of the data. Drops the data if an allocation exceeds `room` or fails.
    fn reserve(&mut self, more: usize, room: u64) {
        let capacity = self.bytes.capacity();
        let needed = (self.filled + more as u64).min(self.size) as usize;
        if needed <= capacity || self.is_dropped {
            return;
        }
        let size = needed.max(capacity * 2).max(FIRST_ALLOCATION).min(self.size as usize);
        let has_room = (size - capacity) as u64 <= room;
        if !has_room || self.bytes.try_reserve_exact(size - self.bytes.len()).is_err() {
            self.bytes = Vec::new();
            self.is_dropped = true;
        }
    }

    /// Returns `None` if the body is complete or was dropped. Otherwise, the caller must call [`Upload::filled`] next.
    pub fn gap(&mut self, room: u64) -> Option<&mut [u8]> {
        let filled = self.filled as usize;
        if self.filled < self.size && filled == self.bytes.len() {
            self.reserve(1, room);
        }
        if self.filled == self.size || self.is_dropped {
            return None;
        }
        // Initialize a small window, because most of the capacity may never be used.
        if filled == self.bytes.len() {
            self.bytes.resize(self.bytes.capacity().min(filled + WINDOW).min(self.size as usize), 0);
        }
        self.bytes.get_mut(filled..)
    }

    pub fn filled(&mut self, count: usize) {
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.more(upto(past(&self.bytes, self.filled as usize), count));
        }
        self.filled += count as u64;
        assert!(self.filled <= self.bytes.len() as u64, "more bytes were read than fit into the gap");
    }

    /// Returns `None` if the body is still incomplete.
    pub fn take(&mut self, input: &mut &[u8], room: u64) -> Option<()> {
        let (now, rest) = input.split_at((self.size - self.filled).min(input.len() as u64) as usize);
        self.reserve(now.len(), room);
        if !self.is_dropped {
            self.bytes.truncate(self.filled as usize);
            self.bytes.extend_from_slice(now);
            self.fingerprint.iter_mut().for_each(|fingerprint| fingerprint.more(now));
        }
        self.filled += now.len() as u64;
        *input = rest;
        (self.filled == self.size).then_some(())
    }

    pub fn finish(self) -> Option<Body> {
        assert!(self.filled == self.size, "the body is incomplete");
        (!self.is_dropped).then(|| Body::from(self.bytes))
    }
}

/// A command, and its incomplete body, which CR LF must follow.
#[derive(Debug)]
pub struct Arriving<C> {
    pub command: C,
    pub body: Upload,
    end: [u8; 2],
    end_filled: usize,
}

impl<C> Arriving<C> {
    pub fn new(command: C, body: Upload) -> Arriving<C> {
        Arriving { command, body, end: [0; 2], end_filled: 0 }
    }

    /// Returns `None` if bytes are missing, `Some(true)` if CR LF follows the body, and otherwise `Some(false)`.
    pub fn take(&mut self, input: &mut &[u8], room: u64) -> Option<bool> {
        self.body.take(input, room)?;
        while let Some(end) = self.end.get_mut(self.end_filled) {
            let (&byte, rest) = input.split_first()?;
            *end = byte;
            self.end_filled += 1;
            *input = rest;
        }
        Some(self.end == *b"\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_the_buffer_and_in_the_gap() {
        let mut upload = Upload::begin(6, 6).expect("enough memory");
        assert!(upload.take(&mut b"a".as_slice(), 6).is_none());
        let gap = upload.gap(6).expect("five bytes are missing");
        gap[..2].copy_from_slice(b"bc");
        assert_eq!(gap.len(), 5);
        upload.filled(2);
        let mut input = b"defghi".as_slice();
        assert!(upload.take(&mut input, 6).is_some() && upload.gap(6).is_none());
        assert_eq!((upload.finish().expect("a body").bytes(), input), (b"abcdef".as_slice(), b"ghi".as_slice()));
    }

    #[test]
    fn announced_bytes_need_no_memory_before_they_arrive() {
        let mut upload = Upload::begin(1 << 30, 1 << 30).expect("enough memory");
        assert_eq!(upload.footprint(), 0);
        assert_eq!(upload.gap(1 << 30).map(|gap| gap.len()), Some(FIRST_ALLOCATION));
        assert_eq!(upload.footprint(), FIRST_ALLOCATION as u64);
        assert!(Upload::begin(7, 6).is_none());
        assert!(Upload::begin(usize::MAX, usize::MAX as u64 - 1).is_none());
    }

    #[test]
    fn fingerprint_does_not_depend_on_the_parts_of_the_body() {
        let (fingerprints, body) = (Fingerprints::new(7), [5; 10_000]);
        for step in [1, 999, 10_000] {
            let mut upload = Upload::begin(10_000, 10_000).expect("enough memory").with_fingerprint(fingerprints);
            for (number, mut part) in body.chunks(step).enumerate() {
                if number % 2 == 1 && part.len() <= upload.gap(10_000).map_or(0, |gap| gap.len()) {
                    upload.gap(10_000).expect("an incomplete body")[..part.len()].copy_from_slice(part);
                    upload.filled(part.len());
                } else {
                    let _ = upload.take(&mut part, 10_000);
                }
            }
            assert_eq!(upload.fingerprint(), Some(fingerprints.of(&body)), "in parts of {step}");
            assert_eq!(upload.finish().expect("a body").bytes(), body);
        }
        assert_ne!(fingerprints.of(b"a"), fingerprints.of(b"b"));
        assert_ne!(fingerprints.of(b"a"), Fingerprints::new(8).of(b"a"));
    }

    #[test]
    fn body_allocates_at_most_twice_the_bytes_that_have_arrived() {
        let mut upload = Upload::begin(1_000_000, 1 << 30).expect("enough memory");
        let mut arrived = 0;
        while upload.take(&mut [7; 1000].as_slice(), 1 << 30).is_none() {
            arrived += 1000;
            assert!(
                upload.footprint() <= (arrived * 2).max(FIRST_ALLOCATION as u64),
                "{} for {arrived}",
                upload.footprint()
            );
        }
        assert_eq!(upload.footprint(), 1_000_000);
        assert_eq!(upload.finish().expect("a body").bytes(), [7; 1_000_000]);
    }

    #[test]
    fn body_without_memory_is_dropped_and_skipped() {
        let mut upload = Upload::begin(20_000, 20_000).expect("enough memory");
        let mut input = [1; 5000].as_slice();
        assert!(upload.take(&mut input, 20_000).is_none() && upload.footprint() >= 5000);
        input = &[1; 10_000];
        assert!(upload.take(&mut input, 100).is_none());
        assert_eq!(upload.footprint(), 0);
        assert!(upload.gap(100).is_none() && upload.kept().is_none());
        let mut input = [1; 6000].as_slice();
        assert!(upload.take(&mut input, 1 << 20).is_some());
        assert_eq!((input.len(), upload.finish()), (1000, None));
    }

    #[test]
    fn the_end_may_arrive_in_parts() {
        for (parts, is_whole) in [([b"x\r", b"\nz"], true), ([b"x\n", b"\rz"], false)] {
            let mut arriving = Arriving::new((), Upload::skip(1));
            assert_eq!(arriving.take(&mut parts[0].as_slice(), 0), None);
            let mut rest = parts[1].as_slice();
            assert_eq!((arriving.take(&mut rest, 0), rest), (Some(is_whole), b"z".as_slice()));
        }
    }
}
