//! The history of finished and buried jobs: the keys of an entry, and the search from the newest entry to the oldest.

use super::beanstalk::FigureValue;
use crate::engine::{Past, PastJob, Progress, Steps};

/// Engine steps. Each 64 bytes of output cost another step.
const STEPS_PER_JOB: u64 = 2;

/// A search that starts with the newest job.
#[derive(Debug)]
pub struct HistoryWalk {
    before: u64,
    left: usize,
    failed: bool,
}

impl HistoryWalk {
    /// Finds at most `limit` jobs with history numbers below `before`. With `failed`, finds only failed jobs.
    pub fn new(before: u64, limit: usize, failed: bool) -> HistoryWalk {
        HistoryWalk { before, left: limit, failed }
    }

    /// Stops when `steps` is used up. `each` returns the number of written bytes.
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

    /// Returns `before` for the next page.
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
