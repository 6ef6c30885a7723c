//! Carrying out the commands that beanstalkd has not.
//!
//! Owns which verbs they become, and what goes on in another turn. Must not know how bytes arrive or leave.

use super::command::{Command, CHANGE_OVERHEAD};
use super::{reply, yaml};
use crate::engine::{
    FindOldest, FindReserved, Flush, IdPage, JobEnd, JobId, MoveJobs, NoJob, Progress, Reserve, Span, TouchAll,
};
use crate::protocol::{guard, Context, Flow, Output};

/// Steps of a delete, as of any ordinary command.
const DELETE_STEPS: u64 = 8;

/// The rest of such a command that was too much for one turn.
#[derive(Debug)]
pub enum Continuation {
    /// A delete of many jobs: how many were looked at, from the last one on, and how many were deleted.
    Delete(Box<[JobId]>, usize, u64),
    /// A touch of all that is held.
    TouchAll(TouchAll),
    /// A tube that is being emptied.
    Flush(Flush),
    /// A search for a reserved job.
    FindReserved(FindReserved),
    /// A page of `list-jobs`, as far as it is found.
    ListJobs(IdPage),
    /// Jobs on their way to another tube.
    Move(MoveJobs),
    /// Statistics of a tube whose oldest jobs are being found.
    StatsTube(FindOldest),
}

/// What comes of a turn.
#[derive(Debug)]
pub enum TurnResult {
    /// The command is done, or its client waits.
    Now(Flow),
    /// The rest is for another turn.
    Later(Continuation),
}

impl TurnResult {
    const NEXT: TurnResult = TurnResult::Now(Flow::Next);
}

impl Continuation {
    /// Bytes that it may take in a log before it stops once more.
    pub fn log_size(&self) -> u64 {
        match self {
            Continuation::Delete(..) | Continuation::Flush(_) => 1,
            Continuation::Move(moving) => CHANGE_OVERHEAD + moving.footprint(),
            Continuation::TouchAll(_) | Continuation::FindReserved(_) | Continuation::ListJobs(_) => 0,
            Continuation::StatsTube(_) => 0,
        }
    }

    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        match self {
            Continuation::Delete(ids, ..) => size_of_val(&**ids) as u64,
            Continuation::Flush(flush) => flush.footprint(),
            Continuation::ListJobs(page) => page.footprint(),
            Continuation::Move(moving) => moving.footprint(),
            Continuation::StatsTube(find) => find.footprint(),
            Continuation::TouchAll(_) | Continuation::FindReserved(_) => 0,
        }
    }
}

/// Carries out one command that has a reply of its own kind.
pub fn execute(command: Command, context: &mut Context, out: &mut Output) -> TurnResult {
    match command {
        Command::ReserveBatch(count, timeout) => return reserve_batch(count, timeout, context, out),
        Command::DeleteBatch(ids) => return go_on(Continuation::Delete(ids, 0, 0), context, out),
        Command::TouchAll => return go_on(Continuation::TouchAll(TouchAll::new(context.now)), context, out),
        Command::Wait(id, timeout) => return wait(id, timeout, context, out),
        Command::Flush { tube, states } => return go_on(Continuation::Flush(Flush::new(tube, states)), context, out),
        Command::PeekReserved => return go_on(Continuation::FindReserved(FindReserved::default()), context, out),
        Command::ListJobs { tube, state, above, limit } => {
            return go_on(Continuation::ListJobs(IdPage::new(tube, state, above, limit)), context, out);
        }
        Command::MoveTube { from, to, state, bound } => {
            return go_on(Continuation::Move(MoveJobs::new(from, to, state, bound)), context, out);
        }
        Command::MoveJob { id, tube, pri, delay } => {
            match context.engine.move_job(context.client, id, &tube, (pri, delay), context.now) {
                Ok(moved) => reply::found(out, moved, reply::MOVED),
                Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
            }
        }
        Command::LimitTube { tube, most } => {
            let room = context.engine.claim_log_room(tube.len());
            let limited = room && context.engine.limit_new_tube(context.client, &tube, most).is_ok();
            reply::words(out, if limited { reply::LIMITED } else { reply::OUT_OF_MEMORY });
        }
        Command::Drain(drains) => {
            if drains {
                context.engine.drain();
            } else {
                context.engine.undrain();
            }
            reply::words(out, if drains { reply::DRAINING } else { reply::NOT_DRAINING });
        }
        Command::ReserveMode { weighted } => {
            context.engine.set_weighted(context.client, weighted);
            reply::using(out, if weighted { b"weighted" } else { b"fifo" });
        }
        other => unreachable!("{other:?} is beanstalkd's"),
    }
    TurnResult::NEXT
}

/// Goes on with a command, in its first turn or in another.
pub fn go_on(rest: Continuation, context: &mut Context, out: &mut Output) -> TurnResult {
    let (client, now) = (context.client, context.now);
    match rest {
        Continuation::Delete(ids, at, deleted) => return delete_batch(ids, at, deleted, context, out),
        Continuation::TouchAll(mut touch) => match context.engine.touch_all(client, &mut touch, now) {
            (Progress::More, _) => return TurnResult::Later(Continuation::TouchAll(touch)),
            (Progress::Done, held) => reply::numbered(out, b"TOUCHED_ALL", held as u64),
        },
        Continuation::Flush(mut flush) => match context.engine.flush(&mut flush, now) {
            Progress::More => return TurnResult::Later(Continuation::Flush(flush)),
            Progress::Done => reply::numbered(out, b"FLUSHED", flush.done),
        },
        Continuation::FindReserved(mut find) => match context.engine.peek_reserved(client, &mut find) {
            (Progress::More, _) => return TurnResult::Later(Continuation::FindReserved(find)),
            (Progress::Done, found) => reply::job(out, b"FOUND", found),
        },
        Continuation::ListJobs(mut page) => match context.engine.list_ids(&mut page) {
            None => reply::words(out, reply::NOT_FOUND),
            Some((Progress::More, _)) => return TurnResult::Later(Continuation::ListJobs(page)),
            Some((Progress::Done, ids)) => reply::list(out, yaml::ids(&ids)),
        },
        Continuation::Move(mut moving) => match context.engine.move_jobs(client, &mut moving, now) {
            Ok(Progress::More) => return TurnResult::Later(Continuation::Move(moving)),
            Ok(Progress::Done) => reply::numbered(out, b"MOVED", moving.done),
            Err(_) => reply::words(out, reply::OUT_OF_MEMORY),
        },
        Continuation::StatsTube(mut find) => match context.engine.find_oldest(&mut find) {
            Progress::More => return TurnResult::Later(Continuation::StatsTube(find)),
            Progress::Done => {
                let tube = context.engine.tube_stats(find.tube(), now);
                reply::yaml(out, tube.map(|tube| yaml::tube_with_times(&tube, find.ages(now))));
            }
        },
    }
    TurnResult::NEXT
}

/// All in one turn, so that what is reserved together is in the log together.
fn reserve_batch(count: usize, timeout: Option<Span>, context: &mut Context, out: &mut Output) -> TurnResult {
    // Nobody waits for a client that will say nothing more.
    let timeout = timeout.filter(|_| !context.half_closed).unwrap_or(Span::ZERO);
    let Context { engine, settings, client, now, .. } = context;
    engine.set_batch(*client, true);
    let mut jobs = Output::new();
    match engine.reserve(*client, Some(timeout), *now) {
        Reserve::Waiting => return TurnResult::Now(Flow::Wait),
        Reserve::NoJob(why) => {
            reply::no_job_of(out, why, true);
            return TurnResult::NEXT;
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
    TurnResult::NEXT
}

fn delete_batch(
    ids: Box<[JobId]>,
    mut at: usize,
    mut deleted: u64,
    context: &mut Context,
    out: &mut Output,
) -> TurnResult {
    // From the last one on: jobs that were reserved together stand in that order, so none moves into a gap.
    while let Some(&id) = ids.len().checked_sub(at + 1).and_then(|place| ids.get(place)) {
        let may = guard::may_delete(context, id);
        deleted += u64::from(may && context.engine.delete(context.client, id, context.now));
        context.engine.take_steps(DELETE_STEPS);
        at += 1;
        if context.engine.steps().are_used_up() && at < ids.len() {
            return TurnResult::Later(Continuation::Delete(ids, at, deleted));
        }
    }
    reply::pair(out, b"DELETED_BATCH", deleted, ids.len() as u64 - deleted);
    TurnResult::NEXT
}

fn wait(id: JobId, timeout: Span, context: &mut Context, out: &mut Output) -> TurnResult {
    let timeout = if context.half_closed { Span::ZERO } else { timeout };
    context.engine.set_batch(context.client, false);
    match context.engine.wait_end(context.client, id, timeout, context.now) {
        JobEnd::Waiting => return TurnResult::Now(Flow::Wait),
        JobEnd::Buried => reply::numbered(out, b"BURIED", id.0),
        JobEnd::NotFound => reply::words(out, reply::NOT_FOUND),
        JobEnd::TimedOut => reply::no_job_of(out, NoJob::TimedOut, false),
        JobEnd::OutOfMemory => reply::words(out, reply::OUT_OF_MEMORY),
    }
    TurnResult::NEXT
}
