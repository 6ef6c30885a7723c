//! From a folder to a queue: what happens to the log at the start.
//!
//! Owns the order of recovery: lock, finish or begin an import, read every segment from the oldest to the newest, cut a torn
//! tail, condemn damaged segments, and begin a new segment, since none is ever continued. Must not serve anybody.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::import::{Imported, ImportedJob};
use super::journal::Journal;
use super::keeper::Keeper;
use super::migrate;
use super::record::{JobRecord, Record};
use super::replay::{is_stillborn, is_unused, scan, Scan};
use super::storage::Storage;
use super::writer::{segment_name, segment_number, SyncMode, Writer};
use crate::engine::{Engine, JobId, Restored, RestoredJob, State, Time};

/// Ids passed over at a start after a crash. A worker may have been handed a job that no disk had seen yet when the server was killed;
/// if another job got that id, the worker could delete it. More jobs than this are not put between two writes.
const UNSEEN_IDS: u64 = 1 << 16;

/// How to keep the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Full size of a segment, in bytes.
    pub segment_size: u64,
    /// When it is synced.
    pub mode: SyncMode,
    /// Refuse to start on damage.
    pub strict: bool,
}

/// How far recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Segments read.
    pub done: usize,
    /// Segments there are.
    pub segments: usize,
    /// Bytes read.
    pub bytes: u64,
    /// Jobs found that still live.
    pub jobs: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Where it ended.
    pub progress: Progress,
    /// What was wrong, a line each.
    pub problems: Vec<String>,
    /// Jobs that came from a beanstalkd log.
    pub imported: Option<usize>,
}

/// Why the log cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// The folder is missing, or another server has it.
    Folder(io::Error),
    /// A file cannot be read or made.
    File(String, io::Error),
    /// There is damage, and strictness was asked for.
    Damaged(Vec<String>),
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            OpenError::Folder(error) => error.fmt(formatter),
            OpenError::File(name, error) => write!(formatter, "{name}: {error}"),
            OpenError::Damaged(problems) => {
                write!(formatter, "it is damaged, and --strict was given: {}", problems.join("; "))
            }
        }
    }
}

/// A log that is ready, and the queue in `engine` that it describes.
pub struct Opened {
    /// The engine's side.
    pub journal: Journal,
    /// The disk's side.
    pub keeper: Keeper,
    /// What happened.
    pub report: Report,
}

/// Opens the log in `storage`, restoring its jobs into `engine`, which must be empty. `watch` is told how far it is.
pub fn open(
    storage: Arc<dyn Storage>,
    settings: Settings,
    engine: &mut Engine,
    now: Time,
    watch: &mut dyn FnMut(Progress),
) -> Result<Opened, OpenError> {
    storage.lock().map_err(OpenError::Folder)?;
    let imported = migrate::prepare(&*storage)?;
    let mut recovery = Recovery {
        storage: &*storage,
        engine,
        journal: Journal::new(settings.segment_size, 1),
        report: Report::default(),
        last_id: 0,
        last_id_in: 0,
        clean: false,
        pauses: HashMap::new(),
    };
    recovery.read_all(watch)?;
    let foreign = imported.map(|imported| recovery.import(imported));
    if settings.strict && !recovery.report.problems.is_empty() {
        return Err(OpenError::Damaged(recovery.report.problems));
    }
    let Recovery { mut journal, report, mut last_id, last_id_in, clean, pauses, .. } = recovery;
    if report.progress.segments > 0 && !clean {
        last_id += UNSEEN_IDS;
    }
    // A pause that ends because nothing is left in its tube must not come back with the next restart.
    engine.keep_changes();
    engine.settle(last_id, now);
    // The disk may be full: what is not needed makes space for the next segment. What tells of a pause or of the last id is
    // needed until that segment does.
    let paused = engine.pauses().filter_map(|(tube, _)| pauses.get(tube)).min().copied();
    while let Some(retired) = journal.take_empty(paused.unwrap_or(u64::MAX).min(last_id_in)) {
        let name = segment_name(retired.number);
        Writer::drop_segment(&*storage, retired).map_err(|error| OpenError::File(name, error))?;
    }
    let mut writer = Writer::new(storage.clone(), settings.mode);
    let first_sync = begin(&mut journal, &mut writer, engine)?;
    journal.record(engine);
    if let Some(slots) = foreign {
        migrate::carry_out(&slots, engine, &mut journal, &mut writer)?;
    }
    Ok(Opened { journal, keeper: Keeper::new(writer, settings.mode, first_sync), report })
}

/// Begins the first segment of this run, and tells how long the disk takes to sync a little.
fn begin(journal: &mut Journal, writer: &mut Writer, engine: &Engine) -> Result<Duration, OpenError> {
    let number = journal.claim_number();
    let name = segment_name(number);
    let fail = |error| OpenError::File(name.clone(), error);
    let file = writer.storage().create(&name, journal.stats().segment_size).map_err(fail)?;
    writer.add_prepared(number, journal.stats().segment_size, file);
    journal.begin(number, journal.stats().segment_size, engine.last_id());
    journal.repeat_pauses(engine);
    let start = Instant::now();
    flush(journal, writer).map_err(fail)?;
    Ok(start.elapsed())
}

/// Writes and syncs all that was appended.
pub(super) fn flush(journal: &mut Journal, writer: &mut Writer) -> io::Result<()> {
    writer.write(journal.take(Vec::new()))?;
    let task = writer.sync_task();
    task.run()?;
    writer.synced(&task);
    Ok(())
}

struct Recovery<'a> {
    storage: &'a dyn Storage,
    engine: &'a mut Engine,
    journal: Journal,
    report: Report,
    last_id: u64,
    /// The newest segment that tells of it.
    last_id_in: u64,
    /// The segment read last was left in order.
    clean: bool,
    /// Where each tube was paused last.
    pauses: HashMap<Vec<u8>, u64>,
}

impl Recovery<'_> {
    fn read_all(&mut self, watch: &mut dyn FnMut(Progress)) -> Result<(), OpenError> {
        let names = self.storage.list().map_err(OpenError::Folder)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        let mut bytes = Vec::new();
        self.drop_unused(&mut numbers, &mut bytes)?;
        self.report.progress.segments = numbers.len();
        for (place, &number) in numbers.iter().enumerate() {
            let name = segment_name(number);
            self.storage.read(&name, &mut bytes).map_err(|error| OpenError::File(name.clone(), error))?;
            if self.never_used(number, &bytes, false) {
                self.storage.remove(&name).map_err(|error| OpenError::File(name, error))?;
            } else {
                let last = numbers[place + 1..].is_empty();
                self.read(number, &bytes, last).map_err(|error| OpenError::File(name, error))?;
            }
            self.report.progress.done += 1;
            self.report.progress.bytes += bytes.len() as u64;
            watch(self.report.progress);
        }
        Ok(())
    }

    /// Removes the segments at the end that nothing was written to: the last one is where the server was stopped.
    fn drop_unused(&self, numbers: &mut Vec<u64>, bytes: &mut Vec<u8>) -> Result<(), OpenError> {
        while let Some(&number) = numbers.last() {
            let name = segment_name(number);
            self.storage.read(&name, bytes).map_err(|error| OpenError::File(name.clone(), error))?;
            if !self.never_used(number, bytes, true) {
                break;
            }
            self.storage.remove(&name).map_err(|error| OpenError::File(name, error))?;
            numbers.pop();
        }
        Ok(())
    }

    /// Whether nothing was ever written to a segment for good. One at the end may not even have its full size.
    fn never_used(&self, number: u64, bytes: &[u8], at_end: bool) -> bool {
        let full = bytes.len() as u64 >= self.journal.stats().segment_size;
        (is_unused(bytes) && (full || at_end)) || (is_stillborn(number, bytes) && full)
    }

    /// Reads one segment. The `last` one may end in the middle of a record, since the server was stopped there; so may one
    /// before it that still has its full size, since it was not synced yet. What was read counts from now on, so it is
    /// synced, whoever wrote it.
    fn read(&mut self, number: u64, bytes: &[u8], last: bool) -> io::Result<()> {
        self.journal.found_segment(number, 0);
        let found = scan(number, bytes, |record| self.apply(record));
        self.saw_id(found.header.map_or(0, |header| header.last_id));
        let name = segment_name(number);
        let unsynced = last || (bytes.len() as u64 >= self.journal.stats().segment_size && bytes.ends_with(&[0]));
        let torn_end = found.torn && unsynced && found.header.is_some();
        let stretches = self.complain(&name, &found, torn_end);
        // What is damaged is set aside as it was found.
        let cut = stretches == 0;
        if torn_end && cut {
            log::warn!("{name}: cut at byte {}, behind the last whole record", found.end);
        }
        // Only a server that was stopped in order leaves no space behind its last record.
        self.clean = found.end == bytes.len() && cut;
        let mut length = if cut { found.end } else { bytes.len() };
        let file = self.storage.open(&name)?;
        if found.end < bytes.len() && cut {
            if last {
                // Until the next segment is there, one zero byte tells that it was not: this start may be interrupted too.
                file.write_at(length as u64, &[0])?;
                length += 1;
            }
            file.truncate(length as u64)?;
        }
        file.sync()?;
        if stretches > 0 {
            self.journal.found_damage(stretches);
        }
        self.journal.found_length(length as u64);
        Ok(())
    }

    fn complain(&mut self, name: &str, found: &Scan, torn_end: bool) -> u64 {
        let mut stretches = 0;
        let mut say = |problem: String| {
            stretches += 1;
            self.report.problems.push(problem);
        };
        if found.header.is_none() {
            say(format!("{name}: the header is damaged"));
        }
        // Before the first record of a segment without header, there is nothing else to say.
        for (from, to) in found.damaged.iter().filter(|(from, _)| *from > 0) {
            say(format!("{name}: bytes {from} to {to} are damaged and were skipped"));
        }
        if found.torn && !torn_end {
            say(format!("{name}: from byte {} on it is damaged", found.end));
        }
        stretches
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Put(job) | Record::Snapshot(job) => self.job(&job),
            Record::Delete(id) => {
                self.saw_id(id);
                if let Some((slot, tube, body)) = self.engine.restore_delete(JobId(id)) {
                    self.journal.lost_job(slot, tube, body);
                    self.report.progress.jobs -= 1;
                }
            }
            Record::Pause { tube, length, until } => {
                self.pauses.insert(tube.to_vec(), self.journal.stats().current);
                self.engine.restore_pause(tube, length, until);
            }
            Record::Reserve(id, count) => self.change(id, Restored::Reserve(count)),
            Record::Expire(id, count) => self.change(id, Restored::Expire(count)),
            Record::Lease { id, due, count } => self.change(id, Restored::Lease(count, due)),
            Record::Outcome { id, done, fails, result } => {
                self.saw_id(id);
                if let Some(slot) = self.engine.restore_outcome(JobId(id), done, fails, result) {
                    self.journal.grow(slot, result.len() as u64);
                }
            }
            Record::Kick(id, count) => self.change(id, Restored::Kick(count)),
            Record::Release { id, pri, delay, due, count } => {
                self.change(id, Restored::Release { pri, delay, due, count });
            }
            Record::Bury { id, pri, order, count } => self.change(id, Restored::Bury { pri, order, count }),
        }
    }

    fn saw_id(&mut self, id: u64) {
        if id >= self.last_id {
            (self.last_id, self.last_id_in) = (id, self.journal.stats().current);
        }
    }

    fn change(&mut self, id: u64, change: Restored) {
        self.saw_id(id);
        self.engine.restore_change(JobId(id), change);
    }

    /// Takes in the jobs of a foreign log; returns their slots.
    fn import(&mut self, imported: Imported) -> Vec<u32> {
        self.report.problems.extend(imported.problems);
        self.report.imported = Some(imported.jobs.len());
        self.report.progress.jobs += imported.jobs.len() as u64;
        self.journal.found_skipped(imported.skipped);
        self.last_id = self.last_id.max(imported.last_id);
        let restore = |job: &ImportedJob| {
            let due = if job.state == State::Buried { Time::from_nanos(job.order) } else { job.due };
            let (id, tube, body) = (JobId(job.id), &*job.tube, job.body.bytes());
            let ImportedJob { pri, delay, ttr, created, state, history, .. } = *job;
            self.engine
                .restore_job(&RestoredJob {
                    id,
                    tube,
                    pri,
                    delay,
                    ttr,
                    created,
                    state,
                    due,
                    history,
                    body,
                    terms: None,
                })
                .0
        };
        imported.jobs.iter().map(restore).collect()
    }

    fn job(&mut self, job: &JobRecord) {
        self.saw_id(job.id);
        let (slot, before) = self.engine.restore_job(&job.restore());
        self.journal.found_job(slot, before, job.tube.len(), self.engine.logged_own(slot));
        self.report.progress.jobs += u64::from(before.is_none());
    }
}
