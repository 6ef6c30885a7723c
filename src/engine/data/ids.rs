//! The mapping from job IDs to slots.
//!
//! Owns the table of IDs. IDs are assigned in ascending order, so most IDs are in full rows of sixteen. Only rows are
//! hashed, which keeps the hash table small enough for the CPU caches. An isolated ID costs one row. Must not depend on
//! jobs.

use std::cell::Cell;
use std::num::NonZeroU32;

use super::{table::hashed, JobId, Table, NIL};

/// Longer rows save little memory and make isolated IDs more expensive.
const ROW: u64 = 16;

#[derive(Debug)]
pub struct Row {
    number: u64,
    slots: [u32; ROW as usize],
    /// The number of IDs in the row, plus 1, plus 1 more if the row is [`Ids::last`]. At 1, the row is removed.
    pub claims: NonZeroU32,
    chain: u32,
}

#[derive(Debug)]
pub struct Ids {
    pub rows: Table<Row>,
    /// Of the last insertion, or [`NIL`]. Kept even if empty, because most new IDs follow the last ID.
    pub last: u32,
    /// Of the last search, or [`NIL`]. Jobs are usually removed in insertion order.
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
        let row = self.row(number).unwrap_or_else(|| self.open(number));
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

    fn open(&mut self, number: u64) -> u32 {
        self.rows.insert(Row { number, slots: [NIL; ROW as usize], claims: NonZeroU32::MIN, chain: NIL })
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
    let stretch = (number >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    number.wrapping_add(stretch) as u32
}

hashed!(Row, |row| hash(row.number), 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_while_rows_come_and_go() {
        let mut ids = Ids::default();
        (1..=10_000).for_each(|id| ids.insert(JobId(id), id as u32 + 5));
        assert!((1..=10_000).all(|id| ids.find(JobId(id)) == Some(id as u32 + 5)));
        for id in (1..=10_000).filter(|id| id % 37 != 0) {
            ids.remove(JobId(id));
            assert_eq!(ids.find(JobId(id)), None);
        }
        let survives = |id: u64| (id % 37 == 0).then_some(id as u32 + 5);
        assert!((1..=10_000).all(|id| ids.find(JobId(id)) == survives(id)));
        assert!(ids.rows.chains().count() <= 2 * ids.rows.items.len() + 1, "{} buckets", ids.rows.chains().count());
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
            let longest = ids.rows.chains().max();
            assert!(longest < Some(48), "stride {stride}: a chain of {longest:?}");
            assert_eq!(ids.rows.items.len(), 4096);
        }
        assert_eq!(size_of::<Row>(), 80);
    }
}
