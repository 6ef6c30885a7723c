//! Copies a log consistently while a server may be writing it.
//!
//! Owns the order of copying, from the oldest segment to the newest, and what is copied again. Takes no lock, and
//! changes nothing at the source. Segments that the server removes meanwhile are not needed: a record in a newer
//! segment states so. Must not know jobs.

use std::io;

use super::record::Record;
use super::replay::{scan, Scanned, Window};
use super::segment::{segment_name, segment_number, Beginning, Header, RecordKey, HEADER};
use super::storage::{LogFile, Storage, StoredFile};
use super::types::{in_file, OpenError};

/// Bytes copied at a time.
const PIECE: usize = 1 << 20;

/// Maximum number of passes, which are repeated if segments are removed meanwhile; usually once.
const PASSES: usize = 64;

/// How often the last segment is copied if its copy has gaps.
const AGAIN: usize = 4;

/// The size of a segment that the copy names and does not contain, because the server has just begun it.
const FRESH: u64 = 65_536;

/// Copies the log in `from` to `to`, which is empty. Everything is synced when this returns.
pub fn back_up(from: &dyn Storage, to: &dyn Storage) -> Result<(), OpenError> {
    // The current segment when the last pass began: earlier segments are copied completely.
    let mut newest = 0;
    for _ in 0..PASSES {
        let numbers = numbers(from)?;
        let oldest = newest;
        // An older segment was complete before the header of a newer one was written.
        let Some(last) = numbers.iter().rev().find(|number| header(from, **number).is_some()) else { break };
        newest = *last;
        let mut vanished = false;
        for &number in numbers.iter().filter(|number| (oldest..=newest).contains(*number)) {
            let name = segment_name(number);
            match copy(from, to, &name) {
                Ok(()) => {}
                // The segment is not needed, as an earlier record states: in the newest segment, or in one that the
                // next pass copies.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    vanished = true;
                    forget_up_to(to, number)?;
                }
                Err(error) => return Err(OpenError::File(name, error)),
            }
        }
        if !vanished {
            break;
        }
    }
    finish(from, to, newest)
}

/// Completes the last segment, which was copied while it grew, so that later bytes may have been copied without earlier
/// ones; and creates the next segment if the last one names it.
fn finish(from: &dyn Storage, to: &dyn Storage, newest: u64) -> Result<(), OpenError> {
    let name = segment_name(newest);
    let Some(header) = header(to, newest) else { return Ok(()) };
    for _ in 0..AGAIN {
        let (range, mut next, mut gap) = (HEADER as u64..in_file(&name, to.length(&name))?, None, false);
        let key = RecordKey::new(header.log, newest);
        let scanned = scan(&StoredFile(to, &name), key, range, &mut Window::default(), &mut |found| {
            next = if let Scanned::Record { record: Record::Next(next), .. } = found { Some(next) } else { None };
            gap |= matches!(found, Scanned::Gap(..));
            true
        });
        in_file(&name, scanned)?;
        if gap {
            // A segment that was removed is copied as far as it was needed, or damaged.
            match grow(from, to, &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                grown => {
                    in_file(&name, grown)?;
                    continue;
                }
            }
        }
        return match next.map(segment_name) {
            Some(next) => in_file(&next, to.create(&next, FRESH)).map(drop),
            None => Ok(()),
        };
    }
    Ok(())
}

/// Copies a file over its partial copy.
fn grow(from: &dyn Storage, to: &dyn Storage, name: &str) -> io::Result<()> {
    let file = to.open(name)?;
    // All bytes of the copy are written at the source by now.
    pour(from, name, &*file, to.length(name)?)?;
    file.sync()
}

/// Copies the first `end` bytes of a file to another file. Returns how many there were.
fn pour(from: &dyn Storage, name: &str, to: &dyn LogFile, end: u64) -> io::Result<u64> {
    let (mut bytes, mut at) = (vec![0; PIECE], 0);
    loop {
        let most = (end - at).min(PIECE as u64) as usize;
        let count = from.read_at(name, at, &mut bytes[..most])?;
        if count == 0 {
            return Ok(at);
        }
        to.write_at(at, &bytes[..count])?;
        at += count as u64;
    }
}

fn numbers(storage: &dyn Storage) -> Result<Vec<u64>, OpenError> {
    let names = storage.list().map_err(OpenError::Folder)?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn header(storage: &dyn Storage, number: u64) -> Option<Header> {
    let mut head = [0; HEADER];
    let count = storage.read_at(&segment_name(number), 0, &mut head).unwrap_or(0);
    Beginning::read(&head[..count]).header()
}

/// Removes the copies up to a segment that was removed at the source: the segments that reverse their records may be
/// gone as well.
fn forget_up_to(to: &dyn Storage, last: u64) -> Result<(), OpenError> {
    for number in numbers(to)?.into_iter().filter(|number| *number <= last) {
        let name = segment_name(number);
        in_file(&name, to.remove(&name))?;
    }
    Ok(())
}

/// Copies one file, replacing an earlier copy.
fn copy(from: &dyn Storage, to: &dyn Storage, name: &str) -> io::Result<()> {
    let length = from.length(name)?;
    if to.length(name).is_ok() {
        to.remove(name)?;
    }
    let file = to.create(name, length)?;
    let copied = pour(from, name, &*file, u64::MAX)?;
    file.truncate(copied)?;
    file.sync()
}
