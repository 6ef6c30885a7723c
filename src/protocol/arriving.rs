//! Bytes on their way in, whose number was announced.
//!
//! Owns their memory until they are all there. Must not know what they are.

use crate::engine::Body;

/// The part of them that is made ready to be read into.
const WINDOW: usize = 64 * 1024;

/// See the module's page.
#[derive(Debug)]
pub struct Arriving {
    /// Has room for all from the start, so that they are read to where they stay; as long as what has arrived, and a window
    /// for more.
    bytes: Vec<u8>,
    size: usize,
    filled: usize,
}

impl Arriving {
    /// So many bytes; none if they have no `room` by the account of memory, or the system has less than that allows.
    pub fn new(size: usize, room: u64) -> Option<Arriving> {
        let mut bytes = Vec::new();
        let fits = size as u64 <= room && bytes.try_reserve_exact(size).is_ok();
        fits.then_some(Arriving { bytes, size, filled: 0 })
    }

    /// How many they are, whether here or not.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// The part that is still to come, to read into directly; tell [`Arriving::filled`] how much was. Memory is touched a
    /// window at a time: what was announced and never comes costs none.
    pub fn gap(&mut self) -> Option<&mut [u8]> {
        if self.filled == self.size {
            return None;
        }
        if self.filled == self.bytes.len() {
            self.bytes.resize(self.size.min(self.filled + WINDOW), 0);
        }
        Some(&mut self.bytes[self.filled..])
    }

    /// So many bytes were read into the gap.
    pub fn filled(&mut self, count: usize) {
        self.filled += count;
        assert!(self.filled <= self.bytes.len(), "more was read than there was room for");
    }

    /// Takes what is there of them from the front of `input`; tells whether all are here.
    pub fn take(&mut self, input: &mut &[u8]) -> bool {
        let (now, rest) = input.split_at(input.len().min(self.size - self.filled));
        self.bytes.truncate(self.filled);
        self.bytes.extend_from_slice(now);
        self.filled += now.len();
        *input = rest;
        self.filled == self.size
    }

    /// All of them.
    pub fn into_body(self) -> Body {
        debug_assert_eq!(self.bytes.len(), self.size, "some are missing");
        Body::from(self.bytes)
    }
}

/// The two bytes behind a body, which must be CR LF and may come one by one.
#[derive(Debug, Default)]
pub struct End {
    bytes: [u8; 2],
    filled: usize,
}

impl End {
    /// Takes what is there of it: whether it is CR LF, once it is known.
    pub fn take(&mut self, input: &mut &[u8]) -> Option<bool> {
        while self.filled < 2 {
            let (&byte, rest) = input.split_first()?;
            self.bytes[self.filled] = byte;
            self.filled += 1;
            *input = rest;
        }
        Some(self.bytes == *b"\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_by_both_ways_in_order() {
        let size = 3 * WINDOW + 5;
        let mut arriving = Arriving::new(size, size as u64).expect("room");
        let mut sent = 0;
        let mut next = |count: usize| -> Vec<u8> {
            sent += count;
            (sent - count..sent).map(|place| place as u8).collect()
        };
        let mut more = 1;
        while let Some(gap) = arriving.gap() {
            let count = gap.len().min(more);
            gap[..count].copy_from_slice(&next(count));
            arriving.filled(count);
            let piece = next(more.min(arriving.size - arriving.filled));
            let mut input = piece.as_slice();
            arriving.take(&mut input);
            assert!(input.is_empty());
            more = more * 3 + 1;
        }
        let mut behind = b"xy".as_slice();
        assert!(arriving.take(&mut behind));
        assert_eq!(behind, b"xy", "nothing is taken that is not its own");
        let body = arriving.into_body();
        assert!(body.len() == size && body.bytes().iter().enumerate().all(|(place, byte)| place as u8 == *byte));
    }

    #[test]
    fn what_has_no_room_does_not_begin() {
        assert!(Arriving::new(11, 10).is_none());
        assert!(Arriving::new(10, 10).is_some());
        assert!(Arriving::new(1 << 62, u64::MAX).is_none(), "nor what no system has");
    }

    #[test]
    fn the_end_may_come_in_two_pieces() {
        let (mut end, mut first, mut second) = (End::default(), b"\r".as_slice(), b"\nx".as_slice());
        assert_eq!((end.take(&mut first), end.take(&mut second), second), (None, Some(true), b"x".as_slice()));
        assert_eq!(End::default().take(&mut b"\n\r".as_slice()), Some(false));
    }
}
