//! Import of a directory from beanstalkd. An interruption neither loses nor duplicates jobs: one marker file records
//! that the import has begun, and another that all imported jobs are durable. Then the original files are moved to a
//! subdirectory, and both markers are removed.

use std::io;

use super::import::{Imported, Importer};
use super::journal::Journal;
use super::segment::{numbers_in, segment_name, segment_number};
use super::storage::Storage;
use super::types::{in_file, OpenError};
use super::writer::Writer;
use crate::engine::Engine;

/// Marks an unfinished import. Existing segments belong to it and are invalid.
const BEGUN: &str = "import.begun";

/// Marks a complete import. The original files are not needed.
const DONE: &str = "import.done";
const KEPT: &str = "beanstalkd";

fn foreign_number(name: &str) -> Option<u64> {
    let number: u64 = name.strip_prefix("binlog.")?.parse().ok()?;
    (format!("binlog.{number}") == name).then_some(number)
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
        for number in ours {
            in_file(&segment_name(number), storage.remove(&segment_name(number)))?;
        }
        in_file(BEGUN, storage.remove(BEGUN))?;
    } else if foreign.is_empty() {
        return Ok(None);
    } else if ours.count() > 0 {
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
            importer.gap(&name, &format!("binlog.{next}"));
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
    let storage = writer.storage();
    for &slot in slots {
        while journal.wanted() {
            let number = journal.claim_number();
            let name = segment_name(number);
            let file = in_file(&name, storage.create(&name, journal.stats().segment_size))?;
            writer.add_prepared(number, file);
            journal.prepared(number, journal.stats().segment_size);
        }
        journal.adopt(slot, engine);
        if journal.is_large() {
            in_file("the log", flush(journal, writer))?;
        }
    }
    in_file("the log", flush(journal, writer))?;
    in_file(DONE, storage.create(DONE, 0).map(drop))?;
    finish(&*storage)
}

/// Moves the original files and removes the markers, [`BEGUN`] first, because segments with only [`BEGUN`] are invalid.
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

    use super::super::beanstalkd::samples::{file, later, ready, READY, V7};
    use super::super::recovery::{open, BinlogSettings};
    use super::super::storage::tests::{temporary, Temporary};
    use super::super::storage::Folder;
    use super::super::types::RecoveryReport;
    use super::super::writer::SyncMode;
    use super::*;
    use crate::engine::{Limits, Time};

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
        let mut names = folder.list().expect("a folder");
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
        assert!(problem.starts_with("binlog.6: the files before it, from binlog.5 on, are missing"), "{problem}");
    }

    #[test]
    fn an_unfinished_import_is_discarded() {
        let files = [(BEGUN, vec![]), ("segment.0000000001", vec![7; 500]), ("binlog.1", jobs(1..=3))];
        let (first, temporary) = folder("unfinished", &files);
        let (ids, report) = start(first).expect("a log");
        assert_eq!((ids, report.imported, report.problems), (vec![1, 2, 3], Some(3), vec![]));
        assert_eq!(names(&again(&temporary)), [KEPT, "segment.0000000001"]);
        // Without beanstalkd files, discarding the unfinished import leaves nothing to import.
        let (alone, _temporary) = folder("begun", &[(BEGUN, vec![]), ("segment.0000000001", vec![7; 500])]);
        assert!(prepare(&alone).expect("a folder").is_none());
        assert_eq!(names(&alone), [""; 0]);
    }

    #[test]
    fn a_complete_import_moves_the_originals_and_removes_its_marks() {
        let files = [(BEGUN, vec![]), (DONE, vec![]), ("binlog.1", jobs(1..=3))];
        let (folder, _temporary) = folder("done", &files);
        assert!(prepare(&folder).expect("a folder").is_none());
        assert_eq!(names(&folder), [KEPT]);
    }

    #[test]
    fn an_import_creates_its_mark_before_it_reads() {
        let (begun, _temporary) = folder("mark", &[("binlog.1", jobs(1..=3))]);
        assert_eq!(prepare(&begun).expect("a folder").expect("an import").jobs.len(), 3);
        assert_eq!(names(&begun), ["binlog.1", BEGUN]);
    }

    #[test]
    fn two_logs_in_one_folder_are_refused() {
        let files = [("segment.0000000001", vec![7; 500]), ("binlog.5", jobs(1..=3)), ("binlog.4", jobs(1..=3))];
        match start(folder("both", &files).0) {
            Err(OpenError::File(name, error)) => {
                assert_eq!((&*name, error.kind()), ("binlog.4", io::ErrorKind::AlreadyExists));
            }
            _ => panic!("there is a server"),
        }
    }
}
