//! How much the journal can still take.
//!
//! Owns the arithmetic of space: what is available on disk, what is reserved for deletes, and what the engine may use.
//! Must not change anything.

use super::{Journal, BACKLOG, IDS_KEPT};
use crate::binlog::record::{CHANGE, DELETE, MARK, PUT};
use crate::binlog::segment::HEADER;
use crate::engine::{LogRoom, CHANGE_SIZE, PUT_SIZE};
use crate::shared::log_figures::Health;

const _: () = assert!((PUT + DELETE) as u64 <= PUT_SIZE && CHANGE as u64 <= CHANGE_SIZE, "the engine counts enough");

/// Bytes reserved for records about the log itself.
const KEPT: u64 = 8 * MARK as u64;

impl Journal {
    /// Bytes reserved so that every job can be deleted and segments can be removed.
    pub(super) fn reserve(&self) -> u64 {
        DELETE as u64 * self.jobs + self.group_ends + KEPT
    }

    /// Bytes available on disk. In each segment, a little is lost where the next record does not fit.
    pub(super) fn ahead(&self) -> u64 {
        if self.large == 0 {
            return self.rest() + self.fresh(self.segment_size) * self.prepared.len() as u64;
        }
        self.rest() + self.prepared.iter().map(|&(_, size)| self.fresh(size)).sum::<u64>()
    }

    /// Bytes available in the current segment.
    fn rest(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.size.saturating_sub(segment.bytes + (CHANGE + MARK) as u64))
    }

    /// Bytes available in a new segment of this size.
    fn fresh(&self, size: u64) -> u64 {
        size.saturating_sub((HEADER + CHANGE + MARK) as u64).max(1)
    }

    /// The maximum size of records that fit into one segment if `kept` bytes must remain available.
    pub(super) fn space(&self, kept: u64) -> u64 {
        let mut ahead = self.ahead();
        let mut most = 0;
        // Of segments of one size, the first has the most space after it.
        let first = if self.large == 0 { 1 } else { self.prepared.len() };
        let fresh = self.prepared.iter().take(first).map(|&(_, size)| self.fresh(size));
        for space in std::iter::once(self.rest()).chain(fresh) {
            most = most.max(space.min(ahead.saturating_sub(kept)));
            // Records in a later segment leave this segment's space unused.
            ahead -= space;
        }
        most
    }

    /// Bytes that records other than deletes may take. On a full disk, compaction reserves some.
    pub(super) fn room(&self) -> u64 {
        match self.health {
            Health::Ok => u64::MAX,
            Health::Full => self.ahead().saturating_sub(self.reserve() + self.segment_size / 4),
            Health::Failing => BACKLOG.saturating_sub(self.buffer.len() as u64),
        }
    }

    /// What the engine may append; must be called before every verb.
    pub fn engine_room(&self) -> LogRoom {
        let puts = match self.health {
            Health::Ok => self.space(self.reserve()),
            Health::Full => self.space(self.reserve() + self.segment_size / 4),
            Health::Failing => 0,
        };
        let changes = self.room();
        // Space can be created between two bursts, but not within one, and the reserve for deletes must not be used.
        let burst = changes.min(self.ahead().saturating_sub(self.reserve()).max(CHANGE as u64));
        LogRoom { puts, changes, burst, ids: self.ids_synced }
    }

    /// Returns `true` if another segment should be prepared now. Half a segment must be available in addition to the
    /// reserve for deletes.
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

    /// The promised maximum size of the log on disk.
    pub(super) fn bound(&self) -> u64 {
        2 * self.live + 2 * self.segment_size
    }

    /// Returns `true` if records of `bytes` and a new job do not fit into the available space (see
    /// [`Journal::request_space`]), or if no ID is certain to be reserved.
    pub fn is_short(&self, bytes: u64) -> bool {
        self.health == Health::Ok
            && (self.space(self.reserve()) < bytes + (PUT + DELETE) as u64 || self.last_id + IDS_KEPT > self.ids_synced)
    }

    /// Returns `true` if the log exceeds its bound because compaction is behind or emptied segments still exist.
    pub fn is_behind(&self) -> bool {
        self.health == Health::Ok && self.disk() > self.bound() && self.can_shrink()
    }

    /// Returns `true` if compaction or the removal of segments can reduce the disk usage.
    pub fn can_shrink(&self) -> bool {
        self.retiring > 0 || self.debt() > 0
    }
}
