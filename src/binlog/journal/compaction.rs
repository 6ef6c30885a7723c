//! Compaction: the part of the journal that keeps the use of the disk within its bound.
//!
//! Owns which segments go, from the oldest end only, and writes again what is still needed of them, in portions. Also
//! what becomes of segments that are in doubt after the disk has failed. Must not touch files.
//!
//! Promises: P20.

use super::{Journal, Live, COMPACT_BYTES};
use crate::binlog::journal::Segment;
use crate::binlog::record::{Record, MARK};
use crate::binlog::segment::{Place, HEADER};
use crate::binlog::types::{Batch, Retired, Synced};
use crate::engine::Engine;
use crate::shared::log_figures::Health;

/// Where no record says yet that a segment is needed no longer.
const UNSAID: u64 = u64::MAX;

impl Journal {
    /// Bytes by which the old segments are more than they should be: half again as much as the live jobs need, less if
    /// the segments ahead are many. The bound that is promised is twice that and two segments; what lies between is for
    /// work that is under way.
    pub(super) fn debt(&self) -> u64 {
        let others = self.disk() - self.old - self.retiring;
        let allowed = self.bound().saturating_sub(others).clamp(self.live / 4 * 5, self.live / 2 * 3);
        let debt = self.old.saturating_sub(allowed);
        if self.evacuating > 0 {
            debt.max(1)
        } else {
            debt
        }
    }

    /// Compacts a little, if there is need; true if there is need for more.
    pub fn compact(&mut self, engine: &Engine) -> bool {
        if self.health == Health::Failing {
            return false;
        }
        let more = self.compact_some(engine);
        self.say_gone();
        more
    }

    fn compact_some(&mut self, engine: &Engine) -> bool {
        let mut quota = COMPACT_BYTES;
        while self.segments.len() > 1 && self.debt() > 0 {
            let Some((live, number)) = self.first_live() else {
                self.retire();
                continue;
            };
            let (size, space) = (live.size(number, engine), self.space(self.reserve()));
            if self.health != Health::Ok && self.segments[0].live > space {
                // A segment that cannot be emptied to the end would give no space back.
                return false;
            }
            if size > space {
                self.requested = size;
                return true;
            }
            if quota < size.min(COMPACT_BYTES) {
                return true;
            }
            quota -= size.min(COMPACT_BYTES);
            self.move_out(live, number, size);
            self.write(live, number, size, engine);
            self.migrated += 1;
        }
        false
    }

    /// What the oldest segment must still be kept for.
    fn first_live(&self) -> Option<(Live, u32)> {
        let lists = &self.segments[0].lists;
        Live::ALL.into_iter().find_map(|live| Some((live, lists[live as usize].first()?)))
    }

    /// The oldest segment, which nothing is live in, goes when what was written again, and that it is gone, is safe.
    fn retire(&mut self) {
        let segment = self.segments.pop_front().expect("a segment");
        self.old -= segment.bytes;
        self.retiring += segment.bytes;
        let Segment { number, bytes, evacuating, damaged, .. } = segment;
        self.evacuating -= usize::from(evacuating);
        self.retired.push_back(Retired { number, bytes, after: UNSAID, damaged });
    }

    /// Says which segments are needed no longer: those that were retired may go when that is safe.
    fn say_gone(&mut self) {
        if self.evacuating == 0 {
            self.in_doubt = false;
        }
        if self.in_doubt || self.retired.back().is_none_or(|retired| retired.after != UNSAID) {
            return;
        }
        let oldest = self.segments.front().expect("the one that is written to").number;
        self.make_room(MARK as u64);
        self.push(&Record::Gone(oldest));
        self.demanded = self.position;
        let position = self.position;
        let unsaid = self.retired.iter_mut().filter(|retired| retired.after == UNSAID);
        unsaid.for_each(|retired| retired.after = position);
    }

    /// The size of a segment that takes over this many bytes, and what waits to be written.
    pub fn take_over_size(&self, again: u64) -> u64 {
        self.segment_size.max(again + self.buffer.len() as u64 + self.segment_size / 4)
    }

    /// The next segment that may go, now that the log is safe up to `safe`. Until it is gone, no later one may go.
    pub fn next_retired(&self, safe: u64) -> Option<Retired> {
        self.retired.front().filter(|retired| retired.after <= safe).copied()
    }

    pub fn gone(&mut self, gone: Retired) {
        if self.retired.front() == Some(&gone) {
            self.retired.pop_front();
            self.retiring -= gone.bytes;
        }
    }

    /// Whether there is something to do beside writing.
    pub fn needs_maintenance(&self) -> bool {
        !self.retired.is_empty() || self.wanted() || self.debt() > 0
    }

    /// Has everything that lives in segments without a file written again. Returns the newest segment that has lost
    /// its file since the last call, if any.
    pub fn evacuate_missing(&mut self, is_there: impl Fn(u64) -> bool) -> Option<u64> {
        let mut newest = None;
        for segment in self.segments.iter_mut().filter(|segment| !segment.missing && !is_there(segment.number)) {
            (segment.evacuating, segment.missing) = (true, true);
            newest = Some(segment.number);
            self.lost += 1;
        }
        self.count_evacuating();
        let prepared = self.prepared.iter().map(|&(number, _)| number).filter(|&number| !is_there(number));
        newest.max(prepared.last())
    }

    /// The segments that were made ready and not begun go at once: a failing disk may have left holes in them.
    pub fn abandon_prepared(&mut self) {
        (self.ready, self.large) = (0, 0);
        for (number, bytes) in self.prepared.drain(..) {
            self.retiring += bytes;
            self.retired.push_front(Retired { number, bytes, after: 0, damaged: false });
        }
    }

    /// A failing disk may be back: a new segment takes over, and what lives in those from `first` on, which are relied
    /// on no more, is written again by and by. Returns what was appended and not taken yet, which must be written into
    /// the new segment behind the `again` bytes that were taken and are not safe; and the new segment's header.
    /// `before`: where the log ends, as far as it is safe. Without `rely`, what was written and not synced is not among
    /// those bytes: until all that is in doubt is written again, nothing that was written again before may lose its
    /// first place.
    pub fn take_over(
        &mut self,
        (number, size): (u64, u64),
        first: u64,
        again: u64,
        before: Place,
        rely: bool,
    ) -> (Batch, Batch) {
        if !rely {
            let safe = self.synced.position;
            self.retired.iter_mut().filter(|retired| retired.after > safe).for_each(|retired| retired.after = UNSAID);
            self.in_doubt = true;
        }
        let pending = self.take(Vec::new(), self.synced);
        // What cannot be read before the new segment is damage then, and what is behind it is kept.
        self.synced = Synced { place: before, position: self.synced.position };
        self.segments
            .iter_mut()
            .filter(|segment| segment.number >= first)
            .for_each(|segment| segment.evacuating = true);
        self.count_evacuating();
        let records = pending.bytes.len() - HEADER * pending.cuts.len();
        self.begin(number, size, before);
        self.segments.back_mut().expect("a segment").bytes += again + records as u64;
        (pending, self.take(Vec::new(), self.synced))
    }
}
