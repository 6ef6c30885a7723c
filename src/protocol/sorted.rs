//! Sorted pages of large lists.
//!
//! Owns the order, the marks between pages, and the search for the first items after a mark. A search takes as many
//! turns as it needs; items that appear or disappear meanwhile may be listed or not. Must not know what the items are.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::text::{hex_pair, whole_number};

/// The figure by which items are sorted, and the direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The index of the figure, or `None` for the name. Items with the same figure are sorted by name.
    pub figure: Option<usize>,
    pub descending: bool,
}

impl Order {
    /// Parses a direction for this figure.
    pub fn read(figure: Option<usize>, direction: &[u8]) -> Option<Order> {
        match direction {
            b"asc" => Some(Order { figure, descending: false }),
            b"desc" => Some(Order { figure, descending: true }),
            _ => None,
        }
    }

    fn compare(self, one: (u64, &[u8]), other: (u64, &[u8])) -> Ordering {
        let values = one.0.cmp(&other.0);
        let names = one.1.cmp(other.1);
        match (self.descending, self.figure) {
            (false, _) => values.then(names),
            (true, None) => names.reverse(),
            (true, Some(_)) => values.reverse().then(names),
        }
    }
}

/// The last item of a page. The next page begins after it, even if the item has moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pub value: u64,
    pub name: Box<[u8]>,
}

impl Mark {
    /// Parses a mark as [`Mark::show`] writes it.
    pub fn read(text: &[u8]) -> Option<Mark> {
        let text = std::str::from_utf8(text).ok()?;
        let (value, name) = text.split_once('-')?;
        let name = name.as_bytes().chunks(2).map(hex_pair).collect::<Option<_>>()?;
        Some(Mark { value: whole_number(value.as_bytes())?, name })
    }

    pub fn show(&self) -> String {
        let digits: String = self.name.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{digits}", self.value)
    }
}

/// An item of a page, and its stored value.
#[derive(Debug)]
struct Row<V> {
    order: Order,
    mark: Mark,
    kept: V,
}

impl<V> Row<V> {
    fn place(&self) -> (u64, &[u8]) {
        (self.mark.value, &self.mark.name)
    }

    fn footprint(&self) -> u64 {
        (size_of::<Row<V>>() + self.mark.name.len()) as u64
    }
}

impl<V> Ord for Row<V> {
    fn cmp(&self, other: &Row<V>) -> Ordering {
        self.order.compare(self.place(), other.place())
    }
}

impl<V> PartialOrd for Row<V> {
    fn partial_cmp(&self, other: &Row<V>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<V> PartialEq for Row<V> {
    fn eq(&self, other: &Row<V>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<V> Eq for Row<V> {}

/// A page of items in an order: the first ones after a mark.
#[derive(Debug)]
pub struct SortedPage<V> {
    pub order: Order,
    after: Option<Mark>,
    limit: usize,
    /// The number of items offered, and how many of them are after the mark.
    pub found: u64,
    behind: u64,
    /// The first items after the mark, the last one on top.
    rows: BinaryHeap<Row<V>>,
    /// After all items were offered: the rows still to be shown, the next one at the end.
    sorted: Option<Vec<Row<V>>>,
    /// The memory of the rows, in bytes.
    held: u64,
    has_more: bool,
    last: Option<Mark>,
}

impl<V> SortedPage<V> {
    pub fn new(order: Order, after: Option<Mark>, limit: usize) -> SortedPage<V> {
        let (rows, sorted) = (BinaryHeap::new(), None);
        SortedPage { order, after, limit, found: 0, behind: 0, rows, sorted, held: 0, has_more: false, last: None }
    }

    /// Returns the memory in use besides the value itself, in bytes.
    pub fn footprint(&self) -> u64 {
        let marks = [&self.after, &self.last].into_iter().flatten().map(|mark| mark.name.len() as u64);
        marks.sum::<u64>() + self.held
    }

    /// Returns `true` until all items were offered.
    pub fn is_open(&self) -> bool {
        self.sorted.is_none()
    }

    /// Offers an item for the page. Returns `true` if it is one of the first so far.
    pub fn offer(&mut self, value: u64, name: &[u8], keep: impl FnOnce() -> V) -> bool {
        self.found += 1;
        let order = self.order;
        let place = (value, name);
        let is_behind = |mark: &Mark| order.compare(place, (mark.value, &mark.name)).is_gt();
        if !self.after.as_ref().is_none_or(is_behind) {
            return false;
        }
        self.behind += 1;
        if self.rows.len() >= self.limit {
            if !self.rows.peek().is_some_and(|last| order.compare(place, last.place()).is_lt()) {
                return false;
            }
            self.held -= self.rows.pop().map_or(0, |last| last.footprint());
        }
        let row = Row { order, mark: Mark { value, name: name.into() }, kept: keep() };
        self.held += row.footprint();
        self.rows.push(row);
        true
    }

    /// Ends the offers. Returns the number of items on the page.
    pub fn close(&mut self) -> u64 {
        let mut rows = std::mem::take(&mut self.rows).into_sorted_vec();
        rows.reverse();
        let count = rows.len() as u64;
        self.has_more = self.behind > count;
        self.sorted = Some(rows);
        count
    }

    /// Removes and returns the next item of the page: its name and its stored value.
    pub fn next(&mut self) -> Option<(&[u8], V)> {
        let row = self.sorted.as_mut()?.pop()?;
        self.held -= row.footprint();
        let mark = self.last.insert(row.mark);
        Some((&mark.name, row.kept))
    }

    /// Returns the mark after which the next page begins, if there is one.
    pub fn mark(&self) -> Option<&Mark> {
        self.last.as_ref().filter(|_| self.has_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_are_written() {
        for name in [b"".as_slice(), b"mail", b"a\"\n\xff\0"] {
            let mark = Mark { value: u64::MAX, name: name.into() };
            assert_eq!(Mark::read(mark.show().as_bytes()), Some(mark));
        }
        for wrong in ["", "5", "-", "-61", "5-6", "5-6g", "5-+1", "x-61", "18446744073709551616-61", "5-\u{e9}\u{e9}"] {
            assert_eq!(Mark::read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn an_order_has_a_direction() {
        for wrong in ["", "DESC", "up"] {
            assert_eq!(Order::read(None, wrong.as_bytes()), None, "{wrong:?}");
        }
        let sorted = |figure: Option<usize>, direction: &str| {
            let order = Order::read(figure, direction.as_bytes()).expect("an order");
            let mut all = [(2, "b"), (1, "c"), (1, "a"), (0, "d")];
            all.sort_by(|one, other| order.compare((one.0, one.1.as_bytes()), (other.0, other.1.as_bytes())));
            all.map(|(_, name)| name).concat()
        };
        assert_eq!(sorted(Some(0), "desc"), "bacd");
        assert_eq!(sorted(Some(0), "asc"), "dacb");
        assert_eq!(sorted(None, "desc"), "dcba");
    }

    #[test]
    fn pages_follow_each_other_without_gaps() {
        let mut after = None;
        let mut seen = Vec::new();
        loop {
            let mut page = SortedPage::new(Order { figure: Some(0), descending: true }, after.take(), 3);
            for number in 0..20_u64 {
                page.offer(number * 7 % 5, &number.to_be_bytes(), || number);
            }
            assert_eq!((page.found, page.is_open()), (20, true));
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
