//! Walking over buried jobs, of one tube or of all.
//!
//! Owns the order of the search, whose cost is that of the tubes and the buried jobs where these are few, and otherwise
//! that of one pass over all jobs. Jobs that are buried meanwhile may be seen or not, all others once. Must not change
//! anything but the remaining steps.
//!
//! Touches: agenda, store, tubes.

use crate::engine::data::{JobId, Progress, State};
use crate::engine::Engine;

/// A tube with at most this many buried jobs is read from its own queue.
const SHORT: usize = 512;

/// A search that continues from turn to turn.
#[derive(Debug)]
pub struct BuriedWalk {
    /// The tube; `None` for all.
    tube: Option<Box<[u8]>>,
    /// The number of the next tube to check, or `None` after the last one.
    next_tube: Option<u32>,
    /// Jobs of the last short queue, the next one at the end.
    ids: Vec<JobId>,
    /// The numbers of the tubes with long queues, in ascending order, whose jobs are found among all jobs.
    long: Vec<u32>,
    /// The next slot of the store to check.
    from: u32,
}

impl BuriedWalk {
    /// Returns a walk over the buried jobs of the tube with this name, or of all tubes.
    pub fn new(tube: Option<Box<[u8]>>) -> BuriedWalk {
        BuriedWalk { tube, next_tube: Some(0), ids: Vec::new(), long: Vec::new(), from: 0 }
    }

    pub fn footprint(&self) -> u64 {
        let name = self.tube.as_ref().map_or(0, |name| name.len());
        (name + self.ids.capacity() * size_of::<JobId>() + self.long.capacity() * 4) as u64
    }
}

impl Engine {
    /// Returns the next buried job; `None` after the last one or without steps, see [`Engine::walked_buried`].
    pub fn next_buried(&mut self, walk: &mut BuriedWalk) -> Option<JobId> {
        while !self.agenda.steps.are_used_up() {
            if let Some(id) = walk.ids.pop() {
                self.agenda.steps.take(1);
                let slot = self.store.jobs.find(id);
                if slot.is_some_and(|slot| self.store.jobs.get(slot).state() == State::Buried) {
                    return Some(id);
                }
            } else if let Some(number) = walk.next_tube {
                self.agenda.steps.take(1);
                self.next_tube_of(walk, number);
            } else if walk.long.is_empty() {
                return None;
            } else {
                let slot = self.next_job(&mut walk.from)?;
                let job = self.store.jobs.get(slot);
                if job.state() == State::Buried && walk.long.binary_search(&job.tube).is_ok() {
                    return Some(job.id);
                }
            }
        }
        None
    }

    /// Returns [`Progress::Done`] if the walk has seen all buried jobs.
    pub fn walked_buried(&self, walk: &BuriedWalk) -> Progress {
        if walk.next_tube.is_some() || !walk.ids.is_empty() {
            Progress::More
        } else if walk.long.is_empty() {
            Progress::Done
        } else {
            self.walked_to(walk.from)
        }
    }

    /// Continues with the tube with this number, or with the only one.
    fn next_tube_of(&mut self, walk: &mut BuriedWalk, number: u32) {
        let (number, next) = match &walk.tube {
            Some(name) => (self.tubes.find(name), None),
            None => (Some(number), Some(number + 1).filter(|next| *next < self.tubes.table.items.end())),
        };
        walk.next_tube = next;
        let Some((number, tube)) = number.and_then(|number| Some((number, self.tubes.table.items.try_get(number)?)))
        else {
            return;
        };
        if tube.buried.len() > SHORT {
            walk.long.push(number);
            return;
        }
        walk.ids.extend(tube.buried.iter(&self.store.jobs).map(|slot| self.store.jobs.get(slot).id));
        walk.ids.reverse();
        self.agenda.steps.take(walk.ids.len() as u64);
    }
}
