//! Execution of Workq requests, and events for clients.

use super::commands::{Command, Request, Submission};
use super::fields::{find, name_of};
use super::inspect::{self, ttr_of};
use super::{reply, Uuid};
use crate::engine::{
    Awaited, Body, CompletionPolicy, DedupKey, Engine, Event, JobId, JobOptions, JobView, NewJob, NotCompleted,
    Outcome, Progress, Refused, Reserve, Span, State, Time,
};
use crate::protocol::dialogue::Command as AnyCommand;
use crate::protocol::{ClientInfo, Context, Flow, Output};

pub fn execute(mut request: Request, context: &mut Context, out: &mut Output) -> Flow {
    match &mut request.command {
        Command::Add(job) => add(job, request.data, context, out),
        Command::Run { id, name, ttr, pri, wait } => {
            let job = NewJob { pri: *pri, delay: Span::ZERO, ttr: *ttr, body: request.data };
            return run(*id, name, job, *wait, context, out);
        }
        Command::Result(id, wait) => return result(*id, *wait, context, out),
        Command::Lease(names, wait) => {
            match context.engine.watch_only(context.client, names, context.now) {
                Ok(Progress::Done) => return lease(*wait, context, out),
                Ok(Progress::More) => return resume(request),
                Err(_) => reply::words(out, reply::TOO_MANY_NAMES),
            };
        }
        Command::Complete(id, done) => complete_job(*id, *done, request.data, context, out),
        Command::Delete(id) => {
            let deleted =
                find(context.engine, id).is_some_and(|job| context.engine.delete_in_any_state(job, context.now));
            reply::words(out, if deleted { reply::OK } else { reply::NOT_FOUND });
        }
        Command::InspectServer => inspect::server(context, out),
        Command::InspectQueues(page) => match inspect::queues(context, page, out) {
            Progress::More => return resume(request),
            Progress::Done => {}
        },
        Command::InspectQueue(name) => inspect::queue(context, name, out),
        Command::InspectJobs(name, page) => match inspect::jobs(context, name, page, out) {
            Progress::More => return resume(request),
            Progress::Done => {}
        },
        Command::InspectJob(id) => inspect::job(context, id, out),
        Command::Refused(answer) => reply::words(out, answer),
        Command::Close(answer) => {
            reply::words(out, answer.unwrap_or_default());
            return Flow::Close;
        }
    }
    Flow::Next
}

fn resume(request: Request) -> Flow {
    Flow::resume(AnyCommand::Workq(Box::new(request)))
}

fn add(job: &Submission, payload: Body, context: &mut Context, out: &mut Output) {
    let start = job.time.map(|time| start(time, job.ttl, context.now));
    if matches!(start, Some(None)) {
        return reply::words(out, reply::INVALID_TIME);
    }
    let options = JobOptions {
        completion: CompletionPolicy::Keep,
        dedup_key: DedupKey::Id(job.id),
        durable: true,
        start: start.flatten(),
        ttl: job.ttl,
        max_attempts: job.max_attempts,
        max_fails: job.max_fails,
        ..JobOptions::default()
    };
    let new = NewJob { pri: job.pri, delay: Span::ZERO, ttr: job.ttr, body: payload };
    let submitted = context.engine.submit(context.client, &job.name, new, options, context.now);
    reply::words(out, submitted.map_or_else(refusal, |_| reply::OK));
}

/// Returns `None` if the job has expired. Never returns `Time::NEVER`, because a job with this time would never start.
fn start(nanos: i128, ttl: Span, now: Time) -> Option<Time> {
    let last = i128::from(Time::NEVER.nanos() - 1);
    let is_expired = ttl != Span::MAX && nanos + i128::from(ttl.nanos()) <= i128::from(now.nanos());
    (!is_expired).then(|| Time::from_nanos(nanos.clamp(0, last) as u64))
}

fn refusal(refused: Refused) -> reply::Words {
    match refused {
        Refused::Duplicate => reply::DUPLICATE_JOB,
        Refused::Draining => reply::DRAINING,
        Refused::OutOfMemory => reply::OUT_OF_MEMORY,
        Refused::QueueFull => reply::QUEUE_FULL,
    }
}

fn run(id: Uuid, name: &[u8], job: NewJob, wait: Span, context: &mut Context, out: &mut Output) -> Flow {
    let wait = context.effective_wait(wait);
    let is_leased = |job: JobView| job.state() == State::Reserved;
    match context.engine.run(context.client, name, job, id, wait, context.now) {
        Err(refused) => reply::words(out, refusal(refused)),
        Ok(job) if wait == Span::ZERO && !context.engine.job(job).is_some_and(is_leased) => {
            context.engine.cancel_wait(context.client);
            reply::words(out, reply::TIMEOUT);
        }
        Ok(_) => return await_outcome(id, context),
    }
    Flow::Next
}

/// Stores the UUID for the reply, because the job may be deleted before the reply.
fn await_outcome(id: Uuid, context: &mut Context) -> Flow {
    if let Some(client) = context.registry.get_mut(context.client) {
        client.awaited = id;
    }
    Flow::Wait
}

fn result(id: Uuid, wait: Span, context: &mut Context, out: &mut Output) -> Flow {
    let wait = context.effective_wait(wait);
    let job = find(context.engine, &id);
    match context.engine.wait_outcome(context.client, job, wait, context.now) {
        Awaited::Known(job) => send_outcome(id, job.id(), context.engine, out),
        Awaited::NotFound => reply::words(out, reply::NOT_FOUND),
        Awaited::TimedOut => reply::words(out, reply::TIMEOUT),
        Awaited::Waiting => return await_outcome(id, context),
    }
    Flow::Next
}

#[expect(clippy::expect_used, reason = "`wait_outcome` has just returned this job with its outcome")]
fn send_outcome(id: Uuid, job: JobId, engine: &Engine, out: &mut Output) {
    let job = engine.any_job(job).expect("an existing job");
    let (done, result) = engine.outcome(&job).expect("a finished job");
    reply::outcome(out, &id, done, result.len());
    let body = job.body();
    reply::part(out, body, body.len() - result.len()..body.len());
}

fn lease(wait: Span, context: &mut Context, out: &mut Output) -> Flow {
    let wait = context.effective_wait(wait);
    match context.engine.reserve(context.client, Some(wait), context.now) {
        Reserve::Job(job) => send_leased(job.id(), context.engine, out),
        Reserve::NoJob(_) => reply::words(out, reply::TIMEOUT),
        Reserve::Waiting => return Flow::Wait,
    }
    Flow::Next
}

#[expect(clippy::expect_used, reason = "the engine leased this job in this turn, and no other verb came after it")]
fn send_leased(id: JobId, engine: &Engine, out: &mut Output) {
    let job = engine.job(id).expect("a job that was just leased");
    reply::leased(out, &name_of(engine, &job), engine.tube_of(&job), ttr_of(engine, &job), job.body());
}

fn complete_job(id: Uuid, done: bool, result: Body, context: &mut Context, out: &mut Output) {
    let completed = find(context.engine, &id).ok_or(NotCompleted::NotFound).and_then(|job| {
        let is_gearman = context.engine.any_job(job).is_some_and(|job| job.completion == CompletionPolicy::Tell);
        let outcome = match done {
            true => Outcome::Done(result),
            // An exception is the only way to report the reason to Gearman clients.
            false if is_gearman && !result.is_empty() => Outcome::Fault(result),
            false => Outcome::Failed(result),
        };
        context.engine.complete(job, outcome, context.now)
    });
    let answer = match completed {
        Ok(()) => reply::OK,
        Err(NotCompleted::NotFound) => reply::NOT_FOUND,
        Err(NotCompleted::Final) => reply::DUPLICATE_RESULT,
        Err(NotCompleted::OutOfMemory) => reply::OUT_OF_MEMORY,
    };
    reply::words(out, answer);
}

pub fn notify(event: &Event, engine: &Engine, client: &ClientInfo, out: &mut Output) {
    match event {
        Event::Reserved { job, .. } => send_leased(*job, engine, out),
        Event::NoJob { .. } => reply::words(out, reply::TIMEOUT),
        Event::Outcome { outcome, .. } => match &**outcome {
            Outcome::Done(result) => outcome_event(&client.awaited, true, result, out),
            Outcome::Failed(result) | Outcome::Fault(result) => outcome_event(&client.awaited, false, result, out),
            Outcome::Gone => reply::words(out, reply::NOT_FOUND),
        },
        // Workq clients do not receive these events.
        Event::Report { .. } | Event::Work { .. } | Event::Freed { .. } | Event::DeadLetterStays { .. } => {}
    }
}

fn outcome_event(id: &Uuid, done: bool, result: &Body, out: &mut Output) {
    reply::outcome(out, id, done, result.len());
    reply::part(out, result.borrow(), 0..result.len());
}
