//! What the log can still take: the one place where the engine counts bytes of log.
//!
//! Owns the budget that the log grants before each verb, and what a change counts for, which is never less than its
//! records take. A verb claims its share before it changes anything, and is refused where there is none. Without a log,
//! there is no end to it. Must not know records, segments or files: the log checks that the figures here cover its own.
//!
//! Promises: P4, P16.
//! Touches: news, store, tubes.

use crate::engine::data::groups::end_size;
use crate::engine::data::job::State;
use crate::engine::data::job_extras::JobExtras;
use crate::engine::data::job_options::{CompletionPolicy, DedupKey, GroupTag, JobOptions};
use crate::engine::data::time::Span;
use crate::engine::Engine;

/// Bytes for which a new job counts beside the name of its tube, its options and its body; its delete included, so that
/// every job that was taken in can be deleted.
pub const PUT_SIZE: u64 = 76;

/// Bytes for which any other change to a job counts.
pub const CHANGE_SIZE: u64 = 45;

/// Bytes for which the options of a job count beside its name and its reducer.
pub const OPTIONS_SIZE: usize = 68;

/// Bytes for which a dead letter counts beside the name of the tube that it comes from.
pub const ORIGIN_SIZE: usize = 2;

/// How much the log can still take. It is four figures, since one would break a promise. A change to a job that is
/// there is never refused while the disk is well, however little is ready for new jobs, which must fit into segments
/// that are made; many changes at once must leave the deletes their room; and ids run out apart from bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRoom {
    /// Bytes that new jobs and results may take.
    pub puts: u64,
    /// Bytes that other changes may take. Deletes are always taken: their room was kept when the job was put.
    pub changes: u64,
    /// Bytes of it that one command may take which changes many jobs, before it must come again for more.
    pub burst: u64,
    /// The last id that may be given.
    pub ids: u64,
}

impl LogRoom {
    /// Of a queue without a log.
    pub const ENDLESS: LogRoom = LogRoom { puts: u64::MAX, changes: u64::MAX, burst: u64::MAX, ids: u64::MAX };
}

impl Engine {
    /// How much the log can take until this is called again.
    pub fn set_log_room(&mut self, room: LogRoom) {
        self.news.room = room;
    }

    /// Bytes that the log should have for whoever tries again what was refused just now; zero if nothing was refused
    /// for want of them, or if the room of the log said so before.
    pub fn take_lacking(&mut self) -> u64 {
        std::mem::take(&mut self.news.lacking)
    }

    /// Claims room for a new job with so many bytes of name, options and body, and an id for it; false if there is
    /// none.
    pub(in crate::engine) fn claim_put(&mut self, bytes: usize, volatile: bool) -> bool {
        let logged = if volatile { 0 } else { PUT_SIZE + bytes as u64 };
        if logged > self.news.room.puts {
            return false;
        }
        if self.store.last_id >= self.news.room.ids {
            self.news.lacking = logged.max(1);
            return false;
        }
        self.news.room.puts -= logged;
        true
    }

    /// Bytes for logging a job that was not in the log, which takes slightly more than a new one.
    pub(in crate::engine) fn adoption_size(&self, slot: u32) -> u64 {
        PUT_SIZE + CHANGE_SIZE + self.logged_size(slot) as u64
    }

    /// Claims room for writing down a job that no log knew until now; false if there is none.
    pub(in crate::engine) fn claim_adoption(&mut self, slot: u32) -> bool {
        let logged = self.adoption_size(slot);
        let has_room = logged <= self.news.room.puts;
        if has_room {
            self.news.room.puts -= logged;
        } else {
            self.news.lacking = logged;
        }
        has_room
    }

    /// Claims log space for a result of `bytes` bytes for the job in `slot`. Returns `false` if there is not enough.
    pub(in crate::engine) fn claim_result(&mut self, slot: u32, bytes: usize) -> bool {
        let logged = if self.store.jobs.get(slot).is_volatile() { 0 } else { PUT_SIZE + bytes as u64 };
        let rest = self.news.room.puts.checked_sub(logged);
        self.news.room.puts = rest.unwrap_or(self.news.room.puts);
        rest.is_some()
    }

    /// Claims room for one change, to a job or with a name of `extra` bytes to a tube; false if there is none, and then
    /// the change must not be made.
    pub fn claim_log_room(&mut self, extra: usize) -> bool {
        let rest = self.news.room.changes.checked_sub(CHANGE_SIZE + extra as u64);
        self.news.room.changes = rest.unwrap_or(self.news.room.changes);
        rest.is_some()
    }

    /// Claims log space for as many of `most` changes as one command may make now, and returns their number.
    pub(in crate::engine) fn claim_burst(&mut self, most: u64) -> u64 {
        let claimed = most.min(self.news.room.changes.min(self.news.room.burst) / CHANGE_SIZE);
        self.news.room.changes -= claimed * CHANGE_SIZE;
        claimed
    }

    /// Bytes for which the groups of the job in `slot` count.
    fn ties_size(&self, slot: u32) -> usize {
        let groups = &self.store.groups;
        let all = groups.of_member(slot).chain(groups.waits_of(slot).map(|wait| wait.group));
        all.map(|number| tie_size(groups.get(number).name.length())).sum()
    }

    /// Bytes that the log must keep for the ends of members of groups, in addition to plain deletes.
    pub fn group_ends(&self) -> u64 {
        self.store.groups.ends()
    }

    /// Bytes for which the job in `slot` counts: the name of its tube, its options and its body. They change with its
    /// outcome only.
    pub fn logged_size(&self, slot: u32) -> usize {
        let job = self.store.jobs.get(slot);
        let origin = if job.state() == State::Buried { self.store.origins.name(job.holder) } else { None };
        let size =
            self.tubes.get(job.tube).name.len() + job.body.len() + origin.map_or(0, |name| ORIGIN_SIZE + name.len());
        if job.state() == State::Scheduled {
            return size + self.schedule_size(job);
        }
        let extras = self.extras(job);
        if job.completion == CompletionPolicy::Drop && !job.is_tied() && !extras.is_some_and(JobExtras::is_tagged) {
            return size;
        }
        let size = size + if job.is_tied() { self.ties_size(slot) } else { 0 };
        let size = size + self.lane_of(slot).map_or(0, |lane| self.store.lanes.key_of(lane).length());
        size + options_size(
            extras.map_or(&DedupKey::None, |extras| &extras.dedup_key),
            extras.and_then(JobExtras::reducer),
        ) + extras.map_or(0, |extras| extras.reason().len())
    }
}

/// Bytes for which a group counts that a job is a member of or waits for, if its name has this length.
pub(in crate::engine) const fn tie_size(name: usize) -> usize {
    6 + name
}

/// Bytes for which the record of a group counts beside its name.
pub const GROUP_SIZE: usize = 56;

impl GroupTag {
    /// Bytes for which the tag counts: each group may be new, and the end of a member takes more than a plain delete.
    pub fn logged_size(&self) -> usize {
        let name = self.name.length();
        tie_size(name) + GROUP_SIZE + name + end_size(name) as usize
    }
}

/// Bytes for which the options of a schedule count, if its name, when it recurs and the names in its tags have so many
/// bytes, and its copies are members of so many groups.
pub(in crate::engine) const fn logged_schedule(texts: usize, groups: usize) -> usize {
    OPTIONS_SIZE + 16 + texts + groups * tie_size(0)
}

fn options_size(dedup_key: &DedupKey, reducer: Option<&[u8]>) -> usize {
    let name = if let DedupKey::Name(name) = dedup_key { name.length() } else { 0 };
    OPTIONS_SIZE + name + reducer.map_or(0, <[u8]>::len)
}

/// Bytes for which the options of a job count that is still to be made.
pub(in crate::engine) fn logged_options(options: &JobOptions) -> usize {
    let plain = options.dedup_key == DedupKey::None && options.ttl == Span::MAX && options.max_attempts == 0;
    let plain = plain && options.groups.is_empty();
    let reason = options.reason.as_ref().map_or(0, |reason| reason.len());
    if options.completion == CompletionPolicy::Drop && plain && options.concurrency.is_none() && reason == 0 {
        return 0;
    }
    let key = options.concurrency.as_ref().map_or(0, |(key, _)| key.length());
    let ties: usize = options.groups.iter().map(GroupTag::logged_size).sum();
    reason + key + ties + options_size(&options.dedup_key, options.reducer.as_deref())
}
