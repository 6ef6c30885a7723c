//! An index that maps each live item of one kind, such as a job's slot, to the segment that contains its last full
//! record. An entry takes twelve bytes, and a lookup takes constant time.

use crate::engine::{Linked, Links, List};

/// Entries per chunk. The index grows by one chunk at a time, which takes bounded time. The allocator returns a freed
/// chunk of this size to the system.
const CHUNK: usize = 16_384;

#[derive(Clone, Copy, Debug)]
struct Entry {
    links: Links,
    segment: u32,
}

#[derive(Debug, Default)]
pub struct LiveIndex {
    chunks: Vec<Chunk>,
}

#[derive(Debug, Default)]
struct Chunk {
    entries: Vec<Entry>,
    live: usize,
}

pub type SegmentItems = List;

impl LiveIndex {
    pub fn of(&self, slot: u32) -> u32 {
        self.entry(slot).segment
    }

    pub fn move_in(&mut self, slot: u32, segment: u32, list: &mut SegmentItems) {
        let number = slot as usize / CHUNK;
        while self.chunks.len() <= number {
            self.chunks.push(Chunk::default());
        }
        let chunk = &mut self.chunks[number];
        chunk.live += 1;
        if chunk.entries.is_empty() {
            chunk.entries.reserve_exact(CHUNK);
        }
        let index = slot as usize % CHUNK;
        if chunk.entries.len() <= index {
            chunk.entries.resize(index + 1, Entry { links: Links::NONE, segment });
        }
        chunk.entries[index].segment = segment;
        list.push_back(slot, self);
    }

    pub fn move_out(&mut self, slot: u32, list: &mut SegmentItems) {
        list.remove(slot, self);
        let number = slot as usize / CHUNK;
        let chunk = &mut self.chunks[number];
        chunk.live -= 1;
        if chunk.live == 0 && number > 0 {
            chunk.entries = Vec::new();
        }
    }

    fn entry(&self, slot: u32) -> &Entry {
        &self.chunks[slot as usize / CHUNK].entries[slot as usize % CHUNK]
    }
}

impl Linked for LiveIndex {
    fn links(&self, slot: u32) -> Links {
        self.entry(slot).links
    }
    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.chunks[slot as usize / CHUNK].entries[slot as usize % CHUNK].links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_chunk_goes_with_its_last_job_but_for_that_of_the_first() {
        let (mut index, mut list) = (LiveIndex::default(), SegmentItems::default());
        let second = CHUNK as u32;
        let slots = [0, 5, second, second + 5];
        slots.iter().for_each(|&slot| index.move_in(slot, 7, &mut list));
        index.move_out(0, &mut list);
        index.move_out(second, &mut list);
        assert_eq!((index.of(5), index.of(second + 5)), (7, 7));
        index.move_out(5, &mut list);
        index.move_out(second + 5, &mut list);
        let kept: Vec<bool> = index.chunks.iter().map(|chunk| chunk.entries.capacity() > 0).collect();
        assert_eq!(kept, [true, false]);
        index.move_in(second, 8, &mut list);
        assert_eq!(index.of(second), 8);
    }
}
