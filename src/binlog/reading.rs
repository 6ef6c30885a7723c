//! Restoration of a queue from segments. A gap before the location to which the log was synced is damage: it is
//! reported, and later records are applied. A gap after that location is the end of the log, because no reply depended
//! on later records.
//! Enforces promise P13 of beanpole-promises(7).

use std::io;

use super::decode::read_groups;
use super::import::{Imported, ImportedJob};
use super::journal::{Journal, Live, IDS_AHEAD};
use super::record::{
    group_size, key_size, operation_size, pause_size, settings_size, states_of, GroupCounts, Record, Start,
};
use super::replay::{scan, End, Scanned, Visit};
use super::segment::{segment_name, Header, LogLocation, RecordKey, HEADER, MAX_NUMBER_GAP, NUMBER_LIMIT};
use super::storage::{is_bad_disk, OpenError, Storage};
use super::survey::{for_each_used, SegmentLink, Survey};
use crate::engine::{Body, Engine, JobId, MovedJob, OpenOperation, StoredJob, Time, MAX_OPEN};

const ID_LIMIT: u64 = 1 << 63;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryProgress {
    pub done: usize,
    pub segments: usize,
    pub bytes: u64,
    pub jobs: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    pub progress: RecoveryProgress,
    pub problems: Vec<String>,
    pub imported: Option<usize>,
}

pub struct Reading<'a> {
    storage: &'a dyn Storage,
    pub engine: &'a mut Engine,
    pub journal: Journal,
    pub report: RecoveryReport,
    log_id: u64,
    pub chain: Vec<SegmentLink>,
    last_id: u64,
    ids: u64,
    pub latest: Time,
    oldest: u64,
    /// The last record that was read, if it is of a kind that ends a segment.
    last: Option<Last>,
    claims: Option<Claims>,
    pub epoch: Option<u64>,
    /// `true` after a missing segment. The next segment is then compacted, so that later starts do not report the loss.
    after_missing: bool,
    pub read: usize,
    pub stale: Vec<SegmentLink>,
    pub end: LogLocation,
    /// The segment in which the log must continue.
    pub next: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Claims {
    synced: LogLocation,
    oldest: u64,
    /// A segment that continues another copy of the log than the segment before it.
    mixed: Option<Header>,
}

/// Used if no segment has an intact header: no record can be read, so all bytes count as damaged.
const ALL_SYNCED: Claims = Claims { synced: LogLocation { segment: u64::MAX, at: 0 }, oldest: 0, mixed: None };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    Next(u64),
    Closed(u64),
}

impl<'a> Reading<'a> {
    pub fn new(storage: &'a dyn Storage, engine: &'a mut Engine, journal: Journal, survey: &Survey) -> Reading<'a> {
        Reading {
            storage,
            engine,
            journal,
            report: RecoveryReport::default(),
            log_id: survey.log_id.unwrap_or_default(),
            chain: survey.chain.clone(),
            last_id: 0,
            ids: 0,
            latest: Time::default(),
            oldest: 0,
            last: None,
            claims: survey.log_id.is_none().then_some(ALL_SYNCED),
            epoch: None,
            after_missing: false,
            read: 0,
            stale: Vec::new(),
            end: LogLocation::default(),
            next: None,
        }
    }

    pub fn read_all(&mut self, watch: &mut dyn FnMut(RecoveryProgress)) -> Result<(), OpenError> {
        self.drop_stale()?;
        self.report.progress.segments = self.chain.len();
        for index in 0..self.chain.len() {
            let link = self.chain[index];
            let goes_on = match link.length {
                Some(length) => self.segment(index, link, length)?,
                None => {
                    self.damage(format!("{}: it is missing", segment_name(link.number)), false);
                    self.after_missing = true;
                    true
                }
            };
            // A damaged segment is not truncated, so the whole file counts toward the disk usage.
            let is_damaged = self.journal.segment(link.number).is_some_and(|segment| segment.damaged);
            link.length.filter(|_| is_damaged).into_iter().for_each(|length| self.journal.found_length(length));
            self.report.progress.done += 1;
            self.report.progress.bytes += link.length.unwrap_or(0);
            watch(self.report.progress);
            if !goes_on {
                break;
            }
            self.read = index + 1;
        }
        self.check_ends();
        Ok(())
    }

    /// Records of unneeded segments must not be applied: the records that reverse them may be in removed segments.
    fn drop_stale(&mut self) -> Result<(), OpenError> {
        // A single segment is always needed.
        if self.chain.len() > 1 {
            if let Some(Header { segment, before, .. }) = self.claims().mixed {
                return Err(OpenError::Mixed(segment_name(segment), segment_name(before.segment)));
            }
            self.oldest = self.claims().oldest;
        }
        let needed = self.chain.partition_point(|link| link.number < self.oldest);
        self.stale.extend(self.chain.drain(..needed).filter(|link| link.length.is_some()));
        if let [first, .., last] = &self.stale[..] {
            log::info!("{} to {}: needed no longer", segment_name(first.number), segment_name(last.number));
        }
        Ok(())
    }

    fn check_ends(&mut self) {
        if let Some(first) = self.chain.first().and_then(|link| link.header) {
            let before = first.before.segment;
            if before > 0 && before >= self.oldest {
                self.journal.evacuate_oldest();
                self.damage(format!("{}: it is missing", segment_name(before)), false);
            }
        }
        if let Some(Last::Next(next)) = self.last {
            self.next = Some(next);
            let name = segment_name(next);
            if self.storage.length(&name).is_err() {
                self.damage(format!("{name}: it is missing"), false);
            }
        }
    }

    pub fn lengths(&self) -> impl Iterator<Item = (SegmentLink, u64)> + '_ {
        self.chain[..self.read].iter().filter_map(|link| Some((*link, link.length?)))
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.last, Some(Last::Closed(_)))
    }

    pub fn last_id(&self) -> u64 {
        let given = match self.last {
            Some(Last::Closed(last)) => last.max(self.last_id),
            _ => self.ids.max(self.last_id),
        };
        // Missing records may have contained a larger ID.
        let is_complete = self.report.problems.is_empty() || self.report.imported.is_some();
        given.saturating_add(if is_complete { 0 } else { 4 * IDS_AHEAD })
    }

    /// Returns `false` if the log ends in or before this segment.
    fn segment(&mut self, index: usize, link: SegmentLink, length: u64) -> Result<bool, OpenError> {
        let (number, name) = (link.number, segment_name(link.number));
        let is_intact = link.header.is_some() && link.whole;
        // The oldest segment's header was durable before earlier segments were removed, so a missing header is damage.
        let is_lost = link.header.is_none() && index == 0;
        let is_damage = !is_intact && (is_lost || self.is_damage(LogLocation { segment: number, at: 0 }));
        if link.header.is_none() && !is_damage {
            return Ok(false);
        }
        let is_other = |header: &Header| self.epoch.is_some_and(|epoch| ![0, epoch].contains(&header.before_epoch));
        if let Some(header) = link.header.filter(is_other) {
            return Err(OpenError::Mixed(name, segment_name(header.before.segment)));
        }
        self.journal.found_segment(number, length);
        self.last = None;
        if std::mem::take(&mut self.after_missing) {
            self.journal.evacuate_newest(false);
        }
        match link.header {
            Some(header) => {
                self.claim_ids(header.ids);
                self.oldest = self.oldest.max(header.oldest);
                self.epoch = (header.epoch != 0).then_some(header.epoch);
                // A file gets its full size before the header is written.
                if length < HEADER as u64 {
                    self.damage(format!("{name}: only its first {length} bytes are left"), true);
                } else if is_damage {
                    self.found_problem(format!("{name}: one copy of the header is damaged; nothing is lost"));
                    self.journal.evacuate_newest(true);
                }
            }
            None => self.damage(format!("{name}: bytes 0 to {HEADER}, the header, are damaged"), true),
        }
        let (end, goes_on) = match self.records(link) {
            Ok(found) => found,
            Err(error) if is_bad_disk(&error) => {
                self.damage(format!("{name}: cannot be read: {error}; {length} bytes are lost"), true);
                (End { at: length, used: length }, true)
            }
            Err(error) => return Err(OpenError::File(name, error)),
        };
        self.end = LogLocation { segment: number, at: end.at };
        self.journal.found_length(end.at);
        self.read = index + 1;
        let short = goes_on && link.limit.map_or(end.used > end.at, |limit| end.at < limit);
        if short && index + 1 < self.chain.len() && self.is_damage(self.end) {
            let to = link.limit.unwrap_or(end.used);
            self.damage(format!("{name}: bytes {} to {to} are damaged", end.at), true);
        } else if short || !goes_on {
            log::info!("{name}: the log ends at byte {}; what follows was not finished", end.at);
            return Ok(false);
        }
        Ok(true)
    }

    /// Applies the records of a segment. Returns the end of the records, and `false` if the log also ends there.
    fn records(&mut self, link: SegmentLink) -> io::Result<(End, bool)> {
        let name = segment_name(link.number);
        let mut goes_on = true;
        let end = read(self.storage, self.log_id, &link, &mut |found| {
            match found {
                Scanned::Record { record, body, .. } => self.apply(record, body),
                Scanned::Gap(from, to) => {
                    goes_on = self.is_damage(LogLocation { segment: link.number, at: from });
                    if goes_on {
                        self.damage(format!("{name}: bytes {from} to {to} are damaged and were skipped"), true);
                    }
                }
            }
            goes_on
        });
        Ok((end?, goes_on))
    }

    /// Returns `true` if the unreadable bytes at `at` are damage, because the log was synced beyond them.
    fn is_damage(&mut self, at: LogLocation) -> bool {
        self.claims().synced > at
    }

    fn claims(&mut self) -> Claims {
        *self.claims.insert(self.claims.unwrap_or_else(|| self.find_claims()))
    }

    /// Each header repeats the synced location and the oldest needed segment from earlier records, so reading begins
    /// with the segment of the newest synced location. Segments are removed only after the first [`Record::Gone`] that
    /// permits their removal is synced. The first needed segment in a header, [`Record::Gone`] or [`Record::Start`]
    /// counts only if the log does not end between the start of that segment and the header or record.
    fn find_claims(&self) -> Claims {
        let headers = || self.chain.iter().filter_map(|link| link.header);
        let mut synced = headers().map(|header| header.synced).max().unwrap_or_default();
        let oldest = headers().map(|header| header.oldest).max().unwrap_or_default().max(1);
        let beginning = |segment| LogLocation { segment, at: 0 };
        let mut gone: Vec<_> = headers().map(|header| (beginning(header.segment), header.oldest)).collect();
        let (mut holes, mut mixed) = (Vec::new(), None);
        let is_missing = |number: u64| number >= oldest && self.storage.length(&segment_name(number)).is_err();
        let named = |link: &SegmentLink| link.header.map(|it| it.before.segment).filter(|it| is_missing(*it));
        let first = self.chain.partition_point(|link| link.number < synced.segment);
        let mut removed = self.chain[..first].iter().filter_map(named).max();
        for link in &self.chain[first..] {
            removed = removed.max(named(link));
            let (Some(_), segment) = (link.length, link.number) else { continue };
            let location = |at| LogLocation { segment, at };
            // A copied record, or a record before another header, names a segment that was replaced, not removed.
            let is_removed = |next| link.limit.is_none() && next > segment && is_missing(next);
            if link.header.is_none() {
                holes.push(beginning(segment));
            }
            let mut epoch = link.header.map_or(0, |header| header.epoch);
            let end = read(self.storage, self.log_id, link, &mut |found| {
                match found {
                    Scanned::Record { record: Record::Synced(found), .. } => synced = synced.max(found),
                    Scanned::Record { record: Record::Start(start), at, .. } => {
                        epoch = start.epoch;
                        synced = synced.max(start.synced);
                        gone.push((location(at), start.oldest));
                    }
                    Scanned::Record { record: Record::Closed { .. }, at, .. } => synced = synced.max(location(at)),
                    Scanned::Record { record: Record::Gone(oldest), at, .. } => {
                        synced = synced.max(removed.take_if(|it| *it < oldest).map_or(synced, |_| location(at)));
                        gone.push((location(at), oldest));
                    }
                    Scanned::Record { record: Record::Next(next), .. } if is_removed(next) => removed = Some(next),
                    Scanned::Record { .. } => {}
                    Scanned::Gap(from, _) => {
                        epoch = 0;
                        holes.push(location(from));
                    }
                }
                true
            });
            // An unreadable segment does not show whether data is missing.
            let Ok(end) = end else { continue };
            if link.limit.map_or(end.used > end.at, |limit| end.at < limit) {
                holes.push(location(end.at));
                let next = headers().find(|header| header.before.segment == segment);
                mixed = mixed.or(next.filter(|next| self.is_mixed(location(end.at), epoch, next)));
            }
        }
        let counts = |(at, oldest): &(LogLocation, u64)| {
            let end = holes.partition_point(|hole| *hole < synced.max(beginning(*oldest)));
            *oldest <= at.segment && holes.get(end).is_none_or(|end| *at < *end)
        };
        let oldest = gone.into_iter().filter(counts).map(|(_, oldest)| oldest).max().unwrap_or_default();
        Claims { synced, oldest, mixed }
    }

    /// Returns `true` if `next` does not continue the log whose records end at `end`, with the last `epoch`. `end` is
    /// before the location that `next` states. A power failure can have this effect, and can destroy the record of the
    /// last epoch unless it was synced, but leaves no bytes after the stated location.
    fn is_mixed(&self, end: LogLocation, epoch: u64, next: &Header) -> bool {
        let name = segment_name(end.segment);
        let is_longer =
            || for_each_used(self.storage, &name, next.before.at, &mut |_, _| Ok(false)).is_ok_and(|it| !it);
        let is_other = epoch != 0 && ![0, epoch].contains(&next.before_epoch);
        end > next.synced && is_other || end >= next.synced && is_longer()
    }

    /// Returns `true` if a part of the segment is damaged. An interrupted write at the end of the file is no damage.
    pub fn has_gap(&self, link: &SegmentLink) -> bool {
        let mut has_gap = !link.whole;
        let end = read(self.storage, self.log_id, link, &mut |found| {
            has_gap |= matches!(found, Scanned::Gap(..));
            !has_gap
        });
        has_gap || !end.is_ok_and(|end| link.limit.is_none_or(|limit| end.at >= limit))
    }

    pub fn found_problem(&mut self, problem: String) {
        self.report.problems.push(problem);
        self.journal.skipped += 1;
    }

    /// `in_segment` is `true` if the segment that was read last is damaged.
    fn damage(&mut self, problem: String, in_segment: bool) {
        // A lost start record may have changed the epoch.
        self.epoch = None;
        self.found_problem(problem);
        if in_segment {
            self.journal.evacuate_newest(true);
        }
    }

    fn apply(&mut self, record: Record, body: Option<Body>) {
        self.last = None;
        if let Some(id) = job_of(&record) {
            if id >= ID_LIMIT {
                return;
            }
            self.last_id = self.last_id.max(id);
        }
        let changed = match record {
            Record::Change(id, change) => self.engine.restore_change(id, change),
            Record::Outcome { id, done, fails, result } => {
                self.engine.restore_outcome(JobId(id), done, fails, body.as_ref().map_or(result, Body::bytes))
            }
            Record::Move { id, pri, delay, due, state, dead_from, tube } => {
                self.engine.restore_move(JobId(id), tube, &MovedJob { pri, delay, due, state, dead_from })
            }
            Record::Reason { id, reason } => self.engine.restore_reason(JobId(id), reason),
            record => {
                self.apply_other(&record, body);
                None
            }
        };
        self.resized(changed);
    }

    fn apply_other(&mut self, record: &Record, body: Option<Body>) {
        match *record {
            Record::Put(ref job) | Record::Snapshot(ref job) => self.job(job, body),
            Record::Run(id, change, ref job) => {
                let changed = self.engine.restore_change(id, change);
                self.resized(changed);
                self.job(job, body);
            }
            Record::Delete(id) => self.delete(JobId(id)),
            Record::Groups { id, groups: GroupCounts::Read(bytes) } => {
                self.delete(JobId(id));
                for (count, name) in read_groups(bytes).flatten() {
                    let (number, was_logged) = self.engine.restore_group(name, count);
                    let size = Some(group_size(name.len()));
                    self.journal.changed(Live::Group, number, size.filter(|_| was_logged), size);
                }
            }
            Record::Pause { tube, length, until } => {
                let (number, before) = self.engine.restore_pause(tube, length, until);
                let size = |exists: bool| exists.then_some(pause_size(tube.len()));
                self.journal.changed(Live::Pause, number, size(before), size(self.engine.pause_at(number).is_some()));
            }
            Record::Key { id, until, tube, key } => {
                let (number, before) = self.engine.add_key(JobId(id), tube.into(), key.into(), until, true);
                if let Some((number, names)) = before {
                    self.journal.lost(Live::Key, number, key_size(names));
                }
                self.journal.found(Live::Key, number, key_size(tube.len() + key.len()));
            }
            Record::Settings { tube, settings } => {
                let (number, before) = self.engine.restore_settings(tube, settings.kept());
                let after = self.engine.settings_at(number).is_some().then(|| Live::Settings.size(number, self.engine));
                self.journal.changed(Live::Settings, number, before.map(settings_size), after);
            }
            Record::Next(next) => {
                // A record with a smaller number was copied to a later segment after a disk failure.
                let current = self.journal.stats().current;
                let is_plausible = next > current && next < NUMBER_LIMIT.min(current + MAX_NUMBER_GAP);
                self.last = is_plausible.then_some(Last::Next(next));
            }
            Record::Closed { last_id, time } if last_id < ID_LIMIT => {
                self.last = Some(Last::Closed(last_id));
                self.latest = self.latest.max(time.unwrap_or_default());
            }
            Record::Ids(ids) => self.claim_ids(ids),
            Record::Gone(oldest) => self.oldest = self.oldest.max(oldest),
            Record::Start(Start { ids, epoch, oldest, .. }) => {
                self.claim_ids(ids);
                self.oldest = self.oldest.max(oldest);
                self.epoch = (epoch != 0).then_some(epoch);
            }
            Record::Opened { number, from, to, states, bound } if number < MAX_OPEN => {
                let operation = OpenOperation { from: from.into(), to: to.into(), states: states_of(states), bound };
                let size = operation_size(operation.names());
                let before = self.engine.restore_operation(number, Some(operation)).map(operation_size);
                self.journal.changed(Live::Operation, number, before, Some(size));
            }
            Record::Done(number) if number < MAX_OPEN.into() => {
                let before = self.engine.restore_operation(number as u32, None).map(operation_size);
                self.journal.changed(Live::Operation, number as u32, before, None);
            }
            _ => {}
        }
    }

    /// Ignores implausible `ids`. Otherwise, the next start would ignore new jobs, whose IDs would exceed [`ID_LIMIT`].
    fn claim_ids(&mut self, ids: u64) {
        if ids < ID_LIMIT {
            self.ids = ids;
        }
    }

    fn delete(&mut self, id: JobId) {
        let Some((slot, size)) = self.engine.restore_delete(id) else { return };
        self.journal.lost_job(slot, size);
        self.report.progress.jobs -= 1;
    }

    /// `changed` contains the job's slot and its previous size.
    fn resized(&mut self, changed: Option<(u32, usize)>) {
        let Some((slot, before)) = changed else { return };
        self.journal.resize(slot, before, self.engine.logged_size(slot));
    }

    fn job(&mut self, job: &StoredJob, body: Option<Body>) {
        self.latest = self.latest.max(job.created);
        let (slot, before) = self.engine.restore_job(job, body);
        self.journal.found_job(slot, before, self.engine.logged_size(slot));
        self.report.progress.jobs += u64::from(before.is_none());
    }

    pub fn import(&mut self, imported: Imported) -> Vec<u32> {
        self.report.problems.extend(imported.problems);
        self.report.imported = Some(imported.jobs.len());
        self.report.progress.jobs += imported.jobs.len() as u64;
        self.journal.skipped += imported.skipped;
        self.last_id = self.last_id.max(imported.last_id);
        let restore = |job: &ImportedJob| self.engine.restore_job(&job.stored(), None).0;
        imported.jobs.iter().map(restore).collect()
    }
}

fn read(storage: &dyn Storage, log_id: u64, link: &SegmentLink, visit: Visit) -> io::Result<End> {
    let (name, key) = (segment_name(link.number), RecordKey::new(log_id, link.number));
    let range = HEADER as u64..link.limit.unwrap_or(u64::MAX).min(link.length.unwrap_or(0));
    scan(&|at, bytes| storage.read_at(&name, at, bytes), key, range, visit)
}

fn job_of(record: &Record) -> Option<u64> {
    match *record {
        Record::Put(job) | Record::Snapshot(job) | Record::Run(.., job) => Some(job.id.0),
        Record::Change(id, _) => Some(id.0),
        Record::Move { id, .. } | Record::Key { id, .. } | Record::Outcome { id, .. } | Record::Delete(id) => Some(id),
        Record::Groups { id, .. } => (id > 0).then_some(id),
        _ => None,
    }
}
