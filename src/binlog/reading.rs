//! From segments to a queue: reads the log, and says where it ends and what of it is damaged. Changes nothing on the
//! disk.
//!
//! Owns the rule by which damage is told from what a power cut leaves. Records say how far the log was synced. A gap
//! before that place is damage: it is reported, and what is behind it is kept. A gap behind it is the end of the log:
//! nothing there was promised, and only a prefix of what happened may come back.

use std::io;

use super::import::{Imported, ImportedJob};
use super::journal::{Journal, Live, IDS_AHEAD};
use super::record::{key_size, pause_size, settings_size, Record};
use super::replay::{scan, End, Found, Window};
use super::segment::{segment_name, Key, Place, HEADER, NEAR, NUMBERS};
use super::storage::{Storage, StoredFile};
use super::survey::{is_bad_disk, Link, Survey};
use super::types::{OpenError, RecoveryProgress, Report};
use crate::engine::{Body, Engine, JobId, MovedJob, StoredJob};

/// Ids are smaller: it takes thousands of years to get there.
const MOST_IDS: u64 = 1 << 63;

pub struct Reading<'a> {
    storage: &'a dyn Storage,
    engine: &'a mut Engine,
    /// What the log still needs.
    pub journal: Journal,
    pub report: Report,
    log: u64,
    chain: Vec<Link>,
    window: Window,
    last_id: u64,
    /// Ids up to this one may have been given.
    ids: u64,
    /// The oldest segment that is needed.
    oldest: u64,
    /// What the last record was, if it was about the log itself.
    last: Option<Last>,
    /// The last place that is said to be synced, when somebody has looked for it.
    synced: Option<Place>,
    /// The segment read next names one that is missing; it goes soon, so that this is told once.
    after_missing: bool,
    /// How many of the chain are read.
    read: usize,
    /// What is wrong with which segments.
    problems: Vec<(u64, String)>,
    pub end: Place,
    /// The segment in which it must go on, if it says so.
    pub next: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    Next(u64),
    Closed(u64),
}

impl<'a> Reading<'a> {
    /// Of the log that was surveyed, into an empty engine.
    pub fn new(storage: &'a dyn Storage, engine: &'a mut Engine, journal: Journal, survey: &Survey) -> Reading<'a> {
        Reading {
            storage,
            engine,
            journal,
            report: Report::default(),
            log: survey.log.unwrap_or_default(),
            chain: survey.chain.clone(),
            window: Window::default(),
            last_id: 0,
            ids: 0,
            oldest: 0,
            last: None,
            // Without any header, nothing can be read, and nobody knows how much there was.
            synced: survey.log.is_none().then_some(Place { segment: u64::MAX, at: 0 }),
            after_missing: false,
            read: 0,
            problems: Vec::new(),
            end: Place::default(),
            next: None,
        }
    }

    /// Reads all segments, the oldest first.
    pub fn read_all(&mut self, watch: &mut dyn FnMut(RecoveryProgress)) -> Result<(), OpenError> {
        self.report.progress.segments = self.chain.len();
        for place in 0..self.chain.len() {
            let link = self.chain[place];
            let goes_on = match link.length {
                Some(length) => self.segment(place, link, length)?,
                None => {
                    let name = segment_name(link.number);
                    self.damage(link.number, format!("{name}: it is missing"), false);
                    self.after_missing = true;
                    true
                }
            };
            // What is damaged stays as it was found.
            if let Some(length) = link.length.filter(|_| self.journal.is_damaged(link.number)) {
                self.journal.found_length(length);
            }
            if !goes_on {
                break;
            }
            self.read = place + 1;
            self.report.progress.done += 1;
            self.report.progress.bytes += link.length.unwrap_or(0);
            watch(self.report.progress);
        }
        self.look_at_the_ends();
        // What is older is there only because it could not be removed in time.
        let (oldest, problems) = (self.oldest, std::mem::take(&mut self.problems));
        let needed = problems.into_iter().filter(|(number, _)| *number >= oldest).map(|(_, problem)| problem);
        needed.for_each(|problem| self.found_problem(problem));
        Ok(())
    }

    /// The last segment and those behind the end of the log must be there, and the oldest that is needed.
    fn look_at_the_ends(&mut self) {
        // The segment before the first one, if a record says that it is needed.
        if let Some(first) = self.chain.first().and_then(|link| link.header) {
            let before = first.before.segment;
            if before > 0 && before >= self.oldest {
                self.journal.evacuate_oldest();
                self.damage(before, format!("{}: it is missing", segment_name(before)), false);
            }
        }
        // The log was about to go on, or had gone on and nothing of that is left.
        if let Some(Last::Next(next)) = self.last {
            self.next = Some(next);
            let name = segment_name(next);
            if self.storage.length(&name).is_err() {
                self.damage(next, format!("{name}: it is missing"), false);
            }
        }
    }

    /// The segments behind the end of the log: nothing of them counts.
    pub fn behind(&self) -> impl Iterator<Item = u64> + '_ {
        self.chain[self.read..].iter().filter(|link| link.length.is_some()).map(|link| link.number)
    }

    /// The segments that were read, and how long they are.
    pub fn lengths(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.chain[..self.read].iter().filter_map(|link| Some((link.number, link.length?)))
    }

    /// Whether the server that wrote it was stopped in order.
    pub fn is_closed(&self) -> bool {
        matches!(self.last, Some(Last::Closed(_)))
    }

    /// The last id that may have been given, after all was read.
    pub fn last_id(&self) -> u64 {
        let given = match self.last {
            Some(Last::Closed(last)) => last.max(self.last_id),
            _ => self.ids.max(self.last_id),
        };
        // What is missing may have told of more.
        if self.report.problems.is_empty() || self.report.imported.is_some() {
            given
        } else {
            given.saturating_add(4 * IDS_AHEAD)
        }
    }

    /// Reads one segment; false if the log ends in it, or before it.
    fn segment(&mut self, place: usize, link: Link, length: u64) -> Result<bool, OpenError> {
        let (number, name) = (link.number, segment_name(link.number));
        if link.header.is_none() && !self.is_damage(Place { segment: number, at: 0 }, place) {
            return Ok(false);
        }
        self.journal.found_segment(number, length);
        self.last = None;
        if std::mem::take(&mut self.after_missing) {
            self.journal.evacuate_newest();
        }
        match link.header {
            Some(header) => {
                self.ids = header.ids.min(MOST_IDS);
                self.oldest = self.oldest.max(header.oldest);
            }
            None => self.damage(number, format!("{name}: the header is damaged"), true),
        }
        let found = self.records(place, link, length);
        let (end, goes_on) = match found {
            Ok(found) => found,
            Err(error) if is_bad_disk(&error) => {
                self.damage(number, format!("{name}: cannot be read: {error}"), true);
                (End { at: length, used: length }, true)
            }
            Err(error) => return Err(OpenError::File(name, error)),
        };
        self.end = Place { segment: number, at: end.at };
        self.journal.found_length(end.at);
        if !goes_on {
            self.read = place + 1;
            return Ok(false);
        }
        self.tail(place, link, end)
    }

    /// What follows the last record that was found. False if the log ends here.
    fn tail(&mut self, place: usize, link: Link, end: End) -> Result<bool, OpenError> {
        let name = segment_name(link.number);
        let is_last = place + 1 == self.chain.len();
        let short = link.limit.is_some_and(|limit| end.at < limit) || link.limit.is_none() && end.used > end.at;
        if !short {
            return Ok(true);
        }
        if !is_last && self.is_damage(self.end, place) {
            let to = link.limit.unwrap_or(end.used);
            self.damage(link.number, format!("{name}: bytes {} to {to} are damaged", end.at), true);
            return Ok(true);
        }
        log::info!("{name}: the log ends at byte {}; what follows was not finished", end.at);
        self.read = place + 1;
        Ok(false)
    }

    /// Visits all records of a segment; false if the log ends in it.
    fn records(&mut self, place: usize, link: Link, length: u64) -> io::Result<(End, bool)> {
        let name = segment_name(link.number);
        let mut window = std::mem::take(&mut self.window);
        let range = HEADER as u64..link.limit.map_or(length, |limit| limit.min(length));
        let (storage, key) = (self.storage, Key::new(self.log, link.number));
        let mut goes_on = true;
        let end = scan(&StoredFile(storage, &name), key, range, &mut window, &mut |found| {
            match found {
                Found::Record { record, body, .. } => self.apply(record, body),
                Found::Gap(from, to) => {
                    goes_on = self.is_damage(Place { segment: link.number, at: from }, place);
                    if goes_on {
                        let problem = format!("{name}: bytes {from} to {to} are damaged and were skipped");
                        self.damage(link.number, problem, true);
                    }
                }
            }
            goes_on
        });
        self.window = window;
        Ok((end?, goes_on))
    }

    /// Whether what cannot be read at a place was synced.
    fn is_damage(&mut self, at: Place, place: usize) -> bool {
        let synced = match self.synced {
            Some(synced) => synced,
            None => *self.synced.insert(self.find_synced(place)),
        };
        synced > at
    }

    /// The last place that any record from this segment on says is synced.
    fn find_synced(&self, place: usize) -> Place {
        let (mut synced, mut window) = (Place::default(), Window::default());
        for link in &self.chain[place..] {
            let (Some(length), number) = (link.length, link.number) else { continue };
            synced = synced.max(link.header.map_or(Place::default(), |header| header.synced));
            let (name, key) = (segment_name(number), Key::new(self.log, number));
            let range = HEADER as u64..link.limit.map_or(length, |limit| limit.min(length));
            // What cannot be read says nothing.
            let _ = scan(&StoredFile(self.storage, &name), key, range, &mut window, &mut |found| {
                match found {
                    Found::Record { record: Record::Synced(place), .. } => synced = synced.max(place),
                    Found::Record { record: Record::Closed(_), at, .. } => {
                        synced = synced.max(Place { segment: number, at });
                    }
                    _ => {}
                }
                true
            });
        }
        synced
    }

    /// Something is wrong, and counts.
    pub fn found_problem(&mut self, problem: String) {
        self.report.problems.push(problem);
        self.journal.found_skipped(1);
    }

    /// `in_segment`: the segment read last is damaged, and is set aside when nothing needs it any more.
    fn damage(&mut self, number: u64, problem: String, in_segment: bool) {
        self.problems.push((number, problem));
        if in_segment {
            self.journal.found_damage();
        }
    }

    fn apply(&mut self, record: Record, body: Option<Body>) {
        self.last = None;
        if let Some(id) = job_of(&record) {
            // No server gets there.
            if id >= MOST_IDS {
                return;
            }
            self.last_id = self.last_id.max(id);
        }
        match record {
            Record::Closed(id) | Record::Ids(id) if id >= MOST_IDS => {}
            Record::Put(job) | Record::Snapshot(job) => self.job(&job, body),
            Record::Delete(id) => {
                if let Some((slot, size)) = self.engine.restore_delete(JobId(id)) {
                    self.journal.lost_job(slot, size);
                    self.report.progress.jobs -= 1;
                }
            }
            Record::Pause { tube, length, until } => {
                let (number, before) = self.engine.restore_pause(tube, length, until);
                let states = (before, self.engine.pause_at(number).is_some());
                self.journal.changed(Live::Pause, number, pause_size(tube.len()), states);
            }
            Record::Change(id, change) => {
                let changed = self.engine.restore_change(id, change);
                self.resized(changed);
            }
            Record::Outcome { id, done, fails, result } => {
                let result = body.as_ref().map_or(result, Body::bytes);
                if let Some(slot) = self.engine.restore_outcome(JobId(id), done, fails, result) {
                    self.journal.resize(slot, 0, result.len());
                }
            }
            Record::Key { id, until, tube, key } => {
                let (number, before) = self.engine.restore_key(JobId(id), tube, key, until);
                if let Some((number, names)) = before {
                    self.journal.lost(Live::Key, number, key_size(names));
                }
                self.journal.found(Live::Key, number, key_size(tube.len() + key.len()));
            }
            Record::Move { id, pri, delay, due, state, dead_from, tube } => {
                let to = MovedJob { pri, delay, due, state, dead_from };
                let moved = self.engine.restore_move(JobId(id), tube, &to);
                self.resized(moved);
            }
            Record::Reason { id, reason } => {
                let noted = self.engine.restore_reason(JobId(id), reason);
                self.resized(noted);
            }
            Record::Settings { tube, settings } => {
                let (number, before) = self.engine.restore_settings(tube, settings.kept());
                if let Some(names) = before {
                    self.journal.lost(Live::Settings, number, settings_size(names));
                }
                if self.engine.settings_at(number).is_some() {
                    self.journal.found(Live::Settings, number, Live::Settings.size(number, self.engine));
                }
            }
            // It may have been written again into a later segment.
            Record::Next(next) if next <= self.journal.stats().current || next >= self.most_next() => {}
            Record::Next(next) => self.last = Some(Last::Next(next)),
            Record::Closed(last) => self.last = Some(Last::Closed(last)),
            Record::Ids(ids) => self.ids = ids,
            Record::Gone(oldest) => self.oldest = self.oldest.max(oldest),
            Record::Synced(_) => {}
        }
    }

    /// No later segment has this number.
    fn most_next(&self) -> u64 {
        NUMBERS.min(self.journal.stats().current + NEAR)
    }

    /// The job in this slot has another size than this one.
    fn resized(&mut self, changed: Option<(u32, usize)>) {
        if let Some((slot, before)) = changed {
            let after = self.engine.logged_size(slot);
            self.journal.resize(slot, before, after);
        }
    }

    fn job(&mut self, job: &StoredJob, body: Option<Body>) {
        let (slot, before) = self.engine.restore_job(job, body);
        self.journal.found_job(slot, before, self.engine.logged_size(slot));
        self.report.progress.jobs += u64::from(before.is_none());
    }

    /// Takes in the jobs of a foreign log; returns their slots.
    pub fn import(&mut self, imported: Imported) -> Vec<u32> {
        self.report.problems.extend(imported.problems);
        self.report.imported = Some(imported.jobs.len());
        self.report.progress.jobs += imported.jobs.len() as u64;
        self.journal.found_skipped(imported.skipped);
        self.last_id = self.last_id.max(imported.last_id);
        let restore = |job: &ImportedJob| self.engine.restore_job(&job.stored(), None).0;
        imported.jobs.iter().map(restore).collect()
    }
}

/// The id of the job that a record is about, if it is.
fn job_of(record: &Record) -> Option<u64> {
    match *record {
        Record::Put(job) | Record::Snapshot(job) => Some(job.id.0),
        Record::Change(id, _) => Some(id.0),
        Record::Move { id, .. } | Record::Key { id, .. } | Record::Outcome { id, .. } | Record::Delete(id) => Some(id),
        _ => None,
    }
}
