//! Looking through many jobs or tubes, a page at a time.
//!
//! Owns the order of listings. Costs time in proportion to what stands in the one tube that is looked at, or to the number of
//! tubes where their names are put in order, and takes memory for it only while it looks. Must not change anything.

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
        let keyed = tube.delayed.iter().map(|(key, slot)| (self.jobs.get(slot).pri, key, slot));
        let page = page_of(keyed.collect(), offset, limit);
        Some(page.into_iter().map(|(_, _, slot)| self.jobs.view(slot)).collect())
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

    /// Names of tubes in the order of their bytes, of those that are `shown` and without the first `offset`.
    pub fn tube_page(&self, shown: impl Fn(&[u8]) -> bool, offset: usize, limit: usize) -> Vec<&[u8]> {
        page_of(self.tube_names().filter(|name| shown(name)).collect(), offset, limit)
    }
}

/// So many of `all` in order, without the first `offset`. What is behind the page or before it need not be in order, and is
/// not put in order.
fn page_of<T: Ord>(mut all: Vec<T>, offset: usize, limit: usize) -> Vec<T> {
    let end = offset.saturating_add(limit).min(all.len());
    if offset >= end {
        return Vec::new();
    }
    if end < all.len() {
        all.select_nth_unstable(end);
        all.truncate(end);
    }
    all.select_nth_unstable(offset);
    let mut page = all.split_off(offset);
    page.sort_unstable();
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_stands_there_when_all_is_in_order() {
        let all: Vec<u32> = (0..100).map(|number| number * 37 % 101).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        for (offset, limit) in
            [(0, 0), (0, 1), (0, 100), (0, 101), (99, 1), (99, 5), (100, 5), (30, 7), (7, usize::MAX)]
        {
            let expected: Vec<u32> = sorted.iter().copied().skip(offset).take(limit).collect();
            assert_eq!(page_of(all.clone(), offset, limit), expected, "{limit} from {offset}");
        }
        assert_eq!(page_of(Vec::<u32>::new(), 0, 5), []);
    }
}
