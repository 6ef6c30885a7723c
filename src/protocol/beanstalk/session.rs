//! Carrying out requests.
//!
//! Owns which verb a command becomes and which reply its answer gets. Must not know how bytes arrive or leave.

use super::command::{Command, CHANGE_OVERHEAD};
use super::extensions::Extension;
use super::figures::QueueFigures;
use super::request::Request;
use super::{extended, reply, yaml};
use crate::access::Denied;
use crate::engine::{
    Engine, Event, FindOldest, JobId, Kick, NewJob, NoJob, Progress, Refused, Reserve, Span, State, Stats, Tagged, Tags,
};
use crate::protocol::sums::VisibleSums;
use crate::protocol::{self, Context, Flow, Output};

/// The rest of a command that was too much for one turn.
#[derive(Debug)]
pub enum Continuation {
    /// A kick of many jobs.
    Kick(Kick),
    /// A list of all tubes: the number of the next one, and the list so far.
    ListTubes(u32, Output),
    /// Figures of what the client may see, so far.
    Stats(Box<VisibleSums>),
    /// A list of the tubes that the client watches: the place of the next one, and the list so far.
    ListWatched(usize, Output),
    /// Of a command that beanstalkd has not.
    Extended(extended::Continuation),
}

impl Continuation {
    /// Bytes that it may take in a log before it stops once more.
    pub fn log_size(&self) -> u64 {
        match self {
            Continuation::Kick(_) => CHANGE_OVERHEAD,
            Continuation::Stats(..) | Continuation::ListTubes(..) | Continuation::ListWatched(..) => 0,
            Continuation::Extended(rest) => rest.log_size(),
        }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        match self {
            Continuation::Kick(_) => 0,
            Continuation::Stats(_) => size_of::<VisibleSums>() as u64,
            Continuation::ListTubes(_, text) | Continuation::ListWatched(_, text) => text.footprint(),
            Continuation::Extended(rest) => rest.footprint(),
        }
    }
}

/// Carries out one request and appends its reply, unless the client waits for it from now on.
pub fn execute(request: Request, context: &mut Context, out: &mut Output) -> Flow {
    match request.command {
        Command::Reserve(timeout) => return reserve(timeout, context, out),
        Command::Quit => return Flow::Close,
        Command::Auth(digest) => return auth(&digest, context, out),
        Command::Kick(bound) => return kick(Kick::new(bound.into()), context, out),
        Command::ListTubes => return list_tubes(context, out),
        Command::Stats => return stats(Box::default(), context, out),
        Command::ListTubesWatched => return list_watched(0, yaml::list(), context, out),
        Command::Put { job, tags: None } => put(job, context, out),
        Command::Put { job, tags: Some(tags) } => put_tagged(job, *tags, context, out),
        Command::PutRefused { answer, counts_producer } => {
            if counts_producer {
                context.engine.mark_producer(context.client);
            }
            reply::words(out, answer);
        }
        Command::StatsTube(tube) if context.settings.extensions.has(Extension::Times) => {
            let find = extended::Continuation::StatsTube(FindOldest::new(tube));
            return flow(extended::go_on(find, context, out));
        }
        command if command.is_extended() => return flow(extended::execute(command, context, out)),
        Command::PutLine { .. } => unreachable!("the decoder keeps put lines to itself"),
        Command::BadFormat => reply::words(out, reply::BAD_FORMAT),
        Command::UnknownCommand => reply::words(out, reply::UNKNOWN_COMMAND),
        command => job_command(command, context, out),
    }
    Flow::Next
}

/// Commands about one job, or the next one in some state.
fn job_command(command: Command, context: &mut Context, out: &mut Output) {
    let Context { engine, client, now, .. } = context;
    let (client, now) = (*client, *now);
    match command {
        Command::Delete(id) => reply::found(out, engine.delete(client, id, now), reply::DELETED),
        Command::Release { .. } | Command::Bury { .. } | Command::KickJob(_) if !engine.claim_log_room(0) => {
            reply::words(out, reply::OUT_OF_MEMORY);
        }
        Command::Release { id, pri, delay } => {
            let released = engine.release(client, id, pri, delay, now);
            release(id, released, engine, out);
        }
        Command::Bury { id, pri } => reply::found(out, engine.bury(client, id, pri, now), reply::BURIED),
        Command::Touch(id) => reply::found(out, engine.touch(client, id, now), reply::TOUCHED),
        Command::ReserveJob(id) => reply::job(out, b"RESERVED", engine.reserve_job(client, id, now)),
        Command::KickJob(id) => reply::found(out, engine.kick_job(id, now), reply::KICKED),
        Command::Peek(id) => reply::job(out, b"FOUND", engine.job(id)),
        Command::PeekNext(state) => reply::job(out, b"FOUND", engine.peek(client, state)),
        command => tube_command(command, context, out),
    }
}

/// Commands about tubes, and statistics.
fn tube_command(command: Command, context: &mut Context, out: &mut Output) {
    let Context { engine, client, now, .. } = context;
    let (client, now) = (*client, *now);
    match command {
        Command::Use(tube) => match engine.use_tube(client, &tube) {
            Ok(()) => reply::using(out, &tube),
            Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
        },
        Command::Watch(tube, weight) => match engine.watch(client, &tube, now) {
            Ok(count) => {
                if let Some(weight) = weight {
                    engine.set_weight(client, &tube, weight);
                }
                reply::numbered(out, b"WATCHING", count as u64);
            }
            Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
        },
        Command::Ignore(tube) => match engine.ignore(client, &tube, now) {
            Some(count) => reply::numbered(out, b"WATCHING", count as u64),
            None => reply::words(out, reply::NOT_IGNORED),
        },
        Command::PauseTube { tube, .. } if !engine.claim_log_room(tube.len()) => {
            reply::words(out, reply::OUT_OF_MEMORY)
        }
        Command::PauseTube { tube, length } => reply::found(out, engine.pause(&tube, length, now), reply::PAUSED),
        Command::ListTubeUsed => reply::using(out, engine.used(client)),
        Command::StatsJob(id) => reply::yaml(out, engine.job_stats(id, now).map(|job| yaml::job(&job))),
        Command::StatsTube(tube) => reply::yaml(out, engine.tube_stats(&tube, now).map(|tube| yaml::tube(&tube))),
        other => unreachable!("{other:?} is no command about tubes"),
    }
}

/// Figures of the server; those of jobs and tubes are about what the client may see.
fn stats(mut sums: Box<VisibleSums>, context: &mut Context, out: &mut Output) -> Flow {
    let Some(figures) = sums.go_on(context) else { return later(Continuation::Stats(sums)) };
    tell_stats(figures, context, out);
    Flow::Next
}

fn tell_stats(figures: Stats, context: &Context, out: &mut Output) {
    let figures = QueueFigures::of(figures, context);
    reply::yaml(out, Some(yaml::stats(&figures, context.settings.extensions)));
}

/// Without an access file there are no names, and the word is unknown, as it is to beanstalkd.
fn auth(digest: &[u8; 32], context: &mut Context, out: &mut Output) -> Flow {
    let Some(access) = &mut context.access else {
        reply::words(out, reply::UNKNOWN_COMMAND);
        return Flow::Next;
    };
    if access.authenticate(digest) {
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

/// Goes on with a command in another turn.
pub fn go_on(rest: Continuation, context: &mut Context, out: &mut Output) -> Flow {
    match rest {
        Continuation::Kick(rest) => kick(rest, context, out),
        Continuation::Stats(sums) => stats(sums, context, out),
        Continuation::ListTubes(from, text) => list_more_tubes(from, text, context, out),
        Continuation::ListWatched(from, text) => list_watched(from, text, context, out),
        Continuation::Extended(rest) => flow(extended::go_on(rest, context, out)),
    }
}

fn later(rest: Continuation) -> Flow {
    Flow::Continue(Box::new(protocol::Continuation::Beanstalk(rest)))
}

fn flow(step: extended::TurnResult) -> Flow {
    match step {
        extended::TurnResult::Now(flow) => flow,
        extended::TurnResult::Later(rest) => later(Continuation::Extended(rest)),
    }
}

fn list_tubes(context: &mut Context, out: &mut Output) -> Flow {
    let mut text = yaml::list();
    let Context { engine, access, .. } = context;
    let listed = engine.walk_few_tubes(|name| {
        if protocol::sees(access, name) {
            yaml::item(&mut text, name);
        }
    });
    if !listed {
        return list_more_tubes(0, text, context, out);
    }
    reply::list(out, text);
    Flow::Next
}

fn list_more_tubes(mut from: u32, mut text: Output, context: &mut Context, out: &mut Output) -> Flow {
    let Context { engine, access, now, .. } = context;
    let progress = engine.walk_tubes(&mut from, *now, |tube| match protocol::sees(access, tube.name) {
        true => yaml::item(&mut text, tube.name),
        false => 0,
    });
    match progress {
        Progress::More if has_room(&text, context.engine, out) => later(Continuation::ListTubes(from, text)),
        Progress::More => Flow::Next,
        Progress::Done => {
            reply::list(out, text);
            Flow::Next
        }
    }
}

fn list_watched(mut from: usize, mut text: Output, context: &mut Context, out: &mut Output) -> Flow {
    let progress = context.engine.walk_watched(context.client, &mut from, |name| yaml::item(&mut text, name));
    match progress {
        Progress::More if has_room(&text, context.engine, out) => later(Continuation::ListWatched(from, text)),
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

fn put(job: NewJob, context: &mut Context, out: &mut Output) {
    match context.engine.put(context.client, job, context.now) {
        Ok(id) => reply::inserted(out, id),
        Err(why) => refused(out, why),
    }
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
        Ok(Tagged::New(id)) => reply::inserted(out, id),
        Ok(Tagged::Duplicate { id, state, raised }) => reply::duplicate(out, id, Some(state), raised),
        Ok(Tagged::Ended(id)) => reply::duplicate(out, id, None, None),
        Err(why) => refused(out, why),
    }
}

/// The reply to a release: who has lost the job often enough finds it buried.
fn release(id: JobId, released: bool, engine: &Engine, out: &mut Output) {
    let buried = released && engine.job(id).is_some_and(|job| job.state() == State::Buried);
    reply::found(out, released, if buried { reply::BURIED } else { reply::RELEASED });
}

fn kick(mut kick: Kick, context: &mut Context, out: &mut Output) -> Flow {
    if context.engine.kick(context.client, &mut kick, context.now) == Progress::More {
        return later(Continuation::Kick(kick));
    }
    reply::numbered(out, b"KICKED", kick.done);
    Flow::Next
}

fn reserve(timeout: Option<Span>, context: &mut Context, out: &mut Output) -> Flow {
    // A half-closed client is not made to wait.
    let timeout = if context.half_closed { Some(Span::ZERO) } else { timeout };
    context.engine.set_batch(context.client, false);
    match context.engine.reserve(context.client, timeout, context.now) {
        Reserve::Job(job) => reply::job(out, b"RESERVED", Some(job)),
        Reserve::NoJob(why) => reply::no_job(out, why),
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
        Event::NoJob { why, client } => reply::no_job_of(out, *why, engine.is_batch(*client)),
        Event::Outcome { job, .. } => {
            let word: &[u8] = if engine.is_buried(*job) { b"BURIED" } else { b"DELETED" };
            reply::numbered(out, word, job.0);
        }
        Event::Report { .. } => {}
        Event::Work { .. } => debug_assert!(false, "nobody who speaks this protocol sleeps"),
    }
}

/// Ends the wait of a client that has shut down its sending side; tells whether it waited.
pub fn hang_up(context: &mut Context, out: &mut Output) -> bool {
    if context.engine.hurry(context.client, context.now) {
        return false;
    }
    let waited = context.engine.cancel_wait(context.client);
    if waited {
        reply::no_job_of(out, NoJob::TimedOut, context.engine.is_batch(context.client));
    }
    waited
}
