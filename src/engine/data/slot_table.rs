//! A sparse table that maps numbers, mostly slots, to numbers.
//!
//! Owns the table. Parts that were never used take no memory. Must not know what the numbers mean.

use super::NIL;

/// Entries per chunk: one page of memory.
pub const CHUNK_ENTRIES: usize = 1024;

#[derive(Debug, Default)]
pub struct SlotTable {
    chunks: Vec<Option<Box<[u32; CHUNK_ENTRIES]>>>,
}

impl SlotTable {
    /// Returns the number of `slot`, or [`NIL`] if it has none.
    pub fn get(&self, slot: u32) -> u32 {
        let chunk = self.chunks.get(slot as usize / CHUNK_ENTRIES).and_then(Option::as_ref);
        chunk.map_or(NIL, |chunk| chunk[slot as usize % CHUNK_ENTRIES])
    }

    pub fn set(&mut self, slot: u32, number: u32) {
        let chunk = slot as usize / CHUNK_ENTRIES;
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || None);
        }
        self.chunks[chunk].get_or_insert_with(|| Box::new([NIL; CHUNK_ENTRIES]))[slot as usize % CHUNK_ENTRIES] =
            number;
    }

    pub fn remove(&mut self, slot: u32) {
        if let Some(Some(chunk)) = self.chunks.get_mut(slot as usize / CHUNK_ENTRIES) {
            chunk[slot as usize % CHUNK_ENTRIES] = NIL;
        }
    }

    /// Releases the memory of all entries from this chunk on. They must be [`NIL`].
    pub fn truncate(&mut self, chunks: usize) {
        self.chunks.truncate(chunks);
    }

    /// Removes all numbers and releases the memory.
    pub fn clear(&mut self) {
        self.chunks = Vec::new();
    }
}
