//! `export`: all jobs as lines of JSON, from a server or from a binlog that no server uses. Pauses come before the
//! jobs, so that an import pauses first; settings, and keys that outlive their jobs, come after them. Held jobs come
//! before others, so that none is imported after the last member that it waits for has ended.
//!
//! Owns the comparison of the number of exported jobs with the server's counts. It takes no job and changes none.
//!
//! Promises: P32.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::call::Call;
use super::figures::{of_tubes, tell_refused};
use super::link::{first_word, refusal, Link};
use super::name::written;
use super::opts::BINLOG;
use super::out::{in_order, Out};
use super::problem::{Problem, DONE, REFUSED};
use super::progress::ProgressBar;
use super::record::{key_line, pause_line, settings_line, short, JobLine};
use super::scan::{Scan, Wanted, STATES};
use super::tags::JobTags;
use super::tell;
use super::yaml::{self, Figures};
use crate::binlog::{inspect, Folder};
use crate::engine::{Engine, JobView, Limits, State, Time};
use crate::protocol::beanstalk::{stats_job, tube_settings};

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let tubes = call.tubes()?;
    let wanted = Wanted { tubes, ..Wanted::default() };
    match call.value(&BINLOG) {
        Some(folder) => from_folder(Path::new(&folder), &wanted, out),
        None => from_server(call, &wanted, out),
    }
}

/// Formats the counts, as in `5 jobs: 2 ready, 3 buried`.
fn told(counts: &[u64; STATES]) -> String {
    let parts = counts.iter().zip(State::LISTED).filter(|(count, _)| **count > 0);
    let parts: Vec<String> = parts.map(|(count, state)| format!("{count} {}", state.word())).collect();
    let all: u64 = counts.iter().sum();
    match parts.is_empty() {
        true => format!("{all} jobs"),
        false => format!("{all} jobs: {}", parts.join(", ")),
    }
}

#[derive(Default)]
struct Others {
    pauses: u64,
    settings: u64,
    keys: u64,
}

impl Others {
    fn pause(&mut self, tube: &str, seconds: u64, out: &mut Out) -> Result<(), Problem> {
        self.pauses += 1;
        out.line(&pause_line(tube, seconds))
    }

    fn settings(&mut self, tube: &str, settings: &str, out: &mut Out) -> Result<(), Problem> {
        self.settings += 1;
        out.line(&settings_line(tube, settings))
    }

    fn key(&mut self, tube: &str, key: &[u8], left: u64, out: &mut Out) -> Result<(), Problem> {
        self.keys += 1;
        out.line(&key_line(tube, key, left))
    }

    fn report(&self) {
        let Others { pauses, settings, keys } = self;
        if (*pauses, *settings, *keys) != (0, 0, 0) {
            tell(&format!(
                "exported {pauses} pauses, settings of {settings} tubes, {keys} keys that outlive their jobs"
            ));
        }
    }
}

fn from_server(call: &Call, wanted: &Wanted, out: &mut Out) -> Result<u8, Problem> {
    let mut link = Link::open(call)?;
    let before: u64 = wanted.count(&mut link)?.iter().sum();
    let mut scan = Scan::run(&mut link, wanted)?;
    scan.jobs.sort_by_key(|found| found.record.state != State::Held);
    let names = if wanted.tubes.is_empty() { link.tubes()? } else { wanted.tubes.clone() };
    let (mut others, mut settings) = (Others::default(), Vec::new());
    of_tubes(&mut link, &names, &mut |name, figures| {
        let Some(figures) = figures else { return Ok(()) };
        let left = figures.number("pause-time-left");
        if left > 0 {
            others.pause(name, left, out)?;
        }
        if !figures.text("settings").is_empty() {
            settings.push((name.to_owned(), figures.text("settings").to_owned()));
        }
        Ok(())
    })?;
    let counts = write(&mut link, &scan, out)?;
    for (name, settings) in settings {
        others.settings(&name, &settings, out)?;
    }
    write_keys(&mut link, wanted, &mut others, out)?;
    out.flush()?;
    let after: u64 = wanted.count(&mut link)?.iter().sum();
    let written: u64 = counts.iter().sum();
    tell(&format!("exported {}", told(&counts)));
    others.report();
    if tell_refused(&scan.refused) {
        return Ok(REFUSED);
    }
    if written == before && before == after {
        return Ok(DONE);
    }
    tell(&format!("the server counted {before} jobs before, and {after} now"));
    // In a server that is in use, the number of jobs is between the two counts; fewer exported jobs mean that some are
    // missing.
    Ok(if written >= before.min(after) { DONE } else { REFUSED })
}

fn write(link: &mut Link, scan: &Scan, out: &mut Out) -> Result<[u64; STATES], Problem> {
    let mut counts = [0; STATES];
    let mut progress = ProgressBar::new("jobs written");
    scan.peek(link, &mut |record, tube, body| {
        counts[record.state as usize] += 1;
        let written = counts.iter().sum();
        progress.tell(written, Some((written, scan.jobs.len() as u64)));
        out.line(&record.line(tube, body))
    })?;
    Ok(counts)
}

fn write_keys(link: &mut Link, wanted: &Wanted, others: &mut Others, out: &mut Out) -> Result<(), Problem> {
    let mut from = 0;
    loop {
        let reply = link.ask(&format!("list-keys {from}"))?;
        if first_word(&reply.line) != "OK" {
            return match reply.line.as_str() {
                "UNKNOWN_COMMAND" | "FORBIDDEN" => Ok(()),
                line => Err(refusal("list-keys", line)),
            };
        }
        let keys = yaml::keys(&reply.body);
        let Some(last) = keys.last() else { return Ok(()) };
        from = last.number + 1;
        for key in keys.iter().filter(|key| wanted.has_tube(&key.tube)) {
            others.key(&key.tube, &key.key, key.left, out)?;
        }
    }
}

fn from_folder(path: &Path, wanted: &Wanted, out: &mut Out) -> Result<u8, Problem> {
    let mut engine = Engine::new(Limits::NONE);
    let found = inspect(&Folder::new(path), &mut engine);
    let found = found.map_err(|error| Problem::refused(format!("{}: {error}", path.display())))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let is_meant = |job: &JobView| job.state() != State::Finished && wanted.has_tube(&written(engine.tube_of(job)));
    let jobs: Vec<JobView> = engine.jobs().filter(is_meant).collect();
    // Buried jobs are kicked in the order of burial, others are served by ID.
    let key = |place: usize| match jobs[place].state() {
        State::Buried => (2, jobs[place].due().nanos(), jobs[place].id().0),
        state => (u8::from(state != State::Held), jobs[place].id().0, 0),
    };
    let order = in_order(jobs.len(), &|left, right| key(left).cmp(&key(right)));
    let (mut counts, mut others, time) = ([0; STATES], Others::default(), Time::from_nanos(now));
    for (name, pause) in engine.pauses().filter(|(_, pause)| pause.until > time) {
        let name = written(name);
        if wanted.has_tube(&name) {
            others.pause(&name, pause.until.since(time).nanos().div_ceil(1_000_000_000), out)?;
        }
    }
    let mut ended = 0;
    for job in order.into_iter().map(|place| &jobs[place]) {
        let stats = stats_job(job.id(), None, &engine, time).unwrap_or_default();
        let tags = JobTags::of(&Figures::parse(&String::from_utf8_lossy(&stats)));
        let record = JobLine { tags, ..record(job, &engine, now) };
        if record.tags.ttl_left() == Some(0) && record.state != State::Buried {
            ended += 1;
            continue;
        }
        counts[record.state as usize] += 1;
        out.line(&record.line(&written(engine.tube_of(job)), job.body().bytes()))?;
    }
    write_others(&engine, wanted, time, &mut others, out)?;
    out.flush()?;
    tell(&format!("exported {}", told(&counts)));
    others.report();
    if ended > 0 {
        tell(&format!("{ended} jobs were left out: their time to live has ended"));
    }
    for problem in &found.report.problems {
        tell(&format!("damaged: {problem}"));
    }
    let finished = engine.jobs().filter(|job| job.state() == State::Finished).count();
    if finished > 0 {
        tell(&format!("{finished} outcomes of finished jobs were left out"));
    }
    Ok(if found.report.problems.is_empty() { DONE } else { REFUSED })
}

/// Writes the settings of tubes, and the keys that outlive their jobs, of a binlog.
fn write_others(
    engine: &Engine,
    wanted: &Wanted,
    now: Time,
    others: &mut Others,
    out: &mut Out,
) -> Result<(), Problem> {
    for (name, settings) in engine.tubes_with_settings() {
        let name = written(name);
        if wanted.has_tube(&name) {
            others.settings(&name, &String::from_utf8_lossy(&tube_settings(settings)), out)?;
        }
    }
    for ended in engine.ended_keys().filter(|ended| ended.until > now) {
        let name = written(&ended.tube);
        if wanted.has_tube(&name) {
            others.key(&name, &ended.key.text(), ended.until.since(now).nanos().div_ceil(1_000_000_000), out)?;
        }
    }
    Ok(())
}

/// Returns a job of a binlog. A reservation in a binlog is a lease, which outlives the server.
fn record(job: &JobView, engine: &Engine, now: u64) -> JobLine {
    let left = job.due().nanos().saturating_sub(now).div_ceil(1_000_000_000);
    let state = match job.state() {
        State::Delayed if left == 0 => State::Ready,
        state => state,
    };
    let history = job.history();
    // The time of such a schedule is a number of seconds.
    let is_counted = engine.schedule_of(job).is_some_and(|schedule| schedule.is_counted());
    JobLine {
        id: job.id().0,
        state,
        pri: job.priority(),
        delay: match state {
            State::Delayed => short(left),
            State::Scheduled if is_counted => short(left),
            State::Held | State::Scheduled => {
                short((job.created() + job.delay()).nanos().saturating_sub(now).div_ceil(1_000_000_000))
            }
            _ => 0,
        },
        left: short(left),
        ttr: short(job.ttr().secs()),
        age: now.saturating_sub(job.created().nanos()) / 1_000_000_000,
        counts: [history.reserves, history.timeouts, history.releases, history.buries, history.kicks],
        tags: JobTags::default(),
    }
}
