//! The history of finished and buried jobs, as shown to clients.
//!
//! Owns the keys of a history entry, and the search from the newest entry to the oldest. Must not format replies.

use super::beanstalk::FigureValue;
use crate::engine::{Past, PastJob, Progress, Steps};

/// The cost of examining a job, in engine steps. Each 64 bytes of output cost another step.
const STEPS_PER_JOB: u64 = 2;

/// The progress of a search, which starts with the newest job.
#[derive(Debug)]
pub struct HistoryWalk {
    /// The search continues with history numbers below this number.
    before: u64,
    left: usize,
    failed: bool,
}

impl HistoryWalk {
    /// Starts a search for at most `limit` jobs with history numbers below `before`, or only for `failed` jobs.
    pub fn new(before: u64, limit: usize, failed: bool) -> HistoryWalk {
        HistoryWalk { before, left: limit, failed }
    }

    /// Passes the `wanted` jobs to `each`, which returns the number of written bytes, until `steps` is used up.
    pub fn advance(
        &mut self,
        past: &Past,
        steps: &mut Steps,
        wanted: impl Fn(&PastJob) -> bool,
        mut each: impl FnMut(u64, &PastJob) -> usize,
    ) -> Progress {
        let (first, end) = past.numbers();
        self.before = self.before.min(end);
        while self.before > first && self.left > 0 {
            if steps.are_used_up() {
                return Progress::More;
            }
            let number = self.before - 1;
            let job = past.job(number).filter(|job| (!self.failed || job.verdict.is_failure()) && wanted(job));
            let bytes = job.map_or(0, |job| each(number, job));
            self.left -= usize::from(job.is_some());
            self.before = number;
            steps.take(STEPS_PER_JOB + bytes as u64 / 64);
        }
        Progress::Done
    }

    /// Returns the `before` value for the next page, or `None` after the last page.
    pub fn next(&self, past: &Past) -> Option<u64> {
        (self.left == 0 && self.before > past.numbers().0).then_some(self.before)
    }
}

pub fn show(number: u64, job: &PastJob, mut show: impl FnMut(&'static str, FigureValue)) {
    use FigureValue::{Micros, Name, Number, Text, Word};
    show("number", Number(number));
    show("id", Number(job.id.0));
    show("tube", Name(&job.tube));
    show("verdict", Word(job.verdict.word().as_bytes()));
    show("put", Micros(job.created.nanos() / 1000));
    show("ended", Micros(job.ended.nanos() / 1000));
    show("waited", Micros(job.waited().nanos() / 1000));
    show("ran", Micros(job.ran.nanos() / 1000));
    show("tries", Number(job.tries.into()));
    if let Some(reason) = &job.reason {
        show("reason", Text(reason));
    }
    show("size", Number(job.size.into()));
    show("body", Text(job.start()));
}
