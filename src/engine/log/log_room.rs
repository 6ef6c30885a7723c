//! The budget of log space, in bytes. The log grants bytes before each call, and each change is charged. A request
//! claims space before it changes anything, and is refused if there is not enough space. Without a log, the budget is
//! unlimited. The log asserts that the charged sizes suffice for its records.
//! Enforces promises P4 and P16 of beanpole-promises(7).
//! Touches: news, store, tubes.

use crate::engine::data::*;
use crate::engine::Engine;

/// Bytes for a new job and its later delete, excluding the tube name, the options and the body.
pub const PUT_SIZE: u64 = 76;
/// Bytes for any other change to a job.
pub const CHANGE_SIZE: u64 = 45;
/// Bytes for the options of a job, excluding their strings.
pub const OPTIONS_SIZE: usize = 68;
/// Additional bytes for a dead letter, excluding the name of its origin.
pub const ORIGIN_SIZE: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRoom {
    /// Bytes for new jobs and results. Separate from `changes`, which must remain possible on a nearly full disk.
    pub puts: u64,
    /// Bytes for other changes, except deletes of jobs. The put of a job claims the space for its delete in advance.
    pub changes: u64,
    /// Bytes of `changes` that a bulk command can claim at a time. The limit leaves space for deletes.
    pub burst: u64,
    pub ids: u64,
}

impl LogRoom {
    pub const ENDLESS: LogRoom = LogRoom { puts: u64::MAX, changes: u64::MAX, burst: u64::MAX, ids: u64::MAX };

    /// Returns `true` if the log can create segments. On a full or failing disk, the log grants only limited space.
    fn can_grow(self) -> bool {
        self.changes > u64::MAX / 2
    }
}

impl Engine {
    pub fn set_log_room(&mut self, room: LogRoom) {
        self.news.room = room;
    }

    /// Returns and resets the number of log bytes needed by the last refused request, or 0 if none waits for log space.
    pub fn take_lacking(&mut self) -> u64 {
        std::mem::take(&mut self.news.lacking)
    }

    /// Claims log space for `bytes` of name, options and body. Records a lack of IDs or, if the log can grow, of space.
    pub(in crate::engine) fn claim_put(&mut self, bytes: usize, volatile: bool) -> bool {
        let logged = if volatile { 0 } else { PUT_SIZE + bytes as u64 };
        let is_short = logged > self.news.room.puts;
        if is_short || self.store.last_id >= self.news.room.ids {
            self.news.lacking = if is_short && !self.news.room.can_grow() { 0 } else { logged.max(1) };
            return false;
        }
        self.news.room.puts -= logged;
        true
    }

    /// Returns the bytes for making a volatile job durable (slightly more than for a new job), or 0 for a durable job.
    pub(in crate::engine) fn persist_size(&self, slot: u32) -> u64 {
        if !self.store.jobs.get(slot).is_volatile() {
            return 0;
        }
        PUT_SIZE + CHANGE_SIZE + self.logged_size(slot) as u64
    }

    /// Claims log space for making a volatile job durable, or records how much is needed.
    pub(in crate::engine) fn claim_persist(&mut self, slot: u32) -> bool {
        let logged = self.persist_size(slot);
        let is_claimed = claim(&mut self.news.room.puts, logged);
        self.news.lacking = if is_claimed { self.news.lacking } else { logged };
        is_claimed
    }

    pub(in crate::engine) fn claim_result(&mut self, slot: u32, bytes: usize) -> bool {
        let logged = if self.store.jobs.get(slot).is_volatile() { 0 } else { PUT_SIZE + bytes as u64 };
        claim(&mut self.news.room.puts, logged)
    }

    /// Claims log space for a change with `extra` bytes of names or of a failure reason.
    pub fn claim_log_room(&mut self, extra: usize) -> bool {
        claim(&mut self.news.room.changes, CHANGE_SIZE + extra as u64)
    }

    /// Counts a change with `extra` bytes. Returns `false` if a bulk command must pause until the log has more space.
    pub(in crate::engine) fn take_burst(&mut self, extra: usize) -> bool {
        self.news.room.burst = self.news.room.burst.saturating_sub(CHANGE_SIZE + extra as u64);
        self.news.room.burst > 0 || !self.news.room.can_grow()
    }

    pub(in crate::engine) fn claim_burst(&mut self, count: u64) -> u64 {
        let claimed = count.min(self.news.room.changes.min(self.news.room.burst) / CHANGE_SIZE);
        self.news.room.changes -= claimed * CHANGE_SIZE;
        claimed
    }

    pub fn group_ends(&self) -> u64 {
        self.store.groups.ends
    }

    /// Returns the log bytes for a job, excluding [`PUT_SIZE`].
    pub fn logged_size(&self, slot: u32) -> usize {
        let job = self.store.jobs.get(slot);
        let origin =
            if job.is_dead_letter() { self.dead_from(job).map_or(0, |name| ORIGIN_SIZE + name.len()) } else { 0 };
        let size = self.tubes.get(job.tube).name.len() + job.body.len() + origin;
        if job.state() == State::Scheduled {
            let schedule = self.store.schedules.get(job.holder);
            return size + logged_schedule(schedule.texts(), schedule.tags().map_or(0, |tags| tags.groups.len()));
        }
        let extras = self.extras(job);
        if job.completion == CompletionPolicy::Drop && !job.is_tied() && !extras.is_some_and(JobExtras::is_tagged) {
            return size;
        }
        let groups = &self.store.groups;
        let ties = groups.of_member(slot).chain(groups.waits_of(slot).map(|wait| wait.group));
        let size = size + ties.map(|number| tie_size(groups.get(number).name.length())).sum::<usize>();
        let size = size + self.lane_of(slot).map_or(0, |lane| self.store.lanes.key_of(lane).length());
        size + options_size(
            extras.map_or(&DedupKey::None, |extras| &extras.dedup_key),
            extras.and_then(JobExtras::reducer),
        ) + extras.map_or(0, |extras| extras.reason().len())
    }
}

fn claim(budget: &mut u64, bytes: u64) -> bool {
    let Some(rest) = budget.checked_sub(bytes) else { return false };
    *budget = rest;
    true
}

const fn tie_size(name: usize) -> usize {
    6 + name
}

/// Bytes for the record of a group, excluding its name.
pub const GROUP_SIZE: usize = 56;

impl GroupTag {
    /// Returns the log bytes for the tag, including records for a new group and for the end of the membership.
    pub fn logged_size(&self) -> usize {
        let name = self.name.length();
        tie_size(name) + GROUP_SIZE + name + end_size(name) as usize
    }
}

/// `texts` is the total length of the schedule's strings, and `groups` is the number of groups of the copies.
pub(in crate::engine) const fn logged_schedule(texts: usize, groups: usize) -> usize {
    OPTIONS_SIZE + 16 + texts + groups * tie_size(0)
}

fn options_size(dedup_key: &DedupKey, reducer: Option<&[u8]>) -> usize {
    let name = if let DedupKey::Name(name) = dedup_key { name.length() } else { 0 };
    OPTIONS_SIZE + name + reducer.map_or(0, <[u8]>::len)
}

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
