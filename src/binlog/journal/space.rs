//! Calculation of the space on disk, of the reserve for deletes, and of the space that the engine may use.

use super::{Journal, BACKLOG, IDS_KEPT};
use crate::binlog::record::{CHANGE, DELETE, MARK, PUT};
use crate::binlog::segment::HEADER;
use crate::engine::{LogRoom, CHANGE_SIZE, PUT_SIZE};
use crate::shared::log_figures::Health;

const _: () = assert!((PUT + DELETE) as u64 <= PUT_SIZE && CHANGE as u64 <= CHANGE_SIZE, "the engine counts enough");

/// Bytes for records about the log itself.
const KEPT: u64 = 8 * MARK as u64;

impl Journal {
    /// Returns the bytes that must remain free, so that every job can be deleted and segments can be removed.
    pub(super) fn reserve(&self) -> u64 {
        DELETE as u64 * self.jobs + self.group_ends + KEPT
    }

    /// Returns the usable bytes in the current segment and the prepared segments. The next record may not fit at the
    /// end of a segment, which therefore does not count.
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

    /// Returns the maximum size of a record that leaves `kept` bytes.
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

    /// Returns the bytes for records other than deletes. A full disk keeps some bytes for compaction.
    pub(super) fn room(&self) -> u64 {
        match self.health {
            Health::Ok => u64::MAX,
            Health::Full => self.ahead().saturating_sub(self.reserve() + self.compaction_room()),
            Health::Failing => BACKLOG.saturating_sub(self.buffer.len() as u64),
        }
    }

    /// Must be called before every command.
    pub fn engine_room(&self) -> LogRoom {
        let puts = match self.health {
            Health::Ok => self.space(self.reserve()),
            Health::Full => self.space(self.reserve() + self.compaction_room()),
            Health::Failing => 0,
        };
        let changes = self.room();
        // A command cannot add segments while it makes its changes, so they must fit into the available space minus the
        // reserve for deletes.
        let burst = changes.min(self.ahead().saturating_sub(self.reserve()).max(CHANGE as u64));
        LogRoom { puts, changes, burst, ids: self.ids_synced }
    }

    /// Returns `true` if another segment should be prepared, so that half a segment is available beyond the reserve for
    /// deletes.
    pub fn wanted(&self) -> bool {
        if self.requested > 0 && self.is_short(self.requested) {
            return true;
        }
        let enough = if self.health == Health::Full { self.segment_size } else { self.segment_size / 2 };
        if self.health == Health::Failing || self.ahead() >= enough + self.reserve() {
            return false;
        }
        self.disk() + self.wanted_size() <= self.bound() || self.ahead() < self.reserve()
    }

    /// The promised maximum of bytes on disk.
    pub(super) fn bound(&self) -> u64 {
        2 * self.live + 2 * self.segment_size
    }

    /// Returns `true` if `bytes` bytes and a new job do not fit, or if the synced part of the log reserves too few IDs.
    pub fn is_short(&self, bytes: u64) -> bool {
        self.health == Health::Ok
            && (self.space(self.reserve()) < bytes + (PUT + DELETE) as u64 || self.last_id + IDS_KEPT > self.ids_synced)
    }

    pub fn is_behind(&self) -> bool {
        self.health == Health::Ok && self.disk() > self.bound() && self.can_shrink()
    }

    pub fn can_shrink(&self) -> bool {
        self.retiring > 0 || self.debt() > 0
    }
}
