//! Which segment holds the full record of which job.
//!
//! Owns, for each job in the queue, its home: the segment that its last full record is in. A segment whose list of homes is
//! empty holds nothing that is needed. Jobs are known by their slots in the engine, so that this costs twelve bytes a job
//! and nothing is searched. Must not know records or files.

use crate::engine::{Linked, Links, List};

/// Homes in a chunk; tables grow by chunks, so that growing never stalls. A chunk of this size goes back to the system by
/// itself when nobody is at home there any more.
const CHUNK: usize = 16_384;

#[derive(Clone, Copy, Debug)]
struct Home {
    links: Links,
    segment: u32,
}

/// The home of each slot.
#[derive(Debug, Default)]
pub struct LiveIndex {
    chunks: Vec<Chunk>,
}

/// The first chunk keeps its memory, the others have none while they hold none.
#[derive(Debug, Default)]
struct Chunk {
    live_index: Vec<Home>,
    inhabited: usize,
}

/// The jobs at home in one segment, those written first first.
pub type SegmentJobs = List;

impl LiveIndex {
    /// The segment that the job in `slot` is live in; it must have one.
    pub fn of(&self, slot: u32) -> u32 {
        self.home(slot).segment
    }

    /// The job in `slot`, which has no home, moves into a segment.
    pub fn move_in(&mut self, slot: u32, segment: u32, list: &mut SegmentJobs) {
        let number = slot as usize / CHUNK;
        while self.chunks.len() <= number {
            self.chunks.push(Chunk::default());
        }
        let chunk = &mut self.chunks[number];
        chunk.inhabited += 1;
        if chunk.live_index.is_empty() {
            chunk.live_index.reserve_exact(CHUNK);
        }
        let place = slot as usize % CHUNK;
        if chunk.live_index.len() <= place {
            chunk.live_index.resize(place + 1, Home { links: Links::NONE, segment });
        }
        chunk.live_index[place].segment = segment;
        list.push_back(slot, self);
    }

    /// The job in `slot` leaves its segment.
    pub fn move_out(&mut self, slot: u32, list: &mut SegmentJobs) {
        list.remove(slot, self);
        let number = slot as usize / CHUNK;
        let chunk = &mut self.chunks[number];
        chunk.inhabited -= 1;
        if chunk.inhabited == 0 && number > 0 {
            chunk.live_index = Vec::new();
        }
    }

    fn home(&self, slot: u32) -> &Home {
        &self.chunks[slot as usize / CHUNK].live_index[slot as usize % CHUNK]
    }
}

impl Linked for LiveIndex {
    fn links(&self, slot: u32) -> Links {
        self.home(slot).links
    }
    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.chunks[slot as usize / CHUNK].live_index[slot as usize % CHUNK].links
    }
}
