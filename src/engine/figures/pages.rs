//! Pages of long lists, and iterations that can take several calls. An iteration visits every item exactly once, except
//! that it may miss items added or removed during the iteration. A callback that returns a `usize` returns the size of
//! its output in bytes. Must not change anything except the step budget.
//! Touches: agenda, clients, store, tubes.

use std::sync::Arc;

use super::stats::{tube_figures, ClientStats, TubeStats};
use crate::engine::data::*;
use crate::engine::Engine;

/// The number of steps per listed job, schedule or client, in addition to one step per 64 bytes of output.
const LINE: u64 = 4;

#[derive(Debug)]
pub struct JobPage {
    state: State,
    offset: usize,
    limit: usize,
    smallest: Smallest<(Priority, Time, JobId)>,
    from: u32,
}

#[derive(Debug)]
pub struct NamePage {
    smallest: Smallest<Arc<[u8]>>,
    from: u32,
}

#[derive(Debug)]
pub enum Page<'a> {
    Jobs(Vec<JobView<'a>>),
    NotFound,
    More,
}

impl JobPage {
    /// The `state` must be ready or delayed.
    pub fn new(state: State, offset: usize, limit: usize) -> JobPage {
        JobPage { state, offset, limit, smallest: Smallest::new(offset, limit), from: 0 }
    }

    pub fn footprint(&self) -> u64 {
        self.smallest.footprint()
    }
}

impl NamePage {
    pub fn new(offset: usize, limit: usize) -> NamePage {
        NamePage { smallest: Smallest::new(offset, limit), from: 0 }
    }

    /// Includes the names and their reference counts, because the page may outlive the tubes.
    pub fn footprint(&self) -> u64 {
        let names = self.smallest.keys().map(|name| name.len() + 2 * size_of::<usize>());
        self.smallest.footprint() + names.sum::<usize>() as u64
    }
}

/// Queues of at most this many jobs are read completely. Jobs of longer queues are found by ID or by slot.
const SHORT: u64 = 512;

#[derive(Debug)]
pub struct IdPage {
    /// The name of the tube, or an empty name to list the jobs of all tubes.
    pub tube: Box<[u8]>,
    state: State,
    begin: u64,
    above: u64,
    limit: usize,
    found: Vec<JobId>,
    smallest: Option<Box<Smallest<JobId>>>,
    from: u32,
}

impl IdPage {
    pub fn new(tube: Box<[u8]>, state: State, above: u64, limit: usize) -> IdPage {
        IdPage { tube, state, begin: above, above, limit, found: Vec::new(), smallest: None, from: 0 }
    }

    pub fn footprint(&self) -> u64 {
        let smallest = self.smallest.as_ref().map_or(0, |it| size_of_val(&**it) as u64 + it.footprint());
        (self.tube.len() + self.found.capacity() * size_of::<JobId>()) as u64 + smallest
    }
}

#[derive(Debug)]
pub struct BuriedWalk {
    /// The name of the tube, or `None` for all tubes.
    tube: Option<Box<[u8]>>,
    /// `None` after the last tube.
    next_tube: Option<u32>,
    /// The remaining buried jobs of the current tube, in reverse order.
    ids: Vec<JobId>,
    /// The numbers of tubes with many buried jobs, in ascending order. The walk finds these jobs by visiting all slots.
    long: Vec<u32>,
    from: u32,
}

impl BuriedWalk {
    pub fn new(tube: Option<Box<[u8]>>) -> BuriedWalk {
        BuriedWalk { tube, next_tube: Some(0), ids: Vec::new(), long: Vec::new(), from: 0 }
    }

    pub fn footprint(&self) -> u64 {
        let name = self.tube.as_ref().map_or(0, |name| name.len());
        (name + self.ids.capacity() * size_of::<JobId>() + self.long.capacity() * 4) as u64
    }
}

fn key(job: &Job) -> (Priority, Time, JobId) {
    (job.pri, job.due, job.id)
}

impl Engine {
    /// The result of `visit` is the number of steps to charge.
    pub(super) fn walk(&mut self, from: &mut u32, end: u32, mut visit: impl FnMut(&Engine, u32) -> u64) -> Progress {
        while *from < end {
            if self.agenda.steps.are_used_up() {
                return Progress::More;
            }
            let steps = visit(self, *from);
            *from += 1;
            self.agenda.steps.take(steps);
        }
        Progress::Done
    }

    pub fn walk_jobs(&mut self, from: &mut u32, mut each: impl FnMut(&Engine, &JobView) -> usize) -> Progress {
        while let Some(slot) = self.next_job(from) {
            let bytes = each(self, &self.store.jobs.view(slot));
            self.agenda.steps.take(LINE + bytes as u64 / 64);
        }
        self.walked_to(*from)
    }

    /// Charges one step per job or per 16 vacant slots. Returns `None` after the last slot or if no steps are left.
    pub(in crate::engine) fn next_job(&mut self, from: &mut u32) -> Option<u32> {
        while *from < self.store.jobs.slots.end() && !self.agenda.steps.are_used_up() {
            let end = (*from + 16).min(self.store.jobs.slots.end());
            let found = (*from..end).find(|&slot| self.store.jobs.slots.try_get(slot).is_some());
            self.agenda.steps.take(1);
            *from = found.map_or(end, |slot| slot + 1);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    pub(in crate::engine) fn walked_to(&self, from: u32) -> Progress {
        match from >= self.store.jobs.slots.end() {
            true => Progress::Done,
            false => Progress::More,
        }
    }

    pub fn walk_tubes(&mut self, from: &mut u32, now: Time, mut each: impl FnMut(&TubeStats) -> usize) -> Progress {
        self.walk(from, self.tubes.table.items.end(), |engine, number| {
            let tube = engine.tubes.table.items.try_get(number);
            1 + tube.map_or(0, |tube| each(&tube_figures(tube, now))) as u64 / 64
        })
    }

    /// Includes the pseudo-client that holds leased jobs.
    pub fn walk_clients(
        &mut self,
        from: &mut u32,
        now: Time,
        mut each: impl FnMut(&Engine, &ClientStats) -> usize,
    ) -> Progress {
        self.walk(from, self.clients.end, |engine, number| {
            match engine.client_stats(number, now).map_or(0, |stats| each(engine, &stats)) {
                0 => 1,
                bytes => LINE + bytes as u64 / 64,
            }
        })
    }

    pub fn walk_schedules(&mut self, from: &mut u32, mut each: impl FnMut(&Engine, &JobView) -> usize) -> Progress {
        self.walk(from, self.store.schedules.table.items.end(), |engine, number| {
            match engine.store.schedules.table.items.try_get(number) {
                Some(schedule) => LINE + each(engine, &engine.store.jobs.view(schedule.slot)) as u64 / 64,
                // Charge one step per 64 numbers without a schedule.
                None => u64::from(number % 64 == 63),
            }
        })
    }

    /// Visits all tube names in list order, or returns `false` if the step budget does not suffice.
    pub fn walk_few_tubes(&mut self, mut each: impl FnMut(&[u8])) -> bool {
        let left = self.agenda.steps.left();
        // A list contains up to four bytes for each byte of a name.
        let steps = self.tubes.iter().map(|(_, tube)| 1 + tube.name.len() as u64 / 16);
        let steps: u64 = steps.take(left.saturating_add(1) as usize).sum();
        if steps > left {
            return false;
        }
        self.tubes.iter().for_each(|(_, tube)| each(&tube.name));
        self.agenda.steps.take(steps);
        true
    }

    /// Skips the first `from` tubes. The order is reversed for [`ReservePolicy::Notified`].
    pub fn walk_watched(&mut self, client: ClientId, from: &mut u32, mut each: impl FnMut(&[u8]) -> usize) -> Progress {
        let count = self.clients[client].watched.len();
        self.walk(from, count as u32, |engine, number| {
            let ClientState { reserve_policy, watched, .. } = &engine.clients[client];
            let is_backwards = *reserve_policy == ReservePolicy::Notified;
            let watch = watched[if is_backwards { count - 1 - number as usize } else { number as usize }];
            1 + each(&engine.tubes.get(engine.clients.watches.get(watch).tube).name) as u64 / 64
        })
    }

    /// Returns a page of a tube's jobs, except for ready jobs that are too large for a lease.
    pub fn jobs_of(&mut self, tube: &[u8], page: &mut JobPage) -> Page<'_> {
        let Some(number) = self.tubes.find(tube) else { return Page::NotFound };
        let tube = self.tubes.get(number);
        let end = page.offset.saturating_add(page.limit).min(tube.ready.len()) as u64;
        // Other ready jobs wait in lanes, either behind another job or because a limit is reached.
        let in_lanes = tube.counts.ready > (tube.ready.len() + tube.large_jobs()) as u64;
        if page.state == State::Ready && !in_lanes && end <= self.agenda.steps.left() {
            self.agenda.steps.take(end);
            let slots = tube.ready.in_order(&self.store.jobs).skip(page.offset).take(page.limit);
            return Page::Jobs(slots.map(|slot| self.store.jobs.view(slot)).collect());
        }
        loop {
            if self.offer_jobs(number, page) == Progress::More {
                return Page::More;
            }
            page.from = 0;
            if let Some(keys) = page.smallest.finish() {
                // Jobs found in earlier calls may have been removed, or may have changed their state.
                let jobs = &self.store.jobs;
                let views = keys.into_iter().filter_map(|(.., id)| Some(jobs.view(jobs.find(id)?)));
                return Page::Jobs(views.filter(|job| job.state() == page.state && job.tube == number).collect());
            }
        }
    }

    fn offer_jobs(&mut self, number: u32, page: &mut JobPage) -> Progress {
        let tube = self.tubes.get(number);
        let (is_ready, count) = (page.state == State::Ready, tube.delayed.len() as u64);
        if page.from == 0 && !is_ready && count <= self.agenda.steps.left() {
            tube.delayed.iter().for_each(|(_, slot)| page.smallest.offer(key(self.store.jobs.get(slot))));
            self.agenda.steps.take(count);
            return Progress::Done;
        }
        while let Some(slot) = self.next_job(&mut page.from) {
            let job = self.store.jobs.get(slot);
            if job.tube == number && job.state() == page.state && !(is_ready && self.is_large(job)) {
                page.smallest.offer(key(job));
            }
        }
        self.walked_to(page.from)
    }

    pub fn tubes_of(
        &mut self,
        page: &mut NamePage,
        now: Time,
        shown: impl Fn(&TubeStats) -> bool,
    ) -> Option<Vec<Arc<[u8]>>> {
        loop {
            let NamePage { smallest, from } = page;
            let progress = self.walk(from, self.tubes.table.items.end(), |engine, number| {
                let tube = engine.tubes.table.items.try_get(number);
                if let Some(tube) = tube.filter(|tube| shown(&tube_figures(tube, now))) {
                    smallest.offer(tube.name.clone());
                }
                1
            });
            if progress == Progress::More {
                return None;
            }
            page.from = 0;
            if let found @ Some(_) = page.smallest.finish() {
                return found;
            }
        }
    }

    /// If the page covers all tubes, omits the jobs of tubes for which `sees` returns `false`.
    pub fn list_ids(&mut self, page: &mut IdPage, sees: impl Fn(&[u8]) -> bool) -> Option<(Progress, Vec<JobId>)> {
        let number = if page.tube.is_empty() { None } else { Some(self.tubes.find(&page.tube)?) };
        let counts = number.map_or(&mut self.store.counts, |number| &mut self.tubes.get_mut(number).counts);
        let count = counts.sum(&[page.state]);
        if count == 0 {
            return Some((Progress::Done, std::mem::take(&mut page.found)));
        }
        let is_short = page.from == 0 && page.found.is_empty() && count <= SHORT;
        if let Some(ids) = number.filter(|_| is_short).and_then(|number| self.short_page(number, page)) {
            self.agenda.steps.take(count);
            return Some((Progress::Done, ids));
        }
        let state = page.state;
        let in_tube = |it: &Engine, job: &Job| number.map_or_else(|| sees(it.tube_of(job)), |own| job.tube == own);
        Some(self.page_by_id(page, &|engine, job| job.state() == state && in_tube(engine, job)))
    }

    /// Returns the page, or `None` if the tube's queue does not contain all jobs in the state.
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

    fn page_by_id(&mut self, page: &mut IdPage, is_listed: &dyn Fn(&Engine, &Job) -> bool) -> (Progress, Vec<JobId>) {
        while page.found.len() < page.limit && page.above < self.store.last_id {
            // If IDs are sparse, a walk over all jobs is faster than a search by ID.
            if page.smallest.is_some() || (page.above - page.begin) / 16 > u64::from(self.store.jobs.slots.end()) {
                return self.page_by_slot(page, is_listed);
            }
            if self.agenda.steps.are_used_up() {
                return (Progress::More, Vec::new());
            }
            let mut checked = 1;
            for slot in self.store.jobs.ids.row_above(JobId(page.above)) {
                checked += 1;
                let job = self.store.jobs.get(slot);
                if page.found.len() < page.limit && is_listed(self, job) {
                    page.found.push(job.id);
                }
            }
            self.agenda.steps.take(checked);
            // Continue after the current row of 16 IDs.
            page.above = (page.above + 1) | 15;
        }
        (Progress::Done, std::mem::take(&mut page.found))
    }

    fn page_by_slot(&mut self, page: &mut IdPage, is_listed: &dyn Fn(&Engine, &Job) -> bool) -> (Progress, Vec<JobId>) {
        let smallest = page.smallest.get_or_insert_with(|| Box::new(Smallest::new(0, page.limit)));
        while let Some(slot) = self.next_job(&mut page.from) {
            let job = self.store.jobs.get(slot);
            if job.id.0 > page.above && is_listed(self, job) {
                smallest.offer(job.id);
            }
        }
        if self.walked_to(page.from) == Progress::More {
            return (Progress::More, Vec::new());
        }
        let mut ids = smallest.finish().unwrap_or_default();
        ids.splice(0..0, std::mem::take(&mut page.found));
        ids.truncate(page.limit);
        (Progress::Done, ids)
    }

    /// Returns `None` after the last job or if the step budget is used up; see [`Engine::walked_buried`].
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

    pub fn walked_buried(&self, walk: &BuriedWalk) -> Progress {
        if walk.next_tube.is_some() || !walk.ids.is_empty() {
            Progress::More
        } else if walk.long.is_empty() {
            Progress::Done
        } else {
            self.walked_to(walk.from)
        }
    }

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
        if tube.buried.len() as u64 > SHORT {
            walk.long.push(number);
            return;
        }
        walk.ids.extend(tube.buried.iter(&self.store.jobs).map(|slot| self.store.jobs.get(slot).id));
        walk.ids.reverse();
        self.agenda.steps.take(walk.ids.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Body, Limits, NewJob};

    /// The names on a page of tubes count, because other clients can delete the tubes before the page is complete.
    #[test]
    fn interrupted_lists_count_the_memory_that_they_hold() {
        let now = Time::from_nanos(1 << 60);
        let mut engine = Engine::new(Limits::NONE);
        let client = engine.connect();
        for number in 0..100 {
            engine.use_tube(client, format!("{number:0400}").as_bytes()).expect("memory");
            let new = NewJob { pri: 0, delay: Span::ZERO, ttr: Span::from_secs(60), body: Body::from(b"x".as_slice()) };
            let id = engine.put(client, new, now).expect("memory");
            assert!(engine.reserve_job(client, id, now).is_some());
        }
        engine.grant_steps(50);
        let mut names = NamePage::new(0, 1000);
        assert_eq!(engine.tubes_of(&mut names, now, |_| true), None);
        assert!(names.footprint() > 40 * 400, "{}", names.footprint());
        let mut page = IdPage::new(Box::default(), State::Reserved, 0, 64);
        engine.grant_steps(50);
        assert_eq!(engine.list_ids(&mut page, |_| true), Some((Progress::More, Vec::new())));
        assert!(page.footprint() >= 8 * page.found.len() as u64 && !page.found.is_empty());
    }
}
