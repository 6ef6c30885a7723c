//! Merging of small entries of the shared log. Readers benefit from fewer, larger entries: in etcd, the fixed cost of
//! one entry equals the cost of about 100 KB.

use super::entry::{EntryKind, Head, Operation};
use super::shared_log::{Entries, Merged, Seq};

pub const RUN: usize = 256;

/// Entries with a larger average size in bytes are not merged.
pub const SMALL: u64 = 2048;

pub fn merge(entries: &Entries, epoch: u64, writer: u64) -> Vec<Merged> {
    let mut runs: Vec<Merged> = Vec::new();
    let mut run: Option<Run> = None;
    for (seq, entry) in entries {
        let opened = Head::open(entry);
        let is_own = |head: &Head| head.kind == EntryKind::Operations && (head.epoch, head.writer) == (epoch, writer);
        let Some((head, operations)) = opened.filter(|(head, _)| is_own(head)) else {
            runs.extend(run.take().and_then(Run::end));
            continue;
        };
        if run.as_ref().is_some_and(|run| run.last + 1 != *seq) {
            runs.extend(run.take().and_then(Run::end));
        }
        run.get_or_insert_with(|| Run { first: *seq, last: *seq, head, operations: Vec::new(), open: None })
            .add(*seq, head, operations);
    }
    runs.extend(run.and_then(Run::end));
    runs
}

struct Run {
    first: Seq,
    last: Seq,
    head: Head,
    operations: Vec<u8>,
    /// The file, offset and bytes of the last write. An adjacent write is appended.
    open: Option<(String, u64, Vec<u8>)>,
}

impl Run {
    fn add(&mut self, seq: Seq, head: Head, mut operations: &[u8]) {
        (self.last, self.head) = (seq, head);
        while let Some(operation) = Operation::decode(&mut operations) {
            match (&mut self.open, operation) {
                (Some((name, offset, bytes)), Operation::Write(other, at, more))
                    if name == other && *offset + bytes.len() as u64 == at =>
                {
                    bytes.extend(more);
                }
                (_, Operation::Write(name, at, bytes)) => {
                    self.close();
                    self.open = Some((name.to_owned(), at, bytes.to_vec()));
                }
                (_, operation) => {
                    self.close();
                    operation.encode(&mut self.operations);
                }
            }
        }
    }

    fn close(&mut self) {
        if let Some((name, offset, bytes)) = self.open.take() {
            Operation::Write(&name, offset, &bytes).encode(&mut self.operations);
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
    use super::super::entry::unfold;
    use super::*;

    fn entry(kind: EntryKind, number: u64, operations: &[Operation]) -> Vec<u8> {
        let mut bytes = Vec::new();
        operations.iter().for_each(|operation| operation.encode(&mut bytes));
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
        assert!(merge(&entries, 3, 8).is_empty() && merge(&entries, 2, 7).is_empty(), "those of others stay");
        let repeated = vec![(13, runs[0].entry.clone()), (14, entry(EntryKind::Operations, 44, &[]))];
        assert!(merge(&repeated, 3, 7).is_empty(), "those that are merged stay");
    }
}
