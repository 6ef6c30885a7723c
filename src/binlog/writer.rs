//! Writes segment files, and keeps the bytes that are not durable. After a failed sync, the contents of a file are
//! unknown, so all bytes that are not durable are written again to a new segment. Must not depend on the engine.

use std::{collections::VecDeque, io, sync::Arc};

use smallvec::SmallVec;

use super::batch::{Batch, Bytes, Cut, Synced};
use super::segment::{LogLocation, RecordKey, ASIDE, HEADER, MAGIC};
use super::storage::{LogFile, Storage};

/// The policy for syncing the log to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SyncMode {
    /// Syncs before sending a reply that acknowledges a change.
    Always,
    /// Syncs at most this many milliseconds after a write.
    Every(u64),
    /// Leaves syncing to the operating system, with exceptions that protect durable records: a segment is synced when
    /// it is complete, and the log is synced at startup and shutdown, before a segment is removed, and before the last
    /// reserved IDs are assigned.
    Never,
}

/// The maximum number of bytes that are merged into one [`Piece`].
const JOINED: usize = 64 * 1024;

struct Piece {
    segment: u64,
    offset: u64,
    bytes: Bytes,
    end: u64,
}

struct Open {
    number: u64,
    file: Arc<dyn LogFile>,
    /// The number of bytes that are written or wait to be written.
    length: u64,
    /// The log position at the end of a complete segment.
    end: u64,
}

impl Open {
    fn write(&self, mut offset: u64, bytes: &Bytes) -> io::Result<()> {
        for chunk in bytes.chunks() {
            self.file.write_at(offset, chunk)?;
            offset += chunk.len() as u64;
        }
        Ok(())
    }
}

/// A file, and the size to which it is truncated after the sync.
type Unsynced = (Arc<dyn LogFile>, Option<u64>);

pub struct SyncTask {
    files: SmallVec<[Unsynced; 1]>,
    end: Synced,
}

pub struct Writer {
    pub storage: Arc<dyn Storage>,
    log_id: u64,
    mode: SyncMode,
    prepared: VecDeque<Open>,
    current: Option<Open>,
    /// Complete segments that have not been synced since they became complete.
    left: Vec<Open>,
    /// Pieces that are not durable, oldest first. The first `written_pieces` of them are written.
    pending: VecDeque<Piece>,
    /// In [`SyncMode::Never`], written records count as durable.
    pub durable_end: LogLocation,
    written_pieces: usize,
    pub written: Synced,
    pub synced: Synced,
    /// A sync up to this position is required in every mode.
    pub demanded: u64,
    /// The position up to which a sync has begun.
    syncing: u64,
    pub spare: Vec<u8>,
}

impl Writer {
    pub fn new(storage: Arc<dyn Storage>, log_id: u64, mode: SyncMode, end: LogLocation) -> Writer {
        let (durable_end, end) = (end, Synced { location: end, position: 0 });
        Writer {
            storage,
            log_id,
            mode,
            prepared: VecDeque::new(),
            current: None,
            left: Vec::new(),
            pending: VecDeque::new(),
            durable_end,
            written_pieces: 0,
            written: end,
            synced: end,
            demanded: 0,
            syncing: 0,
            spare: Vec::new(),
        }
    }

    pub fn safe(&self) -> u64 {
        (if self.mode == SyncMode::Always { self.synced } else { self.written }).position
    }

    pub fn is_unsynced(&self) -> bool {
        self.written.position > self.synced.position
            && (self.mode != SyncMode::Never || self.synced.position < self.demanded)
    }

    pub fn go_on_in(&mut self, end: LogLocation, file: Arc<dyn LogFile>) {
        self.current = Some(Open { number: end.segment, file, length: end.at, end: 0 });
    }

    pub fn add_prepared(&mut self, number: u64, file: Arc<dyn LogFile>) {
        self.prepared.push_back(Open { number, file, length: 0, end: 0 });
    }

    pub fn write(&mut self, batch: Batch) -> io::Result<()> {
        self.demanded = self.demanded.max(batch.demanded);
        split(batch, |segment, mut bytes, end| {
            if self.current.as_ref().is_none_or(|open| open.number != segment) {
                self.turn_to(segment, end - bytes.len() as u64);
            }
            let current = self.current.as_mut().expect("a segment to write to");
            let offset = current.length;
            current.length += bytes.len() as u64;
            bytes.seal(RecordKey::new(self.log_id, segment), offset);
            self.pending.push_back(Piece { segment, offset, bytes, end });
        });
        self.write_pieces()
    }

    /// `end` is the log position at the end of the current segment.
    fn turn_to(&mut self, number: u64, end: u64) {
        let index = self.prepared.iter().position(|open| open.number == number).expect("a prepared segment");
        let next = self.prepared.remove(index).expect("the segment that was just found");
        if let Some(mut left) = self.current.replace(next) {
            left.end = end;
            self.left.push(left);
            // If a power failure loses part of the old segment, all later segments are unusable, so sync in every mode.
            self.demanded = self.demanded.max(end);
        }
    }

    fn write_pieces(&mut self) -> io::Result<()> {
        while let Some(piece) = self.pending.get(self.written_pieces) {
            let open = self.left.iter().chain(&self.current).find(|open| open.number == piece.segment);
            open.expect("the file of a pending piece").write(piece.offset, &piece.bytes)?;
            let at = piece.offset + piece.bytes.len() as u64;
            self.written = Synced { location: LogLocation { segment: piece.segment, at }, position: piece.end };
            if !self.join() {
                self.written_pieces += 1;
            }
        }
        if self.mode == SyncMode::Never {
            self.forget(self.written.position);
        }
        Ok(())
    }

    /// Merges the piece that was just written with the piece before it if both are small, in one segment, and not yet
    /// being synced. One shared buffer takes less time and memory than a buffer for each write.
    fn join(&mut self) -> bool {
        let Some(before) = self.written_pieces.checked_sub(1) else { return false };
        let (last, next) = (&self.pending[before], &self.pending[before + 1]);
        if next.segment != last.segment || last.end <= self.syncing || !last.bytes.can_append(&next.bytes, JOINED) {
            return false;
        }
        let next = self.pending.remove(before + 1).expect("a piece that was just written");
        let last = &mut self.pending[before];
        last.bytes.own.extend_from_slice(&next.bytes.own);
        last.end = next.end;
        self.reuse(next.bytes.own);
        true
    }

    fn reuse(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() > self.spare.capacity() && bytes.capacity() <= 1 << 20 {
            bytes.clear();
            self.spare = bytes;
        }
    }

    /// Returns the next sync, which the caller must run without the writer's lock.
    pub fn sync_task(&mut self) -> SyncTask {
        match self.left.last().filter(|left| self.mode == SyncMode::Never && left.end >= self.demanded) {
            Some(left) => {
                let location = LogLocation { segment: left.number, at: left.length };
                self.syncing = self.syncing.max(left.end);
                SyncTask { files: self.files_left().collect(), end: Synced { location, position: left.end } }
            }
            None => self.whole_task(),
        }
    }

    pub fn whole_task(&mut self) -> SyncTask {
        self.syncing = self.written.position;
        let current = self.current.iter().map(|open| (open.file.clone(), None));
        SyncTask { files: self.files_left().chain(current).collect(), end: self.written }
    }

    fn files_left(&self) -> impl Iterator<Item = Unsynced> + '_ {
        debug_assert_eq!(self.written_pieces, self.pending.len(), "all pieces must be written");
        self.left.iter().map(|open| (open.file.clone(), Some(open.length)))
    }

    pub fn synced(&mut self, task: &SyncTask) {
        if task.end.position >= self.synced.position {
            self.synced = task.end;
        }
        self.left.retain(|open| open.end > task.end.position);
        self.forget(self.synced.position);
    }

    fn forget(&mut self, position: u64) {
        while self.written_pieces > 0 && self.pending[0].end <= position {
            self.written_pieces -= 1;
            let piece = self.pending.pop_front().expect("a written piece");
            self.durable_end = LogLocation { segment: piece.segment, at: piece.offset + piece.bytes.len() as u64 };
            self.reuse(piece.bytes.own);
        }
    }

    pub fn first_unsynced(&self) -> u64 {
        self.left.iter().chain(&self.current).map(|open| open.number).min().unwrap_or(0)
    }

    pub fn unsynced_bytes(&self) -> u64 {
        self.pending.iter().map(|piece| (piece.bytes.len() - header_size(piece)) as u64).sum()
    }

    /// Writes to a new segment all records that are not durable. After an error, the records remain pending.
    pub fn take_over(&mut self, pending: Batch, header: &Batch, file: Arc<dyn LogFile>) -> io::Result<()> {
        split(pending, |segment, bytes, end| self.pending.push_back(Piece { segment, offset: 0, bytes, end }));
        let number = header.cuts[0].segment;
        let mut bytes = header.bytes.part(0, header.bytes.own.len());
        let key = RecordKey::new(self.log_id, number);
        self.pending.iter().for_each(|piece| piece.bytes.recode(header_size(piece), key, 0, &mut bytes));
        let open = Open { number, file, length: bytes.len() as u64, end: 0 };
        open.write(0, &bytes)?;
        open.file.sync()?;
        self.pending.clear();
        self.written_pieces = 0;
        self.left.clear();
        self.prepared.clear();
        let location = LogLocation { segment: number, at: open.length };
        self.written = Synced { location, position: header.end };
        self.synced = self.written;
        self.durable_end = location;
        self.current = Some(open);
        Ok(())
    }
}

fn split(mut batch: Batch, mut visit: impl FnMut(u64, Bytes, u64)) {
    let total = batch.bytes.own.len();
    let mut end = batch.end - batch.bytes.len() as u64;
    let first = Cut { at: 0, segment: batch.segment };
    let ends = batch.cuts.iter().map(|cut| cut.at).chain([total]);
    for (cut, to) in std::iter::once(&first).chain(&batch.cuts).zip(ends).filter(|(cut, to)| cut.at < *to) {
        // A batch that lies in one segment, the usual case, is not copied.
        let is_whole = to - cut.at == total;
        let part = if is_whole { std::mem::take(&mut batch.bytes) } else { batch.bytes.part(cut.at, to) };
        end += part.len() as u64;
        visit(cut.segment, part, end);
    }
}

/// Moves a damaged file to a subdirectory, or renames the file if the move fails.
pub fn set_aside(storage: &dyn Storage, name: &str) -> io::Result<()> {
    storage.rename(name, &format!("{ASIDE}/{name}")).or_else(|_| storage.rename(name, &format!("{name}.{ASIDE}")))
}

/// Syncs and removes a segment. A power failure can undo the removal, and a segment that was never synced could
/// reappear damaged. The damage would invalidate the record which states that the segment is not needed.
pub fn remove_unsynced(storage: &dyn Storage, name: &str) -> io::Result<()> {
    storage.open(name)?.sync()?;
    storage.remove(name)
}

fn header_size(piece: &Piece) -> usize {
    HEADER * usize::from(piece.bytes.own.starts_with(MAGIC))
}

impl SyncTask {
    /// Syncs all files, and then truncates complete segments to their used size.
    pub fn run(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|(file, _)| file.sync())?;
        self.files.iter().try_for_each(|(file, length)| length.map_or(Ok(()), |length| file.truncate(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::super::storage::Folder;
    use super::*;

    struct Nowhere;

    impl LogFile for Nowhere {
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn truncate(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    const BEGIN: LogLocation = LogLocation { segment: 1, at: 100 };

    fn writer(mode: SyncMode) -> Writer {
        let mut writer = Writer::new(Arc::new(Folder::new("no-folder")), 9, mode, BEGIN);
        writer.go_on_in(BEGIN, Arc::new(Nowhere));
        writer
    }

    /// Returns a batch with one record, and the size of the record. `before` is the log position of the record.
    fn batch(before: u64) -> (Batch, u64) {
        let mut bytes = Bytes::with(Vec::new());
        let length = bytes.append(&Record::Delete(7), RecordKey::new(9, 1), BEGIN.at + before, None) as u64;
        (Batch { segment: 1, bytes, cuts: Vec::new(), end: before + length, demanded: 0 }, length)
    }

    #[test]
    fn written_bytes_are_kept_until_the_next_sync() {
        for mode in [SyncMode::Always, SyncMode::Every(50)] {
            let mut writer = writer(mode);
            let mut end = 0;
            for _ in 0..3 {
                assert!(!writer.is_unsynced() && writer.unsynced_bytes() == 0, "{mode:?}");
                let (batch, length) = batch(end);
                writer.write(batch).expect("a write");
                assert!(writer.is_unsynced() && writer.unsynced_bytes() == length, "{mode:?}");
                assert_eq!(writer.safe(), if mode == SyncMode::Always { end } else { end + length });
                end += length;
                let task = writer.sync_task();
                task.run().expect("a sync");
                writer.synced(&task);
                assert_eq!((writer.safe(), writer.synced.position), (end, end));
                assert_eq!(writer.durable_end, LogLocation { segment: 1, at: BEGIN.at + end });
            }
        }
    }

    #[test]
    fn writes_between_two_syncs_are_kept_as_one_piece() {
        let mut writer = writer(SyncMode::Every(50));
        let mut end = 0;
        let mut write = |writer: &mut Writer| {
            let (batch, length) = batch(end);
            writer.write(batch).expect("a write");
            end += length;
            length
        };
        let length = write(&mut writer);
        write(&mut writer);
        assert_eq!((writer.pending.len(), writer.unsynced_bytes()), (1, 2 * length));
        let task = writer.sync_task();
        write(&mut writer);
        write(&mut writer);
        assert_eq!(writer.pending.len(), 2, "the sync that has begun covers only the first two writes");
        writer.synced(&task);
        assert_eq!((writer.pending.len(), writer.unsynced_bytes()), (1, 2 * length));
        assert_eq!(writer.durable_end, LogLocation { segment: 1, at: BEGIN.at + 2 * length });
        let expected = [batch(2 * length), batch(3 * length)].map(|(batch, _)| batch.bytes.own).concat();
        assert_eq!(writer.pending[0].bytes.own, expected);
    }

    #[test]
    fn without_syncs_only_demanded_syncs_run_and_written_bytes_are_not_kept() {
        let mut writer = writer(SyncMode::Never);
        let (first, length) = batch(0);
        writer.write(first).expect("a write");
        assert_eq!((writer.unsynced_bytes(), writer.safe()), (0, length));
        assert_eq!(writer.durable_end, LogLocation { segment: 1, at: BEGIN.at + length });
        assert!(!writer.is_unsynced());
        writer.demanded = u64::MAX;
        assert!(writer.is_unsynced());
        let task = writer.whole_task();
        writer.synced(&task);
        assert!(!writer.is_unsynced());
    }

    #[test]
    fn earlier_segments_are_not_synced_after_a_takeover() {
        let mut writer = writer(SyncMode::Always);
        writer.add_prepared(2, Arc::new(Nowhere));
        let (mut first, length) = batch(0);
        // The record is completely in the second segment.
        first.cuts = vec![Cut { at: 0, segment: 2 }];
        writer.write(first).expect("a write");
        assert_eq!((writer.first_unsynced(), writer.sync_task().files.len()), (1, 2));
        let nothing = |end| Batch { segment: 2, bytes: Bytes::default(), cuts: Vec::new(), end, demanded: 0 };
        let header = Batch { cuts: vec![Cut { at: 0, segment: 3 }], ..nothing(length) };
        writer.take_over(nothing(length), &header, Arc::new(Nowhere)).expect("a recovered disk");
        assert_eq!((writer.first_unsynced(), writer.sync_task().files.len()), (3, 1));
        assert_eq!((writer.unsynced_bytes(), writer.safe()), (0, length));
        assert!(!writer.is_unsynced());
    }

    #[test]
    fn a_segment_left_during_a_sync_is_synced_again() {
        let mut writer = writer(SyncMode::Always);
        let (first, length) = batch(0);
        writer.write(first).expect("a write");
        let task = writer.sync_task();
        let (more, _) = batch(length);
        writer.write(more).expect("a write");
        writer.add_prepared(2, Arc::new(Nowhere));
        let (mut last, _) = batch(2 * length);
        last.cuts = vec![Cut { at: 0, segment: 2 }];
        writer.write(last).expect("a write");
        writer.synced(&task);
        assert_eq!((writer.first_unsynced(), writer.sync_task().files.len()), (1, 2));
        let task = writer.sync_task();
        writer.synced(&task);
        assert_eq!((writer.first_unsynced(), writer.sync_task().files.len()), (2, 1));
    }
}
