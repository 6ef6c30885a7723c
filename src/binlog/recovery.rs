//! Opening of a log at startup: restores the queue, removes all data after the end of the log, and continues the log.
//! If the disk fails, the queue is restored anyway, and the log starts in the failing state.

use std::{io, sync::Arc, time::Duration};

use super::import::{self, flush};
use super::journal::Journal;
use super::reading::{Reading, RecoveryProgress, RecoveryReport};
use super::segment::{segment_name, LogLocation, MAX_NUMBER_GAP, VERSION};
use super::storage::{in_file, is_bad_disk, LogFile, OpenError, Storage};
use super::survey::{for_each_used, Survey, BEGUN};
use super::wal::Wal;
use super::writer::{remove_unsynced, set_aside, SyncMode, Writer};
use crate::engine::{Engine, Time};

/// If the last segment has fewer unused bytes than this, another segment is prepared at startup.
const MIN_SPACE: u64 = 4096;

/// The segment size, the sync policy, and the treatment of damaged records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BinlogSettings {
    /// The usual size of a segment file, in bytes.
    pub segment_size: u64,
    /// The policy for syncing the log to disk.
    pub mode: SyncMode,
    /// `true` to refuse to start if any record is damaged.
    pub strict: bool,
}

impl BinlogSettings {
    /// Creates settings for segments of `segment_size` bytes. Startup succeeds even if records are damaged.
    pub const fn new(segment_size: u64, mode: SyncMode) -> BinlogSettings {
        BinlogSettings { segment_size, mode, strict: false }
    }

    /// Returns the same settings, except that startup fails if any record is damaged.
    pub const fn strictly(self) -> BinlogSettings {
        BinlogSettings { strict: true, ..self }
    }
}

pub struct Opened {
    pub journal: Journal,
    pub wal: Wal,
    pub report: RecoveryReport,
    pub now: Time,
    pub failure: Option<io::Error>,
}

/// Opens the log and restores the queue into `engine`, which must be empty. `watch` receives the progress.
pub fn open(
    storage: Arc<dyn Storage>,
    settings: BinlogSettings,
    engine: &mut Engine,
    now: Time,
    watch: &mut dyn FnMut(RecoveryProgress),
) -> Result<Opened, OpenError> {
    storage.lock().map_err(OpenError::Folder)?;
    let imported = import::prepare(&*storage)?;
    let survey = Survey::of(&*storage)?;
    let log_id = survey.log_id.unwrap_or_else(|| storage.random_number());
    let epoch = storage.random_number().max(1);
    let mut reading = Reading::new(&*storage, engine, Journal::new(settings.segment_size, log_id), &survey);
    note_numbers(&mut reading, &survey);
    reading.read_all(watch)?;
    let foreign = imported.map(|imported| reading.import(imported));
    if settings.strict && !reading.report.problems.is_empty() {
        return Err(OpenError::Damaged(reading.report.problems));
    }
    // The log must not continue in a foreign file.
    reading.next = reading.next.filter(|next| !survey.foreign.contains(next));
    let repaired = repair(&*storage, &survey, &mut reading);
    // The time must not be before the latest time in the log: a clock that was set back would extend all delays.
    let now = now.max(reading.latest);
    // If nothing shows which IDs were assigned, start above all possible IDs: a server assigns at most 2^20 per second.
    let unknown = if survey.is_lost() { (now.nanos() / 1_000_000_000) << 20 } else { 0 };
    let (last_id, found_epoch) = (reading.last_id().max(unknown), reading.epoch.unwrap_or_default());
    // Log the changes of `finish`: a pause that it ends must not be restored again at the next restart.
    reading.engine.keep_changes();
    finish(&mut reading, last_id, now);
    let Reading { mut journal, report, end, next, .. } = reading;
    journal.found_ids(last_id);
    (journal.epoch, journal.found_epoch) = (epoch, found_epoch);
    journal.syncs_copies = settings.mode == SyncMode::Never || journal.skipped > 0;
    let mut writer = Writer::new(storage.clone(), log_id, settings.mode, end);
    let continued = repaired.and_then(|()| go_on(&survey, &mut journal, &mut writer, engine, (end, next)));
    let (first_sync, failure) = match continued {
        Ok(first_sync) => (Some(first_sync), None),
        Err(OpenError::File(_, error)) if is_bad_disk(&error) => {
            storage.give_up(&error);
            journal.go_on_nowhere(engine);
            (None, Some(error))
        }
        Err(error) => return Err(error),
    };
    if let Some(slots) = foreign {
        if let Some(error) = failure {
            return Err(OpenError::File("the import".to_owned(), error));
        }
        import::carry_out(&slots, engine, &mut journal, &mut writer)?;
    }
    Ok(Opened { journal, wal: Wal::new(writer, settings.mode, first_sync), report, now, failure })
}

/// Queues the restored jobs. After damage, abandons the operations in progress: if the record of an operation's end is
/// lost, the operation would delete or move jobs that entered the tube later.
fn finish(reading: &mut Reading, last_id: u64, now: Time) {
    if !reading.report.problems.is_empty() {
        for operation in reading.engine.abandon_operations() {
            let tube = operation.from.escape_ascii();
            reading.found_problem(format!("tube {tube}: a flush or move may be incomplete because of the damage"));
        }
    }
    reading.engine.finish_restore(last_id, now);
}

#[derive(Clone, Debug)]
pub struct Inspection {
    pub version: u32,
    pub now: Time,
    pub report: RecoveryReport,
    pub last_id: u64,
    pub closed_cleanly: bool,
}

/// Restores a log into `engine` without modifying files. `engine` must be empty, and must not be changed afterwards.
/// With `start`, also makes the changes that a server makes when it starts at this time.
pub fn inspect(storage: &dyn Storage, engine: &mut Engine, start: Option<Time>) -> Result<Inspection, OpenError> {
    let survey = Survey::of(storage)?;
    let log_id = survey.log_id.unwrap_or_default();
    let mut reading = Reading::new(storage, engine, Journal::new(0, log_id), &survey);
    note_numbers(&mut reading, &survey);
    reading.read_all(&mut |_| {})?;
    let (last_id, closed_cleanly, mut now) = (reading.last_id(), reading.is_closed(), reading.latest);
    if reading.lengths().next().is_none() && reading.report.problems.is_empty() {
        reading.found_problem("there is no binlog in this directory".to_owned());
    }
    if let Some(start) = start {
        now = now.max(start);
        finish(&mut reading, last_id, now);
        while reading.engine.has_deferred() {
            reading.engine.go_on(now);
        }
        reading.report.progress.jobs = reading.engine.jobs().count() as u64;
    }
    Ok(Inspection { version: VERSION, now, report: reading.report, last_id, closed_cleanly })
}

fn note_numbers(reading: &mut Reading, survey: &Survey) {
    let newest = survey.chain.last().map_or(0, |link| link.number);
    let others = survey.unused.iter().chain(&survey.foreign).copied();
    // New segments must get larger numbers than all files whose numbers are plausible.
    let near = others.filter(|number| !survey.chain.is_empty() && *number < newest + MAX_NUMBER_GAP);
    near.chain([newest]).for_each(|number| reading.journal.found_number(number));
    if let Some(&first) = survey.unused.iter().min().filter(|_| survey.chain.is_empty() && survey.is_lost()) {
        reading.found_problem(format!("{}: neither it nor another segment has a header", segment_name(first)));
    }
    for &number in &survey.foreign {
        reading.found_problem(format!("{}: it does not belong to this log", segment_name(number)));
    }
}

/// Syncs the segments, because replies will depend on the restored jobs. Removes all data that is not part of the log.
fn repair(storage: &dyn Storage, survey: &Survey, reading: &mut Reading) -> Result<(), OpenError> {
    for (link, length) in reading.lengths() {
        let (number, name) = (link.number, segment_name(link.number));
        let (end, is_damaged) = reading.journal.segment(number).map_or((length, false), |it| (it.bytes, it.damaged));
        let file = in_file(&name, storage.open(&name))?;
        // An interrupted write may have left only one copy of the header intact. Restore the other copy: once later
        // records are synced, a missing copy would count as damage.
        if let Some(header) = link.header.filter(|_| !link.whole && !is_damaged) {
            in_file(&name, file.write_at(0, &header.encode()))?;
        }
        if !is_damaged && end < length {
            let is_last = continues_in(&reading.journal, reading.end, reading.next) == Some(number);
            in_file(&name, if is_last { wipe(storage, &name, &*file, end) } else { file.truncate(end) })?;
        }
        in_file(&name, file.sync())?;
    }
    // Remove the newest segment first, so that an interruption leaves no gap.
    let unused = survey.unused.iter().copied().chain(reading.stale.iter().map(|link| link.number));
    let behind = reading.chain[reading.read..].iter().filter(|link| link.length.is_some()).map(|link| link.number);
    let mut behind: Vec<u64> = behind.chain(unused).collect();
    behind.sort_unstable();
    for &number in survey.foreign.iter().chain(behind.iter().rev()) {
        let (name, is_next) = (segment_name(number), Some(number) == reading.next);
        let stale = reading.stale.iter().find(|link| link.number == number).copied();
        let is_foreign = survey.foreign.contains(&number);
        let is_evidence = is_foreign || survey.is_lost() || stale.is_some_and(|link| reading.has_gap(&link));
        let removed = match is_next {
            _ if is_evidence => set_aside(storage, &name),
            true => storage.open(&name).and_then(|file| wipe(storage, &name, &*file, 0).and_then(|()| file.sync())),
            false => remove_unsynced(storage, &name),
        };
        let is_obsolete = !is_next && (is_foreign || survey.unused.contains(&number) || stale.is_some());
        match removed {
            Err(error) if is_obsolete && !is_bad_disk(&error) => {
                reading.journal.found_stuck(number, in_file(&name, storage.length(&name))?, is_evidence);
            }
            removed => in_file(&name, removed)?,
        }
    }
    Ok(())
}

fn continues_in(journal: &Journal, end: LogLocation, next: Option<u64>) -> Option<u64> {
    let is_emptied = || journal.segment(end.segment).is_some_and(|segment| segment.evacuating);
    (end.segment > 0 && next.is_none() && !is_emptied()).then_some(end.segment)
}

fn wipe(storage: &dyn Storage, name: &str, file: &dyn LogFile, from: u64) -> io::Result<()> {
    let mut zeros = Vec::new();
    for_each_used(storage, name, from, &mut |at, count| {
        zeros.resize(count, 0);
        file.write_at(at, &zeros).map(|()| true)
    })
    .map(drop)
}

/// Continues the log. Returns the time that it took to write and sync the first records.
fn go_on(
    survey: &Survey,
    journal: &mut Journal,
    writer: &mut Writer,
    engine: &mut Engine,
    (end, next): (LogLocation, Option<u64>),
) -> Result<Duration, OpenError> {
    journal.is_synced(writer.synced);
    let begins = survey.log_id.is_none() && !survey.is_lost();
    if begins && survey.unused.is_empty() {
        // If an interrupted start has not synced the file, it must become durable before the first segment.
        in_file(BEGUN, survey.begun.then(|| writer.storage.remove(BEGUN)).transpose())?;
        in_file(BEGUN, writer.storage.create(BEGUN, 0))?;
    }
    let goes_on = continues_in(journal, end, next).is_some();
    let mut space = 0;
    if goes_on {
        let (_, file, length) = reopen(&*writer.storage, end.segment)?;
        writer.go_on_in(end, file);
        journal.go_on_in_last(length);
        space = length.saturating_sub(end.at);
    }
    if space < MIN_SPACE {
        let found = next.and_then(|next| reopen(&*writer.storage, next).ok());
        let create = || {
            let number = next.unwrap_or_else(|| journal.claim_number());
            let (name, size) = (segment_name(number), journal.stats().segment_size);
            let file = in_file(&name, writer.storage.create(&name, size))?;
            journal.found_number(number);
            Ok((number, file, size))
        };
        match found.map_or_else(create, Ok) {
            Ok((number, file, size)) => {
                writer.add_prepared(number, file);
                if goes_on {
                    journal.prepared(number, size);
                } else {
                    journal.begin_first(number, size, end);
                }
            }
            Err(_) if goes_on => {}
            Err(error) => return Err(error),
        }
    }
    if goes_on {
        journal.append_start();
    }
    journal.append(engine);
    let start = writer.storage.now();
    in_file("the log", flush(journal, writer))?;
    let took = writer.storage.now().duration_since(start);
    if begins || survey.begun {
        let _ = writer.storage.remove(BEGUN); // if it remains, the next start removes it
    }
    // The next batch must record that the start record is synced, or damage to it would look like the end of the log.
    journal.mark_due = 0;
    Ok(took)
}

fn reopen(storage: &dyn Storage, number: u64) -> Result<(u64, Arc<dyn LogFile>, u64), OpenError> {
    let name = segment_name(number);
    in_file(&name, storage.open(&name).and_then(|file| Ok((number, file, storage.length(&name)?))))
}
