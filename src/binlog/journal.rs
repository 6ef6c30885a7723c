//! The log as the engine's side sees it: what is appended, in which segment it comes to stand, and what is still
//! needed.
//!
//! Owns the order of records (the order of truth, kept under the engine's lock), and the division into segments;
//! `compaction` keeps the disk's use within bounds, and `space` counts what is left. It writes nothing itself:
//! [`Journal::take`] hands the bytes to the writer. Must not touch files or wait.
//!
//! Segments are dropped from the oldest end only. So a record that undoes another (a delete, say) always outlives it,
//! and a job whose full record is in the oldest segment is written again, as it is now, before that segment goes.
//!
//! Promises: P4.

mod compaction;
mod found;
mod space;
mod standing;

use std::collections::VecDeque;

use super::bytes::{Bytes, SharedTail};
use super::live_index::{LiveIndex, SegmentJobs};
use super::record::{
    full_size, group_size, key_size, pause_size, settings_size, Record, CHANGE, CLOSED, DELETE, MARK, OUTCOME, PUT,
    SNAPSHOT, SYNCED,
};
use super::segment::{Header, Place, RecordKey, HEADER};
use super::types::{Batch, Cut, Required, Retired, Synced};
use crate::engine::{Change, Engine, StoredJob, Time, TubeSettings, RUN_SIZE};
use crate::shared::log_figures::{Health, LogFigures};

pub use standing::Live;

/// So many ids more than were given are said to be given, ahead of use. A start after a crash begins behind them.
pub const IDS_AHEAD: u64 = 1 << 20;

/// When fewer of them are left, commands that need one wait: more than a turn of every thread gives.
const IDS_KEPT: u64 = 1 << 14;

/// Bytes of log between two records of how far it is synced.
const SYNCED_EVERY: u64 = 4096;

/// Bytes of records that compaction may write again in one turn of the engine: well under a millisecond.
const COMPACT_BYTES: u64 = 128 * 1024;

/// While the disk fails, changes are kept in memory up to this size; then only deletes are.
const BACKLOG: u64 = 16 << 20;

/// Bytes that take long to write: half a millisecond, say, into the memory of the system.
pub const LARGE: usize = 1 << 20;

/// Bytes of the full record of the job in `slot`, at most.
fn size_of(slot: u32, engine: &Engine) -> u64 {
    full_size(engine.logged_size(slot))
}

#[derive(Debug)]
struct Segment {
    number: u64,
    key: RecordKey,
    /// Bytes that its file was made for.
    size: u64,
    bytes: u64,
    /// Bytes that what is live in it takes when it is written again.
    live: u64,
    /// What is live in it, by its kind.
    lists: [SegmentJobs; 6],
    /// Must be emptied whatever the disk's use.
    evacuating: bool,
    /// Because it is damaged: it is set aside then.
    damaged: bool,
    /// Because its file was removed.
    missing: bool,
}

impl Segment {
    fn new(log: u64, number: u64, size: u64, bytes: u64) -> Segment {
        let (key, lists) = (RecordKey::new(log, number), [SegmentJobs::EMPTY; 6]);
        Segment { number, key, size, bytes, live: 0, lists, evacuating: false, damaged: false, missing: false }
    }
}

#[derive(Debug, Default)]
pub struct Journal {
    /// The number of the log, which is in each of its segments.
    log: u64,
    /// The random number of this process, and that of the one that wrote the end of the log that was found; 0 if that
    /// is unknown.
    epoch: u64,
    found_epoch: u64,
    /// The place where the log first says that this process writes it.
    own_from: Option<Place>,
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
    /// Segments that are being evacuated.
    evacuating: usize,
    /// Bytes of records for which somebody waits.
    requested: u64,
    next_number: u64,
    /// Where each of what is live is written down, by its kind and number.
    places: [LiveIndex; 6],
    jobs: u64,
    /// Bytes that the ends of members of groups may take in addition to plain deletes.
    group_ends: u64,
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
    lost: u64,
    required: Required,
    /// How far the log is synced, as of the last time that bytes were taken.
    synced: Synced,
    /// The log is to say how far it is synced once that is up to this position.
    mark_due: u64,
    /// The last id that was given.
    last_id: u64,
    /// Up to where ids may be given: by the log, and by what of it is synced.
    ids: u64,
    ids_synced: u64,
    /// Where the log says the former.
    ids_at: u64,
    /// After a failure without syncs: what was written again may be lost, until all of it is once more.
    in_doubt: bool,
    /// Bytes up to here must be synced soon, whatever the mode.
    demanded: u64,
}

impl Journal {
    /// An empty log with segments of this size, whose first segment will have the number 1. `log` is its own number.
    pub fn new(segment_size: u64, log: u64) -> Journal {
        let segment_size = segment_size.max((HEADER + SYNCED + 2 * MARK) as u64 + 1);
        Journal { log, segment_size, next_number: 1, ..Journal::default() }
    }

    /// Writes down a job that no segment knows yet.
    pub fn adopt(&mut self, slot: u32, engine: &Engine) {
        self.jobs += 1;
        self.write_new(Live::Job, slot, None, engine);
    }

    /// Writes down an outcome, by which the job that has a live record already has grown. Compaction rewrites the job
    /// with its outcome before its segment goes, and segments go in order; so this record need not be kept.
    fn record_outcome(&mut self, slot: u32, result: usize, engine: &Engine) {
        self.make_room((OUTCOME + result) as u64);
        let job = engine.job_at(slot);
        let mut record = Record::outcome(&job, engine);
        let mut tail = None;
        if let Record::Outcome { result, .. } = &mut record {
            // The result is the end of the body.
            tail = SharedTail::of(job.body(), job.body().len() - result.len());
            *result = if tail.is_some() { &[] } else { result };
        }
        self.push_with(&record, tail);
        self.resize(slot, 0, result);
    }

    /// The place of the segment with this number.
    fn place_from(&self, number: u32) -> usize {
        self.segments.partition_point(|segment| (segment.number as u32) < number)
    }

    /// Appends the records of what the engine changed. Returns the position after them.
    pub fn append(&mut self, engine: &mut Engine) -> u64 {
        while let Some(change) = engine.take_change() {
            // What brings something new, which the client may have nowhere else.
            let put = match change {
                Change::Put(_)
                | Change::Replace { .. }
                | Change::Adopt(_)
                | Change::Promise(_)
                | Change::PromiseKey => true,
                Change::Outcome { result, .. } => result > 0,
                _ => false,
            };
            let promise = !matches!(change, Change::Reserve(_) | Change::Expire(_) | Change::PauseOver { .. })
                && !matches!(change, Change::KeyGone { .. } | Change::Retry(_) | Change::Shrunk { .. })
                && !matches!(change, Change::GroupGone { .. });
            self.record_one(change, engine);
            if promise {
                self.required.any = self.position;
                self.required.count += 1;
            }
            if put {
                self.required.puts = self.position;
                self.required.put_count += 1;
            }
        }
        self.last_id = engine.last_id();
        self.group_ends = engine.group_ends();
        if self.last_id + IDS_AHEAD / 2 > self.ids {
            self.append_ids();
        }
        self.position
    }

    /// Says ahead of use which ids will be given.
    fn append_ids(&mut self) {
        self.ids = self.last_id + IDS_AHEAD;
        self.make_room(MARK as u64);
        self.push(&Record::Ids(self.ids));
        self.ids_appended();
    }

    fn ids_appended(&mut self) {
        self.ids_at = self.position;
        self.demanded = self.position;
    }

    /// The epoch in which the log before this place ends, as a reader finds it.
    fn epoch_before(&self, place: Place) -> u64 {
        if self.own_from.is_some_and(|from| from < place) {
            self.epoch
        } else {
            self.found_epoch
        }
    }

    /// The oldest segment that is not known to be needed no longer: the log says so of those before it, and that is
    /// synced.
    fn oldest_needed(&self) -> u64 {
        let first = self.segments.front().map_or(0, |segment| segment.number);
        let unsaid = self.retired.iter().filter(|retired| retired.after > self.synced.position);
        unsaid.map(|retired| retired.number).fold(first, u64::min)
    }

    /// Up to where the log must be safe before replies may be given.
    pub fn required(&self) -> Required {
        self.required
    }

    fn record_one(&mut self, change: Change, engine: &Engine) {
        match change {
            Change::Put(slot) => {
                let size = size_of(slot, engine);
                self.make_room(size - (SNAPSHOT - PUT) as u64);
                self.append_job(slot, engine, Record::Put);
                self.jobs += 1;
                self.found(Live::Job, slot, size);
            }
            Change::Run { slot, schedule } => self.record_run(slot, schedule, engine),
            Change::Replace { slot, before } => self.write_new(Live::Job, slot, Some(full_size(before)), engine),
            Change::Delete { slot, id, size } => {
                self.make_room(DELETE as u64);
                self.push(&Record::Delete(id.0));
                self.lost_job(slot, size);
            }
            Change::MemberGone(gone) => self.record_member_gone(&gone),
            Change::Group(group) => self.record_group(&group),
            Change::GroupGone { number, name } => self.lost(Live::Group, number, group_size(name)),
            Change::Pause { tube, before } => {
                let size = Live::Pause.size(tube, engine);
                self.write_new(Live::Pause, tube, before.then_some(size), engine);
            }
            Change::PauseEnded { tube, name, before } => {
                let size = pause_size(name.len());
                self.make_room(size);
                self.push(&Record::pause(&name, None));
                self.changed(Live::Pause, tube, size, (before, false));
            }
            // The record of the pause says when it ends.
            Change::PauseOver { tube, name } => self.lost(Live::Pause, tube, pause_size(name)),
            Change::Promise(_) | Change::PromiseKey => {}
            Change::Opened { number, operation } => self.record_opened(number, &operation),
            Change::Closed { number, names } => self.record_closed(number, names),
            Change::KeyKept(number) => self.write_new(Live::Key, number, None, engine),
            Change::KeyGone { number, names } => self.lost(Live::Key, number, key_size(names)),
            Change::Settings { tube, before } => {
                self.write_new(Live::Settings, tube, before.map(settings_size), engine);
            }
            Change::SettingsEnded { tube, name, names } => {
                self.make_room(settings_size(name.len()));
                self.push(&Record::Settings { tube: &name, settings: TubeSettings::default() });
                self.lost(Live::Settings, tube, settings_size(names));
            }
            Change::Shrunk { slot, bytes } => self.resize(slot, bytes, 0),
            Change::Reason { slot, sizes } => self.record_reason(slot, sizes, engine),
            Change::Move { slot, sizes } => self.record_move(slot, sizes, engine),
            Change::Reserve(_) | Change::Expire(_) | Change::Lease(_) if self.must_save() => {}
            Change::Adopt(slot) => self.adopt(slot, engine),
            Change::Outcome { slot, result } => self.record_outcome(slot, result, engine),
            Change::Reserve(_)
            | Change::Expire(_)
            | Change::Lease(_)
            | Change::Kick(_)
            | Change::Release(_)
            | Change::Retry(_)
            | Change::Priority(_)
            | Change::Skip(_)
            | Change::Bury(_) => {
                let (id, change) = engine.stored_change(&change).expect("a change to a job that is there");
                self.make_room(CHANGE as u64);
                self.push(&Record::Change(id, change));
            }
        }
    }

    /// A schedule has put a copy of itself.
    fn record_run(&mut self, slot: u32, schedule: u32, engine: &Engine) {
        let size = size_of(slot, engine);
        self.make_room(size - (SNAPSHOT - PUT) as u64 + RUN_SIZE as u64);
        let (id, change) = engine.stored_run(schedule);
        self.append_job(slot, engine, |job| Record::Run(id, change, job));
        self.jobs += 1;
        self.found(Live::Job, slot, size);
    }

    /// Counters are given up first when space is short.
    fn must_save(&self) -> bool {
        self.health != Health::Ok && self.room() < CHANGE as u64 * 2
    }

    /// Continues in the next segment if this one has no space for this many bytes and there is a next one. Space for
    /// its last record is always left.
    fn make_room(&mut self, bytes: u64) {
        loop {
            let current = self.segments.back().expect("a segment");
            if current.bytes + bytes + MARK as u64 <= current.size {
                return;
            }
            let Some((number, size)) = self.prepared.pop_front() else { return };
            self.ready -= size;
            self.large -= usize::from(size > self.segment_size);
            if current.size > 0 {
                self.push(&Record::Next(number));
            }
            let current = self.segments.back().expect("a segment");
            let before = Place { segment: current.number, at: current.bytes };
            self.begin(number, size, before);
        }
    }

    /// Continues in a new segment. `before`: where the log ends before it.
    pub fn begin(&mut self, number: u64, size: u64, before: Place) {
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        self.segments.push_back(Segment::new(self.log, number, size, HEADER as u64));
        self.cuts.push(Cut { at: self.buffer.place(), segment: number });
        let header = Header {
            log: self.log,
            segment: number,
            before,
            oldest: self.oldest_needed(),
            synced: self.synced.place,
            ids: self.ids,
            epoch: self.epoch,
            before_epoch: self.epoch_before(before),
        };
        self.own_from.get_or_insert(Place { segment: number, at: 0 });
        self.buffer.extend(&header.encode());
        self.position += HEADER as u64;
        self.mark_due = self.synced.position + SYNCED_EVERY;
    }

    /// Says that the server is stopped in order, and nothing else will be appended.
    pub fn append_closed(&mut self, now: Time) {
        let current = self.segments.back().expect("a segment");
        let time = (current.bytes + CLOSED as u64 <= current.size).then_some(now);
        self.push(&Record::Closed { last_id: self.last_id, time });
        // It also says how far the log is synced, and must stay the last record.
        self.mark_due = u64::MAX;
    }

    /// Appends the full record of the job in `slot`.
    fn append_job<'a>(&mut self, slot: u32, engine: &'a Engine, kind: impl FnOnce(StoredJob<'a>) -> Record<'a>) {
        let mut job = engine.stored_job(engine.job_at(slot));
        let tail = SharedTail::of(engine.job_at(slot).body(), 0);
        if tail.is_some() {
            job.body = &[];
        }
        self.push_with(&kind(job), tail);
    }

    fn push(&mut self, record: &Record) {
        self.push_with(record, None);
    }

    fn push_with(&mut self, record: &Record, tail: Option<SharedTail>) {
        let segment = self.segments.back_mut().expect("a segment");
        let bytes = self.buffer.append(record, segment.key, segment.bytes, tail) as u64;
        segment.bytes += bytes;
        self.position += bytes;
        self.written += 1;
    }

    /// The bytes that were appended since the last time. `synced`: how far the log is synced now, which it says itself
    /// now and then, so that a start can tell damage from what a power cut leaves.
    pub fn take(&mut self, mut spare: Vec<u8>, synced: Synced) -> Batch {
        debug_assert!(spare.is_empty());
        self.is_synced(synced);
        self.append_synced();
        spare.reserve(self.buffer.place().min(1 << 16)); // as much will come again
        let bytes = std::mem::replace(&mut self.buffer, Bytes::with(spare));
        let current = self.segments.back().map_or(0, |segment| segment.number);
        let segment = std::mem::replace(&mut self.first_segment, current);
        Batch {
            log: self.log,
            segment,
            bytes,
            cuts: std::mem::take(&mut self.cuts),
            end: self.position,
            demanded: self.demanded,
        }
    }

    /// The log is synced so far.
    pub fn is_synced(&mut self, synced: Synced) {
        self.synced = synced;
        if synced.position >= self.ids_at {
            self.ids_synced = self.ids;
        }
    }

    /// Says so in the log, if that is due.
    fn append_synced(&mut self) {
        let synced = self.synced;
        let current = self.segments.back().expect("a segment");
        let fits = current.bytes + (SYNCED + MARK) as u64 <= current.size;
        if !self.buffer.is_empty() && fits && synced.position >= self.mark_due {
            self.push(&Record::Synced(synced.place));
            self.mark_due = synced.position + SYNCED_EVERY;
        }
    }

    /// Returns `true` if there are enough of them that a write takes long on any disk.
    pub fn is_large(&self) -> bool {
        self.buffer.len() > LARGE
    }

    pub fn is_pending(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The position behind all that was appended.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Requests space for records of this many bytes. 0 ends the request.
    pub fn request_space(&mut self, bytes: u64) {
        self.requested = bytes;
    }

    /// The size of the next segment to be made ready.
    pub fn wanted_size(&self) -> u64 {
        let needed = self.requested + (HEADER + MARK) as u64 + 2 * (CHANGE + PUT + DELETE) as u64;
        let large = needed > self.segment_size && self.prepared.iter().all(|&(_, size)| size < needed);
        if self.requested > 0 && large {
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

    pub fn health(&self) -> Health {
        self.health
    }

    /// Changes it to `to` if it is `from`. Returns `true` if it was.
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

    /// Bytes that the log takes on the disk.
    pub fn disk(&self) -> u64 {
        let current = self.segments.back().map_or(0, |segment| segment.size.max(segment.bytes));
        self.old + self.retiring + current + self.ready
    }

    pub fn stats(&self) -> LogFigures {
        LogFigures {
            oldest: self.segments.front().map_or(0, |segment| segment.number),
            current: self.segments.back().map_or(0, |segment| segment.number),
            migrated: self.migrated,
            written: self.written,
            skipped: self.skipped,
            lost: self.lost,
            segment_size: self.segment_size,
            disk: self.disk(),
            live: self.live,
            health: self.health,
        }
    }
}

#[cfg(test)]
mod tests;
