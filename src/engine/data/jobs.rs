//! All jobs by slot and by ID, and their bodies. Must not depend on states or queues.

use super::{Bodies, Body, Ids, Job, JobId, JobView, Linked, Links, Positions, Slots};

/// Bytes charged for a job, its index entry, and the overhead of its body.
pub const JOB_COST: u64 = size_of::<Job>() as u64 + 6 + 10;

/// Vacated bytes that are not charged. A queue that was emptied and refilled has about this many.
const SPARE: u64 = 8 << 20;

#[derive(Debug, Default)]
pub struct Jobs {
    pub(in crate::engine) slots: Slots<Job>,
    pub(in crate::engine) ids: Ids,
    pub(in crate::engine) bodies: Bodies,
}

impl Jobs {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn insert(&mut self, job: Job) -> u32 {
        let id = job.id;
        let slot = self.slots.insert(job);
        self.ids.insert(id, slot);
        slot
    }

    pub fn memory(&self) -> u64 {
        self.len() as u64 * JOB_COST + self.bodies.held + self.spare()
    }

    /// Vacated bytes that are charged, because only jobs and bodies of the same size can reuse them.
    pub fn spare(&self) -> u64 {
        (self.bodies.spare + self.slots.spare()).saturating_sub(SPARE)
    }

    pub fn find(&self, id: JobId) -> Option<u32> {
        self.ids.find(id)
    }

    pub fn remove(&mut self, slot: u32) -> Job {
        self.remove_with(slot, |_, _| ())
    }

    #[inline]
    pub fn remove_with(&mut self, slot: u32, see: impl FnOnce(&Job, &[u8])) -> Job {
        let job = self.slots.remove(slot);
        self.ids.remove(job.id);
        self.bodies.remove_with(job.body, |body| see(&job, body));
        job
    }

    pub fn extend_body(&mut self, slot: u32, more: &[u8]) {
        if more.is_empty() {
            return;
        }
        let old = self.slots.get(slot).body;
        let whole = [self.bodies.get(old).bytes(), more].concat();
        self.slots.get_mut(slot).body = self.bodies.add(Body::from(whole));
        self.bodies.remove(old);
    }

    /// `job` must have the same ID.
    pub fn replace(&mut self, slot: u32, job: Job) {
        let old = std::mem::replace(self.slots.get_mut(slot), job);
        self.bodies.remove(old.body);
    }

    pub fn get(&self, slot: u32) -> &Job {
        self.slots.get(slot)
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Job {
        self.slots.get_mut(slot)
    }

    pub fn view(&self, slot: u32) -> JobView<'_> {
        let job = self.get(slot);
        JobView { job, body: self.bodies.get(job.body) }
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

impl Positions for Jobs {
    fn set_position(&mut self, slot: u32, position: u32) {
        self.get_mut(slot).links.prev = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::data::details::Details;
    use crate::engine::data::time::{Span, Time};

    #[test]
    fn a_job_is_found_with_its_body_until_it_is_removed() {
        let mut jobs = Jobs::default();
        let add = |id: u64, jobs: &mut Jobs| {
            let body = jobs.bodies.copy(&id.to_le_bytes());
            jobs.insert(Job::new(JobId(id), 0, 0, Details::new(Span::ZERO, Span::ZERO), body, Time::default()))
        };
        let slots: Vec<u32> = (1..=10_000).map(|id| add(id, &mut jobs)).collect();
        for &slot in slots.iter().step_by(3) {
            jobs.remove(slot);
        }
        for id in 1..=10_000u64 {
            let found = jobs.find(JobId(id)).map(|slot| jobs.view(slot).body().bytes().to_vec());
            assert_eq!(found, (id % 3 != 1).then_some(id.to_le_bytes().to_vec()));
        }
        assert_eq!((jobs.len(), jobs.slots.iter().count()), (6666, 6666));
    }

    #[test]
    fn a_job_is_small() {
        assert!(size_of::<Job>() <= 72, "{}", size_of::<Job>());
    }
}
