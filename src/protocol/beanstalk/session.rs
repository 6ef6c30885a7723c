//! Execution of beanstalk commands.

use std::sync::Arc;

use super::command::{Command, Long, PartialList};
use super::commands::RESERVE_MODES;
use super::extensions::Extension;
use super::figures::QueueFigures;
use super::{reply, yaml};
use crate::access::{Digest, Need};
use crate::engine::{
    ClientId, Engine, Event, Failed, JobEnd, JobId, JobView, Name, NewBody, NewJob, NotSet, PastJob, Priority,
    Progress, Refused, Report, Reserve, ReserveMode, Span, State, Tagged, Tags, Time, TouchAll, TubeSettings,
};
use crate::protocol::connections::{offer_clients, ConnectionPage, Connections};
use crate::protocol::dialogue::Command as AnyCommand;
use crate::protocol::pages::{show_past, HistoryWalk};
use crate::protocol::{self, guard, Context, Flow, Output};

/// Appends no reply if the client must wait.
pub fn execute(command: Command, context: &mut Context, out: &mut Output) -> Flow {
    let (client, now) = (context.client, context.now);
    let engine = &mut *context.engine;
    match command {
        Command::PutInPlace { job: NewJob { pri, delay, ttr, body } } => {
            put(NewJob { pri, delay, ttr, body: body.bytes(context.input) }, context, out);
        }
        Command::Put { job, tags: None } => put(job, context, out),
        Command::Put { job, tags: Some(tags) } => put_tagged(job, *tags, context, out),
        Command::Refused { reply, is_producer: false } => reply::words(out, reply),
        Command::Refused { reply, is_producer: true } => {
            engine.mark_producer(client);
            reply::words(out, reply);
        }
        Command::Reserve(timeout) => return reserve(timeout, context, out),
        Command::ReserveJob(id) => reply::job(out, b"RESERVED", engine.reserve_job(client, id, now)),
        Command::Delete(id) => reply::found(out, engine.delete(client, id, now), reply::DELETED),
        // This check also claims log space. For puts, moves and long commands, the engine claims the space.
        ref other if other.lacks_log_room(engine) => reply::words(out, reply::OUT_OF_MEMORY),
        Command::Release { id, pri, delay } => release(id, engine.release(client, id, pri, delay, now), engine, out),
        Command::Bury { id, pri, delay, dead_from } => {
            found_or_refused(out, engine.bury_as(client, id, pri, (delay, dead_from.as_deref()), now), reply::BURIED);
        }
        Command::KickJob(id) => found_or_refused(out, engine.kick_job(id, now), reply::KICKED),
        Command::Touch(id, None) => reply::found(out, engine.touch(client, id, now), reply::TOUCHED),
        Command::Touch(id, Some(progress)) => return touch_with(id, progress, context, out),
        Command::Peek(id) => reply::job(out, b"FOUND", engine.job(id)),
        Command::PeekNext(state) => reply::job(out, b"FOUND", engine.peek(client, state)),
        Command::Use(tube) => use_tube(&tube, context, out),
        Command::Watch(tube, weight) => watch(&tube, weight, context, out),
        Command::Ignore(tube) => ignore(&tube, context, out),
        Command::PauseTube { tube, length } => reply::found(out, engine.pause(&tube, length, now), reply::PAUSED),
        Command::ListTubeUsed => reply::using(out, engine.used(client)),
        Command::StatsJob(id) => {
            let requester = Some(client).filter(|_| context.settings.extensions.has(Extension::Connections));
            reply::yaml(out, stats_job(id, requester, engine, now));
        }
        Command::Revoke(id, pri) => reply::found(out, engine.revoke(id, pri, now), reply::REVOKED),
        Command::Name(name) => {
            context.registry.name(client, &name);
            reply::words(out, reply::NAMED);
        }
        Command::StatsGroup(group) => {
            reply::yaml(out, engine.group_stats(&Name::from(&*group)).map(|stats| yaml::group(&group, &stats)));
        }
        Command::ReserveWithAbort(timeout) => match reserve(timeout, context, out) {
            Flow::Wait => return Flow::WaitForInput,
            flow => return flow,
        },
        Command::ReserveBatch(count, timeout) => return reserve_batch(count, timeout, context, out),
        Command::ReserveMode(mode) => reserve_mode(mode, context, out),
        Command::Wait(id, timeout) => return wait(id, timeout, context, out),
        Command::Drain(drains) => drain(drains, context, out),
        Command::MoveJob { id, tube, pri, delay } => {
            found_or_refused(out, engine.move_job(client, id, &tube, (pri, delay), now), reply::MOVED);
        }
        Command::SetTube { tube, settings } => set_tube(&tube, *settings, context, out),
        Command::Fail { id, pri, reason } => fail(id, pri, reason.bytes(), context, out),
        Command::LimitTube { tube, limits } => {
            found_or_refused(out, engine.limit_new_tube(client, &tube, limits, now).map(|()| true), reply::LIMITED);
        }
        Command::Auth(digest) => return auth(digest, context, out),
        Command::Stats => return begin(Box::new(Long::Stats(Box::default())), context, out),
        Command::Long(long) => return begin(long, context, out),
        Command::Quit => return Flow::Close,
        Command::BadFormat => reply::words(out, reply::BAD_FORMAT),
        Command::UnknownCommand => reply::words(out, reply::UNKNOWN_COMMAND),
    }
    Flow::Next
}

fn use_tube(tube: &[u8], context: &mut Context, out: &mut Output) {
    match context.engine.use_tube(context.client, tube) {
        Ok(()) => reply::using(out, tube),
        Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
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

/// Without an access file, the command is unknown, as in beanstalkd.
fn auth(digest: Digest, context: &mut Context, out: &mut Output) -> Flow {
    let Some(access) = &mut context.access else {
        reply::words(out, reply::UNKNOWN_COMMAND);
        return Flow::Next;
    };
    let is_known = access.authenticate(digest);
    context.registry.identify(context.client, access.name());
    let (words, flow) = if is_known { (reply::AUTHENTICATED, Flow::Next) } else { (reply::UNAUTHORIZED, Flow::Close) };
    reply::words(out, words);
    flow
}

fn touch_with(id: JobId, (done, total): (u32, u32), context: &mut Context, out: &mut Output) -> Flow {
    let Context { engine, client, now, .. } = context;
    let touched = engine.touch(*client, id, *now);
    reply::found(out, touched, reply::TOUCHED);
    if !touched {
        return Flow::Next;
    }
    // Gearman clients expect two numbers separated by a NUL.
    let text = format!("{done}\0{total}").into_bytes().into();
    let report = Arc::new(Report::Progress { text, done, total });
    engine.report(*client, id, &report, *now);
    begin(Box::new(Long::Report(id, report)), context, out)
}

fn begin(mut long: Box<Long>, context: &mut Context, out: &mut Output) -> Flow {
    match advance(&mut long, context, out) {
        Progress::Done => Flow::Next,
        Progress::More => Flow::resume(AnyCommand::Beanstalk(Command::Long(long))),
    }
}

fn advance(long: &mut Long, context: &mut Context, out: &mut Output) -> Progress {
    let (client, now) = (context.client, context.now);
    let (engine, access) = (&mut *context.engine, &context.access);
    match long {
        Long::Kick(kick) => engine.kick(client, kick, now).then(|| reply::numbered(out, b"KICKED", kick.done)),
        Long::ListTubes(list) => list_tubes(list, context, out),
        Long::StatsTubes(list) => add_tubes(list, true, context, out),
        Long::Stats(sums) => {
            let Some(figures) = sums.advance(context) else { return Progress::More };
            reply::yaml(out, Some(yaml::stats(&QueueFigures::of(figures, context), context.settings.extensions)));
            Progress::Done
        }
        Long::ListTubesWatched(list) => {
            let progress = engine.walk_watched(client, &mut list.from, |name| yaml::item(&mut list.text, name));
            list.send(progress, context, out)
        }
        Long::ListKeys(list) => list_keys(list, context, out),
        Long::ListHistory(walk, list) => list_history(walk, list, context, out),
        Long::ListConnections(page) => list_connections(page, context, out),
        Long::Report(id, report) => engine.report_on(client, *id, report, now),
        Long::DeleteBatch { ids, at, deleted } => delete_batch(ids, at, deleted, context, out),
        Long::TouchAll(touch) => {
            let may =
                |tube: &[u8]| access.as_ref().is_none_or(|access| access.check(Need::TAKE_JOB, Some(tube)).is_ok());
            let (progress, touched) = engine.touch_all(client, touch.get_or_insert(TouchAll::new(now)), may, now);
            progress.then(|| reply::numbered(out, b"TOUCHED_ALL", touched as u64))
        }
        Long::Flush(flush) => engine.flush(flush, now).then(|| reply::numbered(out, b"FLUSHED", flush.done)),
        Long::PeekReserved(find) => {
            let (progress, found) = engine.peek_reserved(client, find);
            progress.then(|| reply::job(out, b"FOUND", found))
        }
        Long::ListJobs(page) => match engine.list_ids(page, |tube| protocol::sees(access, tube)) {
            None => Progress::Done.then(|| reply::words(out, reply::NOT_FOUND)),
            Some((progress, ids)) => progress.then(|| reply::list(out, yaml::ids(&ids))),
        },
        Long::MoveTube(moving) => match engine.move_jobs(client, moving, now) {
            Ok(progress) => progress.then(|| reply::numbered(out, b"MOVED", moving.done)),
            Err(_) => Progress::Done.then(|| reply::words(out, reply::OUT_OF_MEMORY)),
        },
        Long::StatsTube(find) => {
            let has_times = context.settings.extensions.has(Extension::Times);
            let progress = if has_times { engine.find_oldest(find) } else { Progress::Done };
            progress.then(|| {
                let oldest = has_times.then(|| find.ages(now));
                reply::yaml(out, engine.tube_stats(find.tube(), now).map(|tube| yaml::tube(&tube, oldest)));
            })
        }
    }
}

/// A short list is created within one turn, in beanstalkd's order. If earlier commands have used up most of the turn's
/// steps, the command waits for the next turn, so that the order does not depend on the earlier commands.
fn list_tubes(list: &mut Option<PartialList>, context: &mut Context, out: &mut Output) -> Progress {
    if list.as_ref().is_none_or(|list| list.from == 0) {
        let (mut text, Context { engine, access, .. }) = (PartialList::new(0).text, &mut *context);
        let is_complete = engine.walk_few_tubes(|name| {
            if protocol::sees(access, name) {
                yaml::item(&mut text, name);
            }
        });
        if is_complete {
            return Progress::Done.then(|| reply::list(out, text));
        }
    }
    let Some(list) = list else {
        *list = Some(PartialList::new(0));
        return Progress::More;
    };
    add_tubes(list, false, context, out)
}

fn add_tubes(list: &mut PartialList, with_stats: bool, context: &mut Context, out: &mut Output) -> Progress {
    let Context { engine, access, now, .. } = context;
    let progress = engine.walk_tubes(&mut list.from, *now, |tube| match protocol::sees(access, tube.name) {
        true if with_stats => yaml::push_item(&mut list.text, &yaml::tube(tube, None)),
        true => yaml::item(&mut list.text, tube.name),
        false => 0,
    });
    list.send(progress, context, out)
}

fn list_history(walk: &mut HistoryWalk, list: &mut PartialList, context: &mut Context, out: &mut Output) -> Progress {
    let access = &context.access;
    let mut steps = context.engine.steps();
    let sees = |job: &PastJob| protocol::sees(access, &job.tube);
    let progress = walk.advance(context.engine.past(), &mut steps, sees, |number, job| {
        yaml::object(&mut list.text, |show| show_past(number, job, show))
    });
    context.engine.take_steps(context.engine.steps().left() - steps.left());
    list.send(progress, context, out)
}

fn put(job: NewJob<impl NewBody>, context: &mut Context, out: &mut Output) {
    match context.engine.put(context.client, job, context.now) {
        Ok(id) => reply::numbered(out, b"INSERTED", id.0),
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
        Ok(Tagged::New(id)) => reply::numbered(out, b"INSERTED", id.0),
        Ok(Tagged::Duplicate { id, state, raised }) => reply::duplicate(out, id, Some(state), raised),
        Ok(Tagged::Ended(id)) => reply::duplicate(out, id, None, None),
        Ok(Tagged::Scheduled { id, replaced }) => reply::scheduled(out, id, replaced),
        Err(why) => refused(out, why),
    }
}

fn found_or_refused(out: &mut Output, found: Result<bool, impl Into<Refused>>, done: &[u8]) {
    match found {
        Ok(found) => reply::found(out, found, done),
        Err(why) => refused(out, why.into()),
    }
}

/// Replies BURIED only for a job with its own `try:` limit: clients that do not use tags treat BURIED as an error.
fn release(id: JobId, released: bool, engine: &Engine, out: &mut Output) {
    let is_bound = |job: &JobView| engine.extras(job).is_some_and(|extras| extras.max_attempts > 0);
    let buried = released && engine.job(id).is_some_and(|job| job.state() == State::Buried && is_bound(&job));
    reply::found(out, released, if buried { reply::BURIED } else { reply::RELEASED });
}

fn reserve(timeout: Option<Span>, context: &mut Context, out: &mut Output) -> Flow {
    let timeout = if context.half_closed { Some(Span::ZERO) } else { timeout };
    context.engine.set_batch(context.client, false);
    match context.engine.reserve(context.client, timeout, context.now) {
        Reserve::Job(job) => reply::job(out, b"RESERVED", Some(job)),
        Reserve::NoJob(why) => reply::no_job(out, why, false),
        Reserve::Waiting => return Flow::Wait,
    }
    Flow::Next
}

pub fn notify(event: &Event, engine: &Engine, out: &mut Output) {
    match event {
        Event::Reserved { job, client } => {
            let job = engine.job(*job);
            debug_assert!(job.is_some_and(|job| job.state() == State::Reserved), "an event was reported too late");
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
        Event::Report { .. } | Event::Freed { .. } | Event::DeadLetterStays { .. } => {}
        Event::Work { .. } => debug_assert!(false, "beanstalk clients do not sleep"),
    }
}

const DELETE_STEPS: u64 = 8;
const MAX_KEYS: usize = 1000;

fn drain(drains: bool, context: &mut Context, out: &mut Output) {
    context.engine.set_draining(drains);
    reply::words(out, if drains { reply::DRAINING } else { reply::NOT_DRAINING });
}

/// No other client is served between the reservations.
fn reserve_batch(count: usize, timeout: Option<Span>, context: &mut Context, out: &mut Output) -> Flow {
    let timeout = context.effective_wait(timeout.unwrap_or(Span::ZERO));
    let Context { engine, settings, client, now, .. } = context;
    engine.set_batch(*client, true);
    let mut jobs = Output::new();
    match engine.reserve(*client, Some(timeout), *now) {
        Reserve::Waiting => return Flow::Wait,
        Reserve::NoJob(why) => {
            reply::no_job(out, why, true);
            return Flow::Next;
        }
        Reserve::Job(job) => reply::job(&mut jobs, b"RESERVED", Some(job)),
    }
    let mut reserved = 1;
    while reserved < count && jobs.len() < settings.max_output {
        let Some(job) = engine.reserve_more(*client, *now) else { break };
        reply::job(&mut jobs, b"RESERVED", Some(job));
        reserved += 1;
    }
    reply::numbered(out, b"RESERVED_BATCH", reserved as u64);
    out.append(&mut jobs);
    Flow::Next
}

fn delete_batch(ids: &[JobId], at: &mut usize, deleted: &mut u64, context: &mut Context, out: &mut Output) -> Progress {
    // Start with the last ID, because the engine can remove a client's last reservation without moving the others.
    while let Some(id) = ids.iter().rev().nth(*at).copied() {
        let may = guard::may_delete(context, id);
        *deleted += u64::from(may && context.engine.delete(context.client, id, context.now));
        context.engine.take_steps(DELETE_STEPS);
        *at += 1;
        if context.engine.steps().are_used_up() && *at < ids.len() {
            return Progress::More;
        }
    }
    reply::numbers(out, b"DELETED_BATCH", [*deleted, ids.len() as u64 - *deleted]);
    Progress::Done
}

fn wait(id: JobId, timeout: Span, context: &mut Context, out: &mut Output) -> Flow {
    let timeout = context.effective_wait(timeout);
    context.engine.set_batch(context.client, false);
    match context.engine.wait_end(context.client, id, timeout, context.now) {
        JobEnd::Waiting => return Flow::Wait,
        JobEnd::Buried => reply::numbered(out, b"BURIED", id.0),
        JobEnd::NotFound => reply::words(out, reply::NOT_FOUND),
        JobEnd::TimedOut => reply::words(out, reply::TIMED_OUT),
        JobEnd::OutOfMemory => reply::words(out, reply::OUT_OF_MEMORY),
    }
    Flow::Next
}

/// Returns the statistics of a job. Includes the holder only if `requester` is given and another client holds the job.
pub fn stats_job(id: JobId, requester: Option<ClientId>, engine: &Engine, now: Time) -> Option<Vec<u8>> {
    let job = engine.job(id)?;
    let options = engine.stored_options(&job);
    let mut stats = engine.job_stats(id, now)?;
    stats.holder = stats.holder.filter(|_| requester.is_some_and(|requester| !job.is_held_by(requester)));
    Some(yaml::job(&stats, options.as_ref(), now))
}

fn list_connections(it: &mut ConnectionPage, context: &mut Context, out: &mut Output) -> Progress {
    if it.page.is_open && offer_clients(&mut it.page, &mut it.from, b"", context) == Progress::Done {
        context.engine.take_steps(it.page.close());
    }
    let connections = Connections::of(context);
    let mut steps = context.engine.steps().left();
    while steps > 0 && !it.page.is_open {
        let Some((_, handle)) = it.page.next() else {
            reply::list(out, std::mem::take(&mut it.list));
            return Progress::Done;
        };
        let bytes = connections
            .find(handle, context.engine)
            .map_or(0, |stats| yaml::object(&mut it.list, |show| connections.show(context.engine, &stats, show)));
        steps = steps.saturating_sub(1 + bytes as u64 / 64);
    }
    context.engine.take_steps(context.engine.steps().left() - steps);
    if context.engine.has_memory(it.footprint()) {
        return Progress::More;
    }
    Progress::Done.then(|| reply::words(out, reply::OUT_OF_MEMORY))
}

fn reserve_mode(mode: ReserveMode, context: &mut Context, out: &mut Output) {
    context.engine.set_reserve_mode(context.client, mode);
    RESERVE_MODES.iter().filter(|(it, _)| *it == mode).for_each(|(_, word)| reply::using(out, word));
}

fn set_tube(tube: &[u8], settings: TubeSettings, context: &mut Context, out: &mut Output) {
    let answer = match context.engine.set_tube(context.client, tube, settings, context.now) {
        Ok(()) => reply::SET,
        Err(NotSet::Circle) => reply::BAD_FORMAT,
        Err(NotSet::OverLimit) => reply::OUT_OF_MEMORY,
    };
    reply::words(out, answer);
}

fn fail(id: JobId, pri: Priority, reason: &[u8], context: &mut Context, out: &mut Output) {
    match context.engine.fail(context.client, id, pri, reason, context.now) {
        None => reply::words(out, reply::NOT_FOUND),
        Some(Failed::Retried(delay)) => reply::numbered(out, b"RELEASED", delay.secs()),
        Some(Failed::GivenUp) => reply::words(out, reply::BURIED),
    }
}

/// Lists the idempotency keys of ended jobs.
fn list_keys(list: &mut PartialList, context: &mut Context, out: &mut Output) -> Progress {
    let Context { engine, access, now, .. } = context;
    while list.count < MAX_KEYS {
        let (progress, found) = engine.next_ended_key(&mut list.from);
        if progress == Progress::More {
            return list.send(progress, context, out);
        }
        let Some(number) = found else { break };
        let ended = engine.ended_key(number);
        if ended.until > *now && protocol::sees(access, &ended.tube) {
            yaml::ended_key(&mut list.text, number, ended, *now);
            // The list contains up to four bytes for each byte of a name.
            engine.take_steps((ended.tube.len() + ended.key.length()) as u64 / 16);
            list.count += 1;
        }
    }
    list.send(Progress::Done, context, out)
}
