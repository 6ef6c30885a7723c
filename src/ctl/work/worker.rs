//! A thread of `work`: its connection, and the processing of a job.
//!
//! Owns the fate of a job: a successful job is deleted; a failed one is left to the server if the server limits its
//! tries, otherwise released with a growing delay, and buried when it has failed too often. The result goes over the
//! connection that has reserved the job, or is dropped: after a restart of the server, IDs may belong to other jobs. So
//! after any failure the job remains, and may be executed twice.

use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bench::{Bench, Stop};
use super::child::{failure, start, Task};
use super::{Plan, MAX_BACKOFF};
use crate::ctl::link::{refusal, IdAndBody, Link};
use crate::ctl::problem::{plain, Problem, DONE, EMPTY, NO_CONNECTION, REFUSED};
use crate::ctl::yaml::Figures;
use crate::ctl::{reserve, tell};

/// Maximum wait between attempts to connect, which starts at one second.
const MAX_RECONNECT: Duration = Duration::from_secs(30);

pub struct Worker {
    plan: Arc<Plan>,
    bench: Arc<Bench>,
    place: usize,
    link: Option<Link>,
    done: u64,
    /// `true` if the server knows `fail`; `None` if that is not known yet.
    knows_fail: Option<bool>,
}

enum Outcome {
    Ended(ExitStatus),
    /// The command was killed because it took too long.
    TooLong,
    /// The command was killed because the worker stops.
    Stopped,
    /// The command was killed because the worker no longer holds the job.
    Lost,
}

impl Worker {
    pub fn connect(plan: &Plan) -> Result<Link, Problem> {
        let mut link = plan.reach.connect()?;
        reserve::watch(&mut link, &plan.tubes)?;
        Ok(link)
    }

    /// Returns a worker, which may already have a connection.
    pub fn new(plan: Arc<Plan>, bench: Arc<Bench>, place: usize, link: Option<Link>) -> Worker {
        Worker { plan, bench, place, link, done: 0, knows_fail: None }
    }

    /// Works until there is nothing left to do. Returns the exit code.
    pub fn run(mut self) -> Result<u8, Problem> {
        let mut wait = Duration::from_secs(1);
        loop {
            if self.bench.wish() != Stop::No {
                return Ok(DONE);
            }
            match self.round() {
                Ok(None) => wait = Duration::from_secs(1),
                Ok(Some(code)) => return Ok(code),
                Err(problem) if problem.code == NO_CONNECTION => {
                    (self.link, self.knows_fail) = (None, None);
                    if self.bench.wish() != Stop::No {
                        return Ok(DONE);
                    }
                    tell(&format!("{}; trying again in {} s", problem.text, wait.as_secs()));
                    self.bench.pause(wait);
                    wait = (wait * 2).min(MAX_RECONNECT);
                }
                Err(problem) => {
                    self.bench.finish();
                    return Err(problem);
                }
            }
        }
    }

    /// Processes one job. Returns the exit code if it was the last one.
    fn round(&mut self) -> Result<Option<u8>, Problem> {
        if self.link.is_none() {
            self.link = Some(Worker::connect(&self.plan)?);
        }
        let Some((id, body)) = self.next()? else {
            let was_stopped = self.bench.wish() != Stop::No;
            self.bench.finish();
            let none = self.plan.once && self.done == 0 && !was_stopped;
            return Ok(Some(if none { EMPTY } else { DONE }));
        };
        let job = self.look_up(id)?;
        let went_well = self.carry_out(&job, &body)?;
        self.done += 1;
        if self.plan.once {
            self.bench.finish();
            return Ok(Some(if went_well { DONE } else { REFUSED }));
        }
        Ok(None)
    }

    fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("a connection")
    }

    /// Waits for a job. Returns `None` if the worker must stop.
    fn next(&mut self) -> Result<Option<IdAndBody>, Problem> {
        let closer = self.link().closer()?;
        if !self.bench.begin_waiting(self.place, closer) {
            return Ok(None);
        }
        let wait = self.plan.wait;
        let reserved = self.link().reserve(wait);
        if !self.bench.end_waiting(self.place) {
            // A job that has arrived anyway is ready again when the connection closes.
            self.link = None;
            return Ok(None);
        }
        reserved
    }

    fn look_up(&mut self, id: u64) -> Result<Task, Problem> {
        let figures: Figures = self.link().figures(&format!("stats-job {id}"))?.unwrap_or_default();
        let reserves = figures.number("reserves").max(1);
        // Each kick of a buried job resets the count.
        let before = figures.number("kicks").saturating_mul(self.plan.retries + 1);
        let tries = reserves.saturating_sub(before).max(1);
        let (pri, ttr) = (figures.number("pri"), figures.number("ttr").max(1));
        let bounded = !figures.text("tries-left").is_empty();
        Ok(Task { id, tube: figures.text("tube").to_owned(), pri, ttr, reserves, tries, bounded })
    }

    /// Runs the command for a job, and decides the job's fate. Returns `true` if the command succeeded.
    fn carry_out(&mut self, job: &Task, body: &[u8]) -> Result<bool, Problem> {
        let begun = Instant::now();
        let id = job.id;
        let child = match start(&self.plan, job, body) {
            Ok(child) => child,
            Err(error) => {
                // The failure is not the job's fault.
                let backoff = self.plan.backoff;
                self.link().release(id, job.pri, backoff)?;
                let text = format!("work: {}: {}", self.plan.program.display(), plain(&error));
                return Err(Problem::refused(text));
            }
        };
        let (child, mut errors) = child;
        let (outcome, mut connection) = self.attend(child, job, begun);
        let told = match &outcome {
            Outcome::Ended(status) => failure(*status),
            Outcome::TooLong => Some(format!("killed after {} s", self.plan.max_time.unwrap_or(0))),
            Outcome::Stopped => Some("stopped".to_owned()),
            Outcome::Lost => Some("killed".to_owned()),
        };
        if connection.is_ok() {
            let reason = told.as_ref().map(|told| errors.reason(told));
            connection = self.judge(job, &outcome, reason.as_deref());
        }
        let verdict = match &connection {
            Ok(verdict) => verdict.as_str(),
            Err(problem) if problem.code == NO_CONNECTION => "the connection is lost: it will be run again",
            Err(_) => "it was revoked, or its time to run has ended",
        };
        if !self.plan.quiet || told.is_some() || connection.is_err() {
            let went = told.as_deref().unwrap_or("done");
            let millis = begun.elapsed().as_millis() as u64;
            let (seconds, millis) = (millis / 1000, millis % 1000);
            tell(&format!("job {id} of {}: {went} after {seconds}.{millis:03} s; {verdict}", job.tube));
        }
        match connection {
            Err(problem) if problem.code == NO_CONNECTION => Err(problem),
            _ => Ok(told.is_none()),
        }
    }

    /// Waits for the end of the command, touching the job at half of its time to run. Returns the outcome, and whether
    /// the worker still holds the job.
    fn attend(&mut self, mut child: Child, job: &Task, begun: Instant) -> (Outcome, Result<String, Problem>) {
        let mut ours = Ok(String::new());
        let pace = Duration::from_millis(job.ttr.saturating_mul(500));
        let mut touch = begun + pace;
        let end = self.plan.max_time.map(|seconds| begun + Duration::from_secs(seconds));
        let mut killed = None;
        loop {
            let (bells, wish) = (self.bench.bells(), self.bench.wish());
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return (killed.unwrap_or(Outcome::Ended(status)), ours),
                Err(error) => return (Outcome::Stopped, Err(Problem::refused(plain(&error)))),
            }
            let now = Instant::now();
            if killed.is_none() {
                if wish == Stop::Now {
                    killed = Some(Outcome::Stopped);
                } else if end.is_some_and(|end| now >= end) {
                    killed = Some(Outcome::TooLong);
                }
                if killed.is_some() {
                    kill(&mut child);
                    continue;
                }
            }
            if ours.is_ok() && now >= touch {
                ours = self.link().expect(&format!("touch {}", job.id), "TOUCHED").map(|_| String::new());
                touch = now + pace;
                if ours.as_ref().is_err_and(|problem| problem.code == REFUSED) {
                    // The job was revoked, deleted or reserved by another client: this result is useless.
                    killed = Some(Outcome::Lost);
                    kill(&mut child);
                }
                continue;
            }
            let next = ours.is_ok().then_some(touch).into_iter().chain(end.filter(|_| killed.is_none())).min();
            self.bench.sleep(next, bells, wish);
        }
    }

    /// Sends the verdict on the job to the server. Returns a description of it.
    fn judge(&mut self, job: &Task, outcome: &Outcome, reason: Option<&[u8]>) -> Result<String, Problem> {
        let Task { id, pri, tries, .. } = job;
        let Some(reason) = reason else {
            self.link().expect(&format!("delete {id}"), "DELETED")?;
            return Ok("deleted".to_owned());
        };
        let buried = format!("buried after try {tries}");
        if matches!(outcome, Outcome::Stopped) {
            let is_ready = self.link().release(*id, *pri, 0)?;
            return Ok(if is_ready { "released".to_owned() } else { buried });
        }
        if job.bounded || *tries > self.plan.retries {
            if let Some(delay) = self.fail(job, reason)? {
                return Ok(delay.map_or(buried, |delay| format!("try {} in {delay} s", tries + 1)));
            }
            self.link().expect(&format!("bury {id} {pri}"), "BURIED")?;
            return Ok(buried);
        }
        let delay = delay(self.plan.backoff, *tries);
        if !self.link().release(*id, *pri, delay)? {
            return Ok(buried);
        }
        Ok(format!("try {} in {delay} s", tries + 1))
    }
}

impl Worker {
    /// Reports to the server that a job failed, and why. Returns the delay in seconds if the job is tried again, or
    /// `None` if the server does not know the command.
    fn fail(&mut self, job: &Task, reason: &[u8]) -> Result<Option<Option<u64>>, Problem> {
        if self.knows_fail == Some(false) {
            return Ok(None);
        }
        if self.knows_fail.is_none() {
            // A malformed line determines this, because a server that does not know the command would read the reason
            // as another command.
            let known = self.link().ask("fail x")?.line != "UNKNOWN_COMMAND";
            self.knows_fail = Some(known);
            return self.fail(job, reason);
        }
        let mut command = format!("fail {} {} {}\r\n", job.id, job.pri, reason.len()).into_bytes();
        command.extend_from_slice(reason);
        command.extend_from_slice(b"\r\n");
        self.link().send(&command)?;
        let reply = self.link().reply()?;
        match reply.number("RELEASED") {
            Some(delay) => Ok(Some(Some(delay))),
            None if reply.line == "BURIED" => Ok(Some(None)),
            None => Err(refusal("fail", &reply.line)),
        }
    }
}

fn delay(first: u64, tries: u64) -> u64 {
    let doubled = 1_u64.checked_shl(tries.saturating_sub(1).min(63) as u32).unwrap_or(u64::MAX);
    first.saturating_mul(doubled).min(MAX_BACKOFF)
}

/// Kills the command and its child processes.
fn kill(child: &mut Child) {
    // The command may have exited already; its process ID stays valid until it is waited for.
    let group = nix::unistd::Pid::from_raw(child.id() as i32);
    if nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).is_err() {
        let _ = child.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_an_hour() {
        assert_eq!([1, 2, 3, 4].map(|tries| delay(1, tries)), [1, 2, 4, 8]);
        assert_eq!((delay(5, 2), delay(0, 9), delay(1, 13), delay(3600, u64::MAX)), (10, 0, 3600, 3600));
    }
}
