//! The log as the engine sees it: the records that are appended, their division into segments, and which segments are
//! still needed.
//!
//! Owns the order of records, which is kept under the engine's lock, and the segment of each. `compaction` bounds the
//! disk usage, and `space` calculates the remaining space. [`Journal::take`] passes the bytes to the writer. Must not
//! touch files or wait.
//!
//! Segments are removed from the oldest end only. So a record that reverses another one, such as a delete, always
//! outlives it; and a job whose full record is in the oldest segment is written again in its current state before that
//! segment is removed.
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

/// IDs are reserved in the log this many ahead of use. After a crash, numbering continues after the reserved IDs.
pub const IDS_AHEAD: u64 = 1 << 20;

/// If fewer reserved IDs are left, commands that need one wait. This is more than a turn of every thread assigns.
const IDS_KEPT: u64 = 1 << 14;

/// Bytes of log between two records that state how far the log is synced.
const SYNCED_EVERY: u64 = 4096;

/// Bytes of records that compaction may rewrite per turn: well under a millisecond.
const COMPACT_BYTES: u64 = 128 * 1024;

/// While the disk fails, changes are kept in memory up to this size; beyond it, only deletes.
const BACKLOG: u64 = 16 << 20;

/// A write of more bytes takes long: about half a millisecond into the page cache.
pub const LARGE: usize = 1 << 20;

/// Returns the maximum size of the full record of the job in `slot`.
fn size_of(slot: u32, engine: &Engine) -> u64 {
    full_size(engine.logged_size(slot))
}

#[derive(Debug)]
pub struct Segment {
    number: u64,
    key: RecordKey,
    /// The size for which the file was created.
    size: u64,
    pub bytes: u64,
    /// The size of the live items when they are written again.
    live: u64,
    /// The live items by kind.
    lists: [SegmentJobs; 6],
    /// The segment must be emptied regardless of the disk usage.
    pub evacuating: bool,
    /// The segment is damaged, and is set aside once it is empty.
    pub damaged: bool,
    /// The file of the segment was removed.
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
    /// The random number of the log, which each of its segments contains.
    log: u64,
    /// The random number of this process, and that of the process that wrote the end of the log found at startup; 0 if
    /// the latter is unknown.
    epoch: u64,
    found_epoch: u64,
    /// The place from which on the log was written by this process.
    own_from: Option<Place>,
    segment_size: u64,
    /// The segment that the first bytes of the buffer belong to.
    first_segment: u64,
    buffer: Bytes,
    cuts: Vec<Cut>,
    position: u64,
    /// Oldest first; the last one is written to.
    segments: VecDeque<Segment>,
    /// The numbers and sizes of empty segments on disk.
    prepared: VecDeque<(u64, u64)>,
    /// The total size of the prepared segments, and how many of them are larger than usual.
    ready: u64,
    large: usize,
    /// The number of segments that are being emptied.
    evacuating: usize,
    /// Bytes of records that a command waits to write.
    requested: u64,
    next_number: u64,
    /// The segment of each live item, by kind and number.
    places: [LiveIndex; 6],
    jobs: u64,
    /// Bytes that deletes of group members may take in addition to plain deletes.
    group_ends: u64,
    live: u64,
    /// The total size of the segments that are no longer written to.
    old: u64,
    retired: VecDeque<Retired>,
    /// The total size of the retired segments that still exist.
    retiring: u64,
    health: Health,
    migrated: u64,
    written: u64,
    skipped: u64,
    lost: u64,
    required: Required,
    /// How far the log was synced when bytes were last taken.
    synced: Synced,
    /// When the log is synced up to this position, it records how far it is synced.
    mark_due: u64,
    /// The last ID that was assigned.
    last_id: u64,
    /// The last ID that the log reserves, and the last one that the synced part of the log reserves.
    ids: u64,
    ids_synced: u64,
    /// The position of the record that reserves `ids`.
    ids_at: u64,
    /// After a failure without syncs: rewritten records may be lost until everything is rewritten once more.
    in_doubt: bool,
    /// The position up to which the log must be synced soon in any mode.
    demanded: u64,
}

impl Journal {
    /// Creates an empty log with segments of this size, numbered from 1. `log` is its random number.
    pub fn new(segment_size: u64, log: u64) -> Journal {
        let segment_size = segment_size.max((HEADER + SYNCED + 2 * MARK) as u64 + 1);
        Journal { log, segment_size, next_number: 1, ..Journal::default() }
    }

    /// Appends a job that is in no segment yet.
    pub fn adopt(&mut self, slot: u32, engine: &Engine) {
        self.jobs += 1;
        self.write_new(Live::Job, slot, None, engine);
    }

    /// Appends the outcome of a job whose full record exists, and which grows by the result. Compaction rewrites the
    /// job with its outcome before its segment is removed, so this record need not be kept.
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

    /// Returns the index of the segment with this number.
    fn place_from(&self, number: u32) -> usize {
        self.segments.partition_point(|segment| (segment.number as u32) < number)
    }

    /// Appends the records of the engine's changes. Returns the position after them.
    pub fn append(&mut self, engine: &mut Engine) -> u64 {
        while let Some(change) = engine.take_change() {
            // New jobs and results, which the client may not have anywhere else.
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

    /// Reserves IDs ahead of use.
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

    /// The epoch of the process that wrote the log right before `place`, as a reader finds it.
    fn epoch_before(&self, place: Place) -> u64 {
        if self.own_from.is_some_and(|from| from < place) {
            self.epoch
        } else {
            self.found_epoch
        }
    }

    /// The oldest segment that may be needed: the synced part of the log states that those before it are not.
    fn oldest_needed(&self) -> u64 {
        let first = self.segments.front().map_or(0, |segment| segment.number);
        let unsaid = self.retired.iter().filter(|retired| retired.after > self.synced.position);
        unsaid.map(|retired| retired.number).fold(first, u64::min)
    }

    /// The positions up to which the log must be durable before replies are sent.
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

    /// Appends a copy that a schedule has put, and the change of the schedule.
    fn record_run(&mut self, slot: u32, schedule: u32, engine: &Engine) {
        let size = size_of(slot, engine);
        self.make_room(size - (SNAPSHOT - PUT) as u64 + RUN_SIZE as u64);
        let (id, change) = engine.stored_run(schedule);
        self.append_job(slot, engine, |job| Record::Run(id, change, job));
        self.jobs += 1;
        self.found(Live::Job, slot, size);
    }

    /// Returns `true` if records of counters are omitted because space is short.
    fn must_save(&self) -> bool {
        self.health != Health::Ok && self.room() < CHANGE as u64 * 2
    }

    /// Continues in the next segment if the current one has no space for `bytes` and a next one is prepared. Space for
    /// the last record of a segment is always left.
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

    /// Continues in a new segment. `before`: the end of the log before it.
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

    /// Appends the record of a clean shutdown, after which nothing may be appended.
    pub fn append_closed(&mut self, now: Time) {
        let current = self.segments.back().expect("a segment");
        let time = (current.bytes + CLOSED as u64 <= current.size).then_some(now);
        self.push(&Record::Closed { last_id: self.last_id, time });
        // The record also states how far the log is synced, and must stay the last one.
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

    /// Takes the bytes appended since the last call. `synced`: how far the log is synced now, which is recorded at
    /// intervals, so that damage can be distinguished from the effects of a power failure at the next start.
    pub fn take(&mut self, mut spare: Vec<u8>, synced: Synced) -> Batch {
        debug_assert!(spare.is_empty());
        self.is_synced(synced);
        self.append_synced();
        spare.reserve(self.buffer.place().min(1 << 16)); // The next batch will be about as large.
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

    /// Updates how far the log is synced.
    pub fn is_synced(&mut self, synced: Synced) {
        self.synced = synced;
        if synced.position >= self.ids_at {
            self.ids_synced = self.ids;
        }
    }

    /// Appends a record of how far the log is synced, if it is due.
    fn append_synced(&mut self) {
        let synced = self.synced;
        let current = self.segments.back().expect("a segment");
        let fits = current.bytes + (SYNCED + MARK) as u64 <= current.size;
        if !self.buffer.is_empty() && fits && synced.position >= self.mark_due {
            self.push(&Record::Synced(synced.place));
            self.mark_due = synced.position + SYNCED_EVERY;
        }
    }

    /// Returns `true` if so much is appended that writing it takes long on any disk.
    pub fn is_large(&self) -> bool {
        self.buffer.len() > LARGE
    }

    /// The position after everything that was appended.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Requests space for records of this many bytes. 0 ends the request.
    pub fn request_space(&mut self, bytes: u64) {
        self.requested = bytes;
    }

    /// The size of the next segment to be prepared.
    pub fn wanted_size(&self) -> u64 {
        let needed = self.requested + (HEADER + MARK) as u64 + 2 * (CHANGE + PUT + DELETE) as u64;
        let large = needed > self.segment_size && self.prepared.iter().all(|&(_, size)| size < needed);
        if self.requested > 0 && large {
            needed
        } else {
            self.segment_size
        }
    }

    /// Returns a number for a new segment, which is never used again.
    pub fn claim_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Adds an empty segment that exists on disk.
    pub fn prepared(&mut self, number: u64, size: u64) {
        debug_assert!(self.prepared.back().is_none_or(|last| last.0 < number), "segments are begun in order");
        self.ready += size;
        self.large += usize::from(size > self.segment_size);
        self.prepared.push_back((number, size));
    }

    pub fn health(&self) -> Health {
        self.health
    }

    /// Changes the health from `from` to `to`. Returns `false` if it was not `from`.
    pub fn change_health(&mut self, from: Health, to: Health) -> bool {
        let changes = self.health == from;
        if changes {
            self.health = to;
        }
        changes
    }

    pub fn set_health(&mut self, health: Health) {
        self.health = health;
    }

    /// The size of the log on disk in bytes.
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
