//! A folder whose every change also goes into the shared log.
//!
//! Owns the order of changes: they are done to the local folder at once, queued, and appended to the shared log when
//! the binlog syncs. So the binlog's own rule, that nothing is promised before a sync has returned, becomes: not before
//! the shared log holds it. Must not decide who may write; it only learns that it may no longer.
//!
//! Promises: P34.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::entry::{is_segment, note_created, EntryKind, Head, Operation};
use super::shared_log::{Fail, Room, Seq, SharedLog};
use crate::binlog::{is_no_space, LogFile, Storage};
use crate::shared::lease::{Lease, Moment};
use crate::shared::role::{RoleBoard, RoleFigures};

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

/// The active server's end of the shared log.
pub struct Shipper {
    log: Arc<dyn SharedLog>,
    lease: Arc<Lease>,
    /// Operations that are not in the shared log yet, each encoded.
    queue: Mutex<Vec<Vec<u8>>>,
    place: Mutex<Position>,
    /// Where it tells how the shared log does, and reads how much space that had.
    board: Arc<RoleBoard>,
}

/// Where the next entry goes.
struct Position {
    head: Head,
    end: Seq,
    /// Writer and number of the last entry, unless that is the claim.
    last: Option<(u64, u64)>,
    /// In which entry each file was made.
    created: BTreeMap<String, Seq>,
    /// What its operations are, at the moment.
    kind: EntryKind,
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
        board: Arc<RoleBoard>,
    ) -> Shipper {
        let place = Mutex::new(Position { head, end, last: None, created, kind: EntryKind::Operations });
        Shipper { log, lease, queue: Mutex::default(), place, board }
    }

    /// The last entry that this server knows to be in the log, with its writer and number if this server appended it.
    pub fn last(&self) -> (Seq, Option<(u64, u64)>) {
        let place = self.place.lock();
        (place.end, place.last)
    }

    /// The entry that created each file.
    pub fn created(&self) -> BTreeMap<String, Seq> {
        self.place.lock().created.clone()
    }

    /// The first entry that somebody who starts with nothing needs.
    pub fn oldest_needed(&self) -> Seq {
        let place = self.place.lock();
        place.created.values().min().copied().unwrap_or(place.end)
    }

    /// Whether there is no space for a new file of this size beside what deletes need.
    fn lacks_room(&self, size: u64) -> bool {
        let RoleFigures { used, quota, .. } = self.board.figures();
        quota > 0 && used.saturating_add(size) > Room { used, quota }.for_segments()
    }

    fn push(&self, operation: &Operation) {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        self.queue.lock().push(bytes);
    }

    /// Returns when everything that was queued before the call is in the shared log. The error means that this server
    /// must not answer any more: then its lease is over as well.
    pub fn flush(&self) -> io::Result<()> {
        let mut place = self.place.lock();
        let (operations, kind) = (std::mem::take(&mut *self.queue.lock()), place.kind);
        let mut entry = Vec::new();
        for operation in operations {
            if !entry.is_empty() && entry.len() + operation.len() > ENTRY {
                self.append(&mut place, kind, &std::mem::take(&mut entry))?;
            }
            entry.extend(operation);
        }
        if entry.is_empty() {
            return Ok(());
        }
        self.append(&mut place, kind, &entry)
    }

    /// Says that this server writes no more, so that another need not wait.
    pub fn release(&self) -> io::Result<()> {
        self.flush()?;
        self.append(&mut self.place.lock(), EntryKind::Release, b"")
    }

    #[inline(never)]
    fn append(&self, place: &mut Position, kind: EntryKind, operations: &[u8]) -> io::Result<()> {
        place.head.kind = kind;
        place.head.number += 1;
        let entry = place.head.seal(operations);
        loop {
            if self.lease.is_over() {
                return Err(over());
            }
            let sent = Moment::now();
            match self.log.append(place.head.epoch, place.end, &entry) {
                Ok(()) => self.lease.extend(sent + LEASE),
                Err(Fail::Fenced) => return Err(self.end()),
                // An own append whose answer was lost looks the same as that of a rival.
                Err(Fail::Conflict | Fail::Unknown(_)) => {
                    self.board.note(|figures| figures.retries += 1);
                    match self.find(place.end + 1) {
                        Some(head) if head == place.head => {}
                        Some(_) => return Err(self.end()),
                        None => {
                            std::thread::sleep(RETRY);
                            continue;
                        }
                    }
                }
                Err(Fail::Full) => {
                    std::thread::sleep(RETRY);
                    continue;
                }
            }
            place.end += 1;
            place.last = Some((place.head.writer, place.head.number));
            note_created(&mut place.created, operations, place.end);
            self.board.note(|figures| {
                (figures.entry, figures.written) = (place.end, figures.written + 1);
                figures.bytes += entry.len() as u64;
            });
            return Ok(());
        }
    }

    /// Who made the entry at this place, if there is one and it can be read.
    #[inline(never)]
    fn find(&self, seq: Seq) -> Option<Head> {
        let (entries, _) = self.log.read(seq, 1).ok()?;
        let (found, entry) = entries.first()?;
        (*found == seq).then(|| Head::open(entry).map(|(head, _)| head)).flatten()
    }

    /// Ends the lease because the local copy of the log has failed. A server without a shared log keeps answering while
    /// its disk fails; this one must not, since the shared log lacks the changes that the copy lacks.
    pub fn give_up(&self, error: &io::Error) {
        if !self.lease.is_over() {
            log::error!("journal: the local copy of the log failed: {error}; this server stops being active");
        }
        self.lease.end();
    }

    /// Passes on the result of an operation on the local copy. Any error ends the lease.
    fn local<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.give_up(error))
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

    /// Appends every file of the folder to a shared log that holds nothing, or a part of this after an earlier try.
    /// Until the last entry is there, no other server may claim that log.
    pub fn ship_all(&self) -> io::Result<()> {
        self.shipper.place.lock().kind = EntryKind::Import;
        self.ship_files()?;
        let mut place = self.shipper.place.lock();
        place.kind = EntryKind::Operations;
        self.shipper.append(&mut place, EntryKind::Operations, b"")
    }

    fn ship_files(&self) -> io::Result<()> {
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
        self.shipper.local(self.folder.lock())
    }

    fn is_in_place(&self) -> io::Result<bool> {
        self.shipper.local(self.folder.is_in_place())
    }

    fn list_if_changed(&self) -> io::Result<Option<Vec<String>>> {
        self.shipper.local(self.folder.list_if_changed())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.shipper.local(self.folder.list())
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.shipper.local(self.folder.length(name))
    }

    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.shipper.local(self.folder.read_at(name, place, bytes))
    }

    /// A full disk does not end the lease: deletes still fit into the segments that exist, and no standby has more
    /// space because of a switch.
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        if self.shipper.lacks_room(size) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the shared log is nearly full"));
        }
        let file = match self.folder.create(name, size) {
            Err(error) if is_no_space(&error) => return Err(error),
            created => self.shipper.local(created)?,
        };
        self.shipper.push(&Operation::Create(name, size));
        Ok(self.file(name, file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(self.file(name, self.shipper.local(self.folder.open(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shipper.push(&Operation::Rename(from, to));
        self.shipper.flush()?;
        self.shipper.local(self.folder.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.shipper.push(&Operation::Remove(name));
        self.shipper.flush()?;
        match self.folder.remove(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
            removed => self.shipper.local(removed),
        }
    }

    fn give_up(&self, error: &io::Error) {
        self.shipper.give_up(error);
    }
}

struct ShippedFile {
    name: String,
    file: Arc<dyn LogFile>,
    shipper: Arc<Shipper>,
}

impl LogFile for ShippedFile {
    fn write_at(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.shipper.local(self.file.write_at(place, bytes))?;
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            self.shipper.push(&Operation::Write(&self.name, place + (number * PIECE) as u64, piece));
        }
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.shipper.local(self.file.truncate(length))?;
        self.shipper.push(&Operation::Truncate(&self.name, length));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.shipper.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::super::fake_log::{Faults, MemoryLog};
    use super::*;

    /// A disk on which every operation fails with an error of this kind.
    struct Broken(ErrorKind);

    impl Broken {
        fn fail<T>(&self) -> io::Result<T> {
            Err(Error::new(self.0, "no disk"))
        }
    }

    impl LogFile for Broken {
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            self.fail()
        }

        fn truncate(&self, _: u64) -> io::Result<()> {
            self.fail()
        }

        fn sync(&self) -> io::Result<()> {
            self.fail()
        }
    }

    impl Storage for Broken {
        fn lock(&self) -> io::Result<()> {
            self.fail()
        }

        fn is_in_place(&self) -> io::Result<bool> {
            self.fail()
        }

        fn list(&self) -> io::Result<Vec<String>> {
            self.fail()
        }

        fn length(&self, _: &str) -> io::Result<u64> {
            self.fail()
        }

        fn read_at(&self, _: &str, _: u64, _: &mut [u8]) -> io::Result<usize> {
            self.fail()
        }

        fn create(&self, _: &str, _: u64) -> io::Result<Arc<dyn LogFile>> {
            self.fail()
        }

        fn open(&self, _: &str) -> io::Result<Arc<dyn LogFile>> {
            self.fail()
        }

        fn rename(&self, _: &str, _: &str) -> io::Result<()> {
            self.fail()
        }

        fn remove(&self, _: &str) -> io::Result<()> {
            self.fail()
        }
    }

    /// An active server's shipper, its lease, and the log that it has claimed.
    fn active() -> (Arc<Shipper>, Arc<Lease>, Arc<MemoryLog>) {
        let log = Arc::new(MemoryLog::new(Faults::default(), 1));
        let head = Head { kind: EntryKind::Claim, epoch: 0, writer: 1, number: 0 };
        let epoch = log.claim(0, 0, b"a", &head.seal(b"")).expect("a log in memory");
        let lease = Arc::new(Lease::new(Moment::now() + Duration::from_secs(3600)));
        let head = Head { kind: EntryKind::Operations, epoch, ..head };
        let shipper = Shipper::new(log.clone(), lease.clone(), head, 1, BTreeMap::new(), Arc::default());
        (Arc::new(shipper), lease, log)
    }

    type Operate = fn(&ShippedFolder, &ShippedFile) -> io::Result<()>;

    #[test]
    fn every_failure_of_the_local_copy_ends_the_lease_except_a_full_disk() {
        let operations: [(&str, Operate); 12] = [
            ("lock", |folder, _| folder.lock()),
            ("is_in_place", |folder, _| folder.is_in_place().map(drop)),
            ("list", |folder, _| folder.list().map(drop)),
            ("list_if_changed", |folder, _| folder.list_if_changed().map(drop)),
            ("length", |folder, _| folder.length("segment.1").map(drop)),
            ("read_at", |folder, _| folder.read_at("segment.1", 0, &mut []).map(drop)),
            ("create", |folder, _| folder.create("segment.1", 80).map(drop)),
            ("open", |folder, _| folder.open("segment.1").map(drop)),
            ("rename", |folder, _| folder.rename("binlog.1", "old/binlog.1")),
            ("remove", |folder, _| folder.remove("segment.1")),
            ("write_at", |_, file| file.write_at(0, b"promised")),
            ("truncate", |_, file| file.truncate(0)),
        ];
        for kind in [ErrorKind::PermissionDenied, ErrorKind::StorageFull, ErrorKind::NotFound] {
            for (name, operate) in operations {
                let (shipper, lease, _log) = active();
                let folder = ShippedFolder::new(Arc::new(Broken(kind)), shipper.clone());
                let file = ShippedFile { name: "segment.1".to_owned(), file: Arc::new(Broken(kind)), shipper };
                assert!(operate(&folder, &file).is_err(), "{name}");
                // A file that is to be removed and is missing is what was wanted.
                let goes_on =
                    matches!((name, kind), ("create", ErrorKind::StorageFull) | ("remove", ErrorKind::NotFound));
                assert_eq!(lease.is_over(), !goes_on, "{name} failed: {kind}");
            }
        }
    }

    #[test]
    fn a_write_that_fails_locally_stays_away_from_the_shared_log() {
        let (shipper, lease, log) = active();
        let broken = Arc::new(Broken(ErrorKind::Other));
        let file = ShippedFile { name: "segment.1".to_owned(), file: broken, shipper: shipper.clone() };
        assert!(file.write_at(0, b"promised").is_err() && lease.is_over());
        assert!(shipper.flush().is_ok() && log.entries().len() == 1);
    }
}
