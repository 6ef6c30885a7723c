//! Flushes of tubes, and the search for a reserved job.
//!
//! Owns the progress of flushes and searches between calls. A flush ignores jobs that are put after its start, because
//! it would otherwise never end. Must not assign jobs to clients.
//!
//! Touches: agenda, clients, store, tubes.

use crate::engine::data::{
    ClientId, Flush, JobId, JobView, OpenOperation, Outcome, Progress, Smallest, State, Time, MOVE,
};
use crate::engine::Engine;

/// The states with queues, in the order in which a flush deletes the jobs.
const QUEUED: [State; 3] = [State::Buried, State::Delayed, State::Ready];

/// The number of stored candidates, of which some may be released before the search ends.
const CANDIDATES: usize = 16;

#[derive(Debug)]
pub struct FindReserved {
    from: u32,
    best: Box<Smallest<(Time, JobId)>>,
    /// `true` for the last search, after the jobs found by the first search were released.
    again: bool,
}

impl FindReserved {
    pub fn footprint(&self) -> u64 {
        (CANDIDATES * size_of::<(Time, JobId)>()) as u64
    }
}

impl Default for FindReserved {
    fn default() -> FindReserved {
        FindReserved { from: 0, best: Box::new(Smallest::new(0, CANDIDATES)), again: false }
    }
}

impl Engine {
    /// Deletes the jobs that existed when the flush began. Their keys can be used again immediately.
    pub fn flush(&mut self, flush: &mut Flush, now: Time) -> Progress {
        if flush.last.is_none() {
            flush.last = Some(self.store.last_id);
            flush.open = self.open_flush(flush);
        }
        let progress = self.flush_some(flush);
        if progress == Progress::Done {
            self.close_operation(&mut flush.open);
        }
        // A deleted reserved job may have blocked jobs of other tubes with the same concurrency key.
        self.serve_unblocked(now);
        progress
    }

    /// Records the flush for a restart, unless it deletes a single job.
    fn open_flush(&mut self, flush: &Flush) -> Option<u32> {
        let number = self.tubes.find(&flush.tube)?;
        if self.tubes.get_mut(number).counts.sum(&flush.states) < 2 {
            return None;
        }
        let Flush { tube, states, last, .. } = flush;
        let bound = last.unwrap_or_default();
        self.open_operation(OpenOperation { from: tube.clone(), to: Box::default(), states: states.clone(), bound })
    }

    fn flush_some(&mut self, flush: &mut Flush) -> Progress {
        let last = flush.last.unwrap_or_default();
        while let Some(number) = self.tubes.find(&flush.tube) {
            let mut counts = self.tubes.get(number).counts;
            if counts.sum(&flush.states) == 0 {
                break;
            }
            if !flush.held_done && (counts.held == 0 || !flush.states.contains(&State::Held)) {
                (flush.held_done, flush.from) = (true, 0);
            }
            let first = QUEUED.iter().filter(|state| flush.states.contains(state) && flush.held_done);
            let first = first.copied().find_map(|state| self.first_in(number, state));
            let first = first.filter(|&slot| self.store.jobs.get(slot).id.0 <= last);
            let slot = match first.or_else(|| self.walk_to_next(number, flush, last)) {
                Some(slot) => slot,
                None if self.walked_to(flush.from) == Progress::More => return Progress::More,
                None if flush.held_done => return Progress::Done,
                None => {
                    (flush.held_done, flush.from) = (true, 0);
                    continue;
                }
            };
            self.remove_job(slot, Outcome::Gone);
            self.agenda.steps.take(2 * MOVE);
            flush.done += 1;
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
        }
        Progress::Done
    }

    /// Returns `None` after the last job or if the step budget is used up.
    fn walk_to_next(&mut self, number: u32, flush: &mut Flush, last: u64) -> Option<u32> {
        loop {
            let slot = self.next_job(&mut flush.from)?;
            let job = self.store.jobs.get(slot);
            let is_next = flush.held_done || job.state() == State::Held;
            if job.tube == number && flush.states.contains(&job.state()) && job.id.0 <= last && is_next {
                return Some(slot);
            }
        }
    }

    /// A search over several calls can return a job that was reserved during the search.
    pub fn peek_reserved(&mut self, client: ClientId, find: &mut FindReserved) -> (Progress, Option<JobView<'_>>) {
        let number = self.clients[client].used;
        if self.tubes.get(number).counts.reserved == 0 {
            return (Progress::Done, None);
        }
        let few = self.clients.len() as u64 + self.store.counts.reserved;
        if few <= self.agenda.steps.left() {
            self.agenda.steps.take(few);
            return (Progress::Done, self.first_reserved(number).map(|slot| self.store.jobs.view(slot)));
        }
        while let Some(slot) = self.next_job(&mut find.from) {
            let job = self.store.jobs.get(slot);
            if job.tube == number && job.state() == State::Reserved {
                find.best.offer(job.due_key());
            }
        }
        if self.walked_to(find.from) == Progress::More {
            return (Progress::More, None);
        }
        let best = find.best.finish().unwrap_or_default();
        let there = best.iter().filter_map(|(_, id)| self.store.jobs.find(*id));
        let there: Vec<u32> = there.filter(|&slot| self.store.jobs.get(slot).tube == number).collect();
        let reserved = there.iter().find(|&&slot| self.store.jobs.get(slot).state() == State::Reserved);
        if reserved.is_none() && !find.again {
            *find = FindReserved { again: true, ..FindReserved::default() };
            return (Progress::More, None);
        }
        let found = reserved.or(there.first());
        (Progress::Done, found.map(|&slot| self.store.jobs.view(slot)))
    }

    /// Checks the reservations of all clients, because a tube has no list of its reserved jobs.
    fn first_reserved(&self, number: u32) -> Option<u32> {
        let held = self.clients.iter().flat_map(|(_, client)| {
            let leaving = client.leaving.iter().flat_map(|leaving| leaving.iter());
            client.reserved().iter().map(|(_, slot)| slot).chain(leaving.map(|(_, slot)| slot))
        });
        held.filter(|&slot| self.store.jobs.get(slot).tube == number)
            .min_by_key(|&slot| self.store.jobs.get(slot).due_key())
    }
}
