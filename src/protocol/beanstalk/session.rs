//! Carrying out requests.
//!
//! Owns which verb a command becomes and which reply its answer gets. Must not know how bytes arrive or leave.

use super::command::{Command, InPlace};
use super::continuation::Continuation;
use super::extensions::Extension;
use super::figures::QueueFigures;
use super::request::Request;
use super::{extended, reply, yaml};
use crate::access::{Denied, Digest};
use crate::engine::{
    Engine, Event, FindOldest, FindReserved, Flush, IdPage, JobId, JobView, Kick, MoveJobs, Name, NewBody, NewJob,
    Progress, Refused, Reserve, Span, State, Tagged, Tags, TouchAll,
};
use crate::protocol::connections::ConnectionPage;
use crate::protocol::sums::VisibleSums;
use crate::protocol::{self, Context, Flow, Output};

/// Carries out one request and appends its reply, unless the client waits for it from now on.
pub fn execute(request: Request, context: &mut Context, out: &mut Output) -> Flow {
    let (client, now) = (context.client, context.now);
    let engine = &mut *context.engine;
    match request.command {
        Command::PutInPlace { job } => put_in_place(job, context, out),
        Command::Put { job, tags: None } => put(job, context, out),
        Command::Put { job, tags: Some(tags) } => put_tagged(job, *tags, context, out),
        Command::PutRefused { answer, counts_producer } => put_refused(answer, counts_producer, context, out),
        Command::Reserve(timeout) => return reserve(timeout, context, out),
        Command::ReserveJob(id) => reply::job(out, b"RESERVED", engine.reserve_job(client, id, now)),
        Command::Delete(id) => reply::found(out, engine.delete(client, id, now), reply::DELETED),
        Command::Release { .. } | Command::Bury { .. } | Command::KickJob(_) | Command::Revoke(..)
            if !engine.claim_log_room(0) =>
        {
            reply::words(out, reply::OUT_OF_MEMORY);
        }
        Command::Release { id, pri, delay } => release(id, engine.release(client, id, pri, delay, now), engine, out),
        Command::Bury { id, pri, dead_from } => extended::bury(id, pri, dead_from.as_deref(), context, out),
        Command::KickJob(id) => reply::found(out, engine.kick_job(id, now), reply::KICKED),
        Command::Kick(bound) => return go_on(Continuation::Kick(Kick::new(bound.into())), context, out),
        Command::Touch(id, None) => reply::found(out, engine.touch(client, id, now), reply::TOUCHED),
        Command::Touch(id, Some(progress)) => return extended::progress(id, progress, context, out),
        Command::Peek(id) => reply::job(out, b"FOUND", engine.job(id)),
        Command::PeekNext(state) => reply::job(out, b"FOUND", engine.peek(client, state)),
        Command::Use(tube) => use_tube(&tube, context, out),
        Command::Watch(tube, weight) => watch(&tube, weight, context, out),
        Command::Ignore(tube) => ignore(&tube, context, out),
        Command::PauseTube { tube, length } => pause_tube(&tube, length, context, out),
        Command::ListTubeUsed => reply::using(out, engine.used(client)),
        Command::ListTubes => return list_tubes(context, out),
        Command::ListTubesWatched => return list_watched(0, yaml::list(), context, out),
        Command::Stats => return stats(Box::default(), context, out),
        Command::StatsJob(id) => {
            let asker = Some(client).filter(|_| context.settings.extensions.has(Extension::Connections));
            reply::yaml(out, extended::stats_job(id, asker, engine, now));
        }
        Command::StatsTube(tube) if context.settings.extensions.has(Extension::Times) => {
            return go_on(Continuation::StatsTube(FindOldest::new(tube)), context, out);
        }
        Command::StatsTube(tube) => reply::yaml(out, engine.tube_stats(&tube, now).map(|tube| yaml::tube(&tube))),
        Command::StatsTubes => return stats_tubes(0, yaml::list(), context, out),
        Command::Auth(digest) => return auth(digest, context, out),
        Command::Quit => return Flow::Close,
        Command::BadFormat => reply::words(out, reply::BAD_FORMAT),
        Command::UnknownCommand => reply::words(out, reply::UNKNOWN_COMMAND),
        extension => return execute_extension(extension, context, out),
    }
    Flow::Next
}

/// Carries out a command that beanstalkd does not have.
fn execute_extension(command: Command, context: &mut Context, out: &mut Output) -> Flow {
    let (client, now) = (context.client, context.now);
    let engine = &mut *context.engine;
    match command {
        Command::StatsGroup(group) => {
            let name = Name::from(&*group);
            reply::yaml(out, engine.group_stats(&name).map(|figures| yaml::group(&group, &figures)));
        }
        Command::Revoke(id, pri) => reply::found(out, engine.revoke(id, pri, now), reply::REVOKED),
        Command::Name(name) => {
            context.registry.name(client, &name);
            reply::words(out, reply::NAMED);
        }
        Command::ListConnections { above, limit } => {
            let page = ConnectionPage::new(above, limit, yaml::list());
            return go_on(Continuation::ListConnections(page.into()), context, out);
        }
        Command::ReserveWithAbort(timeout) => return reserve_with_abort(timeout, context, out),
        Command::ReserveBatch(count, timeout) => return extended::reserve_batch(count, timeout, context, out),
        Command::ReserveMode(mode) => extended::reserve_mode(mode, context, out),
        Command::DeleteBatch(ids) => return go_on(Continuation::Delete(ids, 0, 0), context, out),
        Command::TouchAll => return go_on(Continuation::TouchAll(TouchAll::new(now)), context, out),
        Command::Wait(id, timeout) => return extended::wait(id, timeout, context, out),
        Command::Flush { tube, states } => return go_on(Continuation::Flush(Flush::new(tube, states)), context, out),
        Command::PeekReserved => return go_on(Continuation::FindReserved(FindReserved::default()), context, out),
        Command::Drain(drains) => extended::drain(drains, context, out),
        Command::ListJobs { tube, state, above, limit } => {
            return go_on(Continuation::ListJobs(IdPage::new(tube, state, above, limit)), context, out);
        }
        Command::ListKeys { from } => return go_on(Continuation::ListKeys(from, 0, yaml::list()), context, out),
        Command::MoveJob { id, tube, pri, delay } => extended::move_job(id, &tube, (pri, delay), context, out),
        Command::MoveTube { from, to, state, bound } => {
            return go_on(Continuation::Move(MoveJobs::new(from, to, state, bound)), context, out);
        }
        Command::SetTube { tube, settings } => extended::set_tube(&tube, *settings, context, out),
        Command::Fail { id, pri, reason } => extended::fail(id, pri, reason.bytes(), context, out),
        Command::LimitTube { tube, most } => extended::limit_tube(&tube, most, context, out),
        other => unreachable!("{other:?} is beanstalkd's"),
    }
    Flow::Next
}

fn use_tube(tube: &[u8], context: &mut Context, out: &mut Output) {
    match context.engine.use_tube(context.client, tube) {
        Ok(()) => reply::using(out, tube),
        Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
    }
}

fn pause_tube(tube: &[u8], length: Span, context: &mut Context, out: &mut Output) {
    match context.engine.claim_log_room(tube.len()) {
        true => reply::found(out, context.engine.pause(tube, length, context.now), reply::PAUSED),
        false => reply::words(out, reply::OUT_OF_MEMORY),
    }
}

fn watch(tube: &[u8], weight: Option<u16>, context: &mut Context, out: &mut Output) {
    let Context { engine, client, now, .. } = context;
    let Ok(count) = engine.watch(*client, tube, *now) else { return reply::words(out, reply::OUT_OF_MEMORY) };
    engine.set_weight(*client, tube, weight.unwrap_or(1));
    reply::numbered(out, b"WATCHING", count as u64);
}

fn ignore(tube: &[u8], context: &mut Context, out: &mut Output) {
    match context.engine.ignore(context.client, tube, context.now) {
        Some(count) => reply::numbered(out, b"WATCHING", count as u64),
        None => reply::words(out, reply::NOT_IGNORED),
    }
}

/// Figures of the server; those of jobs and tubes are about what the client may see.
fn stats(mut sums: Box<VisibleSums>, context: &mut Context, out: &mut Output) -> Flow {
    let Some(figures) = sums.go_on(context) else { return Continuation::Stats(sums).later() };
    let figures = QueueFigures::of(figures, context);
    reply::yaml(out, Some(yaml::stats(&figures, context.settings.extensions)));
    Flow::Next
}

/// Without an access file there are no names, and the word is unknown, as it is to beanstalkd.
fn auth(digest: Digest, context: &mut Context, out: &mut Output) -> Flow {
    let Some(access) = &mut context.access else {
        reply::words(out, reply::UNKNOWN_COMMAND);
        return Flow::Next;
    };
    let is_known = access.authenticate(digest);
    context.registry.identify(context.client, access.name());
    if is_known {
        reply::words(out, reply::AUTHENTICATED);
        return Flow::Next;
    }
    reply::words(out, reply::UNAUTHORIZED);
    Flow::Close
}

pub fn deny(denied: Denied, out: &mut Output) {
    match denied {
        Denied::Unknown => reply::words(out, reply::UNAUTHORIZED),
        Denied::Forbidden => reply::words(out, reply::FORBIDDEN),
    }
}

/// Goes on with a command, in its first turn or in another.
pub fn go_on(rest: Continuation, context: &mut Context, out: &mut Output) -> Flow {
    let Context { engine, client, now, .. } = context;
    let (client, now) = (*client, *now);
    match rest {
        Continuation::Kick(mut kick) => match engine.kick(client, &mut kick, now) {
            Progress::More => return Continuation::Kick(kick).later(),
            Progress::Done => reply::numbered(out, b"KICKED", kick.done),
        },
        Continuation::Stats(sums) => return stats(sums, context, out),
        Continuation::ListTubes(from, text) => return list_more_tubes(from, text, context, out),
        Continuation::ListWatched(from, text) => return list_watched(from, text, context, out),
        Continuation::Delete(ids, at, deleted) => return extended::delete_batch(ids, at, deleted, context, out),
        Continuation::TouchAll(mut touch) => match engine.touch_all(client, &mut touch, now) {
            (Progress::More, _) => return Continuation::TouchAll(touch).later(),
            (Progress::Done, held) => reply::numbered(out, b"TOUCHED_ALL", held as u64),
        },
        Continuation::Flush(mut flush) => match engine.flush(&mut flush, now) {
            Progress::More => return Continuation::Flush(flush).later(),
            Progress::Done => reply::numbered(out, b"FLUSHED", flush.done),
        },
        Continuation::FindReserved(mut find) => match engine.peek_reserved(client, &mut find) {
            (Progress::More, _) => return Continuation::FindReserved(find).later(),
            (Progress::Done, found) => reply::job(out, b"FOUND", found),
        },
        Continuation::ListJobs(mut page) => match engine.list_ids(&mut page) {
            None => reply::words(out, reply::NOT_FOUND),
            Some((Progress::More, _)) => return Continuation::ListJobs(page).later(),
            Some((Progress::Done, ids)) => reply::list(out, yaml::ids(&ids)),
        },
        Continuation::ListConnections(page) => return extended::list_connections(page, context, out),
        Continuation::Report(id, report) => return extended::report(id, report, context),
        Continuation::StatsTubes(from, text) => return stats_tubes(from, text, context, out),
        Continuation::ListKeys(from, count, text) => return extended::list_keys(from, count, text, context, out),
        Continuation::Move(mut moving) => match engine.move_jobs(client, &mut moving, now) {
            Ok(Progress::More) => return Continuation::Move(moving).later(),
            Ok(Progress::Done) => reply::numbered(out, b"MOVED", moving.done),
            Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
        },
        Continuation::StatsTube(mut find) => match engine.find_oldest(&mut find) {
            Progress::More => return Continuation::StatsTube(find).later(),
            Progress::Done => {
                let tube = engine.tube_stats(find.tube(), now);
                reply::yaml(out, tube.map(|tube| yaml::tube_with_times(&tube, find.ages(now))));
            }
        },
    }
    Flow::Next
}

/// Lists all tubes in beanstalkd's order if they fit into one turn. A turn that earlier commands have nearly used up
/// leaves the list to the next turn, so that the order does not depend on what the client sent before.
fn list_tubes(context: &mut Context, out: &mut Output) -> Flow {
    match list_few_tubes(context, out) {
        true => Flow::Next,
        false => Continuation::ListTubes(0, yaml::list()).later(),
    }
}

fn list_few_tubes(context: &mut Context, out: &mut Output) -> bool {
    let mut text = yaml::list();
    let Context { engine, access, .. } = context;
    let listed = engine.walk_few_tubes(|name| {
        if protocol::sees(access, name) {
            yaml::item(&mut text, name);
        }
    });
    if listed {
        reply::list(out, text);
    }
    listed
}

fn list_more_tubes(mut from: u32, mut text: Output, context: &mut Context, out: &mut Output) -> Flow {
    if from == 0 && list_few_tubes(context, out) {
        return Flow::Next;
    }
    let Context { engine, access, now, .. } = context;
    let progress = engine.walk_tubes(&mut from, *now, |tube| match protocol::sees(access, tube.name) {
        true => yaml::item(&mut text, tube.name),
        false => 0,
    });
    listed(progress, text, |text| Continuation::ListTubes(from, text), context, out)
}

fn stats_tubes(mut from: u32, mut text: Output, context: &mut Context, out: &mut Output) -> Flow {
    let Context { engine, access, now, .. } = context;
    let progress = engine.walk_tubes(&mut from, *now, |tube| match protocol::sees(access, tube.name) {
        true => yaml::tube_item(&mut text, tube),
        false => 0,
    });
    listed(progress, text, |text| Continuation::StatsTubes(from, text), context, out)
}

fn list_watched(mut from: usize, mut text: Output, context: &mut Context, out: &mut Output) -> Flow {
    let progress = context.engine.walk_watched(context.client, &mut from, |name| yaml::item(&mut text, name));
    listed(progress, text, |text| Continuation::ListWatched(from, text), context, out)
}

/// Answers with a list, or goes on with it, if there is memory for more.
fn listed(
    progress: Progress,
    text: Output,
    rest: impl FnOnce(Output) -> Continuation,
    context: &Context,
    out: &mut Output,
) -> Flow {
    match progress {
        Progress::Done => reply::list(out, text),
        Progress::More if context.engine.has_memory(text.footprint()) => return rest(text).later(),
        Progress::More => reply::words(out, reply::OUT_OF_MEMORY),
    }
    Flow::Next
}

fn put(job: NewJob<impl NewBody>, context: &mut Context, out: &mut Output) {
    match context.engine.put(context.client, job, context.now) {
        Ok(id) => reply::numbered(out, b"INSERTED", id.0),
        Err(why) => refused(out, why),
    }
}

fn put_in_place(job: NewJob<InPlace>, context: &mut Context, out: &mut Output) {
    let NewJob { pri, delay, ttr, body } = job;
    put(NewJob { pri, delay, ttr, body: body.bytes(context.input) }, context, out);
}

fn put_refused(answer: &[u8], counts_producer: bool, context: &mut Context, out: &mut Output) {
    if counts_producer {
        context.engine.mark_producer(context.client);
    }
    reply::words(out, answer);
}

fn refused(out: &mut Output, why: Refused) {
    match why {
        Refused::Draining => reply::words(out, reply::DRAINING),
        Refused::QueueFull => reply::words(out, reply::TUBE_FULL),
        Refused::OutOfMemory | Refused::Duplicate => reply::words(out, reply::OUT_OF_MEMORY),
    }
}

fn put_tagged(job: NewJob, tags: Tags, context: &mut Context, out: &mut Output) {
    match context.engine.put_tagged(context.client, job, tags, context.now) {
        Ok(Tagged::New(id)) => reply::numbered(out, b"INSERTED", id.0),
        Ok(Tagged::Duplicate { id, state, raised }) => reply::duplicate(out, id, Some(state), raised),
        Ok(Tagged::Ended(id)) => reply::duplicate(out, id, None, None),
        Ok(Tagged::Scheduled { id, replaced }) => reply::scheduled(out, id, replaced),
        Err(why) => refused(out, why),
    }
}

/// Writes the reply to a release: `BURIED` after the last try that the job's own tag allows. Clients that do not
/// know the settings of a tube take that reply for an error, so after the last try by a setting it stays `RELEASED`.
fn release(id: JobId, released: bool, engine: &Engine, out: &mut Output) {
    let is_bound = |job: &JobView| engine.extras(job).is_some_and(|extras| extras.max_attempts > 0);
    let buried = released && engine.job(id).is_some_and(|job| job.state() == State::Buried && is_bound(&job));
    reply::found(out, released, if buried { reply::BURIED } else { reply::RELEASED });
}

fn reserve_with_abort(timeout: Option<Span>, context: &mut Context, out: &mut Output) -> Flow {
    match reserve(timeout, context, out) {
        Flow::Wait => Flow::WaitForInput,
        flow => flow,
    }
}

fn reserve(timeout: Option<Span>, context: &mut Context, out: &mut Output) -> Flow {
    // A half-closed client is not made to wait.
    let timeout = if context.half_closed { Some(Span::ZERO) } else { timeout };
    context.engine.set_batch(context.client, false);
    match context.engine.reserve(context.client, timeout, context.now) {
        Reserve::Job(job) => reply::job(out, b"RESERVED", Some(job)),
        Reserve::NoJob(why) => reply::no_job(out, why, false),
        Reserve::Waiting => return Flow::Wait,
    }
    Flow::Next
}

/// Tells the client of an event what it waited for.
pub fn tell(event: &Event, engine: &Engine, out: &mut Output) {
    match event {
        Event::Reserved { job, client } => {
            let job = engine.job(*job);
            debug_assert!(job.is_some_and(|job| job.state() == State::Reserved), "an event was told too late");
            if engine.is_batch(*client) {
                reply::numbered(out, b"RESERVED_BATCH", 1);
            }
            reply::job(out, b"RESERVED", job);
        }
        Event::NoJob { why, client } => reply::no_job(out, *why, engine.is_batch(*client)),
        Event::Outcome { job, .. } => {
            let word: &[u8] = if engine.is_buried(*job) { b"BURIED" } else { b"DELETED" };
            reply::numbered(out, word, job.0);
        }
        Event::Report { .. } | Event::DeadLetterStays { .. } => {}
        Event::Work { .. } => debug_assert!(false, "nobody who speaks this protocol sleeps"),
    }
}
