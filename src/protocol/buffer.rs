//! The queue of replies to a client. Short replies share a buffer, so a single write can send many replies.
//! Large bodies are shared with their jobs instead of copied.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use super::text::past;
use crate::engine::{BodyRef, COPY_MAX};

/// The usual maximum size of a buffer for short replies in bytes; see [`SLACK`]. A buffer is freed only when all its
/// bytes have been sent. Without this limit, a single buffer of a slow client could grow forever.
const CHUNK: usize = 256 * 1024;
/// The initial size of a buffer in bytes, sufficient for most replies.
const REPLY: usize = 128;
/// A buffer with fewer than `CHUNK - SLACK` bytes accepts another reply, even if the buffer then exceeds [`CHUNK`].
const SLACK: usize = 4 * 1024;
/// A buffer with more bytes is moved by [`Output::append`], not copied.
const MAX_COPIED: usize = 4 * 1024;

#[derive(Debug)]
pub enum Chunk {
    Bytes(Vec<u8>),
    Shared(Arc<Box<[u8]>>, Range<usize>),
}

impl Chunk {
    #[expect(clippy::indexing_slicing, reason = "the range is within the body")]
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Bytes(bytes) => bytes,
            Chunk::Shared(bytes, part) => &bytes[part.clone()],
        }
    }
}

/// Bytes to send to a client. Keeps one empty buffer for reuse.
#[derive(Debug, Default)]
pub struct Output {
    chunks: VecDeque<Chunk>,
    /// The number of sent bytes at the start of the first chunk.
    sent: usize,
    /// Sums over all chunks except the last, which can grow. Stored, because every reply needs the total length.
    settled: Sums,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    length: usize,
    /// The capacity of the buffers in bytes, excluding shared bodies.
    capacity: usize,
    shared: usize,
}

impl Sums {
    fn of(chunk: &Chunk) -> Sums {
        match chunk {
            Chunk::Bytes(bytes) => Sums { length: bytes.len(), capacity: bytes.capacity(), shared: 0 },
            Chunk::Shared(_, part) => Sums { length: part.len(), capacity: 0, shared: part.len() },
        }
    }

    fn add(&mut self, other: Sums) {
        self.length += other.length;
        self.capacity += other.capacity;
        self.shared += other.shared;
    }

    fn take(&mut self, other: Sums) {
        self.length -= other.length;
        self.capacity -= other.capacity;
        self.shared -= other.shared;
    }
}

impl Output {
    pub const fn new() -> Output {
        Output { chunks: VecDeque::new(), sent: 0, settled: Sums { length: 0, capacity: 0, shared: 0 } }
    }

    pub fn len(&self) -> usize {
        self.settled.length + self.chunks.back().map_or(0, |chunk| chunk.bytes().len()) - self.sent
    }

    fn sums(&self) -> Sums {
        let mut sums = self.settled;
        self.chunks.back().into_iter().for_each(|last| sums.add(Sums::of(last)));
        sums
    }

    fn push(&mut self, chunk: Chunk) {
        self.settled = self.sums();
        self.chunks.push_back(chunk);
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn text(&mut self) -> &mut Vec<u8> {
        if !matches!(self.chunks.back(), Some(Chunk::Bytes(bytes)) if bytes.len() < CHUNK - SLACK) {
            self.add_buffer();
        }
        match self.chunks.back_mut() {
            Some(Chunk::Bytes(bytes)) => bytes,
            _ => unreachable!("the last chunk is a buffer"),
        }
    }

    #[cold]
    fn add_buffer(&mut self) {
        // More replies often follow a full buffer. Allocate the full size: doubling could waste half of the memory.
        let size = if matches!(self.chunks.back(), Some(Chunk::Bytes(_))) { CHUNK } else { REPLY };
        self.push(Chunk::Bytes(Vec::with_capacity(size)));
    }

    pub fn body(&mut self, body: BodyRef) {
        match body {
            BodyRef::Small(bytes) => self.text().extend_from_slice(bytes),
            BodyRef::Large(bytes) => self.part(body, 0..bytes.len()),
        }
    }

    #[expect(clippy::indexing_slicing, reason = "the range is within the body")]
    pub fn part(&mut self, body: BodyRef, part: Range<usize>) {
        match body {
            BodyRef::Large(bytes) if part.len() > COPY_MAX => self.push(Chunk::Shared(bytes.clone(), part)),
            _ => self.text().extend_from_slice(&body.bytes()[part]),
        }
    }

    /// Moves the bytes of `other`. Panics if some of them have been sent.
    pub fn append(&mut self, other: &mut Output) {
        if self.is_empty() && other.sent == 0 {
            std::mem::swap(self, other);
            return;
        }
        assert_eq!(other.sent, 0, "partially sent output cannot be moved");
        for chunk in other.chunks.drain(..) {
            match chunk {
                Chunk::Bytes(bytes) if bytes.len() <= MAX_COPIED => self.text().extend_from_slice(&bytes),
                large => self.push(large),
            }
        }
        other.settled = Sums::default();
    }

    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut sent = self.sent;
        self.chunks.iter().map(move |chunk| past(chunk.bytes(), std::mem::take(&mut sent)))
    }

    /// Returns the unsent bytes, or `None` if they are in several chunks.
    pub fn only(&self) -> Option<&[u8]> {
        let mut chunks = self.chunks.iter();
        match (chunks.next(), chunks.next()) {
            (None, _) => Some(&[]),
            (Some(only), None) => Some(past(only.bytes(), self.sent)),
            _ => None,
        }
    }

    pub fn consume(&mut self, count: usize) {
        self.sent += count;
        while let Some(first) = self.chunks.front() {
            let length = first.bytes().len();
            if self.sent < length {
                return;
            }
            self.sent -= length;
            let last = self.chunks.len() == 1;
            match self.chunks.front_mut() {
                // Keep the last buffer for the next replies.
                Some(Chunk::Bytes(bytes)) if last => return bytes.clear(),
                Some(first) if !last => self.settled.take(Sums::of(first)),
                _ => {}
            }
            self.chunks.pop_front();
        }
        assert_eq!(self.sent, 0, "more bytes were sent than were pending");
    }

    /// Returns the size in memory in bytes, excluding bodies shared with jobs.
    pub fn footprint(&self) -> u64 {
        (self.capacity() + self.chunks.capacity() * size_of::<Chunk>()) as u64
    }

    pub fn shrink(&mut self) {
        for chunk in &mut self.chunks {
            if let Chunk::Bytes(bytes) = chunk {
                bytes.shrink_to_fit();
            }
        }
        self.chunks.shrink_to_fit();
        self.settled = Sums::default();
        self.chunks.iter().rev().skip(1).for_each(|chunk| self.settled.add(Sums::of(chunk)));
    }

    pub fn capacity(&self) -> usize {
        self.sums().capacity
    }

    pub fn shared(&self) -> usize {
        self.sums().shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Body;

    fn all(output: &Output) -> Vec<u8> {
        output.chunks().flatten().copied().collect()
    }

    #[test]
    fn sent_bytes_are_freed_while_output_never_ends() {
        let mut output = Output::new();
        for _ in 0..1000 {
            output.text().extend_from_slice(&[b'x'; 10_000]);
            output.consume(output.len() - 5000);
        }
        assert!(output.capacity() <= 4 * CHUNK, "{} bytes for 5000", output.capacity());
    }

    #[test]
    fn long_parts_of_large_bodies_are_shared() {
        let large = Body::from(vec![b'x'; 2 * COPY_MAX]);
        for (length, shared) in [(COPY_MAX - 1, 0), (COPY_MAX, 0), (COPY_MAX + 1, COPY_MAX + 1)] {
            let mut output = Output::new();
            output.part(large.borrow(), 0..length);
            assert_eq!((output.len(), output.shared()), (length, shared));
        }
    }

    #[test]
    fn shrink_frees_unused_memory() {
        let large = Body::from(vec![b'x'; 5000]);
        let mut output = Output::new();
        for _ in 0..100 {
            output.text().extend_from_slice(b"head");
            output.body(large.borrow());
        }
        output.consume(99 * 5004);
        let before = (output.footprint(), output.capacity());
        output.shrink();
        assert_eq!((output.capacity(), output.shared(), output.len()), (4, 5000, 5004), "before: {before:?}");
        assert!(output.footprint() <= (4 + 4 * size_of::<Chunk>()) as u64, "{} bytes", output.footprint());
    }

    #[test]
    fn sums_are_those_of_the_chunks() {
        let large = Body::from(vec![b'x'; 5000]);
        let (mut output, mut more) = (Output::new(), Output::new());
        for round in 0..2000_usize {
            match round * 7 % 11 {
                0 | 1 => output.body(large.borrow()),
                2 => output.consume(output.len() * (round % 3) / 2),
                3 => output.shrink(),
                4 => {
                    more.text().extend_from_slice(&[b'z'; 6000][..round % 6000]);
                    more.body(large.borrow());
                    output.append(&mut more);
                }
                _ => output.text().extend_from_slice(&[b'y'; 9000][..round * 13 % 9000]),
            }
            for output in [&output, &more] {
                let all = output.chunks.iter().fold(Sums::default(), |mut sum, chunk| {
                    sum.add(Sums::of(chunk));
                    sum
                });
                assert_eq!((output.capacity(), output.shared()), (all.capacity, all.shared), "round {round}");
                assert_eq!(output.len(), output.chunks().map(<[u8]>::len).sum::<usize>(), "round {round}");
            }
        }
    }

    #[test]
    fn bytes_are_sent_in_order() {
        let large = Body::from(vec![b'x'; 5000]);
        for step in [1, 7, 4999, 5001, 10_000] {
            let mut output = Output::new();
            output.text().extend_from_slice(b"head\r\n");
            output.body(large.borrow());
            output.text().extend_from_slice(b"\r\n");
            let mut more = Output::new();
            more.body(BodyRef::Small(b"small"));
            output.append(&mut more);
            assert!(more.is_empty());
            let whole = all(&output);
            let mut sent = Vec::new();
            while !output.is_empty() {
                let piece: Vec<u8> = all(&output).into_iter().take(step).collect();
                output.consume(piece.len());
                sent.extend(piece);
            }
            assert_eq!(sent, whole);
            assert_eq!(sent.len(), 6 + 5000 + 2 + 5);
        }
    }
}
