//! Announced bytes that arrive in parts: the body of a job, a result.
//!
//! Owns the position of the next bytes, and the end of the data or their skipping. A large body is read from the socket
//! directly into its final place. Must not know its purpose: the decoder of each protocol does.

use super::text::{past, upto};
use crate::engine::{Body, Fingerprint, Fingerprinting, Fingerprints};

/// The maximum part of an arriving body that is allocated in advance.
const WINDOW: usize = 64 * 1024;

/// The number of bytes allocated for a body of which nothing has arrived.
const FIRST: usize = 4 * 1024;

/// An arriving body. It allocates memory as bytes arrive: announced bytes that do not arrive need none. If there is no
/// room for the next part, the rest is dropped.
#[derive(Debug)]
pub struct Upload {
    /// The bytes that have arrived, and a window for more; if the body is dropped, only the window.
    bytes: Vec<u8>,
    size: usize,
    filled: usize,
    dropped: bool,
    /// Computed part by part, since a large body takes a while.
    fingerprint: Option<Box<Fingerprinting>>,
}

impl Upload {
    /// Starts a body of `size` bytes. Returns `None` if they exceed `room`.
    pub fn begin(size: usize, room: u64) -> Option<Upload> {
        (size as u64 <= room).then_some(Upload {
            bytes: Vec::new(),
            size,
            filled: 0,
            dropped: false,
            fingerprint: None,
        })
    }

    /// Enables the fingerprint of this body.
    pub fn with_fingerprint(mut self, fingerprints: Fingerprints) -> Upload {
        self.fingerprint = Some(fingerprints.begin().into());
        self
    }

    /// Returns the fingerprint of the bytes that have arrived.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint.as_ref().map(|fingerprint| fingerprint.finish())
    }

    pub fn footprint(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// Makes room for `more` bytes after those that have arrived, within `room`: doubles the allocation, to copy
    /// little, up to the size of the body.
    fn make_room(&mut self, more: usize, room: u64) {
        let capacity = self.bytes.capacity();
        let needed = (self.filled + more).min(self.size);
        if needed <= capacity || self.dropped {
            return;
        }
        let size = needed.max(capacity * 2).max(FIRST).min(self.size);
        let has_room = (size - capacity) as u64 <= room;
        if !has_room || self.bytes.try_reserve_exact(size - self.bytes.len()).is_err() {
            self.bytes = Vec::new();
            self.dropped = true;
        }
    }

    /// Returns the place of the next bytes, to read them there directly; report their number to [`Upload::filled`].
    /// Returns `None` if all have arrived.
    pub fn gap(&mut self, room: u64) -> Option<&mut [u8]> {
        if self.filled == self.size {
            return None;
        }
        if !self.dropped && self.filled == self.bytes.len() {
            self.make_room(1, room);
        }
        if self.dropped {
            self.bytes.resize(FIRST.min(self.size - self.filled), 0);
            return Some(&mut self.bytes);
        }
        // Memory is touched one window at a time.
        if self.filled == self.bytes.len() {
            self.bytes.resize(self.bytes.capacity().min(self.filled + WINDOW).min(self.size), 0);
        }
        self.bytes.get_mut(self.filled..)
    }

    /// Records that this many bytes were read into the gap.
    pub fn filled(&mut self, count: usize) {
        if let (Some(fingerprint), false) = (&mut self.fingerprint, self.dropped) {
            fingerprint.more(upto(past(&self.bytes, self.filled), count));
        }
        self.filled += count;
        assert!(self.dropped || self.filled <= self.bytes.len(), "more was read than there was room for");
    }

    /// Takes the available bytes of the body from the front of `input`. Returns `None` if more must arrive.
    pub fn take(&mut self, input: &mut &[u8], room: u64) -> Option<()> {
        let (now, rest) = input.split_at(input.len().min(self.size - self.filled));
        self.make_room(now.len(), room);
        if !self.dropped {
            self.bytes.truncate(self.filled);
            self.bytes.extend_from_slice(now);
            self.fingerprint.iter_mut().for_each(|fingerprint| fingerprint.more(now));
        }
        self.filled += now.len();
        *input = rest;
        (self.filled == self.size).then_some(())
    }

    /// Returns the body, once it has arrived completely; `None` if it was dropped.
    pub fn finish(self) -> Option<Body> {
        assert!(self.filled == self.size, "a part is missing");
        (!self.dropped).then(|| Body::from(self.bytes))
    }
}

/// The two bytes after a body, which should be CR LF and may arrive separately.
#[derive(Debug, Default)]
pub struct BodyEnd {
    bytes: [u8; 2],
    filled: usize,
}

impl BodyEnd {
    /// Takes the available bytes. Returns whether they are CR LF, once that is known.
    pub fn take(&mut self, input: &mut &[u8]) -> Option<bool> {
        while let Some(place) = self.bytes.get_mut(self.filled) {
            let (&byte, rest) = input.split_first()?;
            *place = byte;
            self.filled += 1;
            *input = rest;
        }
        Some(self.bytes == *b"\r\n")
    }
}

/// Drops bytes until none are `left` to drop. Returns `None` if more must arrive.
pub fn swallow(left: &mut u64, input: &mut &[u8]) -> Option<()> {
    let count = (*left).min(input.len() as u64);
    *input = past(input, count as usize);
    *left -= count;
    (*left == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_by_the_buffer_and_by_the_gap() {
        let mut upload = Upload::begin(6, 6).expect("there is room");
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
    fn what_was_announced_and_does_not_come_takes_no_memory() {
        let mut upload = Upload::begin(1 << 30, 1 << 30).expect("there is room");
        assert_eq!(upload.footprint(), 0);
        assert_eq!(upload.gap(1 << 30).map(|gap| gap.len()), Some(FIRST));
        assert_eq!(upload.footprint(), FIRST as u64);
        assert!(Upload::begin(7, 6).is_none());
        assert!(Upload::begin(usize::MAX, usize::MAX as u64 - 1).is_none());
    }

    #[test]
    fn a_fingerprint_is_the_same_however_the_body_comes() {
        let (fingerprints, body) = (Fingerprints::new(7), [5; 10_000]);
        for step in [1, 999, 10_000] {
            let mut upload = Upload::begin(10_000, 10_000).expect("room").with_fingerprint(fingerprints);
            for (number, mut part) in body.chunks(step).enumerate() {
                if number % 2 == 1 && part.len() <= upload.gap(10_000).map_or(0, |gap| gap.len()) {
                    upload.gap(10_000).expect("a part is missing")[..part.len()].copy_from_slice(part);
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
    fn a_body_takes_what_has_come_and_no_more_than_twice_that() {
        let mut upload = Upload::begin(1_000_000, 1 << 30).expect("there is room");
        let mut come = 0;
        while upload.take(&mut [7; 1000].as_slice(), 1 << 30).is_none() {
            come += 1000;
            assert!(upload.footprint() <= (come * 2).max(FIRST as u64), "{} for {come}", upload.footprint());
        }
        assert_eq!(upload.footprint(), 1_000_000);
        assert_eq!(upload.finish().expect("a body").bytes(), [7; 1_000_000]);
    }

    #[test]
    fn the_rest_of_a_body_without_room_is_dropped() {
        let mut upload = Upload::begin(20_000, 20_000).expect("there is room");
        let mut input = [1; 5000].as_slice();
        assert!(upload.take(&mut input, 20_000).is_none() && upload.footprint() >= 5000);
        input = &[1; 10_000];
        assert!(upload.take(&mut input, 100).is_none());
        assert_eq!(upload.footprint(), 0);
        let gap = upload.gap(100).map(|gap| gap.len()).expect("5,000 bytes are missing");
        upload.filled(gap);
        let mut input = [1; 1000].as_slice();
        assert!(upload.take(&mut input, 1 << 20).is_some());
        assert_eq!((input.len(), upload.finish()), (1000 + gap - 5000, None));
    }

    #[test]
    fn an_end_may_come_in_parts() {
        for (parts, whole) in [([b"\r", b"\n"], true), ([b"\n", b"\r"], false)] {
            let mut end = BodyEnd::default();
            assert_eq!(end.take(&mut parts[0].as_slice()), None);
            assert_eq!(end.take(&mut parts[1].as_slice()), Some(whole));
        }
    }
}
