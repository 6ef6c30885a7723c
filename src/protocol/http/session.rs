//! Carrying out requests.
//!
//! Owns which verb a request becomes and what its reply tells. What may be long goes on in other turns, and a list that
//! grows is on the account of memory. Must not know how bytes arrive or leave.

use super::guard;
use super::metrics::{self, Scrape};
use super::page::PAGE;
use super::reply::{self, Kind};
use super::request::Request;
use super::routes::{Command, CHANGE};
use super::types::{Failure, Head};
use crate::access::{ClientAccess, Right};
use crate::engine::{
    BodyRef, Engine, Flush, JobId, JobView, Kick, MoveJobs, NewJob, Progress, Refused, Span, State, Stats, Time,
    TubeStats,
};
use crate::json::Members;
use crate::log_figures::Health;
use crate::protocol::beanstalk::{extended_counts, server_figures, FigureValue, QueueFigures, TUBE_FIGURES};
use crate::protocol::sums::VisibleSums;
use crate::protocol::text::upto;
use crate::protocol::{self, Context, Flow, Output, Wire};
use crate::role::Role;

/// Why a server says nothing of the queue, and takes no jobs.
const STANDING_BY: &str = "this server stands by; another one is active";

/// Bytes of a body that are shown with its job.
const SHOWN: usize = 64 * 1024;

/// Bytes of it in a list.
const GLIMPSE: usize = 120;

/// Jobs in a page of a list, or a few more.
const JOBS: usize = 100;

/// The rest of a request that was too much for one turn.
#[derive(Debug)]
pub struct Continuation {
    head: Box<Head>,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    Metrics(Box<Scrape>),
    Server(Box<VisibleSums>),
    Tubes {
        next: u32,
        filter: Box<[u8]>,
        limit: usize,
        list: List,
    },
    Jobs {
        next: u32,
        tube: Box<[u8]>,
        state: Option<State>,
        list: List,
    },
    /// A kick of many jobs.
    Kick(Box<[u8]>, Kick),
    /// The deletion of many jobs.
    Clear(Flush),
    /// A move of many jobs.
    Move(MoveJobs),
}

/// A list in the making.
#[derive(Debug, Default)]
struct List {
    text: Output,
    count: usize,
}

impl List {
    /// Begins one more object; tells where it begins.
    fn item(&mut self) -> &mut Vec<u8> {
        let first = self.count == 0;
        self.count += 1;
        let text = self.text.text();
        if !first {
            text.extend_from_slice(b",\n");
        }
        text
    }

    /// The whole of it: `{"<name>":[...],"next":n}`.
    fn finish(self, name: &str, next: Option<u32>) -> Output {
        let mut whole = Output::new();
        whole.text().extend_from_slice(format!("{{\"{name}\":[\n").as_bytes());
        let mut items = self.text;
        whole.append(&mut items);
        let next = next.map_or("null".to_owned(), |next| next.to_string());
        whole.text().extend_from_slice(format!("\n],\"next\":{next}}}\n").as_bytes());
        whole
    }
}

impl Continuation {
    /// Bytes that it may take in a log before it stops once more.
    pub fn log_size(&self) -> u64 {
        match &self.rest {
            Rest::Kick(..) => CHANGE,
            Rest::Clear(_) => 1,
            Rest::Move(moving) => CHANGE + moving.footprint(),
            Rest::Metrics(_) | Rest::Server(_) | Rest::Tubes { .. } | Rest::Jobs { .. } => 0,
        }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        match &self.rest {
            Rest::Metrics(scrape) => scrape.footprint(),
            Rest::Server(_) => size_of::<VisibleSums>() as u64,
            Rest::Tubes { filter, list, .. } => filter.len() as u64 + list.text.footprint(),
            Rest::Jobs { tube, list, .. } => tube.len() as u64 + list.text.footprint(),
            Rest::Kick(tube, _) => tube.len() as u64,
            Rest::Clear(flush) => flush.footprint(),
            Rest::Move(moving) => moving.footprint(),
        }
    }
}

/// Carries out one request and appends its reply.
pub fn execute(request: Request, context: &mut Context, out: &mut Output) -> Flow {
    let Request { head, command, is_last, .. } = request;
    if matches!(command, Ok(Command::Introduction)) {
        return Flow::Next;
    }
    // What cannot be framed is not guarded either: nothing of it is known.
    let allowed = if is_last { Ok(()) } else { guard::check(&head, command.as_ref().ok(), &context.settings.http) };
    match allowed.and(command) {
        Ok(Command::GoAhead) => {
            reply::go_ahead(out);
            Flow::Next
        }
        Ok(command) if is_asleep(&command, context) => {
            reply::failure(out, &Failure::new(503, STANDING_BY), &head);
            ended(&head)
        }
        Ok(command) => carry_out(command, head, context, out),
        Err(failure) => {
            reply::failure(out, &failure, &head);
            ended(&head)
        }
    }
}

/// Whether the request is about a queue that is not here: a server that stands by tells of itself alone.
fn is_asleep(command: &Command, context: &Context) -> bool {
    let is_own = matches!(command, Command::Health | Command::Ready | Command::Metrics(..));
    !is_own && context.host.role().is_some_and(|figures| figures.role == Role::Standby)
}

/// Goes on with a request in another turn.
pub fn go_on(rest: Continuation, context: &mut Context, out: &mut Output) -> Flow {
    let Continuation { head, rest } = rest;
    proceed(rest, head, context, out)
}

fn ended(head: &Head) -> Flow {
    if head.close {
        Flow::Close
    } else {
        Flow::Next
    }
}

fn carry_out(command: Command, head: Box<Head>, context: &mut Context, out: &mut Output) -> Flow {
    let rest = match command {
        Command::Metrics(names, tube) => Rest::Metrics(Scrape::new(names, tube, &context.settings.http).into()),
        Command::Server => Rest::Server(Box::default()),
        Command::Tubes { after, filter, limit } => Rest::Tubes { next: after, filter, limit, list: List::default() },
        Command::Jobs { tube, state, from } => Rest::Jobs { next: from, tube, state, list: List::default() },
        Command::Kick(tube, count) => Rest::Kick(tube, Kick::new(count)),
        Command::Clear(tube, states) => Rest::Clear(Flush::new(tube, states)),
        Command::Move { tube, to, state, count } => Rest::Move(MoveJobs::new(tube, to, state, count)),
        command => {
            let flow = ended(&head);
            match short_command(command, context) {
                Ok((kind, body)) => reply::whole(out, 200, kind, body, &head),
                Err(failure) => reply::failure(out, &failure, &head),
            }
            return flow;
        }
    };
    proceed(rest, head, context, out)
}

type Answer = Result<(Kind, Output), Failure>;

fn bytes(kind: Kind, bytes: &[u8]) -> Answer {
    let mut body = Output::new();
    body.text().extend_from_slice(bytes);
    Ok((kind, body))
}

/// An object that `fill` writes.
fn object(fill: impl FnOnce(&mut Members)) -> Answer {
    let mut body = Output::new();
    let text = body.text();
    let mut members = Members::begin(text);
    fill(&mut members);
    members.end();
    text.push(b'\n');
    Ok((Kind::Json, body))
}

fn not_found(what: &str) -> Failure {
    Failure::new(404, format!("there is no such {what}"))
}

/// What takes one turn for certain.
fn short_command(command: Command, context: &mut Context) -> Answer {
    let now = context.now;
    match command {
        Command::Page => bytes(Kind::Page, PAGE),
        Command::Health => health(unhealthy(context)),
        Command::Ready => health(unhealthy(context).or_else(|| unready(context))),
        Command::Tube(name) => {
            let tube = context.engine.tube_stats(&name, now).ok_or_else(|| not_found("tube"))?;
            object(|members| tube_members(members, &tube))
        }
        Command::Peek(tube, state) => {
            context.engine.tube_stats(&tube, now).ok_or_else(|| not_found("tube"))?;
            let job = context.engine.peek_in(&tube, state).ok_or_else(|| not_found("job"))?;
            object(|members| job_members(members, context.engine, &job, SHOWN, now))
        }
        Command::Job(id) => {
            let job = context.engine.job(id).ok_or_else(|| not_found("job"))?;
            object(|members| job_members(members, context.engine, &job, SHOWN, now))
        }
        Command::Body(id) => {
            let job = context.engine.job(id).ok_or_else(|| not_found("job"))?;
            let mut body = Output::new();
            body.body(job.body());
            Ok((Kind::Bytes, body))
        }
        Command::Put(tube, job) => put(&tube, job, context),
        command => change(command, context),
    }
}

/// Changes to one tube or job.
fn change(command: Command, context: &mut Context) -> Answer {
    let (client, now) = (context.client, context.now);
    let extra = if let Command::Pause(tube, _) = &command { tube.len() } else { 0 };
    if !matches!(command, Command::DeleteJob(_)) && !context.engine.claim_log_room(extra) {
        return Err(Failure::new(503, "the binlog has no room for this"));
    }
    let engine = &mut *context.engine;
    let (done, what) = match command {
        Command::Pause(tube, length) => (engine.pause(&tube, length, now), "tube"),
        Command::KickJob(id) => (engine.kick_job(id, now), "job that is buried, delayed or leased"),
        Command::DeleteJob(id) => (engine.delete(client, id, now), "job that nobody has reserved"),
        Command::BuryJob(id) => (bury(id, context), "job that nobody has reserved"),
        other => unreachable!("{other:?} is no change"),
    };
    if !done {
        return Err(not_found(what));
    }
    object(|members| members.truth("done", true))
}

/// Only who has a job may bury it, so it is reserved first.
fn bury(id: JobId, context: &mut Context) -> bool {
    let Some(pri) = context.engine.job(id).map(|job| job.priority()) else { return false };
    let reserved = context.engine.reserve_job(context.client, id, context.now).is_some();
    reserved && context.engine.bury(context.client, id, pri, context.now)
}

fn put(tube: &[u8], job: NewJob, context: &mut Context) -> Answer {
    match context.engine.put_into(context.client, tube, job, context.now) {
        Ok(id) => object(|members| members.number("id", id.0)),
        Err(refused) => Err(refusal(refused)),
    }
}

fn refusal(refused: Refused) -> Failure {
    match refused {
        Refused::Draining => Failure::new(503, "the server is draining"),
        Refused::OutOfMemory => Failure::new(503, "there is no memory, or no space in the binlog, for this"),
        Refused::Duplicate => Failure::new(409, "there is such a job"),
        Refused::QueueFull => Failure::new(409, "the tube is full"),
    }
}

/// Why the server does not work.
fn unhealthy(context: &Context) -> Option<&'static str> {
    (context.log?.health == Health::Failing).then_some("the disk of the binlog fails")
}

/// Why it takes no jobs.
fn unready(context: &Context) -> Option<&'static str> {
    match context.host.role().map(|figures| figures.role) {
        Some(Role::Standby) => return Some(STANDING_BY),
        Some(Role::Closing) => return Some("another server is to take over"),
        Some(Role::Active) | None => {}
    }
    if context.engine.stats().draining {
        Some("draining")
    } else if context.log.is_some_and(|log| log.health == Health::Full) {
        Some("the disk of the binlog is full")
    } else if !context.engine.has_memory(0) {
        Some("all memory is taken")
    } else {
        None
    }
}

fn health(problem: Option<&str>) -> Answer {
    match problem {
        None => bytes(Kind::Text, b"ok\n"),
        Some(problem) => Err(Failure::new(503, problem)),
    }
}

fn server(stats: Stats, context: &Context) -> Answer {
    let figures = QueueFigures::of(stats, context);
    object(|members| {
        server_figures(&figures, |key, value| match value {
            FigureValue::Number(number) => members.number(key, number),
            FigureValue::Micros(micros) => members.raw(key, &metrics::seconds(u128::from(micros) * 1000)),
            FigureValue::Truth(value) => members.truth(key, value),
            FigureValue::Word(text) | FigureValue::Text(text) => members.text(key, text.as_bytes()),
        });
        extended_counts(&figures, |_| true).for_each(|(key, count)| members.number(&key, count));
        members.truth("admin", context.settings.http.admin && may_change(context));
        for (wire, count) in Wire::ALL.iter().zip(figures.connections) {
            members.number(&format!("connections-{}", wire.name()), count);
        }
    })
}

/// Whether the client may change something in some tube.
fn may_change(context: &Context) -> bool {
    let rights =
        |access: &ClientAccess| access.rights().is_some_and(|it| it.allow_somewhere(&[Right::Put, Right::Admin]));
    context.access.as_deref().is_none_or(rights)
}

fn tube_members(members: &mut Members, tube: &TubeStats) {
    members.bytes("name", tube.name);
    TUBE_FIGURES.iter().for_each(|row| members.number(row.name, (row.of)(tube)));
}

fn state_name(state: State) -> &'static [u8] {
    match state {
        State::Ready => b"ready",
        State::Delayed => b"delayed",
        State::Reserved => b"reserved",
        State::Buried => b"buried",
        State::Finished => b"finished",
    }
}

fn job_members(members: &mut Members, engine: &Engine, job: &JobView, shown: usize, now: Time) {
    let history = job.history();
    let left = match job.state() {
        State::Reserved | State::Delayed => job.due().since(now),
        State::Ready | State::Buried | State::Finished => Span::ZERO,
    };
    members.number("id", job.id().0);
    members.bytes("tube", engine.tube_of(job));
    members.text("state", state_name(job.state()));
    members.number("pri", job.priority().into());
    members.number("age", now.since(job.created()).secs());
    members.number("delay", job.delay().secs());
    members.number("ttr", job.ttr().secs());
    members.number("time-left", left.secs());
    for (key, count) in [
        ("reserves", history.reserves),
        ("timeouts", history.timeouts),
        ("releases", history.releases),
        ("buries", history.buries),
        ("kicks", history.kicks),
    ] {
        members.number(key, count.into());
    }
    let body = job.body();
    members.number("size", body.len() as u64);
    let part = beginning(body, shown);
    members.bytes("body", part);
    members.truth("truncated", part.len() < body.len());
}

/// Up to so many bytes of a body, but no half letter at the end.
fn beginning(body: BodyRef<'_>, most: usize) -> &[u8] {
    let bytes = body.bytes();
    if bytes.len() <= most {
        return bytes;
    }
    let cut = upto(bytes, most);
    match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => upto(cut, error.valid_up_to()),
        _ => cut,
    }
}

/// Does the next part of something long.
fn proceed(rest: Rest, head: Box<Head>, context: &mut Context, out: &mut Output) -> Flow {
    let step = match rest {
        Rest::Metrics(scrape) => metrics::go_on(scrape, context).map_or_else(
            |scrape| Step::More(Rest::Metrics(scrape)),
            |found| Step::Done(found.map(|body| (Kind::Metrics, body))),
        ),
        Rest::Server(mut sums) => match sums.go_on(context) {
            Some(stats) => Step::Done(server(stats, context)),
            None => Step::More(Rest::Server(sums)),
        },
        Rest::Tubes { next, filter, limit, list } => list_tubes(next, filter, limit, list, context),
        Rest::Jobs { next, tube, state, list } => list_jobs(next, tube, state, list, context),
        Rest::Kick(tube, mut kick) => match context.engine.kick_in(&tube, &mut kick, context.now) {
            None => Step::Done(Err(not_found("tube"))),
            Some(Progress::More) => Step::More(Rest::Kick(tube, kick)),
            Some(Progress::Done) => Step::Done(object(|members| members.number("kicked", kick.done))),
        },
        Rest::Clear(mut flush) => match context.engine.flush(&mut flush, context.now) {
            Progress::More => Step::More(Rest::Clear(flush)),
            Progress::Done => Step::Done(object(|members| members.number("deleted", flush.done))),
        },
        Rest::Move(moving) => move_jobs(moving, context),
    };
    match step {
        Step::Done(Ok((kind, body))) => reply::whole(out, 200, kind, body, &head),
        Step::Done(Err(failure)) => reply::failure(out, &failure, &head),
        Step::More(rest) => {
            let rest = Continuation { head, rest };
            if context.engine.has_memory(rest.footprint()) {
                return Flow::Continue(Box::new(protocol::Continuation::Http(rest)));
            }
            reply::failure(out, &Failure::new(503, "there is no memory for this"), &rest.head);
            return ended(&rest.head);
        }
    }
    ended(&head)
}

/// How far it has come.
enum Step {
    Done(Answer),
    More(Rest),
}

fn list_tubes(mut next: u32, filter: Box<[u8]>, limit: usize, mut list: List, context: &mut Context) -> Step {
    let shown = |name: &[u8]| filter.is_empty() || name.windows(filter.len()).any(|part| part == &*filter);
    let Context { engine, access, now, .. } = context;
    let progress = engine.walk_tubes(&mut next, *now, |tube| {
        if !shown(tube.name) || !protocol::sees(access, tube.name) {
            return 0;
        }
        let text = list.item();
        let before = text.len();
        let mut members = Members::begin(text);
        tube_members(&mut members, tube);
        members.end();
        text.len() - before
    });
    match progress {
        Progress::More if list.count < limit => Step::More(Rest::Tubes { next, filter, limit, list }),
        Progress::More => Step::Done(Ok((Kind::Json, list.finish("tubes", Some(next))))),
        Progress::Done => Step::Done(Ok((Kind::Json, list.finish("tubes", None)))),
    }
}

fn list_jobs(mut next: u32, tube: Box<[u8]>, state: Option<State>, mut list: List, context: &mut Context) -> Step {
    let now = context.now;
    if context.engine.tube_stats(&tube, now).is_none() {
        return Step::Done(Err(not_found("tube")));
    }
    let progress = context.engine.walk_jobs(&mut next, |engine, job| {
        let wanted = state.is_none_or(|state| state == job.state()) && job.state() != State::Finished;
        if !wanted || engine.tube_of(job) != &*tube {
            return 0;
        }
        let text = list.item();
        let before = text.len();
        let mut members = Members::begin(text);
        job_members(&mut members, engine, job, GLIMPSE, now);
        members.end();
        text.len() - before
    });
    match progress {
        Progress::More if list.count < JOBS => Step::More(Rest::Jobs { next, tube, state, list }),
        Progress::More => Step::Done(Ok((Kind::Json, list.finish("jobs", Some(next))))),
        Progress::Done => Step::Done(Ok((Kind::Json, list.finish("jobs", None)))),
    }
}

fn move_jobs(mut moving: MoveJobs, context: &mut Context) -> Step {
    let stopped = match context.engine.move_jobs(context.client, &mut moving, context.now) {
        Ok(Progress::More) => return Step::More(Rest::Move(moving)),
        Ok(Progress::Done) => None,
        Err(_) => Some(refusal(Refused::OutOfMemory).text),
    };
    Step::Done(object(|members| {
        members.number("moved", moving.done);
        if let Some(why) = stopped {
            members.text("stopped", why.as_bytes());
        }
    }))
}
