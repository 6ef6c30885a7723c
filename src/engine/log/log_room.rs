//! The log space: the only place where the engine counts bytes of log.
//!
//! Owns the budget that the log grants before each verb, and the size that a change counts for, which is never less
//! than its records take. A verb claims its share before it changes anything, and is refused if there is none. Without
//! a log, the budget is unlimited. Must not know records, segments or files: the log checks that the figures here cover
//! its own.
//!
//! Promises: P4, P16.
//! Touches: news, store, tubes.

use crate::engine::data::{end_size, CompletionPolicy, DedupKey, GroupTag, JobExtras, JobOptions, Span, State};
use crate::engine::Engine;

/// Bytes that a new job and its later delete count for, without the name of its tube, its options and its body.
pub const PUT_SIZE: u64 = 76;

/// Bytes that any other change to a job counts for.
pub const CHANGE_SIZE: u64 = 45;

/// Bytes that the options of a job count for, in addition to its name and its reducer.
pub const OPTIONS_SIZE: usize = 68;

/// Bytes that a dead letter counts for, in addition to the name of its origin.
pub const ORIGIN_SIZE: usize = 2;

/// The remaining log space, in four figures, since one would break a promise. A change to an existing job is never
/// refused while the disk works, however little space is left for new jobs, which must fit into existing segments; many
/// changes at once must leave space for the deletes; and IDs run out independently of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRoom {
    /// Bytes that new jobs and results may take.
    pub puts: u64,
    /// Bytes that other changes may take. Deletes are always accepted: their space was reserved when the job was put.
    pub changes: u64,
    /// Bytes of `changes` that one command for many jobs may take before it must request more.
    pub burst: u64,
    /// The last ID that may be assigned.
    pub ids: u64,
}

impl LogRoom {
    /// The log space of a queue without a log.
    pub const ENDLESS: LogRoom = LogRoom { puts: u64::MAX, changes: u64::MAX, burst: u64::MAX, ids: u64::MAX };
}

impl Engine {
    /// Sets the log space that may be used until the next call.
    pub fn set_log_room(&mut self, room: LogRoom) {
        self.news.room = room;
    }

    /// Returns the bytes that the log should provide for a retry of the request that was just refused; 0 if none was
    /// refused for lack of them, or if the log space had shown the lack before.
    pub fn take_lacking(&mut self) -> u64 {
        std::mem::take(&mut self.news.lacking)
    }

    /// Claims an ID and log space for a new job with this many bytes of name, options and body. Returns `false` if
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

    /// Claims log space for a job that no log has yet. Returns `false` if there is none.
    pub(in crate::engine) fn claim_adoption(&mut self, slot: u32) -> bool {
        let logged = self.adoption_size(slot);
        let is_claimed = claim(&mut self.news.room.puts, logged);
        self.news.lacking = if is_claimed { self.news.lacking } else { logged };
        is_claimed
    }

    /// Claims log space for a result of `bytes` bytes for the job in `slot`. Returns `false` if there is not enough.
    pub(in crate::engine) fn claim_result(&mut self, slot: u32, bytes: usize) -> bool {
        let logged = if self.store.jobs.get(slot).is_volatile() { 0 } else { PUT_SIZE + bytes as u64 };
        claim(&mut self.news.room.puts, logged)
    }

    /// Claims log space for a change to a job, or to a tube with a name of `extra` bytes. If `false`, do not make it.
    pub fn claim_log_room(&mut self, extra: usize) -> bool {
        claim(&mut self.news.room.changes, CHANGE_SIZE + extra as u64)
    }

    /// Claims log space for as many of `most` changes as one command may make now, and returns their number.
    pub(in crate::engine) fn claim_burst(&mut self, most: u64) -> u64 {
        let claimed = most.min(self.news.room.changes.min(self.news.room.burst) / CHANGE_SIZE);
        self.news.room.changes -= claimed * CHANGE_SIZE;
        claimed
    }

    /// Returns the bytes that the groups of the job in `slot` count for.
    fn ties_size(&self, slot: u32) -> usize {
        let groups = &self.store.groups;
        let all = groups.of_member(slot).chain(groups.waits_of(slot).map(|wait| wait.group));
        all.map(|number| tie_size(groups.get(number).name.length())).sum()
    }

    /// Returns the bytes that the log must keep for the ends of members of groups, in addition to plain deletes.
    pub fn group_ends(&self) -> u64 {
        self.store.groups.ends
    }

    /// Returns the bytes that the job in `slot` counts for. They change with its outcome only.
    pub fn logged_size(&self, slot: u32) -> usize {
        let job = self.store.jobs.get(slot);
        let origin =
            if job.is_dead_letter() { self.dead_from(job).map_or(0, |name| ORIGIN_SIZE + name.len()) } else { 0 };
        let size = self.tubes.get(job.tube).name.len() + job.body.len() + origin;
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

/// Takes bytes from a budget. Returns `false` if it has fewer.
fn claim(budget: &mut u64, bytes: u64) -> bool {
    let rest = budget.checked_sub(bytes);
    *budget = rest.unwrap_or(*budget);
    rest.is_some()
}

/// Returns the bytes that a membership in a group or a wait for it counts for, if its name has this length.
pub(in crate::engine) const fn tie_size(name: usize) -> usize {
    6 + name
}

/// Bytes that the record of a group counts for, in addition to its name.
pub const GROUP_SIZE: usize = 56;

impl GroupTag {
    /// Returns the bytes that the tag counts for, including those of a new group and of the end of a member.
    pub fn logged_size(&self) -> usize {
        let name = self.name.length();
        tie_size(name) + GROUP_SIZE + name + end_size(name) as usize
    }
}

/// Returns the bytes that the options of a schedule count for, if its name, its recurrence and the names in its tags
/// have this total length, and its copies are members of this many groups.
pub(in crate::engine) const fn logged_schedule(texts: usize, groups: usize) -> usize {
    OPTIONS_SIZE + 16 + texts + groups * tie_size(0)
}

fn options_size(dedup_key: &DedupKey, reducer: Option<&[u8]>) -> usize {
    let name = if let DedupKey::Name(name) = dedup_key { name.length() } else { 0 };
    OPTIONS_SIZE + name + reducer.map_or(0, <[u8]>::len)
}

/// Returns the bytes that the options of a new job count for.
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
