//! A consistent copy of a log that a server may be writing meanwhile.
//!
//! Owns the order of copying, from the oldest segment to the newest, and what is copied again. Takes no lock, and
//! changes nothing where it reads. What a server needs no longer, and removes meanwhile, is not missed: a record in a
//! newer segment says so. Must not know jobs.

use std::io;

use super::record::Record;
use super::replay::{scan, Scanned, Window};
use super::segment::{segment_name, segment_number, Beginning, Header, RecordKey, HEADER};
use super::storage::{LogFile, Storage, StoredFile};
use super::types::OpenError;

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

/// How often it begins again with what has grown, if segments vanish while it reads them; mostly that is once.
const PASSES: usize = 64;

/// How often the last segment is copied, if there are gaps in its copy.
const AGAIN: usize = 4;

/// Bytes of a segment that the copy names and does not have, since the server had just turned to it.
const FRESH: u64 = 65_536;

/// Copies the log in `from` into `to`, which is empty. Everything is synced when it returns.
pub fn back_up(from: &dyn Storage, to: &dyn Storage) -> Result<(), OpenError> {
    // The segment that was written to when the last pass began: those before it are copied whole.
    let mut newest = 0;
    for _ in 0..PASSES {
        let numbers = numbers(from)?;
        let oldest = newest;
        // All of an older segment was written before the header of a newer one.
        let Some(last) = numbers.iter().rev().find(|number| header(from, **number).is_some()) else { break };
        newest = *last;
        let mut vanished = false;
        for &number in numbers.iter().filter(|number| (oldest..=newest).contains(*number)) {
            let name = segment_name(number);
            match copy(from, to, &name) {
                Ok(()) => {}
                // It is needed no longer, as a record says that was written before it went: in the newest segment, or
                // in one that the next pass copies.
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

/// The last segment was copied while it grew, perhaps its end before what stands in front of that: then it is copied
/// again. And it may end with the name of the next one, which must be there.
fn finish(from: &dyn Storage, to: &dyn Storage, newest: u64) -> Result<(), OpenError> {
    let name = segment_name(newest);
    let fail = |error| OpenError::File(name.clone(), error);
    let Some(header) = header(to, newest) else { return Ok(()) };
    for _ in 0..AGAIN {
        let (range, mut next, mut gap) = (HEADER as u64..to.length(&name).map_err(fail)?, None, false);
        scan(&StoredFile(to, &name), RecordKey::new(header.log, newest), range, &mut Window::default(), &mut |found| {
            next = if let Scanned::Record { record: Record::Next(next), .. } = found { Some(next) } else { None };
            gap |= matches!(found, Scanned::Gap(..));
            true
        })
        .map_err(fail)?;
        if gap {
            // One that is gone has been copied as far as it was needed, or is damaged.
            match grow(from, to, &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                grown => {
                    grown.map_err(fail)?;
                    continue;
                }
            }
        }
        return match next.map(segment_name) {
            Some(next) => to.create(&next, FRESH).map(drop).map_err(|error| OpenError::File(next, error)),
            None => Ok(()),
        };
    }
    Ok(())
}

/// Copies a file over its copy, which has a part of it.
fn grow(from: &dyn Storage, to: &dyn Storage, name: &str) -> io::Result<()> {
    let file = to.open(name)?;
    // All of these bytes are written by now.
    pour(from, name, &*file, to.length(name)?)?;
    file.sync()
}

/// Copies the first `end` bytes of a file into another file. Returns their number.
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

/// Removes what was copied up to a segment that vanished: segments go from the oldest on, and what undoes their records
/// may have gone with it.
fn forget_up_to(to: &dyn Storage, last: u64) -> Result<(), OpenError> {
    for number in numbers(to)?.into_iter().filter(|number| *number <= last) {
        let name = segment_name(number);
        to.remove(&name).map_err(|error| OpenError::File(name, error))?;
    }
    Ok(())
}

/// Copies one file, in place of what was copied of it before.
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
