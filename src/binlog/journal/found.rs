//! What the start finds: the part of the journal that is used before the first append.
//!
//! Owns the segments, jobs, pauses and ids that were on the disk, and where the log continues. Must not touch files.

use super::{Journal, Live, Segment, IDS_AHEAD};
use crate::binlog::record::{full_size, Record, Start, MARK, START};
use crate::binlog::segment::Place;
use crate::binlog::types::Synced;
use crate::engine::Engine;
use crate::shared::log_figures::Health;

impl Journal {
    /// Adds a segment that was found on the disk; in order of their numbers, before any job is found in it.
    pub fn found_segment(&mut self, number: u64, bytes: u64) {
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        self.segments.push_back(Segment::new(self.log, number, bytes, bytes));
        self.next_number = self.next_number.max(number + 1);
    }

    /// A number that is on the disk, and not to be given again.
    pub fn found_number(&mut self, number: u64) {
        self.next_number = self.next_number.max(number + 1);
    }

    /// This many bytes of the last segment found stay on the disk.
    pub fn found_length(&mut self, bytes: u64) {
        self.segments.back_mut().expect("a segment").bytes = bytes;
    }

    /// This process has this random number. `found`: that of the process which wrote the end of the log; 0 if that is
    /// unknown.
    pub fn set_epochs(&mut self, own: u64, found: u64) {
        (self.epoch, self.found_epoch) = (own, found);
    }

    /// Begins the first segment of this process, `before` is the end of the log that was found. Its header contains
    /// what [`Journal::append_start`] would record.
    pub fn begin_first(&mut self, number: u64, size: u64, before: Place) {
        self.ids = self.last_id + IDS_AHEAD;
        self.begin(number, size, before);
        self.ids_appended();
    }

    /// Records that this process continues the log in the last segment found, or begins a new one. Does nothing if
    /// there is no space.
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
            self.own_from = Some(Place { segment: last.number, at: last.bytes });
            let (synced, ids, epoch, oldest) = (self.synced.place, self.ids, self.epoch, self.oldest_needed());
            self.push(&Record::Start(Start { synced, ids, epoch, oldest }));
        }
        self.ids_appended();
    }

    /// The start is synced. The next bytes say so: otherwise damage to it could be taken for the end of the log.
    pub fn start_is_synced(&mut self) {
        self.mark_due = 0;
    }

    /// The log continues in the last segment found, after the bytes that are used. `size`: the length of its file.
    pub fn go_on_in_last(&mut self, size: u64) {
        let last = self.segments.back_mut().expect("a segment");
        last.size = size;
        self.first_segment = last.number;
        self.synced = Synced { place: Place { segment: last.number, at: last.bytes }, position: self.position };
    }

    /// There is no file that can be written: a place for records that will be when the disk is back.
    pub fn go_on_nowhere(&mut self, engine: &mut Engine) {
        self.health = Health::Failing;
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        let number = self.claim_number();
        self.segments.push_back(Segment { missing: true, ..Segment::new(self.log, number, 0, 0) });
        if self.buffer.is_empty() {
            self.first_segment = number;
        }
        self.append(engine);
    }

    /// Whether a segment is damaged.
    pub fn is_damaged(&self, number: u64) -> bool {
        self.segment(number).is_some_and(|segment| segment.damaged)
    }

    /// Whether a segment is to be emptied, whatever the use of the disk.
    pub fn is_evacuating(&self, number: u64) -> bool {
        self.segment(number).is_some_and(|segment| segment.evacuating)
    }

    /// Bytes of a segment that are used.
    pub fn length_of(&self, number: u64) -> Option<u64> {
        self.segment(number).map(|segment| segment.bytes)
    }

    fn segment(&self, number: u64) -> Option<&Segment> {
        self.segments.get(self.place_from(number as u32)).filter(|segment| segment.number == number)
    }

    /// So many records of a foreign log could not be read.
    pub fn found_skipped(&mut self, skipped: u64) {
        self.skipped += skipped;
    }

    /// The last segment found is damaged: it is to be emptied, and then set aside.
    pub fn found_damage(&mut self) {
        let segment = self.segments.back_mut().expect("a segment");
        (segment.evacuating, segment.damaged) = (true, true);
        self.count_evacuating();
    }

    /// A full record of the job in `slot`, of this [`Engine::logged_size`], was found in the last segment; `before`:
    /// that of the full record that was found before.
    pub fn found_job(&mut self, slot: u32, before: Option<usize>, size: usize) {
        if let Some(before) = before {
            self.lost_job(slot, before);
        }
        self.jobs += 1;
        self.found(Live::Job, slot, full_size(size));
    }

    /// The job in `slot`, which had this [`Engine::logged_size`], is gone.
    pub fn lost_job(&mut self, slot: u32, size: usize) {
        self.lost(Live::Job, slot, full_size(size));
        self.jobs -= 1;
    }

    /// Ids up to this one may have been given, by what is on the disk.
    pub fn found_ids(&mut self, ids: u64) {
        (self.last_id, self.ids, self.ids_synced) = (ids, ids, ids);
    }

    /// The oldest segment is to be emptied.
    pub fn evacuate_oldest(&mut self) {
        self.segments.front_mut().expect("a segment").evacuating = true;
        self.count_evacuating();
    }

    pub fn evacuate_newest(&mut self) {
        self.segments.back_mut().expect("a segment").evacuating = true;
        self.count_evacuating();
    }

    pub(super) fn count_evacuating(&mut self) {
        self.evacuating = self.segments.iter().filter(|segment| segment.evacuating).count();
    }
}
