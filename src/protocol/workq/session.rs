//! The execution of requests.
//!
//! Owns the mapping of commands to verbs of the engine, and of results to replies; `inspect` owns inspections. Must not
//! know how bytes arrive or leave.

use super::command::{Command, Submission};
use super::lookup::{find, name_of, ttr_of};
use super::request::Request;
use super::uuid::Uuid;
use super::{inspect, reply};
use crate::access::Denied;
use crate::engine::{
    Awaited, Body, CompletionPolicy, DedupKey, Engine, Event, JobId, JobOptions, NewJob, NotCompleted, Outcome,
    Progress, Refused, Reserve, Span, State, Time,
};
use crate::protocol::guard::Subject;
use crate::protocol::{self, ClientInfo, Context, Flow, Output};

/// Executes one request and appends its reply, unless the client starts to wait for it.
pub fn execute(mut request: Request, context: &mut Context, out: &mut Output) -> Flow {
    match &mut request.command {
        Command::Add(job) => add(job, request.data, context, out),
        Command::Run { id, name, ttr, pri, wait } => {
            let job = NewJob { pri: *pri, delay: Span::ZERO, ttr: *ttr, body: request.data };
            return run(*id, name, job, *wait, context, out);
        }
        Command::Result { id, wait } => return result(*id, *wait, context, out),
        Command::Lease { names, wait } => {
            match context.engine.watch_only(context.client, names, context.now) {
                Ok(Progress::Done) => return lease(*wait, context, out),
                Ok(Progress::More) => return again(request),
                Err(_) => reply::words(out, reply::TOO_MANY_NAMES),
            };
        }
        Command::Complete { id, done } => complete_job(*id, *done, request.data, context, out),
        Command::Delete(id) => {
            let gone = find(context.engine, id).is_some_and(|job| context.engine.delete_in_any_state(job, context.now));
            reply::words(out, if gone { reply::OK } else { reply::NOT_FOUND });
        }
        Command::InspectServer => inspect::server(context, out),
        Command::InspectQueues(page) => {
            if inspect::queues(context, page, out) == Progress::More {
                return again(request);
            }
        }
        Command::InspectQueue(name) => inspect::queue(context, name, out),
        Command::InspectJobs { name, page } => {
            if inspect::jobs(context, name, page, out) == Progress::More {
                return again(request);
            }
        }
        Command::InspectJob(id) => inspect::job(context, id, out),
        Command::Refused(answer) => reply::words(out, answer),
        Command::Close(answer) => {
            reply::words(out, answer.unwrap_or_default());
            return Flow::Close;
        }
    }
    Flow::Next
}

fn again(request: Request) -> Flow {
    Flow::again(protocol::Request::Workq(Box::new(request)))
}

impl Request {
    pub fn subject(&self, context: &Context) -> Subject<'_> {
        match &self.command {
            Command::Add(submission) => Subject::Tube(&submission.name),
            Command::Run { name, .. } | Command::InspectQueue(name) | Command::InspectJobs { name, .. } => {
                Subject::Tube(name)
            }
            Command::Lease { names, .. } => Subject::Tubes(&names.names),
            Command::Result { id, .. }
            | Command::Complete { id, .. }
            | Command::Delete(id)
            | Command::InspectJob(id) => Subject::Job(find(context.engine, id)),
            _ => Subject::Nothing,
        }
    }
}

pub fn deny(denied: Denied, out: &mut Output) {
    match denied {
        Denied::Unknown => reply::words(out, reply::UNAUTHORIZED),
        Denied::Forbidden => reply::words(out, reply::FORBIDDEN),
    }
}

fn add(job: &Submission, payload: Body, context: &mut Context, out: &mut Output) {
    let start = match job.time.map(|time| start(time, job.ttl, context.now)) {
        None => None,
        Some(Some(start)) => Some(start),
        Some(None) => return reply::words(out, reply::INVALID_TIME),
    };
    let options = JobOptions {
        completion: CompletionPolicy::Keep,
        dedup_key: DedupKey::Id(job.id),
        durable: true,
        start,
        ttl: job.ttl,
        max_attempts: job.max_attempts,
        max_fails: job.max_fails,
        ..JobOptions::default()
    };
    let new = NewJob { pri: job.pri, delay: Span::ZERO, ttr: job.ttr, body: payload };
    let submitted = context.engine.submit(context.client, &job.name, new, options, context.now);
    reply::words(out, submitted.map_or_else(refusal, |_| reply::OK));
}

/// Returns the time of a schedule, which may be past, but not by more than the time to live. A time beyond the engine's
/// clock becomes its last but one, since the last means never.
fn start(nanos: i128, ttl: Span, now: Time) -> Option<Time> {
    let last = i128::from(Time::NEVER.nanos() - 1);
    let is_over = ttl != Span::MAX && nanos + i128::from(ttl.nanos()) <= i128::from(now.nanos());
    (!is_over).then(|| Time::from_nanos(nanos.clamp(0, last) as u64))
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
    let wait = context.patience(wait);
    let job = match context.engine.run(context.client, name, job, id, wait, context.now) {
        Ok(job) => job,
        Err(refused) => {
            reply::words(out, refusal(refused));
            return Flow::Next;
        }
    };
    let leased = context.engine.job(job).is_some_and(|job| job.state() == State::Reserved);
    if wait == Span::ZERO && !leased {
        context.engine.cancel_wait(context.client);
        reply::words(out, reply::TIMEOUT);
        return Flow::Next;
    }
    await_outcome(id, context)
}

/// The reply will contain the job's current ID, even if the job is gone by then.
fn await_outcome(id: Uuid, context: &mut Context) -> Flow {
    if let Some(peer) = context.registry.get_mut(context.client) {
        peer.awaited = id;
    }
    Flow::Wait
}

fn result(id: Uuid, wait: Span, context: &mut Context, out: &mut Output) -> Flow {
    let wait = context.patience(wait);
    let awaited = match find(context.engine, &id) {
        None => Awaited::NotFound,
        Some(job) => context.engine.wait_outcome(context.client, job, wait, context.now),
    };
    match awaited {
        Awaited::Known(job) => {
            let job = job.id();
            known(id, job, context.engine, out);
        }
        Awaited::NotFound => reply::words(out, reply::NOT_FOUND),
        Awaited::TimedOut => reply::words(out, reply::TIMEOUT),
        Awaited::Waiting => return await_outcome(id, context),
    }
    Flow::Next
}

// `wait_outcome` has just returned this job with its outcome, under the same lock.
#[allow(clippy::expect_used)]
fn known(id: Uuid, job: JobId, engine: &Engine, out: &mut Output) {
    let job = engine.any_job(job).expect("a job that is there");
    let (done, result) = engine.outcome(&job).expect("a job that is over");
    reply::outcome(out, &id, done, result.len());
    let body = job.body();
    reply::part(out, body, body.len() - result.len()..body.len());
}

fn lease(wait: Span, context: &mut Context, out: &mut Output) -> Flow {
    let wait = context.patience(wait);
    match context.engine.reserve(context.client, Some(wait), context.now) {
        Reserve::Job(job) => {
            let id = job.id();
            give(context.engine, id, out);
        }
        Reserve::NoJob(_) => reply::words(out, reply::TIMEOUT),
        Reserve::Waiting => return Flow::Wait,
    }
    Flow::Next
}

// The engine leased this job in this turn, and events are delivered before the next verb.
#[allow(clippy::expect_used)]
fn give(engine: &Engine, id: JobId, out: &mut Output) {
    let job = engine.job(id).expect("a job that was just leased");
    reply::leased(out, &name_of(engine, &job), engine.tube_of(&job), ttr_of(engine, &job), job.body());
}

fn complete_job(id: Uuid, done: bool, result: Body, context: &mut Context, out: &mut Output) {
    let completed = match find(context.engine, &id) {
        None => Err(NotCompleted::NotFound),
        Some(job) => {
            let told = context.engine.any_job(job).is_some_and(|job| job.completion() == CompletionPolicy::Tell);
            let outcome = match done {
                true => Outcome::Done(result),
                // For a Gearman client, only an exception has a text.
                false if told && !result.is_empty() => Outcome::Fault(result),
                false => Outcome::Failed(result),
            };
            context.engine.complete(job, outcome, context.now)
        }
    };
    let answer = match completed {
        Ok(()) => reply::OK,
        Err(NotCompleted::NotFound) => reply::NOT_FOUND,
        Err(NotCompleted::Final) => reply::DUPLICATE_RESULT,
        Err(NotCompleted::OutOfMemory) => reply::OUT_OF_MEMORY,
    };
    reply::words(out, answer);
}

/// Reports an event to the client that waited for it.
pub fn tell(event: &Event, engine: &Engine, peer: &ClientInfo, out: &mut Output) {
    match event {
        Event::Reserved { job, .. } => give(engine, *job, out),
        Event::NoJob { .. } => reply::words(out, reply::TIMEOUT),
        Event::Outcome { outcome, .. } => match &**outcome {
            Outcome::Done(result) => told(&peer.awaited, true, result, out),
            Outcome::Failed(result) | Outcome::Fault(result) => told(&peer.awaited, false, result, out),
            Outcome::Gone => reply::words(out, reply::NOT_FOUND),
        },
        // Messages of a running worker are only for clients that accept messages at any time.
        Event::Report { .. } | Event::Work { .. } | Event::DeadLetterStays { .. } => {}
    }
}

fn told(id: &Uuid, done: bool, result: &Body, out: &mut Output) {
    reply::outcome(out, id, done, result.len());
    reply::body(out, result.borrow());
}
