//! Schedules: jobs that put copies of themselves whenever they are due, by their tags `cron:` and `every:`.
//!
//! Owns what a schedule has in addition to its job: its name, when it recurs, the tags of its copies, what it has
//! counted, and the order in which schedules are due. Must not put jobs: `rules/schedules.rs` does.

use super::{
    table::hashed, DedupKey, GroupTag, Heap, JobId, JobOptions, Jobs, Name, Recurrence, Span, Table, Time, NIL,
};

/// The numbers of times that a schedule was due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunCount {
    pub runs: u32,
    /// Times without a copy, because the last one still existed.
    pub skipped: u32,
}

/// The tags of copies that few schedules have, as in [`JobOptions`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyTags {
    pub ttl: Span,
    /// The limit of tries, as in [`JobOptions::max_attempts`].
    pub tries: u8,
    pub backoff: u32,
    pub keep: u32,
    pub concurrency: Option<(Name, u32)>,
    /// The groups that copies are members of.
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

/// The data of a schedule in addition to its job.
#[derive(Debug)]
pub struct Schedule {
    pub(in crate::engine) slot: u32,
    hash: u32,
    /// The next schedule in the same bucket of the index.
    chain: u32,
    pub(in crate::engine) count: RunCount,
    /// The number of runs without a copy since the last copy was put, or since the start.
    pub(in crate::engine) missed: u32,
    /// Unique among the schedules of its tube, and the key of its copies.
    pub(in crate::engine) name: Name,
    /// The text for [`Recurrence::parse`], which mostly takes less memory than the parsed sets.
    pub(in crate::engine) when: Name,
    tags: Option<Box<CopyTags>>,
}

/// Bytes of account of a schedule without its job and names: itself, and its entries in the index and the order.
pub const SCHEDULE_COST: u64 = size_of::<Schedule>() as u64 + 32;

const _: () = assert!(SCHEDULE_COST + super::jobs::JOB_COST <= 200);

impl Schedule {
    /// Returns the tags of its copies that few schedules have.
    pub fn tags(&self) -> Option<&CopyTags> {
        self.tags.as_deref()
    }

    /// Returns the numbers of its runs since it was put with its name.
    pub fn count(&self) -> RunCount {
        self.count
    }

    /// Bytes of its names and of when it recurs.
    pub fn texts(&self) -> usize {
        self.name.length() + self.when.length() + self.tags().map_or(0, CopyTags::names)
    }

    /// Returns when it recurs; `None` if its text is not valid.
    pub fn recurrence(&self) -> Option<Recurrence> {
        Recurrence::parse(self.when.key())
    }

    /// Returns `true` if it recurs after a number of seconds, not at times of the calendar.
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

hashed!(Schedule, |schedule| {
    let tags = schedule.tags().map_or(0, |tags| size_of::<CopyTags>() + tags.groups.len() * size_of::<GroupTag>());
    SCHEDULE_COST + (schedule.texts() + tags) as u64
});

/// All schedules. The job of each has its number as its holder.
#[derive(Debug, Default)]
pub struct Schedules {
    /// The schedules, and their bytes of account without their jobs.
    pub table: Table<Schedule>,
    /// The order in which schedules are due or tried again; members are the slots of their jobs.
    pub order: Heap<(Time, JobId)>,
    /// The numbers of copies put and of runs skipped since the start.
    pub(in crate::engine) total: (u64, u64),
}

impl Schedules {
    pub fn get(&self, number: u32) -> &Schedule {
        self.table.get(number)
    }

    /// Counts a run of the schedule with this number, or a skipped one.
    pub fn note_run(&mut self, number: u32, is_put: bool) {
        let schedule = self.table.get_mut(number);
        schedule.missed = if is_put { 0 } else { schedule.missed.saturating_add(1) };
        *(if is_put { &mut schedule.count.runs } else { &mut schedule.count.skipped }) += 1;
        *(if is_put { &mut self.total.0 } else { &mut self.total.1 }) += 1;
    }

    /// Returns the number of the schedule with this name and hash whose job `is_meant` accepts.
    pub fn find(&self, name: &Name, hash: u32, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        self.table.find(hash, |schedule| schedule.hash == hash && schedule.name == *name && is_meant(schedule.slot))
    }

    pub fn insert(&mut self, slot: u32, name: Name, hash: u32, when: Name, tags: CopyTags) -> u32 {
        let tags = (tags != *CopyTags::NONE).then(|| Box::new(tags));
        let count = RunCount::default();
        self.table.insert(Schedule { slot, hash, chain: NIL, count, missed: 0, name, when, tags })
    }

    /// Adds the schedule with the job in `slot` to the order.
    pub fn enter(&mut self, at: Time, slot: u32, jobs: &mut Jobs) {
        self.order.push((at, jobs.get(slot).id), slot, jobs);
    }

    pub fn leave(&mut self, slot: u32, jobs: &mut Jobs) {
        self.order.remove(jobs.get(slot).position(), jobs);
    }

    pub fn retime(&mut self, at: Time, slot: u32, jobs: &mut Jobs) {
        let (position, key) = (jobs.get(slot).position(), (at, jobs.get(slot).id));
        if self.order.key_at(position) != key {
            self.order.change(position, key, jobs);
        }
    }

    /// Returns the next time at which a schedule is due or tried again, and the slot of its job.
    pub fn first(&self) -> Option<(Time, u32)> {
        self.order.first().map(|((at, _), slot)| (at, slot))
    }
}
