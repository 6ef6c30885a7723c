//! Which segment holds the full record of which job.
//!
//! Owns, for each job in the queue, its home: the segment that its last full record is in. A segment whose list of homes is
//! empty holds nothing that is needed. Jobs are known by their slots in the engine, so that this costs twelve bytes a job
//! and nothing is searched. Must not know records or files.

use crate::engine::{Linked, Links, List};

/// Homes in a chunk; tables grow by chunks, so that growing never stalls.
const CHUNK: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Home {
    links: Links,
    segment: u32,
}

/// The home of each slot.
#[derive(Debug, Default)]
pub struct Homes {
    chunks: Vec<Box<[Home; CHUNK]>>,
}

/// The jobs at home in one segment, those written first first.
pub type Inhabitants = List;

impl Homes {
    /// The segment that the job in `slot` is at home in; it must have one.
    pub fn of(&self, slot: u32) -> u32 {
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].segment
    }

    /// The job in `slot`, which has no home, moves into a segment.
    pub fn move_in(&mut self, slot: u32, segment: u32, list: &mut Inhabitants) {
        while self.chunks.len() <= slot as usize / CHUNK {
            self.chunks.push(Box::new([Home { links: Links::NONE, segment: 0 }; CHUNK]));
        }
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].segment = segment;
        list.push_back(slot, self);
    }

    /// The job in `slot` leaves its segment.
    pub fn move_out(&mut self, slot: u32, list: &mut Inhabitants) {
        list.remove(slot, self);
    }
}

impl Linked for Homes {
    fn links(&self, slot: u32) -> Links {
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].links
    }
    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].links
    }
}
