//! Schedules in the log.
//!
//! Owns the conversion of schedules to and from log records. The record of a schedule contains the options of its
//! copies. Must not decide when schedules are due.
//!
//! Touches: store.

use super::log_room::CHANGE_SIZE;
use super::stored::{StoredChange, StoredKey, StoredOptions, StoredSchedule, StoredTies};
use crate::engine::data::{
    CompletionPolicy, CopyTags, DedupKey, GroupTag, Job, JobId, Name, Schedule, State, Tie, Time, NIL,
};
use crate::engine::Engine;

/// Log bytes for the copy of a schedule, in addition to a plain put.
pub const RUN_SIZE: usize = 24;

const _: () = assert!(RUN_SIZE as u64 <= CHANGE_SIZE, "the engine counts enough");

impl Engine {
    pub fn schedule_of(&self, job: &Job) -> Option<&Schedule> {
        (job.state() == State::Scheduled && job.holder != NIL).then(|| self.store.schedules.get(job.holder))
    }

    pub(in crate::engine) fn stored_schedule(&self, job: &Job) -> StoredOptions<'_> {
        let schedule = self.store.schedules.get(job.holder);
        let tags = schedule.tags().unwrap_or(CopyTags::NONE);
        let key = tags.concurrency.as_ref();
        StoredOptions {
            schedule: Some(StoredSchedule { when: schedule.when.key(), due: job.due, count: schedule.count }),
            completion: CompletionPolicy::Drop,
            dedup_key: StoredKey::Kept(&schedule.name),
            ttl: tags.ttl,
            expires: Time::NEVER,
            start: Time::NEVER,
            order: 0,
            max_attempts: tags.tries,
            max_fails: 0,
            outcome: None,
            reducer: None,
            keep: tags.keep,
            backoff: tags.backoff,
            concurrency: key.map_or((StoredKey::None, 0), |(key, limit)| (StoredKey::Kept(key), *limit)),
            reason: &[],
            ties: StoredTies::Tags(&tags.groups),
        }
    }

    pub(in crate::engine) fn restore_schedule(
        &mut self,
        slot: u32,
        options: &StoredOptions,
        schedule: &StoredSchedule,
    ) {
        let name = |key: StoredKey| match key.restored() {
            DedupKey::Name(name) => name,
            _ => Name::from(&[][..]),
        };
        let ties = options.ties.iter().map(|tie| GroupTag { name: Name::from(&*tie.name), tie: Tie::Member });
        let (key, limit) = options.concurrency;
        let tags = CopyTags {
            ttl: options.ttl,
            tries: options.max_attempts,
            backoff: options.backoff,
            keep: options.keep,
            concurrency: (key != StoredKey::None).then(|| (name(key), limit)),
            groups: ties.collect(),
        };
        let job = self.store.jobs.get_mut(slot);
        job.schedule(schedule.due);
        let (tube, name) = (job.tube, name(options.dedup_key));
        let number = self.store.schedules.insert(
            slot,
            name.clone(),
            self.hash_schedule(tube, &name),
            schedule.when.into(),
            tags,
        );
        self.store.schedules.table.get_mut(number).count = schedule.count;
        self.store.jobs.get_mut(slot).holder = number;
    }

    pub fn stored_run(&self, slot: u32) -> (JobId, StoredChange) {
        let job = self.store.jobs.get(slot);
        let count = self.store.schedules.get(job.holder).count;
        (job.id, StoredChange::Scheduled { due: job.due, count })
    }
}
