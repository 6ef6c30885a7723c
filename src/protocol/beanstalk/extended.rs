//! Execution of commands that beanstalkd does not have.

use super::commands::RESERVE_MODES;
use super::long::PartialList;
use super::{reply, yaml};
use crate::engine::{
    ClientId, Engine, Failed, JobEnd, JobId, NotSet, Priority, Progress, Reserve, ReserveMode, Span, Time, TubeSettings,
};
use crate::protocol::connections::{offer_connections, ConnectionPage, Connections};
use crate::protocol::{self, guard, Context, Flow, Output};

const DELETE_STEPS: u64 = 8;

/// In bytes, excluding tube names.
pub const SETTINGS_OVERHEAD: usize = 16;

const MAX_KEYS: usize = 1000;

pub fn drain(drains: bool, context: &mut Context, out: &mut Output) {
    if drains {
        context.engine.drain();
    } else {
        context.engine.undrain();
    }
    reply::words(out, if drains { reply::DRAINING } else { reply::NOT_DRAINING });
}

pub fn limit_tube(tube: &[u8], limits: [Option<u32>; 3], context: &mut Context, out: &mut Output) {
    let room = context.engine.claim_log_room(tube.len());
    let limited = room && context.engine.limit_new_tube(context.client, tube, limits, context.now).is_ok();
    reply::words(out, if limited { reply::LIMITED } else { reply::OUT_OF_MEMORY });
}

pub fn move_job(id: JobId, tube: &[u8], pri_and_delay: (Priority, Span), context: &mut Context, out: &mut Output) {
    match context.engine.move_job(context.client, id, tube, pri_and_delay, context.now) {
        Ok(moved) => reply::found(out, moved, reply::MOVED),
        Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
    }
}

/// No other client is served between the reservations.
pub fn reserve_batch(count: usize, timeout: Option<Span>, context: &mut Context, out: &mut Output) -> Flow {
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

pub fn delete_batch(
    ids: &[JobId],
    at: &mut usize,
    deleted: &mut u64,
    context: &mut Context,
    out: &mut Output,
) -> Progress {
    // The engine can remove the last reservation without moving others, so start with it.
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

pub fn wait(id: JobId, timeout: Span, context: &mut Context, out: &mut Output) -> Flow {
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

/// Shows the holder of the job if the holder is a client other than `requester`.
pub fn stats_job(id: JobId, requester: Option<ClientId>, engine: &Engine, now: Time) -> Option<Vec<u8>> {
    let job = engine.job(id)?;
    let options = engine.stored_options(&job);
    let mut stats = engine.job_stats(id, now)?;
    stats.holder = stats.holder.filter(|_| requester.is_some_and(|requester| !job.is_held_by(requester)));
    Some(yaml::job(&stats, options.as_ref(), now))
}

pub fn list_connections(it: &mut ConnectionPage, context: &mut Context, out: &mut Output) -> Progress {
    if it.page.is_open() && offer_connections(&mut it.page, &mut it.from, context, |_| true) == Progress::Done {
        context.engine.take_steps(it.page.close());
    }
    let connections = Connections::of(context);
    let mut steps = context.engine.steps().left();
    while steps > 0 && !it.page.is_open() {
        let Some((_, handle)) = it.page.next() else {
            reply::list(out, std::mem::take(&mut it.list));
            return Progress::Done;
        };
        let stats =
            context.engine.client_at(handle).and_then(|client| context.engine.client_stats(client.0, context.now));
        let bytes = stats
            .map_or(0, |it_stats| yaml::object(&mut it.list, |show| connections.show(context.engine, &it_stats, show)));
        steps = steps.saturating_sub(1 + bytes as u64 / 64);
    }
    context.engine.take_steps(context.engine.steps().left() - steps);
    if context.engine.has_memory(it.footprint()) {
        return Progress::More;
    }
    Progress::Done.then(|| reply::words(out, reply::OUT_OF_MEMORY))
}

pub fn reserve_mode(mode: ReserveMode, context: &mut Context, out: &mut Output) {
    context.engine.set_reserve_mode(context.client, mode);
    RESERVE_MODES.iter().filter(|(it, _)| *it == mode).for_each(|(_, word)| reply::using(out, word));
}

pub fn set_tube(tube: &[u8], settings: TubeSettings, context: &mut Context, out: &mut Output) {
    let room = context.engine.claim_log_room(SETTINGS_OVERHEAD + tube.len() + settings.dead_length());
    let answer = match room.then(|| context.engine.set_tube(context.client, tube, settings, context.now)) {
        Some(Ok(())) => reply::SET,
        Some(Err(NotSet::Circle)) => reply::BAD_FORMAT,
        Some(Err(NotSet::OverLimit)) | None => reply::OUT_OF_MEMORY,
    };
    reply::words(out, answer);
}

pub fn fail(id: JobId, pri: Priority, reason: &[u8], context: &mut Context, out: &mut Output) {
    if !context.engine.claim_log_room(0) {
        return reply::words(out, reply::OUT_OF_MEMORY);
    }
    match context.engine.fail(context.client, id, pri, reason, context.now) {
        None => reply::words(out, reply::NOT_FOUND),
        Some(Failed::Retried(delay)) => reply::numbered(out, b"RELEASED", delay.secs()),
        Some(Failed::GivenUp) => reply::words(out, reply::BURIED),
    }
}

/// Lists the idempotency keys of ended jobs.
pub fn list_keys(list: &mut PartialList, context: &mut Context, out: &mut Output) -> Progress {
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
            list.count += 1;
        }
    }
    list.send(Progress::Done, context, out)
}
