//! The log as the engine's side sees it: what is appended, in which segment it comes to stand, and what is still needed.
//!
//! Owns the order of records (the order of truth, kept under the engine's lock), the division into segments, and the
//! compaction that keeps the disk's use within bounds. It writes nothing itself: [`Journal::take`] hands the bytes to the
//! writer. Must not touch files or wait.
//!
//! Segments are dropped from the oldest end only. So a record that undoes another (a delete, say) always outlives it, and a
//! job whose full record is in the oldest segment is written again, as it is now, before that segment goes.

mod room;

use std::collections::VecDeque;

use super::bytes::{Bytes, Tail};
use super::homes::{Homes, Inhabitants};
use super::record::{full_size, Header, JobRecord, Record, CHANGE, DELETE, HEADER, OUTCOME, PUT, SNAPSHOT};
use super::terms::{Batch, Cut, Health, LogStats, Promised, Retired};
use crate::engine::{Change, Engine, Job};

/// Bytes of records that compaction may write again in one turn of the engine: well under a millisecond.
const COMPACT_BYTES: u64 = 128 * 1024;

/// While the disk fails, changes are kept in memory up to this size; then only deletes are.
const BACKLOG: u64 = 16 << 20;

/// Bytes that take long to write: half a millisecond, say, into the memory of the system.
pub const LARGE: usize = 1 << 20;

/// Bytes of the full record of the job in `slot`, at most.
fn size_of(slot: u32, engine: &Engine) -> u64 {
    full_size(engine.tube_of(&engine.job_at(slot)).len(), engine.logged_own(slot))
}

#[derive(Debug)]
struct Segment {
    number: u64,
    /// Bytes that its file was made for.
    size: u64,
    /// Bytes in use.
    bytes: u64,
    /// Bytes that its inhabitants take when they are written again.
    live: u64,
    inhabitants: Inhabitants,
    /// Must be emptied whatever the disk's use.
    condemned: bool,
    /// Because it is damaged: it is set aside then.
    damaged: bool,
}

impl Segment {
    fn new(number: u64, size: u64, bytes: u64) -> Segment {
        let inhabitants = Inhabitants::EMPTY;
        Segment { number, size, bytes, live: 0, inhabitants, condemned: false, damaged: false }
    }
}

/// See the module's page.
#[derive(Debug)]
pub struct Journal {
    segment_size: u64,
    /// The segment that the first bytes of the buffer belong to.
    first_segment: u64,
    buffer: Bytes,
    cuts: Vec<Cut>,
    position: u64,
    /// The oldest first; the last is being written to.
    segments: VecDeque<Segment>,
    /// Segments that are ready on the disk and empty: their numbers and sizes.
    prepared: VecDeque<(u64, u64)>,
    /// Bytes of these, and how many are larger than usual.
    ready: u64,
    large: usize,
    /// Segments that are condemned.
    condemned: usize,
    /// Bytes of records for which somebody waits.
    wish: u64,
    next_number: u64,
    homes: Homes,
    jobs: u64,
    live: u64,
    /// Bytes in segments that are no longer written to.
    old: u64,
    retired: VecDeque<Retired>,
    /// Bytes of segments that are retired and not yet gone.
    retiring: u64,
    health: Health,
    migrated: u64,
    written: u64,
    skipped: u64,
    /// Bytes that the pauses in progress take at the beginning of a segment, at most.
    pause_bytes: u64,
    /// The pauses in progress must be written into the segment that was begun.
    pauses_due: bool,
    promised: Promised,
}

impl Journal {
    /// An empty log with segments of this size, whose first segment will have the number `next`.
    pub fn new(segment_size: u64, next: u64) -> Journal {
        Journal {
            segment_size: segment_size.max(HEADER as u64 + 1),
            first_segment: 0,
            buffer: Bytes::default(),
            cuts: Vec::new(),
            position: 0,
            segments: VecDeque::new(),
            prepared: VecDeque::new(),
            ready: 0,
            large: 0,
            condemned: 0,
            wish: 0,
            next_number: next,
            homes: Homes::default(),
            jobs: 0,
            live: 0,
            old: 0,
            retired: VecDeque::new(),
            retiring: 0,
            health: Health::Ok,
            migrated: 0,
            written: 0,
            skipped: 0,
            pause_bytes: 0,
            pauses_due: false,
            promised: Promised::default(),
        }
    }

    /// Takes in a segment that was found on the disk; in order of their numbers, before any job is found in it.
    pub fn found_segment(&mut self, number: u64, bytes: u64) {
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        self.segments.push_back(Segment::new(number, bytes, bytes));
        self.next_number = self.next_number.max(number + 1);
    }

    /// So many bytes of the last segment found stay on the disk.
    pub fn found_length(&mut self, bytes: u64) {
        self.segments.back_mut().expect("a segment").bytes = bytes;
    }

    /// So many records of a foreign log could not be read.
    pub fn found_skipped(&mut self, skipped: u64) {
        self.skipped += skipped;
    }

    /// The last segment found is damaged: `stretches` of it could not be read.
    pub fn found_damage(&mut self, stretches: u64) {
        self.skipped += stretches;
        let segment = self.segments.back_mut().expect("a segment");
        (segment.condemned, segment.damaged) = (true, true);
        self.condemned += 1;
    }

    /// A full record of the job in `slot` was found in the last segment; `before`: the lengths it had,
    /// if it was at home somewhere already.
    pub fn found_job(&mut self, slot: u32, before: Option<(usize, usize)>, tube: usize, body: usize) {
        if let Some((tube, body)) = before {
            self.lost_job(slot, tube, body);
        }
        self.jobs += 1;
        self.live += full_size(tube, body);
        self.move_in(slot, full_size(tube, body));
    }

    /// The job in `slot` is gone.
    pub fn lost_job(&mut self, slot: u32, tube: usize, body: usize) {
        self.move_out(slot, full_size(tube, body));
        self.jobs -= 1;
        self.live -= full_size(tube, body);
    }

    fn move_in(&mut self, slot: u32, size: u64) {
        let segment = self.segments.back_mut().expect("a segment");
        segment.live += size;
        self.homes.move_in(slot, segment.number as u32, &mut segment.inhabitants);
    }

    fn move_out(&mut self, slot: u32, size: u64) {
        let place = self.home_of(slot);
        self.segments[place].live -= size;
        self.homes.move_out(slot, &mut self.segments[place].inhabitants);
    }

    /// Writes down a job that no segment knows yet.
    pub fn adopt(&mut self, slot: u32, engine: &Engine) {
        let size = size_of(slot, engine);
        self.jobs += 1;
        self.live += size;
        self.write_whole(slot, size, engine);
    }

    /// Writes down the job in `slot` as it is, where it is at home from now on.
    fn write_whole(&mut self, slot: u32, size: u64, engine: &Engine) {
        self.make_room(size, engine.last_id());
        self.append_job(slot, engine, Record::Snapshot);
        self.move_in(slot, size);
    }

    /// Writes down an outcome, by which the job that is at home somewhere already has grown. What is written here is never the
    /// last to know: whenever the job's home must go, the job is written again with its outcome, and homes go in order.
    fn record_outcome(&mut self, slot: u32, result: usize, engine: &Engine) {
        self.make_room((OUTCOME + result) as u64, engine.last_id());
        let job = engine.job_at(slot);
        let mut record = Record::outcome(&job, engine);
        let mut tail = None;
        if let Record::Outcome { result, .. } = &mut record {
            // The result is the end of the body.
            tail = Tail::of(job.body(), job.body().len() - result.len());
            *result = if tail.is_some() { &[] } else { result };
        }
        self.append_with(&record, tail);
        self.grow(slot, result as u64);
    }

    /// The job in `slot` takes so much more from now on.
    pub fn grow(&mut self, slot: u32, bytes: u64) {
        self.live += bytes;
        let place = self.home_of(slot);
        self.segments[place].live += bytes;
    }

    /// The place of the segment that the job in `slot` is at home in.
    fn home_of(&self, slot: u32) -> usize {
        let home = self.homes.of(slot);
        // Numbers have no gaps that matter: a short walk from the guess finds the segment.
        self.segments.partition_point(|segment| (segment.number as u32) < home)
    }

    /// Appends the records of what the engine changed.
    pub fn record(&mut self, engine: &mut Engine) {
        while let Some(change) = engine.take_change() {
            // What brings something new, which the client may have nowhere else.
            let put = match change {
                Change::Put(_) | Change::Adopt(_) => true,
                Change::Outcome { result, .. } => result > 0,
                _ => false,
            };
            let promise = !matches!(change, Change::Reserve(_) | Change::Expire(_));
            self.record_one(change, engine);
            self.repeat_pauses(engine);
            if promise {
                self.promised.any = self.position;
            }
            if put {
                self.promised.puts = self.position;
            }
        }
    }

    /// Up to where the log must be safe before replies may be given.
    pub fn promised(&self) -> Promised {
        self.promised
    }

    fn record_one(&mut self, change: Change, engine: &Engine) {
        match change {
            Change::Put(slot) => {
                let size = size_of(slot, engine);
                self.make_room(size - (SNAPSHOT - PUT) as u64, engine.last_id());
                self.append_job(slot, engine, Record::Put);
                self.jobs += 1;
                self.live += size;
                self.move_in(slot, size);
            }
            Change::Delete { slot, id, tube, body } => {
                self.make_room(DELETE as u64, engine.last_id());
                self.append(&Record::Delete(id.0));
                self.lost_job(slot, tube, body);
            }
            Change::Pause(name) => {
                let pause = engine.tube_pause(&name);
                self.make_room((CHANGE + name.len()) as u64, engine.last_id());
                self.append(&Record::pause(&name, pause));
                self.pause_bytes += (CHANGE + name.len()) as u64;
            }
            Change::Reserve(_) | Change::Expire(_) | Change::Lease(_) if self.must_save() => {}
            Change::Adopt(slot) => self.adopt(slot, engine),
            Change::Outcome { slot, result } => self.record_outcome(slot, result, engine),
            Change::Lease(slot) => self.change(engine, slot, |job| Record::Lease {
                id: job.id().0,
                due: job.due(),
                count: job.history().reserves,
            }),
            Change::Reserve(slot) => {
                self.change(engine, slot, |job| Record::Reserve(job.id().0, job.history().reserves))
            }
            Change::Expire(slot) => self.change(engine, slot, |job| Record::Expire(job.id().0, job.history().timeouts)),
            Change::Kick(slot) => self.change(engine, slot, |job| Record::Kick(job.id().0, job.history().kicks)),
            Change::Release(slot) => self.change(engine, slot, |job| {
                let (id, pri, count) = (job.id().0, job.priority(), job.history().releases);
                Record::Release { id, pri, delay: job.delay(), due: job.due(), count }
            }),
            Change::Bury(slot) => self.change(engine, slot, |job| {
                let (id, pri, count) = (job.id().0, job.priority(), job.history().buries);
                Record::Bury { id, pri, order: job.due().nanos(), count }
            }),
        }
    }

    /// Writes the pauses in progress into a segment that was just begun, since the one that they are in may go.
    pub fn repeat_pauses(&mut self, engine: &Engine) {
        if std::mem::take(&mut self.pauses_due) {
            self.pause_bytes = 0;
            for (name, pause) in engine.pauses() {
                self.append(&Record::pause(name, Some(pause)));
                self.pause_bytes += (CHANGE + name.len()) as u64;
            }
        }
    }

    fn change(&mut self, engine: &Engine, slot: u32, record: impl FnOnce(&Job) -> Record) {
        self.make_room(CHANGE as u64, engine.last_id());
        self.append(&record(&engine.job_at(slot)));
    }

    /// Counters are given up first when space is short.
    fn must_save(&self) -> bool {
        self.health != Health::Ok && self.room() < CHANGE as u64 * 2
    }

    /// Goes on in the next segment if this one has no room for so many bytes and there is a next one. One byte is always left,
    /// since a segment without space at its end is taken for one that was left in order.
    fn make_room(&mut self, bytes: u64, last_id: u64) {
        loop {
            let current = self.segments.back().expect("a segment");
            if current.bytes + bytes < current.size {
                return;
            }
            let Some((number, size)) = self.prepared.pop_front() else { return };
            self.ready -= size;
            self.large -= usize::from(size > self.segment_size);
            self.begin(number, size, last_id);
        }
    }

    /// Goes on in a new segment.
    pub fn begin(&mut self, number: u64, size: u64, last_id: u64) {
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        self.cuts.push(Cut { at: self.buffer.place(), segment: number });
        self.buffer.extend(&Header { segment: number, last_id }.encode());
        self.position += HEADER as u64;
        self.segments.push_back(Segment::new(number, size, HEADER as u64));
        self.pauses_due = true;
    }

    /// Appends the full record of the job in `slot`.
    fn append_job<'a>(&mut self, slot: u32, engine: &'a Engine, kind: impl FnOnce(JobRecord<'a>) -> Record<'a>) {
        let mut job = JobRecord::of(engine.job_at(slot), engine);
        let tail = Tail::of(engine.job_at(slot).body(), 0);
        if tail.is_some() {
            job.body = &[];
        }
        self.append_with(&kind(job), tail);
    }

    fn append(&mut self, record: &Record) {
        self.append_with(record, None);
    }

    fn append_with(&mut self, record: &Record, tail: Option<Tail>) {
        let segment = self.segments.back_mut().expect("a segment");
        let bytes = self.buffer.append(record, segment.number, tail) as u64;
        segment.bytes += bytes;
        self.position += bytes;
        self.written += 1;
    }

    /// Bytes by which the old segments are more than they should be: half again as much as the live jobs need, less if the
    /// segments ahead are many. The bound that is promised is twice that and two segments; what lies between is for work
    /// that is under way.
    fn debt(&self) -> u64 {
        let others = self.disk() - self.old - self.retiring;
        let allowed = self.bound().saturating_sub(others).clamp(self.live / 4 * 5, self.live / 2 * 3);
        let debt = self.old.saturating_sub(allowed);
        if self.condemned > 0 {
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
        let mut quota = COMPACT_BYTES;
        while self.segments.len() > 1 && self.debt() > 0 {
            let Some(slot) = self.segments[0].inhabitants.first() else {
                self.retire();
                continue;
            };
            let size = size_of(slot, engine);
            let space = self.space(self.reserve());
            if self.health != Health::Ok && self.segments[0].live > space {
                // A segment that cannot be emptied to the end would give no space back.
                return false;
            }
            if size > space {
                self.wish = size;
                return true;
            }
            if quota < size.min(COMPACT_BYTES) {
                return true;
            }
            quota -= size.min(COMPACT_BYTES);
            self.move_out(slot, size);
            self.write_whole(slot, size, engine);
            self.migrated += 1;
            self.repeat_pauses(engine);
        }
        false
    }

    /// The oldest segment, in which nobody is at home, goes when what was written again is safe.
    fn retire(&mut self) {
        let segment = self.segments.pop_front().expect("a segment");
        self.old -= segment.bytes;
        self.retiring += segment.bytes;
        let Segment { number, bytes, condemned, damaged, .. } = segment;
        self.condemned -= usize::from(condemned);
        self.retired.push_back(Retired { number, bytes, after: self.position, damaged });
    }

    /// At the start, when all that was found is there for good: the oldest segment, if none lives there and it is before `end`.
    pub fn take_empty(&mut self, end: u64) -> Option<Retired> {
        let oldest = self.segments.front().filter(|_| self.segments.len() > 1)?;
        if oldest.number >= end || oldest.inhabitants.first().is_some() {
            return None;
        }
        self.retire();
        self.retired.pop_back().inspect(|retired| self.retiring -= retired.bytes)
    }

    /// The next segment that may go, now that the log is safe up to `safe`. Until it is gone, no later one may go.
    pub fn next_retired(&self, safe: u64) -> Option<Retired> {
        self.retired.front().filter(|retired| retired.after <= safe).copied()
    }

    /// It is gone.
    pub fn gone(&mut self, gone: Retired) {
        if self.retired.front() == Some(&gone) {
            self.retired.pop_front();
            self.retiring -= gone.bytes;
        }
    }

    /// Whether there is something to do beside writing.
    pub fn needs_tidying(&self) -> bool {
        !self.retired.is_empty() || self.wanted() || self.debt() > 0
    }

    /// The bytes that were appended since the last time.
    pub fn take(&mut self, mut spare: Vec<u8>) -> Batch {
        debug_assert!(spare.is_empty());
        spare.reserve(self.buffer.place().min(1 << 16)); // as much will come again
        let bytes = std::mem::replace(&mut self.buffer, Bytes::with(spare));
        let current = self.segments.back().map_or(0, |segment| segment.number);
        let segment = std::mem::replace(&mut self.first_segment, current);
        Batch { segment, bytes, cuts: std::mem::take(&mut self.cuts), end: self.position }
    }

    /// Whether there are so many of them that to write them takes long on any disk.
    pub fn is_large(&self) -> bool {
        self.buffer.len() > LARGE
    }

    /// Whether there are any.
    pub fn is_pending(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The position behind all that was appended.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Somebody waits for space for records of so many bytes; none if it is zero.
    pub fn wish(&mut self, bytes: u64) {
        self.wish = bytes;
    }

    /// The size of the next segment to be made ready.
    pub fn wanted_size(&self) -> u64 {
        let needed = self.wish + HEADER as u64 + self.pause_bytes + 2 * (CHANGE + PUT + DELETE) as u64;
        let large = needed > self.segment_size && self.prepared.iter().all(|&(_, size)| size < needed);
        if self.wish > 0 && large {
            needed
        } else {
            self.segment_size
        }
    }

    /// A number for a new segment; never given again.
    pub fn claim_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// A segment was made ready.
    pub fn prepared(&mut self, number: u64, size: u64) {
        debug_assert!(self.prepared.back().is_none_or(|last| last.0 < number), "segments are begun in order");
        self.ready += size;
        self.large += usize::from(size > self.segment_size);
        self.prepared.push_back((number, size));
    }

    /// How the log is.
    pub fn health(&self) -> Health {
        self.health
    }

    /// If it is `from`, it is `to` from now on; tells whether it was.
    pub fn change_health(&mut self, from: Health, to: Health) -> bool {
        let changes = self.health == from;
        if changes {
            self.health = to;
        }
        changes
    }

    /// How it is from now on.
    pub fn set_health(&mut self, health: Health) {
        self.health = health;
    }

    /// The segments whose files are not there any more count for nothing: what lives in them must be written again.
    pub fn condemn_missing(&mut self, is_there: impl Fn(u64) -> bool) {
        self.segments
            .iter_mut()
            .filter(|segment| !is_there(segment.number))
            .for_each(|segment| segment.condemned = true);
        self.condemned = self.segments.iter().filter(|segment| segment.condemned).count();
    }

    /// The segments that were made ready and not begun go at once: a failing disk may have left holes in them.
    pub fn abandon_prepared(&mut self) {
        (self.ready, self.large) = (0, 0);
        for (number, bytes) in self.prepared.drain(..) {
            self.retiring += bytes;
            self.retired.push_front(Retired { number, bytes, after: 0, damaged: false });
        }
    }

    /// A failing disk may be back: a new segment takes over, and what lives in those from `first` on, which are relied on no
    /// more, is written again by and by. Returns what was appended and not taken yet, which must be written into the new segment
    /// behind the `again` bytes that were taken and are not safe; and the new segment's header.
    pub fn take_over(&mut self, number: u64, last_id: u64, first: u64, again: u64) -> (Batch, Batch) {
        let pending = self.take(Vec::new());
        self.segments.iter_mut().filter(|segment| segment.number >= first).for_each(|segment| segment.condemned = true);
        self.condemned = self.segments.iter().filter(|segment| segment.condemned).count();
        self.begin(number, self.segment_size, last_id);
        self.segments.back_mut().expect("a segment").bytes += again + pending.bytes.len() as u64;
        (pending, self.take(Vec::new()))
    }

    /// Bytes that the log takes on the disk.
    pub fn disk(&self) -> u64 {
        // One that has grown ends in a zero byte.
        let current = self.segments.back().map_or(0, |segment| segment.size.max(segment.bytes + 1));
        self.old + self.retiring + current + self.ready
    }

    /// Figures for statistics.
    pub fn stats(&self) -> LogStats {
        LogStats {
            oldest: self.segments.front().map_or(0, |segment| segment.number),
            current: self.segments.back().map_or(0, |segment| segment.number),
            migrated: self.migrated,
            written: self.written,
            skipped: self.skipped,
            segment_size: self.segment_size,
            disk: self.disk(),
            live: self.live,
            health: self.health,
        }
    }
}
