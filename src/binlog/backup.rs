//! Backs up a log, even while a server is writing to it: copies the segments from the oldest to the newest, and decides
//! which segments to copy again. Takes no lock. Must not interpret job records.

use std::io;

use super::record::Record;
use super::replay::{scan, Scanned};
use super::segment::{numbers_in, segment_name, segment_number, Beginning, Header, RecordKey, HEADER};
use super::storage::{in_file, LogFile, OpenError, Storage};

const PIECE: usize = 1 << 20;
const MAX_PASSES: usize = 64;
const MAX_COPIES_OF_LAST: usize = 4;
/// The size of the empty segment that a backup adds if [`Record::Next`] is the last record.
const FRESH: u64 = 65_536;

/// Copies the log to `to`, which must be empty, and syncs the copy.
pub fn back_up(from: &dyn Storage, to: &dyn Storage) -> Result<(), OpenError> {
    // The newest segment of the previous pass. Older segments have been copied completely.
    let mut newest = 0;
    for _ in 0..MAX_PASSES {
        let numbers = numbers(from)?;
        let oldest = newest;
        // The server writes a segment's header only after the previous segment is complete, so ignore segments without
        // a header. If all listed segments have been removed by now, list again.
        let Some(last) = numbers.iter().rev().find(|number| header(from, **number).is_some()) else { continue };
        newest = *last;
        let mut vanished = false;
        for &number in numbers.iter().filter(|number| (oldest..=newest).contains(*number)) {
            let name = segment_name(number);
            match copy(from, to, &name) {
                Ok(()) => {}
                // A newer segment, which a later pass copies, records that the removed segment is not needed.
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

/// While the copy of the last segment has gaps, which the server may have filled by now, copies the segment again, up
/// to [`MAX_COPIES_OF_LAST`] copies in total. If the last record is a [`Record::Next`], creates the announced segment.
fn finish(from: &dyn Storage, to: &dyn Storage, newest: u64) -> Result<(), OpenError> {
    let name = segment_name(newest);
    let Some(header) = header(to, newest) else { return Ok(()) };
    let mut copies = 1;
    loop {
        let (range, mut next, mut gap) = (HEADER as u64..in_file(&name, to.length(&name))?, None, false);
        let key = RecordKey::new(header.log_id, newest);
        let read = |at, bytes: &mut [u8]| to.read_at(&name, at, bytes);
        let scanned = scan(&read, key, range, &mut |found| {
            next = if let Scanned::Record { record: Record::Next(next), .. } = found { Some(next) } else { None };
            gap |= matches!(found, Scanned::Gap(..));
            true
        });
        in_file(&name, scanned)?;
        if gap && copies < MAX_COPIES_OF_LAST {
            copies += 1;
            // A segment that the server has removed is not needed, so gaps in the copy do not matter.
            match refresh(from, to, &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                refreshed => {
                    in_file(&name, refreshed)?;
                    continue;
                }
            }
        }
        return next.map(segment_name).map_or(Ok(()), |next| in_file(&next, to.create(&next, FRESH)).map(drop));
    }
}

fn refresh(from: &dyn Storage, to: &dyn Storage, name: &str) -> io::Result<()> {
    let file = to.open(name)?;
    // By now, the server has usually written the bytes in the gaps.
    pour(from, name, &*file, to.length(name)?)?;
    file.sync()
}

fn pour(from: &dyn Storage, name: &str, to: &dyn LogFile, end: u64) -> io::Result<u64> {
    let (mut bytes, mut at) = (vec![0; PIECE], 0);
    let length = |at: u64| (end - at).min(PIECE as u64) as usize;
    while let count @ 1.. = from.read_at(name, at, &mut bytes[..length(at)])? {
        to.write_at(at, &bytes[..count])?;
        at += count as u64;
    }
    Ok(at)
}

fn numbers(storage: &dyn Storage) -> Result<Vec<u64>, OpenError> {
    storage.list().map(|names| numbers_in(&names, segment_number)).map_err(OpenError::Folder)
}

fn header(storage: &dyn Storage, number: u64) -> Option<Header> {
    let mut head = [0; HEADER];
    let count = storage.read_at(&segment_name(number), 0, &mut head).unwrap_or(0);
    Beginning::read(&head[..count]).header()
}

/// Removes copies of segments up to `last`: the deletes of their jobs may be in a segment that the server has removed.
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
