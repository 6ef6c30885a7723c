//! The subcommand `export`, which prints all jobs of a server or of an unused binlog as JSON lines. Held jobs directly
//! follow tube pauses: an import must add a held job before a worker deletes the last job for which the held job waits.
//! Enforces promise P32 of beanpole-promises(7).

use std::path::Path;

use super::files::restore;
use super::prelude::*;
use crate::engine::{Engine, JobView, Limits, Recurrence, State, Time};
use crate::protocol::beanstalk::{stats_job, tube_settings};
use crate::shared::json::Members;

struct Export<'a> {
    out: &'a mut Out,
    wanted: Wanted,
    counts: [u64; STATE_COUNT],
    others: Others,
}

pub fn run(call: &Call, out: &mut Out) -> Result<u8> {
    let wanted = Wanted { tubes: call.tubes()?, ..Wanted::default() };
    let mut export = Export { out, wanted, counts: [0; STATE_COUNT], others: Others::default() };
    match call.value(&BINLOG) {
        Some(folder) => export.export_binlog(Path::new(&folder)),
        None => export.export_server(&mut Link::open(call)?),
    }
}

impl Export<'_> {
    /// Increments `count` and writes a line about a tube, if the tube is to be exported.
    fn tube(&mut self, tube: &str, count: fn(&mut Others) -> &mut u64, write: impl FnOnce(&mut Members)) -> Result {
        if !self.wanted.has_tube(tube) {
            return Ok(());
        }
        *count(&mut self.others) += 1;
        self.out.line(&json::object(|json| {
            json.bytes("tube", &yaml::name_bytes(tube));
            write(json);
        }))
    }

    fn pause(&mut self, tube: &str, seconds: u64) -> Result {
        self.tube(tube, |others| &mut others.pauses, |json| json.number("pause", seconds))
    }

    fn settings(&mut self, tube: &str, settings: &str) -> Result {
        self.tube(tube, |others| &mut others.settings, |json| json.text("settings", settings.as_bytes()))
    }

    fn key(&mut self, tube: &str, key: &[u8], left: u64) -> Result {
        let write = |json: &mut Members| {
            json.bytes("idempotency-key", key);
            json.number("idempotency-ttl", left);
        };
        self.tube(tube, |others| &mut others.keys, write)
    }

    fn report(&mut self) -> Result<u64> {
        self.out.flush()?;
        let parts = self.counts.iter().zip(State::LISTED).filter(|(count, _)| **count > 0);
        let parts: Vec<String> = parts.map(|(count, state)| format!("{count} {}", state.word())).collect();
        let all = self.counts.iter().sum();
        let colon = if parts.is_empty() { "" } else { ": " };
        tell(&format!("exported {all} jobs{colon}{}", parts.join(", ")));
        self.others.report("exported");
        Ok(all)
    }

    fn export_server(&mut self, link: &mut Link) -> Result<u8> {
        let before: u64 = self.wanted.count(link)?.iter().sum();
        let mut scan = Scan::run(link, &self.wanted)?;
        let (held, others) = scan.jobs.into_iter().partition(|found| found.job.state == State::Held);
        scan.jobs = held;
        scan.jobs.extend::<Vec<_>>(others);
        let (names, mut settings) = (self.wanted.tube_names(link)?, Vec::new());
        each_tube(link, &names, &mut |name, stats| {
            let Some(stats) = stats else { return Ok(()) };
            if !stats.text("settings").is_empty() {
                settings.push((name.to_owned(), stats.text("settings").to_owned()));
            }
            match stats.number("pause-time-left") {
                0 => Ok(()),
                left => self.pause(name, left),
            }
        })?;
        let mut progress = ProgressBar::new("jobs written");
        scan.peek(link, &mut |job, tube, body| {
            self.counts[job.state as usize] += 1;
            let written = self.counts.iter().sum();
            progress.update(written, Some((written, scan.jobs.len() as u64)));
            self.out.line(&job.line(tube, body))
        })?;
        settings.iter().try_for_each(|(name, settings)| self.settings(name, settings))?;
        self.keys_of_server(link)?;
        self.out.flush()?;
        let after: u64 = self.wanted.count(link)?.iter().sum();
        let written = self.report()?;
        if report_refused(&scan.refused) == REFUSED {
            return Ok(REFUSED);
        }
        if written == before && before == after {
            return Ok(DONE);
        }
        tell(&format!("the server counted {before} jobs before the export, and {after} after it"));
        // If other clients only add or only delete jobs, the number of exported jobs is between the two counts. If the
        // number is below both counts, jobs may be missing.
        Ok(if written >= before.min(after) { DONE } else { REFUSED })
    }

    /// Stores all keys before it writes the first one, so that an endless list ends when it uses too much memory.
    fn keys_of_server(&mut self, link: &mut Link) -> Result {
        let (mut from, mut keys) = (0, Vec::new());
        loop {
            let reply = link.ask(&format!("list-keys {from}"))?;
            match first_word(&reply.line) {
                "OK" => {}
                "UNKNOWN_COMMAND" | "FORBIDDEN" => return Ok(()),
                _ => return Err(refusal("list-keys", &reply.line)),
            }
            let page = yaml::keys(&reply.body);
            let Some((last, ..)) = page.last() else { break };
            check_progress((from..u64::MAX).contains(last))?;
            from = last + 1;
            keys.extend(page);
        }
        keys.iter().try_for_each(|(_, left, tube, key)| self.key(tube, key, *left))
    }

    fn export_binlog(&mut self, path: &Path) -> Result<u8> {
        let mut engine = Engine::new(Limits::NONE);
        let found = restore(path, &mut engine).map_err(|problem| Problem::refused(problem.text))?;
        let expired = self.objects_of_binlog(&engine, found.now)?;
        self.report()?;
        if expired > 0 {
            tell(&format!("omitted {expired} jobs whose time to live has expired"));
        }
        found.report.problems.iter().for_each(|problem| tell(&format!("damaged: {problem}")));
        let finished = engine.jobs().filter(|job| job.state() == State::Finished).count();
        if finished > 0 {
            tell(&format!("omitted {finished} outcomes of finished jobs"));
        }
        Ok(if found.report.problems.is_empty() { DONE } else { REFUSED })
    }

    fn objects_of_binlog(&mut self, engine: &Engine, now: Time) -> Result<u64> {
        for (name, pause) in engine.pauses() {
            self.pause(&yaml::quote_name(name), seconds_until(pause.until, now))?;
        }
        let wanted = &self.wanted;
        let is_wanted =
            |job: &JobView| job.state() != State::Finished && wanted.has_tube(&yaml::quote_name(engine.tube_of(job)));
        let jobs: Vec<JobView> = engine.jobs().filter(is_wanted).collect();
        // `kick` takes the oldest buried job, so buried jobs are sorted by time of burial. Other jobs are sorted by ID.
        let key = |index: usize| match jobs[index].state() {
            State::Buried => (2, jobs[index].due().nanos(), jobs[index].id().0),
            state => (u8::from(state != State::Held), jobs[index].id().0, 0),
        };
        let mut expired = 0;
        for index in in_order(jobs.len(), &|left, right| key(left).cmp(&key(right))) {
            let job = &jobs[index];
            let Some(line) = job_line(job, engine, now) else { continue };
            if line.tags.ttl_left() == Some(0) && line.state != State::Buried {
                expired += 1;
                continue;
            }
            self.counts[line.state as usize] += 1;
            self.out.line(&line.line(&yaml::quote_name(engine.tube_of(job)), job.body().bytes()))?;
        }
        for (name, settings) in engine.tubes_with_settings() {
            self.settings(&yaml::quote_name(name), &String::from_utf8_lossy(&tube_settings(settings)))?;
        }
        for ended in engine.ended_keys() {
            self.key(&yaml::quote_name(&ended.tube), &ended.key.text(), seconds_until(ended.until, now))?;
        }
        Ok(expired)
    }
}

fn seconds_until(time: Time, now: Time) -> u64 {
    time.nanos().saturating_sub(now.nanos()).div_ceil(1_000_000_000)
}

/// A job in a binlog is reserved only if it has a lease, because only leases survive a restart.
fn job_line(job: &JobView, engine: &Engine, now: Time) -> Option<JobLine> {
    let stats = stats_job(job.id(), None, engine, now)?;
    let mut line = JobLine::of(&StatsReply::parse(&String::from_utf8_lossy(&stats)))?;
    // The due time of a periodic schedule is the time of its next run.
    let is_periodic =
        engine.schedule_of(job).is_some_and(|schedule| matches!(schedule.recurrence(), Some(Recurrence::Every(_))));
    let due = match line.state {
        State::Held => job.created + job.delay(),
        State::Scheduled if !is_periodic => job.created + job.delay(),
        State::Delayed | State::Scheduled => job.due(),
        _ => now,
    };
    if line.state != State::Buried {
        line.delay = capped(seconds_until(due, now));
    }
    Some(line)
}
