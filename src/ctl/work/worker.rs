//! A worker thread of `work`. Sends no outcome over a new connection: after a server restart, the job ID could belong
//! to another job. After a connection error, the job can therefore be executed twice. If the server counts tries or no
//! retry remains, the worker reports a failed job with `fail`. Otherwise, it releases the job with an increasing delay.

use std::time::{Duration, Instant};
use std::{io, sync::Arc};

use super::attempt::{Attempt, CommandAttempt, Outcome, Spare, Task, KEPT, MAX_BACKOFF};
use super::endpoint::Delivery;
use super::shared::{SharedState, Stop};
use super::{Action, Plan};
use crate::ctl::prelude::*;

/// The maximum delay between two connection attempts. The initial delay is one second.
const MAX_RECONNECT: Duration = Duration::from_secs(30);

pub struct Worker {
    plan: Arc<Plan>,
    shared: Arc<SharedState>,
    index: usize,
    link: Option<Link>,
    done: u64,
    knows_fail: Option<bool>,
    spare: Option<Spare>,
    /// `true` if the endpoint must respond before the next job is reserved.
    is_down: bool,
}

impl Worker {
    pub fn connect(plan: &Plan) -> Result<Link> {
        let mut link = plan.target.connect()?;
        link.watch(&plan.tubes)?;
        Ok(link)
    }

    pub fn new(plan: Arc<Plan>, shared: Arc<SharedState>, index: usize, link: Option<Link>) -> Worker {
        Worker { plan, shared, index, link, done: 0, knows_fail: None, spare: None, is_down: false }
    }

    pub fn run(mut self) -> Result<u8> {
        let mut wait = Duration::from_secs(1);
        while self.shared.stop_request() == Stop::No {
            match self.round() {
                Ok(None) => wait = Duration::from_secs(1),
                Ok(Some(code)) => return Ok(code),
                Err(problem) if problem.code == NO_CONNECTION => {
                    (self.link, self.knows_fail) = (None, None);
                    if self.shared.stop_request() == Stop::No {
                        tell(&format!("{}; trying again in {} s", problem.text, wait.as_secs()));
                        self.shared.pause(self.index, wait);
                        wait = (wait * 2).min(MAX_RECONNECT);
                    }
                }
                Err(problem) => {
                    self.shared.finish();
                    return Err(problem);
                }
            }
        }
        Ok(DONE)
    }

    fn round(&mut self) -> Result<Option<u8>> {
        if let (true, Action::Post(endpoint)) = (self.is_down, &self.plan.action) {
            endpoint.probe()?;
            self.is_down = false;
        }
        let Some((id, body)) = self.next()? else {
            let was_stopped = self.shared.stop_request() != Stop::No;
            self.shared.finish();
            return Ok(Some(if self.plan.once && self.done == 0 && !was_stopped { EMPTY } else { DONE }));
        };
        let job = self.look_up(id)?;
        let has_succeeded = self.process(&job, body)?;
        self.done += 1;
        if self.plan.once {
            self.shared.finish();
            return Ok(Some(if has_succeeded { DONE } else { REFUSED }));
        }
        Ok(None)
    }

    fn link(&mut self) -> &mut Link {
        self.link.as_mut().expect("a connection")
    }

    fn next(&mut self) -> Result<Option<IdAndBody>> {
        let wait = self.plan.wait;
        while self.shared.await_resume(self.index) {
            let link = match &mut self.link {
                Some(link) => link,
                none => none.insert(Worker::connect(&self.plan)?),
            };
            if !self.shared.begin_waiting(self.index, link.closer()?) {
                continue;
            }
            let reserved = link.reserve(wait);
            if self.shared.end_waiting(self.index) {
                return reserved;
            }
            // The server may have sent a job, which becomes ready when the connection closes.
            self.link = None;
        }
        Ok(None)
    }

    fn look_up(&mut self, id: u64) -> Result<Task> {
        let stats: StatsReply = self.link().query(&format!("stats-job {id}"))?.unwrap_or_default();
        let reserves = stats.number("reserves").max(1);
        // A kick of a buried job resets the tries, so do not count the tries before the kick.
        let before = stats.number("kicks").saturating_mul(self.plan.retries + 1);
        let tries = reserves.saturating_sub(before).max(1);
        let (pri, ttr) = (stats.number("pri"), stats.number("ttr").max(1));
        let left = stats.text("tries-left").parse().ok();
        Ok(Task { id, tube: stats.text("tube").to_owned(), pri, ttr, reserves, tries, left })
    }

    fn start(&mut self, job: &Task, body: &Arc<Vec<u8>>) -> io::Result<(Box<dyn Attempt>, Option<u64>)> {
        let max_time = self.plan.max_time;
        let endpoint = match &self.plan.action {
            Action::Run(path, arguments) => {
                return Ok((Box::new(CommandAttempt::start(path, arguments, job, body)?), max_time));
            }
            Action::Post(endpoint) => endpoint.clone(),
        };
        let seconds = max_time.unwrap_or(job.ttr);
        let end = Instant::now() + Duration::from_secs(seconds);
        let (shared, index) = (self.shared.clone(), self.index);
        let (body, ended) = (body.clone(), move || shared.notify(index));
        let delivery = Delivery::start(endpoint, job, body, self.spare.take(), end, ended)?;
        Ok((Box::new(delivery), Some(seconds)))
    }

    fn process(&mut self, job: &Task, body: Vec<u8>) -> Result<bool> {
        let (body, mut wait) = (Arc::new(body), 1);
        loop {
            let begun = Instant::now();
            let (mut attempt, limit) = match self.start(job, &body) {
                Ok(started) => started,
                Err(error) => {
                    // The job did not cause this failure, so release the job instead of reporting a failure.
                    let backoff = self.plan.backoff;
                    self.link().release(job.id, job.pri, backoff)?;
                    let what = match &self.plan.action {
                        Action::Run(path, _) => format!("{}: ", path.display()),
                        Action::Post(_) => String::new(),
                    };
                    return Err(Problem::refused(format!("work: {what}{}", plain(&error))));
                }
            };
            let (outcome, mut connection) = self.await_outcome(&mut *attempt, job, limit);
            let reason = outcome.failure().map(|message| {
                let output = attempt.output(KEPT.saturating_sub(message.len() + 2));
                let separator: &[u8] = if output.is_empty() { b"" } else { b": " };
                [message.as_bytes(), separator, &output].concat()
            });
            self.spare = attempt.spare();
            self.is_down = matches!(outcome, Outcome::Unreachable(_));
            if let Outcome::Busy(_, seconds) = outcome {
                self.shared.pause_reserving(Instant::now() + Duration::from_secs(seconds));
            }
            // A release would count as a try, so keep the job.
            if connection.is_ok() && outcome.is_unprocessed() && job.left.is_some() && !self.plan.once {
                let seconds = if let Outcome::Busy(_, seconds) = outcome { seconds } else { wait };
                wait = (wait * 2).min(MAX_RECONNECT.as_secs());
                self.show(job, begun, &outcome, reason.as_deref(), &format!("the same try again in {seconds} s"));
                match self.keep(job, seconds) {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(problem) => connection = Err(problem),
                }
            }
            let connection = connection.and_then(|()| self.report_outcome(job, &outcome, reason.as_deref()));
            let is_lost = |problem: &Problem| problem.text.ends_with("its state does not allow this");
            let verdict = match &connection {
                Ok(verdict) => verdict.as_str(),
                Err(problem) if problem.code == NO_CONNECTION => "the connection is lost: it will be run again",
                Err(problem) if is_lost(problem) => "it was revoked, or its time to run has expired",
                Err(problem) => &problem.text,
            };
            if !self.plan.quiet || reason.is_some() || connection.is_err() {
                self.show(job, begun, &outcome, reason.as_deref(), verdict);
            }
            return match connection {
                Err(problem) if problem.code == NO_CONNECTION => Err(problem),
                result => Ok(reason.is_none() && result.err().is_none_or(|problem| is_lost(&problem))),
            };
        }
    }

    fn show(&self, job: &Task, begun: Instant, outcome: &Outcome, reason: Option<&[u8]>, verdict: &str) {
        let went = match (reason, outcome.failure(), &self.plan.action) {
            // The command has already written the rest of the reason to stderr.
            (_, Some(message), Action::Run(..)) => message.to_owned(),
            (Some(reason), ..) => excerpt(reason),
            _ => "done".to_owned(),
        };
        let millis = begun.elapsed().as_millis() as u64;
        let (seconds, millis) = (millis / 1000, millis % 1000);
        tell(&format!("job {} of {}: {went} after {seconds}.{millis:03} s; {verdict}", job.id, job.tube));
    }

    fn touch(&mut self, job: &Task) -> Result {
        self.link().expect(&format!("touch {}", job.id), "TOUCHED").map(drop)
    }

    fn keep(&mut self, job: &Task, seconds: u64) -> Result<bool> {
        let end = Instant::now() + Duration::from_secs(seconds);
        while self.shared.stop_request() == Stop::No {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            self.shared.pause(self.index, left.min(job.pace()));
            self.touch(job)?;
        }
        Ok(false)
    }

    /// Touches the job until the attempt ends. `limit` is in seconds. A failed touch can mean a lost reservation.
    fn await_outcome(&mut self, attempt: &mut dyn Attempt, job: &Task, limit: Option<u64>) -> (Outcome, Result) {
        let begun = Instant::now();
        let mut held = Ok(());
        let mut touch = begun + job.pace();
        let end = limit.map(|seconds| begun + Duration::from_secs(seconds));
        let mut aborted = None;
        loop {
            let (notifications, stop) = (self.shared.notifications(self.index), self.shared.stop_request());
            match attempt.outcome() {
                Ok(None) => {}
                Ok(Some(outcome)) => return (aborted.unwrap_or(outcome), held),
                Err(error) => return (Outcome::Stopped, Err(Problem::refused(plain(&error)))),
            }
            let now = Instant::now();
            if aborted.is_none() {
                if stop == Stop::Now {
                    aborted = Some(Outcome::Stopped);
                } else if let Some(seconds) = limit.filter(|_| end.is_some_and(|end| now >= end)) {
                    aborted = Some(Outcome::Failed(match &self.plan.action {
                        Action::Run(..) => format!("killed after {seconds} s"),
                        Action::Post(_) => format!("no response within {seconds} s"),
                    }));
                }
                if aborted.is_some() {
                    attempt.abort();
                    continue;
                }
            }
            if held.is_ok() && now >= touch {
                held = self.touch(job);
                touch = now + job.pace();
                if held.as_ref().is_err_and(|problem| problem.code == REFUSED) {
                    // The job was revoked, deleted, or reserved by another client.
                    aborted = Some(Outcome::Lost);
                    attempt.abort();
                }
                continue;
            }
            let next = held.is_ok().then_some(touch).into_iter().chain(end.filter(|_| aborted.is_none())).min();
            self.shared.sleep(self.index, next, notifications, stop);
        }
    }

    fn report_outcome(&mut self, job: &Task, outcome: &Outcome, reason: Option<&[u8]>) -> Result<String> {
        let Task { id, pri, tries, .. } = job;
        let Some(reason) = reason else {
            self.link().expect(&format!("delete {id}"), "DELETED")?;
            return Ok("deleted".to_owned());
        };
        let buried = format!("buried after try {tries}");
        let delay = match outcome {
            Outcome::Stopped => 0,
            Outcome::Busy(_, seconds) => *seconds,
            _ => delay(self.plan.backoff, *tries),
        };
        // An unprocessed job does not count as failed. On the last try, a released job would be buried without a
        // reason, so report the failure.
        let is_unprocessed = outcome.is_unprocessed() && job.left != Some(1);
        let is_last = job.left.is_some() || *tries > self.plan.retries;
        if !matches!(outcome, Outcome::Stopped) && !is_unprocessed && is_last {
            if let Some(delay) = self.fail(job, reason)? {
                return Ok(delay.map_or(buried, |delay| format!("try {} in {delay} s", tries + 1)));
            }
            self.link().expect(&format!("bury {id} {pri}"), "BURIED")?;
            return Ok(buried);
        }
        // The reply may be RELEASED although a setting of the tube buries the job.
        Ok(match self.link().release(*id, *pri, delay)? && job.left != Some(1) {
            false => buried,
            true if matches!(outcome, Outcome::Stopped) => "released".to_owned(),
            true => format!("try {} in {delay} s", tries + 1),
        })
    }

    /// Returns `None` if the server lacks `fail`, `Some(None)` if the job was buried, and otherwise the delay in
    /// seconds before the next try.
    fn fail(&mut self, job: &Task, reason: &[u8]) -> Result<Option<Option<u64>>> {
        if self.knows_fail.is_none() {
            // A server without `fail` would execute the reason as a command, so try an invalid command first.
            self.knows_fail = Some(self.link().ask("fail x")?.line != "UNKNOWN_COMMAND");
        }
        if self.knows_fail == Some(false) {
            return Ok(None);
        }
        let head = format!("fail {} {} {}\r\n", job.id, job.pri, reason.len());
        self.link().send(&[head.as_bytes(), reason, b"\r\n"].concat())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_an_hour() {
        assert_eq!([1, 2, 3, 4].map(|tries| delay(1, tries)), [1, 2, 4, 8]);
        assert_eq!((delay(5, 2), delay(0, 9), delay(1, 13), delay(3600, u64::MAX)), (10, 0, 3600, 3600));
    }
}
