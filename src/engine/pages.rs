//! Looking through many jobs or tubes, a page at a time.
//!
//! Owns the order of listings. Costs time in proportion to what stands in the one tube that is looked at, and takes memory
//! for it only while it looks. Must not change anything.

use super::job::JobView;
use super::stats::{tube_figures, TubeStats};
use super::time::Time;
use super::Engine;

impl Engine {
    /// So many jobs from `from` on, a place that an earlier call told, in no useful order; and where to go on.
    pub fn jobs_page(&self, from: u32, count: usize) -> (Vec<JobView<'_>>, Option<u32>) {
        let mut page = Vec::new();
        for (slot, _) in self.jobs.iter_from(from) {
            if page.len() == count {
                return (page, Some(slot));
            }
            page.push(self.jobs.view(slot));
        }
        (page, None)
    }

    /// The ready jobs of a tube in the order in which they are served, without the first `offset`. None if there is no such
    /// tube.
    pub fn ready_page(&self, tube: &[u8], offset: usize, limit: usize) -> Option<Vec<JobView<'_>>> {
        let tube = self.tubes.get(self.tubes.find(tube)?);
        let page = tube.ready.in_order(&self.jobs).skip(offset).take(limit);
        Some(page.map(|slot| self.jobs.view(slot)).collect())
    }

    /// The delayed jobs of a tube, the smallest priority first, of one priority those that are due first.
    pub fn delayed_page(&self, tube: &[u8], offset: usize, limit: usize) -> Option<Vec<JobView<'_>>> {
        let tube = self.tubes.get(self.tubes.find(tube)?);
        let mut keyed: Vec<_> = tube.delayed.iter().map(|(key, slot)| (self.jobs.get(slot).pri, key, slot)).collect();
        let end = offset.saturating_add(limit).min(keyed.len());
        if offset >= end {
            return Some(Vec::new());
        }
        // What is behind the page or before it need not be in order.
        if end < keyed.len() {
            keyed.select_nth_unstable(end);
            keyed.truncate(end);
        }
        keyed.select_nth_unstable(offset);
        let page = &mut keyed[offset..];
        page.sort_unstable();
        Some(page.iter().map(|&(_, _, slot)| self.jobs.view(slot)).collect())
    }

    /// So many tubes from `from` on, a place that an earlier call told, in no useful order; and where to go on.
    pub fn tubes_page(&self, from: u32, count: usize, now: Time) -> (Vec<TubeStats<'_>>, Option<u32>) {
        let mut page = Vec::new();
        for (number, tube) in self.tubes.iter_from(from) {
            if page.len() == count {
                return (page, Some(number));
            }
            page.push(tube_figures(tube, now));
        }
        (page, None)
    }

    /// Names of tubes in the order of their bytes, without the first `offset`.
    pub fn tube_page(&self, offset: usize, limit: usize) -> Vec<&[u8]> {
        let mut names: Vec<&[u8]> = self.tube_names().collect();
        names.sort_unstable();
        names.into_iter().skip(offset).take(limit).collect()
    }
}
