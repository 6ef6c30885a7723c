//! The model's rules for schedules with an interval in seconds.
//!
//! The parser of cron's fields has separate tests.

use super::super::super::{ClientId, JobId, Priority, Refused, Span, State, Tagged, Time};
use super::{History, Job, JobTags, Model, Name, Place};

#[derive(Clone, Debug)]
pub struct Schedule {
    pub tags: JobTags,
    pub every: u32,
    /// The time at which a run is retried because its copy was refused.
    pub retry: Option<Time>,
    pub runs: u32,
    pub skipped: u32,
    /// The number of consecutive runs without a new copy.
    pub missed: u32,
}

impl Schedule {
    fn after(&self, last: Time, now: Time) -> Time {
        let mut next = last + Span::from_secs(self.every.into());
        while next <= now {
            next = next + Span::from_secs(self.every.into());
        }
        next
    }
}

impl Model {
    pub fn next_run(&self, id: JobId) -> Option<Time> {
        match self.job(id)?.place {
            Place::Scheduled { due } => Some(due),
            _ => None,
        }
    }

    #[allow(dead_code)] // unused in some of the crates that include this file
    pub fn next_try(&self, id: JobId) -> Option<Time> {
        self.runs().find(|(_, other)| *other == id).map(|(at, _)| at)
    }

    /// Returns the schedules with the times of their next events.
    pub(super) fn runs(&self) -> impl Iterator<Item = (Time, JobId)> + '_ {
        let schedules = self.extended.schedules.iter();
        schedules.filter_map(|(id, schedule)| Some((schedule.retry.or(self.next_run(*id))?, *id)))
    }

    pub(super) fn put_schedule(
        &mut self,
        client: ClientId,
        (pri, mut delay, ttr): (Priority, Span, Span),
        body: Vec<u8>,
        (tags, every): (JobTags, u32),
        now: Time,
    ) -> Result<Tagged, Refused> {
        let tube = tags.tube.unwrap_or(self.used(client));
        self.find_or_create(client, tube).map_err(|_| Refused::OutOfMemory)?;
        let span = Span::from_secs(every.into());
        let first = now + if delay > Span::ZERO { delay } else { span };
        let key = tags.key.map(|(key, _)| key);
        let same = |id: &JobId| {
            let name = self.extended.schedules[id].tags.key.map(|(key, _)| key);
            self.job(*id).is_some_and(|job| job.tube == tube) && name == key
        };
        let known = self.extended.schedules.keys().copied().find(same);
        let schedule =
            Schedule { tags: JobTags { every: None, ..tags }, every, retry: None, runs: 0, skipped: 0, missed: 0 };
        let (id, due, counts) = match known {
            None => {
                self.last_id += 1;
                self.tube_mut(tube).total_jobs += 1;
                (JobId(self.last_id), first, (0, 0))
            }
            Some(id) => {
                let old = self.extended.schedules[&id].clone();
                let due = self.next_run(id).expect("a schedule");
                let is_kept = old.every == every && delay == Span::ZERO;
                let due = if is_kept { due } else { first };
                if is_kept {
                    delay = self.job(id).expect("a schedule").delay;
                }
                self.jobs.retain(|job| job.id != id);
                (id, due, (old.runs, old.skipped))
            }
        };
        let (place, history) = (Place::Scheduled { due }, History::default());
        self.jobs.push(Job { id, tube, body, pri, delay, ttr, created: now, place, history });
        let (runs, skipped) = counts;
        self.extended.schedules.insert(id, Schedule { runs, skipped, ..schedule });
        Ok(Tagged::Scheduled { id, replaced: known.is_some() })
    }

    /// Runs a schedule. Returns `true` if a copy was put.
    fn run(&mut self, id: JobId, next: Time, now: Time) -> Result<bool, Refused> {
        let job = self.job(id).expect("a schedule").clone();
        let tags = self.extended.schedules[&id].tags.clone();
        let (key, _) = tags.key.expect("a name");
        if self.keyed(job.tube, key).is_some() || self.ended_key(job.tube, key, now).is_some() {
            let schedule = self.extended.schedules.get_mut(&id).expect("a schedule");
            (schedule.skipped, schedule.missed) = (schedule.skipped + 1, schedule.missed + 1);
            self.set_due(id, next);
            return Ok(false);
        }
        self.tidy_groups();
        let copy = self.take_in(job.tube, (job.pri, Span::ZERO, job.ttr), job.body, now)?;
        self.extended.tags.insert(copy, JobTags { tube: None, ..tags });
        let schedule = self.extended.schedules.get_mut(&id).expect("a schedule");
        (schedule.runs, schedule.missed) = (schedule.runs + 1, 0);
        self.set_due(id, next);
        self.date(copy, now);
        self.tie(copy);
        self.serve(now);
        Ok(true)
    }

    fn set_due(&mut self, id: JobId, due: Time) {
        self.job_mut(id).place = Place::Scheduled { due };
        self.extended.schedules.get_mut(&id).expect("a schedule").retry = None;
    }

    pub(super) fn ring_schedule(&mut self, id: JobId, now: Time) {
        let due = self.next_run(id).expect("a schedule");
        let next = self.extended.schedules[&id].after(due, now);
        if self.run(id, next, now).is_err() {
            self.extended.schedules.get_mut(&id).expect("a schedule").retry = Some(now + Span::from_secs(1));
        }
    }

    pub(super) fn run_now(&mut self, id: JobId, now: Time) -> Result<bool, Refused> {
        let due = self.next_run(id).expect("a schedule");
        let next = if due <= now { self.extended.schedules[&id].after(due, now) } else { due };
        self.run(id, next, now)
    }

    pub(super) fn unschedule(&mut self, id: JobId) {
        self.extended.schedules.remove(&id);
    }

    /// Limits the due times of schedules after a restart, in case the clock was set back.
    pub(super) fn restart_schedules(&mut self, now: Time) {
        let ids: Vec<JobId> = self.extended.schedules.keys().copied().collect();
        for id in ids {
            let delay = self.job(id).expect("a schedule").delay;
            let latest = now + delay.max(Span::from_secs(self.extended.schedules[&id].every.into()));
            let due = self.next_run(id).expect("a schedule").min(latest);
            self.set_due(id, due);
            self.extended.schedules.get_mut(&id).expect("a schedule").missed = 0;
        }
    }

    #[allow(dead_code)] // unused in some of the crates that include this file
    pub fn run_counts(&self, id: JobId) -> Option<(u32, u32)> {
        let schedule = self.extended.schedules.get(&id)?;
        Some((schedule.runs, schedule.skipped))
    }

    #[allow(dead_code)] // unused in some of the crates that include this file
    pub fn schedules_in(&self, tube: Name) -> usize {
        self.jobs.iter().filter(|job| job.tube == tube && self.state_of(job.id) == Some(State::Scheduled)).count()
    }
}
