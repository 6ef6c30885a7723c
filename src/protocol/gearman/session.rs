//! Execution of Gearman commands, and events for clients.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::admin::{self, AdminCommand};
use super::command::{Command, Submission, When, Work};
use super::kind::Kind;
use super::listing::{self, Cursor};
use super::reply::{self, job_of};
use crate::access::Need;
use crate::engine::{
    Body, CompletionPolicy, Dropped, Engine, Event, Grab, JobId, JobOptions, JobView, NewJob, NotCompleted, Outcome,
    Progress, Refused, Report, Span, State,
};
use crate::protocol::dialogue::Command as AnyCommand;
use crate::protocol::text::strtoll;
use crate::protocol::{ClientInfo, Context, Flow, Host, Output};

pub fn execute(command: Command, context: &mut Context, out: &mut Output) -> Flow {
    match command {
        Command::Text(command) => return text(command, context, out),
        Command::OutOfSync => return Flow::Close,
        Command::Refused(fault) => {
            reply::error(out, &fault);
            if fault.closes {
                return Flow::Close;
            }
        }
        Command::Submit(submission) => submit(*submission, context, out),
        Command::Grab(kind) => return grab(kind, context, out),
        Command::Work(work) => return self::work(work, context, out),
        Command::Echo(data) => {
            context.engine.reply_shares(&data);
            reply::packet(out, Kind::EchoRes, &[], Some(data.borrow()));
        }
        Command::GetStatus(handle) => {
            let job = job_of(&handle, &context.host.facts().handle_prefix).and_then(|id| context.engine.job(id));
            reply::status(out, Kind::StatusRes, &handle, status(context.engine, job));
        }
        Command::GetStatusUnique(unique, mut search) => {
            let Context { engine, access, .. } = context;
            let sees = |tube: &[u8]| access.as_ref().is_none_or(|it| it.check(Need::FOLLOW_JOB, Some(tube)).is_ok());
            let mut steps = engine.steps();
            let progress = engine.find_name(&unique, sees, &mut search, &mut steps);
            engine.take_steps(engine.steps().left() - steps.left());
            if progress == Progress::More {
                return Flow::resume(AnyCommand::Gearman(Command::GetStatusUnique(unique, search)));
            }
            let job = search.found.and_then(|id| context.engine.job(id));
            reply::status(out, Kind::StatusResUnique, &unique, status(context.engine, job));
        }
        Command::CantDo(function) => {
            context.engine.ignore(context.client, &function, context.now);
            return execute(Command::GiveBack(Some(function), None), context, out);
        }
        Command::ResetAbilities => match context.engine.unwatch_all(context.client, context.now) {
            Progress::More => return unless_done(Progress::More, || Command::ResetAbilities),
            Progress::Done => return execute(Command::GiveBack(None, None), context, out),
        },
        Command::GiveBack(function, mut cursor) => {
            let progress = context.engine.give_back(context.client, function.as_deref(), &mut cursor, context.now);
            return unless_done(progress, || Command::GiveBack(function, cursor));
        }
        Command::Report(id, report) => {
            let progress = context.engine.report_on(context.client, id, &report, context.now);
            return unless_done(progress, || Command::Report(id, report));
        }
        Command::List(kind, mut cursor) => {
            return unless_done(listing::list(kind, &mut cursor, context, out), || Command::List(kind, cursor));
        }
        Command::CanDo { function, limit } => can_do(&function, limit, context, out),
        Command::PreSleep => {
            if context.engine.sleep(context.client, context.now) {
                reply::packet(out, Kind::Noop, &[], None);
            }
        }
        Command::SetClientId(id) => {
            if let Some(client) = context.registry.get_mut(context.client) {
                client.name = id;
            }
        }
        Command::Option(option) => set_option(&option, context, out),
    }
    Flow::Next
}

fn unless_done(progress: Progress, command: impl FnOnce() -> Command) -> Flow {
    match progress {
        Progress::Done => Flow::Next,
        Progress::More => Flow::resume(AnyCommand::Gearman(command())),
    }
}

fn can_do(function: &[u8], limit: Option<NonZeroU64>, context: &mut Context, out: &mut Output) {
    let Context { engine, client, now, settings, .. } = context;
    let limit = limit.map(|limit| match settings.timeouts_in_seconds {
        true => Span::from_secs(limit.get()),
        // gearmand has the same minimum of one second.
        false => Span::from_millis(limit.get().max(1000)),
    });
    match engine.watch_limited(*client, function, limit, *now) {
        // Keep the tube, so that lists show the function even if no client uses it. See [`Engine::keep_tube`].
        Ok(_) => _ = engine.keep_tube(*client, function),
        Err(_) => reply::error(out, &reply::MANY_FUNCTIONS),
    }
}

fn set_option(option: &[u8], context: &mut Context, out: &mut Output) {
    if !option.eq_ignore_ascii_case(b"exceptions") {
        return reply::error(out, &reply::UNKNOWN_OPTION);
    }
    if let Some(client) = context.registry.get_mut(context.client) {
        client.exceptions = true;
    }
    reply::packet(out, Kind::OptionRes, &[option], None);
}

fn submit(submission: Submission, context: &mut Context, out: &mut Output) {
    let start = match submission.when {
        When::Now => None,
        When::At(time) => Some(time),
        When::On(schedule) => match schedule.next(context.now) {
            Some(time) => Some(time),
            None => return reply::error(out, &reply::WRONG_SCHEDULE),
        },
    };
    let options = JobOptions {
        completion: CompletionPolicy::Tell,
        dedup_key: submission.unique,
        durable: submission.background,
        start: start.filter(|start| *start > context.now),
        reducer: submission.reducer,
        attach: !submission.background,
        ..JobOptions::default()
    };
    let job = NewJob { pri: submission.pri, delay: Span::ZERO, ttr: Span::MAX, body: submission.body };
    let fault = match context.engine.submit(context.client, &submission.function, job, options, context.now) {
        Ok(submitted) => {
            let _ = context.engine.keep_tube(context.client, &submission.function);
            let handle = reply::handle(&context.host.facts().handle_prefix, submitted.id);
            return reply::packet(out, Kind::JobCreated, &[&handle], None);
        }
        Err(Refused::QueueFull) => reply::QUEUE_FULL,
        Err(Refused::Draining) => reply::DRAINING,
        Err(Refused::OutOfMemory | Refused::Duplicate) => reply::QUEUE_MEMORY,
    };
    reply::error(out, &fault);
}

fn grab(kind: Kind, context: &mut Context, out: &mut Output) -> Flow {
    match context.engine.grab(context.client, context.now) {
        Grab::More => return unless_done(Progress::More, || Command::Grab(kind)),
        Grab::NoJob => reply::packet(out, Kind::NoJob, &[], None),
        Grab::Job(job) => assign(kind, job.id(), context, out),
    }
    Flow::Next
}

fn assign(kind: Kind, id: JobId, context: &Context, out: &mut Output) {
    let engine = &*context.engine;
    let Some(job) = engine.job(id) else { return };
    let extras = engine.extras(&job);
    let reducer = extras.and_then(|extras| extras.reducer());
    let handle = reply::handle(&context.host.facts().handle_prefix, id);
    let mut parts: Vec<&[u8]> = vec![&handle, b"\0", engine.tube_of(&job), b"\0"];
    let unique = extras.map_or(Vec::new(), |extras| listing::unique(&extras.dedup_key));
    let kind = if kind == Kind::JobAssignAll && reducer.is_none() { Kind::JobAssignUniq } else { kind };
    if kind != Kind::JobAssign {
        parts.extend([unique.as_slice(), b"\0".as_slice()]);
    }
    if let (Kind::JobAssignAll, Some(reducer)) = (kind, reducer) {
        parts.extend([reducer, b"\0".as_slice()]);
    }
    reply::packet(out, kind, &parts, Some(job.body()));
}

/// Only the worker that has reserved the job may send a WORK_* packet.
fn work(work: Work, context: &mut Context, out: &mut Output) -> Flow {
    let Context { engine, registry, client, now, host, .. } = context;
    let Work { kind, handle, body } = work;
    let Some(id) = job_of(&handle, &host.facts().handle_prefix) else { return unknown_job(kind, out) };
    let outcome = match kind {
        Kind::WorkComplete => Ok(Outcome::Done(body)),
        Kind::WorkFail => Ok(Outcome::Failed(body)),
        Kind::WorkException => Ok(Outcome::Fault(body)),
        Kind::WorkWarning => Err(Report::Warning(body)),
        Kind::WorkStatus => Err(progress(body)),
        _ => Err(Report::Data(body)),
    };
    let outcome = match outcome.map_err(Arc::new) {
        Ok(outcome) => outcome,
        Err(report) if engine.report(*client, id, &report, *now) => {
            return execute(Command::Report(id, report), context, out)
        }
        Err(_) => return unknown_job(kind, out),
    };
    let mut unknown = None;
    let last_exception = registry.get_mut(*client).map_or(&mut unknown, |client| &mut client.last_exception);
    match engine.finish(*client, id, outcome, *now) {
        Ok(()) => *last_exception = Some(id).filter(|_| kind == Kind::WorkException),
        Err(NotCompleted::OutOfMemory) => {
            // If there is no memory for the result, disconnect the worker, so that the job becomes ready again.
            reply::error(out, &reply::NO_MEMORY);
            return Flow::Close;
        }
        // Some workers send WORK_FAIL after a WORK_EXCEPTION, which has already ended the job.
        Err(_) if kind == Kind::WorkFail && *last_exception == Some(id) => *last_exception = None,
        Err(_) => return unknown_job(kind, out),
    }
    Flow::Next
}

fn unknown_job(kind: Kind, out: &mut Output) -> Flow {
    let fault = match kind {
        Kind::WorkException => reply::NO_EXCEPTION_JOB,
        Kind::WorkData | Kind::WorkWarning => reply::NO_DATA_JOB,
        _ => reply::NO_RESULT_JOB,
    };
    reply::error(out, &fault);
    Flow::Next
}

/// GET_STATUS reports the two numbers of the text, limited to 32 bits. Waiting clients receive the text unchanged.
fn progress(text: Body) -> Report {
    let mut numbers = text.bytes().split(|&byte| byte == 0).map(|text| strtoll(text).unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0).clamp(0, u32::MAX.into()) as u32;
    let (done, total) = (next(), next());
    drop(numbers);
    Report::Progress { text, done, total }
}

fn status(engine: &Engine, job: Option<JobView>) -> [u64; 5] {
    // Clients poll until the job is unknown, so a buried job must look finished until it is kicked.
    let Some(job) = job.filter(|job| job.state() != State::Buried) else { return [0; 5] };
    let extras = engine.extras(&job);
    let (done, total) = extras.map_or((0, 0), |extras| extras.progress());
    let waiting = extras.map_or(0, |extras| extras.submitters());
    [1, (job.state() == State::Reserved).into(), done.into(), total.into(), waiting as u64]
}

fn text(command: AdminCommand, context: &mut Context, out: &mut Output) -> Flow {
    let Context { engine, client, now, settings, host, .. } = context;
    let facts = host.facts();
    let answer = match command {
        AdminCommand::Version => &format!("OK {}\n", facts.version),
        AdminCommand::Getpid => &format!("OK {}\n", facts.pid),
        // Of gearmand's log levels, this level is closest to this server's default.
        AdminCommand::Verbose => "OK NOTICE\n",
        AdminCommand::CancelJob(handle) => match job_of(&handle, &facts.handle_prefix) {
            Some(id) if engine.cancel(id, *now) => "OK\r\n",
            _ => "ERR UNKNOWN_JOB\r\n",
        },
        AdminCommand::CreateFunction(name) if engine.keep_tube(*client, &name).is_ok() => "OK\r\n",
        AdminCommand::CreateFunction(_) => "ERR QUEUE_ERROR Too+many+functions\r\n",
        AdminCommand::DropFunction(name) => match engine.drop_tube(&name) {
            Dropped::Done => "OK\r\n",
            Dropped::Unknown => "ERR function not found\r\n",
            Dropped::InUse => "ERR there are still connected workers or executing clients\r\n",
        },
        AdminCommand::Maxqueue(name, sizes) => {
            engine.limit_tube(&name, sizes, *now);
            "OK\r\n"
        }
        AdminCommand::Shutdown { graceful } if settings.allow_shutdown => {
            out.text().extend_from_slice(b"OK\n");
            return Flow::Stop { graceful };
        }
        AdminCommand::Shutdown { .. } => return text(admin::unknown(b"shutdown"), context, out),
        AdminCommand::Wrong(answer) => {
            out.text().extend_from_slice(&answer);
            return Flow::Next;
        }
        AdminCommand::List(kind) => return execute(Command::List(kind, Cursor::default()), context, out),
    };
    out.text().extend_from_slice(answer.as_bytes());
    Flow::Next
}

pub fn notify(event: &Event, client: &ClientInfo, host: &dyn Host, out: &mut Output) {
    let (job, kind, data) = match event {
        Event::Work { .. } => return reply::packet(out, Kind::Noop, &[], None),
        Event::Outcome { job, outcome, .. } => match &**outcome {
            Outcome::Done(result) => (job, Kind::WorkComplete, Some(result)),
            Outcome::Fault(why) if client.exceptions => (job, Kind::WorkException, Some(why)),
            Outcome::Failed(_) | Outcome::Fault(_) | Outcome::Gone => (job, Kind::WorkFail, None),
        },
        Event::Report { job, report, .. } => match &**report {
            Report::Data(data) => (job, Kind::WorkData, Some(data)),
            Report::Warning(data) => (job, Kind::WorkWarning, Some(data)),
            Report::Progress { text, .. } => (job, Kind::WorkStatus, Some(text)),
        },
        // Gearman clients do not receive these events.
        Event::Reserved { .. } | Event::NoJob { .. } | Event::Freed { .. } | Event::DeadLetterStays { .. } => return,
    };
    let handle = reply::handle(&host.facts().handle_prefix, *job);
    let nul: &[u8] = if data.is_some() { b"\0" } else { b"" };
    reply::packet(out, kind, &[&handle, nul], data.map(Body::borrow));
}
