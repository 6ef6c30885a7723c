//! The history: ended or buried jobs, and statistics of the last hour, in memory. Must not decide what to record.

use std::sync::Arc;

use super::{Job, JobId, Span, Time};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Done,
    Failed,
    Buried,
    Deleted,
}

impl Verdict {
    const COUNT: usize = Verdict::Deleted as usize + 1;

    pub fn word(self) -> &'static str {
        ["done", "failed", "buried", "deleted"][self as usize]
    }

    pub fn is_failure(self) -> bool {
        matches!(self, Verdict::Failed | Verdict::Buried)
    }
}

/// The history keeps at most this many bytes of each body.
const SHOWN: usize = 64;
const KEPT_REASON: usize = 256;
/// Bytes charged for an entry, excluding its tube name and its reason, but including the reference counts of the name.
const ENTRY_COST: usize = size_of::<PastJob>() + 2 * size_of::<usize>();
/// The maximum number of bytes charged for an entry, excluding its tube name.
pub const MAX_ENTRY_COST: usize = ENTRY_COST + KEPT_REASON;

#[derive(Debug)]
pub struct PastJob {
    pub id: JobId,
    pub tube: Arc<[u8]>,
    pub created: Time,
    pub ended: Time,
    /// The duration of the last reservation, or zero if the job was not reserved when it ended.
    pub ran: Span,
    pub tries: u32,
    /// The length of the whole body in bytes.
    pub size: u32,
    pub verdict: Verdict,
    pub start: [u8; SHOWN],
    pub reason: Option<Box<[u8]>>,
}

impl PastJob {
    pub fn start(&self) -> &[u8] {
        &self.start[..SHOWN.min(self.size as usize)]
    }

    /// Returns the time from the put to the last reservation, or to the end if the job was not reserved when it ended.
    pub fn waited(&self) -> Span {
        Span::from_nanos(self.ended.since(self.created).nanos().saturating_sub(self.ran.nanos()))
    }
}

pub const POINTS: usize = 240;
pub const POINT_SECONDS: u64 = 15;

/// Totals of all tubes for a period of [`POINT_SECONDS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Point {
    /// The number of ready jobs at the start of the period.
    pub ready: u64,
    pub done: u64,
    pub failed: u64,
}

#[derive(Debug, Default)]
pub struct Past {
    /// The maximum number of jobs. All memory except failure reasons is allocated at startup. 0 disables the history.
    pub(in crate::engine) capacity: usize,
    pub(in crate::engine) jobs: Vec<PastJob>,
    next: usize,
    /// The number of jobs recorded since the server started, by verdict.
    recorded: [u64; Verdict::COUNT],
    /// The number of retries that `rules/failures.rs` scheduled after workers reported failures.
    pub(in crate::engine) retries: u64,
    pub memory: u64,
    /// Unlike in the result of [`Past::points`], `done` and `failed` are totals since the server started.
    pub(in crate::engine) points: Vec<Point>,
    point: usize,
    pub(in crate::engine) now: Time,
    pub(in crate::engine) point_end: Time,
}

impl Past {
    pub fn new(capacity: usize) -> Past {
        let (points, point_end) = match capacity {
            0 => (Vec::new(), Time::NEVER),
            _ => (vec![Point::default(); POINTS], Time::default()),
        };
        let memory = (capacity * ENTRY_COST + size_of_val(&*points)) as u64;
        Past { capacity, jobs: Vec::with_capacity(capacity), memory, points, point_end, ..Past::default() }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.capacity > 0
    }

    #[inline]
    pub fn record(&mut self, job: &Job, body: &[u8], tube: &Arc<[u8]>, verdict: Verdict) {
        self.recorded[verdict as usize] += 1;
        let at = self.next;
        self.next = if at + 1 == self.capacity { 0 } else { at + 1 };
        if at == self.jobs.len() {
            self.add_entry();
        }
        let entry = &mut self.jobs[at];
        if let Some(reason) = entry.reason.take() {
            self.memory -= reason.len() as u64;
        }
        if !Arc::ptr_eq(&entry.tube, tube) {
            // The name counts for each entry, because the entry may outlive the tube.
            self.memory = self.memory + tube.len() as u64 - entry.tube.len() as u64;
            entry.tube = tube.clone();
        }
        (entry.id, entry.created, entry.ended, entry.verdict) = (job.id, job.created, self.now, verdict);
        (entry.ran, entry.tries) = (job.taken_for(self.now), job.details.reserves());
        entry.size = body.len() as u32;
        match body.first_chunk() {
            // A copy of constant length takes only a few instructions.
            Some(start) => entry.start = *start,
            None => entry.start[..body.len()].copy_from_slice(body),
        }
    }

    #[cold]
    fn add_entry(&mut self) {
        let (time, ran, verdict, start) = (Time::default(), Span::ZERO, Verdict::Deleted, [0; SHOWN]);
        let (id, tube, created, ended) = (JobId(0), Arc::default(), time, time);
        self.jobs.push(PastJob { id, tube, created, ended, ran, tries: 0, size: 0, verdict, start, reason: None });
    }

    /// Sets the failure reason of the last recorded job.
    pub fn explain(&mut self, reason: &[u8]) {
        let kept = &reason[..reason.len().min(KEPT_REASON)];
        let last = self.next.checked_sub(1).unwrap_or(self.capacity - 1);
        if let (Some(job), false) = (self.jobs.get_mut(last), kept.is_empty()) {
            job.reason = Some(kept.into());
            self.memory += kept.len() as u64;
        }
    }

    /// Returns the sequence numbers of the kept jobs as a half-open range.
    pub fn numbers(&self) -> (u64, u64) {
        let count = self.recorded.iter().sum::<u64>();
        (count - self.jobs.len() as u64, count)
    }

    pub fn job(&self, number: u64) -> Option<&PastJob> {
        let (first, end) = self.numbers();
        let oldest = if self.jobs.len() < self.capacity { 0 } else { self.next as u64 };
        let at = (number >= first && number < end).then(|| (oldest + number - first) % self.jobs.len() as u64)?;
        self.jobs.get(at as usize)
    }

    fn new_point(&self, ready: u64) -> Point {
        let count = |verdict| self.recorded[verdict as usize];
        let failed = count(Verdict::Failed) + count(Verdict::Buried) + self.retries;
        Point { ready, done: count(Verdict::Done), failed }
    }

    /// Adds the data point of the current period, and of earlier periods that have none yet.
    #[cold]
    pub fn begin_point(&mut self, now: Time, ready: u64) {
        const POINT: u64 = POINT_SECONDS * 1_000_000_000;
        let missed = now.since(self.point_end).nanos() / POINT + 1;
        for _ in 0..missed.min(POINTS as u64) {
            self.point = (self.point + 1) % POINTS;
            self.points[self.point] = self.new_point(ready);
        }
        self.point_end = Time::from_nanos((now.nanos() / POINT + 1) * POINT);
    }

    /// Returns the points of the last hour in chronological order.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        let (newer, older) = self.points.split_at(self.points.len().min(self.point + 1));
        let points = older.iter().chain(newer).copied();
        let ends = points.clone().skip(1).chain([self.new_point(0)]);
        let change =
            |(from, to): (Point, Point)| Point { done: to.done - from.done, failed: to.failed - from.failed, ..from };
        points.zip(ends).map(change)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bodies, Details};
    use super::*;

    fn add(past: &mut Past, id: u64, reason: &[u8]) {
        add_in(past, id, &Arc::default(), reason);
    }

    fn add_in(past: &mut Past, id: u64, tube: &Arc<[u8]>, reason: &[u8]) {
        let (details, body) = (Details::new(Span::ZERO, Span::ZERO), Bodies::default().copy(b"xxx"));
        let job = Job::new(JobId(id), 0, 0, details, body, Time::from_nanos(5));
        past.now = Time::from_nanos(15);
        past.record(&job, b"xxx", tube, if reason.is_empty() { Verdict::Done } else { Verdict::Buried });
        past.explain(reason);
    }

    #[test]
    fn the_last_jobs_are_kept_and_their_memory_counted() {
        let mut past = Past::new(10);
        let before = past.memory;
        for id in 1..=25 {
            add(&mut past, id, if id % 2 == 0 { b"why" } else { b"" });
            let (first, end) = past.numbers();
            let ids: Vec<u64> = (first..end).map(|number| past.job(number).expect("a job").id.0).collect();
            assert_eq!(ids, (id.saturating_sub(9).max(1)..=id).collect::<Vec<_>>());
        }
        assert!(past.job(14).is_none() && past.job(25).is_none());
        assert_eq!(past.memory - before, 5 * 3, "reasons count");
        let page = std::fs::read_to_string("man/beanpole-memory.7").expect("the manual page");
        let entry = format!("Each entry counts as {ENTRY_COST} bytes");
        assert!(page.contains(&entry) || cfg!(not(target_pointer_width = "64")), "{entry}");
        let shown = past.job(24).expect("a job");
        assert_eq!((shown.start(), shown.waited()), (b"xxx".as_slice(), Span::from_nanos(10)));
        assert_eq!(past.points().map(|point| point.done + point.failed).sum::<u64>(), 25);
    }

    #[test]
    fn the_tube_names_of_all_entries_count() {
        let mut past = Past::new(10);
        let before = past.memory;
        let tube: Arc<[u8]> = [b't'; 500].into();
        (1..=7).for_each(|id| add_in(&mut past, id, &tube, b"why"));
        // The history keeps the names of tubes that no longer exist.
        (8..=15).for_each(|id| add_in(&mut past, id, &[b'd'; 300].into(), b""));
        assert_eq!(past.memory - before, 2 * 503 + 8 * 300);
        assert_eq!(past.memory, past.counted());
        (16..=30).for_each(|id| add(&mut past, id, b""));
        assert_eq!(past.memory, before);
    }

    #[test]
    fn a_point_is_a_quarter_of_a_minute_and_240_are_kept() {
        let at = |point: u64| Time::from_nanos((1_000_000 + point) * POINT_SECONDS * 1_000_000_000 + 7);
        let mut past = Past::new(1);
        past.begin_point(at(0), 5);
        add(&mut past, 1, b"");
        past.begin_point(at(2), 9);
        add(&mut past, 2, b"why");
        past.retries += 1;
        let all: Vec<Point> = past.points().collect();
        assert_eq!(all.len(), POINTS);
        let point = |ready, done, failed| Point { ready, done, failed };
        assert_eq!(all[POINTS - 3..], [point(5, 1, 0), point(9, 0, 0), point(9, 0, 2)]);
        past.begin_point(at(1000), 1);
        assert!(past.points().all(|it| it == point(1, 0, 0)));
        assert_eq!(Past::new(0).points().count(), 0);
    }
}
