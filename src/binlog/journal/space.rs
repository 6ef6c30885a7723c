//! Disk usage, the log space for the engine, and compaction. Compaction bounds the disk usage: it rewrites the live
//! items of the oldest segment, then removes the segment. It also empties unreliable segments after a disk failure.
//! Enforces promise P20 of beanpole-promises(7).

use super::{Journal, Live, Retired, Segment, BACKLOG, COMPACT_BYTES, IDS_KEPT};
use crate::binlog::batch::{Batch, Synced};
use crate::binlog::record::{Record, CHANGE, DELETE, MARK, PUT};
use crate::binlog::segment::{LogLocation, HEADER, MAX_NUMBER_GAP};
use crate::engine::{Engine, LogRoom, CHANGE_SIZE, PUT_SIZE};
use crate::shared::log_figures::Health;

const _: () = assert!((PUT + DELETE) as u64 <= PUT_SIZE && CHANGE as u64 <= CHANGE_SIZE, "the engine undercounts");

/// Bytes kept free for records about the log itself.
const KEPT: u64 = 8 * MARK as u64;
/// The value of [`Retired::after`] until a record states that the segment is not needed.
const UNRECORDED: u64 = u64::MAX;

impl Journal {
    /// Returns the bytes that must remain free, so that every job can be deleted and segments can be removed.
    pub(super) fn reserve(&self) -> u64 {
        DELETE as u64 * self.jobs + self.group_ends + KEPT
    }

    /// Returns the usable bytes in the current and prepared segments. A record may be too large for a segment's end.
    pub(super) fn ahead(&self) -> u64 {
        if self.unusual == 0 {
            return self.rest() + self.fresh(self.segment_size) * self.prepared.len() as u64;
        }
        self.rest() + self.prepared.iter().map(|&(_, size)| self.fresh(size)).sum::<u64>()
    }

    fn rest(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.size.saturating_sub(segment.bytes + (CHANGE + MARK) as u64))
    }

    fn fresh(&self, size: u64) -> u64 {
        size.saturating_sub((HEADER + CHANGE + MARK) as u64).max(1)
    }

    /// Returns the size of the largest record that leaves `kept` usable bytes.
    pub(super) fn space(&self, kept: u64) -> u64 {
        let mut ahead = self.ahead();
        let mut max = 0;
        // Prepared segments of the same size need only one check.
        let first = if self.unusual == 0 { 1 } else { self.prepared.len() };
        let fresh = self.prepared.iter().take(first).map(|&(_, size)| self.fresh(size));
        for space in std::iter::once(self.rest()).chain(fresh) {
            max = max.max(space.min(ahead.saturating_sub(kept)));
            // A record in a later segment wastes the space in this segment.
            ahead -= space;
        }
        max
    }

    /// Returns the bytes available for records other than deletes. On a full disk, some bytes are kept for compaction.
    pub(super) fn room(&self) -> u64 {
        match self.health {
            Health::Ok => u64::MAX,
            Health::Full => self.ahead().saturating_sub(self.reserve() + self.compaction_room()),
            Health::Failing => BACKLOG.saturating_sub(self.buffer.len() as u64),
        }
    }

    /// Returns the log space that the engine may use. The engine must receive this value before every command.
    pub fn engine_room(&self) -> LogRoom {
        let puts = match self.health {
            Health::Ok => self.space(self.reserve()),
            Health::Full => self.space(self.reserve() + self.compaction_room()),
            Health::Failing => 0,
        };
        let changes = self.room();
        // A command cannot add segments while it makes its changes.
        let burst = changes.min(self.ahead().saturating_sub(self.reserve()).max(CHANGE as u64));
        LogRoom { puts, changes, burst, ids: self.ids_synced }
    }

    /// Returns `true` if a segment must be prepared, usually because less than half a segment is left for new records.
    pub fn wanted(&self) -> bool {
        let enough = if self.health == Health::Full { self.segment_size } else { self.segment_size / 2 };
        let is_enough = self.health == Health::Failing || self.ahead() >= enough + self.reserve();
        let is_needed = || self.ahead() < self.reserve() && !self.awaits_removal();
        let fits = || is_needed() || self.disk() + self.wanted_size() <= self.bound();
        self.requested > 0 && self.lacks_space(self.requested) || !is_enough && fits()
    }

    /// Returns the promised maximum disk usage in bytes.
    pub fn bound(&self) -> u64 {
        2 * self.live + 2 * self.segment_size
    }

    /// Returns `true` if the disk is OK, but `bytes` bytes plus a job do not fit or too few IDs are durably reserved.
    pub fn is_short(&self, bytes: u64) -> bool {
        self.lacks_space(bytes) || self.health == Health::Ok && self.last_id + IDS_KEPT > self.ids_synced
    }

    fn lacks_space(&self, bytes: u64) -> bool {
        self.health == Health::Ok && self.space(self.reserve()) < bytes + (PUT + DELETE) as u64
    }

    /// Returns `true` if a sync would permit the removal of segments or the use of more IDs.
    pub fn awaits_sync(&self) -> bool {
        self.retiring > 0 || self.last_id + IDS_KEPT > self.ids_synced
    }

    /// Returns `true` if another segment fits into the bound only after a sync and the removal of the retired segments.
    pub fn awaits_removal(&self) -> bool {
        self.retiring > 0 && !self.in_doubt && self.disk() + self.segment_size > self.bound()
    }

    pub fn is_behind(&self) -> bool {
        self.health == Health::Ok && self.disk() > self.bound() && self.can_shrink()
    }

    pub fn can_shrink(&self) -> bool {
        self.retiring > 0 || self.debt() > 0
    }

    /// Returns the bytes by which the old segments exceed their target size, or at least 1 while a segment must be
    /// emptied or, on a full disk, is empty. The target is 1.25 to 1.5 times the size of the live items. In this range,
    /// it decreases if current or prepared segments grow. The rest of [`Journal::bound`] is for compaction and records.
    pub(super) fn debt(&self) -> u64 {
        let others = self.disk() - self.old - self.retiring;
        let allowed = self.bound().saturating_sub(others).clamp(self.live / 4 * 5, self.live / 2 * 3);
        let is_useless = || self.health == Health::Full && self.segments.len() > 1 && self.segments[0].live == 0;
        self.old.saturating_sub(allowed).max((self.evacuating > 0 || is_useless()).into())
    }

    pub fn compact(&mut self, engine: &Engine) -> bool {
        if self.health == Health::Failing {
            return false;
        }
        self.append_gone(self.synced); // now, because more segments might retire before each sync
        let more = self.compact_some(engine);
        self.append_gone(self.synced);
        more
    }

    fn compact_some(&mut self, engine: &Engine) -> bool {
        let mut quota = COMPACT_BYTES;
        let mut lost = self.lost_segment();
        while self.segments.len() > 1 && self.debt() > 0 {
            let segment = &self.segments[lost.unwrap_or(0)];
            let first = Live::ALL.into_iter().find_map(|live| Some((live, segment.lists[live as usize].first()?)));
            let Some((live, number)) = first else {
                lost.is_none().then(|| self.retire());
                lost = lost.and_then(|_| self.lost_segment());
                continue;
            };
            let (size, space) = (live.size(number, engine), self.space(self.reserve()));
            if self.health != Health::Ok && segment.live > space {
                // A segment frees space only if it can be emptied completely.
                return false;
            }
            if size > space {
                self.requested = if self.awaits_removal() { 0 } else { size };
                return true;
            }
            let Some(rest) = quota.checked_sub(size.min(COMPACT_BYTES)) else { return true };
            quota = rest;
            self.move_out(live, number, size);
            self.write(live, number, size, engine);
            self.migrated += 1;
        }
        false
    }

    /// Returns the index of the first lost segment with live items, which exist only in memory and must come first.
    fn lost_segment(&self) -> Option<usize> {
        let is_lost = |it: &Segment| it.missing && it.lists.iter().any(|list| list.first().is_some());
        let mut full = self.segments.iter().take(if self.evacuating > 0 { self.segments.len() - 1 } else { 0 });
        full.position(is_lost)
    }

    /// Returns `true` if the oldest segment must be removed. Its live items might not fit into the existing segments.
    pub fn must_remove(&self) -> bool {
        self.segments.len() > 1 && self.debt() > 0
    }

    pub(super) fn compaction_room(&self) -> u64 {
        let live = if self.must_remove() { self.segments[0].live } else { 0 };
        live.min(self.segment_size).max(self.segment_size / 4)
    }

    /// Returns the size of a segment for the live items of the oldest segment. Returns `None` if the oldest segment
    /// need not be removed, or if its live items fit into the existing segments.
    pub fn rescue_size(&self) -> Option<u64> {
        let live = self.must_remove().then(|| self.segments[0].live)?;
        (live > self.space(self.reserve())).then(|| live + live / 8 + self.reserve() + (HEADER + CHANGE + MARK) as u64)
    }

    /// Retires the oldest segment. Its file is removed once a durable record states that the segment is not needed.
    fn retire(&mut self) {
        let Segment { number, bytes, evacuating, damaged, .. } = self.segments.pop_front().expect("a segment");
        (self.old, self.retiring) = (self.old - bytes, self.retiring + bytes);
        self.evacuating -= usize::from(evacuating);
        self.retired.push_back(Retired { number, bytes, after: UNRECORDED, damaged });
        if self.syncs_copies {
            self.demanded = self.position;
        }
    }

    /// `synced` is the current end of the synced part of the log, which can contain the copies of retired segments.
    pub fn append_gone(&mut self, synced: Synced) {
        self.is_synced(synced);
        if self.evacuating == 0 {
            self.in_doubt = false;
        }
        let must_wait = self.in_doubt || self.syncs_copies && self.synced.position < self.demanded;
        if must_wait || self.retired.back().is_none_or(|retired| retired.after != UNRECORDED) {
            return;
        }
        let oldest = self.segments.front().expect("the current segment").number;
        self.append_record(MARK as u64, &Record::Gone(oldest));
        self.demanded = self.position;
        let unrecorded = self.retired.iter_mut().filter(|retired| retired.after == UNRECORDED);
        unrecorded.for_each(|retired| retired.after = self.position);
    }

    /// Returns the size of a segment for `again` bytes that must be rewritten and for all bytes not written yet.
    pub fn take_over_size(&self, again: u64) -> u64 {
        self.segment_size.max(again + self.buffer.len() as u64 + self.segment_size / 4)
    }

    /// Returns the first retired segment if it can be removed now. If the `last` removal succeeded, a segment whose
    /// removal failed earlier comes first. Saves `synced` for the header of the next segment: a header that states
    /// which segments are not needed must also state that the record which permitted their removal is synced.
    pub fn next_retired(&mut self, synced: Synced, last: &std::io::Result<()>) -> Option<Retired> {
        if synced.position > self.synced.position {
            self.is_synced(synced);
        }
        for stuck in self.stuck.drain(..self.stuck.len().min(last.is_ok().into())) {
            self.retiring += stuck.bytes;
            self.retired.push_front(stuck);
        }
        self.retired.front().filter(|retired| retired.after <= synced.position).copied()
    }

    /// Returns `true` if any file is left that could not be removed.
    pub fn finish_removal(&mut self, gone: Retired, removal: &std::io::Result<()>) -> bool {
        if self.retired.front() == Some(&gone) {
            self.retired.pop_front();
            self.retiring -= gone.bytes;
            self.stuck.extend(removal.is_err().then_some(gone));
        }
        !self.stuck.is_empty()
    }

    /// New segments must get larger numbers than the stuck segment, unless its number is implausible.
    pub fn found_stuck(&mut self, number: u64, bytes: u64, damaged: bool) {
        self.next_number = self.next_number.max(if number < MAX_NUMBER_GAP { number + 1 } else { 0 });
        self.stuck.push(Retired { number, bytes, after: 0, damaged });
    }

    pub fn needs_maintenance(&self) -> bool {
        !self.retired.is_empty() || self.wanted() || self.debt() > 0
    }

    /// Makes compaction empty the segments whose files have disappeared since the last call. Returns the newest one.
    pub fn evacuate_missing(&mut self, is_there: impl Fn(u64) -> bool) -> Option<u64> {
        let mut newest = None;
        for segment in self.segments.iter_mut().filter(|segment| !segment.missing && !is_there(segment.number)) {
            (segment.evacuating, segment.missing) = (true, true);
            newest = Some(segment.number);
            self.lost += 1;
        }
        self.count_evacuating();
        self.syncs_copies |= newest.is_some();
        let prepared = self.prepared.iter().map(|&(number, _)| number).filter(|&number| !is_there(number));
        self.lost += prepared.clone().count() as u64;
        newest.max(prepared.last())
    }

    /// Notes that the file of the last segment could not be written and was removed.
    pub fn removed_newest(&mut self) {
        let segment = self.segments.back_mut().expect("a segment");
        (segment.bytes, segment.missing) = (0, true);
    }

    /// Retires the prepared segments, because a failing disk may have damaged them.
    pub fn abandon_prepared(&mut self) {
        (self.ready, self.unusual) = (0, 0);
        for (number, bytes) in self.prepared.drain(..) {
            self.retiring += bytes;
            self.retired.push_front(Retired { number, bytes, after: self.synced.position, damaged: false });
        }
    }

    /// Continues in a new segment after a disk failure. Compaction must rewrite the segments from `first` on, because
    /// they might not be durable. `before` is the durable end of the log. If `rely` is `false`, unsynced records may be
    /// lost: compaction must rewrite unsynced segments before it removes a segment.
    /// Returns the bytes not taken yet, and the new segment's header. The caller writes the header, then the `again`
    /// bytes that were taken but are not durable, then the bytes not taken yet.
    pub fn take_over(
        &mut self,
        (number, size): (u64, u64),
        first: u64,
        again: u64,
        before: LogLocation,
        rely: bool,
    ) -> (Batch, Batch) {
        if !rely {
            let unsynced = self.retired.iter_mut().filter(|retired| retired.after > self.synced.position);
            unsynced.for_each(|retired| retired.after = UNRECORDED);
            self.in_doubt = true;
        }
        let pending = self.take(Vec::new(), self.synced);
        // The log is durable up to `before`, so earlier unreadable bytes are damage, not the end of the log.
        self.synced = Synced { location: before, position: self.synced.position };
        let first = self.segment_index(first as u32);
        self.segments.range_mut(first..).for_each(|segment| segment.evacuating = true);
        self.count_evacuating();
        let records = pending.bytes.len() - HEADER * pending.cuts.len();
        self.begin(number, size, before);
        self.segments.back_mut().expect("a segment").bytes += again + records as u64;
        (pending, self.take(Vec::new(), self.synced))
    }
}
