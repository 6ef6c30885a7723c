//! Initialization of the journal with the segments, jobs and IDs found on disk, and continuation of the log.

use super::{Journal, Live, Segment, IDS_AHEAD};
use crate::binlog::batch::Synced;
use crate::binlog::record::{full_size, Record, Start, MARK, START};
use crate::binlog::segment::LogLocation;
use crate::engine::Engine;
use crate::shared::log_figures::Health;

impl Journal {
    /// Segments must be added in ascending order, before their records.
    pub fn found_segment(&mut self, number: u64, bytes: u64) {
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        self.segments.push_back(Segment::new(self.log, number, bytes, bytes));
        self.next_number = self.next_number.max(number + 1);
    }

    pub fn found_number(&mut self, number: u64) {
        self.next_number = self.next_number.max(number + 1);
    }

    pub fn found_length(&mut self, bytes: u64) {
        self.segments.back_mut().expect("a segment").bytes = bytes;
    }

    /// `before` is the end of the log. The header contains the fields of the record of [`Journal::append_start`].
    pub fn begin_first(&mut self, number: u64, size: u64, before: LogLocation) {
        self.ids = self.last_id + IDS_AHEAD;
        self.begin(number, size, before);
        self.ids_appended();
    }

    /// Appends a [`Record::Start`] to the last segment, or begins a new segment. Does nothing without space.
    pub fn append_start(&mut self) {
        let (segments, found) = (self.segments.len(), self.ids);
        self.ids = self.last_id + IDS_AHEAD;
        self.make_room(START as u64);
        if self.segments.len() == segments {
            let last = self.segments.back().expect("a segment");
            if last.bytes + (START + MARK) as u64 > last.size {
                self.ids = found;
                return;
            }
            self.own_from = Some(LogLocation { segment: last.number, at: last.bytes });
            let (synced, ids, epoch, oldest) = (self.synced.location, self.ids, self.epoch, self.oldest_needed());
            self.push(&Record::Start(Start { synced, ids, epoch, oldest }));
        }
        self.ids_appended();
    }

    pub fn go_on_in_last(&mut self, size: u64) {
        let last = self.segments.back_mut().expect("a segment");
        last.size = size;
        self.first_segment = last.number;
        self.synced =
            Synced { location: LogLocation { segment: last.number, at: last.bytes }, position: self.position };
    }

    /// Records are kept in memory until the disk recovers.
    pub fn go_on_nowhere(&mut self, engine: &mut Engine) {
        self.health = Health::Failing;
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        let number = self.claim_number();
        self.segments.push_back(Segment { missing: true, ..Segment::new(self.log, number, 0, 0) });
        if self.buffer.own.is_empty() {
            self.first_segment = number;
        }
        self.append(engine);
    }

    pub fn segment(&self, number: u64) -> Option<&Segment> {
        self.segments.get(self.segment_index(number as u32)).filter(|segment| segment.number == number)
    }

    /// If the last segment is damaged, its file is moved to a subdirectory when compaction has emptied the segment.
    pub fn evacuate_newest(&mut self, damaged: bool) {
        let segment = self.segments.back_mut().expect("a segment");
        (segment.evacuating, segment.damaged) = (true, segment.damaged || damaged);
        self.count_evacuating();
    }

    /// `size` and `before` are the job's [`Engine::logged_size`] now and in an earlier full record.
    pub fn found_job(&mut self, slot: u32, before: Option<usize>, size: usize) {
        if let Some(before) = before {
            self.lost_job(slot, before);
        }
        self.jobs += 1;
        self.found(Live::Job, slot, full_size(size));
    }

    pub fn lost_job(&mut self, slot: u32, size: usize) {
        self.lost(Live::Job, slot, full_size(size));
        self.jobs -= 1;
    }

    pub fn found_ids(&mut self, ids: u64) {
        (self.last_id, self.ids, self.ids_synced) = (ids, ids, ids);
    }

    pub fn evacuate_oldest(&mut self) {
        self.segments.front_mut().expect("a segment").evacuating = true;
        self.count_evacuating();
    }

    pub(super) fn count_evacuating(&mut self) {
        self.evacuating = self.segments.iter().filter(|segment| segment.evacuating).count();
    }
}
