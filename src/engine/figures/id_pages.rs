//! Pages of the IDs of a tube's jobs in one state.
//!
//! Owns the search for such a page, at a cost proportional to the page: it uses the cheapest of the tube's own queue,
//! the table of IDs, and the store of jobs. Must not change anything but the remaining steps.
//!
//! Touches: agenda, store, tubes.

use crate::engine::data::{JobId, Progress, Smallest, State};
use crate::engine::Engine;

/// The maximum size of a queue that is searched as a whole.
const SHORT: u64 = 512;

#[derive(Debug)]
pub struct IdPage {
    pub tube: Box<[u8]>,
    state: State,
    /// Only IDs above this one, which grows during the walk over the table of IDs.
    above: u64,
    limit: usize,
    found: Vec<JobId>,
    smallest: Option<Smallest<JobId>>,
    from: u32,
}

impl IdPage {
    /// The first `limit` IDs, at most 1,000, above this one.
    pub fn new(tube: Box<[u8]>, state: State, above: u64, limit: usize) -> IdPage {
        IdPage { tube, state, above, limit, found: Vec::new(), smallest: None, from: 0 }
    }

    pub fn footprint(&self) -> u64 {
        (self.tube.len() + 8 * self.limit) as u64
    }
}

impl Engine {
    /// Finds the page, or as much of it as the steps suffice for. Returns `None` if there is no such tube.
    pub fn list_ids(&mut self, page: &mut IdPage) -> Option<(Progress, Vec<JobId>)> {
        let number = self.tubes.find(&page.tube)?;
        let count = self.tubes.get_mut(number).counts.sum(&[page.state]);
        if count == 0 {
            return Some((Progress::Done, std::mem::take(&mut page.found)));
        }
        if page.from == 0 && page.found.is_empty() && count <= SHORT {
            if let Some(ids) = self.short_page(number, page) {
                self.agenda.steps.take(count);
                return Some((Progress::Done, ids));
            }
        }
        // Passing sparse IDs takes longer than passing all jobs.
        let rows = self.store.last_id.saturating_sub(page.above) / 16;
        if page.smallest.is_none() && rows <= u64::from(self.store.jobs.slots.end()) {
            return Some(self.page_by_id(number, page));
        }
        Some(self.page_by_slot(number, page))
    }

    /// Returns the page from the tube's own queue, if all such jobs are in that queue.
    fn short_page(&self, number: u32, page: &IdPage) -> Option<Vec<JobId>> {
        let tube = self.tubes.get(number);
        let id = |slot: u32| self.store.jobs.get(slot).id;
        let mut ids: Vec<JobId> = match page.state {
            State::Ready if tube.ready.len() as u64 == tube.counts.ready => {
                tube.ready.iter(&self.store.jobs).map(id).collect()
            }
            State::Delayed => tube.delayed.iter().map(|(_, slot)| id(slot)).collect(),
            State::Buried => tube.buried.iter(&self.store.jobs).map(id).collect(),
            _ => return None,
        };
        ids.retain(|id| id.0 > page.above);
        ids.sort_unstable();
        ids.truncate(page.limit);
        Some(ids)
    }

    fn page_by_id(&mut self, number: u32, page: &mut IdPage) -> (Progress, Vec<JobId>) {
        while page.found.len() < page.limit && page.above < self.store.last_id {
            if self.agenda.steps.are_used_up() {
                return (Progress::More, Vec::new());
            }
            let mut looked = 1;
            for slot in self.store.jobs.ids.row_above(JobId(page.above)) {
                looked += 1;
                let job = self.store.jobs.get(slot);
                if job.tube == number && job.state() == page.state && page.found.len() < page.limit {
                    page.found.push(job.id);
                }
            }
            self.agenda.steps.take(looked);
            // The last id of the row.
            page.above = (page.above + 1) | 15;
        }
        (Progress::Done, std::mem::take(&mut page.found))
    }

    fn page_by_slot(&mut self, number: u32, page: &mut IdPage) -> (Progress, Vec<JobId>) {
        let (above, state, limit) = (page.above, page.state, page.limit);
        let smallest = page.smallest.get_or_insert_with(|| Smallest::new(0, limit));
        while let Some(slot) = self.next_job(&mut page.from) {
            let job = self.store.jobs.get(slot);
            if job.tube == number && job.state() == state && job.id.0 > above {
                smallest.offer(job.id);
            }
        }
        if self.walked_to(page.from) == Progress::More {
            return (Progress::More, Vec::new());
        }
        let mut ids = smallest.finish().unwrap_or_default();
        ids.splice(0..0, std::mem::take(&mut page.found));
        ids.truncate(limit);
        (Progress::Done, ids)
    }
}
