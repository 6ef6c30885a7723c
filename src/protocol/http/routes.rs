//! The table of paths: their effects and arguments.
//!
//! Owns the paths, and the parsers of their parts, queries and bodies. The manual page's test reads it. Must not
//! execute anything.

use super::failed::{FailedGroup, FailedGroups, FailedJobs, Remedy, Sweep};
use super::lists::{
    connection_order, schedule_order, tube_order, Filter, HistoryList, JobList, Listed, PagedList, SortedList, TubeList,
};
use super::metrics::{Scrape, TubeChoice};
use super::objects::TubeValues;
use super::types::{Failure, Method};
use crate::access::{Need, Scope};
use crate::engine::{
    Body, ClientHandle, FindOldest, Flush, JobId, Kick, MoveJobs, NewJob, Priority, Span, State, Tags, TubeSettings,
};
use crate::protocol::beanstalk::{read_settings, read_tags, tags_size, Tagging};
use crate::protocol::guard::Subject;
use crate::protocol::history::HistoryWalk;
use crate::protocol::sorted::{Mark, Order, SortedPage};
use crate::protocol::sums::VisibleSums;
use crate::protocol::text::{is_any_name, past, whole_number, MAX_QUOTED_NAME};
use crate::protocol::{DecodeLimits, LogSubject};
use crate::shared::json::{Object, Strays};

/// The default priority and time to run of a job.
const USUAL_PRIORITY: Priority = 1024;
const USUAL_TTR: u64 = 60;

const SAME_TUBE: &str = "a tube cannot be moved to itself";

#[derive(Debug)]
pub enum Command {
    /// The head of a request whose body is read only if the client has the permission; the request returns with its
    /// body.
    Introduction(Introduction),
    Page,
    Health,
    Ready,
    Metrics(Box<Scrape>),
    Server(Box<VisibleSums>),
    /// A page of a list.
    List(Box<dyn PagedList>),
    /// The figures of the tube with this name, as a list.
    NamedTube(Box<[u8]>),
    Tube(FindOldest),
    /// What the queue did in the last hour, and the ages of its oldest jobs.
    Overview(FindOldest),
    /// The job with this ID, as a list.
    FindJob(JobId),
    /// The next job of a tube in this state.
    Peek(Box<[u8]>, State),
    Job(JobId),
    /// The unmodified body of a job.
    Body(JobId),
    /// A new job for the tube with this name.
    Put(Box<[u8]>, NewJob),
    /// A new job with tags, which name the tube.
    PutTagged(NewJob, Box<Tags>),
    /// Applies a remedy to all jobs of a group.
    Sweep(Box<Sweep>),
    /// Moves a buried job to the tube with this name.
    MoveJob(JobId, Box<[u8]>),
    Kick(Box<[u8]>, Kick),
    /// Pauses a tube for this time.
    Pause(Box<[u8]>, Span),
    /// Sets the settings of a tube.
    Set(Box<[u8]>, Box<TubeSettings>),
    Clear(Flush),
    Move(MoveJobs),
    KickJob(JobId),
    DeleteJob(JobId),
    BuryJob(JobId),
    RevokeJob(JobId),
}

/// The parts of a request that are known before its body is read.
#[derive(Debug)]
pub struct Introduction {
    /// The client waits for permission to send the body.
    pub expects: bool,
    about: About,
}

/// The first tube or the job in a path.
#[derive(Debug)]
enum About {
    Tube(Box<[u8]>),
    Job(JobId),
}

impl Command {
    /// The memory in use besides the value itself, in bytes.
    pub fn footprint(&self) -> u64 {
        use Command::*;
        let bytes = match self {
            Put(tube, job) => tube.len() + job.body.len(),
            PutTagged(job, tags) => return job.body.len() as u64 + tags_size(tags),
            Sweep(sweep) => return size_of_val(&**sweep) as u64 + sweep.footprint(),
            MoveJob(_, tube) => tube.len(),
            Move(moving) => return moving.footprint(),
            Clear(flush) => return flush.footprint(),
            Metrics(scrape) => return scrape.footprint(),
            Tube(find) | Overview(find) => return find.footprint(),
            List(list) => return list.footprint(),
            Server(sums) => size_of_val(&**sums),
            NamedTube(tube) | Peek(tube, _) | Kick(tube, _) | Pause(tube, _) => tube.len(),
            Set(tube, settings) => size_of_val(&**settings) + tube.len() + settings.dead_length(),
            Introduction(introduction) => match &introduction.about {
                About::Tube(tube) => tube.len(),
                About::Job(_) => 0,
            },
            _ => 0,
        };
        bytes as u64
    }

    /// Returns the subject of the command for the log.
    pub fn log_subject(&self) -> LogSubject {
        let size = match self {
            Command::Put(_, job) | Command::PutTagged(job, _) => Some(job.body.len()),
            _ => None,
        };
        LogSubject { size, ..LogSubject::of(self.subject()) }
    }

    /// Returns the tubes or the job that the command concerns.
    pub fn subject(&self) -> Subject<'_> {
        use Command::*;
        match self {
            Peek(tube, _) => Subject::Tube(tube),
            Tube(find) => Subject::Tube(find.tube()),
            Metrics(scrape) => scrape.only().map_or(Subject::Nothing, Subject::Tube),
            List(list) => list.tube().map_or(Subject::Nothing, Subject::Tube),
            PutTagged(_, tags) => Subject::Tube(tags.tube.as_deref().unwrap_or_default()),
            Sweep(sweep) => match sweep.target() {
                [] => Subject::Tube(&sweep.group.tube),
                to => Subject::TwoTubes(&sweep.group.tube, to),
            },
            MoveJob(id, to) => Subject::JobAndTube(*id, to),
            Put(tube, _) | Kick(tube, _) | Pause(tube, _) | Clear(Flush { tube, .. }) => Subject::Tube(tube),
            Move(MoveJobs { from, to, .. }) => Subject::TwoTubes(from, to),
            Set(tube, settings) => match &settings.dead {
                Some(dead) => Subject::TwoTubes(tube, dead),
                None => Subject::Tube(tube),
            },
            Job(id) | FindJob(id) | Body(id) | KickJob(id) | DeleteJob(id) | BuryJob(id) | RevokeJob(id) => {
                Subject::Job(Some(*id))
            }
            Introduction(introduction) => match &introduction.about {
                About::Tube(tube) => Subject::Tube(tube),
                About::Job(id) => Subject::Job(Some(*id)),
            },
            Page | Health | Ready | Server(_) | NamedTube(_) | Overview(_) => Subject::Nothing,
        }
    }
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
        }
    }
}

pub struct Route {
    /// The name in the log and in metrics.
    pub word: &'static str,
    /// The method of its requests.
    pub method: Method,
    /// The path; a part in braces matches any text.
    pub path: &'static str,
    /// The keys allowed in the query, or in the body's object.
    pub arguments: &'static [&'static str],
    /// The rights that the request requires.
    pub need: Need,
    /// A description of the request in one line.
    pub summary: &'static str,
    read: Read,
}

impl Route {
    /// Returns the method and the path, as in `GET /metrics`.
    pub fn name(&self) -> String {
        format!("{} {}", self.method.name(), self.path)
    }
}

type Read = fn(&mut Arguments) -> Result<Command, Failure>;

const fn row(
    (word, method, path): (&'static str, Method, &'static str),
    arguments: &'static [&'static str],
    need: Need,
    summary: &'static str,
    read: Read,
) -> Route {
    Route { word, method, path, arguments, need, summary, read }
}

#[rustfmt::skip]
pub const ROUTES: [Route; 33] = [
    row(("page", Method::Get, "/"), &[], Need::OPEN, "the page", |_| Ok(Command::Page)),
    row(("healthz", Method::Get, "/healthz"), &[], Need::OPEN, "whether the server works: 200, or 503 with the reason", |_| Ok(Command::Health)),
    row(("readyz", Method::Get, "/readyz"), &[], Need::OPEN, "whether it takes jobs: 200, or 503 with the reason", |_| Ok(Command::Ready)),
    row(("metrics", Method::Get, "/metrics"), &["tube", "filter", "state"], Need::LOOK_ANY, "figures for Prometheus", metrics),
    row(("server", Method::Get, "/api/server"), &[], Need::LOOK_ANY, "figures of the server", |_| Ok(Command::Server(Box::default()))),
    row(("tubes", Method::Get, "/api/tubes"), &["sort", "order", "filter", "limit", "after", "name"], Need::LOOK_ANY, "figures of tubes, a page at a time", tubes),
    row(("tube", Method::Get, "/api/tubes/{tube}"), &[], Need::LOOK_NAMED, "figures of a tube, with the times and ages of its jobs", |it| Ok(Command::Tube(FindOldest::new(it.part(0))))),
    row(("jobs", Method::Get, "/api/tubes/{tube}/jobs"), &["state", "limit", "from"], Need::LOOK_NAMED, "jobs of a tube, a page at a time", jobs),
    row(("find-job", Method::Get, "/api/jobs"), &["id"], Need::LOOK_JOB, "the job with an id, in a list that is empty if there is none", |it| it.query("id").and_then(whole_number).map(JobId).map(Command::FindJob).ok_or_else(|| wrong("id"))),
    row(("peek", Method::Get, "/api/tubes/{tube}/peek/{state}"), &[], Need::LOOK_NAMED, "the next job of a tube that is ready, delayed or buried", |it| Ok(Command::Peek(it.part(0), queued(&it.part(1))?))),
    row(("job", Method::Get, "/api/jobs/{id}"), &[], Need::LOOK_JOB, "a job, with up to 64 KiB of its body", |it| it.id().map(Command::Job)),
    row(("body", Method::Get, "/api/jobs/{id}/body"), &[], Need::LOOK_JOB, "the body of a job, as it is", |it| it.id().map(Command::Body)),
    row(("put", Method::Post, "/api/tubes/{tube}/put"), &["body", "body-base64", "pri", "delay", "ttr", "tags"], Need::PUT_NAMED, "put a job", put),
    row(("kick", Method::Post, "/api/tubes/{tube}/kick"), &["count"], Need::ADMIN_NAMED, "make buried, or delayed, jobs ready", |it| Ok(Command::Kick(it.part(0), Kick::new(it.number("count", u64::MAX)?)))),
    row(("pause", Method::Post, "/api/tubes/{tube}/pause"), &["seconds"], Need::ADMIN_NAMED, "give out no job of a tube for so long; 0 ends a pause", |it| Ok(Command::Pause(it.part(0), it.seconds("seconds", 3600)?))),
    row(("settings", Method::Post, "/api/tubes/{tube}/settings"), &["settings"], Need::ADMIN_NAMED, "give a tube its settings, and take away those that are not named", settings),
    row(("clear", Method::Post, "/api/tubes/{tube}/clear"), &["state"], Need::ADMIN_NAMED, "delete the jobs of a tube that are ready, delayed or buried, or all of them", clear),
    row(("move", Method::Post, "/api/tubes/{tube}/move"), &["to", "state", "count"], Need::ADMIN_NAMED, "put jobs of a tube into another one", move_jobs),
    row(("connections", Method::Get, "/api/connections"), &["sort", "order", "filter", "limit", "after"], Need::LOOK_ANY, "connections and what they do, a page at a time", connections),
    row(("history", Method::Get, "/api/history"), &["tube", "filter", "failed", "limit", "before"], Need::LOOK_ANY, "the jobs that ended or were buried last, a page at a time", history),
    row(("overview", Method::Get, "/api/overview"), &[], Need::LOOK_ALL, "what the whole queue did in the last hour, and what is wrong in it", |_| Ok(Command::Overview(FindOldest::default()))),
    row(("schedules", Method::Get, "/api/schedules"), &["sort", "order", "filter", "limit", "after"], Need::LOOK_ANY, "schedules, a page at a time", schedules),
    row(("failed", Method::Get, "/api/failed"), &["filter"], Need::LOOK_ANY, "groups of failed jobs: the buried ones by tube and reason", |it| Ok(Command::List(Box::new(FailedGroups::new(Filter::new(it.query("filter").unwrap_or_default())))))),
    row(("failed-jobs", Method::Get, "/api/tubes/{tube}/failed"), &["reason", "limit", "before"], Need::LOOK_NAMED, "failed jobs of a tube, the newest failure first, a page at a time", failed_jobs),
    row(("kick-failed", Method::Post, "/api/tubes/{tube}/failed/kick"), &["reason", "reason-base64"], Need::ADMIN_NAMED, "make failed jobs of a tube ready, all or those with one reason", |it| sweep(it, Remedy::Kick)),
    row(("delete-failed", Method::Post, "/api/tubes/{tube}/failed/delete"), &["reason", "reason-base64"], Need::ADMIN_NAMED, "delete failed jobs of a tube, all or those with one reason", |it| sweep(it, Remedy::Delete)),
    row(("move-failed", Method::Post, "/api/tubes/{tube}/failed/move"), &["reason", "reason-base64", "to"], Need::ADMIN_NAMED, "put failed jobs of a tube into another one, all or those with one reason", move_failed),
    row(("kick-job", Method::Post, "/api/jobs/{id}/kick"), &[], Need::ADMIN_JOB, "make a buried, delayed or leased job ready", |it| it.id().map(Command::KickJob)),
    row(("move-job", Method::Post, "/api/jobs/{id}/move"), &["to"], Need::ADMIN_JOB, "put a buried job into another tube", |it| Ok(Command::MoveJob(it.id()?, target(it)?))),
    row(("delete", Method::Post, "/api/jobs/{id}/delete"), &[], Need::ADMIN_JOB, "delete a job that nobody has reserved", |it| it.id().map(Command::DeleteJob)),
    row(("revoke", Method::Post, "/api/jobs/{id}/revoke"), &[], Need::ADMIN_JOB, "take a reserved job from its holder, and bury it", |it| it.id().map(Command::RevokeJob)),
    row(("bury", Method::Post, "/api/jobs/{id}/bury"), &[], Need::ADMIN_JOB, "set a job aside that nobody has reserved", |it| it.id().map(Command::BuryJob)),
    // This path is known, but has no content: browsers request it on their own.
    row(("favicon", Method::Get, "/favicon.ico"), &[], Need::OPEN, "nothing: browsers ask for it", |_| Err(Failure::new(404, "there is no icon"))),
];

/// A key of a query and its value.
type Pair = (Box<[u8]>, Box<[u8]>);

/// The parsed target of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestTarget {
    /// The method of the request.
    pub method: Method,
    parts: Vec<Box<[u8]>>,
    query: Vec<Pair>,
}

impl RequestTarget {
    /// Parses a path with its query. Returns `None` if it is invalid.
    pub fn read(method: Method, text: &str) -> Option<RequestTarget> {
        let text = text.split('#').next()?;
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let parts = path.strip_prefix('/')?.split('/').map(|part| decode(part, false));
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key, true)?, decode(value, true)?))
        };
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(pair);
        Some(RequestTarget { method, parts: parts.collect::<Option<_>>()?, query: query.collect::<Option<_>>()? })
    }
}

/// Decodes percent-encoding; in a query, a plus is a space.
fn decode(text: &str, plus: bool) -> Option<Box<[u8]>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok().filter(|digits| !digits.starts_with('+'))?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = past(rest, 2);
            }
            b'+' if plus => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    Some(bytes.into())
}

/// The input of a row's parser.
struct Arguments<'a> {
    parts: Vec<&'a [u8]>,
    target: &'a RequestTarget,
    object: Object<'a>,
    limits: &'a DecodeLimits,
}

fn wrong(what: &str) -> Failure {
    Failure::new(400, format!("wrong or missing: {what}"))
}

impl Arguments<'_> {
    /// Returns the text in place of the n-th pair of braces.
    fn part(&self, place: usize) -> Box<[u8]> {
        self.parts.get(place).copied().unwrap_or_default().into()
    }

    fn query(&self, key: &str) -> Option<&[u8]> {
        self.target.query.iter().find(|(found, _)| **found == *key.as_bytes()).map(|(_, value)| &**value)
    }

    fn query_number(&self, key: &str, otherwise: u64) -> Result<u64, Failure> {
        let Some(text) = self.query(key) else { return Ok(otherwise) };
        whole_number(text).ok_or_else(|| wrong(key))
    }

    fn number(&self, key: &str, otherwise: u64) -> Result<u64, Failure> {
        Ok(self.object.number(key).map_err(|()| wrong(key))?.unwrap_or(otherwise))
    }

    fn text(&self, key: &str) -> Result<Option<&str>, Failure> {
        self.object.text(key).map_err(|()| wrong(key))
    }

    /// Reads bytes: the text of `key`, or the base64 text of `encoded`.
    fn bytes(&mut self, key: &'static str, encoded: &'static str) -> Result<Option<Vec<u8>>, Failure> {
        let mut text = |key| self.object.take_text(key).map_err(|()| wrong(key));
        match (text(key)?, text(encoded)?) {
            (None, None) => Ok(None),
            (Some(text), None) => Ok(Some(text.into_owned().into_bytes())),
            (None, Some(text)) => match crate::shared::base64::decode(text.as_bytes()) {
                Some(bytes) => Ok(Some(bytes)),
                None => Err(wrong(encoded)),
            },
            (Some(_), Some(_)) => Err(wrong(key)),
        }
    }

    /// Reads a duration in seconds, within the range of the beanstalk protocol.
    fn seconds(&self, key: &str, otherwise: u64) -> Result<Span, Failure> {
        let seconds = self.number(key, otherwise)?;
        u32::try_from(seconds).map(|seconds| Span::from_secs(seconds.into())).map_err(|_| wrong(key))
    }

    fn id(&self) -> Result<JobId, Failure> {
        whole_number(&self.part(0)).map(JobId).ok_or_else(|| wrong("id"))
    }
}

fn state(text: &[u8]) -> Result<State, Failure> {
    State::named(text).ok_or_else(|| wrong("state"))
}

/// Reads a state of jobs that are not reserved.
fn queued(text: &[u8]) -> Result<State, Failure> {
    state(text).and_then(|state| if state == State::Reserved { Err(wrong("state")) } else { Ok(state) })
}

fn metrics(it: &mut Arguments) -> Result<Command, Failure> {
    let only = it.query("tube").map(Into::into);
    let filter = it.query("filter").unwrap_or_default().into();
    let state = it.query("state").map(state).transpose()?;
    Ok(Command::Metrics(Scrape::new(TubeChoice { only, filter, state }).into()))
}

fn tubes(it: &mut Arguments) -> Result<Command, Failure> {
    if let Some(name) = it.query("name") {
        return Ok(Command::NamedTube(name.into()));
    }
    let limit = it.query_number("limit", 1000)?.clamp(1, 1000) as usize;
    let filter = Filter::new(it.query("filter").unwrap_or_default());
    let Some(key) = it.query("sort") else {
        let after = u32::try_from(it.query_number("after", 0)?).map_err(|_| wrong("after"))?;
        return Ok(Command::List(Box::new(TubeList::new(after, filter, limit))));
    };
    let direction = it.query("order").unwrap_or(b"asc");
    sorted::<TubeValues>(it, tube_order(key, direction))
}

/// Returns a page in this order, or an error if the order is invalid.
fn sorted<T: Listed + 'static>(it: &Arguments, order: Option<Order>) -> Result<Command, Failure> {
    let order = order.ok_or_else(|| wrong("sort, or order"))?;
    let after = it.query("after").map(|text| Mark::read(text).ok_or_else(|| wrong("after"))).transpose()?;
    let limit = it.query_number("limit", 1000)?.clamp(1, 1000) as usize;
    let filter = Filter::new(it.query("filter").unwrap_or_default());
    Ok(Command::List(Box::new(SortedList::<T>::new(SortedPage::new(order, after, limit), filter))))
}

fn schedules(it: &mut Arguments) -> Result<Command, Failure> {
    let (key, direction) = (it.query("sort").unwrap_or(b"time-left"), it.query("order").unwrap_or(b"asc"));
    sorted::<JobId>(it, schedule_order(key, direction))
}

fn history(it: &mut Arguments) -> Result<Command, Failure> {
    let failed = match it.query("failed").unwrap_or(b"0") {
        b"0" | b"false" => false,
        b"1" | b"true" | b"" => true,
        _ => return Err(wrong("failed")),
    };
    let limit = it.query_number("limit", 100)?.clamp(1, 1000) as usize;
    let walk = HistoryWalk::new(it.query_number("before", u64::MAX)?, limit, failed);
    let filter = Filter::new(it.query("filter").unwrap_or_default());
    Ok(Command::List(Box::new(HistoryList::new(walk, it.query("tube").map(Into::into), filter))))
}

fn connections(it: &mut Arguments) -> Result<Command, Failure> {
    let (key, direction) = (it.query("sort").unwrap_or(b"number"), it.query("order").unwrap_or(b"asc"));
    sorted::<ClientHandle>(it, connection_order(key, direction))
}

fn jobs(it: &mut Arguments) -> Result<Command, Failure> {
    let from = it.query_number("from", 0)?;
    let limit = it.query_number("limit", 100)?.clamp(1, 100) as usize;
    Ok(Command::List(Box::new(JobList::new(it.part(0), it.query("state").map(state).transpose()?, from, limit))))
}

fn put(it: &mut Arguments) -> Result<Command, Failure> {
    let tube = new_tube(&it.part(0))?;
    let bytes = it.bytes("body", "body-base64")?.ok_or_else(|| wrong("body, or body-base64"))?;
    if bytes.len() as u64 > it.limits.max_job_size.into() {
        return Err(Failure::new(413, "the job is too large"));
    }
    let pri = it.number("pri", USUAL_PRIORITY.into())?.try_into().map_err(|_| wrong("pri"))?;
    let ttr = it.seconds("ttr", USUAL_TTR)?.max(Span::from_secs(1));
    let job = NewJob { pri, delay: it.seconds("delay", 0)?, ttr, body: Body::from(bytes) };
    let Some(text) = it.text("tags")?.filter(|text| !text.is_empty()) else { return Ok(Command::Put(tube, job)) };
    match read_tags(format!(" {text}").as_bytes(), it.limits.extensions) {
        Tagging::Tagged(tags) if tags.tube.is_none() => {
            Ok(Command::PutTagged(job, Box::new(Tags { tube: Some(tube), ..*tags })))
        }
        _ => Err(wrong("tags")),
    }
}

fn failed_jobs(it: &mut Arguments) -> Result<Command, Failure> {
    let group = FailedGroup { tube: it.part(0), reason: it.query("reason").map(Into::into) };
    let limit = it.query_number("limit", 100)?.clamp(1, 100) as usize;
    Ok(Command::List(Box::new(FailedJobs::new(group, it.query_number("before", u64::MAX)?, limit))))
}

fn sweep(it: &mut Arguments, remedy: Remedy) -> Result<Command, Failure> {
    let reason = it.bytes("reason", "reason-base64")?.map(Vec::into_boxed_slice);
    Ok(Command::Sweep(Sweep::new(FailedGroup { tube: it.part(0), reason }, remedy).into()))
}

fn move_failed(it: &mut Arguments) -> Result<Command, Failure> {
    let to = target(it)?;
    if *to == *it.part(0) {
        return Err(Failure::new(400, SAME_TUBE));
    }
    sweep(it, Remedy::Move(to))
}

/// Reads the name of the tube to which jobs are moved.
fn target(it: &Arguments) -> Result<Box<[u8]>, Failure> {
    new_tube(it.text("to")?.ok_or_else(|| wrong("to"))?.as_bytes())
}

fn settings(it: &mut Arguments) -> Result<Command, Failure> {
    let tube = new_tube(&it.part(0))?;
    let text = it.object.take_text("settings").map_err(|()| wrong("settings"))?.unwrap_or_default();
    let settings = read_settings(text.as_bytes()).ok_or_else(|| wrong("settings"))?;
    Ok(Command::Set(tube, settings.into()))
}

/// Checks the name of a tube that may have to be created.
fn new_tube(name: &[u8]) -> Result<Box<[u8]>, Failure> {
    if is_any_name(name) {
        Ok(name.into())
    } else {
        Err(Failure::new(400, format!("invalid tube name: it must have 1 to {MAX_QUOTED_NAME} bytes, none of them 0")))
    }
}

fn clear(it: &mut Arguments) -> Result<Command, Failure> {
    let state = it.text("state")?.map(|text| queued(text.as_bytes())).transpose()?;
    let states: &[State] = match state {
        Some(State::Ready) => &[State::Ready],
        Some(State::Delayed) => &[State::Delayed],
        Some(_) => &[State::Buried],
        // Reserved jobs are kept.
        None => &[State::Held, State::Buried, State::Delayed, State::Ready],
    };
    Ok(Command::Clear(Flush::new(it.part(0), states)))
}

fn move_jobs(it: &mut Arguments) -> Result<Command, Failure> {
    let to = target(it)?;
    let state = queued(it.text("state")?.ok_or_else(|| wrong("state"))?.as_bytes())?;
    if *to == *it.part(0) {
        return Err(Failure::new(400, SAME_TUBE));
    }
    Ok(Command::Move(MoveJobs::new(it.part(0), to, state, it.number("count", u64::MAX)?)))
}

/// Returns the texts in place of the braces of a row's path, or `None` for other paths.
fn parts_of<'a>(path: &str, target: &'a RequestTarget) -> Option<Vec<&'a [u8]>> {
    let mut parts = Vec::new();
    let mut given = target.parts.iter();
    for part in path[1..].split('/') {
        let found = given.next()?;
        match part.starts_with('{') {
            true if !found.is_empty() => parts.push(&**found),
            true => return None,
            false if **found != *part.as_bytes() => return None,
            false => {}
        }
    }
    given.next().is_none().then_some(parts)
}

/// Returns the row of this path with its index in the table, and the texts in place of its braces.
fn find_row(target: &RequestTarget) -> Result<(usize, &'static Route, Vec<&[u8]>), Failure> {
    let mut other = false;
    for (place, route) in ROUTES.iter().enumerate() {
        if let Some(parts) = parts_of(route.path, target) {
            if route.method == target.method {
                return Ok((place, route, parts));
            }
            other = true;
        }
    }
    Err(if other { Failure::new(405, "not with this method") } else { Failure::new(404, "there is no such path") })
}

/// The parsed command, and the index of its row.
pub type Routed = Result<(usize, Command), Failure>;

/// Parses a request with its body. The texts of the body are copied at most once.
pub fn find(target: &RequestTarget, body: &[u8], limits: &DecodeLimits) -> Routed {
    let (place, route, parts) = find_row(target)?;
    let known = |key: &[u8]| route.method == Method::Get && route.arguments.iter().any(|name| name.as_bytes() == key);
    if let Some((key, _)) = target.query.iter().find(|(key, _)| !known(key)) {
        return Err(Failure::new(400, format!("unknown in the query: {}", String::from_utf8_lossy(key))));
    }
    let object = match body {
        [] => Ok(Object::default()),
        _ if body.len() as u64 > limits.room => return Err(Failure::new(503, "there is no memory for this")),
        _ => Object::parse(body, route.arguments, Strays::Refused),
    };
    let object = object.map_err(|wrong| Failure::new(400, wrong))?;
    (route.read)(&mut Arguments { parts, target, object, limits }).map(|command| (place, command))
}

/// Parses a request whose body has not been read.
pub fn find_head(target: &RequestTarget, expects: bool) -> Routed {
    let (place, route, parts) = find_row(target)?;
    let first = parts.first().copied().unwrap_or_default();
    let about = match route.need.scope {
        Scope::Job => About::Job(whole_number(first).map(JobId).ok_or_else(|| wrong("id"))?),
        _ => About::Tube(first.into()),
    };
    Ok((place, Command::Introduction(Introduction { expects, about })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::tests::pieces::LIMITS;

    fn read(method: Method, path: &str, body: &str) -> Result<Command, u16> {
        let target = RequestTarget::read(method, path).ok_or(0_u16)?;
        find(&target, body.as_bytes(), &LIMITS).map(|(_, command)| command).map_err(|failure| failure.status)
    }

    #[test]
    fn paths_are_decoded_part_by_part() {
        let Ok(Command::Tube(tube)) = read(Method::Get, "/api/tubes/a%2Fb+c%00", "{}") else { panic!("no tube") };
        assert_eq!(tube.tube(), b"a/b+c\0");
        let Ok(Command::NamedTube(name)) = read(Method::Get, "/api/tubes?name=a+b%2B", "{}") else { panic!("no tube") };
        assert_eq!(*name, *b"a b+");
        for wrong in
            ["/api/tubes/%", "/api/tubes/%2", "/api/tubes/%+1", "/api/tubes/%zz", "api/tubes", "http://x/", "*"]
        {
            assert!(matches!(read(Method::Get, wrong, "{}"), Err(0)), "{wrong}");
        }
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for (method, path, body, status) in [
            (Method::Get, "/nothing", "", 404),
            (Method::Get, "/api/tubes/", "", 404),
            (Method::Get, "/api/tubes/a/put", "{}", 405),
            (Method::Post, "/", "{}", 405),
            (Method::Get, "/metrics?name=x", "{}", 400),
            (Method::Get, "/metrics?names=x", "{}", 400),
            (Method::Get, "/api/tubes/a/peek/reserved", "{}", 400),
            (Method::Get, "/api/tubes?sort=", "", 400),
            (Method::Get, "/api/tubes?sort=put", "", 400),
            (Method::Get, "/api/tubes?sort=name&order=up", "", 400),
            (Method::Get, "/api/tubes?sort=name&after=5", "", 400),
            (Method::Get, "/api/tubes?after=0-61", "", 400),
            (Method::Get, "/api/tubes?limit=-1", "", 400),
            (Method::Get, "/api/tubes/a/jobs?state=finished", "", 400),
            (Method::Get, "/api/tubes/a/jobs?from=18446744073709551616", "", 400),
            (Method::Get, "/api/jobs", "", 400),
            (Method::Get, "/api/jobs?id=", "", 400),
            (Method::Get, "/api/jobs/x", "{}", 400),
            (Method::Get, "/api/jobs/18446744073709551616", "{}", 400),
            (Method::Post, "/api/tubes/a/put", "{}", 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"x","body-base64":"eA=="}"#, 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"x","bogus":1}"#, 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"x","pri":-1}"#, 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"x","delay":4294967296}"#, 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"12345678901"}"#, 413),
            (Method::Post, "/api/tubes/%00/put", r#"{"body":"x"}"#, 400),
            (Method::Post, "/api/tubes/a/move", r#"{"to":"a","state":"ready"}"#, 400),
            (Method::Post, "/api/tubes/a/clear?state=ready", "{}", 400),
            (Method::Post, "/api/tubes/a/clear", r#"{"state":["ready"]}"#, 400),
        ] {
            assert_eq!(read(method, path, body).err(), Some(status), "{path} {body}");
        }
    }
}
