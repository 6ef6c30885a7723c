//! Import of a binlog directory of beanstalkd. Intact files are read completely, even where beanstalkd stops reading.
//! Jobs whose deletes were in the damaged part of a file are restored, because a duplicate is better than a loss.
//! Enforces promise P37 of beanpole-promises(7).

use std::{collections::BTreeMap, io};

use super::beanstalkd::{self, ForeignEntry, ForeignRecord, Full, BURIED, DELAYED, DELETED, LOSS};
use super::journal::Journal;
use super::segment::{numbers_in, segment_name, segment_number};
use super::storage::{in_file, OpenError, Storage};
use super::survey;
use super::writer::Writer;
use crate::engine::{Body, Engine, JobId, Span, State, StoredJob, Time};

const MAX_PROBLEMS: usize = 1000;
/// beanstalkd's minimum TTR in nanoseconds.
const MIN_TTR: i64 = 1_000_000_000;

/// A job in its last recorded state. beanstalkd records the state of a job only when the job is put, buried, kicked,
/// released with a delay, or copied to another file.
#[derive(Debug)]
pub struct ImportedJob {
    tube: Box<[u8]>,
    body: Body,
    job: ForeignRecord,
    /// The rank among buried jobs. If the file with the record of a bury is missing, the position of the job's copy in
    /// a later file determines the rank.
    order: u64,
}

impl ImportedJob {
    pub fn stored(&self) -> StoredJob<'_> {
        let ImportedJob { tube, body, job, order } = self;
        let span = |nanos: i64| Span::from_nanos(nanos.unsigned_abs());
        let moment = |nanos: i64| Time::from_nanos(nanos.unsigned_abs());
        let (state, due) = match job.state {
            DELAYED => (State::Delayed, moment(job.deadline)),
            BURIED => (State::Buried, Time::from_nanos(*order)),
            // A reserved job becomes ready.
            _ => (State::Ready, Time::default()),
        };
        StoredJob {
            id: JobId(job.id),
            tube,
            pri: job.pri,
            delay: span(job.delay),
            ttr: span(job.ttr.max(MIN_TTR)),
            created: moment(job.created),
            state,
            due,
            history: job.history,
            fails: 0,
            dead_from: None,
            body: body.bytes(),
            options: None,
        }
    }
}

#[derive(Debug, Default)]
pub struct Imported {
    pub jobs: Vec<ImportedJob>,
    /// The largest ID that beanstalkd may have assigned, even to deleted and unread jobs.
    pub last_id: u64,
    /// The number of jobs at the end of `jobs` that got new IDs. beanstalkd reuses IDs if it reads a file partially.
    pub renumbered: usize,
    pub problems: Vec<String>,
    /// The number of skipped records, of gaps between files, and of files that were not read to the end.
    pub skipped: u64,
}

/// The ID, creation time and body size of a job, which never change. IDs are not unique; see [`Imported::renumbered`].
type Identity = (u64, i64, i32);

#[derive(Debug, Default)]
pub struct Importer {
    jobs: BTreeMap<Identity, ImportedJob>,
    records: u64,
    /// Receives the jobs at the end.
    imported: Imported,
}

impl Importer {
    /// Files must be read in ascending order of their numbers.
    pub fn file(&mut self, name: &str, bytes: &[u8]) {
        self.imported.last_id = beanstalkd::read(bytes, self.imported.last_id, |at, found| {
            if let Err(what) = found.and_then(|record| self.take(record)) {
                self.problem(format!("{name}:{at}: {what}"));
            }
        });
    }

    pub fn finish(self) -> Imported {
        let (mut imported, mut again) = (self.imported, Vec::new());
        let omitted = imported.skipped - imported.problems.len() as u64;
        if omitted > 0 {
            imported.problems.push(format!("and {omitted} problems more"));
        }
        let mut all = self.jobs.into_values().peekable();
        // Of several jobs with the same ID, the newest keeps the ID, because clients may still refer to that job.
        while let Some(job) = all.next() {
            let is_last = all.peek().is_none_or(|next| next.job.id != job.job.id);
            if is_last { &mut imported.jobs } else { &mut again }.push(job);
        }
        imported.renumbered = again.len();
        for mut job in again {
            imported.last_id += 1;
            job.job.id = imported.last_id;
            imported.jobs.push(job);
        }
        imported
    }

    fn problem(&mut self, line: String) {
        self.imported.skipped += 1;
        if self.imported.problems.len() < MAX_PROBLEMS {
            self.imported.problems.push(line);
        }
    }

    fn take(&mut self, ForeignEntry { job, full }: ForeignEntry) -> Result<(), String> {
        self.records += 1;
        let identity = (job.id, job.created, job.size);
        let Some(Full { tube, body }) = full else { return self.update(identity, job) };
        // This is a new job, or a copy from an older file. A copy does not show when the job was buried.
        let old = self.jobs.remove(&identity);
        if job.state != DELETED {
            let buried = old.filter(|old| old.job.state == BURIED && job.state == BURIED);
            let order = buried.map_or(self.records, |old| old.order);
            self.jobs.insert(identity, ImportedJob { tube: tube.into(), body: Body::from(body), job, order });
        }
        Ok(())
    }

    /// Applies an update, unless the job is unknown: it was deleted, or its full record was in a removed file.
    fn update(&mut self, identity: Identity, job: ForeignRecord) -> Result<(), String> {
        let same_number = (job.id, i64::MIN, i32::MIN)..=(job.id, i64::MAX, i32::MAX);
        if job.state == DELETED && self.jobs.remove(&identity).is_some() {
            return Ok(());
        }
        if let Some(old) = self.jobs.get_mut(&identity) {
            (old.job, old.order) = (job, self.records);
        } else if self.jobs.range(same_number).next().is_some() {
            return Err(format!("an update of job {}, but with another time of birth or size; left out", job.id));
        }
        Ok(())
    }
}

/// An interruption neither loses nor duplicates jobs: the segments of an import are invalid while only [`BEGUN`]
/// exists, and complete once [`DONE`] exists.
const BEGUN: &str = "import.begun";
const DONE: &str = "import.done";
const KEPT: &str = "beanstalkd";

fn foreign_number(name: &str) -> Option<u64> {
    let number: u64 = name.strip_prefix("binlog.")?.parse().ok()?;
    (format!("binlog.{number}") == name).then_some(number)
}

/// Returns `true` for segments, for files of beanstalkd, and for the marks of an import of these files.
pub fn is_binlog_file(name: &str) -> bool {
    segment_number(name).is_some() || foreign_number(name).is_some() || [survey::BEGUN, BEGUN, DONE].contains(&name)
}

/// Returns `true` if the directory may contain only part of an import, which the next start repeats.
pub fn is_importing(storage: &dyn Storage) -> bool {
    let names = storage.list().unwrap_or_default();
    let has = |mark: &str| names.iter().any(|name| name == mark);
    has(BEGUN) && !has(DONE) && names.iter().any(|name| foreign_number(name).is_some())
}

pub fn prepare(storage: &dyn Storage) -> Result<Option<Imported>, OpenError> {
    let names = storage.list().map_err(OpenError::Folder)?;
    let foreign = numbers_in(&names, foreign_number);
    let has = |mark: &str| names.iter().any(|name| name == mark);
    if has(DONE) {
        return finish(storage).map(|()| None);
    }
    let ours = names.iter().filter_map(|name| segment_number(name));
    if has(BEGUN) {
        // Without the original files, the segments contain the only copy of the jobs.
        if foreign.is_empty() {
            log::warn!("binlog: {BEGUN} exists without any file of beanstalkd; keeping the segments");
        }
        for number in ours.filter(|_| !foreign.is_empty()) {
            in_file(&segment_name(number), storage.remove(&segment_name(number)))?;
        }
        in_file(BEGUN, storage.remove(BEGUN))?;
    } else if !foreign.is_empty() && ours.count() > 0 {
        let text = "there are both segments of ours and files of beanstalkd; move away what is not to be used";
        let error = io::Error::new(io::ErrorKind::AlreadyExists, text);
        return Err(OpenError::File(format!("binlog.{}", foreign[0]), error));
    }
    if foreign.is_empty() {
        return Ok(None);
    }
    in_file(BEGUN, storage.create(BEGUN, 0).map(drop))?;
    let mut importer = Importer::default();
    let (mut next, mut bytes) = (foreign[0], Vec::new());
    for number in foreign {
        let name = format!("binlog.{number}");
        if number > next {
            // beanstalkd leaves no gaps, so jobs may be lost.
            importer.problem(format!("{name}: the files before it, from binlog.{next} on, are missing, {LOSS}"));
        }
        next = number.saturating_add(1);
        bytes.resize(in_file(&name, storage.length(&name))? as usize, 0);
        let filled = in_file(&name, storage.read_at(&name, 0, &mut bytes))?;
        bytes.truncate(filled);
        importer.file(&name, &bytes);
    }
    let imported = importer.finish();
    if imported.renumbered > 0 {
        let (count, last) = (imported.renumbered, imported.last_id);
        log::info!(
            "binlog: beanstalkd gave the ids of {count} jobs twice; the older ones have new ids, the last is {last}"
        );
    }
    Ok(Some(imported))
}

pub fn carry_out(slots: &[u32], engine: &Engine, journal: &mut Journal, writer: &mut Writer) -> Result<(), OpenError> {
    let storage = writer.storage.clone();
    for &slot in slots {
        while journal.wanted() {
            let number = journal.claim_number();
            let name = segment_name(number);
            let file = in_file(&name, storage.create(&name, journal.stats().segment_size))?;
            writer.add_prepared(number, file);
            journal.prepared(number, journal.stats().segment_size);
        }
        journal.persist(slot, engine);
        if journal.is_large() {
            in_file("the log", flush(journal, writer))?;
        }
    }
    in_file("the log", flush(journal, writer))?;
    in_file(DONE, storage.create(DONE, 0).map(drop))?;
    finish(&*storage)
}

/// Moves the original files, then removes [`BEGUN`] and then [`DONE`]: [`BEGUN`] alone would make the segments invalid.
fn finish(storage: &dyn Storage) -> Result<(), OpenError> {
    let names = storage.list().map_err(OpenError::Folder)?;
    for name in names.iter().filter(|name| foreign_number(name).is_some()) {
        in_file(name, storage.rename(name, &format!("{KEPT}/{name}")))?;
    }
    for mark in [BEGUN, DONE].into_iter().filter(|mark| names.iter().any(|name| name == mark)) {
        in_file(mark, storage.remove(mark))?;
    }
    Ok(())
}

pub(super) fn flush(journal: &mut Journal, writer: &mut Writer) -> io::Result<()> {
    writer.write(journal.take(Vec::new(), writer.synced))?;
    let task = writer.whole_task();
    task.run()?;
    writer.synced(&task);
    journal.is_synced(writer.synced);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::beanstalkd::samples::*;
    use super::super::reading::RecoveryReport;
    use super::super::recovery::{open, BinlogSettings};
    use super::super::storage::tests::{temporary, Temporary};
    use super::super::storage::Folder;
    use super::super::writer::SyncMode;
    use super::*;
    use crate::engine::{History, Limits};

    fn read(bytes: &[u8]) -> Imported {
        read_all(&[bytes])
    }

    fn read_all(files: &[&[u8]]) -> Imported {
        let mut importer = Importer::default();
        for (index, bytes) in files.iter().enumerate() {
            importer.file(&format!("binlog.{}", index + 1), bytes);
        }
        importer.finish()
    }

    fn bodies(imported: &Imported) -> Vec<(u64, String)> {
        let text = |job: &ImportedJob| String::from_utf8_lossy(job.body.bytes()).into_owned();
        imported.jobs.iter().map(|job| (job.job.id, text(job))).collect()
    }

    fn ids(imported: &Imported) -> Vec<u64> {
        imported.jobs.iter().map(|job| job.job.id).collect()
    }

    fn read_clean(files: &[&[u8]]) -> Imported {
        let imported = read_all(files);
        assert_eq!((imported.problems.as_slice(), imported.skipped), (&[][..], 0));
        imported
    }

    /// Imports files, and asserts that there is one problem, whose description begins with `problem`.
    fn read_with(problem: &str, files: &[&[u8]]) -> Imported {
        let imported = read_all(files);
        assert!(imported.problems.len() == 1 && imported.problems[0].starts_with(problem), "{:?}", imported.problems);
        assert_eq!(imported.skipped, 1);
        imported
    }

    #[test]
    fn every_field_of_both_versions_is_imported() {
        for version in [V5, V7] {
            let due = BORN + 90 * SECOND;
            let mut sample_job = sample_job(258, DELAYED, b"hello\r\n");
            (sample_job.pri, sample_job.delay, sample_job.deadline) = (u32::MAX, 90 * SECOND, due);
            let imported =
                read_clean(&[&file(version, &[full(version, "a.tube", &sample_job, b"hello\r\n"), vec![0; 500]])]);
            let [job] = &imported.jobs[..] else { panic!("expected one job") };
            let job = job.stored();
            assert_eq!((job.id.0, job.tube, job.pri, imported.last_id), (258, b"a.tube".as_slice(), u32::MAX, 258));
            assert_eq!((job.delay, job.ttr), (Span::from_secs(90), Span::from_secs(60)));
            assert_eq!((job.created.nanos(), job.due.nanos()), (sample_job.created as u64, due as u64));
            assert_eq!((job.state, job.body), (State::Delayed, b"hello\r\n".as_slice()));
            let history = History { reserves: 1, timeouts: 2, releases: 3, buries: 4, kicks: 5 };
            assert_eq!(job.history, history);
        }
        let hasty = SampleJob { ttr: 0, ..sample_job(1, READY, b"") };
        assert_eq!(read_clean(&[&file(V7, &[full(V7, "t", &hasty, b"")])]).jobs[0].stored().ttr, Span::from_secs(1));
    }

    #[test]
    fn updates_change_and_delete_and_are_ignored_for_unknown_jobs() {
        for version in [V5, V7] {
            let mut records: Vec<_> =
                (1..=4).map(|id| full(version, "t", &sample_job(id, READY, b"x"), b"x")).collect();
            let mut delayed = sample_job(2, DELAYED, b"x");
            (delayed.pri, delayed.delay, delayed.deadline, delayed.counts[2]) = (9, SECOND, BORN + SECOND, 77);
            records.push(short(version, &sample_job(1, DELETED, b"x")));
            records.push(short(version, &delayed));
            records.push(short(version, &sample_job(3, BURIED, b"x")));
            records.extend([3, 1, 2, 0].map(|state| short(version, &sample_job(90, state, b"never seen"))));
            // A deleted job is not restored, and a reserved job becomes ready.
            records.push(short(version, &sample_job(1, BURIED, b"x")));
            records.push(short(version, &sample_job(4, 2, b"x")));
            let imported = read_clean(&[&file(version, &records)]);
            assert_eq!((ids(&imported), imported.last_id), (vec![2, 3, 4], 90));
            let [two, three, four] = &imported.jobs[..] else { panic!("expected three jobs") };
            let [two, three, four] = [two, three, four].map(ImportedJob::stored);
            assert_eq!((two.state, two.pri, two.delay), (State::Delayed, 9, Span::from_secs(1)));
            assert_eq!((two.due.nanos(), two.history.releases), ((BORN + SECOND) as u64, 77));
            assert_eq!((three.state, three.history.buries), (State::Buried, 4));
            assert_eq!(four.state, State::Ready);
        }
    }

    #[test]
    fn a_log_may_continue_in_another_version() {
        let old = file(V5, &(1..=3).map(|id| full(V5, "t", &sample_job(id, READY, b"x"), b"x")).collect::<Vec<_>>());
        let copy = full(V7, "t", &sample_job(3, BURIED, b"x"), b"x");
        let new = file(V7, &[later(1, DELETED, b"x"), later(2, BURIED, b"x"), copy]);
        let imported = read_clean(&[&old, &new]);
        assert_eq!(ids(&imported), [2, 3]);
        assert!(imported.jobs.iter().all(|job| job.stored().state == State::Buried));
    }

    #[test]
    fn buried_jobs_keep_the_order_in_which_they_were_buried() {
        let first = file(V7, &(1..=5).map(|id| ready(id, b"")).collect::<Vec<_>>());
        let bury = |ids: &[u64]| ids.iter().map(|&id| later(id, BURIED, b"")).collect::<Vec<_>>();
        let second = file(V7, &bury(&[4, 2, 5, 1, 3]));
        // Job 2 is kicked and buried again, job 5 is reserved by ID and buried again, and job 4 is only copied.
        let copy = full(V7, "default", &sample_job(4, BURIED, b""), b"");
        let third = file(V7, &[vec![later(2, READY, b""), copy], bury(&[2, 5])].concat());
        let mut jobs = read_clean(&[&first, &second, &third]).jobs;
        jobs.sort_by_key(|job| job.stored().due);
        assert_eq!(jobs.iter().map(|job| job.job.id).collect::<Vec<_>>(), [4, 1, 3, 2, 5]);
    }

    #[test]
    fn copies_in_later_files_replace_jobs() {
        let newer = SampleJob { pri: 99, ..sample_job(2, 2, b"same") };
        let copies = [full(V7, "default", &newer, b"same"), later(2, BURIED, b"same"), ready(7, b"moved")];
        let imported = read_clean(&[&file(V7, &[ready(1, b""), ready(2, b"same")]), &file(V7, &copies[..1])]);
        assert_eq!(
            (ids(&imported), imported.jobs[1].job.pri, imported.jobs[1].stored().state),
            (vec![1, 2], 99, State::Ready)
        );
        // Without the oldest file, which beanstalkd may have removed, the copies in the next file suffice.
        let imported = read_clean(&[&file(V7, &copies)]);
        assert_eq!((ids(&imported), imported.jobs[0].stored().state), (vec![2, 7], State::Buried));
        let imported = read_clean(&[&file(V7, &copies), &file(V7, &[later(2, DELETED, b"same")])]);
        assert_eq!(ids(&imported), [7]);
    }

    #[test]
    fn a_full_record_of_a_deleted_job_has_a_body_too() {
        let gone = full(V7, "default", &sample_job(1, DELETED, b"body"), b"body");
        let imported = read_clean(&[&file(V7, &[ready(1, b"body"), gone, ready(2, b"")])]);
        assert_eq!(ids(&imported), [2]);
    }

    #[test]
    fn reused_ids_lose_no_jobs() {
        let again = |id, state| SampleJob { created: BORN + 77 * SECOND, ..sample_job(id, state, b"new") };
        let first = file(V7, &(1..=5).map(|id| ready(id, b"old")).collect::<Vec<_>>());
        let mut records: Vec<_> = (3..=5).map(|id| full(V7, "default", &again(id, READY), b"new")).collect();
        // Each record belongs to only one of the two jobs with the same ID.
        records.push(short(V7, &again(3, BURIED)));
        records.push(later(5, DELETED, b"old"));
        records.push(later(4, DELAYED, b"old"));
        let imported = read_clean(&[&first, &file(V7, &records)]);
        let named = |list: &[(u64, &str)]| list.iter().map(|(id, body)| (*id, (*body).to_owned())).collect::<Vec<_>>();
        let expected = [(1, "old"), (2, "old"), (3, "new"), (4, "new"), (5, "new"), (6, "old"), (7, "old")];
        assert_eq!((bodies(&imported), imported.renumbered, imported.last_id), (named(&expected), 2, 7));
        let states: Vec<_> = imported.jobs[2..].iter().map(|job| job.stored().state).collect();
        assert_eq!(states, [State::Buried, State::Ready, State::Ready, State::Ready, State::Delayed]);
    }

    #[test]
    fn damage_ends_the_reading_of_its_file_only() {
        let records = [ready(1, b"one"), ready(2, b"two"), later(1, DELETED, b"one"), ready(3, b"three")];
        let good = file(V7, &records);
        let next = file(V7, &[ready(4, b"four"), later(2, DELETED, b"two")]);
        assert_eq!(ids(&read_clean(&[&good, &next])), [3, 4]);
        // The damage hides job 3 and the delete of job 1, but not the delete of job 2.
        let at = 4 + records[0].len() + records[1].len();
        let torn = good[..at + 83].to_vec();
        let junk = [&good[..at], &[200; 300]].concat();
        let hole = [&good[..at], &[0; 84], &records[3][..]].concat();
        for damaged in [torn, junk, hole] {
            let imported = read_with(&format!("binlog.1:{at}: "), &[&damaged, &next]);
            let told = format!("; the last {} bytes of the file were not read, ", damaged.len() - at);
            assert!(imported.problems[0].contains(&told), "{:?}", imported.problems);
            assert!(imported.problems[0].ends_with(", so jobs may be missing, and deleted ones back"));
            assert_eq!(ids(&imported), [1, 4]);
        }
        for foreign in [&b"beanpole\x01\0\0\0"[..], &[0; 4096], b"", &file(6, &records)] {
            assert_eq!(ids(&read_with("binlog.2:0: ", &[&good, foreign, &next])), [3, 4]);
        }
    }

    #[test]
    fn an_update_that_matches_no_job_is_reported() {
        for wrong in [
            SampleJob { created: BORN, ..sample_job(1, DELETED, b"body") },
            SampleJob { size: 9, ..sample_job(1, BURIED, b"body") },
        ] {
            let records = [ready(1, b"body"), short(V7, &wrong), ready(2, b"")];
            let at = 4 + records[0].len();
            let imported = read_with(&format!("binlog.1:{at}: an update of job 1, "), &[&file(V7, &records)]);
            assert_eq!((ids(&imported), imported.jobs[0].stored().state), (vec![1, 2], State::Ready));
        }
    }

    #[test]
    fn problems_are_reported_up_to_a_limit() {
        let bad = full(V7, "-", &sample_job(1, READY, b""), b"");
        let imported = read(&file(V7, &[vec![bad; 1500], vec![ready(2, b"")]].concat()));
        assert_eq!((ids(&imported), imported.problems.len(), imported.skipped), (vec![2], MAX_PROBLEMS + 1, 1500));
        assert_eq!(imported.problems.last().map(String::as_str), Some("and 500 problems more"));
    }

    // Tests promise P24 of beanpole-promises(7).
    #[test]
    fn arbitrary_bytes_do_not_crash_the_reader() {
        let mut random = Random(7);
        for round in 0..2000 {
            let version = [V5, V7][round % 2];
            let mut bytes = file(version, &mixture(version, 30, &mut random));
            for _ in 0..random.roll(6) {
                let (at, other) = (4 + random.roll(bytes.len() - 4), 4 + random.roll(bytes.len() - 4));
                let length = random.roll(300).min(bytes.len() - at.max(other));
                match random.roll(5) {
                    0 => bytes[at] = random.roll(256) as u8,
                    1 => bytes[at] ^= 1 << random.roll(8),
                    2 => bytes[at..at + length].fill([0, 255, b'\n'][random.roll(3)]),
                    3 => bytes.copy_within(other..other + length, at),
                    _ => drop(bytes.drain(at..at + length.min(bytes.len() - at - 1))),
                }
                bytes.extend([0; 8]);
            }
            bytes.truncate(4 + random.roll(bytes.len() * 2));
            let imported = read(&bytes);
            let taken: usize = imported.jobs.iter().map(|job| job.body.len() + 84).sum();
            assert!(taken <= bytes.len() && imported.jobs.iter().all(|job| job.job.id <= imported.last_id));
            assert!(imported.jobs.windows(2).all(|pair| pair[0].job.id < pair[1].job.id));
            assert!(imported.problems.len() as u64 == imported.skipped && imported.skipped <= 30);
        }
        for size in (0..2000).step_by(7) {
            let noise: Vec<u8> = (0..size).map(|_| random.roll(256) as u8).collect();
            for version in [V5, V7] {
                read(&file(version, std::slice::from_ref(&noise)));
            }
        }
    }

    fn folder(name: &str, files: &[(&str, Vec<u8>)]) -> (Folder, Temporary) {
        let (folder, temporary) = temporary(name);
        files.iter().for_each(|(name, bytes)| add(&folder, name, bytes));
        (folder, temporary)
    }

    fn add(folder: &Folder, name: &str, bytes: &[u8]) {
        folder.create(name, 0).and_then(|file| file.write_at(0, bytes)).expect("a file");
    }

    /// Opens the log with small segments. Returns the IDs of the restored jobs, and the recovery report.
    fn start(folder: Folder) -> Result<(Vec<u64>, RecoveryReport), OpenError> {
        let mut engine = Engine::new(Limits::NONE);
        let settings = BinlogSettings::new(4096, SyncMode::Always);
        let opened = open(Arc::new(folder), settings, &mut engine, Time::default(), &mut |_| {})?;
        let mut ids: Vec<u64> = engine.jobs().map(|job| job.id().0).collect();
        ids.sort_unstable();
        Ok((ids, opened.report))
    }

    fn again(temporary: &Temporary) -> Folder {
        Folder::new(temporary.path())
    }

    fn names(folder: &Folder) -> Vec<String> {
        let mut names = folder.list().expect("a directory");
        names.retain(|name| name != "lock");
        names.sort_unstable();
        names
    }

    fn jobs(ids: std::ops::RangeInclusive<u64>) -> Vec<u8> {
        file(V7, &ids.map(|id| ready(id, &[b'x'; 100])).collect::<Vec<_>>())
    }

    #[test]
    fn all_files_are_imported_in_order_and_moved_aside() {
        let deletes = file(V7, &[later(1, 0, &[b'x'; 100]), later(2, READY, &[b'x'; 100])]);
        // Sorting by name would put file 10 before file 9.
        let (first, temporary) = folder("import", &[("binlog.10", deletes), ("binlog.9", jobs(1..=200))]);
        let (ids, report) = start(first).expect("a log");
        assert_eq!((ids, report.imported), ((2..=200).collect(), Some(199)));
        assert_eq!(report.problems, Vec::<String>::new());
        let left = names(&again(&temporary));
        assert!(
            left.len() > 5 && left[0] == KEPT && left[1..].iter().all(|name| name.starts_with("segment.")),
            "{left:?}"
        );
        let kept = Folder::new(temporary.path().join(KEPT));
        assert_eq!(names(&kept), ["binlog.10", "binlog.9"]);
        let (ids, report) = start(again(&temporary)).expect("a log");
        assert_eq!((ids, report.imported), ((2..=200).collect(), None));
    }

    #[test]
    fn a_file_that_is_missing_between_others_is_reported() {
        let files = [("binlog.3", jobs(1..=2)), ("binlog.4", jobs(3..=4)), ("binlog.6", jobs(5..=6))];
        let (ids, report) = start(folder("gap", &files).0).expect("a log");
        assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
        let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
        assert_eq!(*problem, format!("binlog.6: the files before it, from binlog.5 on, are missing, {LOSS}"));
    }

    #[test]
    fn an_unfinished_import_is_discarded() {
        let files = [(BEGUN, vec![]), ("segment.0000000001", vec![7; 500]), ("binlog.1", jobs(1..=3))];
        let (first, temporary) = folder("unfinished", &files);
        let (ids, report) = start(first).expect("a log");
        assert_eq!((ids, report.imported, report.problems), (vec![1, 2, 3], Some(3), vec![]));
        assert_eq!(names(&again(&temporary)), [KEPT, "segment.0000000001"]);
        // If there are no beanstalkd files, nothing can be imported again, so the segments must be kept.
        let (alone, _temporary) = folder("begun", &[(BEGUN, vec![]), ("segment.0000000001", vec![7; 500])]);
        assert!(prepare(&alone).expect("a directory").is_none());
        assert_eq!(names(&alone), ["segment.0000000001"]);
    }

    #[test]
    fn a_complete_import_moves_the_originals_and_removes_its_marks() {
        let files = [(BEGUN, vec![]), (DONE, vec![]), ("binlog.1", jobs(1..=3))];
        let (folder, _temporary) = folder("done", &files);
        assert!(prepare(&folder).expect("a directory").is_none());
        assert_eq!(names(&folder), [KEPT]);
    }

    #[test]
    fn an_import_creates_its_mark_before_it_reads() {
        let (begun, _temporary) = folder("mark", &[("binlog.1", jobs(1..=3))]);
        assert_eq!(prepare(&begun).expect("a directory").expect("an import").jobs.len(), 3);
        assert_eq!(names(&begun), ["binlog.1", BEGUN]);
    }

    #[test]
    fn two_logs_in_one_directory_are_refused() {
        let files = [("segment.0000000001", vec![7; 500]), ("binlog.5", jobs(1..=3)), ("binlog.4", jobs(1..=3))];
        match start(folder("both", &files).0) {
            Err(OpenError::File(name, error)) => {
                assert_eq!((&*name, error.kind()), ("binlog.4", io::ErrorKind::AlreadyExists));
            }
            _ => panic!("two logs must be refused"),
        }
    }
}
