//! The execution of requests.
//!
//! Owns the mapping of requests to verbs of the engine, and the content of replies. Long requests continue in other
//! turns, and growing lists are counted as memory in use. Must not know how bytes arrive or leave.

use super::lists::{named_tube, numbered_job};
use super::objects::{figure, job_members, time_members, tube_members, tube_values, SHOWN};
use super::page::PAGE;
use super::reply::{self, not_found, HttpAnswer, Kind};
use super::request::{Decoder, Request};
use super::routes::Command;
use super::same_site;
use super::types::{Failure, RequestHead};
use crate::access::{ClientAccess, Right};
use crate::engine::{
    FindOldest, JobId, NewJob, NotSet, Point, Progress, Refused, State, Stats, Tagged, Tags, TubeSettings,
    POINT_SECONDS,
};
use crate::protocol::beanstalk::{extended_counts, server_figures, QueueFigures, SETTINGS_OVERHEAD};
use crate::protocol::dialogue::Command as AnyCommand;
use crate::protocol::{Context, Flow, Output, Wire};
use crate::shared::json::Members;
use crate::shared::log_figures::Health;
use crate::shared::role::Role;

/// The reason why a standby shows nothing of the queue, and accepts no jobs.
const STANDING_BY: &str = "this server stands by; another one is active";

/// The name of the missing object when a job cannot be changed.
const FREE_JOB: &str = "job that nobody has reserved";

/// Executes one request and appends its reply.
pub fn execute(request: Request, decoder: &mut Decoder, context: &mut Context, out: &mut Output) -> Flow {
    // A request that cannot be framed is not checked, because its content is unknown.
    let allowed = if request.is_last { Ok(()) } else { same_site::check(&request, &context.settings.http) };
    let Request { head, command, awaits_body, route, .. } = request;
    let command = match allowed.and(command) {
        Ok(command) if is_standby(&command, context) => Err(Failure::new(503, STANDING_BY)),
        command => command,
    };
    if awaits_body {
        decoder.accept_body(command.is_ok());
    }
    match command {
        Ok(command) => reply_or_resume(command, (head, route), context, out),
        Err(failure) => reply::failure(out, &failure, &head),
    }
}

/// Returns `true` if the request is about the queue, and this server is a standby, which answers only about itself.
fn is_standby(command: &Command, context: &Context) -> bool {
    use Command::{Health, Metrics, Ready};
    let is_own = matches!(command, Health | Ready | Metrics(..));
    !is_own && context.host.role().is_some_and(|figures| figures.role == Role::Standby)
}

/// Replies, or leaves the rest of the work to another turn.
fn reply_or_resume(
    command: Command,
    (head, route): (Box<RequestHead>, Option<usize>),
    context: &mut Context,
    out: &mut Output,
) -> Flow {
    if let Command::Introduction(introduction) = command {
        if introduction.expects {
            reply::go_ahead(out);
        }
        return Flow::Next;
    }
    match advance(command, context) {
        Ok(Ok((kind, body))) => reply::whole(out, 200, kind, body, &head),
        Ok(Err(failure)) => reply::failure(out, &failure, &head),
        Err(rest) if context.engine.has_memory(rest.footprint()) => {
            let request = Request { head, command: Ok(rest), route, awaits_body: false, is_last: false };
            Flow::resume(AnyCommand::Http(request.into()))
        }
        Err(_) => reply::failure(out, &Failure::new(503, "there is no memory for this"), &head),
    }
}

/// Returns the reply, or the command with its progress if it needs another turn.
fn advance(command: Command, context: &mut Context) -> Result<HttpAnswer, Command> {
    use Command::*;
    let now = context.now;
    Ok(match command {
        Page => bytes(Kind::Page, PAGE),
        Health => health(unhealthy(context)),
        Ready => health(unhealthy(context).or_else(|| unready(context))),
        Metrics(mut scrape) => return scrape.advance(context).ok_or(Metrics(scrape)),
        Server(mut sums) => match sums.advance(context) {
            Some(stats) => server(stats, context),
            None => return Err(Server(sums)),
        },
        List(mut list) => return list.advance(context).ok_or(List(list)),
        NamedTube(name) => named_tube(&name, context),
        Tube(mut find) => match context.engine.find_oldest(&mut find) {
            Progress::More => return Err(Tube(find)),
            Progress::Done => tube(&find, context),
        },
        Overview(mut find) => match context.engine.find_oldest(&mut find) {
            Progress::More => return Err(Overview(find)),
            Progress::Done => overview(&find, context),
        },
        FindJob(id) => numbered_job(id, context),
        Peek(tube, state) => peek(&tube, state, context),
        Job(id) => job(id, context),
        Body(id) => body(id, context),
        Put(tube, job) => put(&tube, job, context),
        PutTagged(job, tags) => put_tagged(job, *tags, context),
        Sweep(mut sweep) => return sweep.advance(context).ok_or(Sweep(sweep)),
        MoveJob(id, to) => move_job(id, &to, context),
        Kick(tube, mut kick) => match context.engine.kick_in(&tube, &mut kick, now) {
            Some(Progress::More) => return Err(Kick(tube, kick)),
            // A tube that existed disappeared with its last job.
            None if kick.of.is_none() => Err(not_found("tube")),
            None | Some(Progress::Done) => object(|members| members.number("kicked", kick.done)),
        },
        Set(tube, settings) => set_tube(&tube, *settings, context),
        Pause(tube, length) => change(context, Some(tube.len()), "tube", |it| it.engine.pause(&tube, length, now)),
        Clear(mut flush) => match context.engine.flush(&mut flush, now) {
            Progress::More => return Err(Clear(flush)),
            Progress::Done => object(|members| members.number("deleted", flush.done)),
        },
        Move(mut moving) => match context.engine.move_jobs(context.client, &mut moving, now) {
            Ok(Progress::More) => return Err(Move(moving)),
            Ok(Progress::Done) => object(|members| members.number("moved", moving.done)),
            Err(_) => object(|members| {
                members.number("moved", moving.done);
                members.text("stopped", refusal(Refused::OutOfMemory).text.as_bytes());
            }),
        },
        KickJob(id) => {
            let what = "job that is buried, delayed or leased";
            change(context, Some(0), what, |it| it.engine.kick_job(id, now))
        }
        DeleteJob(id) => change(context, None, FREE_JOB, |it| it.engine.delete(it.client, id, now)),
        BuryJob(id) => change(context, Some(0), FREE_JOB, |it| bury(id, it)),
        RevokeJob(id) => change(context, Some(0), "reserved job", |it| revoke(id, it)),
        Introduction(_) => unreachable!("it was answered"),
    })
}

fn bytes(kind: Kind, bytes: &[u8]) -> HttpAnswer {
    let mut body = Output::new();
    body.text().extend_from_slice(bytes);
    Ok((kind, body))
}

/// Returns the object that `fill` writes.
fn object(fill: impl FnOnce(&mut Members)) -> HttpAnswer {
    let mut body = Output::new();
    let text = body.text();
    let mut members = Members::begin(text);
    fill(&mut members);
    members.end();
    text.push(b'\n');
    Ok((Kind::Json, body))
}

/// The ages of the oldest jobs, and what the queue did in the last hour: the points of each figure, the oldest first.
fn overview(find: &FindOldest, context: &Context) -> HttpAnswer {
    type Figure = (&'static str, fn(&Point) -> u64);
    const FIGURES: [Figure; 3] = [("ready", |it| it.ready), ("done", |it| it.done), ("failed", |it| it.failed)];
    object(|members| {
        for (state, age) in ["ready", "delayed", "buried"].iter().zip(find.ages(context.now)) {
            members.number(&format!("oldest-{state}-age"), age.secs());
        }
        members.number("paused-tubes", context.engine.paused_tubes() as u64);
        members.number("seconds", POINT_SECONDS);
        for (key, of) in FIGURES {
            let numbers: Vec<String> = context.engine.past().points().map(|point| of(&point).to_string()).collect();
            members.raw(key, &format!("[{}]", numbers.join(",")));
        }
    })
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

/// Changes one tube or job, if `what` exists, and the binlog has room for the record and `room` more bytes; `None` if
/// the change needs no room.
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

/// Only the holder of a job may bury it, so it is reserved first.
fn bury(id: JobId, context: &mut Context) -> bool {
    let Some(pri) = context.engine.job(id).map(|job| job.priority()) else { return false };
    let reserved = context.engine.reserve_job(context.client, id, context.now).is_some();
    reserved && context.engine.bury(context.client, id, pri, context.now)
}

/// Takes a job from its holder, and buries it with its own priority.
fn revoke(id: JobId, context: &mut Context) -> bool {
    let pri = context.engine.job(id).map_or(0, |job| job.priority());
    context.engine.revoke(id, pri, context.now)
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

/// Returns the reason why the server is unhealthy.
fn unhealthy(context: &Context) -> Option<&'static str> {
    (context.log?.health == Health::Failing).then_some("the disk of the binlog fails")
}

/// Returns the reason why the server accepts no jobs.
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

/// Returns `true` if the client may change something in any tube.
fn may_change(context: &Context) -> bool {
    let rights =
        |access: &ClientAccess| access.rights().is_some_and(|it| it.allow_somewhere(&[Right::Put, Right::Admin]));
    context.access.as_deref().is_none_or(rights)
}
