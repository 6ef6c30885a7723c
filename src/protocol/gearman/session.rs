//! Carrying out packets, and telling clients what happens.
//!
//! Owns which verb a packet becomes and which packet its answer is. Must not know how bytes arrive or leave.

use std::sync::Arc;

use super::admin::{self, Command};
use super::commands::{lenient, Kind};
use super::listing::{self, Place};
use super::names::job_of;
use super::reply::{self, Fault, Status};
use super::request::{Act, Request, Submission, When, Work};
use crate::engine::{
    Body, ClientId, Dropped, Ending, Engine, Event, Grab, JobId, JobView, NewJob, NotConcluded, Outcome, Progress,
    Refused, Report, Span, State, Terms,
};
use crate::protocol::{self, Flow, Host, Output, Peer, Settings, World};

/// What one connection must remember beside the queue.
#[derive(Debug, Default)]
pub struct Session {
    /// The job whose WORK_EXCEPTION was taken last: workers written for the document's old meaning send a WORK_FAIL behind it.
    excepted: Option<JobId>,
}

/// The rest of a command that was too much for one turn.
#[derive(Debug)]
pub enum Continuation {
    /// A list of the text protocol, and how far it is.
    List(Command, Place),
    /// A search for a job in very many functions, and what it is to be answered with.
    Grab(Kind),
    /// A worker can do nothing any more.
    Reset,
    /// The jobs of this function, or of all, that a worker holds and does not want; where to go on.
    GiveBack(Option<Box<[u8]>>, Option<usize>),
    /// Something that a worker says about a job for which very many wait.
    Report(JobId, Arc<Report>),
}

impl Continuation {
    /// Bytes of memory beside itself.
    pub fn footprint(&self) -> u64 {
        match self {
            Continuation::GiveBack(Some(function), _) => function.len() as u64,
            Continuation::Report(_, report) => report.body().len() as u64,
            _ => 0,
        }
    }
}

/// Steps of a search for a unique id in all functions, which may pass thousands.
const SEARCH: u64 = 64;

/// Carries out one request and appends its reply.
pub fn execute(request: Request, session: &mut Session, world: &mut World, out: &mut Output) -> Flow {
    match request.act {
        Act::Text(command) => return text(command, world, out),
        Act::Lost => return Flow::Close,
        Act::Refused(fault) => {
            reply::error(out, &fault);
            if fault.closes {
                return Flow::Close;
            }
        }
        Act::Submit(submission) => submit(*submission, world, out),
        Act::Grab(kind) => return grab(kind, world, out),
        Act::Work(work) => return self::work(work, session, world, out),
        Act::Echo(data) => reply::packet(out, Kind::EchoRes, &[], Some(data.borrow())),
        Act::GetStatus(handle) => {
            let job = job_of(&handle, &world.host.facts().handle_prefix).and_then(|id| world.engine.job(id));
            reply::status(out, Kind::StatusRes, &handle, &status(world.engine, job));
        }
        Act::GetStatusUnique(unique) => {
            world.engine.take_steps(SEARCH);
            let job = world.engine.find_name(&unique).and_then(|id| world.engine.job(id));
            reply::status(out, Kind::StatusResUnique, &unique, &status(world.engine, job));
        }
        Act::CantDo(function) => {
            world.engine.ignore(world.client, &function, world.now);
            return give_back(Some(function), None, world);
        }
        Act::ResetAbilities => return reset(world),
        act => ability(act, world, out),
    }
    Flow::Next
}

/// Goes on with a command in another turn.
pub fn go_on(rest: Continuation, world: &mut World, out: &mut Output) -> Flow {
    match rest {
        Continuation::List(command, place) => list(command, place, world, out),
        Continuation::Grab(kind) => grab(kind, world, out),
        Continuation::Reset => reset(world),
        Continuation::GiveBack(function, place) => give_back(function, place, world),
        Continuation::Report(id, report) => tell_report(id, report, world),
    }
}

fn later(rest: Continuation) -> Flow {
    Flow::Continue(Box::new(protocol::Continuation::Gearman(rest)))
}

fn list(command: Command, mut place: Place, world: &mut World, out: &mut Output) -> Flow {
    match listing::list(&command, &mut place, world, out) {
        Progress::More => later(Continuation::List(command, place)),
        Progress::Done => Flow::Next,
    }
}

fn reset(world: &mut World) -> Flow {
    match world.engine.unwatch_all(world.client, world.now) {
        Progress::More => later(Continuation::Reset),
        Progress::Done => give_back(None, None, world),
    }
}

fn give_back(function: Option<Box<[u8]>>, mut place: Option<usize>, world: &mut World) -> Flow {
    match world.engine.give_back(world.client, function.as_deref(), &mut place, world.now) {
        Progress::More => later(Continuation::GiveBack(function, place)),
        Progress::Done => Flow::Next,
    }
}

fn tell_report(id: JobId, report: Arc<Report>, world: &mut World) -> Flow {
    match world.engine.report_on(world.client, id, &report, world.now) {
        Progress::More => later(Continuation::Report(id, report)),
        Progress::Done => Flow::Next,
    }
}

/// What a worker says about itself.
fn ability(act: Act, world: &mut World, out: &mut Output) {
    let World { engine, client, now, settings, .. } = world;
    let (client, now) = (*client, *now);
    match act {
        Act::CanDo { function, limit } => {
            let limit = limit.map(|limit| limit_of(limit.get(), settings));
            match engine.watch_limited(client, &function, limit, now) {
                Ok(_) => list_for_good(engine, client, &function),
                Err(_) => reply::error(out, &reply::MANY_FUNCTIONS),
            }
        }
        Act::PreSleep => {
            if engine.sleep(client, now) {
                reply::packet(out, Kind::Noop, &[], None);
            }
        }
        Act::SetClientId(id) => {
            if let Some(peer) = world.roster.get_mut(client) {
                peer.name = id;
            }
        }
        Act::Option(option) if option.eq_ignore_ascii_case(b"exceptions") => {
            if let Some(peer) = world.roster.get_mut(client) {
                peer.exceptions = true;
            }
            reply::packet(out, Kind::OptionRes, &[&option], None);
        }
        Act::Option(_) => reply::error(out, &reply::UNKNOWN_OPTION),
        other => unreachable!("{other:?} is carried out elsewhere"),
    }
}

/// The time that a worker gives itself: seconds, or milliseconds, of which gearmand makes a thousand at least.
fn limit_of(number: u64, settings: &Settings) -> Span {
    if settings.timeouts_in_seconds {
        Span::from_secs(number)
    } else {
        Span::from_millis(number.max(1000))
    }
}

/// A function that was once used stays in the lists until it is dropped. Beyond the bound on such names it is in them while it
/// is used, which is no reason to refuse it.
fn list_for_good(engine: &mut Engine, client: ClientId, function: &[u8]) {
    let _ = engine.keep_tube(client, function);
}

fn submit(submission: Submission, world: &mut World, out: &mut Output) {
    let start = match submission.when {
        When::Now => None,
        When::At(time) => Some(time),
        When::On(schedule) => match schedule.next(world.now) {
            Some(time) => Some(time),
            None => return reply::error(out, &reply::WRONG_SCHEDULE),
        },
    };
    let terms = Terms {
        ending: Ending::Tell,
        unique: submission.unique,
        durable: submission.background,
        start: start.filter(|start| *start > world.now),
        reducer: submission.reducer,
        attach: !submission.background,
        ..Terms::default()
    };
    let job = NewJob { pri: submission.pri, delay: Span::ZERO, ttr: Span::MAX, body: submission.body };
    let submitted = world.engine.submit(world.client, &submission.function, job, terms, world.now);
    let fault = match submitted {
        Ok(submitted) => {
            list_for_good(world.engine, world.client, &submission.function);
            let handle = reply::handle(&world.host.facts().handle_prefix, submitted.id);
            return reply::packet(out, Kind::JobCreated, &[&handle], None);
        }
        Err(Refused::QueueFull) => reply::QUEUE_FULL,
        Err(Refused::Draining) => reply::DRAINING,
        Err(Refused::OutOfMemory | Refused::Duplicate) => reply::QUEUE_MEMORY,
    };
    reply::error(out, &fault);
}

fn grab(kind: Kind, world: &mut World, out: &mut Output) -> Flow {
    match world.engine.grab(world.client, world.now) {
        Grab::More => return later(Continuation::Grab(kind)),
        Grab::NoJob => reply::packet(out, Kind::NoJob, &[], None),
        Grab::Job(job) => {
            let id = job.id();
            assign(kind, id, world, out);
        }
    }
    Flow::Next
}

/// Tells a worker of the job that it was just given.
fn assign(kind: Kind, id: JobId, world: &World, out: &mut Output) {
    let engine = &*world.engine;
    let Some(job) = engine.job(id) else { return };
    let contract = engine.contract(&job);
    let reducer = contract.and_then(|contract| contract.reducer());
    let handle = reply::handle(&world.host.facts().handle_prefix, id);
    let mut parts: Vec<&[u8]> = vec![&handle, b"\0", engine.tube_of(&job), b"\0"];
    let unique = contract.map_or(Vec::new(), |contract| listing::unique(contract.unique()));
    let kind = match (kind, reducer) {
        (Kind::JobAssignAll, None) => Kind::JobAssignUniq,
        (kind, _) => kind,
    };
    if kind != Kind::JobAssign {
        parts.extend([unique.as_slice(), b"\0".as_slice()]);
    }
    if let (Kind::JobAssignAll, Some(reducer)) = (kind, reducer) {
        parts.extend([reducer, b"\0".as_slice()]);
    }
    reply::packet(out, kind, &parts, Some(job.body()));
}

/// What a worker says about a job. Only the one that holds it may.
fn work(work: Work, session: &mut Session, world: &mut World, out: &mut Output) -> Flow {
    let World { engine, client, now, host, .. } = world;
    let handle = job_of(&work.handle, &host.facts().handle_prefix);
    let body = work.body;
    let Some(id) = handle else {
        reply::error(out, &unknown_job(work.kind));
        return Flow::Next;
    };
    let outcome = match work.kind {
        Kind::WorkComplete => Outcome::Done(body),
        Kind::WorkFail => Outcome::Failed(body),
        Kind::WorkException => Outcome::Fault(body),
        kind => {
            let report = match kind {
                Kind::WorkWarning => Report::Warning(body),
                Kind::WorkStatus => progress(body),
                _ => Report::Data(body),
            };
            let report = Arc::new(report);
            if engine.report(*client, id, &report, *now) {
                return tell_report(id, report, world);
            }
            reply::error(out, &unknown_job(kind));
            return Flow::Next;
        }
    };
    match engine.finish(*client, id, outcome, *now) {
        Ok(()) => session.excepted = Some(id).filter(|_| work.kind == Kind::WorkException),
        Err(NotConcluded::OutOfMemory) => {
            // The worker is lost, as by a result that is too large to arrive: else its job would stay with it.
            reply::error(out, &reply::NO_MEMORY);
            return Flow::Close;
        }
        Err(_) if work.kind == Kind::WorkFail && session.excepted == Some(id) => session.excepted = None,
        Err(_) => reply::error(out, &unknown_job(work.kind)),
    }
    Flow::Next
}

fn unknown_job(kind: Kind) -> Fault {
    match kind {
        Kind::WorkException => reply::NO_EXCEPTION_JOB,
        Kind::WorkData | Kind::WorkWarning => reply::NO_DATA_JOB,
        _ => reply::NO_RESULT_JOB,
    }
}

/// The numbers are forwarded as text; those that are kept for GET_STATUS are what fits into 32 bits.
fn progress(text: Body) -> Report {
    let mut numbers = text.bytes().split(|&byte| byte == 0).map(|text| lenient(text).unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0).clamp(0, u32::MAX.into()) as u32;
    let (done, total) = (next(), next());
    drop(numbers);
    Report::Progress { text, done, total }
}

fn status(engine: &Engine, job: Option<JobView>) -> Status {
    // One that is buried is over for whoever asks until it is unknown; once it is kicked, there is one again.
    let Some(job) = job.filter(|job| job.state() != State::Buried) else { return Status::default() };
    let contract = engine.contract(&job);
    Status {
        known: true,
        running: job.state() == State::Reserved,
        progress: contract.map_or((0, 0), |contract| contract.progress()),
        waiting: contract.map_or(0, |contract| contract.submitters()),
    }
}

/// Text commands.
fn text(command: Command, world: &mut World, out: &mut Output) -> Flow {
    let host = world.host.facts();
    let line = |out: &mut Output, line: &[u8]| out.text().extend_from_slice(line);
    match command {
        Command::Version => line(out, format!("OK {}\n", host.version).as_bytes()),
        Command::Getpid => line(out, format!("OK {}\n", host.pid).as_bytes()),
        // Its levels are not gearmand's; this is the one that logs what beanpole logs without options.
        Command::Verbose => line(out, b"OK NOTICE\n"),
        Command::Wrong(answer) => line(out, &answer),
        Command::CancelJob(handle) => {
            let id = job_of(&handle, &host.handle_prefix);
            let cancelled = id.is_some_and(|id| world.engine.cancel(id));
            line(out, if cancelled { b"OK\r\n" } else { b"ERR UNKNOWN_JOB\r\n" });
        }
        Command::CreateFunction(name) => match world.engine.keep_tube(world.client, &name) {
            Ok(()) => line(out, b"OK\r\n"),
            Err(_) => line(out, b"ERR QUEUE_ERROR Too+many+functions\r\n"),
        },
        Command::DropFunction(name) => match world.engine.drop_tube(&name) {
            Dropped::Done => line(out, b"OK\r\n"),
            Dropped::Unknown => line(out, b"ERR function not found\r\n"),
            Dropped::InUse => line(out, b"ERR there are still connected workers or executing clients\r\n"),
        },
        Command::Maxqueue(name, sizes) => {
            world.engine.limit_tube(&name, sizes);
            line(out, b"OK\r\n");
        }
        Command::Shutdown { .. } if !world.settings.allow_shutdown => {
            if let Command::Wrong(answer) = admin::unknown(b"shutdown") {
                line(out, &answer);
            }
        }
        Command::Shutdown { graceful } => {
            line(out, b"OK\n");
            return Flow::Stop { graceful };
        }
        command => return list(command, Place::default(), world, out),
    }
    Flow::Next
}

/// Tells the client of an event.
pub fn tell(event: &Event, peer: &Peer, host: &dyn Host, out: &mut Output) {
    match event {
        Event::Work { .. } => reply::packet(out, Kind::Noop, &[], None),
        Event::Outcome { job, outcome, .. } => {
            let handle = reply::handle(&host.facts().handle_prefix, *job);
            match &**outcome {
                Outcome::Done(result) => {
                    reply::packet(out, Kind::WorkComplete, &[&handle, b"\0"], Some(result.borrow()))
                }
                Outcome::Fault(why) if peer.exceptions => {
                    reply::packet(out, Kind::WorkException, &[&handle, b"\0"], Some(why.borrow()));
                }
                Outcome::Failed(_) | Outcome::Fault(_) | Outcome::Gone => {
                    reply::packet(out, Kind::WorkFail, &[&handle], None);
                }
            }
        }
        Event::Report { job, report, .. } => {
            let (kind, data) = match &**report {
                Report::Data(data) => (Kind::WorkData, data),
                Report::Warning(data) => (Kind::WorkWarning, data),
                Report::Progress { text, .. } => (Kind::WorkStatus, text),
            };
            let handle = reply::handle(&host.facts().handle_prefix, *job);
            reply::packet(out, kind, &[&handle, b"\0"], Some(data.borrow()));
        }
        // Nobody here waits for a job.
        Event::Reserved { .. } | Event::NoJob { .. } => {}
    }
}

/// Nobody here is made to wait, so there is no wait to end.
pub fn hang_up(_: &mut World, _: &mut Output) -> bool {
    false
}
