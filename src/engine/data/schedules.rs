//! Schedules: jobs with the tag `cron:` or `every:`, which put copies of themselves at recurring times.
//!
//! Owns the data of a schedule in addition to its job: the name, the recurrence, the tags of the copies, the counts,
//! and the order in which schedules are due. Must not put jobs: `rules/schedules.rs` does.

use super::{
    table::hashed, DedupKey, GroupTag, Heap, JobId, JobOptions, Jobs, Name, Recurrence, Span, Table, Time, NIL,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunCount {
    pub runs: u32,
    /// Due times at which the previous copy still existed.
    pub skipped: u32,
}

/// The rarely used tags of each copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyTags {
    pub ttl: Span,
    pub tries: u8,
    pub backoff: u32,
    pub keep: u32,
    pub concurrency: Option<(Name, u32)>,
    pub groups: Vec<GroupTag>,
}

impl CopyTags {
    pub const NONE: &CopyTags =
        &CopyTags { ttl: Span::MAX, tries: 0, backoff: 0, keep: 0, concurrency: None, groups: Vec::new() };

    pub fn names(&self) -> usize {
        let key = self.concurrency.as_ref().map_or(0, |(key, _)| key.length());
        key + self.groups.iter().map(|group| group.name.length()).sum::<usize>()
    }
}

#[derive(Debug)]
pub struct Schedule {
    pub(in crate::engine) slot: u32,
    hash: u32,
    chain: u32,
    pub(in crate::engine) count: RunCount,
    /// Consecutive due times without a new copy.
    pub(in crate::engine) missed: u32,
    /// Unique within its tube, and the key of each copy.
    pub(in crate::engine) name: Name,
    /// The text, which usually takes less memory than the parsed [`Recurrence`].
    pub(in crate::engine) when: Name,
    tags: Option<Box<CopyTags>>,
}

/// Bytes charged for a schedule and its index entries, excluding its job and texts.
pub const SCHEDULE_COST: u64 = size_of::<Schedule>() as u64 + 32;

const _: () = assert!(SCHEDULE_COST + super::jobs::JOB_COST <= 200);

impl Schedule {
    pub fn tags(&self) -> Option<&CopyTags> {
        self.tags.as_deref()
    }

    pub fn count(&self) -> RunCount {
        self.count
    }

    pub fn texts(&self) -> usize {
        self.name.length() + self.when.length() + self.tags().map_or(0, CopyTags::names)
    }

    pub fn recurrence(&self) -> Option<Recurrence> {
        Recurrence::parse(self.when.key())
    }

    pub fn is_counted(&self) -> bool {
        matches!(self.recurrence(), Some(Recurrence::Every(_)))
    }

    pub fn copy_options(&self) -> JobOptions {
        let CopyTags { ttl, tries, backoff, keep, concurrency, groups } = self.tags().unwrap_or(CopyTags::NONE).clone();
        JobOptions {
            dedup_key: DedupKey::Name(self.name.clone()),
            ttl,
            max_attempts: tries,
            keep,
            backoff,
            concurrency,
            groups,
            ..JobOptions::default()
        }
    }
}

hashed!(Schedule, |schedule| schedule.hash, {
    let tags = schedule.tags().map_or(0, |tags| size_of::<CopyTags>() + tags.groups.len() * size_of::<GroupTag>());
    SCHEDULE_COST + (schedule.texts() + tags) as u64
});

#[derive(Debug, Default)]
pub struct Schedules {
    /// `memory` does not include the jobs.
    pub table: Table<Schedule>,
    /// By the next due time or retry.
    pub order: Heap<(Time, JobId)>,
    pub(in crate::engine) total: (u64, u64),
    pub(in crate::engine) late: usize,
    /// Until then, no schedule runs, because the log is creating space.
    pub(in crate::engine) rests_until: Time,
}

impl Schedules {
    pub fn get(&self, number: u32) -> &Schedule {
        self.table.get(number)
    }

    pub fn note_run(&mut self, number: u32, is_put: bool) {
        let schedule = self.table.get_mut(number);
        self.late = self.late - usize::from(schedule.missed > 0) + usize::from(!is_put);
        schedule.missed = if is_put { 0 } else { schedule.missed.saturating_add(1) };
        *(if is_put { &mut schedule.count.runs } else { &mut schedule.count.skipped }) += 1;
        *(if is_put { &mut self.total.0 } else { &mut self.total.1 }) += 1;
    }

    pub fn remove(&mut self, number: u32) {
        self.late -= usize::from(self.get(number).missed > 0);
        self.table.remove(number);
    }

    /// `is_meant` gets the slot of the schedule's job.
    pub fn find(&self, name: &Name, hash: u32, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        self.table.find(hash, |schedule| schedule.hash == hash && schedule.name == *name && is_meant(schedule.slot))
    }

    pub fn insert(&mut self, slot: u32, name: Name, hash: u32, when: Name, tags: CopyTags) -> u32 {
        let tags = (tags != *CopyTags::NONE).then(|| Box::new(tags));
        let count = RunCount::default();
        self.table.insert(Schedule { slot, hash, chain: NIL, count, missed: 0, name, when, tags })
    }

    pub fn enter(&mut self, at: Time, slot: u32, jobs: &mut Jobs) {
        self.order.push((at, jobs.get(slot).id), slot, jobs);
    }

    pub fn leave(&mut self, slot: u32, jobs: &mut Jobs) {
        self.order.remove(jobs.get(slot).position(), jobs);
    }

    pub fn retime(&mut self, at: Time, slot: u32, jobs: &mut Jobs) {
        self.leave(slot, jobs);
        self.enter(at, slot, jobs);
    }

    /// Returns the next time of a run or retry, and the slot of its job.
    pub fn first(&self) -> Option<(Time, u32)> {
        self.order.first().map(|((at, _), slot)| (at.max(self.rests_until), slot))
    }
}
