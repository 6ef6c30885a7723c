//! Bytes that a client has announced and that come in parts: the body of a job, a result.
//!
//! Owns where the next of them belong, and what ends or swallows them. A body is read from the socket to where it stays.
//! Must not know what it is for: that is the business of each protocol's decoder.

use crate::engine::Body;

/// The part of an arriving body that is made ready to be read into.
const WINDOW: usize = 64 * 1024;

/// A body on its way in.
#[derive(Debug)]
pub struct Upload {
    /// Has room for all of it from the start; as long as what has arrived, and a window for more.
    bytes: Vec<u8>,
    size: usize,
    filled: usize,
}

impl Upload {
    /// Makes room for `size` bytes. None: they are more than `room`, or the system has less than the account allows.
    pub fn begin(size: usize, room: u64) -> Option<Upload> {
        let mut bytes = Vec::new();
        let has_room = size as u64 <= room && bytes.try_reserve_exact(size).is_ok();
        has_room.then_some(Upload { bytes, size, filled: 0 })
    }

    /// How many bytes of memory it takes.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// Where the next bytes belong, to be read there directly; tell [`Upload::filled`] how many were. None: all are here.
    pub fn gap(&mut self) -> Option<&mut [u8]> {
        if self.filled == self.size {
            return None;
        }
        // Memory is touched a window at a time: what was announced and never comes costs none.
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

    /// Takes what is there of it from the front of `input`. None: more must come.
    pub fn take(&mut self, input: &mut &[u8]) -> Option<()> {
        let (now, rest) = input.split_at(input.len().min(self.size - self.filled));
        self.bytes.truncate(self.filled);
        self.bytes.extend_from_slice(now);
        self.filled += now.len();
        *input = rest;
        (self.filled == self.size).then_some(())
    }

    /// The body, once all of it has come.
    pub fn finish(self) -> Body {
        assert!(self.filled == self.size, "a part is missing");
        Body::from(self.bytes)
    }
}

/// The two bytes behind a body, which should be CR LF and may come one by one.
#[derive(Debug, Default)]
pub struct End {
    bytes: [u8; 2],
    filled: usize,
}

impl End {
    /// Takes what is there of it: whether it is CR LF, once that is known.
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

/// Drops bytes until none are `left` to drop. None: more must come.
pub fn swallow(left: &mut u64, input: &mut &[u8]) -> Option<()> {
    let count = (*left).min(input.len() as u64);
    *input = &input[count as usize..];
    *left -= count;
    (*left == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_by_the_buffer_and_by_the_gap() {
        let mut upload = Upload::begin(6, 6).expect("there is room");
        assert!(upload.take(&mut b"a".as_slice()).is_none());
        let gap = upload.gap().expect("five bytes are missing");
        gap[..2].copy_from_slice(b"bc");
        assert_eq!(gap.len(), 5);
        upload.filled(2);
        let mut input = b"defghi".as_slice();
        assert!(upload.take(&mut input).is_some() && upload.gap().is_none());
        assert_eq!((upload.finish().bytes(), input), (b"abcdef".as_slice(), b"ghi".as_slice()));
    }

    #[test]
    fn what_was_announced_and_does_not_come_touches_no_memory() {
        let mut upload = Upload::begin(1 << 30, 1 << 30).expect("there is room");
        assert_eq!(upload.gap().map(|gap| gap.len()), Some(WINDOW));
        assert!(Upload::begin(7, 6).is_none());
        assert!(Upload::begin(usize::MAX, u64::MAX).is_none());
    }

    #[test]
    fn an_end_may_come_in_parts() {
        for (parts, whole) in [([b"\r", b"\n"], true), ([b"\n", b"\r"], false)] {
            let mut end = End::default();
            assert_eq!(end.take(&mut parts[0].as_slice()), None);
            assert_eq!(end.take(&mut parts[1].as_slice()), Some(whole));
        }
    }
}
