//! Taking over a folder from beanstalkd.
//!
//! Owns the steps by which its log becomes ours, so that an interruption at any of them loses nothing and doubles
//! nothing: a first mark says that an import has begun, a second that all its jobs are safe in our segments; only then
//! do the originals move to a subfolder, and the marks go. Must not read the foreign formats itself.

use std::io;

use super::import::{Imported, Importer};
use super::journal::Journal;
use super::replay::fill;
use super::segment::{segment_name, segment_number};
use super::storage::{Storage, StoredFile};
use super::types::OpenError;
use super::writer::Writer;
use crate::engine::Engine;

/// An import has begun; whatever our segments say comes from it and counts for nothing.
const BEGUN: &str = "import.begun";

/// An import is complete: the originals count for nothing.
const DONE: &str = "import.done";

/// Where the originals are kept.
const KEPT: &str = "beanstalkd";

/// The number of a file of beanstalkd's log.
fn foreign_number(name: &str) -> Option<u64> {
    let number: u64 = name.strip_prefix("binlog.")?.parse().ok()?;
    (format!("binlog.{number}") == name).then_some(number)
}

/// The jobs of a foreign log in this folder, if there is one that was not imported yet.
pub fn prepare(storage: &dyn Storage) -> Result<Option<Imported>, OpenError> {
    let names = storage.list().map_err(OpenError::Folder)?;
    let mut foreign: Vec<u64> = names.iter().filter_map(|name| foreign_number(name)).collect();
    foreign.sort_unstable();
    let has = |mark: &str| names.iter().any(|name| name == mark);
    if has(DONE) {
        finish(storage, &foreign)?;
        return Ok(None);
    }
    let ours = names.iter().filter_map(|name| segment_number(name));
    if has(BEGUN) {
        for number in ours {
            step(&segment_name(number), storage.remove(&segment_name(number)))?;
        }
        step(BEGUN, storage.remove(BEGUN))?;
    } else if foreign.is_empty() {
        return Ok(None);
    } else if ours.count() > 0 {
        let text = "there are both segments of ours and files of beanstalkd; move away what is not to be used";
        let error = std::io::Error::new(std::io::ErrorKind::AlreadyExists, text);
        return Err(OpenError::File(format!("binlog.{}", foreign[0]), error));
    }
    if foreign.is_empty() {
        return Ok(None);
    }
    step(BEGUN, storage.create(BEGUN, 0).map(drop))?;
    let mut importer = Importer::new();
    let (mut next, mut bytes) = (foreign[0], Vec::new());
    for number in foreign {
        let name = format!("binlog.{number}");
        if number > next {
            importer.gap(&name, &format!("binlog.{next}"));
        }
        next = number.saturating_add(1);
        read_whole(storage, &name, &mut bytes).map_err(|error| OpenError::File(name.clone(), error))?;
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

/// Writes the imported jobs, which the engine has in these slots, into our segments, and lays the originals aside.
pub fn carry_out(slots: &[u32], engine: &Engine, journal: &mut Journal, writer: &mut Writer) -> Result<(), OpenError> {
    let storage = writer.storage();
    for &slot in slots {
        while journal.wanted() {
            let number = journal.claim_number();
            let name = segment_name(number);
            let file = step(&name, storage.create(&name, journal.stats().segment_size))?;
            writer.add_prepared(number, file);
            journal.prepared(number, journal.stats().segment_size);
        }
        journal.adopt(slot, engine);
        if journal.is_large() {
            step("the log", flush(journal, writer))?;
        }
    }
    step("the log", flush(journal, writer))?;
    step(DONE, storage.create(DONE, 0).map(drop))?;
    let names = storage.list().map_err(OpenError::Folder)?;
    let foreign: Vec<u64> = names.iter().filter_map(|name| foreign_number(name)).collect();
    finish(&*storage, &foreign)
}

/// Lays the originals aside. The first mark goes before the second, so that the segments count at any moment.
fn finish(storage: &dyn Storage, foreign: &[u64]) -> Result<(), OpenError> {
    for number in foreign {
        let name = format!("binlog.{number}");
        step(&name, storage.rename(&name, &format!("{KEPT}/{name}")))?;
    }
    let names = storage.list().map_err(OpenError::Folder)?;
    for mark in [BEGUN, DONE] {
        if names.iter().any(|name| name == mark) {
            step(mark, storage.remove(mark))?;
        }
    }
    Ok(())
}

fn read_whole(storage: &dyn Storage, name: &str, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    bytes.resize(storage.length(name)? as usize, 0);
    let filled = fill(&StoredFile(storage, name), 0, bytes)?;
    bytes.truncate(filled);
    Ok(())
}

fn step<T>(name: &str, result: std::io::Result<T>) -> Result<T, OpenError> {
    result.map_err(|error| OpenError::File(name.to_owned(), error))
}

/// Writes and syncs all that was appended.
pub(super) fn flush(journal: &mut Journal, writer: &mut Writer) -> io::Result<()> {
    writer.write(journal.take(Vec::new(), writer.synced_to()))?;
    let task = writer.whole_task();
    task.run()?;
    writer.synced(&task);
    journal.is_synced(writer.synced_to());
    Ok(())
}
