//! The log as the disk sees it: bytes in segment files, and how far they are durable.
//!
//! Owns the open files, and every byte that is not durable yet: if the disk fails, these bytes are written again to a
//! new segment, since the contents of the old one are unknown after a failed sync. Must not know the engine.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::bytes::Bytes;
use super::segment::{segment_name, Place, RecordKey, ASIDE, HEADER, MAGIC};
use super::storage::{LogFile, Storage};
use super::types::{Batch, Retired, Synced};

/// When the log is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    /// Before any reply that depends on it.
    Always,
    /// At most this many milliseconds after a write.
    Every(u64),
    /// By the system, except where already durable records would otherwise be lost: a completed segment is synced, and
    /// so is the log before a segment is removed and before the last reserved IDs are assigned.
    Never,
}

/// The maximum size of joined pieces.
const JOINED: usize = 64 * 1024;

struct Piece {
    segment: u64,
    /// The offset in the segment.
    place: u64,
    bytes: Bytes,
    /// The position after the bytes.
    end: u64,
}

struct Open {
    number: u64,
    file: Arc<dyn LogFile>,
    /// The number of bytes written, or about to be written.
    length: u64,
    /// The position after them, once the segment is complete.
    end: u64,
}

impl Open {
    fn write(&self, mut place: u64, bytes: &Bytes) -> io::Result<()> {
        for chunk in bytes.chunks() {
            self.file.write_at(place, chunk)?;
            place += chunk.len() as u64;
        }
        Ok(())
    }
}

/// The work of one sync: files in order, each with the length to which it is truncated if the segment is complete.
pub struct SyncTask {
    files: Vec<(Arc<dyn LogFile>, Option<u64>)>,
    /// How far the log is synced afterwards.
    end: Synced,
}

pub struct Writer {
    storage: Arc<dyn Storage>,
    /// The random number of the log.
    log: u64,
    mode: SyncMode,
    prepared: VecDeque<Open>,
    current: Option<Open>,
    /// Complete segments that were not synced since.
    left: Vec<Open>,
    /// Pieces that are not durable, in order; the first `written_pieces` are written.
    pending: VecDeque<Piece>,
    /// The beginning of the pieces: everything before it is durable, or with `-F` written.
    durable_end: Place,
    written_pieces: usize,
    written: Synced,
    synced: Synced,
    /// The position up to which a sync is due in any mode.
    demanded: u64,
    /// The position up to which a sync has begun.
    syncing: u64,
    spare: Vec<u8>,
}

impl Writer {
    /// Creates a writer for segments in `storage`, of the log with this number. Everything before `end` is synced.
    pub fn new(storage: Arc<dyn Storage>, log: u64, mode: SyncMode, end: Place) -> Writer {
        let (durable_end, end) = (end, Synced { place: end, position: 0 });
        Writer {
            storage,
            log,
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

    /// The position up to which replies may be sent.
    pub fn safe(&self) -> u64 {
        match self.mode {
            SyncMode::Always => self.synced.position,
            SyncMode::Every(_) | SyncMode::Never => self.written.position,
        }
    }

    /// The position up to which the log is written.
    pub fn written(&self) -> u64 {
        self.written.position
    }

    /// How far the log survives a power failure.
    pub fn synced_to(&self) -> Synced {
        self.synced
    }

    /// Makes a sync due for everything that will be written, in any mode.
    pub fn demand_sync(&mut self) {
        self.demanded = u64::MAX;
    }

    /// Returns `true` if a sync is due.
    pub fn is_unsynced(&self) -> bool {
        self.written.position > self.synced.position
            && (self.mode != SyncMode::Never || self.synced.position < self.demanded)
    }

    /// Continues to write to an existing segment, after its end.
    pub fn go_on_in(&mut self, end: Place, file: Arc<dyn LogFile>) {
        self.current = Some(Open { number: end.segment, file, length: end.at, end: 0 });
    }

    /// Returns a buffer for reuse.
    pub fn spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    pub fn add_prepared(&mut self, number: u64, file: Arc<dyn LogFile>) {
        self.prepared.push_back(Open { number, file, length: 0, end: 0 });
    }

    pub fn storage(&self) -> Arc<dyn Storage> {
        self.storage.clone()
    }

    /// Writes a batch, after everything that could not be written before.
    pub fn write(&mut self, batch: Batch) -> io::Result<()> {
        self.queue(batch);
        self.write_pieces()
    }

    /// Divides a batch into the pieces of its segments.
    fn queue(&mut self, mut batch: Batch) {
        self.demanded = self.demanded.max(batch.demanded);
        let total = batch.bytes.place();
        let mut end = batch.end - batch.bytes.len() as u64;
        let first = batch.cuts.first().map_or(total, |cut| cut.at);
        if first > 0 {
            // The usual case needs no copy.
            let bytes = if first == total { std::mem::take(&mut batch.bytes) } else { batch.bytes.part(0, first) };
            self.push_piece(bytes, &mut end);
        }
        let ends = batch.cuts.iter().skip(1).map(|cut| cut.at).chain([total]);
        for (cut, to) in batch.cuts.iter().zip(ends) {
            self.turn_to(cut.segment, end);
            self.push_piece(batch.bytes.part(cut.at, to), &mut end);
        }
    }

    /// Adds the next piece, which advances the position `end`.
    fn push_piece(&mut self, mut bytes: Bytes, end: &mut u64) {
        let current = self.current.as_mut().expect("a segment to write to");
        let (segment, place) = (current.number, current.length);
        current.length += bytes.len() as u64;
        *end += bytes.len() as u64;
        bytes.seal(RecordKey::new(self.log, segment), place);
        self.pending.push_back(Piece { segment, place, bytes, end: *end });
    }

    /// Continues in this segment, which must be prepared.
    fn turn_to(&mut self, number: u64, end: u64) {
        let place = self.prepared.iter().position(|open| open.number == number).expect("a prepared segment");
        let next = self.prepared.remove(place).expect("it was just found");
        if let Some(mut left) = self.current.replace(next) {
            left.end = end;
            self.left.push(left);
            // In any mode: what a power failure takes from a segment makes everything after it useless.
            self.demanded = self.demanded.max(end);
        }
    }

    fn write_pieces(&mut self) -> io::Result<()> {
        while let Some(piece) = self.pending.get(self.written_pieces) {
            self.open(piece.segment).expect("the file of a pending piece").write(piece.place, &piece.bytes)?;
            let at = piece.place + piece.bytes.len() as u64;
            self.written = Synced { place: Place { segment: piece.segment, at }, position: piece.end };
            if !self.join() {
                self.written_pieces += 1;
            }
        }
        if self.mode == SyncMode::Never {
            self.forget(self.written.position);
        }
        Ok(())
    }

    /// Appends the piece that was just written to the previous one if one sync makes both durable: copying a few bytes
    /// takes less time and memory than a buffer for each write. Returns `false` if the piece stays separate.
    fn join(&mut self) -> bool {
        let Some(before) = self.written_pieces.checked_sub(1) else { return false };
        let (last, next) = (&self.pending[before], &self.pending[before + 1]);
        if next.segment != last.segment || last.end <= self.syncing || !last.bytes.has_room(&next.bytes, JOINED) {
            return false;
        }
        let next = self.pending.remove(before + 1).expect("a piece that was just written");
        let last = &mut self.pending[before];
        last.bytes.extend(next.bytes.own());
        last.end = next.end;
        self.reuse(next.bytes);
        true
    }

    fn reuse(&mut self, bytes: Bytes) {
        let mut bytes = bytes.into_spare();
        if bytes.capacity() > self.spare.capacity() && bytes.capacity() <= 1 << 20 {
            bytes.clear();
            self.spare = bytes;
        }
    }

    fn open(&self, number: u64) -> Option<&Open> {
        self.left.iter().chain(&self.current).find(|open| open.number == number)
    }

    /// Returns the sync that is due. Run it without holding the writer's lock, then call [`Writer::synced`].
    pub fn sync_task(&mut self) -> SyncTask {
        match self.left.last().filter(|left| self.mode == SyncMode::Never && left.end >= self.demanded) {
            Some(left) => {
                let place = Place { segment: left.number, at: left.length };
                self.syncing = self.syncing.max(left.end);
                SyncTask { files: self.files_left().collect(), end: Synced { place, position: left.end } }
            }
            None => self.whole_task(),
        }
    }

    /// Returns a sync of everything that is written, in any mode.
    pub fn whole_task(&mut self) -> SyncTask {
        self.syncing = self.written.position;
        let current = self.current_file().map(|file| (file, None));
        SyncTask { files: self.files_left().chain(current).collect(), end: self.written }
    }

    /// Returns the complete files that were not synced since, each with its length. After a failed write no sync is
    /// requested, so all pieces are written.
    fn files_left(&self) -> impl Iterator<Item = (Arc<dyn LogFile>, Option<u64>)> + '_ {
        debug_assert_eq!(self.written_pieces, self.pending.len(), "all pieces are written");
        self.left.iter().map(|open| (open.file.clone(), Some(open.length)))
    }

    pub fn synced(&mut self, task: &SyncTask) {
        if task.end.position >= self.synced.position {
            self.synced = task.end;
        }
        self.left.retain(|open| open.end > task.end.position);
        self.forget(self.synced.position);
    }

    /// Removes pieces up to a position.
    fn forget(&mut self, position: u64) {
        while self.written_pieces > 0 && self.pending[0].end <= position {
            self.written_pieces -= 1;
            let piece = self.pending.pop_front().expect("a written piece");
            self.durable_end = Place { segment: piece.segment, at: piece.place + piece.bytes.len() as u64 };
            self.reuse(piece.bytes);
        }
    }

    /// The file of the current segment.
    pub fn current_file(&self) -> Option<Arc<dyn LogFile>> {
        self.current.as_ref().map(|open| open.file.clone())
    }

    /// The first segment that may not be completely durable.
    pub fn first_unsynced(&self) -> u64 {
        self.left.iter().chain(&self.current).map(|open| open.number).min().unwrap_or(0)
    }

    /// The end of the durable part of the log.
    pub fn durable_end(&self) -> Place {
        self.durable_end
    }

    /// The size of the records that are not durable.
    pub fn unsynced_bytes(&self) -> u64 {
        self.pending.iter().map(|piece| (piece.bytes.len() - header_of(piece)) as u64).sum()
    }

    /// Recovers from a failure: writes everything that is not durable to a new segment, after its header, and syncs it.
    /// On an error nothing changes, except the contents of the new file.
    pub fn take_over(&mut self, pending: Batch, header: &Batch, file: Arc<dyn LogFile>) -> io::Result<()> {
        self.queue_pending(pending);
        let number = header.cuts[0].segment;
        let mut bytes = header.bytes.part(0, header.bytes.place());
        let key = RecordKey::new(self.log, number);
        self.pending.iter().for_each(|piece| piece.bytes.recode(header_of(piece), key, 0, &mut bytes));
        let open = Open { number, file, length: bytes.len() as u64, end: 0 };
        open.write(0, &bytes)?;
        open.file.sync()?;
        self.pending.clear();
        self.written_pieces = 0;
        self.left.clear();
        self.prepared.clear();
        let place = Place { segment: number, at: open.length };
        self.written = Synced { place, position: header.end };
        self.synced = self.written;
        self.durable_end = place;
        self.current = Some(open);
        Ok(())
    }

    /// Like [`Writer::queue`], for bytes that will be written to another segment.
    fn queue_pending(&mut self, batch: Batch) {
        let mut segment = batch.segment;
        let mut from = 0;
        let mut end = batch.end - batch.bytes.len() as u64;
        let ends = batch.cuts.iter().map(|cut| (cut.at, Some(cut.segment))).chain([(batch.bytes.place(), None)]);
        for (to, next) in ends {
            if to > from {
                let bytes = batch.bytes.part(from, to);
                end += bytes.len() as u64;
                self.pending.push_back(Piece { segment, place: 0, bytes, end });
            }
            segment = next.unwrap_or(segment);
            from = to;
        }
    }

    /// Removes a segment that is not needed, or sets it aside if it is damaged.
    pub fn drop_segment(storage: &dyn Storage, retired: Retired) -> io::Result<()> {
        let name = segment_name(retired.number);
        if retired.damaged {
            set_aside(storage, &name)
        } else {
            storage.remove(&name)
        }
    }
}

/// Keeps a file for examination: in a subdirectory, or under another name if that fails.
pub fn set_aside(storage: &dyn Storage, name: &str) -> io::Result<()> {
    storage.rename(name, &format!("{ASIDE}/{name}")).or_else(|_| storage.rename(name, &format!("{name}.{ASIDE}")))
}

/// The size of the header at the beginning of a piece, if there is one.
fn header_of(piece: &Piece) -> usize {
    if piece.bytes.starts_with(MAGIC) {
        HEADER
    } else {
        0
    }
}

impl SyncTask {
    /// Syncs, then truncates complete segments, whose remaining space is not needed.
    pub fn run(&self) -> io::Result<()> {
        for (file, _) in &self.files {
            file.sync()?;
        }
        for (file, length) in &self.files {
            if let Some(length) = length {
                file.truncate(*length)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::super::storage::Folder;
    use super::super::types::Cut;
    use super::*;

    /// A file that discards its bytes.
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

    const BEGIN: Place = Place { segment: 1, at: 100 };

    fn writer(mode: SyncMode) -> Writer {
        let mut writer = Writer::new(Arc::new(Folder::new("no-folder")), 9, mode, BEGIN);
        writer.go_on_in(BEGIN, Arc::new(Nowhere));
        writer
    }

    /// A batch with one record, and its size; `before`: the bytes before it in the log.
    fn batch(before: u64) -> (Batch, u64) {
        let mut bytes = Bytes::with(Vec::new());
        let length = bytes.append(&Record::Delete(7), RecordKey::new(9, 1), BEGIN.at + before, None) as u64;
        (Batch { log: 9, segment: 1, bytes, cuts: Vec::new(), end: before + length, demanded: 0 }, length)
    }

    #[test]
    fn a_sync_is_owed_from_a_write_to_the_next_sync_and_bytes_are_kept_as_long() {
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
                assert_eq!((writer.safe(), writer.synced_to().position), (end, end));
                assert_eq!(writer.durable_end(), Place { segment: 1, at: BEGIN.at + end });
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
        assert_eq!(writer.durable_end(), Place { segment: 1, at: BEGIN.at + 2 * length });
        let expected = [batch(2 * length), batch(3 * length)].map(|(batch, _)| batch.bytes.own().to_vec()).concat();
        assert_eq!(writer.pending[0].bytes.own(), expected);
    }

    #[test]
    fn without_syncs_nothing_is_kept_that_is_written_and_none_is_owed_unless_it_is_demanded() {
        let mut writer = writer(SyncMode::Never);
        let (first, length) = batch(0);
        writer.write(first).expect("a write");
        assert_eq!((writer.unsynced_bytes(), writer.safe()), (0, length));
        assert_eq!(writer.durable_end(), Place { segment: 1, at: BEGIN.at + length });
        assert!(!writer.is_unsynced());
        writer.demand_sync();
        assert!(writer.is_unsynced());
        let task = writer.whole_task();
        writer.synced(&task);
        assert!(!writer.is_unsynced());
    }

    #[test]
    fn once_another_segment_took_over_those_before_it_are_synced_no_more() {
        let mut writer = writer(SyncMode::Always);
        writer.add_prepared(2, Arc::new(Nowhere));
        let (mut first, length) = batch(0);
        // The record is completely in the second segment.
        first.cuts = vec![Cut { at: 0, segment: 2 }];
        writer.write(first).expect("a write");
        assert_eq!((writer.first_unsynced(), writer.sync_task().files.len()), (1, 2));
        let nothing = |end| Batch { log: 9, segment: 2, bytes: Bytes::default(), cuts: Vec::new(), end, demanded: 0 };
        let header = Batch { cuts: vec![Cut { at: 0, segment: 3 }], ..nothing(length) };
        writer.take_over(nothing(length), &header, Arc::new(Nowhere)).expect("a disk that is back");
        assert_eq!((writer.first_unsynced(), writer.sync_task().files.len()), (3, 1));
        assert_eq!((writer.unsynced_bytes(), writer.safe()), (0, length));
        assert!(!writer.is_unsynced());
    }

    #[test]
    fn a_segment_that_was_left_during_a_sync_is_owed_one() {
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
