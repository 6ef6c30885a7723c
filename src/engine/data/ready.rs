//! The ready jobs of a tube by priority and rank (usually the job ID), and the lanes of concurrency keys. Most jobs
//! arrive in order. They are appended to a list, and removed from its front without comparisons.
//! Enforces promise P5 of beanpole-promises(7).

use super::{Heap, JobFlag, Jobs, List, Priority, Time};

#[derive(Debug, Default)]
pub struct ReadyQueue {
    /// Jobs that arrived in order.
    run: List,
    rest: Heap<(Priority, Time)>,
}

impl ReadyQueue {
    pub fn len(&self) -> usize {
        self.run.len() + self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn first(&self, jobs: &Jobs) -> Option<u32> {
        match (self.run.first(), self.rest.first()) {
            (Some(slot), Some((key, other))) => Some(if jobs.get(slot).ready_key() < key { slot } else { other }),
            (Some(slot), None) | (None, Some((_, slot))) => Some(slot),
            (None, None) => None,
        }
    }

    /// The job must be in no queue.
    pub fn push(&mut self, slot: u32, jobs: &mut Jobs) {
        let key = jobs.get(slot).ready_key();
        let in_order = self.run.last().is_none_or(|last| jobs.get(last).ready_key() < key);
        if in_order {
            jobs.get_mut(slot).set(JobFlag::InRun, true);
            self.run.push_back(slot, jobs);
        } else {
            self.rest.push(key, slot, jobs);
        }
    }

    pub fn remove(&mut self, slot: u32, jobs: &mut Jobs) {
        let job = jobs.get_mut(slot);
        if job.has(JobFlag::InRun) {
            job.set(JobFlag::InRun, false);
            self.run.remove(slot, jobs);
        } else {
            let position = job.position();
            self.rest.remove(position, jobs);
        }
    }

    /// Returns the smallest rank and the number of compared jobs, or `None` if that number would exceed `limit`.
    pub fn oldest(&self, jobs: &Jobs, limit: usize) -> Option<(u32, usize)> {
        let is_sorted_by_rank = match (self.run.first(), self.run.last()) {
            (Some(first), Some(last)) => jobs.get(first).pri == jobs.get(last).pri,
            _ => true,
        };
        let of_run = if is_sorted_by_rank { 1 } else { self.run.len() };
        let checked = of_run + self.rest.len();
        if checked > limit {
            return None;
        }
        let slots = self.run.iter(jobs).take(of_run).chain(self.rest.iter().map(|(_, slot)| slot));
        Some((slots.min_by_key(|slot| jobs.get(*slot).due)?, checked))
    }

    pub fn in_order<'a>(&'a self, jobs: &'a Jobs) -> impl Iterator<Item = u32> + 'a {
        let mut run = self.run.iter(jobs).peekable();
        let mut rest = self.rest.in_order().map(|(_, slot)| slot).peekable();
        let key = |slot: u32| jobs.get(slot).ready_key();
        std::iter::from_fn(move || match (run.peek(), rest.peek()) {
            (Some(&first), Some(&other)) if key(other) < key(first) => rest.next(),
            (Some(_), _) => run.next(),
            (None, _) => rest.next(),
        })
    }

    pub fn iter<'a>(&'a self, jobs: &'a Jobs) -> impl Iterator<Item = u32> + 'a {
        self.run.iter(jobs).chain(self.rest.iter().map(|(_, slot)| slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::data::details::Details;
    use crate::engine::data::job::{Job, JobId};
    use crate::engine::data::time::Span;

    // Tests promise P5 of beanpole-promises(7).
    #[test]
    fn jobs_come_out_by_priority_then_id_whatever_order_they_came_in() {
        let mut jobs = Jobs::default();
        let mut queue = ReadyQueue::default();
        let mut slots = Vec::new();
        for id in 1..=500u64 {
            let (pri, details) = ((id * 7919 % 13) as u32, Details::new(Span::ZERO, Span::ZERO));
            let body = jobs.bodies.copy(&[]);
            let slot = jobs.insert(Job::new(JobId(id), 0, pri, details, body, Time::default()));
            jobs.get_mut(slot).due = Time::from_nanos(id);
            queue.push(slot, &mut jobs);
            slots.push(slot);
        }
        for &slot in slots.iter().step_by(5) {
            queue.remove(slot, &mut jobs);
        }
        for &slot in slots.iter().step_by(10) {
            queue.push(slot, &mut jobs);
        }
        assert_eq!(queue.len(), 450);
        let listed: Vec<_> = queue.in_order(&jobs).map(|slot| jobs.get(slot).ready_key()).collect();
        let mut served = Vec::new();
        while let Some(slot) = queue.first(&jobs) {
            queue.remove(slot, &mut jobs);
            served.push(jobs.get(slot).ready_key());
        }
        assert_eq!(served.len(), 450);
        assert_eq!(listed, served);
        assert!(served.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
