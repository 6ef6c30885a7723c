//! Backup of a log, even while a server is writing to the log.
//!
//! Owns the order of copying, from the oldest segment to the newest, and the decision which segments to copy again.
//! Takes no lock and does not modify the source. Must not depend on jobs.

use std::io;

use super::record::Record;
use super::replay::{scan, Scanned, Window};
use super::segment::{numbers_in, segment_name, segment_number, Beginning, Header, RecordKey, HEADER};
use super::storage::{LogFile, Storage, StoredFile};
use super::types::{in_file, OpenError};

/// Maximum number of bytes per read and write.
const PIECE: usize = 1 << 20;

/// Maximum number of passes over all segments. A pass is repeated if the server removes a segment during the pass.
const PASSES: usize = 64;

/// Maximum number of times that the last segment is copied to obtain a copy without gaps.
const AGAIN: usize = 4;

/// Size in bytes of the empty segment that is created if the last copied record announces a next segment.
const FRESH: u64 = 65_536;

/// Copies the log in `from` to the empty directory `to`, and syncs the copy.
pub fn back_up(from: &dyn Storage, to: &dyn Storage) -> Result<(), OpenError> {
    // The newest segment at the start of the previous pass. All older segments have been copied completely.
    let mut newest = 0;
    for _ in 0..PASSES {
        let numbers = numbers(from)?;
        let oldest = newest;
        // Ignore segments without a header. The server writes a header only after the previous segment is complete.
        // If all listed segments have been removed by now, list again.
        let Some(last) = numbers.iter().rev().find(|number| header(from, **number).is_some()) else { continue };
        newest = *last;
        let mut vanished = false;
        for &number in numbers.iter().filter(|number| (oldest..=newest).contains(*number)) {
            let name = segment_name(number);
            match copy(from, to, &name) {
                Ok(()) => {}
                // The server has removed the segment. A record in a newer segment, which a later pass copies, states
                // that the removed segment is not needed.
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

/// Completes the copy of the last segment. The server may have written to the segment during the copy, so bytes before
/// the end of the copy may be missing. Also creates the next segment if the last record announces one.
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
            // A segment that the server has removed is not needed, so gaps in the copy do not matter.
            match refresh(from, to, &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                refreshed => {
                    in_file(&name, refreshed)?;
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

/// Overwrites the copy of a file with the current contents of the file, up to the length of the copy.
fn refresh(from: &dyn Storage, to: &dyn Storage, name: &str) -> io::Result<()> {
    let file = to.open(name)?;
    // By now, the server has written every byte up to the length of the copy.
    pour(from, name, &*file, to.length(name)?)?;
    file.sync()
}

/// Copies at most `end` bytes from the beginning of a file. Returns the number of copied bytes.
fn pour(from: &dyn Storage, name: &str, to: &dyn LogFile, end: u64) -> io::Result<u64> {
    let (mut bytes, mut at) = (vec![0; PIECE], 0);
    loop {
        let length = (end - at).min(PIECE as u64) as usize;
        let count = from.read_at(name, at, &mut bytes[..length])?;
        if count == 0 {
            return Ok(at);
        }
        to.write_at(at, &bytes[..count])?;
        at += count as u64;
    }
}

fn numbers(storage: &dyn Storage) -> Result<Vec<u64>, OpenError> {
    storage.list().map(|names| numbers_in(&names, segment_number)).map_err(OpenError::Folder)
}

fn header(storage: &dyn Storage, number: u64) -> Option<Header> {
    let mut head = [0; HEADER];
    let count = storage.read_at(&segment_name(number), 0, &mut head).unwrap_or(0);
    Beginning::read(&head[..count]).header()
}

/// Removes the copies of all segments up to `last`. The source has removed `last`, and may have removed the segments
/// with the deletes of the copied jobs.
fn forget_up_to(to: &dyn Storage, last: u64) -> Result<(), OpenError> {
    for number in numbers(to)?.into_iter().filter(|number| *number <= last) {
        let name = segment_name(number);
        in_file(&name, to.remove(&name))?;
    }
    Ok(())
}

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
