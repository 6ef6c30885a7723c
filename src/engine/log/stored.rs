//! A job as the log stores it: types shared by changes, log records and restored jobs. `restore.rs` creates jobs from
//! these types. Must not depend on the encoding of records.
//! Touches: store.

use std::borrow::Cow;
use std::fmt;

use super::change::Change;
use super::log_room::CHANGE_SIZE;
use crate::engine::data::*;
use crate::engine::Engine;

/// Log bytes for the copy of a schedule, in addition to a plain put.
pub const RUN_SIZE: usize = 24;
const _: () = assert!(RUN_SIZE as u64 <= CHANGE_SIZE, "the engine must count enough bytes");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredJob<'a> {
    pub id: JobId,
    pub tube: &'a [u8],
    pub pri: Priority,
    pub delay: Span,
    pub ttr: Span,
    pub created: Time,
    /// In the log, only leased jobs are reserved, because no other reservation survives a restart.
    pub state: State,
    /// When the delay or lease expires, or a buried job's rank in the order of burial.
    pub due: Time,
    pub history: History,
    pub fails: u8,
    pub dead_from: Option<&'a [u8]>,
    /// In a finished job, the result follows the body.
    pub body: &'a [u8],
    pub options: Option<StoredOptions<'a>>,
}

/// Counts are totals, so a record can be applied twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredChange {
    // A client's reservation, which does not survive a restart. The value is the total number of reservations.
    Reserve(u32),
    Expire(u32),
    Kick(u32),
    Lease(u32, Time),
    Release { pri: Priority, delay: Span, due: Time, count: u32, fails: u8 },
    Bury { pri: Priority, order: u64, count: u32, fails: u8 },
    // A reservation was lost, or the job was put with a nonzero `fails`. A zero `delay` makes the job ready.
    Retry { fails: u8, delay: Span, due: Time },
    Priority(Priority),
    Scheduled { due: Time, count: RunCount },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredOptions<'a> {
    /// In the record of a schedule, the other options apply to the copies.
    pub schedule: Option<StoredSchedule<'a>>,
    pub completion: CompletionPolicy,
    pub dedup_key: StoredKey<'a>,
    pub ttl: Span,
    pub expires: Time,
    pub start: Time,
    /// After the start time, the job's rank among ready jobs of the same priority. 0 before the start time.
    pub order: u64,
    pub max_attempts: u8,
    pub max_fails: u8,
    /// For a finished job, `true` if it succeeded, and the offset of the result in the body.
    pub outcome: Option<(bool, u32)>,
    pub reducer: Option<&'a [u8]>,
    /// The number of seconds for which the key outlives the job.
    pub keep: u32,
    pub backoff: u32,
    pub concurrency: (StoredKey<'a>, u32),
    pub reason: &'a [u8],
    pub ties: StoredTies<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredSchedule<'a> {
    /// The text of the recurrence, which [`Recurrence::parse`](crate::engine::Recurrence::parse) parses.
    pub when: &'a [u8],
    pub due: Time,
    pub count: RunCount,
}

#[derive(Clone, Copy)]
pub enum StoredTies<'a> {
    None,
    Tags(&'a [GroupTag]),
    Kept(&'a Groups, u32),
    Read(&'a [u8], ReadTie),
}

/// Parses the next tie. Returns the tie and the remaining bytes.
pub type ReadTie = for<'a> fn(&'a [u8]) -> Option<(StoredTie<'a>, &'a [u8])>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredTie<'a> {
    pub name: Cow<'a, [u8]>,
    /// The number of members that must end before a wait is over, where 0 means all members. `None` for a membership.
    pub need: Option<u32>,
    /// The number of members that must still end. 0 means all members.
    pub left: u32,
}

impl<'a> StoredTies<'a> {
    /// Returns the memberships, followed by the waits that are not over.
    pub fn iter(self) -> Box<dyn Iterator<Item = StoredTie<'a>> + 'a> {
        match self {
            StoredTies::None => Box::new(std::iter::empty()),
            StoredTies::Tags(tags) => {
                Box::new(tags.iter().map(|tag| StoredTie { name: tag.name.text(), need: None, left: 0 }))
            }
            StoredTies::Kept(groups, slot) => {
                let name = |group: u32| groups.get(group).name.text();
                let members =
                    groups.of_member(slot).map(move |group| StoredTie { name: name(group), need: None, left: 0 });
                let waits = groups.waits_of(slot).filter(|wait| !groups.is_over(wait));
                let waits = waits.map(move |wait| StoredTie {
                    name: name(wait.group),
                    need: Some(wait.need),
                    left: groups.left(wait),
                });
                Box::new(members.chain(waits))
            }
            StoredTies::Read(mut bytes, next) => Box::new(std::iter::from_fn(move || {
                let (tie, rest) = next(bytes)?;
                bytes = rest;
                Some(tie)
            })),
        }
    }
}

impl PartialEq for StoredTies<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for StoredTies<'_> {}

impl fmt::Debug for StoredTies<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredKey<'a> {
    None,
    /// Borrowed from a log record.
    Name(&'a [u8]),
    /// Borrowed from an existing job.
    Kept(&'a Name),
    Body,
    Id([u8; 16]),
}

impl DedupKey {
    pub fn written(&self) -> StoredKey<'_> {
        match self {
            DedupKey::None => StoredKey::None,
            DedupKey::Name(name) => StoredKey::Kept(name),
            DedupKey::Body(_) => StoredKey::Body,
            DedupKey::Id(id) => StoredKey::Id(*id),
        }
    }
}

impl StoredKey<'_> {
    pub fn restored(self) -> DedupKey {
        match self {
            StoredKey::None => DedupKey::None,
            StoredKey::Name(name) => DedupKey::Name(name.into()),
            StoredKey::Kept(name) => DedupKey::Name(name.clone()),
            StoredKey::Body => DedupKey::Body(None),
            StoredKey::Id(id) => DedupKey::Id(id),
        }
    }
}

impl Engine {
    /// A reserved job that is not leased is logged as ready.
    pub fn stored_job<'a>(&'a self, job: JobView<'a>) -> StoredJob<'a> {
        StoredJob {
            id: job.id,
            tube: self.tube_of(&job),
            pri: job.pri,
            delay: job.delay(),
            ttr: job.ttr(),
            created: job.created,
            state: match job.state() {
                State::Reserved if !job.is_leased() => State::Ready,
                state => state,
            },
            due: job.due,
            history: job.history(),
            fails: job.fails,
            dead_from: self.dead_from(&job),
            body: job.body().bytes(),
            options: self.stored_options(&job),
        }
    }

    pub fn dead_from(&self, job: &Job) -> Option<&[u8]> {
        self.store.origins.name(job.holder).filter(|_| job.state() == State::Buried)
    }

    pub fn stored_change(&self, change: &Change) -> Option<(JobId, StoredChange)> {
        let job = self.store.jobs.get(change.slot()?);
        let (pri, due) = (job.pri, job.due);
        let History { reserves, timeouts, releases, buries, kicks } = job.history();
        let stored = match change {
            Change::Reserve(_) => StoredChange::Reserve(reserves),
            Change::Expire(_) => StoredChange::Expire(timeouts),
            Change::Kick(_) => StoredChange::Kick(kicks),
            Change::Lease(_) => StoredChange::Lease(reserves, due),
            Change::Release(_) => {
                StoredChange::Release { pri, delay: job.delay(), due, count: releases, fails: job.fails }
            }
            Change::Priority(_) => StoredChange::Priority(pri),
            Change::Skip(_) => StoredChange::Scheduled { due, count: self.store.schedules.get(job.holder).count },
            Change::Retry(_) => {
                let delay = if job.state() == State::Delayed { job.delay() } else { Span::ZERO };
                StoredChange::Retry { fails: job.fails, delay, due }
            }
            Change::Bury(_) => StoredChange::Bury { pri, order: due.nanos(), count: buries, fails: job.fails },
            _ => return None,
        };
        Some((job.id, stored))
    }

    pub fn stored_options(&self, job: &Job) -> Option<StoredOptions<'_>> {
        if job.state() == State::Scheduled {
            return Some(self.stored_schedule(job));
        }
        let extras = self.extras(job);
        if job.completion == CompletionPolicy::Drop && !job.is_tied() && !extras.is_some_and(JobExtras::is_tagged) {
            return None;
        }
        let rare = extras.and_then(JobExtras::rare);
        let tied = if job.is_tied() { self.store.jobs.find(job.id) } else { None };
        Some(StoredOptions {
            schedule: None,
            completion: job.completion,
            dedup_key: extras.map_or(StoredKey::None, |extras| extras.dedup_key.written()),
            ttl: extras.map_or(Span::MAX, |extras| extras.ttl),
            expires: extras.map_or(Time::NEVER, |extras| extras.expires),
            start: rare.map_or(Time::NEVER, |rare| rare.start),
            order: rare.map_or(0, |rare| rare.order),
            max_attempts: extras.map_or(0, |extras| extras.max_attempts),
            max_fails: extras.map_or(0, |extras| extras.max_fails),
            outcome: extras.filter(|_| job.state() == State::Finished).map(|it| (it.done, it.keep_or_offset)),
            reducer: extras.and_then(JobExtras::reducer),
            keep: extras.filter(|_| job.completion == CompletionPolicy::Drop).map_or(0, |it| it.keep_or_offset),
            backoff: extras.map_or(0, JobExtras::backoff),
            concurrency: rare.filter(|rare| rare.lane != NIL).map_or((StoredKey::None, 0), |rare| {
                (StoredKey::Kept(self.store.lanes.key_of(rare.lane)), rare.con_limit)
            }),
            reason: extras.map_or(&[], JobExtras::reason),
            ties: tied.map_or(StoredTies::None, |slot| StoredTies::Kept(&self.store.groups, slot)),
        })
    }

    pub fn schedule_of(&self, job: &Job) -> Option<&Schedule> {
        (job.state() == State::Scheduled && job.holder != NIL).then(|| self.store.schedules.get(job.holder))
    }

    fn stored_schedule(&self, job: &Job) -> StoredOptions<'_> {
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

    pub fn stored_run(&self, slot: u32) -> (JobId, StoredChange) {
        let job = self.store.jobs.get(slot);
        let count = self.store.schedules.get(job.holder).count;
        (job.id, StoredChange::Scheduled { due: job.due, count })
    }
}
