//! The log as the disk's side sees it: bytes into segment files, and how far they are safe.
//!
//! Owns the open files, and every byte that is not safe yet: if the disk fails, those are written again into a new segment,
//! since after a failed sync nobody can say what the old one holds. Must not know the engine.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::bytes::Bytes;
use super::record::{HEADER, MAGIC};
use super::storage::{LogFile, Storage};
use super::terms::{Batch, Retired};

/// When the log is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    /// Before any promise.
    Always,
    /// So many milliseconds after a write at the latest.
    Every(u64),
    /// By the system alone.
    Never,
}

/// The name of a segment's file.
pub fn segment_name(number: u64) -> String {
    format!("segment.{number:010}")
}

/// Numbers from this one on are not ours: it takes centuries to get there.
const NUMBERS: u64 = 1 << 31;

/// The number of the segment in a file of this name.
pub fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("segment.")?.parse().ok()?;
    (number < NUMBERS && segment_name(number) == name).then_some(number)
}

/// The subfolder for what is kept and not used any more.
pub const ASIDE: &str = "damaged";

struct Piece {
    segment: u64,
    /// Where in the segment they belong.
    place: u64,
    bytes: Bytes,
    /// The position behind it.
    end: u64,
}

struct Open {
    number: u64,
    file: Arc<dyn LogFile>,
    /// Bytes that the file was made for.
    size: u64,
    /// Bytes written, or to be written.
    length: u64,
}

impl Open {
    /// Writes bytes at a place. Where the file must grow, a zero byte more stays behind them: without space at its end, it
    /// would be taken for one that was left in order. So that comes first.
    fn write(&self, mut place: u64, bytes: &Bytes) -> io::Result<()> {
        let end = place + bytes.len() as u64;
        if end >= self.size {
            self.file.write_at(end, &[0])?;
        }
        for chunk in bytes.chunks() {
            self.file.write_at(place, chunk)?;
            place += chunk.len() as u64;
        }
        Ok(())
    }
}

/// What one sync has to do: files in order, each cut to its length unless it is still written to; afterwards, so that a
/// segment that was cut is known to be whole.
pub struct SyncTask {
    files: Vec<(Arc<dyn LogFile>, Option<u64>)>,
    /// The position that is safe afterwards.
    pub end: u64,
}

/// See the module's page.
pub struct Writer {
    storage: Arc<dyn Storage>,
    mode: SyncMode,
    prepared: VecDeque<Open>,
    current: Option<Open>,
    /// Segments that were left and not synced since.
    left: Vec<Open>,
    /// Without syncs: segments that were left and written to their ends, and not cut to their lengths yet.
    uncut: Vec<Open>,
    /// Written but not safe, and behind them not even written, both in order.
    unsafe_pieces: VecDeque<Piece>,
    /// How many of the pieces are written.
    written_pieces: usize,
    written: u64,
    synced: u64,
    spare: Vec<u8>,
}

impl Writer {
    /// Writes into segments in `storage`.
    pub fn new(storage: Arc<dyn Storage>, mode: SyncMode) -> Writer {
        Writer {
            storage,
            mode,
            prepared: VecDeque::new(),
            current: None,
            left: Vec::new(),
            uncut: Vec::new(),
            unsafe_pieces: VecDeque::new(),
            written_pieces: 0,
            written: 0,
            synced: 0,
            spare: Vec::new(),
        }
    }

    /// The position up to which promises hold.
    pub fn safe(&self) -> u64 {
        match self.mode {
            SyncMode::Always => self.synced,
            SyncMode::Every(_) | SyncMode::Never => self.written,
        }
    }

    /// The position up to which the log would survive a power cut; without syncs, the one up to which it is written.
    pub fn settled(&self) -> u64 {
        if self.mode == SyncMode::Never {
            self.written
        } else {
            self.synced
        }
    }

    /// Whether a sync is owed.
    pub fn is_unsynced(&self) -> bool {
        self.mode != SyncMode::Never && self.written > self.synced
    }

    /// A buffer to append into.
    pub fn spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    /// A segment that was made ready by [`Writer::storage`]'s `create`, for so many bytes.
    pub fn add_prepared(&mut self, number: u64, size: u64, file: Arc<dyn LogFile>) {
        self.prepared.push_back(Open { number, file, size, length: 0 });
    }

    /// Where the files are.
    pub fn storage(&self) -> Arc<dyn Storage> {
        self.storage.clone()
    }

    /// Writes a batch, and before it whatever could not be written last time.
    pub fn write(&mut self, batch: Batch) -> io::Result<()> {
        self.queue(batch);
        self.write_pieces()
    }

    /// Divides a batch into the pieces of its segments.
    fn queue(&mut self, mut batch: Batch) {
        let total = batch.bytes.place();
        let mut end = batch.end - batch.bytes.len() as u64;
        let first = batch.cuts.first().map_or(total, |cut| cut.at);
        if first > 0 {
            // The usual case keeps the buffer as it is.
            let bytes = if first == total { std::mem::take(&mut batch.bytes) } else { batch.bytes.part(0, first) };
            self.push_piece(bytes, &mut end);
        }
        let ends = batch.cuts.iter().skip(1).map(|cut| cut.at).chain([total]);
        for (cut, to) in batch.cuts.iter().zip(ends) {
            self.turn_to(cut.segment);
            self.push_piece(batch.bytes.part(cut.at, to), &mut end);
        }
    }

    /// The next piece, which moves the position `end` behind itself.
    fn push_piece(&mut self, mut bytes: Bytes, end: &mut u64) {
        let current = self.current.as_mut().expect("a segment to write to");
        let (segment, place) = (current.number, current.length);
        current.length += bytes.len() as u64;
        *end += bytes.len() as u64;
        bytes.seal(segment);
        self.unsafe_pieces.push_back(Piece { segment, place, bytes, end: *end });
    }

    /// The next piece goes into this segment, which must be prepared.
    fn turn_to(&mut self, number: u64) {
        let place = self.prepared.iter().position(|open| open.number == number).expect("a prepared segment");
        let next = self.prepared.remove(place).expect("it was just found");
        self.left.extend(self.current.replace(next));
    }

    fn write_pieces(&mut self) -> io::Result<()> {
        while let Some(piece) = self.unsafe_pieces.get(self.written_pieces) {
            self.open(piece.segment).expect("the file of a piece that is not safe").write(piece.place, &piece.bytes)?;
            self.written = piece.end;
            self.written_pieces += 1;
        }
        if self.mode == SyncMode::Never {
            self.uncut.append(&mut self.left);
            self.forget(self.written);
        }
        Ok(())
    }

    fn open(&self, number: u64) -> Option<&Open> {
        self.left.iter().chain(&self.current).find(|open| open.number == number)
    }

    /// Files to be cut to these lengths, without holding the writer; with syncs, those cut them.
    pub fn take_uncut(&mut self) -> Vec<(Arc<dyn LogFile>, u64)> {
        self.uncut.drain(..).map(|open| (open.file, open.length)).collect()
    }

    /// What a sync has to do now; carry it out with [`SyncTask::run`], without holding the writer, and report it.
    pub fn sync_task(&self) -> SyncTask {
        let left = self.left.iter().map(|open| (open.file.clone(), Some(open.length)));
        let current = self.current.iter().map(|open| (open.file.clone(), None));
        SyncTask { files: left.chain(current).collect(), end: self.written }
    }

    /// A sync has succeeded.
    pub fn synced(&mut self, task: &SyncTask) {
        self.synced = self.synced.max(task.end);
        let left = task.files.len().saturating_sub(1).min(self.left.len());
        self.left.drain(..left);
        self.forget(self.synced);
    }

    /// Pieces up to a position are safe.
    fn forget(&mut self, position: u64) {
        while self.written_pieces > 0 && self.unsafe_pieces[0].end <= position {
            self.written_pieces -= 1;
            let mut bytes = self.unsafe_pieces.pop_front().expect("a written piece").bytes.into_spare();
            if bytes.capacity() > self.spare.capacity() && bytes.capacity() <= 1 << 20 {
                bytes.clear();
                self.spare = bytes;
            }
        }
    }

    /// Cuts the segment that is written to behind its last record: the mark of a log that was left in order.
    pub fn close(&self) -> io::Result<()> {
        match &self.current {
            Some(open) if self.unsafe_pieces.len() == self.written_pieces => {
                open.file.truncate(open.length)?;
                open.file.sync()
            }
            _ => Ok(()),
        }
    }

    /// The file that is written to.
    pub fn current_file(&self) -> Option<Arc<dyn LogFile>> {
        self.current.as_ref().map(|open| open.file.clone())
    }

    /// The first segment of which not everything is known to be on the disk.
    pub fn first_unsafe(&self) -> u64 {
        self.left.iter().chain(&self.current).map(|open| open.number).min().unwrap_or(0)
    }

    /// Bytes that are not safe.
    pub fn unsafe_bytes(&self) -> u64 {
        self.unsafe_pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }

    /// After a failure: writes everything that is not safe into a new segment, made for `size` bytes, behind its header, and
    /// syncs it. On an error everything is as it was, but for what the new file holds.
    pub fn take_over(&mut self, pending: Batch, header: &Batch, size: u64, file: Arc<dyn LogFile>) -> io::Result<()> {
        self.queue_pending(pending);
        let number = header.cuts[0].segment;
        let mut bytes = header.bytes.part(0, header.bytes.place());
        self.unsafe_pieces.iter().for_each(|piece| recode(piece, number, &mut bytes));
        let open = Open { number, file, size, length: bytes.len() as u64 };
        open.write(0, &bytes)?;
        if self.mode != SyncMode::Never {
            open.file.sync()?;
        }
        self.unsafe_pieces.clear();
        self.written_pieces = 0;
        self.left.clear();
        self.prepared.clear();
        (self.written, self.synced) = (header.end, header.end);
        self.current = Some(open);
        Ok(())
    }

    /// Like [`Writer::queue`], for bytes that will not be written where they were meant to be.
    fn queue_pending(&mut self, batch: Batch) {
        let mut segment = batch.segment;
        let mut from = 0;
        let mut end = batch.end - batch.bytes.len() as u64;
        let ends = batch.cuts.iter().map(|cut| (cut.at, Some(cut.segment))).chain([(batch.bytes.place(), None)]);
        for (to, next) in ends {
            if to > from {
                let bytes = batch.bytes.part(from, to);
                end += bytes.len() as u64;
                self.unsafe_pieces.push_back(Piece { segment, place: 0, bytes, end });
            }
            segment = next.unwrap_or(segment);
            from = to;
        }
    }

    /// Takes a segment that nothing needs off the disk, or sets it aside.
    pub fn drop_segment(storage: &dyn Storage, retired: Retired) -> io::Result<()> {
        let name = segment_name(retired.number);
        if retired.damaged {
            storage.rename(&name, &format!("{ASIDE}/{name}"))
        } else {
            storage.remove(&name)
        }
    }
}

/// Appends the records of a piece as records of another segment.
fn recode(piece: &Piece, number: u64, out: &mut Bytes) {
    let header = if piece.bytes.starts_with(MAGIC) { HEADER } else { 0 };
    piece.bytes.recode(header, number, out);
}

impl SyncTask {
    /// Syncs.
    pub fn run(&self) -> io::Result<()> {
        for (file, _) in &self.files {
            file.sync()?;
        }
        // Not before the header of the next one is there for good: a log that ends in a file that was cut was left in order.
        for (file, length) in &self.files {
            if let Some(length) = length {
                file.truncate(*length)?;
            }
        }
        Ok(())
    }
}
