//! The replies to the `inspect` commands. Each block states its number of lines, on which clients depend.

use super::fields::{find, is_name, millis, name_of, push_time, shown_priority, MAX_TTR};
use super::{reply, Uuid};
use crate::engine::{
    push_uuid, Engine, Job, JobId, JobPage, JobView, NamePage, Page, Progress, Span, State, TubeStats, DEFAULT,
};
use crate::protocol::text::push_number;
use crate::protocol::{sees, Context, Output};

fn field(text: &mut Vec<u8>, key: &str, push: impl FnOnce(&mut Vec<u8>)) {
    text.extend_from_slice(key.as_bytes());
    text.push(b' ');
    push(text);
    text.extend_from_slice(b"\r\n");
}

fn line(text: &mut Vec<u8>, key: &str, value: u64) {
    field(text, key, |text| push_number(text, value));
}

pub fn server(context: &Context, out: &mut Output) {
    let stats = context.stats();
    reply::count(out, 1);
    let text = out.text();
    text.extend_from_slice(b"server 3\r\n");
    line(text, "active-clients", stats.connections as u64);
    line(text, "evicted-jobs", stats.evicted);
    field(text, "started", |text| push_time(text, context.host.facts().started));
}

fn queue_block(out: &mut Output, name: &[u8], stats: &TubeStats) {
    let text = out.text();
    text.extend_from_slice(name);
    text.extend_from_slice(b" 2\r\n");
    line(text, "ready-len", stats.jobs.ready - stats.large);
    line(text, "scheduled-len", stats.jobs.delayed);
}

pub fn queue(context: &Context, name: &[u8], out: &mut Output) {
    let Some(stats) = context.engine.tube_stats(name, context.now) else { return reply::words(out, reply::NOT_FOUND) };
    reply::count(out, 1);
    queue_block(out, name, &stats);
}

/// Omits tubes whose names are not valid in Workq, because they could break the reply.
pub fn queues(context: &mut Context, page: &mut NamePage, out: &mut Output) -> Progress {
    let Context { engine, access, now, .. } = context;
    let shown = |tube: &TubeStats| {
        // All clients use the default tube at first, so it is listed only after it has had a job.
        is_name(tube.name) && !(tube.name == DEFAULT && tube.total_jobs == 0) && sees(access, tube.name)
    };
    let Some(names) = engine.tubes_of(page, *now, shown) else { return Progress::More };
    let engine = &context.engine;
    let found = names.iter().filter_map(|name| Some((name, engine.tube_stats(name, context.now)?)));
    let found: Vec<_> = found.collect();
    reply::count(out, found.len());
    found.iter().for_each(|(name, stats)| queue_block(out, name, stats));
    Progress::Done
}

pub fn jobs(context: &mut Context, name: &[u8], page: &mut JobPage, out: &mut Output) -> Progress {
    let found: Vec<JobId> = match context.engine.jobs_of(name, page) {
        Page::More => return Progress::More,
        Page::NotFound => return Progress::Done.then(|| reply::words(out, reply::NOT_FOUND)),
        Page::Jobs(jobs) => jobs.iter().map(|job| job.id()).collect(),
    };
    let engine = &*context.engine;
    reply::count(out, found.len());
    found.into_iter().filter_map(|id| engine.job(id)).for_each(|job| job_block(engine, &job, out));
    Progress::Done
}

pub fn job(context: &Context, id: &Uuid, out: &mut Output) {
    let engine = &context.engine;
    let job = find(engine, id).and_then(|job| engine.any_job(job));
    let Some(job) = job else { return reply::words(out, reply::NOT_FOUND) };
    reply::count(out, 1);
    job_block(engine, &job, out);
}

fn job_block(engine: &Engine, job: &JobView, out: &mut Output) {
    let extras = engine.extras(job);
    let start = extras.and_then(|extras| extras.start());
    // For a delayed job of another protocol, show the end of the delay.
    let time = start.or((job.state() == State::Delayed).then(|| job.due()));
    let text = out.text();
    push_uuid(text, &name_of(engine, job));
    text.extend_from_slice(if time.is_some() { b" 13\r\nname " } else { b" 12\r\nname " });
    // A tube name from another protocol can contain any byte, including line breaks.
    text.extend(engine.tube_of(job).iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b'?' }));
    text.extend_from_slice(b"\r\n");
    line(text, "ttr", ttr_of(engine, job));
    line(text, "ttl", shown_ttl(engine, job));
    let payload = engine.payload_len(job);
    line(text, "payload-size", payload as u64);
    text.extend_from_slice(b"payload ");
    reply::part(out, job.body(), 0..payload);
    let text = out.text();
    let count = |of: fn(&crate::engine::JobExtras) -> u8| extras.map_or(0, of).into();
    line(text, "max-attempts", count(|extras| extras.max_attempts));
    line(text, "attempts", job.history().reserves.into());
    line(text, "max-fails", count(|extras| extras.max_fails));
    line(text, "fails", job.fails.into());
    text.extend_from_slice(format!("priority {}\r\n", shown_priority(job.priority())).as_bytes());
    line(text, "state", state(engine, job));
    field(text, "created", |text| push_time(text, job.created));
    time.into_iter().for_each(|time| field(text, "time", |text| push_time(text, time)));
}

/// Returns at most `MAX_TTR` milliseconds. Jobs of other protocols can have longer times.
pub fn ttr_of(engine: &Engine, job: &Job) -> u64 {
    millis(engine.lease_of(job)).min(MAX_TTR)
}

/// Returns the time to live in milliseconds, or 0 if there is none. In a job from `add` or `schedule`, [`Span::MAX`]
/// stands for a time beyond the clock's range, and is shown as [`u64::MAX`].
fn shown_ttl(engine: &Engine, job: &Job) -> u64 {
    match engine.extras(job) {
        Some(extras) if extras.ttl != Span::MAX => millis(extras.ttl),
        Some(extras) if extras.id().is_some() && !job.is_volatile() => u64::MAX,
        _ => 0,
    }
}

/// Returns 0 for new, 1 for completed, 2 for failed, 3 for pending again or buried, and 4 for leased jobs.
fn state(engine: &Engine, job: &JobView) -> u64 {
    match job.state() {
        State::Finished if matches!(engine.outcome(job), Some((true, _))) => 1,
        State::Finished => 2,
        State::Reserved => 4,
        State::Buried => 3,
        State::Ready | State::Delayed | State::Held if job.history().reserves > 0 => 3,
        State::Ready | State::Delayed | State::Held | State::Scheduled => 0,
    }
}
