//! Carrying out requests.
//!
//! Owns which verb a command becomes and which reply its answer gets. Must not know how bytes arrive or leave.

use super::request::{Act, Request, CHANGE_OVERHEAD};
use super::{reply, yaml};
use crate::engine::{Engine, Event, Kick, NewJob, NoJob, Progress, Refused, Reserve, Span, State};
use crate::protocol::{self, Flow, Output, World};

/// The rest of a command that was too much for one turn.
#[derive(Debug)]
pub enum Continuation {
    /// A kick of many jobs.
    Kick(Kick),
    /// A list of all tubes: the number of the next one, and the list so far.
    ListTubes(u32, Output),
    /// A list of the tubes that the client watches: the place of the next one, and the list so far.
    ListWatched(usize, Output),
}

impl Continuation {
    /// Bytes that it may take in a log before it stops once more.
    pub fn log_size(&self) -> u64 {
        match self {
            Continuation::Kick(_) => CHANGE_OVERHEAD,
            Continuation::ListTubes(..) | Continuation::ListWatched(..) => 0,
        }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        match self {
            Continuation::Kick(_) => 0,
            Continuation::ListTubes(_, text) | Continuation::ListWatched(_, text) => text.footprint(),
        }
    }
}

/// Carries out one request and appends its reply, unless the client waits for it from now on.
pub fn execute(request: Request, world: &mut World, out: &mut Output) -> Flow {
    if let Some(verb) = request.counts {
        world.tally.count(verb);
    }
    match request.act {
        Act::Reserve(timeout) => return reserve(timeout, world, out),
        Act::Quit => return Flow::Close,
        Act::Kick(bound) => return kick(Kick::new(bound.into()), world, out),
        Act::ListTubes => return list_tubes(world, out),
        Act::ListTubesWatched => return list_watched(0, yaml::list(), world, out),
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
        Act::Stats => reply::yaml(out, Some(yaml::stats(&engine.stats(), tally, *host, log.as_ref(), now))),
        Act::StatsJob(id) => reply::yaml(out, engine.job_stats(id, now).map(|job| yaml::job(&job))),
        Act::StatsTube(tube) => reply::yaml(out, engine.tube_stats(&tube, now).map(|tube| yaml::tube(&tube))),
        other => unreachable!("{other:?} is no command about tubes"),
    }
}

/// Goes on with a command in another turn.
pub fn go_on(rest: Continuation, world: &mut World, out: &mut Output) -> Flow {
    match rest {
        Continuation::Kick(rest) => kick(rest, world, out),
        Continuation::ListTubes(from, text) => list_more_tubes(from, text, world, out),
        Continuation::ListWatched(from, text) => list_watched(from, text, world, out),
    }
}

fn later(rest: Continuation) -> Flow {
    Flow::Continue(Box::new(protocol::Continuation::Beanstalk(rest)))
}

fn list_tubes(world: &mut World, out: &mut Output) -> Flow {
    let mut text = yaml::list();
    let listed = world.engine.walk_few_tubes(|name| {
        yaml::item(&mut text, name);
    });
    if !listed {
        return list_more_tubes(0, text, world, out);
    }
    reply::list(out, text);
    Flow::Next
}

fn list_more_tubes(mut from: u32, mut text: Output, world: &mut World, out: &mut Output) -> Flow {
    let progress = world.engine.walk_tubes(&mut from, world.now, |tube| yaml::item(&mut text, tube.name));
    match progress {
        Progress::More if has_room(&text, world.engine, out) => later(Continuation::ListTubes(from, text)),
        Progress::More => Flow::Next,
        Progress::Done => {
            reply::list(out, text);
            Flow::Next
        }
    }
}

fn list_watched(mut from: usize, mut text: Output, world: &mut World, out: &mut Output) -> Flow {
    let progress = world.engine.walk_watched(world.client, &mut from, |name| yaml::item(&mut text, name));
    match progress {
        Progress::More if has_room(&text, world.engine, out) => later(Continuation::ListWatched(from, text)),
        Progress::More => Flow::Next,
        Progress::Done => {
            reply::list(out, text);
            Flow::Next
        }
    }
}

/// Whether there is memory for a list that grows; if not, that is the answer.
fn has_room(text: &Output, engine: &Engine, out: &mut Output) -> bool {
    let has_room = engine.has_memory(text.footprint());
    if !has_room {
        reply::words(out, reply::OUT_OF_MEMORY);
    }
    has_room
}

fn put(job: NewJob, world: &mut World, out: &mut Output) {
    match world.engine.put(world.client, job, world.now) {
        Ok(id) => reply::inserted(out, id),
        Err(Refused::Draining) => reply::words(out, reply::DRAINING),
        Err(Refused::QueueFull) => reply::words(out, reply::TUBE_FULL),
        Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
    }
}

fn kick(mut kick: Kick, world: &mut World, out: &mut Output) -> Flow {
    if world.engine.kick(world.client, &mut kick, world.now) == Progress::More {
        return later(Continuation::Kick(kick));
    }
    reply::numbered(out, b"KICKED", kick.done);
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
    if world.engine.hurry(world.client, world.now) {
        return false;
    }
    let waited = world.engine.cancel_wait(world.client);
    if waited {
        reply::no_job(out, NoJob::TimedOut);
    }
    waited
}
