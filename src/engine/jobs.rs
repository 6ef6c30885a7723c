//! The store of all jobs: by slot for the engine's queues, by id for everybody else.
//!
//! Owns the memory of jobs. Nothing here ever moves a large table in one go: slots come in chunks, so the slowest insertion
//! costs about what the median one does. Must not know states or queues.

use super::heap::Places;
use super::index::{Chained, Index};
use super::job::{Job, JobId};
use super::list::{Linked, Links, NIL};

/// Jobs in a chunk of slots: about 100 kB, small beside a process, large beside malloc's overhead.
const CHUNK: usize = 1024;

/// Bytes of memory made ready for the bodies of a chunk's jobs; less than makes glibc give memory back to the system.
const AHEAD: usize = 96 * 1024;

/// See the module's page.
#[derive(Debug)]
pub struct Jobs {
    slots: Slots,
    index: Index,
}

impl Jobs {
    /// A store without jobs.
    pub fn new() -> Jobs {
        Jobs { slots: Slots::default(), index: Index::new() }
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Stores a job under its id, which must be new, and tells its slot.
    pub fn insert(&mut self, job: Job) -> u32 {
        let slot = self.slots.insert(job);
        self.index.insert(slot, &mut self.slots);
        slot
    }

    /// The slot of the job with this id.
    pub fn find(&self, id: JobId) -> Option<u32> {
        self.index.find(hash(id), &self.slots, |slot| self.slots.get(slot).id == id)
    }

    /// Forgets the job in `slot`.
    pub fn remove(&mut self, slot: u32) -> Job {
        self.index.remove(slot, &mut self.slots);
        self.slots.remove(slot)
    }

    /// The job in `slot`, which must hold one.
    pub fn get(&self, slot: u32) -> &Job {
        self.slots.get(slot)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, slot: u32) -> &mut Job {
        self.slots.get_mut(slot)
    }

    /// All jobs with their slots, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Job)> {
        self.slots.chunks.iter().enumerate().flat_map(|(number, chunk)| {
            chunk.entries.iter().enumerate().filter_map(move |(entry, held)| match held {
                Entry::Held(job) => Some(((number * CHUNK + entry) as u32, job)),
                Entry::Vacant(_) => None,
            })
        })
    }
}

impl Linked for Jobs {
    fn links(&self, slot: u32) -> Links {
        self.get(slot).links
    }
    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.get_mut(slot).links
    }
}

impl Places for Jobs {
    fn set_place(&mut self, slot: u32, place: u32) {
        self.get_mut(slot).links.prev = place;
    }
}

#[derive(Debug)]
enum Entry {
    Held(Job),
    /// The next vacant entry of the same chunk, or [`NIL`].
    Vacant(u32),
}

/// A chunk without jobs may have given its memory back: then it has no entries at all.
#[derive(Debug)]
struct Chunk {
    entries: Vec<Entry>,
    first_vacant: u32,
    held: usize,
}

/// Jobs by slot; slot = chunk number × CHUNK + entry.
#[derive(Debug, Default)]
struct Slots {
    chunks: Vec<Chunk>,
    /// The chunks that have room, each once.
    open: Vec<u32>,
    /// How many chunks hold memory but no job.
    idle: usize,
}

impl Chunk {
    const EMPTY: Chunk = Chunk { entries: Vec::new(), first_vacant: NIL, held: 0 };

    fn is_full(&self) -> bool {
        self.held == CHUNK
    }

    fn insert(&mut self, job: Job) -> usize {
        self.held += 1;
        if self.first_vacant != NIL {
            let entry = self.first_vacant as usize;
            match std::mem::replace(&mut self.entries[entry], Entry::Held(job)) {
                Entry::Vacant(next) => self.first_vacant = next,
                Entry::Held(_) => unreachable!("a job in the list of vacant entries"),
            }
            return entry;
        }
        if self.entries.capacity() == 0 {
            self.entries.reserve_exact(CHUNK);
            // As many bodies will come, and glibc lets the heap of a thread grow by a page at a time, a system call each.
            // What is taken and given back here, untouched, stays at the heap's end for them.
            drop(std::hint::black_box(Vec::<u8>::with_capacity(AHEAD)));
        }
        self.entries.push(Entry::Held(job));
        self.entries.len() - 1
    }

    fn remove(&mut self, entry: usize) -> Job {
        let vacant = Entry::Vacant(self.first_vacant);
        match std::mem::replace(&mut self.entries[entry], vacant) {
            Entry::Held(job) => {
                self.first_vacant = entry as u32;
                self.held -= 1;
                job
            }
            Entry::Vacant(_) => unreachable!("a vacant slot was removed"),
        }
    }
}

impl Slots {
    fn insert(&mut self, job: Job) -> u32 {
        if self.open.is_empty() {
            self.open.push(self.chunks.len() as u32);
            self.chunks.push(Chunk::EMPTY);
        }
        let number = self.open[self.open.len() - 1] as usize;
        let chunk = &mut self.chunks[number];
        if chunk.held == 0 && chunk.entries.capacity() > 0 {
            self.idle -= 1;
        }
        let entry = chunk.insert(job);
        if chunk.is_full() {
            self.open.pop();
        }
        (number * CHUNK + entry) as u32
    }

    fn remove(&mut self, slot: u32) -> Job {
        let number = slot as usize / CHUNK;
        let chunk = &mut self.chunks[number];
        if chunk.is_full() {
            self.open.push(number as u32);
        }
        let job = chunk.remove(slot as usize % CHUNK);
        if chunk.held == 0 {
            // One idle chunk is kept, so that a queue that fills and empties does not allocate each time.
            if self.idle > 0 {
                *chunk = Chunk::EMPTY;
            } else {
                self.idle += 1;
            }
        }
        job
    }

    fn get(&self, slot: u32) -> &Job {
        match &self.chunks[slot as usize / CHUNK].entries[slot as usize % CHUNK] {
            Entry::Held(job) => job,
            Entry::Vacant(_) => unreachable!("a vacant slot was read"),
        }
    }

    fn get_mut(&mut self, slot: u32) -> &mut Job {
        match &mut self.chunks[slot as usize / CHUNK].entries[slot as usize % CHUNK] {
            Entry::Held(job) => job,
            Entry::Vacant(_) => unreachable!("a vacant slot was written"),
        }
    }
}

/// Ids come and go in rows, so a row of them fills buckets in a row, and a walk over one is a walk over the other. Where a
/// row begins is scattered, so that no pattern of survivors piles up in a few buckets.
fn hash(id: JobId) -> usize {
    let row = (id.0 >> 10).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    id.0.wrapping_add(row) as usize
}

impl Chained for Slots {
    fn hash(&self, slot: u32) -> usize {
        hash(self.get(slot).id)
    }
    fn chain(&self, slot: u32) -> u32 {
        self.get(slot).chain
    }
    fn set_chain(&mut self, slot: u32, next: u32) {
        self.get_mut(slot).chain = next;
    }
}

#[cfg(test)]
mod tests {
    use super::super::body::Body;
    use super::super::job::NewJob;
    use super::super::time::{Span, Time};
    use super::*;

    fn job(id: u64) -> Job {
        let body = Body::from(id.to_le_bytes().as_slice());
        let new = NewJob { pri: 0, delay: Span::ZERO, ttr: Span::ZERO, body };
        Job::new(JobId(id), 0, new, Time::default())
    }

    fn check(jobs: &Jobs, expected: &[u64]) {
        assert_eq!(jobs.len(), expected.len());
        for &id in expected {
            let slot = jobs.find(JobId(id)).expect("stored job");
            assert_eq!(jobs.get(slot).body().bytes(), id.to_le_bytes());
        }
        assert_eq!(jobs.iter().count(), expected.len());
    }

    #[test]
    fn jobs_are_found_while_the_index_grows_and_shrinks() {
        let mut jobs = Jobs::new();
        (1..=10_000).for_each(|id| {
            jobs.insert(job(id));
        });
        check(&jobs, &(1..=10_000).collect::<Vec<_>>());
        for id in (1..=10_000).filter(|id| id % 37 != 0) {
            let slot = jobs.find(JobId(id)).unwrap();
            assert_eq!(jobs.remove(slot).id, JobId(id));
            assert_eq!(jobs.find(JobId(id)), None);
        }
        check(&jobs, &(1..=10_000).filter(|id| id % 37 == 0).collect::<Vec<_>>());
        assert!(jobs.index.buckets() <= 2 * jobs.len() + 1, "{} buckets", jobs.index.buckets());
    }

    #[test]
    fn empty_chunks_give_their_memory_back_but_one() {
        let mut jobs = Jobs::new();
        let slots: Vec<u32> = (1..=5000).map(|id| jobs.insert(job(id))).collect();
        slots.into_iter().for_each(|slot| {
            jobs.remove(slot);
        });
        let kept = jobs.slots.chunks.iter().filter(|chunk| chunk.entries.capacity() > 0).count();
        assert_eq!((kept, jobs.slots.idle), (1, 1));
        (5001..=12_000).for_each(|id| {
            jobs.insert(job(id));
        });
        check(&jobs, &(5001..=12_000).collect::<Vec<_>>());
        assert_eq!(jobs.slots.chunks.len(), 7);
    }

    #[test]
    fn survivors_of_any_stride_spread_over_the_buckets() {
        for stride in [16, 64, 1024, 65_536] {
            let mut jobs = Jobs::new();
            (1..=4096).for_each(|n| {
                jobs.insert(job(n * stride));
            });
            let longest = jobs.index.chains(&jobs.slots).max();
            assert!(longest < Some(48), "stride {stride}: a chain of {longest:?}");
        }
    }

    #[test]
    fn an_entry_costs_no_more_than_its_job() {
        assert_eq!(size_of::<Entry>(), size_of::<Job>());
        assert!(size_of::<Job>() <= 120, "{}", size_of::<Job>());
    }
}
