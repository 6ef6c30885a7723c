//! Carrying out requests.
//!
//! Owns which verb a request becomes and what its reply tells. What may be long goes on in other turns, and a list that
//! grows is on the account of memory. Must not know how bytes arrive or leave.

use super::metrics::{self, Scrape};
use super::page::PAGE;
use super::reply::{self, Kind};
use super::request::{Decoder, Request};
use super::routes::{Command, CHANGE};
use super::same_site;
use super::types::{Failure, Head};
use crate::access::{ClientAccess, Right};
use crate::engine::{
    BodyRef, Engine, Flush, JobId, JobView, Kick, LongCommand, MoveJobs, NewJob, Progress, Refused, Span, State, Stats,
    Time, TubeStats,
};
use crate::protocol::beanstalk::{
    extended_counts, server_figures, FigureValue, QueueFigures, JOB_COUNTS, TUBE_FIGURES,
};
use crate::protocol::sums::VisibleSums;
use crate::protocol::text::{has_part, upto};
use crate::protocol::{self, Context, Flow, Output, Wire};
use crate::shared::json::Members;
use crate::shared::log_figures::Health;
use crate::shared::role::Role;

/// Why a server says nothing of the queue, and takes no jobs.
const STANDING_BY: &str = "this server stands by; another one is active";

/// Bytes of a body that are shown with its job.
const SHOWN: usize = 64 * 1024;

/// Bytes of it in a list.
const GLIMPSE: usize = 120;

/// What is not there when one cannot be changed.
const FREE_JOB: &str = "job that nobody has reserved";

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

/// Every kind of it; tests go through all of them.
#[cfg(test)]
pub const KINDS: [&str; 7] =
    ["http metrics", "http server", "http tubes", "http jobs", "http kick", "http clear", "http move"];

#[cfg(test)]
impl Continuation {
    pub fn kind(&self) -> &'static str {
        match &self.rest {
            Rest::Metrics(_) => KINDS[0],
            Rest::Server(_) => KINDS[1],
            Rest::Tubes { .. } => KINDS[2],
            Rest::Jobs { .. } => KINDS[3],
            Rest::Kick(..) => KINDS[4],
            Rest::Clear(_) => KINDS[5],
            Rest::Move(_) => KINDS[6],
        }
    }
}

/// A list in the making.
#[derive(Debug, Default)]
struct List {
    text: Output,
    count: usize,
}

impl List {
    /// Adds an object that `fill` writes; how many bytes it has.
    fn add(&mut self, fill: impl FnOnce(&mut Members)) -> usize {
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

    /// The whole of it: `{"<name>":[...],"next":n}`. There is a next one if there is more.
    fn finish(self, name: &str, next: u32, progress: Progress) -> Step {
        let mut whole = Output::new();
        whole.text().extend_from_slice(format!("{{\"{name}\":[\n").as_bytes());
        let mut items = self.text;
        whole.append(&mut items);
        let next = if progress == Progress::More { next.to_string() } else { "null".to_owned() };
        whole.text().extend_from_slice(format!("\n],\"next\":{next}}}\n").as_bytes());
        Step::Done(Ok((Kind::Json, whole)))
    }
}

impl Continuation {
    /// What is completed although the client hangs up, if anything.
    pub fn into_operation(self) -> Option<LongCommand> {
        match self.rest {
            Rest::Clear(flush) => Some(LongCommand::Flush(flush)),
            Rest::Move(moving) => Some(LongCommand::Move(moving)),
            _ => None,
        }
    }

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
pub fn execute(request: Request, decoder: &mut Decoder, context: &mut Context, out: &mut Output) -> Flow {
    // What cannot be framed is not guarded: nothing of it is known.
    let allowed = if request.is_last { Ok(()) } else { same_site::check(&request, &context.settings.http) };
    let Request { head, command, introduces, .. } = request;
    let command = match allowed.and(command) {
        Ok(command) if is_asleep(&command, context) => Err(Failure::new(503, STANDING_BY)),
        command => command,
    };
    if introduces {
        decoder.answer(command.is_ok());
    }
    match command {
        Ok(command) => carry_out(command, head, context, out),
        Err(failure) => reply::failure(out, &failure, &head),
    }
}

/// Whether the request is about a queue that is not here: a server that stands by tells of itself alone.
fn is_asleep(command: &Command, context: &Context) -> bool {
    use Command::{Health, Metrics, Ready};
    let is_own = matches!(command, Health | Ready | Metrics(..));
    !is_own && context.host.role().is_some_and(|figures| figures.role == Role::Standby)
}

/// Goes on with a request in another turn.
pub fn go_on(rest: Continuation, context: &mut Context, out: &mut Output) -> Flow {
    let Continuation { head, rest } = rest;
    let step = advance(rest, context);
    conclude(step, head, context, out)
}

fn carry_out(command: Command, head: Box<Head>, context: &mut Context, out: &mut Output) -> Flow {
    let now = context.now;
    let step = match command {
        Command::Introduction(introduction) => {
            if introduction.expects {
                reply::go_ahead(out);
            }
            return Flow::Next;
        }
        Command::Page => Step::Done(bytes(Kind::Page, PAGE)),
        Command::Health => Step::Done(health(unhealthy(context))),
        Command::Ready => Step::Done(health(unhealthy(context).or_else(|| unready(context)))),
        Command::Metrics(names, choice) => {
            let scrape = Scrape::new(names, choice, &context.settings.http);
            advance(Rest::Metrics(scrape.into()), context)
        }
        Command::Server => advance(Rest::Server(Box::default()), context),
        Command::Tubes { after, filter, limit } => list_tubes(after, filter, limit, List::default(), context),
        Command::Tube(name) => Step::Done(tube(&name, context)),
        Command::Jobs { tube, state, from } => list_jobs(from, tube, state, List::default(), context),
        Command::Peek(tube, state) => Step::Done(peek(&tube, state, context)),
        Command::Job(id) => Step::Done(job(id, context)),
        Command::Body(id) => Step::Done(body(id, context)),
        Command::Put(tube, job) => Step::Done(put(&tube, job, context)),
        Command::Kick(tube, count) => advance(Rest::Kick(tube, Kick::new(count)), context),
        Command::Pause(tube, length) => {
            Step::Done(change(context, Some(tube.len()), "tube", |it| it.engine.pause(&tube, length, now)))
        }
        Command::Clear(tube, states) => advance(Rest::Clear(Flush::new(tube, states)), context),
        Command::Move { tube, to, state, count } => move_jobs(MoveJobs::new(tube, to, state, count), context),
        Command::KickJob(id) => {
            let what = "job that is buried, delayed or leased";
            Step::Done(change(context, Some(0), what, |it| it.engine.kick_job(id, now)))
        }
        Command::DeleteJob(id) => {
            Step::Done(change(context, None, FREE_JOB, |it| it.engine.delete(it.client, id, now)))
        }
        Command::BuryJob(id) => Step::Done(change(context, Some(0), FREE_JOB, |it| bury(id, it))),
    };
    conclude(step, head, context, out)
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

fn tube(name: &[u8], context: &Context) -> Answer {
    let tube = context.engine.tube_stats(name, context.now).ok_or_else(|| not_found("tube"))?;
    object(|members| tube_members(members, &tube))
}

fn peek(tube: &[u8], state: State, context: &Context) -> Answer {
    context.engine.tube_stats(tube, context.now).ok_or_else(|| not_found("tube"))?;
    let job = context.engine.peek_in(tube, state).ok_or_else(|| not_found("job"))?;
    object(|members| job_members(members, context.engine, &job, SHOWN, context.now))
}

fn job(id: JobId, context: &Context) -> Answer {
    let job = context.engine.job(id).ok_or_else(|| not_found("job"))?;
    object(|members| job_members(members, context.engine, &job, SHOWN, context.now))
}

fn body(id: JobId, context: &Context) -> Answer {
    let job = context.engine.job(id).ok_or_else(|| not_found("job"))?;
    let mut body = Output::new();
    body.body(job.body());
    Ok((Kind::Bytes, body))
}

/// A change to one tube or job, if there is `what` it is about, and room for it in the binlog: for so many bytes beside
/// the record; none if it needs no room.
fn change(context: &mut Context, room: Option<usize>, what: &str, act: impl FnOnce(&mut Context) -> bool) -> Answer {
    if room.is_some_and(|extra| !context.engine.claim_log_room(extra)) {
        return Err(Failure::new(503, "the binlog has no room for this"));
    }
    if !act(context) {
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

fn job_members(members: &mut Members, engine: &Engine, job: &JobView, shown: usize, now: Time) {
    let history = job.history();
    let left = match job.state() {
        State::Reserved | State::Delayed => job.due().since(now),
        State::Ready | State::Buried | State::Finished => Span::ZERO,
    };
    members.number("id", job.id().0);
    members.bytes("tube", engine.tube_of(job));
    members.text("state", job.state().word().as_bytes());
    members.number("pri", job.priority().into());
    members.number("age", now.since(job.created()).secs());
    members.number("delay", job.delay().secs());
    members.number("ttr", job.ttr().secs());
    members.number("time-left", left.secs());
    JOB_COUNTS.iter().for_each(|row| members.number(row.name, (row.of)(&history).into()));
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
fn advance(rest: Rest, context: &mut Context) -> Step {
    match rest {
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
            // One that was there is gone with its last job.
            None if kick.of.is_some() => kicked(&kick),
            None => Step::Done(Err(not_found("tube"))),
            Some(Progress::More) => Step::More(Rest::Kick(tube, kick)),
            Some(Progress::Done) => kicked(&kick),
        },
        Rest::Clear(mut flush) => match context.engine.flush(&mut flush, context.now) {
            Progress::More => Step::More(Rest::Clear(flush)),
            Progress::Done => Step::Done(object(|members| members.number("deleted", flush.done))),
        },
        Rest::Move(moving) => move_jobs(moving, context),
    }
}

fn kicked(kick: &Kick) -> Step {
    Step::Done(object(|members| members.number("kicked", kick.done)))
}

/// Tells what has come of it, or leaves the rest to another turn.
fn conclude(step: Step, head: Box<Head>, context: &mut Context, out: &mut Output) -> Flow {
    match step {
        Step::Done(Ok((kind, body))) => reply::whole(out, 200, kind, body, &head),
        Step::Done(Err(failure)) => reply::failure(out, &failure, &head),
        Step::More(rest) => {
            let rest = Continuation { head, rest };
            if context.engine.has_memory(rest.footprint()) {
                return Flow::Continue(Box::new(protocol::Continuation::Http(rest)));
            }
            reply::failure(out, &Failure::new(503, "there is no memory for this"), &rest.head)
        }
    }
}

/// How far it has come.
enum Step {
    Done(Answer),
    More(Rest),
}

fn list_tubes(mut next: u32, filter: Box<[u8]>, limit: usize, mut list: List, context: &mut Context) -> Step {
    let Context { engine, access, now, .. } = context;
    let progress = engine.walk_tubes(&mut next, *now, |tube| {
        if !has_part(tube.name, &filter) || !protocol::sees(access, tube.name) {
            return 0;
        }
        list.add(|members| tube_members(members, tube))
    });
    if progress == Progress::More && list.count < limit {
        return Step::More(Rest::Tubes { next, filter, limit, list });
    }
    list.finish("tubes", next, progress)
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
        list.add(|members| job_members(members, engine, job, GLIMPSE, now))
    });
    if progress == Progress::More && list.count < JOBS {
        return Step::More(Rest::Jobs { next, tube, state, list });
    }
    list.finish("jobs", next, progress)
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
