//! Carrying out requests.
//!
//! Owns which verb a request becomes and what its reply tells. What may be long goes on in other turns, and a list that
//! grows is on the account of memory. Must not know how bytes arrive or leave.

use super::failed::Sweep;
use super::lists::{named_tube, numbered_job, PagedList};
use super::metrics::{self, Scrape};
use super::objects::{figure, job_members, time_members, tube_members, tube_values, SHOWN};
use super::page::PAGE;
use super::reply::{self, not_found, HttpAnswer, Kind};
use super::request::{Decoder, Request};
use super::routes::{Command, CHANGE};
use super::same_site;
use super::types::{Failure, RequestHead};
use crate::access::{ClientAccess, Right};
use crate::engine::{
    FindOldest, Flush, JobId, Kick, LongCommand, MoveJobs, NewJob, NotSet, Progress, Refused, State, Stats, Tagged,
    Tags, TubeSettings,
};
use crate::protocol::beanstalk::{extended_counts, server_figures, QueueFigures, SETTINGS_OVERHEAD};
use crate::protocol::sums::VisibleSums;
use crate::protocol::{self, Context, Flow, Output, Wire};
use crate::shared::json::Members;
use crate::shared::log_figures::Health;
use crate::shared::role::Role;

/// Why a server says nothing of the queue, and takes no jobs.
const STANDING_BY: &str = "this server stands by; another one is active";

/// What is not there when one cannot be changed.
const FREE_JOB: &str = "job that nobody has reserved";

/// The rest of a request that was too much for one turn.
#[derive(Debug)]
pub struct Continuation {
    head: Box<RequestHead>,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    Metrics(Box<Scrape>),
    Server(Box<VisibleSums>),
    /// A page of a list.
    List(Box<dyn PagedList>),
    Tube(FindOldest),
    Sweep(Box<Sweep>),
    /// A kick of many jobs.
    Kick(Box<[u8]>, Kick),
    /// The deletion of many jobs.
    Clear(Flush),
    /// A move of many jobs.
    Move(MoveJobs),
}

/// Every kind of it; tests go through all of them.
#[cfg(test)]
pub const KINDS: [&str; 13] = [
    "http metrics",
    "http server",
    "http tubes",
    "http sorted tubes",
    "http tube",
    "http jobs",
    "http kick",
    "http clear",
    "http move",
    "http failed",
    "http failed jobs",
    "http sweep",
    "http connections",
];

#[cfg(test)]
impl Continuation {
    pub fn kind(&self) -> &'static str {
        match &self.rest {
            Rest::Metrics(_) => KINDS[0],
            Rest::Server(_) => KINDS[1],
            Rest::List(list) => list.kind(),
            Rest::Tube(_) => KINDS[4],
            Rest::Kick(..) => KINDS[6],
            Rest::Clear(_) => KINDS[7],
            Rest::Move(_) => KINDS[8],
            Rest::Sweep(_) => KINDS[11],
        }
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
            Rest::Sweep(sweep) => CHANGE + sweep.target().len() as u64,
            Rest::Metrics(_) | Rest::Server(_) | Rest::List(_) | Rest::Tube(_) => 0,
        }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        match &self.rest {
            Rest::Metrics(scrape) => scrape.footprint(),
            Rest::Server(_) => size_of::<VisibleSums>() as u64,
            Rest::List(list) => list.footprint(),
            Rest::Tube(find) => find.footprint(),
            Rest::Sweep(sweep) => size_of::<Sweep>() as u64 + sweep.footprint(),
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

fn carry_out(command: Command, head: Box<RequestHead>, context: &mut Context, out: &mut Output) -> Flow {
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
        Command::List(list) => advance(Rest::List(list), context),
        Command::NamedTube(name) => Step::Done(named_tube(&name, context)),
        Command::Tube(name) => advance(Rest::Tube(FindOldest::new(name)), context),
        Command::FindJob(id) => Step::Done(numbered_job(id, context)),
        Command::Peek(tube, state) => Step::Done(peek(&tube, state, context)),
        Command::Job(id) => Step::Done(job(id, context)),
        Command::Body(id) => Step::Done(body(id, context)),
        Command::Put(tube, job) => Step::Done(put(&tube, job, context)),
        Command::PutTagged(job, tags) => Step::Done(put_tagged(job, *tags, context)),
        Command::Sweep(sweep) => advance(Rest::Sweep(sweep), context),
        Command::MoveJob(id, to) => Step::Done(move_job(id, &to, context)),
        Command::Kick(tube, count) => advance(Rest::Kick(tube, Kick::new(count)), context),
        Command::Set(tube, settings) => Step::Done(set_tube(&tube, *settings, context)),
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
        Command::RevokeJob(id) => Step::Done(change(context, Some(0), "reserved job", |it| revoke(id, it))),
        Command::BuryJob(id) => Step::Done(change(context, Some(0), FREE_JOB, |it| bury(id, it))),
    };
    conclude(step, head, context, out)
}

fn bytes(kind: Kind, bytes: &[u8]) -> HttpAnswer {
    let mut body = Output::new();
    body.text().extend_from_slice(bytes);
    Ok((kind, body))
}

/// An object that `fill` writes.
fn object(fill: impl FnOnce(&mut Members)) -> HttpAnswer {
    let mut body = Output::new();
    let text = body.text();
    let mut members = Members::begin(text);
    fill(&mut members);
    members.end();
    text.push(b'\n');
    Ok((Kind::Json, body))
}

fn tube(find: &FindOldest, context: &Context) -> HttpAnswer {
    let tube = context.engine.tube_stats(find.tube(), context.now).ok_or_else(|| not_found("tube"))?;
    object(|members| {
        tube_members(members, tube.name, &tube_values(&tube));
        time_members(members, &tube, find.ages(context.now));
    })
}

fn peek(tube: &[u8], state: State, context: &Context) -> HttpAnswer {
    context.engine.tube_stats(tube, context.now).ok_or_else(|| not_found("tube"))?;
    let job = context.engine.peek_in(tube, state).ok_or_else(|| not_found("job"))?;
    object(|members| job_members(members, context.engine, &job, SHOWN, context.now))
}

fn job(id: JobId, context: &Context) -> HttpAnswer {
    let job = context.engine.job(id).ok_or_else(|| not_found("job"))?;
    object(|members| job_members(members, context.engine, &job, SHOWN, context.now))
}

fn body(id: JobId, context: &Context) -> HttpAnswer {
    let job = context.engine.job(id).ok_or_else(|| not_found("job"))?;
    let mut body = Output::new();
    body.body(job.body());
    Ok((Kind::Bytes, body))
}

/// A change to one tube or job, if there is `what` it is about, and room for it in the binlog: for so many bytes beside
/// the record; none if it needs no room.
fn change(
    context: &mut Context,
    room: Option<usize>,
    what: &str,
    act: impl FnOnce(&mut Context) -> bool,
) -> HttpAnswer {
    if room.is_some_and(|extra| !context.engine.claim_log_room(extra)) {
        return Err(Failure::new(503, "the binlog has no room for this"));
    }
    if !act(context) {
        return Err(not_found(what));
    }
    object(|members| members.truth("done", true))
}

fn set_tube(tube: &[u8], settings: TubeSettings, context: &mut Context) -> HttpAnswer {
    if !context.engine.claim_log_room(SETTINGS_OVERHEAD + tube.len() + settings.dead_length()) {
        return Err(Failure::new(503, "the binlog has no room for this"));
    }
    match context.engine.set_tube(context.client, tube, settings, context.now) {
        Ok(()) => object(|members| members.truth("done", true)),
        Err(NotSet::Circle) => Err(Failure::new(409, "dead letters of this tube would come back to it")),
        Err(NotSet::OverLimit) => Err(refusal(Refused::OutOfMemory)),
    }
}

/// Takes a job from its holder, and buries it with its own priority.
fn revoke(id: JobId, context: &mut Context) -> bool {
    let pri = context.engine.job(id).map_or(0, |job| job.priority());
    context.engine.revoke(id, pri, context.now)
}

/// Only who has a job may bury it, so it is reserved first.
fn bury(id: JobId, context: &mut Context) -> bool {
    let Some(pri) = context.engine.job(id).map(|job| job.priority()) else { return false };
    let reserved = context.engine.reserve_job(context.client, id, context.now).is_some();
    reserved && context.engine.bury(context.client, id, pri, context.now)
}

fn put(tube: &[u8], job: NewJob, context: &mut Context) -> HttpAnswer {
    match context.engine.put_into(context.client, tube, job, context.now) {
        Ok(id) => object(|members| members.number("id", id.0)),
        Err(refused) => Err(refusal(refused)),
    }
}

fn put_tagged(job: NewJob, tags: Tags, context: &mut Context) -> HttpAnswer {
    let mut is_replaced = false;
    let (id, duplicate_of) = match context.engine.put_tagged_unmarked(context.client, job, tags, context.now) {
        Ok(Tagged::New(id)) => (id, None),
        Ok(Tagged::Duplicate { id, state, .. }) => (id, Some(state.word())),
        Ok(Tagged::Ended(id)) => (id, Some("deleted")),
        Ok(Tagged::Scheduled { id, replaced }) => {
            is_replaced = replaced;
            (id, None)
        }
        Err(refused) => return Err(refusal(refused)),
    };
    object(|members| {
        members.number("id", id.0);
        if is_replaced {
            members.truth("replaced", true);
        }
        duplicate_of.into_iter().for_each(|state| members.text("duplicate-of", state.as_bytes()));
    })
}

fn move_job(id: JobId, to: &[u8], context: &mut Context) -> HttpAnswer {
    match context.engine.move_buried(context.client, id, to, context.now) {
        Ok(true) => object(|members| members.truth("done", true)),
        Ok(false) => Err(not_found("buried job that may go there")),
        Err(_) => Err(refusal(Refused::OutOfMemory)),
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

fn health(problem: Option<&str>) -> HttpAnswer {
    match problem {
        None => bytes(Kind::Text, b"ok\n"),
        Some(problem) => Err(Failure::new(503, problem)),
    }
}

fn server(stats: Stats, context: &Context) -> HttpAnswer {
    let figures = QueueFigures::of(stats, context);
    object(|members| {
        server_figures(&figures, |key, value| figure(members, key, value));
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
        Rest::List(mut list) => list.go_on(context).map_or_else(|| Step::More(Rest::List(list)), Step::Done),
        Rest::Tube(mut find) => match context.engine.find_oldest(&mut find) {
            Progress::More => Step::More(Rest::Tube(find)),
            Progress::Done => Step::Done(tube(&find, context)),
        },
        Rest::Sweep(mut sweep) => sweep.go_on(context).map_or_else(|| Step::More(Rest::Sweep(sweep)), Step::Done),
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
fn conclude(step: Step, head: Box<RequestHead>, context: &mut Context, out: &mut Output) -> Flow {
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
    Done(HttpAnswer),
    More(Rest),
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
