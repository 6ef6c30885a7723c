//! The journal: records that wait to be written, and the list of segments that are still needed. Must not access files.
//! Only the oldest segments are removed, so a record that reverses an earlier record, such as a delete, always outlives
//! the earlier record.
//! Enforces promise P4 of beanpole-promises(7).

mod live_items;
mod space;

use std::collections::VecDeque;

use super::batch::{Batch, Bytes, Cut, SharedTail, Synced};
use super::record::{
    full_size, group_size, key_size, operation_size, pause_size, settings_size, GroupCounts, Record, Start, CHANGE,
    CLOSED, DELETE, MARK, OUTCOME, PUT, SNAPSHOT, START, SYNCED,
};
use super::segment::{Header, LogLocation, RecordKey, HEADER};
use crate::engine::{Change, Engine, List, Span, StoredJob, Time, TubeSettings, RUN_SIZE};
use crate::shared::log_figures::{Health, LogFigures};

pub use live_items::Live;
use live_items::LiveIndex;

/// The number of job IDs that the log reserves in advance. After a crash, new IDs exceed all reserved IDs.
pub const IDS_AHEAD: u64 = 1 << 20;
/// Commands wait while fewer reserved IDs than this remain. One event-loop iteration of all threads uses fewer IDs.
const IDS_KEPT: u64 = 1 << 14;
/// After this many log bytes, the synced location is recorded again.
const SYNCED_EVERY: u64 = 4096;
/// Bytes that compaction rewrites per call. Rewriting them takes well under a millisecond.
const COMPACT_BYTES: u64 = 128 * 1024;
/// The maximum size of the changes in memory while the disk is failing, in bytes. Deletes are not limited.
const BACKLOG: u64 = 16 << 20;
/// Larger writes are slow: copying this amount to the page cache takes about half a millisecond.
pub const LARGE: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retired {
    pub number: u64,
    pub bytes: u64,
    /// The log must be durable up to this position first. 0 if an earlier process wrote the segment, perhaps unsynced.
    pub after: u64,
    /// A damaged or foreign segment is moved to a subdirectory instead of being removed.
    pub damaged: bool,
}

/// The positions up to which the log must be durable before replies are sent, each with the number of earlier changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Required {
    pub any: u64,
    /// The position after the last job, key or result. Replies about them are withheld while the disk is failing.
    pub puts: u64,
    pub count: u64,
    pub put_count: u64,
}

#[derive(Debug)]
pub struct Segment {
    number: u64,
    key: RecordKey,
    /// The file's size when it was created.
    size: u64,
    pub bytes: u64,
    /// The total size of the live items' full records.
    live: u64,
    lists: [List; 6],
    /// `true` if compaction must empty the segment regardless of the disk usage.
    pub evacuating: bool,
    pub damaged: bool,
    missing: bool,
}

impl Segment {
    fn new(log_id: u64, number: u64, size: u64, bytes: u64) -> Segment {
        let (key, lists) = (RecordKey::new(log_id, number), [List::EMPTY; 6]);
        Segment { number, key, size, bytes, live: 0, lists, evacuating: false, damaged: false, missing: false }
    }
}

#[derive(Debug, Default)]
pub struct Journal {
    log_id: u64,
    pub(super) epoch: u64,
    /// The epoch of the process that wrote the last record found at startup, or 0 if unknown.
    pub(super) found_epoch: u64,
    /// The location of this process's first record.
    own_from: Option<LogLocation>,
    segment_size: u64,
    /// The segment of the first byte in `buffer`.
    first_segment: u64,
    buffer: Bytes,
    cuts: Vec<Cut>,
    pub position: u64,
    /// Oldest first. Records are appended to the last segment.
    segments: VecDeque<Segment>,
    /// Numbers and sizes of empty files on disk, which will be the next segments.
    prepared: VecDeque<(u64, u64)>,
    ready: u64,
    /// The number of `prepared` segments whose size is not `segment_size`.
    unusual: usize,
    pub(super) evacuating: usize,
    /// Bytes of the records that a waiting command or compaction needs to append.
    pub(super) requested: u64,
    next_number: u64,
    indexes: [LiveIndex; 6],
    jobs: u64,
    /// Additional log bytes that deletes of group members may need, compared with plain deletes.
    group_ends: u64,
    live: u64,
    /// Total bytes of all segments except the current segment.
    old: u64,
    retired: VecDeque<Retired>,
    retiring: u64,
    /// Retired segments whose files could not be removed. They do not count toward [`Journal::bound`].
    stuck: Vec<Retired>,
    pub health: Health,
    migrated: u64,
    written: u64,
    pub(super) skipped: u64,
    lost: u64,
    pub required: Required,
    synced: Synced,
    /// When the log is synced up to this position, the synced location is recorded again.
    pub(super) mark_due: u64,
    last_id: u64,
    ids: u64,
    ids_synced: u64,
    /// The log position after the record that contains `ids`.
    ids_at: u64,
    /// `true` if a disk failure may have destroyed copies that compaction wrote. Retired segments, which contain the
    /// originals, are then kept until all items are rewritten again.
    in_doubt: bool,
    /// `true` if copies must be synced before a [`Record::Gone`] is appended: in `SyncMode::Never`, in which a failed
    /// sync can lose them, and after a segment was missing, because the record then proves that they are durable.
    pub(super) syncs_copies: bool,
    /// A sync up to this position is required in every sync mode.
    demanded: u64,
}

impl Journal {
    pub fn new(segment_size: u64, log_id: u64) -> Journal {
        let segment_size = segment_size.max((HEADER + SYNCED + 2 * MARK) as u64 + 1);
        Journal { log_id, segment_size, next_number: 1, ..Journal::default() }
    }

    pub fn persist(&mut self, slot: u32, engine: &Engine) {
        self.jobs += 1;
        self.write_new(Live::Job, slot, None, engine);
    }

    /// The log need not keep the outcome record: when compaction rewrites the job, the new record contains the outcome.
    fn record_outcome(&mut self, slot: u32, result: usize, engine: &Engine) {
        self.make_room((OUTCOME + result) as u64);
        let job = engine.job_at(slot);
        let outcome = engine.outcome(&job);
        let (id, done, fails) = (job.id().0, outcome.map(|(done, _)| done), job.fails);
        let bytes = outcome.map_or(&[][..], |(_, bytes)| bytes);
        // The result is the end of the body.
        let tail = SharedTail::of(job.body(), job.body().len() - bytes.len());
        let bytes = if tail.is_some() { &[] } else { bytes };
        self.push_with(&Record::Outcome { id, done, fails, result: bytes }, tail);
        self.resize(slot, 0, result);
    }

    fn segment_index(&self, number: u32) -> usize {
        self.segments.partition_point(|segment| (segment.number as u32) < number)
    }

    /// Records the changes of the engine. Returns the log position after the records.
    pub fn append(&mut self, engine: &mut Engine) -> u64 {
        while let Some(change) = engine.take_change() {
            // While the disk is failing, withhold replies about these changes, so that clients keep their own copies.
            let put = matches!(change, Change::Put(_) | Change::Replace { .. } | Change::Persist(_))
                || matches!(change, Change::Promise(_) | Change::PromiseKey | Change::Outcome { result: 1.., .. });
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
            self.ids = self.last_id + IDS_AHEAD;
            self.append_record(MARK as u64, &Record::Ids(self.ids));
            self.ids_appended();
        }
        self.position
    }

    fn ids_appended(&mut self) {
        self.ids_at = self.position;
        self.demanded = self.position;
    }

    /// Returns the oldest segment that the synced part of the log needs.
    fn oldest_needed(&self) -> u64 {
        let first = self.segments.front().map_or(0, |segment| segment.number);
        let unrecorded = self.retired.iter().filter(|retired| retired.after > self.synced.position);
        unrecorded.map(|retired| retired.number).fold(first, u64::min)
    }

    fn record_one(&mut self, change: Change, engine: &Engine) {
        match change {
            Change::Put(slot) => self.record_put(slot, 0, engine, Record::Put),
            Change::Run { slot, schedule } => {
                let (id, change) = engine.stored_run(schedule);
                self.record_put(slot, RUN_SIZE as u64, engine, |job| Record::Run(id, change, job));
            }
            Change::Replace { slot, before } => self.write_new(Live::Job, slot, Some(full_size(before)), engine),
            Change::Delete { slot, id, size } => {
                self.append_record(DELETE as u64, &Record::Delete(id.0));
                self.lost_job(slot, size);
            }
            Change::MemberGone(gone) => self.record_member_gone(&gone),
            Change::Group(group) => {
                let (size, number) = (group_size(group.name.length()), group.number);
                self.append_record(size, &Record::Groups { id: 0, groups: GroupCounts::Known(&[*group]) });
                self.found(Live::Group, number, size);
            }
            Change::GroupGone { number, name } => self.lost(Live::Group, number, group_size(name)),
            Change::Pause { tube, before } => {
                let size = Live::Pause.size(tube, engine);
                self.write_new(Live::Pause, tube, before.then_some(size), engine);
            }
            Change::PauseEnded { tube, name, before } => {
                let size = pause_size(name.len());
                self.append_record(size, &Record::Pause { tube: &name, length: Span::ZERO, until: Time::default() });
                self.changed(Live::Pause, tube, before.then_some(size), None);
            }
            // No record is needed, because the record of the pause contains the end time.
            Change::PauseOver { tube, name } => self.lost(Live::Pause, tube, pause_size(name)),
            Change::Promise(_) | Change::PromiseKey | Change::PromiseEnds => {}
            Change::Opened { number, operation } => self.record_opened(number, &operation),
            Change::Closed { number, names } => {
                self.append_record(MARK as u64, &Record::Done(number.into()));
                self.lost(Live::Operation, number, operation_size(names));
            }
            Change::KeyKept(number) => self.write_new(Live::Key, number, None, engine),
            Change::KeyGone { number, names } => self.lost(Live::Key, number, key_size(names)),
            Change::Settings { tube, before } => {
                self.write_new(Live::Settings, tube, before.map(settings_size), engine);
            }
            Change::SettingsEnded { tube, name, names } => {
                let settings = TubeSettings::default();
                self.append_record(settings_size(name.len()), &Record::Settings { tube: &name, settings });
                self.lost(Live::Settings, tube, settings_size(names));
            }
            Change::Shrunk { slot, bytes } => self.resize(slot, bytes, 0),
            Change::Reason { slot, sizes } => self.record_reason(slot, sizes, engine),
            Change::Move { slot, sizes } => self.record_move(slot, sizes, engine),
            Change::Reserve(_) | Change::Expire(_) | Change::Lease(_) if self.must_save() => {}
            Change::Persist(slot) => self.persist(slot, engine),
            Change::Outcome { slot, result } => self.record_outcome(slot, result, engine),
            change => {
                let (id, change) = engine.stored_change(&change).expect("a change to an existing job");
                self.append_record(CHANGE as u64, &Record::Change(id, change));
            }
        }
    }

    /// `more` is the size of the fields that the record contains in addition to those of a [`Record::Put`].
    fn record_put<'a>(
        &mut self,
        slot: u32,
        more: u64,
        engine: &'a Engine,
        kind: impl FnOnce(StoredJob<'a>) -> Record<'a>,
    ) {
        let size = full_size(engine.logged_size(slot));
        self.make_room(size - (SNAPSHOT - PUT) as u64 + more);
        self.append_job(slot, engine, kind);
        self.jobs += 1;
        self.found(Live::Job, slot, size);
    }

    /// Returns `true` if reservations and timeouts are not recorded, because space is short.
    fn must_save(&self) -> bool {
        self.health != Health::Ok && self.room() < CHANGE as u64 * 2
    }

    /// Continues in the next prepared segment if necessary. A [`Record::Next`] always fits into the current segment.
    pub fn make_room(&mut self, bytes: u64) {
        loop {
            let current = self.segments.back().expect("a segment");
            if current.bytes + bytes + MARK as u64 <= current.size {
                return;
            }
            let Some((number, size)) = self.prepared.pop_front() else { return };
            self.ready -= size;
            self.unusual -= usize::from(size != self.segment_size);
            if current.size > 0 {
                self.push(&Record::Next(number));
            }
            let current = self.segments.back().expect("a segment");
            let before = LogLocation { segment: current.number, at: current.bytes };
            self.begin(number, size, before);
        }
    }

    /// `before` is the end of the log in the previous segment.
    pub fn begin(&mut self, number: u64, size: u64, before: LogLocation) {
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        self.segments.push_back(Segment::new(self.log_id, number, size, HEADER as u64));
        self.cuts.push(Cut { at: self.buffer.own.len(), segment: number });
        let (log_id, oldest, synced, ids) = (self.log_id, self.oldest_needed(), self.synced.location, self.ids);
        let (epoch, is_own) = (self.epoch, self.own_from.is_some_and(|from| from < before));
        let before_epoch = if is_own { epoch } else { self.found_epoch };
        let header = Header { log_id, segment: number, before, oldest, synced, ids, epoch, before_epoch };
        self.own_from.get_or_insert(LogLocation { segment: number, at: 0 });
        self.buffer.own.extend_from_slice(&header.encode());
        self.position += HEADER as u64;
        self.mark_due = self.synced.position + SYNCED_EVERY;
    }

    pub fn append_closed(&mut self, now: Time) {
        let current = self.segments.back().expect("a segment");
        let time = (current.bytes + CLOSED as u64 <= current.size).then_some(now);
        self.push(&Record::Closed { last_id: self.last_id, time });
        // No record of the synced location may follow the shutdown record.
        self.mark_due = u64::MAX;
    }

    fn append_job<'a>(&mut self, slot: u32, engine: &'a Engine, kind: impl FnOnce(StoredJob<'a>) -> Record<'a>) {
        let mut job = engine.stored_job(engine.job_at(slot));
        let tail = SharedTail::of(engine.job_at(slot).body(), 0);
        if tail.is_some() {
            job.body = &[];
        }
        self.push_with(&kind(job), tail);
    }

    fn append_record(&mut self, size: u64, record: &Record) {
        self.make_room(size);
        self.push(record);
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

    /// Takes the bytes appended since the last call. Records the location of `synced` at intervals, so that recovery
    /// can distinguish damage from the effects of a power failure.
    pub fn take(&mut self, mut spare: Vec<u8>, synced: Synced) -> Batch {
        debug_assert!(spare.is_empty());
        self.is_synced(synced);
        let current = self.segments.back().expect("a segment");
        let fits = current.bytes + (SYNCED + MARK) as u64 <= current.size;
        if !self.buffer.own.is_empty() && fits && synced.position >= self.mark_due {
            self.push(&Record::Synced(synced.location));
            self.mark_due = synced.position + SYNCED_EVERY;
        }
        spare.reserve(self.buffer.own.len().min(1 << 16));
        let bytes = std::mem::replace(&mut self.buffer, Bytes::with(spare));
        let current = self.segments.back().map_or(0, |segment| segment.number);
        let segment = std::mem::replace(&mut self.first_segment, current);
        let (cuts, end, demanded) = (std::mem::take(&mut self.cuts), self.position, self.demanded);
        Batch { segment, bytes, cuts, end, demanded }
    }

    pub fn is_synced(&mut self, synced: Synced) {
        self.synced = synced;
        if synced.position >= self.ids_at {
            self.ids_synced = self.ids;
        }
    }

    pub fn is_large(&self) -> bool {
        self.buffer.len() > LARGE
    }

    /// Returns the size of the next segment to prepare.
    ///
    /// A record that needs a larger segment leaves the prepared segments empty, except for their headers. For a reserve
    /// of R bytes, about R / S segments of size S are prepared. S is at least the geometric mean of R and 4096 (the
    /// minimum `segment_size`), so these headers together are at most 5% as large as a record that does not fit into S.
    pub fn wanted_size(&self) -> u64 {
        let needed = self.requested + (HEADER + MARK) as u64 + 2 * (CHANGE + PUT + DELETE) as u64;
        let large = needed > self.segment_size && self.prepared.iter().all(|&(_, size)| size < needed);
        if self.requested > 0 && large {
            needed
        } else {
            self.segment_size.max((self.reserve() * self.segment_size.min(4096)).isqrt())
        }
    }

    pub fn claim_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    pub fn prepared(&mut self, number: u64, size: u64) {
        debug_assert!(self.prepared.back().is_none_or(|last| last.0 < number), "segments must be prepared in order");
        self.ready += size;
        self.unusual += usize::from(size != self.segment_size);
        self.prepared.push_back((number, size));
    }

    pub fn change_health(&mut self, from: Health, to: Health) -> bool {
        let changes = self.health == from;
        if changes {
            self.health = to;
        }
        changes
    }

    /// Segments must be added in ascending order, each before its records.
    pub fn found_segment(&mut self, number: u64, bytes: u64) {
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        self.segments.push_back(Segment::new(self.log_id, number, bytes, bytes));
        self.found_number(number);
    }

    pub fn found_number(&mut self, number: u64) {
        self.next_number = self.next_number.max(number + 1);
    }

    pub fn found_length(&mut self, bytes: u64) {
        self.segments.back_mut().expect("a segment").bytes = bytes;
    }

    /// `before` is the end of the log. The header contains the fields of a [`Record::Start`].
    pub fn begin_first(&mut self, number: u64, size: u64, before: LogLocation) {
        self.ids = self.last_id + IDS_AHEAD;
        self.begin(number, size, before);
        self.ids_appended();
    }

    /// Appends a [`Record::Start`] to the last segment, or begins a new segment. Does nothing if there is no space.
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

    /// Continues without a file. Records are kept in memory until the disk recovers.
    pub fn go_on_nowhere(&mut self, engine: &mut Engine) {
        self.health = Health::Failing;
        self.old += self.segments.back().map_or(0, |segment| segment.bytes);
        let number = self.claim_number();
        self.segments.push_back(Segment { missing: true, ..Segment::new(self.log_id, number, 0, 0) });
        if self.buffer.own.is_empty() {
            self.first_segment = number;
        }
        self.append(engine);
    }

    pub fn segment(&self, number: u64) -> Option<&Segment> {
        self.segments.get(self.segment_index(number as u32)).filter(|segment| segment.number == number)
    }

    /// Makes compaction empty the last segment. If `damaged`, the file is then moved to a subdirectory, not removed.
    pub fn evacuate_newest(&mut self, damaged: bool) {
        let segment = self.segments.back_mut().expect("a segment");
        (segment.evacuating, segment.damaged) = (true, segment.damaged || damaged);
        self.count_evacuating();
    }

    /// `size` is the job's current [`Engine::logged_size`], and `before` is its size in an earlier full record.
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

    fn count_evacuating(&mut self) {
        self.evacuating = self.segments.iter().filter(|segment| segment.evacuating).count();
    }

    pub fn disk(&self) -> u64 {
        let current = self.segments.back().map_or(0, |segment| segment.size.max(segment.bytes));
        self.old + self.retiring + current + self.ready
    }

    #[inline] // called for each batch of commands, although most batches use none of the figures
    pub fn stats(&self) -> LogFigures {
        let Journal { migrated, written, skipped, lost, segment_size, live, health, .. } = *self;
        let number = |segment: Option<&Segment>| segment.map_or(0, |segment| segment.number);
        let retired = self.retired.front().map_or(u64::MAX, |retired| retired.number);
        let (oldest, current) = (number(self.segments.front()).min(retired), number(self.segments.back()));
        let (stuck, disk) = (self.stuck.len() as u64, self.disk() + self.stuck.iter().map(|it| it.bytes).sum::<u64>());
        LogFigures { oldest, current, migrated, written, skipped, lost, stuck, segment_size, disk, live, health }
    }
}

#[cfg(test)]
mod tests;
