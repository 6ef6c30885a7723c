//! All jobs by slot and by ID, and their bodies. Must not depend on states or queues.

use std::cell::Cell;
use std::num::NonZeroU32;

use super::{hashed, linked, Bodies, Body, Job, JobId, JobView, Slots, Table, NIL};

/// Bytes charged for a job, its index entry, and the overhead of its body.
pub const JOB_COST: u64 = size_of::<Job>() as u64 + 6 + 10;
/// Up to this many bytes of vacated entries are not charged. A queue that was emptied and refilled has about as many.
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

    /// Returns the bytes of vacated entries to charge for. Only jobs and bodies of the same size can reuse an entry.
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

    /// `job` must have the ID of the replaced job.
    pub fn replace(&mut self, slot: u32, job: Job) {
        self.bodies.remove(std::mem::replace(self.slots.get_mut(slot), job).body);
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

linked!(Jobs, |jobs, slot| jobs.get(slot).links, jobs.get_mut(slot).links);

/// The number of consecutive IDs per row. Longer rows save little memory, and cost more for isolated IDs.
const ROW: u64 = 16;

#[derive(Debug)]
pub struct Row {
    number: u64,
    slots: [u32; ROW as usize],
    /// The number of IDs in the row, plus 1, plus 1 more if the row is [`Ids::last`]. At 1, the row is removed.
    pub claims: NonZeroU32,
}

#[derive(Debug)]
pub struct Ids {
    pub rows: Table<Row>,
    /// The row of the last insertion, or [`NIL`]. Kept even if empty, because most new IDs follow the last ID.
    pub last: u32,
    /// The row that the last lookup in `rows` found, or [`NIL`]. Jobs are usually removed in insertion order.
    recent: Cell<u32>,
}

impl Default for Ids {
    fn default() -> Ids {
        Ids { rows: Table::default(), last: NIL, recent: Cell::new(NIL) }
    }
}

impl Ids {
    pub fn find(&self, id: JobId) -> Option<u32> {
        let slot = self.rows.get(self.row(id.0 / ROW)?).slots[(id.0 % ROW) as usize];
        (slot != NIL).then_some(slot)
    }

    /// Returns the slots of the IDs above `id` in the row of `id + 1`.
    pub fn row_above(&self, id: JobId) -> impl Iterator<Item = u32> + '_ {
        let first = id.0 + 1;
        let row = self.row(first / ROW).map(|row| self.rows.get(row));
        row.into_iter()
            .flat_map(move |row| row.slots[(first % ROW) as usize..].iter().copied())
            .filter(|slot| *slot != NIL)
    }

    pub fn insert(&mut self, id: JobId, slot: u32) {
        let (number, position) = (id.0 / ROW, (id.0 % ROW) as usize);
        let row = self
            .row(number)
            .unwrap_or_else(|| self.rows.insert(Row { number, slots: [NIL; ROW as usize], claims: NonZeroU32::MIN }));
        if row != self.last {
            self.claim(row);
            let left = std::mem::replace(&mut self.last, row);
            if left != NIL {
                self.release_claim(left);
            }
        }
        self.claim(row).slots[position] = slot;
    }

    pub fn remove(&mut self, id: JobId) {
        let row = self.row(id.0 / ROW).expect("the row of a known id");
        self.rows.get_mut(row).slots[(id.0 % ROW) as usize] = NIL;
        self.release_claim(row);
    }

    fn row(&self, number: u64) -> Option<u32> {
        let is_it = |row: &u32| *row != NIL && self.rows.get(*row).number == number;
        let known = [self.recent.get(), self.last].into_iter().find(is_it);
        known.or_else(|| {
            let row = self.rows.find(hash(number), |row| row.number == number)?;
            self.recent.set(row);
            Some(row)
        })
    }

    fn claim(&mut self, row: u32) -> &mut Row {
        let row = self.rows.get_mut(row);
        row.claims = row.claims.saturating_add(1);
        row
    }

    fn release_claim(&mut self, number: u32) {
        let row = self.rows.get_mut(number);
        row.claims = NonZeroU32::new(row.claims.get() - 1).expect("a claim");
        if row.claims == NonZeroU32::MIN {
            self.rows.remove(number);
            if self.recent.get() == number {
                self.recent.set(NIL);
            }
        }
    }
}

/// Consecutive rows get consecutive buckets, so a sequential scan of rows is a sequential scan of memory. Runs of 64
/// rows are scattered, so no pattern of remaining rows overloads a few buckets.
fn hash(number: u64) -> u32 {
    number.wrapping_add((number >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

hashed!(Row, |row| hash(row.number), 0);

#[cfg(test)]
mod tests {
    use super::super::{Details, Span, Time};
    use super::*;

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

    #[test]
    fn ids_are_found_while_rows_are_added_and_removed() {
        let mut ids = Ids::default();
        (1..=10_000).for_each(|id| ids.insert(JobId(id), id as u32 + 5));
        assert!((1..=10_000).all(|id| ids.find(JobId(id)) == Some(id as u32 + 5)));
        for id in (1..=10_000).filter(|id| id % 37 != 0) {
            ids.remove(JobId(id));
            assert_eq!(ids.find(JobId(id)), None);
        }
        let survives = |id: u64| (id % 37 == 0).then_some(id as u32 + 5);
        assert!((1..=10_000).all(|id| ids.find(JobId(id)) == survives(id)));
        assert!(ids.rows.lengths().count() <= 2 * ids.rows.items.len() + 1, "{} buckets", ids.rows.lengths().count());
        (37..=10_000).step_by(37).for_each(|id| ids.remove(JobId(id)));
        assert_eq!((ids.rows.items.len(), ids.counted()), (1, 0), "only the last row stays");
        ids.insert(JobId(3), 7);
        assert_eq!((ids.find(JobId(3)), ids.find(JobId(4))), (Some(7), None));
    }

    #[test]
    fn survivors_of_any_stride_spread_over_the_buckets_and_cost_a_row_each() {
        for stride in [16, 64, 1000, 1024, 65_536, 1 << 40] {
            let mut ids = Ids::default();
            (1..=4096).for_each(|n| ids.insert(JobId(n * stride), n as u32));
            let longest = ids.rows.lengths().max();
            assert!(longest < Some(48), "stride {stride}: a bucket of {longest:?}");
            assert_eq!(ids.rows.items.len(), 4096);
        }
        assert_eq!(size_of::<Row>(), 80);
    }
}
