//! How old the oldest job of a tube is, among those in one state.
//!
//! Owns the search, whose cost goes by what has changed since the last one: a tube remembers below which id there is no
//! such job. Must not change anything but that, and the steps that are left.
//!
//! Touches: store, tubes.

use super::id_pages::IdPage;
use crate::engine::data::job::{JobId, State};
use crate::engine::data::latency::OldestIds;
use crate::engine::data::steps::Progress;
use crate::engine::data::time::{Span, Time};
use crate::engine::Engine;

/// The states whose oldest jobs are looked for.
const STATES: [State; size_of::<OldestIds>() / size_of::<u64>()] = [State::Ready, State::Buried];

/// A search for the oldest ready and the oldest buried job of a tube.
#[derive(Debug)]
pub struct FindOldest {
    tube: Box<[u8]>,
    /// When those were put that are found; all of them, once it is done.
    found: Vec<Option<Time>>,
    /// The search in progress, and from which id on.
    page: Option<(u64, IdPage)>,
}

impl FindOldest {
    /// Of the tube with this name.
    pub fn new(tube: Box<[u8]>) -> FindOldest {
        FindOldest { tube, found: Vec::new(), page: None }
    }

    pub fn tube(&self) -> &[u8] {
        &self.tube
    }

    /// The ages of the oldest ready and the oldest buried job; zero if there is none.
    pub fn ages(&self, now: Time) -> [Span; 2] {
        [0, 1].map(|place| self.found.get(place).copied().flatten().map_or(Span::ZERO, |put| now.since(put)))
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        let page = self.page.as_ref().map_or(0, |(_, page)| page.footprint());
        self.tube.len() as u64 + page
    }
}

impl Engine {
    /// Goes on with the search. A tube that is not there has no jobs.
    pub fn find_oldest(&mut self, find: &mut FindOldest) -> Progress {
        while let Some(&state) = STATES.get(find.found.len()) {
            let Some(number) = self.tubes.find(&find.tube) else { break };
            let place = find.found.len();
            let first = self.oldest_ids(number)[place];
            if find.page.is_none() {
                if let Some(put) = self.put_time(number, state, first) {
                    find.found.push(Some(put));
                    continue;
                }
            }
            let start = || (first, IdPage::new(find.tube.clone(), state, first.saturating_sub(1), 1));
            let (begin, page) = find.page.get_or_insert_with(start);
            let id = match self.list_ids(page) {
                Some((Progress::More, _)) => return Progress::More,
                Some((Progress::Done, ids)) => ids.first().map_or(u64::MAX, |id| id.0),
                None => u64::MAX,
            };
            // An older one may have come meanwhile.
            let was_begin = *begin == first;
            find.page = None;
            let id = if was_begin || self.put_time(number, state, first).is_none() { id } else { first };
            if let Some(times) = self.tubes.get_mut(number).times.as_mut().filter(|_| was_begin && id != u64::MAX) {
                times.oldest[place] = id;
            }
            find.found.push(self.put_time(number, state, id));
        }
        Progress::Done
    }

    fn oldest_ids(&self, number: u32) -> OldestIds {
        self.tubes.get(number).times.as_ref().map_or([0; 2], |times| times.oldest)
    }

    /// When the job with this id was put, if it is in this tube and state.
    fn put_time(&self, number: u32, state: State, id: u64) -> Option<Time> {
        let job = self.store.jobs.get(self.store.jobs.find(JobId(id))?);
        (job.tube == number && job.state() == state).then_some(job.created)
    }

    /// The job in `slot` has just become ready or buried: it may be the oldest one of its tube.
    pub(in crate::engine) fn mind_oldest(&mut self, slot: u32) {
        let job = self.store.jobs.get(slot);
        let Some(place) = STATES.iter().position(|state| *state == job.state()) else { return };
        let (number, id) = (job.tube, job.id.0);
        if let Some(times) = &mut self.tubes.get_mut(number).times {
            times.oldest[place] = times.oldest[place].min(id);
        }
    }
}
