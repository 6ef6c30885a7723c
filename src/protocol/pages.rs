//! Pages of lists that are too large to be read at once: sorted pages, and the history of finished and buried jobs. A
//! page may or may not include items that are added or removed while the server collects the page.

use std::collections::BTreeMap;

use super::text::{hex_pair, whole_number};
use super::FigureValue;
use crate::engine::{Past, PastJob, Progress, Steps};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The statistic to sort by, or `None` to sort by name. The name breaks ties between equal statistics.
    pub figure: Option<usize>,
    pub descending: bool,
}

impl Order {
    pub fn read(figure: Option<usize>, direction: &[u8]) -> Option<Order> {
        let descending = direction == b"desc";
        (descending || direction == b"asc").then_some(Order { figure, descending })
    }

    fn key(self, value: u64, name: &[u8]) -> Key {
        (if self.descending { !value } else { value }, name.into())
    }

    fn is_reverse(self) -> bool {
        self.descending && self.figure.is_none()
    }
}

type Key = (u64, Box<[u8]>);

/// The position of a page's last item. The next page starts after this position, even if the item no longer exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pub value: u64,
    pub name: Box<[u8]>,
}

impl Mark {
    pub fn read(text: &[u8]) -> Option<Mark> {
        let (value, name) = std::str::from_utf8(text).ok()?.split_once('-')?;
        let name = name.as_bytes().chunks(2).map(hex_pair).collect::<Option<_>>()?;
        Some(Mark { value: whole_number(value.as_bytes())?, name })
    }

    pub fn show(&self) -> String {
        let digits: String = self.name.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{digits}", self.value)
    }
}

/// The first `limit` items in sort order after a start position. The caller can offer the items in any order.
#[derive(Debug)]
pub struct SortedPage<V> {
    pub order: Order,
    after: Option<Key>,
    limit: usize,
    pub found: u64,
    found_after: u64,
    rows: BTreeMap<Key, (u64, V)>,
    pub is_open: bool,
    has_more: bool,
    last: Option<Mark>,
}

impl<V> SortedPage<V> {
    pub fn new(order: Order, after: Option<Mark>, limit: usize) -> SortedPage<V> {
        let after = after.map(|mark| order.key(mark.value, &mark.name));
        let (rows, is_open, has_more, last) = (BTreeMap::new(), true, false, None);
        SortedPage { order, after, limit, found: 0, found_after: 0, rows, is_open, has_more, last }
    }

    pub fn footprint(&self) -> u64 {
        // Inserting in sort order leaves map nodes half full, so count rows twice. 24 bytes are the overhead of a name.
        let row = 2 * size_of::<(Key, u64, V)>() + 24;
        let after = self.after.as_ref().map_or(0, |(_, name)| name.len());
        let last = self.last.as_ref().map_or(0, |mark| mark.name.len());
        let rows = self.rows.keys().map(|(_, name)| name.len() + row);
        (after + last + rows.sum::<usize>()) as u64
    }

    fn remove(&mut self, is_first: bool) -> Option<(Key, (u64, V))> {
        match is_first != self.order.is_reverse() {
            true => self.rows.pop_first(),
            false => self.rows.pop_last(),
        }
    }

    /// Adds an item that follows the start position, unless `limit` added items precede it. Returns `true` if added.
    pub fn offer(&mut self, value: u64, name: &[u8], keep: impl FnOnce() -> V) -> bool {
        self.found += 1;
        let key = self.order.key(value, name);
        let is_before = |key: &Key, other: &Key| if self.order.is_reverse() { key > other } else { key < other };
        if self.after.as_ref().is_some_and(|after| !is_before(after, &key)) {
            return false;
        }
        self.found_after += 1;
        if self.rows.len() >= self.limit {
            let last = if self.order.is_reverse() { self.rows.keys().next() } else { self.rows.keys().next_back() };
            if !last.is_some_and(|last| is_before(&key, last)) {
                return false;
            }
            self.remove(false);
        }
        if self.rows.insert(key, (value, keep())).is_some() {
            // The page already contained this tube, which was re-created while the page was being collected.
            (self.found, self.found_after) = (self.found - 1, self.found_after - 1);
        }
        true
    }

    /// Ends the collection of items. Returns the number of items on the page.
    pub fn close(&mut self) -> u64 {
        let count = self.rows.len() as u64;
        self.has_more = self.found_after > count;
        self.is_open = false;
        count
    }

    pub fn next(&mut self) -> Option<(&[u8], V)> {
        let ((_, name), (value, kept)) = self.remove(true)?;
        Some((&self.last.insert(Mark { value, name }).name, kept))
    }

    /// Returns the start of the next page. The caller must first remove all items by calling [`SortedPage::next`].
    pub fn mark(&self) -> Option<&Mark> {
        self.last.as_ref().filter(|_| self.has_more)
    }
}

/// Engine steps for each job. Every 64 bytes of output cost another step.
const STEPS_PER_JOB: u64 = 2;

#[derive(Debug)]
pub struct HistoryWalk {
    before: u64,
    left: usize,
    failed: bool,
}

impl HistoryWalk {
    /// Finds at most `limit` jobs with history numbers below `before`. With `failed`, finds only failed jobs.
    pub fn new(before: u64, limit: usize, failed: bool) -> HistoryWalk {
        HistoryWalk { before, left: limit, failed }
    }

    /// Stops when `steps` is used up. `each` returns the number of written bytes.
    pub fn advance(
        &mut self,
        past: &Past,
        steps: &mut Steps,
        wanted: impl Fn(&PastJob) -> bool,
        mut each: impl FnMut(u64, &PastJob) -> usize,
    ) -> Progress {
        let (first, end) = past.numbers();
        self.before = self.before.min(end);
        while self.before > first && self.left > 0 {
            if steps.are_used_up() {
                return Progress::More;
            }
            let number = self.before - 1;
            let job = past.job(number).filter(|job| (!self.failed || job.verdict.is_failure()) && wanted(job));
            let bytes = job.map_or(0, |job| each(number, job));
            self.left -= usize::from(job.is_some());
            self.before = number;
            steps.take(STEPS_PER_JOB + bytes as u64 / 64);
        }
        Progress::Done
    }

    /// Returns the value of `before` for the next page.
    pub fn next(&self, past: &Past) -> Option<u64> {
        (self.left == 0 && self.before > past.numbers().0).then_some(self.before)
    }
}

pub fn show_past(number: u64, job: &PastJob, mut show: impl FnMut(&'static str, FigureValue)) {
    use FigureValue::{Micros, Name, Number, Text, Word};
    show("number", Number(number));
    show("id", Number(job.id.0));
    show("tube", Name(&job.tube));
    show("verdict", Word(job.verdict.word().as_bytes()));
    show("put", Micros(job.created.nanos() / 1000));
    show("ended", Micros(job.ended.nanos() / 1000));
    show("waited", Micros(job.waited().nanos() / 1000));
    show("ran", Micros(job.ran.nanos() / 1000));
    show("tries", Number(job.tries.into()));
    job.reason.iter().for_each(|reason| show("reason", Text(reason)));
    show("size", Number(job.size.into()));
    show("body", Text(job.start()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_parsed_and_written() {
        for name in [b"".as_slice(), b"mail", b"a\"\n\xff\0"] {
            let mark = Mark { value: u64::MAX, name: name.into() };
            assert_eq!(Mark::read(mark.show().as_bytes()), Some(mark));
        }
        for wrong in ["", "5", "-", "-61", "5-6", "5-6g", "5-+1", "x-61", "18446744073709551616-61", "5-\u{e9}\u{e9}"] {
            assert_eq!(Mark::read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn items_are_sorted_by_figure_or_name() {
        for wrong in ["", "DESC", "up"] {
            assert_eq!(Order::read(None, wrong.as_bytes()), None, "{wrong:?}");
        }
        let sorted = |figure: Option<usize>, direction: &str| {
            let order = Order::read(figure, direction.as_bytes()).expect("an order");
            let mut page = SortedPage::new(order, None, 10);
            for (value, name) in [(2, "b"), (1, "c"), (1, "a"), (0, "d")] {
                page.offer(figure.map_or(0, |_| value), name.as_bytes(), || name);
            }
            page.close();
            std::iter::from_fn(|| page.next().map(|(_, name)| name)).collect::<String>()
        };
        assert_eq!(sorted(Some(0), "desc"), "bacd");
        assert_eq!(sorted(Some(0), "asc"), "dacb");
        assert_eq!(sorted(None, "desc"), "dcba");
    }

    #[test]
    fn pages_are_contiguous() {
        let mut after = None;
        let mut seen = Vec::new();
        loop {
            let mut page = SortedPage::new(Order { figure: Some(0), descending: true }, after.take(), 3);
            for number in 0..20_u64 {
                page.offer(number * 7 % 5, &number.to_be_bytes(), || number);
            }
            assert_eq!((page.found, page.is_open), (20, true));
            page.close();
            while let Some((name, number)) = page.next() {
                assert_eq!(name, number.to_be_bytes());
                seen.push(number);
            }
            after = page.mark().cloned();
            assert!(page.footprint() > 0);
            if after.is_none() {
                break;
            }
        }
        let mut expected: Vec<u64> = (0..20).collect();
        expected.sort_by_key(|number| (std::cmp::Reverse(number * 7 % 5), *number));
        assert_eq!(seen, expected);
    }
}
