//! A sparse table that maps slots to numbers.
//!
//! Owns the table. Most jobs have no number and take no memory in it. Must not know what the numbers mean.

use super::list::NIL;

/// Slots whose numbers share a piece of memory.
const CHUNK: usize = 1024;

/// See the module's page. Chunks that were never used have no memory.
#[derive(Debug, Default)]
pub(in crate::engine) struct SlotTable {
    chunks: Vec<Option<Box<[u32; CHUNK]>>>,
}

impl SlotTable {
    /// Creates an empty table without allocating.
    pub const fn new() -> SlotTable {
        SlotTable { chunks: Vec::new() }
    }

    /// The number of `slot`, or [`NIL`] if it has none.
    pub fn get(&self, slot: u32) -> u32 {
        let chunk = self.chunks.get(slot as usize / CHUNK).and_then(Option::as_ref);
        chunk.map_or(NIL, |chunk| chunk[slot as usize % CHUNK])
    }

    /// Sets the number of `slot`, which had another one or none.
    pub fn set(&mut self, slot: u32, number: u32) {
        let chunk = slot as usize / CHUNK;
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || None);
        }
        self.chunks[chunk].get_or_insert_with(|| Box::new([NIL; CHUNK]))[slot as usize % CHUNK] = number;
    }

    pub fn remove(&mut self, slot: u32) {
        if let Some(Some(chunk)) = self.chunks.get_mut(slot as usize / CHUNK) {
            chunk[slot as usize % CHUNK] = NIL;
        }
    }

    /// Releases the memory. No slot has a number afterwards.
    pub fn clear(&mut self) {
        self.chunks = Vec::new();
    }
}
