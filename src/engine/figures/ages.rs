//! The age of the oldest job in a state, in a tube or in the whole queue.
//!
//! Owns the search. The search stores and raises a lower bound of the oldest job's ID, so that no ID is checked twice,
//! even if the search takes several calls. Must not change anything except the bounds and the step budget.
//!
//! Touches: agenda, store, tubes.

use crate::engine::data::{JobId, OldestIds, Progress, Span, State, Time};
use crate::engine::Engine;

/// The searched states, in the order of [`OldestIds`].
const STATES: [State; 3] = [State::Ready, State::Delayed, State::Buried];

const SHORT: usize = 128;

/// An ID and a creation time.
type Oldest = (JobId, Time);

#[derive(Debug, Default)]
pub struct FindOldest {
    /// `None` for the whole queue.
    tube: Option<Box<[u8]>>,
    /// In the order of [`STATES`]; `None` without a job in the state.
    found: Vec<Option<Oldest>>,
    /// The next slot and the smallest ID of a walk over all jobs, which is used if IDs are sparse.
    walk: Option<(u32, u64)>,
}

impl FindOldest {
    pub fn new(tube: Box<[u8]>) -> FindOldest {
        FindOldest { tube: Some(tube), ..FindOldest::default() }
    }

    pub fn tube(&self) -> &[u8] {
        self.tube.as_deref().unwrap_or_default()
    }

    pub fn ages(&self, now: Time) -> [Span; 3] {
        [0, 1, 2].map(|position| self.oldest(position).map_or(Span::ZERO, |(_, put)| now.since(put)))
    }

    pub fn oldest_ready(&self) -> Option<JobId> {
        self.oldest(0).map(|(id, _)| id)
    }

    fn oldest(&self, position: usize) -> Option<Oldest> {
        self.found.get(position).copied().flatten()
    }

    pub fn footprint(&self) -> u64 {
        self.tube().len() as u64
    }
}

impl Engine {
    pub fn find_oldest(&mut self, find: &mut FindOldest) -> Progress {
        while find.found.len() < STATES.len() {
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
            let number = find.tube.as_ref().map(|name| self.tubes.find(name));
            if number == Some(None) {
                break;
            }
            let Some(oldest) = self.oldest_of(number.flatten(), find) else { return Progress::More };
            find.found.push(oldest);
            find.walk = None;
            self.agenda.steps.take(1);
        }
        Progress::Done
    }

    /// Returns the oldest job, `Some(None)` without a job, or `None` if the step budget is used up.
    fn oldest_of(&mut self, number: Option<u32>, find: &mut FindOldest) -> Option<Option<Oldest>> {
        let position = find.found.len();
        let state = STATES[position];
        let mut counts = number.map_or(self.store.counts, |number| self.tubes.get(number).counts);
        if counts.sum(&[state]) == 0 {
            return Some(None);
        }
        if let Some(slot) = number.and_then(|number| self.oldest_in_queue(number, state)) {
            let job = self.store.jobs.get(slot);
            let oldest = (job.id, job.created);
            self.bounds(number)[position] = oldest.0 .0;
            return Some(Some(oldest));
        }
        loop {
            let bound = self.bounds(number)[position];
            // If IDs are sparse, a walk over all jobs is faster than a search by ID.
            let rows = self.store.last_id.saturating_sub(bound) / 16;
            if find.walk.is_some() || rows > u64::from(self.store.jobs.slots.end()) {
                return self.walk_all(number, state, &mut find.walk);
            }
            if self.agenda.steps.are_used_up() {
                return None;
            }
            let mut checked = 1;
            let found = self.store.jobs.ids.row_above(JobId(bound.saturating_sub(1))).find(|&slot| {
                checked += 1;
                self.is_in(slot, number, state)
            });
            let found = found.map(|slot| self.store.jobs.get(slot)).map(|job| (job.id, job.created));
            self.agenda.steps.take(checked);
            // If no job was found, continue after the current row of 16 IDs.
            self.bounds(number)[position] = found.map_or((bound.max(1) | 15) + 1, |(id, _)| id.0);
            if found.is_some() {
                return Some(found);
            }
        }
    }

    fn oldest_in_queue(&mut self, number: u32, state: State) -> Option<u32> {
        let tube = self.tubes.get(number);
        let (slot, checked) = match state {
            State::Ready if !tube.displaced && tube.ready.len() as u64 == tube.counts.ready => {
                tube.ready.oldest(&self.store.jobs, SHORT)?
            }
            State::Delayed if tube.delayed.len() <= SHORT => (
                tube.delayed.iter().map(|(_, slot)| slot).min_by_key(|slot| self.store.jobs.get(*slot).id)?,
                tube.delayed.len(),
            ),
            State::Buried if tube.buried.len() <= SHORT => (
                tube.buried.iter(&self.store.jobs).min_by_key(|slot| self.store.jobs.get(*slot).id)?,
                tube.buried.len(),
            ),
            _ => return None,
        };
        self.agenda.steps.take(checked as u64);
        Some(slot)
    }

    /// Does not raise the bound, because older jobs can enter the state during the walk.
    fn walk_all(&mut self, tube: Option<u32>, state: State, walk: &mut Option<(u32, u64)>) -> Option<Option<Oldest>> {
        let (mut from, mut smallest) = walk.unwrap_or((0, u64::MAX));
        while let Some(slot) = self.next_job(&mut from) {
            if self.is_in(slot, tube, state) {
                smallest = smallest.min(self.store.jobs.get(slot).id.0);
            }
        }
        if self.walked_to(from) == Progress::More {
            *walk = Some((from, smallest));
            return None;
        }
        let job = self.store.jobs.find(JobId(smallest)).map(|slot| self.store.jobs.get(slot));
        Some(job.map(|job| (job.id, job.created)))
    }

    fn is_in(&self, slot: u32, number: Option<u32>, state: State) -> bool {
        let job = self.store.jobs.get(slot);
        job.state() == state && number.is_none_or(|number| number == job.tube)
    }

    fn bounds(&mut self, number: Option<u32>) -> &mut [u64; 3] {
        let OldestIds(bounds) = match number {
            Some(number) => &mut self.tubes.get_mut(number).oldest,
            None => &mut self.store.oldest,
        };
        bounds
    }
}
