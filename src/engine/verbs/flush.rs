//! Emptying tubes, and finding what a client has reserved: walks that may be long.
//!
//! Owns how far they are. What is put after a flush has begun is left alone, so that it ends. Must not hand out jobs.
//!
//! Touches: agenda, clients, store, tubes.

use crate::engine::data::event::Outcome;
use crate::engine::data::handle::ClientId;
use crate::engine::data::job::{JobId, JobView, State};
use crate::engine::data::operations::{Flush, OpenOperation};
use crate::engine::data::smallest::Smallest;
use crate::engine::data::steps::{Progress, MOVE};
use crate::engine::data::time::Time;
use crate::engine::Engine;

/// The states of jobs that stand in a queue of their tube, in the order in which a flush takes them.
const QUEUED: [State; 3] = [State::Buried, State::Delayed, State::Ready];

/// How many of the jobs that were found are remembered: some may be given back before the search is over.
const CANDIDATES: usize = 16;

/// A search for the reserved job of a tube whose time to run ends first.
#[derive(Debug)]
pub struct FindReserved {
    from: u32,
    best: Smallest<(Time, JobId)>,
    /// What a first search had found was given back; there is no third one.
    again: bool,
}

impl FindReserved {
    /// Bytes of memory beside itself, at most.
    pub fn footprint(&self) -> u64 {
        (CANDIDATES * size_of::<(Time, JobId)>()) as u64
    }
}

impl Default for FindReserved {
    fn default() -> FindReserved {
        FindReserved { from: 0, best: Smallest::new(0, CANDIDATES), again: false }
    }
}

impl Engine {
    /// Takes away the jobs of a tube that there were when it began; who waits for one is told that it is gone. Their
    /// keys may be used again at once.
    pub fn flush(&mut self, flush: &mut Flush, now: Time) -> Progress {
        if flush.last.is_none() {
            flush.last = Some(self.store.last_id);
            flush.open = self.open_flush(flush);
        }
        let progress = self.flush_some(flush);
        if progress == Progress::Done {
            self.close_operation(&mut flush.open);
        }
        // What was reserved may have held up jobs of other tubes.
        self.serve_unblocked(now);
        progress
    }

    /// One job goes by one record, which needs no other.
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

    /// The next job to flush, as far as the steps go.
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

    /// The reserved job of the tube that the client uses whose time to run ends first. If all that is reserved is too
    /// much to look at in one turn, it may be given back meanwhile; then the answer is one that was reserved during the
    /// search.
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

    /// The same, found in one go among all that clients hold.
    fn first_reserved(&self, number: u32) -> Option<u32> {
        let held = self.clients.iter().flat_map(|(_, client)| {
            let leaving = client.leaving.iter().flat_map(|leaving| leaving.iter());
            client.reserved().iter().map(|(_, slot)| slot).chain(leaving.map(|(_, slot)| slot))
        });
        held.filter(|&slot| self.store.jobs.get(slot).tube == number)
            .min_by_key(|&slot| self.store.jobs.get(slot).due_key())
    }
}
