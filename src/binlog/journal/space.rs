//! How much the journal can still take.
//!
//! Owns the arithmetic of space: what is on the disk already, what is kept back for deletes, what the engine may use.
//! Must not change anything.

use super::{Journal, BACKLOG, IDS_KEPT};
use crate::binlog::record::{CHANGE, DELETE, MARK, PUT};
use crate::binlog::segment::HEADER;
use crate::engine::{LogRoom, CHANGE_SIZE, PUT_SIZE};
use crate::shared::log_figures::Health;

const _: () = assert!((PUT + DELETE) as u64 <= PUT_SIZE && CHANGE as u64 <= CHANGE_SIZE, "the engine counts enough");

/// Bytes kept back for records of the log's own.
const KEPT: u64 = 8 * MARK as u64;

impl Journal {
    /// Bytes kept back so that every job can be deleted, and that segments can go.
    pub(super) fn reserve(&self) -> u64 {
        DELETE as u64 * self.jobs + self.group_ends + KEPT
    }

    /// Bytes of space that is on the disk already. Of each segment, a little is lost where the next record does not
    /// fit.
    pub(super) fn ahead(&self) -> u64 {
        if self.large == 0 {
            return self.rest() + self.fresh(self.segment_size) * self.prepared.len() as u64;
        }
        self.rest() + self.prepared.iter().map(|&(_, size)| self.fresh(size)).sum::<u64>()
    }

    /// Bytes of space in the segment that is being written to.
    fn rest(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.size.saturating_sub(segment.bytes + (CHANGE + MARK) as u64))
    }

    /// Bytes of space in a new segment of this size.
    fn fresh(&self, size: u64) -> u64 {
        size.saturating_sub((HEADER + CHANGE + MARK) as u64).max(1)
    }

    /// Bytes that a record or a few may take of the space on the disk, all in one segment, if `kept` bytes must be
    /// left.
    pub(super) fn space(&self, kept: u64) -> u64 {
        let mut ahead = self.ahead();
        let mut most = 0;
        // Of segments of one size, the first has the most behind it.
        let first = if self.large == 0 { 1 } else { self.prepared.len() };
        let fresh = self.prepared.iter().take(first).map(|&(_, size)| self.fresh(size));
        for space in std::iter::once(self.rest()).chain(fresh) {
            most = most.max(space.min(ahead.saturating_sub(kept)));
            // What goes into a later segment leaves this one's space behind.
            ahead -= space;
        }
        most
    }

    /// Bytes that records other than deletes may take: on a full disk, compaction keeps some for itself.
    pub(super) fn room(&self) -> u64 {
        match self.health {
            Health::Ok => u64::MAX,
            Health::Full => self.ahead().saturating_sub(self.reserve() + self.segment_size / 4),
            Health::Failing => BACKLOG.saturating_sub(self.buffer.len() as u64),
        }
    }

    /// What the engine may still put into the log; ask before every verb.
    pub fn engine_room(&self) -> LogRoom {
        let puts = match self.health {
            Health::Ok => self.space(self.reserve()),
            Health::Full => self.space(self.reserve() + self.segment_size / 4),
            Health::Failing => 0,
        };
        let changes = self.room();
        // More space can be made between two bursts, but not within one; what is kept for deletes must not be taken.
        let burst = changes.min(self.ahead().saturating_sub(self.reserve()).max(CHANGE as u64));
        LogRoom { puts, changes, burst, ids: self.ids_synced }
    }

    /// Whether another segment should be made ready now: there must be space for half a segment more, and always for
    /// deleting every job.
    pub fn wanted(&self) -> bool {
        if self.requested > 0 && self.is_short(self.requested) {
            return true;
        }
        let enough = if self.health == Health::Full { self.segment_size } else { self.segment_size / 2 };
        if self.health == Health::Failing || self.ahead() >= enough + self.reserve() {
            return false;
        }
        self.disk() + self.segment_size <= self.bound() || self.ahead() < self.reserve()
    }

    /// Bytes that the log may take on the disk.
    pub(super) fn bound(&self) -> u64 {
        2 * self.live + 2 * self.segment_size
    }

    /// Whether there is no space at hand for records of this many bytes, a new job's among them; see
    /// [`Journal::request_space`]. Or no id that is known to be safe to give.
    pub fn is_short(&self, bytes: u64) -> bool {
        self.health == Health::Ok
            && (self.space(self.reserve()) < bytes + (PUT + DELETE) as u64 || self.last_id + IDS_KEPT > self.ids_synced)
    }

    /// Whether the log takes more than it should, because compaction has not kept up or what it freed is not gone yet.
    pub fn is_behind(&self) -> bool {
        self.health == Health::Ok && self.disk() > self.bound() && self.can_shrink()
    }

    /// Whether the log may come to take less space on the disk by itself: by compaction, or because segments go.
    pub fn can_shrink(&self) -> bool {
        self.retiring > 0 || self.debt() > 0
    }
}
