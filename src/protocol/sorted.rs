//! Pages of very many things in an order.
//!
//! Owns the order, the marks between pages, and the search for those that come first behind a mark. A page is found in
//! as many turns as it needs; what comes or goes meanwhile may be in it or not. Must not know what is listed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::text::whole_number;

/// The figure by which things are sorted, and the direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The place of the figure among those of such things, or `None` for the name. Things with the same figure are in
    /// the order of their names.
    pub figure: Option<usize>,
    pub descending: bool,
}

impl Order {
    /// Reads a direction for this figure.
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

/// The last thing of a page, behind which the next page begins, wherever that thing is by then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pub value: u64,
    pub name: Box<[u8]>,
}

impl Mark {
    /// Reads a mark as [`Mark::show`] writes it.
    pub fn read(text: &[u8]) -> Option<Mark> {
        let text = std::str::from_utf8(text).ok()?;
        let (value, name) = text.split_once('-')?;
        let digits = name.bytes().all(|byte| byte.is_ascii_hexdigit()) && name.len() % 2 == 0;
        let pairs = digits.then(|| (0..name.len()).step_by(2).map(|at| u8::from_str_radix(&name[at..at + 2], 16)))?;
        Some(Mark { value: whole_number(value.as_bytes())?, name: pairs.collect::<Result<_, _>>().ok()? })
    }

    pub fn show(&self) -> String {
        let digits: String = self.name.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{digits}", self.value)
    }
}

/// One thing of a page, and what is kept of it.
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

/// A page of things in an order: those that come first behind a mark.
#[derive(Debug)]
pub struct SortedPage<V> {
    pub order: Order,
    after: Option<Mark>,
    limit: usize,
    /// The number of things that were offered, and how many of them are behind the mark.
    pub found: u64,
    behind: u64,
    /// The first ones of those, the last one on top.
    rows: BinaryHeap<Row<V>>,
    /// Once all were offered: the rows that are still to be shown, the next one at the end.
    sorted: Option<Vec<Row<V>>>,
    /// The bytes of memory of the rows.
    held: u64,
    has_more: bool,
    last: Option<Mark>,
}

impl<V> SortedPage<V> {
    pub fn new(order: Order, after: Option<Mark>, limit: usize) -> SortedPage<V> {
        let (rows, sorted) = (BinaryHeap::new(), None);
        SortedPage { order, after, limit, found: 0, behind: 0, rows, sorted, held: 0, has_more: false, last: None }
    }

    /// Returns the bytes of memory that it occupies beside itself.
    pub fn footprint(&self) -> u64 {
        let marks = [&self.after, &self.last].into_iter().flatten().map(|mark| mark.name.len() as u64);
        marks.sum::<u64>() + self.held
    }

    /// Returns `true` until all things were offered.
    pub fn is_open(&self) -> bool {
        self.sorted.is_none()
    }

    /// Offers something for the page. Returns `true` if it is one of the first so far.
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

    /// All things were offered. Returns how many are on the page.
    pub fn close(&mut self) -> u64 {
        let mut rows = std::mem::take(&mut self.rows).into_sorted_vec();
        rows.reverse();
        let count = rows.len() as u64;
        self.has_more = self.behind > count;
        self.sorted = Some(rows);
        count
    }

    /// Removes and returns the next thing of the page: its name, and what was kept of it.
    pub fn next(&mut self) -> Option<(&[u8], V)> {
        let row = self.sorted.as_mut()?.pop()?;
        self.held -= row.footprint();
        let mark = self.last.insert(row.mark);
        Some((&mark.name, row.kept))
    }

    /// The mark behind which the next page begins, if there is one.
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
