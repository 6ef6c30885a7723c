//! Carrying out requests.
//!
//! Owns which verb a command becomes and which reply its answer gets. Must not know how bytes arrive or leave.

use super::request::{Act, Kicking, Request};
use super::{reply, yaml};
use crate::engine::{Body, Engine, Event, NewJob, NoJob, Refused, Reserve, Span, State};
use crate::protocol::{Flow, Output, World};

/// A list of tubes above this many bytes counts as memory until it is sent, and needs room there: it may be much more than a
/// connection's output is allowed to be.
const LONG_LIST: usize = 1 << 20;

/// Carries out one request and appends its reply, unless the client waits for it from now on.
pub fn execute(request: Request, world: &mut World, out: &mut Output) -> Flow {
    if let Some(verb) = request.counts {
        world.tally.count(verb);
    }
    match request.act {
        Act::Reserve(timeout) => return reserve(timeout, world, out),
        Act::Quit => return Flow::Close,
        Act::Kick(bound) => return kick(Kicking { left: bound.into(), of: None, done: 0 }, world, out),
        Act::KickOn(rest) => return kick(rest, world, out),
        Act::Put { pri, delay, ttr, body } => put(NewJob { pri, delay, ttr, body }, world, out),
        Act::PutRefused { answer, counts_producer } => {
            if counts_producer {
                world.engine.mark_producer(world.client);
            }
            reply::words(out, answer);
        }
        Act::PutLine { .. } => unreachable!("the decoder keeps put lines to itself"),
        Act::BadFormat => reply::words(out, reply::BAD_FORMAT),
        Act::UnknownCommand => reply::words(out, reply::UNKNOWN_COMMAND),
        act => job_command(act, world, out),
    }
    Flow::Next
}

/// Commands about one job, or the next one in some state.
fn job_command(act: Act, world: &mut World, out: &mut Output) {
    let World { engine, client, now, .. } = world;
    let (client, now) = (*client, *now);
    match act {
        Act::Delete(id) => reply::found(out, engine.delete(client, id, now), reply::DELETED),
        Act::Release { .. } | Act::Bury { .. } | Act::KickJob(_) if !engine.claim_log_room(0) => {
            reply::words(out, reply::OUT_OF_MEMORY);
        }
        Act::Release { id, pri, delay } => {
            reply::found(out, engine.release(client, id, pri, delay, now), reply::RELEASED);
        }
        Act::Bury { id, pri } => reply::found(out, engine.bury(client, id, pri, now), reply::BURIED),
        Act::Touch(id) => reply::found(out, engine.touch(client, id, now), reply::TOUCHED),
        Act::ReserveJob(id) => reply::job(out, b"RESERVED", engine.reserve_job(client, id, now)),
        Act::KickJob(id) => reply::found(out, engine.kick_job(id, now), reply::KICKED),
        Act::Peek(id) => reply::job(out, b"FOUND", engine.job(id)),
        Act::PeekNext(state) => reply::job(out, b"FOUND", engine.peek(client, state)),
        act => tube_command(act, world, out),
    }
}

/// Commands about tubes, and statistics.
fn tube_command(act: Act, world: &mut World, out: &mut Output) {
    let World { engine, tally, host, log, client, now, .. } = world;
    let (client, now) = (*client, *now);
    match act {
        Act::Use(tube) => match engine.use_tube(client, &tube) {
            Ok(()) => reply::using(out, &tube),
            Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
        },
        Act::Watch(tube) => match engine.watch(client, &tube, now) {
            Ok(count) => reply::numbered(out, b"WATCHING", count as u64),
            Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
        },
        Act::Ignore(tube) => match engine.ignore(client, &tube, now) {
            Some(count) => reply::numbered(out, b"WATCHING", count as u64),
            None => reply::words(out, reply::NOT_IGNORED),
        },
        Act::PauseTube { tube, .. } if !engine.claim_log_room(tube.len()) => reply::words(out, reply::OUT_OF_MEMORY),
        Act::PauseTube { tube, length } => reply::found(out, engine.pause(&tube, length, now), reply::PAUSED),
        Act::ListTubeUsed => reply::using(out, engine.used(client)),
        Act::ListTubes => list(yaml::names(engine.tube_names()), engine, out),
        Act::ListTubesWatched => list(yaml::names(engine.watched(client)), engine, out),
        Act::Stats => reply::yaml(out, Some(yaml::stats(&engine.stats(), tally, *host, log.as_ref(), now))),
        Act::StatsJob(id) => reply::yaml(out, engine.job_stats(id, now).map(|job| yaml::job(&job))),
        Act::StatsTube(tube) => reply::yaml(out, engine.tube_stats(&tube, now).map(|tube| yaml::tube(&tube))),
        other => unreachable!("{other:?} is no command about tubes"),
    }
}

/// Clients decide how long a list is, and whether they read it.
fn list(text: Vec<u8>, engine: &mut Engine, out: &mut Output) {
    if text.len() <= LONG_LIST {
        return reply::yaml(out, Some(text));
    }
    let text = Body::from(text);
    match engine.lend(&text) {
        true => reply::long_yaml(out, &text),
        false => reply::words(out, reply::OUT_OF_MEMORY),
    }
}

fn put(job: NewJob, world: &mut World, out: &mut Output) {
    match world.engine.put(world.client, job, world.now) {
        Ok(id) => reply::inserted(out, id),
        Err(Refused::Draining) => reply::words(out, reply::DRAINING),
        Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
    }
}

/// Kicks as many jobs as the log has room for. The rest comes in another turn, when it had the time to make some; if there
/// is none, that was all.
fn kick(kicking: Kicking, world: &mut World, out: &mut Output) -> Flow {
    let Kicking { left, of, done } = kicking;
    let (kicked, rest) = world.engine.kick(world.client, of, left, world.now);
    if rest.is_some() && kicked > 0 {
        return Flow::KickOn(Kicking { left: left - kicked, of: rest, done: done + kicked });
    }
    reply::numbered(out, b"KICKED", done + kicked);
    Flow::Next
}

fn reserve(timeout: Option<Span>, world: &mut World, out: &mut Output) -> Flow {
    // Nobody waits for a client that will say nothing more.
    let timeout = if world.half_closed { Some(Span::ZERO) } else { timeout };
    match world.engine.reserve(world.client, timeout, world.now) {
        Reserve::Job(job) => reply::job(out, b"RESERVED", Some(job)),
        Reserve::NoJob(why) => reply::no_job(out, why),
        Reserve::Waiting => return Flow::Wait,
    }
    Flow::Next
}

/// Tells the client of an event what it waited for.
pub fn tell(event: &Event, engine: &Engine, out: &mut Output) {
    match event {
        Event::Reserved { job, .. } => {
            let job = engine.job(*job);
            debug_assert!(job.is_some_and(|job| job.state() == State::Reserved), "an event was told too late");
            reply::job(out, b"RESERVED", job);
        }
        Event::NoJob { why, .. } => reply::no_job(out, *why),
        Event::Work { .. } | Event::Outcome { .. } | Event::Report { .. } => {
            debug_assert!(false, "nobody who speaks this protocol sleeps or submits");
        }
    }
}

/// Ends the wait of a client that has shut down its sending side; tells whether it waited.
pub fn hang_up(world: &mut World, out: &mut Output) -> bool {
    let waited = world.engine.cancel_wait(world.client);
    if waited {
        reply::no_job(out, NoJob::TimedOut);
    }
    waited
}
