//! The binary format of an entry in the shared log: a head, file operations, and a CRC-32 of the preceding bytes. The
//! head contains the format version, the kind, the epoch, a random number that identifies the writer, and the writer's
//! entry counter. All numbers are little-endian.
//!
//! Also merges small entries, because in etcd the fixed cost of one entry equals the cost of about 100 KB of data.

use std::collections::BTreeMap;

use super::shared_log::{Entries, Merged, Seq};
use crate::binlog::{Field, Fields, Rest};

const FORMAT: u8 = 1;
const HEAD: usize = 2 + 3 * 8;
const SUM: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EntryKind {
    #[default]
    Operations = 1,
    Claim = 2,
    /// The writer has released the log, so any server can claim the log.
    Release = 3,
    /// Part of a binlog import, or the importing server's claim. If the log ends with such an entry, the import is
    /// incomplete, and only the importing server may claim the log.
    Import = 4,
    /// Replaces consecutive entries of one writer, and has the position of the last replaced entry. The number of
    /// replaced entries, in 8 bytes, precedes the operations.
    Merged = 5,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    pub kind: EntryKind,
    /// The writer's epoch or, in a claim, the previous epoch.
    pub epoch: u64,
    pub writer: u64,
    /// The number of entries that the writer has appended, including this entry. In a claim, the previous epoch.
    pub number: u64,
}

impl Head {
    pub fn seal(&self, operations: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + operations.len() + SUM);
        (FORMAT, self.kind as u8, self.epoch, self.writer, self.number, Rest(operations)).write(&mut bytes);
        crc32fast::hash(&bytes).write(&mut bytes);
        bytes
    }

    /// Returns `None` if the entry is damaged or has an unknown format or kind.
    pub fn open(entry: &[u8]) -> Option<(Head, &[u8])> {
        let (bytes, sum) = entry.split_at_checked(entry.len().checked_sub(SUM)?)?;
        if crc32fast::hash(bytes).to_le_bytes() != sum {
            return None;
        }
        let (head, operations) = bytes.split_at_checked(HEAD)?;
        let kinds = [EntryKind::Operations, EntryKind::Claim, EntryKind::Release, EntryKind::Import, EntryKind::Merged];
        let kind = kinds.into_iter().find(|kind| head.starts_with(&[FORMAT, *kind as u8]))?;
        let number = |at: usize| head.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        Some((Head { kind, epoch: number(2)?, writer: number(10)?, number: number(18)? }, operations))
    }
}

pub fn operations(entry: &[u8]) -> &[u8] {
    &entry[HEAD..entry.len() - SUM]
}

/// Returns the number of original entries (1 unless the entry is merged) and the encoded operations.
pub fn unfold<'a>(head: &Head, operations: &'a [u8]) -> (u64, &'a [u8]) {
    let count = operations.first_chunk().filter(|_| head.kind == EntryKind::Merged);
    count.map_or((1, operations), |count| (u64::from_le_bytes(*count), &operations[8..]))
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// Creates a file that has the given size and contains only zero bytes. Replaces an existing file.
    Create(&'a str, u64),
    Write(&'a str, u64, &'a [u8]),
    Truncate(&'a str, u64),
    Rename(&'a str, &'a str),
    Remove(&'a str),
    /// Copies the bytes of the second file from the second offset onward to the first file at the first offset.
    Copy(&'a str, u64, &'a str, u64),
}

impl<'a> Operation<'a> {
    /// Returns the encoded operation: a letter, the name's length, the name, a number, the data's length, and the data.
    pub fn encode(&self) -> Vec<u8> {
        let source;
        let (letter, name, number, bytes): (u8, &str, u64, &[u8]) = match *self {
            Operation::Create(name, size) => (b'C', name, size, b""),
            Operation::Write(name, offset, bytes) => (b'W', name, offset, bytes),
            Operation::Truncate(name, length) => (b'T', name, length, b""),
            Operation::Rename(name, to) => (b'N', name, 0, to.as_bytes()),
            Operation::Remove(name) => (b'R', name, 0, b""),
            Operation::Copy(name, offset, from, start) => {
                source = [&start.to_le_bytes(), from.as_bytes()].concat();
                (b'X', name, offset, &source)
            }
        };
        let (length, count) = ((name.len() as u16).to_le_bytes(), (bytes.len() as u32).to_le_bytes());
        [&[letter][..], &length, name.as_bytes(), &number.to_le_bytes(), &count, bytes].concat()
    }

    pub fn decode(bytes: &mut &'a [u8]) -> Option<Operation<'a>> {
        let mut fields = Fields(bytes);
        let (letter, name, number, length): (u8, &[u8], u64, u32) = fields.read()?;
        let data = fields.take(length as usize)?;
        *bytes = fields.0;
        // Subdirectories are allowed, but a path outside the binlog directory could overwrite unrelated files.
        let is_inside = |name: &&str| !name.is_empty() && !name.starts_with('/') && !name.contains("..");
        let path = |bytes: &'a [u8]| std::str::from_utf8(bytes).ok().filter(is_inside);
        let name = path(name)?;
        match letter {
            b'C' => Some(Operation::Create(name, number)),
            b'W' => Some(Operation::Write(name, number, data)),
            b'T' => Some(Operation::Truncate(name, number)),
            b'N' => path(data).map(|to| Operation::Rename(name, to)),
            b'R' => Some(Operation::Remove(name)),
            b'X' => {
                let (start, from) = data.split_first_chunk()?;
                Some(Operation::Copy(name, number, path(from)?, u64::from_le_bytes(*start)))
            }
            _ => None,
        }
    }
}

/// The name prefix of files in the log and its copies that contain a large body until [`Operation::Copy`] copies it.
pub const STAGE: &str = "stage.";

/// Applies the entry `seq` to `created`, which maps each file to the oldest entry that the file needs.
pub fn note_created(created: &mut BTreeMap<String, Seq>, mut operations: &[u8], seq: Seq) {
    while let Some(operation) = Operation::decode(&mut operations) {
        note_file(created, &operation, seq);
        if let Operation::Copy(name, _, from, _) = operation {
            if let (Some(first), Some(slot)) = (created.get(from).copied(), created.get_mut(name)) {
                *slot = first.min(*slot);
            }
        }
    }
}

/// Applies an operation to a map of all files. A file that the operation creates gets the value `new`.
pub fn note_file<V>(files: &mut BTreeMap<String, V>, operation: &Operation, new: V) {
    match *operation {
        Operation::Create(name, _) => drop(files.insert(name.to_owned(), new)),
        Operation::Remove(name) => drop(files.remove(name)),
        Operation::Rename(name, to) => {
            // A file that is moved to a subdirectory is no longer part of the copy.
            if let (Some(value), false) = (files.remove(name), to.contains('/')) {
                files.insert(to.to_owned(), value);
            }
        }
        Operation::Write(..) | Operation::Truncate(..) | Operation::Copy(..) => {}
    }
}

/// The maximum number of entries that are merged into one.
pub const RUN: u64 = 256;
/// The maximum size of entries that are worth merging, in bytes.
pub const SMALL: usize = 16 * 1024;
/// The maximum size of the data in an entry, in bytes. Even in base64, the data is below etcd's 1.5 MiB limit.
pub const PIECE: usize = 512 * 1024;

/// Returns `true` for entries that must not be merged. A standby can apply parts of a merged entry twice, but may have
/// removed the source of a copy operation after the first time.
fn copies(mut operations: &[u8]) -> bool {
    std::iter::from_fn(|| Operation::decode(&mut operations)).any(|it| matches!(it, Operation::Copy(..)))
}

pub fn merge(entries: &Entries, epoch: u64, writer: u64) -> Vec<Merged> {
    let mut runs: Vec<Merged> = Vec::new();
    let mut run: Option<Run> = None;
    for (seq, entry) in entries {
        let is_own = |head: &Head| head.kind == EntryKind::Operations && (head.epoch, head.writer) == (epoch, writer);
        let own = Head::open(entry).filter(|(head, operations)| is_own(head) && !copies(operations));
        let is_complete = |run: &Run| run.last + 1 != *seq || run.size + entry.len() > PIECE;
        if own.is_none() || run.as_ref().is_some_and(is_complete) {
            runs.extend(run.take().and_then(Run::end));
        }
        let Some((head, operations)) = own else { continue };
        run.get_or_insert_with(|| Run { first: *seq, last: *seq, head, size: 0, operations: Vec::new(), open: None })
            .add(*seq, head, operations);
    }
    runs.extend(run.and_then(Run::end));
    runs
}

struct Run {
    first: Seq,
    last: Seq,
    head: Head,
    /// The size of the entries' operations in bytes.
    size: usize,
    operations: Vec<u8>,
    /// The file, offset and bytes of the last write, to which adjacent writes are appended.
    open: Option<(String, u64, Vec<u8>)>,
}

impl Run {
    fn add(&mut self, seq: Seq, head: Head, mut operations: &[u8]) {
        (self.last, self.head, self.size) = (seq, head, self.size + operations.len());
        while let Some(operation) = Operation::decode(&mut operations) {
            match (&mut self.open, operation) {
                (Some((name, offset, bytes)), Operation::Write(other, at, more))
                    if name == other && offset.checked_add(bytes.len() as u64) == Some(at) =>
                {
                    bytes.extend(more);
                }
                (_, Operation::Write(name, at, bytes)) => {
                    self.close();
                    self.open = Some((name.to_owned(), at, bytes.to_vec()));
                }
                (_, operation) => {
                    self.close();
                    self.operations.extend(operation.encode());
                }
            }
        }
    }

    fn close(&mut self) {
        if let Some((name, offset, bytes)) = self.open.take() {
            self.operations.extend(Operation::Write(&name, offset, &bytes).encode());
        }
    }

    fn end(mut self) -> Option<Merged> {
        self.close();
        let Run { first, last, head, operations, .. } = self;
        let count = last + 1 - first;
        let head = Head { kind: EntryKind::Merged, ..head };
        (count > 1).then(|| Merged { first, last, entry: head.seal(&[&count.to_le_bytes(), &*operations].concat()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back() {
        let all = [
            Operation::Create("segment.1", 4096),
            Operation::Write("segment.1", 80, b"bytes"),
            Operation::Truncate("segment.1", 85),
            Operation::Rename("binlog.1", "old/binlog.1"),
            Operation::Copy("segment.1", 80, "stage.1.2", 7),
            Operation::Remove("segment.1"),
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|operation| bytes.extend(operation.encode()));
        let head = Head { kind: EntryKind::Operations, epoch: 3, writer: u64::MAX, number: 9 };
        let entry = head.seal(&bytes);
        let (read, mut rest) = Head::open(&entry).expect("an entry");
        assert_eq!(read, head);
        let decoded: Vec<_> = std::iter::from_fn(|| Operation::decode(&mut rest)).collect();
        assert_eq!(decoded, all);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_flipped_bit_or_a_truncation_is_detected() {
        let entry = Head { kind: EntryKind::Claim, epoch: 1, writer: 2, number: 3 }.seal(b"");
        for bit in 0..entry.len() * 8 {
            let mut damaged = entry.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::open(&damaged), None);
        }
        assert!((0..entry.len()).all(|length| Head::open(&entry[..length]).is_none()));
    }

    #[test]
    fn names_outside_of_the_directory_are_refused() {
        for name in ["/etc/passwd", "../x", ""] {
            let bytes = Operation::Remove(name).encode();
            assert_eq!(Operation::decode(&mut bytes.as_slice()), None);
        }
    }

    fn entry(kind: EntryKind, number: u64, operations: &[Operation]) -> Vec<u8> {
        let mut bytes = Vec::new();
        operations.iter().for_each(|operation| bytes.extend(operation.encode()));
        Head { kind, epoch: 3, writer: 7, number }.seal(&bytes)
    }

    #[test]
    fn consecutive_entries_and_writes_are_merged() {
        let all: Vec<Vec<Operation>> = vec![
            vec![Operation::Create("segment.1", 100), Operation::Write("segment.1", 0, b"ab")],
            vec![Operation::Write("segment.1", 2, b"cd")],
            vec![Operation::Write("segment.1", 9, b"x"), Operation::Write("segment.2", 10, b"y")],
            vec![Operation::Remove("segment.2"), Operation::Write("segment.1", 11, b"z")],
        ];
        let of = |seqs: std::ops::RangeInclusive<u64>, kind| {
            seqs.map(move |seq| (seq, entry(kind, seq + 30, &[Operation::Write("segment.1", seq, b"-")])))
        };
        let mut entries: Entries = vec![(9, entry(EntryKind::Claim, 2, &[]))];
        entries.extend(
            all.iter().zip(10..).map(|(operations, seq)| (seq, entry(EntryKind::Operations, seq + 30, operations))),
        );
        entries.extend(of(14..=15, EntryKind::Import));
        entries.extend(of(20..=21, EntryKind::Operations));
        entries.extend(of(30..=30, EntryKind::Operations));
        let runs = merge(&entries, 3, 7);
        assert_eq!(runs.iter().map(|run| (run.first, run.last)).collect::<Vec<_>>(), [(10, 13), (20, 21)]);
        let (head, operations) = Head::open(&runs[0].entry).expect("an entry");
        assert_eq!(head, Head { kind: EntryKind::Merged, epoch: 3, writer: 7, number: 43 });
        let (count, mut rest) = unfold(&head, operations);
        assert_eq!(count, 4);
        let decoded: Vec<_> = std::iter::from_fn(|| Operation::decode(&mut rest)).collect();
        assert_eq!(
            decoded,
            [
                Operation::Create("segment.1", 100),
                Operation::Write("segment.1", 0, b"abcd"),
                Operation::Write("segment.1", 9, b"x"),
                Operation::Write("segment.2", 10, b"y"),
                Operation::Remove("segment.2"),
                Operation::Write("segment.1", 11, b"z"),
            ]
        );
        assert!(merge(&entries, 3, 8).is_empty() && merge(&entries, 2, 7).is_empty(), "others' entries must not merge");
        let copy = entry(EntryKind::Operations, 42, &[Operation::Copy("segment.1", 9, "stage.3.1", 0)]);
        let mut with_copy = entries.clone();
        with_copy[3] = (12, copy);
        let runs_around = merge(&with_copy, 3, 7);
        assert_eq!(runs_around.iter().map(|run| (run.first, run.last)).collect::<Vec<_>>(), [(10, 11), (20, 21)]);
        let repeated = vec![(13, runs[0].entry.clone()), (14, entry(EntryKind::Operations, 44, &[]))];
        assert!(merge(&repeated, 3, 7).is_empty(), "entries must not merge twice");
    }

    #[test]
    fn a_merged_entry_fits_into_a_request_to_etcd() {
        let write = |at| Operation::Write("segment.1", at, &[7; 15_000]).encode();
        let entries: Entries = (1..=RUN)
            .map(|seq| (seq, Head { kind: EntryKind::Operations, epoch: 3, writer: 7, number: seq }.seal(&write(seq))))
            .collect();
        let runs = merge(&entries, 3, 7);
        assert!(runs.iter().all(|run| run.entry.len() < PIECE + 100), "{:?}", runs[0].entry.len());
        assert!(runs.len() < 10 && runs.iter().map(|run| run.last + 1 - run.first).sum::<u64>() == RUN);
    }
}
