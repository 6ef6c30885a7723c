//! Pages of tubes, connections, schedules, jobs and the history. An interrupted search keeps at most one page, which
//! counts toward the memory limit. Items that appear or disappear during a search may be omitted.

use std::fmt::Display;

use super::action::{once, state, wrong, Arguments, HttpAction, Parsed};
use super::reply::{
    figure, job_members, not_found, tube_members, tube_values, HttpAnswer, TubeValues, JSON, MAX_LIST_BODY,
};
use crate::engine::{ClientId, Engine, Handle, IdPage, JobId, JobView, PastJob, Progress, State};
use crate::protocol::beanstalk::TUBE_FIGURES;
use crate::protocol::connections::{offer_clients, Connections, CONNECTION_FIGURES};
use crate::protocol::pages::{show_past, HistoryWalk, Mark, Order, SortedPage};
use crate::protocol::text::{has_part, whole_number};
use crate::protocol::{sees, Context, Output};
use crate::shared::json::{self, Members};

#[derive(Default)]
pub struct JsonList {
    text: Output,
    count: usize,
}

impl JsonList {
    pub fn add(&mut self, fill: impl FnOnce(&mut Members)) -> usize {
        let text = self.text.text();
        if self.count > 0 {
            text.extend_from_slice(b",\n");
        }
        self.count += 1;
        let before = text.len();
        json::push_object(text, fill);
        text.len() - before
    }

    pub fn page(self, name: &str, next: Option<impl Display>) -> HttpAnswer {
        let next = next.map_or("null".to_owned(), |next| next.to_string());
        self.finish(name, &format!("\"next\":{next}"))
    }

    /// Returns the complete object `{"<name>":[...],<members>}`.
    pub fn finish(self, name: &str, members: &str) -> HttpAnswer {
        let mut whole = Output::new();
        whole.text().extend_from_slice(format!("{{\"{name}\":[\n").as_bytes());
        let mut items = self.text;
        whole.append(&mut items);
        whole.text().extend_from_slice(format!("\n],{members}}}\n").as_bytes());
        Ok((JSON, whole))
    }
}

struct Listing<F> {
    list: JsonList,
    /// The heap memory that `advance` uses, in bytes.
    size: usize,
    advance: F,
}

impl<F: FnMut(&mut JsonList, &mut Context) -> Option<HttpAnswer> + Send> HttpAction for Listing<F> {
    fn footprint(&self) -> u64 {
        self.size as u64 + self.list.text.footprint()
    }

    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        (self.advance)(&mut self.list, context)
    }
}

fn listing(
    size: usize,
    advance: impl FnMut(&mut JsonList, &mut Context) -> Option<HttpAnswer> + Send + 'static,
) -> Parsed {
    Ok(Box::new(Listing { list: JsonList::default(), size, advance }))
}

pub fn tubes(it: &mut Arguments) -> Parsed {
    if let Some(name) = it.query("name") {
        let name: Box<[u8]> = name.into();
        return once(move |context| {
            let mut list = JsonList::default();
            let tube = context.engine.tube_stats(&name, context.now);
            if let Some(tube) = tube.filter(|_| sees(&context.access, &name)) {
                list.add(|members| tube_members(members, &name, &tube_values(&tube)));
            }
            list.page("tubes", None::<u32>)
        });
    }
    if it.query("sort").is_some() {
        return sorted::<TubeValues>(it, "");
    }
    let (limit, filter) = (it.limit(1000, 1000)?, it.filter());
    // Without `sort`, list tubes in the order of their storage, which is the fastest order for many tubes.
    let mut next = u32::try_from(it.query_number("after", 0)?).map_err(|_| wrong("after"))?;
    listing(filter.len(), move |list, context| {
        let Context { engine, access, now, .. } = context;
        let progress = engine.walk_tubes(&mut next, *now, |tube| {
            if !has_part(tube.name, &filter) || !sees(access, tube.name) {
                return tube.name.len();
            }
            list.add(|members| tube_members(members, tube.name, &tube_values(tube)))
        });
        let is_done = progress == Progress::Done || list.count >= limit;
        is_done.then(|| std::mem::take(list).page("tubes", Some(next).filter(|_| progress == Progress::More)))
    })
}

pub trait Listed: Send + Sized {
    const NAME: &'static str;

    /// Returns the statistic's index, `Some(None)` for sorting by name, or `None` if `key` is unknown.
    fn figure(key: &[u8]) -> Option<Option<usize>>;

    /// Offers the matching items that the client may see, starting at number `from`, and updates `from`.
    fn search(page: &mut SortedPage<Self>, filter: &[u8], from: &mut u32, context: &mut Context) -> Progress;

    /// Appends the item if it still exists. Returns the number of added bytes.
    fn show(self, name: &[u8], context: &Context, list: &mut JsonList) -> usize;
}

struct SortedList<T> {
    page: SortedPage<T>,
    filter: Box<[u8]>,
    from: u32,
    list: JsonList,
}

impl<T: Listed> HttpAction for SortedList<T> {
    fn footprint(&self) -> u64 {
        self.filter.len() as u64 + self.page.footprint() + self.list.text.footprint()
    }

    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        if self.page.is_open {
            if T::search(&mut self.page, &self.filter, &mut self.from, context) == Progress::More {
                return None;
            }
            context.engine.take_steps(self.page.close());
        }
        while !context.engine.steps().are_used_up() {
            let Some((name, row)) = self.page.next() else {
                let next = self.page.mark().map_or("null".to_owned(), |mark| format!("\"{}\"", mark.show()));
                let members = format!("\"next\":{next},\"total\":{}", self.page.found);
                return Some(std::mem::take(&mut self.list).finish(T::NAME, &members));
            };
            let bytes = row.show(name, context, &mut self.list);
            context.engine.take_steps(1 + bytes as u64 / 64);
        }
        None
    }
}

pub fn sorted<T: Listed + 'static>(it: &Arguments, default: &'static str) -> Parsed {
    let figure = T::figure(it.query("sort").unwrap_or(default.as_bytes()));
    let order = figure.and_then(|figure| Order::read(figure, it.query("order").unwrap_or(b"asc")));
    let order = order.ok_or_else(|| wrong("sort, or order"))?;
    let after = it.query("after").map(|text| Mark::read(text).ok_or_else(|| wrong("after"))).transpose()?;
    let page = SortedPage::<T>::new(order, after, it.limit(1000, 1000)?);
    Ok(Box::new(SortedList { page, filter: it.filter(), from: 0, list: JsonList::default() }))
}

impl Listed for TubeValues {
    const NAME: &'static str = "tubes";

    fn figure(key: &[u8]) -> Option<Option<usize>> {
        let index = TUBE_FIGURES.iter().position(|(name, _)| name.as_bytes() == key);
        (index.is_some() || key == b"name").then_some(index)
    }

    fn search(page: &mut SortedPage<Self>, filter: &[u8], from: &mut u32, context: &mut Context) -> Progress {
        let Context { engine, access, now, .. } = context;
        let figure = page.order.figure.and_then(|index| TUBE_FIGURES.get(index));
        engine.walk_tubes(from, *now, |tube| {
            if !has_part(tube.name, filter) || !sees(access, tube.name) {
                return tube.name.len();
            }
            let value = figure.map_or(0, |(_, of)| of(tube));
            tube.name.len() + if page.offer(value, tube.name, || tube_values(tube)) { size_of::<Self>() } else { 0 }
        })
    }

    fn show(self, name: &[u8], _: &Context, list: &mut JsonList) -> usize {
        list.add(|members| tube_members(members, name, &self))
    }
}

impl Listed for Handle<ClientId> {
    const NAME: &'static str = "connections";

    fn figure(key: &[u8]) -> Option<Option<usize>> {
        CONNECTION_FIGURES.iter().position(|(name, _)| name.as_bytes() == key).map(Some)
    }

    fn search(page: &mut SortedPage<Self>, filter: &[u8], from: &mut u32, context: &mut Context) -> Progress {
        offer_clients(page, from, filter, context)
    }

    fn show(self, _: &[u8], context: &Context, list: &mut JsonList) -> usize {
        let (engine, connections) = (&*context.engine, Connections::of(context));
        connections.find(self, engine).map_or(0, |stats| {
            list.add(|members| connections.show(engine, &stats, |key, mark| figure(members, key, mark)))
        })
    }
}

const SCHEDULE_FIGURES: [&str; 4] = ["time-left", "runs", "skipped", "missed"];

impl Listed for JobId {
    const NAME: &'static str = "schedules";

    fn figure(key: &[u8]) -> Option<Option<usize>> {
        SCHEDULE_FIGURES.iter().position(|name| name.as_bytes() == key).map(Some)
    }

    fn search(page: &mut SortedPage<Self>, filter: &[u8], from: &mut u32, context: &mut Context) -> Progress {
        let Context { engine, access, now, .. } = context;
        let figure = page.order.figure;
        engine.walk_schedules(from, |engine, job| {
            let tube = engine.tube_of(job);
            if !has_part(tube, filter) || !sees(access, tube) {
                return tube.len();
            }
            let count =
                || engine.stored_options(job).and_then(|options| Some(options.schedule?.count)).unwrap_or_default();
            let value = match figure {
                Some(1) => count().runs.into(),
                Some(2) => count().skipped.into(),
                Some(3) => engine.job_stats(job.id(), *now).map_or(0, |stats| stats.missed.into()),
                _ => job.due().nanos(),
            };
            page.offer(value, &job.id().0.to_be_bytes(), || job.id());
            64
        })
    }

    fn show(self, _: &[u8], context: &Context, list: &mut JsonList) -> usize {
        let job = context.engine.job(self).filter(|job| job.state() == State::Scheduled);
        job.map_or(0, |job| list.add(|members| job_members(members, context.engine, &job, MAX_LIST_BODY, context.now)))
    }
}

pub fn history(it: &mut Arguments) -> Parsed {
    let failed = match it.query("failed").unwrap_or(b"0") {
        b"0" | b"false" => false,
        b"1" | b"true" | b"" => true,
        _ => return Err(wrong("failed")),
    };
    let mut walk = HistoryWalk::new(it.query_number("before", u64::MAX)?, it.limit(100, 1000)?, failed);
    let (tube, filter) = (it.query("tube").map(Box::<[u8]>::from), it.filter());
    let id = it.query("id").map(|id| whole_number(id).map(JobId).ok_or_else(|| wrong("id"))).transpose()?;
    listing(tube.as_ref().map_or(0, |tube| tube.len()) + filter.len(), move |list, context| {
        let Context { engine, access, .. } = context;
        let mut steps = engine.steps();
        let has_text = |job: &PastJob| {
            has_part(&job.tube, &filter) || job.reason.as_ref().is_some_and(|reason| has_part(reason, &filter))
        };
        let wanted = |job: &PastJob| {
            let is_named = tube.as_ref().is_none_or(|tube| **tube == *job.tube) && id.is_none_or(|id| id == job.id);
            is_named && has_text(job) && sees(access, &job.tube)
        };
        let progress = walk.advance(engine.past(), &mut steps, wanted, |number, job| {
            list.add(|members| show_past(number, job, |key, mark| figure(members, key, mark)))
        });
        engine.take_steps(engine.steps().left() - steps.left());
        (progress == Progress::Done).then(|| std::mem::take(list).page("history", walk.next(engine.past())))
    })
}

pub fn find_job(it: &mut Arguments) -> Parsed {
    let id = it.query("id").and_then(whole_number).map(JobId).ok_or_else(|| wrong("id"))?;
    it.target.id = Some(id);
    once(move |context| {
        let mut list = JsonList::default();
        if let Some(job) = context.engine.job(id) {
            list.add(|members| job_members(members, context.engine, &job, MAX_LIST_BODY, context.now));
        }
        list.page("jobs", None::<u32>)
    })
}

pub struct JobRows {
    ids: Vec<JobId>,
    at: usize,
    list: JsonList,
    /// The last job's position; `None` if no page follows.
    next: Option<u64>,
}

impl JobRows {
    /// `jobs` contains the position and the ID of each job. The next page can start after any of the positions.
    pub fn new(mut jobs: Vec<(u64, JobId)>, limit: usize) -> JobRows {
        let has_more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().map(|(mark, _)| *mark).filter(|_| has_more);
        JobRows { ids: jobs.into_iter().map(|(_, id)| id).collect(), at: 0, list: JsonList::default(), next }
    }

    pub fn footprint(&self) -> u64 {
        (self.ids.capacity() * size_of::<JobId>()) as u64 + self.list.text.footprint()
    }

    pub fn advance(&mut self, context: &mut Context, wanted: impl Fn(&Engine, &JobView) -> bool) -> Option<HttpAnswer> {
        let now = context.now;
        while let Some(id) = self.ids.get(self.at) {
            let engine = &*context.engine;
            if engine.steps().are_used_up() {
                return None;
            }
            let job = engine.job(*id).filter(|job| wanted(engine, job));
            let bytes =
                job.map_or(0, |job| self.list.add(|members| job_members(members, engine, &job, MAX_LIST_BODY, now)));
            context.engine.take_steps(4 + bytes as u64 / 64);
            self.at += 1;
        }
        Some(std::mem::take(&mut self.list).page("jobs", self.next))
    }
}

struct JobList {
    tube: Box<[u8]>,
    states: &'static [State],
    above: u64,
    limit: usize,
    searched: usize,
    page: Option<IdPage>,
    ids: Vec<JobId>,
    rows: Option<JobRows>,
}

pub fn jobs(it: &mut Arguments) -> Parsed {
    let (tube, above, limit) = (it.part(0), it.query_number("from", 0)?, it.limit(100, 100)?);
    let (state, all) = (it.query("state").map(state).transpose()?, &State::LISTED);
    let index = state.and_then(|state| all.iter().position(|listed| *listed == state));
    let states = index.and_then(|index| all.get(index..=index)).unwrap_or(all);
    Ok(Box::new(JobList { tube, states, above, limit, searched: 0, page: None, ids: Vec::new(), rows: None }))
}

impl HttpAction for JobList {
    fn footprint(&self) -> u64 {
        let page = self.page.as_ref().map_or(0, IdPage::footprint);
        let ids = self.ids.capacity() * size_of::<JobId>();
        let rows = self.rows.as_ref().map_or(0, JobRows::footprint);
        (self.tube.len() + ids) as u64 + page + rows
    }

    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        let states = self.states;
        while let Some(state) = states.get(self.searched) {
            let new = || IdPage::new(self.tube.clone(), *state, self.above, self.limit + 1);
            match context.engine.list_ids(self.page.get_or_insert_with(new), |_| true) {
                None => return Some(Err(not_found("tube"))),
                Some((Progress::More, _)) => return None,
                Some((Progress::Done, ids)) => self.ids.extend(ids),
            }
            self.page = None;
            self.searched += 1;
            if self.searched == states.len() {
                // A job that changed its state during the search may be in the list twice.
                self.ids.sort_unstable();
                self.ids.dedup();
            }
        }
        let (tube, ids) = (&self.tube, &mut self.ids);
        let rows =
            self.rows.get_or_insert_with(|| JobRows::new(ids.drain(..).map(|id| (id.0, id)).collect(), self.limit));
        rows.advance(context, |engine, job| states.contains(&job.state()) && engine.tube_of(job) == &**tube)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order<T: Listed>(key: &[u8], direction: &[u8]) -> Option<Order> {
        Order::read(T::figure(key)?, direction)
    }

    #[test]
    fn orders_are_parsed() {
        for wrong in [("", "asc"), ("name", ""), ("Name", "asc"), ("name", "DESC"), ("current-jobs", "asc")] {
            assert_eq!(order::<TubeValues>(wrong.0.as_bytes(), wrong.1.as_bytes()), None, "{wrong:?}");
            assert_eq!(order::<Handle<ClientId>>(wrong.0.as_bytes(), wrong.1.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(order::<TubeValues>(b"name", b"desc"), Some(Order { figure: None, descending: true }));
        assert_eq!(order::<Handle<ClientId>>(b"idle", b"asc"), Some(Order { figure: Some(2), descending: false }));
    }
}
