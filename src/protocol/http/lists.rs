//! Lists of tubes and jobs, a page at a time.
//!
//! Owns the order of a page and the marks between pages. A page is found in as many turns as it needs; what comes or
//! goes meanwhile may be in it or not. What is kept between turns is bounded by one page and on the account of memory.
//! Must not decide who may see what.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::objects::{job_members, tube_members, tube_values, TubeValues, GLIMPSE};
use super::reply::{not_found, HttpAnswer, Kind};
use crate::engine::{Engine, IdPage, JobId, JobView, Progress, State, TubeStats};
use crate::protocol::beanstalk::TUBE_FIGURES;
use crate::protocol::text::{has_part, whole_number};
use crate::protocol::{self, Context, Output};
use crate::shared::json::Members;

/// A list in the making.
#[derive(Debug, Default)]
pub struct JsonList {
    text: Output,
    count: usize,
}

impl JsonList {
    /// Adds an object that `fill` writes, and returns its length in bytes.
    pub fn add(&mut self, fill: impl FnOnce(&mut Members)) -> usize {
        let text = self.text.text();
        if self.count > 0 {
            text.extend_from_slice(b",\n");
        }
        self.count += 1;
        let before = text.len();
        let mut members = Members::begin(text);
        fill(&mut members);
        members.end();
        text.len() - before
    }

    /// Returns the whole reply: `{"<name>":[...],<members>}`.
    pub fn finish(self, name: &str, members: &str) -> HttpAnswer {
        let mut whole = Output::new();
        whole.text().extend_from_slice(format!("{{\"{name}\":[\n").as_bytes());
        let mut items = self.text;
        whole.append(&mut items);
        whole.text().extend_from_slice(format!("\n],{members}}}\n").as_bytes());
        Ok((Kind::Json, whole))
    }
}

/// Which tubes a list shows.
#[derive(Debug)]
pub struct Filter(Box<[u8]>);

impl Filter {
    /// Tubes whose names contain `text`.
    pub fn new(text: &[u8]) -> Filter {
        Filter(text.into())
    }

    /// Returns the bytes of memory that it occupies beside itself.
    pub fn footprint(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn admits(&self, name: &[u8]) -> bool {
        has_part(name, &self.0)
    }

    /// The cost of a look at this name, as bytes that are written: long names that nearly contain a long text many
    /// times take longest.
    fn cost(&self, name: &[u8]) -> usize {
        (name.len() + 1).saturating_sub(self.0.len()) * self.0.len() / 32
    }
}

/// All tubes from a number on, in no useful order: the cheapest way to read very many.
#[derive(Debug)]
pub struct TubeList {
    next: u32,
    filter: Filter,
    limit: usize,
    list: JsonList,
}

impl TubeList {
    pub fn new(next: u32, filter: Filter, limit: usize) -> TubeList {
        TubeList { next, filter, limit, list: JsonList::default() }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        self.filter.0.len() as u64 + self.list.text.footprint()
    }

    /// Goes on, and returns the reply when the page is complete.
    pub fn go_on(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        let TubeList { next, filter, limit, list } = self;
        let Context { engine, access, now, .. } = context;
        let progress = engine.walk_tubes(next, *now, |tube| {
            if !filter.admits(tube.name) || !protocol::sees(access, tube.name) {
                return filter.cost(tube.name);
            }
            list.add(|members| tube_members(members, tube.name, &tube_values(tube)))
        });
        let next = match progress {
            Progress::More if list.count < *limit => return None,
            Progress::More => next.to_string(),
            Progress::Done => "null".to_owned(),
        };
        Some(std::mem::take(list).finish("tubes", &format!("\"next\":{next}")))
    }
}

/// The figure by which tubes are sorted, and the direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TubeOrder {
    /// The place of a figure in [`TUBE_FIGURES`], or `None` for the name. Tubes with the same figure are in the order
    /// of their names.
    figure: Option<usize>,
    descending: bool,
}

impl TubeOrder {
    /// Reads a key of a tube's figures, or `name`, and a direction.
    pub fn read(key: &[u8], direction: &[u8]) -> Option<TubeOrder> {
        let place = || TUBE_FIGURES.iter().position(|row| row.name.as_bytes() == key);
        let figure = if key == b"name" { None } else { Some(place()?) };
        let descending = match direction {
            b"asc" => false,
            b"desc" => true,
            _ => return None,
        };
        Some(TubeOrder { figure, descending })
    }

    fn value(self, tube: &TubeStats) -> u64 {
        self.figure.and_then(|place| TUBE_FIGURES.get(place)).map_or(0, |row| (row.of)(tube))
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

/// The last tube of a page, behind which the next page begins, wherever that tube is by then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    value: u64,
    name: Box<[u8]>,
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

    fn show(&self) -> String {
        let digits: String = self.name.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{digits}", self.value)
    }
}

/// A tube of a page, as it was when it was found.
#[derive(Debug)]
struct Row {
    order: TubeOrder,
    mark: Mark,
    values: TubeValues,
}

impl Row {
    fn place(&self) -> (u64, &[u8]) {
        (self.mark.value, &self.mark.name)
    }

    fn footprint(&self) -> u64 {
        (size_of::<Row>() + self.mark.name.len()) as u64
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Row) -> Ordering {
        self.order.compare(self.place(), other.place())
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Row) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Row {}

/// A page of all tubes in an order: those that come first behind a mark.
#[derive(Debug)]
pub struct SortedTubes {
    order: TubeOrder,
    after: Option<Mark>,
    filter: Filter,
    limit: usize,
    /// The number of the next tube to look at.
    next: u32,
    /// How many tubes were found, and how many of them behind the mark.
    found: u64,
    behind: u64,
    /// The first ones of those, the last one on top.
    rows: BinaryHeap<Row>,
    /// The bytes of memory of these rows.
    held: u64,
    /// Once all tubes were looked at: the rows that are still to be written, in their order, and how many they were.
    writing: Option<(std::vec::IntoIter<Row>, u64)>,
    last: Option<Mark>,
    list: JsonList,
}

impl SortedTubes {
    pub fn new(order: TubeOrder, after: Option<Mark>, filter: Filter, limit: usize) -> SortedTubes {
        SortedTubes {
            order,
            after,
            filter,
            limit,
            next: 0,
            found: 0,
            behind: 0,
            rows: BinaryHeap::new(),
            held: 0,
            writing: None,
            last: None,
            list: JsonList::default(),
        }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        let marks = [&self.after, &self.last].into_iter().flatten().map(|mark| mark.name.len() as u64);
        self.filter.0.len() as u64 + marks.sum::<u64>() + self.held + self.list.text.footprint()
    }

    /// Goes on, and returns the reply when the page is complete.
    pub fn go_on(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        if self.writing.is_none() {
            if self.look(context) == Progress::More {
                return None;
            }
            let rows = std::mem::take(&mut self.rows).into_sorted_vec();
            context.engine.take_steps(rows.len() as u64);
            let count = rows.len() as u64;
            self.writing = Some((rows.into_iter(), count));
        }
        let (rows, count) = self.writing.as_mut()?;
        let has_more = self.behind > *count;
        while !context.engine.steps().are_used_up() {
            let Some(row) = rows.next() else {
                let mark = std::mem::take(&mut self.last).filter(|_| has_more);
                let next = mark.map_or("null".to_owned(), |mark| format!("\"{}\"", mark.show()));
                let members = format!("\"next\":{next},\"total\":{}", self.found);
                return Some(std::mem::take(&mut self.list).finish("tubes", &members));
            };
            let bytes = self.list.add(|members| tube_members(members, &row.mark.name, &row.values));
            context.engine.take_steps(1 + bytes as u64 / 64);
            self.held -= row.footprint();
            self.last = Some(row.mark);
        }
        None
    }

    /// Looks at tubes, and keeps those that come first.
    fn look(&mut self, context: &mut Context) -> Progress {
        let Context { engine, access, now, .. } = context;
        let mut next = self.next;
        let progress = engine.walk_tubes(&mut next, *now, |tube| {
            let cost = self.filter.cost(tube.name);
            if !self.filter.admits(tube.name) || !protocol::sees(access, tube.name) {
                return cost;
            }
            cost + if self.offer(tube) { size_of::<Row>() } else { 0 }
        });
        self.next = next;
        progress
    }

    /// Returns `true` if the tube is one of the first so far.
    fn offer(&mut self, tube: &TubeStats) -> bool {
        self.found += 1;
        let order = self.order;
        let place = (order.value(tube), tube.name);
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
        let mark = Mark { value: place.0, name: place.1.into() };
        let row = Row { order, mark, values: tube_values(tube) };
        self.held += row.footprint();
        self.rows.push(row);
        true
    }
}

/// The one tube with this name, or none.
pub fn named_tube(name: &[u8], context: &Context) -> HttpAnswer {
    let mut list = JsonList::default();
    let tube = context.engine.tube_stats(name, context.now).filter(|_| protocol::sees(&context.access, name));
    if let Some(tube) = tube {
        list.add(|members| tube_members(members, name, &tube_values(&tube)));
    }
    list.finish("tubes", "\"next\":null")
}

/// The one job with this id, or none.
pub fn numbered_job(id: JobId, context: &Context) -> HttpAnswer {
    let mut list = JsonList::default();
    if let Some(job) = context.engine.job(id) {
        list.add(|members| job_members(members, context.engine, &job, GLIMPSE, context.now));
    }
    list.finish("jobs", "\"next\":null")
}

/// Jobs that are being written, with the beginnings of their bodies.
#[derive(Debug)]
pub struct JobRows {
    ids: Vec<JobId>,
    /// The next of them to be written.
    at: usize,
    list: JsonList,
}

impl JobRows {
    /// Returns rows for the jobs with these ids, in this order.
    pub fn new(ids: Vec<JobId>) -> JobRows {
        JobRows { ids, at: 0, list: JsonList::default() }
    }

    /// Returns the bytes of memory that it occupies beside itself.
    pub fn footprint(&self) -> u64 {
        (self.ids.capacity() * size_of::<JobId>()) as u64 + self.list.text.footprint()
    }

    /// Goes on, and returns the list when it is complete. Jobs that are no longer `wanted` are left out.
    pub fn go_on(&mut self, context: &mut Context, wanted: impl Fn(&Engine, &JobView) -> bool) -> Option<JsonList> {
        let now = context.now;
        while let Some(id) = self.ids.get(self.at) {
            let engine = &*context.engine;
            if engine.steps().are_used_up() {
                return None;
            }
            let job = engine.job(*id).filter(|job| wanted(engine, job));
            let bytes = job.map_or(0, |job| self.list.add(|members| job_members(members, engine, &job, GLIMPSE, now)));
            context.engine.take_steps(4 + bytes as u64 / 64);
            self.at += 1;
        }
        Some(std::mem::take(&mut self.list))
    }
}

/// A page of the jobs of a tube, in the order of their ids.
#[derive(Debug)]
pub struct JobList {
    tube: Box<[u8]>,
    state: Option<State>,
    above: u64,
    limit: usize,
    /// The search in each state, one after the other, until there are as many as states.
    searched: usize,
    page: Option<IdPage>,
    ids: Vec<JobId>,
    /// The jobs of the page, once they are known, and the last of them if another page follows.
    rows: Option<(JobRows, Option<JobId>)>,
}

impl JobList {
    /// At most `limit` jobs with ids above this one.
    pub fn new(tube: Box<[u8]>, state: Option<State>, above: u64, limit: usize) -> JobList {
        JobList { tube, state, above, limit, searched: 0, page: None, ids: Vec::new(), rows: None }
    }

    /// The name of the tube.
    pub fn tube(&self) -> &[u8] {
        &self.tube
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        let page = self.page.as_ref().map_or(0, IdPage::footprint);
        let ids = self.ids.capacity() * size_of::<JobId>();
        let rows = self.rows.as_ref().map_or(0, |(rows, _)| rows.footprint());
        (self.tube.len() + ids) as u64 + page + rows
    }

    /// Goes on, and returns the reply when the page is complete.
    pub fn go_on(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        let states = self.states();
        while let Some(state) = states.get(self.searched) {
            let new = || IdPage::new(self.tube.clone(), *state, self.above, self.limit + 1);
            match context.engine.list_ids(self.page.get_or_insert_with(new)) {
                None => return Some(Err(not_found("tube"))),
                Some((Progress::More, _)) => return None,
                Some((Progress::Done, ids)) => self.ids.extend(ids),
            }
            self.page = None;
            self.searched += 1;
            if self.searched == states.len() {
                // A job that went from state to state meanwhile may have been found twice.
                self.ids.sort_unstable();
                self.ids.dedup();
            }
        }
        if self.rows.is_none() {
            let has_more = self.ids.len() > self.limit;
            self.ids.truncate(self.limit);
            let last = self.ids.last().copied().filter(|_| has_more);
            self.rows = Some((JobRows::new(std::mem::take(&mut self.ids)), last));
        }
        let (tube, (rows, last)) = (&self.tube, self.rows.as_mut()?);
        let list =
            rows.go_on(context, |engine, job| states.contains(&job.state()) && engine.tube_of(job) == &**tube)?;
        let next = last.map_or("null".to_owned(), |id| id.0.to_string());
        Some(list.finish("jobs", &format!("\"next\":{next}")))
    }

    fn states(&self) -> &'static [State] {
        let all = &State::LISTED;
        let place = self.state.and_then(|state| all.iter().position(|one| *one == state));
        place.and_then(|place| all.get(place..=place)).unwrap_or(all)
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
    fn an_order_has_a_key_and_a_direction() {
        let read = |key: &str, direction: &str| TubeOrder::read(key.as_bytes(), direction.as_bytes());
        for wrong in [("", "asc"), ("name", ""), ("Name", "asc"), ("name", "DESC"), ("current-jobs", "asc")] {
            assert_eq!(read(wrong.0, wrong.1), None, "{wrong:?}");
        }
        let sorted = |key: &str, direction: &str| {
            let order = read(key, direction).expect("an order");
            let mut all = [(2, "b"), (1, "c"), (1, "a"), (0, "d")];
            all.sort_by(|one, other| order.compare((one.0, one.1.as_bytes()), (other.0, other.1.as_bytes())));
            all.map(|(_, name)| name).concat()
        };
        assert_eq!(sorted("current-jobs-buried", "desc"), "bacd");
        assert_eq!(sorted("current-jobs-buried", "asc"), "dacb");
        assert_eq!(sorted("name", "desc"), "dcba");
    }
}
