//! A folder whose every change also goes into the shared log.
//!
//! Owns the order of changes: they are done to the local folder at once, queued, and appended to the shared log when
//! the binlog syncs. So the binlog's own rule, that nothing is promised before a sync has returned, becomes: not before
//! the shared log holds it. Must not decide who may write; it only learns that it may no longer.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::entry::{is_segment, note_created, EntryKind, Head, Operation};
use super::shared_log::{Epoch, Fail, Seq, SharedLog};
use crate::binlog::{LogFile, Storage};
use crate::lease::Lease;

/// Bytes of operations in an entry, unless one operation alone is larger: much larger entries cost the shared log more
/// for each byte.
const ENTRY: usize = 32 * 1024;

/// Bytes of a file in one operation. With base64 and its head it stays well below etcd's limit of 1.5 MiB for a
/// request.
const PIECE: usize = 512 * 1024;

/// How long an active server may answer after it sent what the shared log confirmed last.
pub const LEASE: Duration = Duration::from_secs(1);

/// Between two tries of an append that failed.
const RETRY: Duration = Duration::from_millis(20);

/// Of the shared log's quota, the part that new segments may not use, so that deletes always find space: a fifth.
const KEPT: u64 = 5;

/// The active server's end of the shared log.
pub struct Shipper {
    log: Arc<dyn SharedLog>,
    lease: Arc<Lease>,
    queue: Mutex<Queue>,
    place: Mutex<Position>,
    /// Bytes used and allowed, as they were last seen.
    room: Mutex<Option<(u64, u64)>>,
}

/// Operations that are not in the shared log yet, each encoded.
#[derive(Default)]
struct Queue {
    operations: Vec<Vec<u8>>,
}

/// Where the next entry goes.
struct Position {
    head: Head,
    end: Seq,
    /// In which entry each file was made.
    created: BTreeMap<String, Seq>,
}

impl Shipper {
    /// Of a server that has just claimed the log with the entry `end` by `head`; `created` tells where its files were
    /// made.
    pub fn new(
        log: Arc<dyn SharedLog>,
        lease: Arc<Lease>,
        head: Head,
        end: Seq,
        created: BTreeMap<String, Seq>,
    ) -> Shipper {
        let place = Mutex::new(Position { head, end, created });
        Shipper { log, lease, queue: Mutex::default(), place, room: Mutex::new(None) }
    }

    /// The epoch that this server writes in.
    pub fn epoch(&self) -> Epoch {
        self.place.lock().head.epoch
    }

    /// The last entry that this server knows to be in the log, and where its files were made.
    pub fn position(&self) -> (Seq, BTreeMap<String, Seq>) {
        let place = self.place.lock();
        (place.end, place.created.clone())
    }

    /// The first entry that somebody who starts with nothing needs.
    pub fn oldest_needed(&self) -> Seq {
        let place = self.place.lock();
        place.created.values().min().copied().unwrap_or(place.end)
    }

    /// Notes how much space the shared log has.
    pub fn note_room(&self, used: u64, quota: u64) {
        *self.room.lock() = Some((used, quota));
    }

    /// Whether there is no space for a new file of this size beside what deletes need.
    fn lacks_room(&self, size: u64) -> bool {
        self.room.lock().is_some_and(|(used, quota)| used.saturating_add(size) > quota - quota / KEPT)
    }

    fn push(&self, operation: &Operation) {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        self.queue.lock().operations.push(bytes);
    }

    /// Returns when everything that was queued before the call is in the shared log. The error means that this server
    /// must not answer any more: then its lease is over as well.
    pub fn flush(&self) -> io::Result<()> {
        let mut place = self.place.lock();
        let operations = std::mem::take(&mut self.queue.lock().operations);
        let mut entry = Vec::new();
        for operation in operations {
            if !entry.is_empty() && entry.len() + operation.len() > ENTRY {
                self.append(&mut place, EntryKind::Operations, &std::mem::take(&mut entry))?;
            }
            entry.extend(operation);
        }
        if entry.is_empty() {
            return Ok(());
        }
        self.append(&mut place, EntryKind::Operations, &entry)
    }

    /// Says that this server writes no more, so that another need not wait.
    pub fn release(&self) -> io::Result<()> {
        self.flush()?;
        self.append(&mut self.place.lock(), EntryKind::Release, b"")
    }

    fn append(&self, place: &mut Position, kind: EntryKind, operations: &[u8]) -> io::Result<()> {
        place.head.kind = kind;
        place.head.number += 1;
        let entry = place.head.seal(operations);
        loop {
            if self.lease.is_over() {
                return Err(over());
            }
            let sent = Instant::now();
            match self.log.append(place.head.epoch, place.end, &entry) {
                Ok(()) => self.lease.extend(sent + LEASE),
                Err(Fail::Fenced) => return Err(self.end()),
                // An own append whose answer was lost looks the same as that of a rival.
                Err(Fail::Conflict | Fail::Unknown(_)) => match self.find(place.end + 1) {
                    Some(head) if head == place.head => {}
                    Some(_) => return Err(self.end()),
                    None => {
                        std::thread::sleep(RETRY);
                        continue;
                    }
                },
                Err(Fail::Full) => {
                    std::thread::sleep(RETRY);
                    continue;
                }
            }
            place.end += 1;
            note_created(&mut place.created, operations, place.end);
            return Ok(());
        }
    }

    /// Who made the entry at this place, if there is one and it can be read.
    fn find(&self, seq: Seq) -> Option<Head> {
        let (entries, _) = self.log.read(seq, 1).ok()?;
        let (found, entry) = entries.first()?;
        (*found == seq).then(|| Head::open(entry).map(|(head, _)| head)).flatten()
    }

    fn end(&self) -> io::Error {
        self.lease.end();
        over()
    }
}

fn over() -> io::Error {
    io::Error::other("this server is no longer the active one")
}

pub struct ShippedFolder {
    folder: Arc<dyn Storage>,
    shipper: Arc<Shipper>,
}

impl ShippedFolder {
    /// The folder, which this process has locked already.
    pub fn new(folder: Arc<dyn Storage>, shipper: Arc<Shipper>) -> ShippedFolder {
        ShippedFolder { folder, shipper }
    }

    /// Queues every file of the folder, for a shared log that is empty.
    pub fn ship_all(&self) -> io::Result<()> {
        let mut names = self.folder.list()?;
        names.retain(|name| is_segment(name));
        names.sort_unstable();
        for name in names {
            let length = self.folder.length(&name)?;
            self.shipper.push(&Operation::Create(&name, length));
            let mut place = 0;
            let mut bytes = vec![0; PIECE];
            loop {
                let count = self.folder.read_at(&name, place, &mut bytes)?;
                if count == 0 {
                    break;
                }
                // A file is made of zeros.
                if bytes[..count].iter().any(|byte| *byte != 0) {
                    self.shipper.push(&Operation::Write(&name, place, &bytes[..count]));
                    self.shipper.flush()?;
                }
                place += count as u64;
            }
        }
        self.shipper.flush()
    }

    fn file(&self, name: &str, file: Arc<dyn LogFile>) -> Arc<dyn LogFile> {
        Arc::new(ShippedFile { name: name.to_owned(), file, shipper: self.shipper.clone() })
    }
}

impl Storage for ShippedFolder {
    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.folder.list()
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.folder.length(name)
    }

    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.folder.read_at(name, place, bytes)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        if self.shipper.lacks_room(size) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the shared log is nearly full"));
        }
        let file = self.folder.create(name, size)?;
        self.shipper.push(&Operation::Create(name, size));
        Ok(self.file(name, file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(self.file(name, self.folder.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shipper.push(&Operation::Rename(from, to));
        self.shipper.flush()?;
        self.folder.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.shipper.push(&Operation::Remove(name));
        self.shipper.flush()?;
        self.folder.remove(name)
    }
}

struct ShippedFile {
    name: String,
    file: Arc<dyn LogFile>,
    shipper: Arc<Shipper>,
}

impl LogFile for ShippedFile {
    fn write_at(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(place, bytes)?;
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            self.shipper.push(&Operation::Write(&self.name, place + (number * PIECE) as u64, piece));
        }
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)?;
        self.shipper.push(&Operation::Truncate(&self.name, length));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.shipper.flush()
    }

    fn is_linked(&self) -> io::Result<bool> {
        self.file.is_linked()
    }
}
