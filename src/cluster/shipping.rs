//! A binlog directory that copies each change to the shared log. The binlog confirms changes only after a sync, and
//! each sync appends the queued changes to the shared log. Therefore, each confirmed change is in the shared log.
//! Enforces promise P34 of beanpole-promises(7).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, path::PathBuf, sync::Arc};

use super::entry::{note_created, operations, EntryKind, Head, Operation, PIECE, SMALL, STAGE};
use super::mirror::{self, mark_incomplete, Checksums};
use super::shared_log::{Epoch, Fail, Member, Seq, SharedLog, SharedSpace};
use crate::binlog::{is_binlog_file, is_no_space, LogFile, Storage};
use crate::shared::lock_order::{Condvar, LeafMutex, Mutex, MutexGuard, SHIPPING};
use crate::shared::role::{Lease, Moment, RoleBoard, RoleFigures};

/// The maximum size of an entry with several operations, in bytes. In etcd, larger entries cost more per byte.
const ENTRY: usize = 32 * 1024;
/// Larger bodies are appended in pieces before their records. Other entries can be appended between the pieces.
const LARGE: usize = 256 * 1024;
const STAGE_PIECE: usize = 128 * 1024;
/// The maximum wait for the record of the previous large body. After the wait, that body is removed from the log.
const STAGED: Duration = Duration::from_secs(5);
/// The active server's lease expires this long after the server sent the last request that the shared log confirmed.
pub const LEASE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(20);
/// The maximum number of appends in flight. The shared log serializes appends, so a larger number has no advantage.
pub const WINDOW: usize = 4;

/// Several appends can be in flight, each with a fixed position. The shared log accepts an entry only directly after
/// the previous entry and during the writer's epoch, so an accepted entry proves that all earlier ones were accepted.
pub struct Shipper {
    log: Arc<dyn SharedLog>,
    pub lease: Arc<Lease>,
    queue: LeafMutex<Queue>,
    position: Mutex<Position, SHIPPING>,
    /// Notified when an entry is accepted or the lease has ended.
    changed: Condvar,
    board: Arc<RoleBoard>,
    pub path: PathBuf,
    /// `true` if the local copy lacks changes for which the disk had no space.
    is_incomplete: AtomicBool,
}

#[derive(Default)]
struct Queue {
    operations: Vec<Vec<u8>>,
    staged: Option<(Arc<Box<[u8]>>, String)>,
    /// The checksums of the local files, calculated from the writes and not from the disk, which can be damaged.
    checksums: Checksums,
}

impl Queue {
    fn push(&mut self, operation: &Operation) {
        self.checksums.note(operation);
        self.operations.push(operation.encode());
    }

    /// Returns `true` while a record may refer to the staged body. Otherwise, or if `is_late`, removes the body.
    fn is_occupied(&mut self, is_late: bool) -> bool {
        if let Some((_, name)) = self.staged.take_if(|(body, _)| is_late || Arc::strong_count(body) == 1) {
            self.push(&Operation::Remove(&name));
        }
        self.staged.is_some()
    }
}

#[derive(Clone)]
struct Entry {
    seq: Seq,
    head: Head,
    bytes: Arc<Vec<u8>>,
}

struct Position {
    head: Head,
    end: Seq,
    /// The writer of the entry at `end`, and the writer's number for this entry. `None` if the entry is the claim.
    last: Option<(u64, u64)>,
    created: BTreeMap<String, Seq>,
    kind: EntryKind,
    /// The confirmed entries that are not merged, except those that [`Shipper::next_unmerged`] has passed: large
    /// entries, and enough small ones that the entries between two of them have at most [`PIECE`] bytes.
    unmerged: BTreeSet<Seq>,
    /// The size of the entries after the last one in `unmerged`, in bytes.
    mergeable: usize,
    /// Unconfirmed entries. The first `sent` entries have been passed to sending threads.
    ahead: VecDeque<Entry>,
    sent: usize,
}

impl Position {
    fn newest(&self) -> Seq {
        self.end + self.ahead.len() as u64
    }

    fn push(&mut self, kind: EntryKind, operations: &[u8]) {
        self.head.number += 1;
        let head = Head { kind, ..self.head };
        self.ahead.push_back(Entry { seq: self.newest() + 1, head, bytes: Arc::new(head.seal(operations)) });
    }
}

impl Shipper {
    /// `copy` describes the local copy in the directory `path`, which ends with this server's claim.
    pub fn new(member: &Member, until: Moment, epoch: Epoch, copy: mirror::Position, path: PathBuf) -> Shipper {
        let (log, board, lease) = (member.log.clone(), member.board.clone(), Arc::new(Lease::new(until)));
        let head = Head { kind: EntryKind::Operations, epoch, writer: member.id, number: 0 };
        let mirror::Position { done: end, created, checksums, .. } = copy;
        let (kind, (last, unmerged, mergeable, ahead, sent)) = (EntryKind::Operations, Default::default());
        let position = Position { head, end, last, created, kind, unmerged, mergeable, ahead, sent };
        let queue = LeafMutex::new(Queue { checksums, ..Queue::default() });
        let (changed, is_incomplete) = Default::default();
        Shipper { log, lease, queue, position: Mutex::new(position), changed, board, path, is_incomplete }
    }

    pub fn last(&self) -> (Seq, Option<(u64, u64)>) {
        let position = self.position.lock();
        (position.end, position.last)
    }

    /// Returns the last entry of the local copy, or 0 if the copy is incomplete and must be made again.
    pub fn copied(&self) -> (Seq, Option<(u64, u64)>) {
        Some(self.last()).filter(|_| !self.is_incomplete.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// Returns the first confirmed entry after `seq` that is not merged.
    pub fn next_unmerged(&self, seq: Seq) -> Option<Seq> {
        let unmerged = &mut self.position.lock().unmerged;
        *unmerged = unmerged.split_off(&(seq + 1));
        unmerged.first().copied()
    }

    pub fn files(&self) -> (BTreeMap<String, Seq>, Checksums) {
        (self.position.lock().created.clone(), self.queue.lock().checksums.clone())
    }

    /// Computes missing checksums soon after the changes that require it, so that later damage is detected.
    pub fn complete_checksums(&self) {
        self.queue.lock().checksums.complete(&self.path);
    }

    pub fn oldest_needed(&self) -> Seq {
        self.queue.lock().is_occupied(false);
        let position = self.position.lock();
        position.created.values().min().copied().unwrap_or(position.end)
    }

    fn lacks_space(&self, size: u64) -> bool {
        let RoleFigures { used, quota, .. } = self.board.figures();
        quota > 0 && used.saturating_add(size) > SharedSpace { used, quota }.for_segments()
    }

    fn push(&self, operation: &Operation) {
        self.queue.lock().push(operation);
    }

    /// Queues a write of `bytes`, or a copy operation if the shared log already contains a body that ends with `bytes`.
    fn push_write(&self, name: &str, offset: u64, bytes: &[u8]) {
        let mut queue = self.queue.lock();
        let is_staged = |(body, _): &mut (Arc<Box<[u8]>>, String)| {
            bytes.len() > STAGE_PIECE && body.as_ptr_range().end == bytes.as_ptr_range().end
        };
        if let Some((body, from)) = queue.staged.take_if(is_staged) {
            queue.push(&Operation::Copy(name, offset, &from, (body.len() - bytes.len()) as u64));
            queue.checksums.note(&Operation::Write(name, offset, bytes));
            return queue.push(&Operation::Remove(&from));
        }
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            queue.push(&Operation::Write(name, offset + (number * PIECE) as u64, piece));
        }
    }

    fn must_stage(&self, body: &Arc<Box<[u8]>>) -> bool {
        let is_staged = || matches!(&self.queue.lock().staged, Some((other, _)) if Arc::ptr_eq(other, body));
        body.len() > LARGE && !is_staged() && !self.lacks_space(body.len() as u64)
    }

    /// Appends a large body in pieces. First waits while a record can refer to the previous body, for up to [`STAGED`].
    fn stage(&self, body: &Arc<Box<[u8]>>, is_wanted: &dyn Fn() -> bool) -> io::Result<()> {
        let end = Instant::now() + STAGED;
        while self.queue.lock().is_occupied(Instant::now() >= end) && is_wanted() {
            std::thread::sleep(RETRY);
        }
        if !self.must_stage(body) {
            return Ok(());
        }
        let Head { epoch, number, .. } = self.position.lock().head;
        let name = format!("{STAGE}{epoch}.{number}");
        // Queued operations do not use this file.
        let append = |operation: &Operation| self.append(EntryKind::Operations, &operation.encode());
        append(&Operation::Create(&name, body.len() as u64))?;
        for (number, piece) in body.chunks(STAGE_PIECE).enumerate() {
            if !is_wanted() {
                return append(&Operation::Remove(&name));
            }
            append(&Operation::Write(&name, (number * STAGE_PIECE) as u64, piece))?;
        }
        self.queue.lock().staged = Some((body.clone(), name));
        Ok(())
    }

    /// Appends the queued operations. An error means that the lease has ended, and the server must not send any reply.
    pub fn flush(&self) -> io::Result<()> {
        let mut position = self.position.lock();
        let (operations, kind) = (std::mem::take(&mut self.queue.lock().operations), position.kind);
        let mut entry = Vec::new();
        for operation in operations {
            if !entry.is_empty() && entry.len() + operation.len() > ENTRY {
                position.push(kind, &std::mem::take(&mut entry));
            }
            entry.extend(operation);
        }
        if !entry.is_empty() {
            position.push(kind, &entry);
        }
        self.ship(position)
    }

    pub fn release(&self) -> io::Result<()> {
        self.flush()?;
        self.append(EntryKind::Release, b"")
    }

    fn append(&self, kind: EntryKind, operations: &[u8]) -> io::Result<()> {
        let mut position = self.position.lock();
        position.push(kind, operations);
        self.ship(position)
    }

    fn ship<'a>(&'a self, mut position: MutexGuard<'a, Position>) -> io::Result<()> {
        let goal = position.newest();
        while position.end < goal {
            if self.lease.is_over() {
                self.changed.notify_all();
                return Err(over());
            }
            if let Some(entry) = position.ahead.get(position.sent).filter(|_| position.sent < WINDOW).cloned() {
                position.sent += 1;
                drop(position);
                self.send(&entry)?;
                position = self.position.lock();
            } else {
                self.changed.wait_until(&mut position, Instant::now() + RETRY);
            }
        }
        Ok(())
    }

    fn send(&self, entry: &Entry) -> io::Result<()> {
        let Entry { seq, head, bytes } = entry;
        loop {
            ensure!(!self.lease.is_over(), over());
            let (sent, is_next) = (Moment::now(), self.position.lock().end + 1 >= *seq);
            match self.log.append(head.epoch, seq - 1, bytes) {
                Ok(()) => {
                    self.lease.extend(sent + LEASE);
                    return self.confirm_in_order(*seq);
                }
                Err(Fail::Fenced) => return Err(self.stop()),
                // The entry may have arrived before the preceding entry.
                Err(Fail::Conflict) if !is_next => {}
                // The response to an earlier attempt may have been lost.
                Err(Fail::Conflict | Fail::Unknown(_)) => {
                    self.board.note(|figures| figures.retries += 1);
                    match find(&*self.log, *seq) {
                        Some(found) if found == *head => return self.confirm_in_order(*seq),
                        // A confirmed entry may have been replaced by a merged entry with another head.
                        Some(_) if self.position.lock().end < *seq => return Err(self.stop_at(*seq)),
                        // A log that was quickly restored from a backup lacks entries, although renewals succeed.
                        None if is_next && self.log.read(seq - 1, 1).is_ok_and(|(found, _)| found.is_empty()) => {
                            return Err(self.stop());
                        }
                        _ => {}
                    }
                }
                Err(Fail::Full) => {}
            }
            let mut position = self.position.lock();
            // Wait for the preceding entry or, after an error, for the retry interval.
            if position.end < *seq && (is_next || position.end + 1 < *seq) {
                self.changed.wait_until(&mut position, Instant::now() + RETRY);
            }
            if position.end >= *seq {
                return Ok(());
            }
        }
    }

    /// Confirms the entry `seq`, which the log has accepted, after all earlier entries. Their own threads confirm them,
    /// unless a response is lost: then reads their positions, which may contain an entry of another client of etcd.
    fn confirm_in_order(&self, seq: Seq) -> io::Result<()> {
        let mut retry = Instant::now() + RETRY;
        loop {
            let mut position = self.position.lock();
            let earlier = position.ahead.front().filter(|entry| entry.seq < seq).cloned();
            let Some(Entry { seq: next, head, .. }) = earlier else {
                drop(position);
                self.confirm(seq);
                return Ok(());
            };
            ensure!(!self.lease.is_over(), over());
            if !self.changed.wait_until(&mut position, retry) {
                continue;
            }
            drop(position);
            match find(&*self.log, next) {
                Some(found) if found == head => self.confirm(next),
                Some(_) if self.position.lock().end < next => return Err(self.stop_at(next)),
                _ => retry = Instant::now() + RETRY,
            }
        }
    }

    fn confirm(&self, seq: Seq) {
        let mut position = self.position.lock();
        let position = &mut *position;
        while position.end < seq {
            let Some(entry) = position.ahead.pop_front() else { break };
            position.sent = position.sent.saturating_sub(1);
            position.end = entry.seq;
            position.last = Some((entry.head.writer, entry.head.number));
            note_created(&mut position.created, operations(&entry.bytes), entry.seq);
            let size = entry.bytes.len();
            position.mergeable += size;
            if size > SMALL || position.mergeable > PIECE {
                position.mergeable = 0;
                position.unmerged.insert(entry.seq);
            }
            self.board.note(|figures| {
                (figures.entry, figures.written) = (entry.seq, figures.written + 1);
                figures.bytes += size as u64;
            });
        }
        self.changed.notify_all();
    }

    /// Ends the lease after a failure of the local disk, because the local copy and the shared log may now differ.
    pub fn give_up(&self, error: &io::Error) {
        if !self.lease.is_over() {
            log::error!("journal: cannot use the local copy: {error}; this server stops being active");
        }
        self.lease.end();
    }

    /// A full disk does not end the lease, because deletes still fit into the existing segments. Neither does a missing
    /// file: the binlog looks for segments that may be missing, and itself reports the loss of a file that it needs.
    pub fn local<T>(&self, result: io::Result<T>) -> io::Result<T> {
        let is_harmless = |error: &io::Error| is_no_space(error) || error.kind() == io::ErrorKind::NotFound;
        if let Some(error) = result.as_ref().err().filter(|error| !is_harmless(error)) {
            self.give_up(error);
        }
        result
    }

    /// Ignores a lack of space: the shared log stores the change, and a copy that lacks it is never used.
    fn local_change(&self, result: io::Result<()>) -> io::Result<()> {
        let Some(error) = result.as_ref().err().filter(|error| is_no_space(error)) else { return self.local(result) };
        if !self.is_incomplete.load(Ordering::Acquire) {
            // The change is appended, and therefore confirmed, only when the copy is marked.
            let _ = self.local(mark_incomplete(&self.path));
            self.is_incomplete.store(true, Ordering::Release);
            log::error!("journal: the local copy is incomplete: {error}; only etcd has all changes");
        }
        Ok(())
    }

    fn stop_at(&self, seq: Seq) -> io::Error {
        log::error!("journal: etcd has another entry {seq}: a server has taken over, or etcd was restored or changed");
        self.stop()
    }

    fn stop(&self) -> io::Error {
        self.lease.end();
        over()
    }
}

/// Returns the head of the entry `seq`, or the default value if another client of etcd wrote bytes that are no entry.
pub fn find(log: &dyn SharedLog, seq: Seq) -> Option<Head> {
    let (entries, _) = log.read(seq, 1).ok()?;
    let (found, entry) = entries.first()?;
    (*found == seq).then(|| Head::open(entry).map(|(head, _)| head).unwrap_or_default())
}

fn over() -> io::Error {
    io::Error::other("this server is no longer the active one")
}

pub struct ShippedFolder {
    pub folder: Arc<dyn Storage>,
    pub shipper: Arc<Shipper>,
}

impl ShippedFolder {
    /// Imports the binlog, or repeats an interrupted import. Until the end, other servers cannot claim the log.
    pub fn ship_all(&self) -> io::Result<()> {
        self.shipper.position.lock().kind = EntryKind::Import;
        let mut names = self.folder.list()?;
        names.retain(|name| is_binlog_file(name));
        names.sort_unstable();
        for name in names {
            let length = self.folder.length(&name)?;
            self.shipper.push(&Operation::Create(&name, length));
            let (mut offset, mut bytes) = (0, vec![0; PIECE]);
            while let count @ 1.. = self.folder.read_at(&name, offset, &mut bytes)? {
                // A new file contains only zeros, which need not be written.
                if bytes[..count].iter().any(|byte| *byte != 0) {
                    self.shipper.push(&Operation::Write(&name, offset, &bytes[..count]));
                    self.shipper.flush()?;
                }
                offset += count as u64;
            }
        }
        self.shipper.flush()?;
        self.shipper.position.lock().kind = EntryKind::Operations;
        self.shipper.append(EntryKind::Operations, b"")
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

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.shipper.local(self.folder.read_at(name, offset, bytes))
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        let has_space = !self.shipper.lacks_space(size);
        ensure!(has_space, io::Error::new(io::ErrorKind::StorageFull, "the shared log is nearly full"));
        let file = self.shipper.local(self.folder.create(name, size))?;
        self.shipper.push(&Operation::Create(name, size));
        Ok(self.file(name, file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(self.file(name, self.shipper.local(self.folder.open(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shipper.push(&Operation::Rename(from, to));
        self.shipper.flush()?;
        self.shipper.local_change(self.folder.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.shipper.push(&Operation::Remove(name));
        self.shipper.flush()?;
        self.shipper.local(self.folder.remove(name))
    }

    fn syncs_at_once(&self) -> usize {
        WINDOW
    }

    fn must_stage(&self, body: &Arc<Box<[u8]>>) -> bool {
        self.shipper.must_stage(body)
    }

    /// Ignores errors: an error means that the lease has ended, after which the server sends no replies.
    fn stage(&self, body: &Arc<Box<[u8]>>, is_wanted: &dyn Fn() -> bool) {
        let _ = self.shipper.stage(body, is_wanted);
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
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.shipper.local_change(self.file.write_at(offset, bytes))?;
        self.shipper.push_write(&self.name, offset, bytes);
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.shipper.local_change(self.file.truncate(length))?;
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
    use crate::shared::lock_order::REPORTING;

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

    fn active() -> (Arc<Shipper>, Arc<Lease>, Arc<MemoryLog>) {
        active_with(Faults::default(), 1)
    }

    fn active_with(faults: Faults, seed: u64) -> (Arc<Shipper>, Arc<Lease>, Arc<MemoryLog>) {
        let log = Arc::new(MemoryLog::new(faults, seed));
        let head = Head { kind: EntryKind::Claim, epoch: 0, writer: 1, number: 0 };
        let claimed = (0..100).find_map(|_| {
            let claimed = log.claim(0, 0, b"a", &head.seal(b""));
            claimed.ok().or_else(|| log.entries().first().map(|_| 1))
        });
        let epoch = claimed.expect("a log in memory");
        let (until, path) = (Moment::now() + Duration::from_secs(3600), PathBuf::new());
        let (board, name, address, services, has_reported, is_space_hidden) = Default::default();
        let member = Member { log: log.clone(), board, name, address, services, id: 1, has_reported, is_space_hidden };
        let copy = mirror::Position { done: 1, ..mirror::Position::default() };
        let shipper = Arc::new(Shipper::new(&member, until, epoch, copy, path));
        (shipper.clone(), shipper.lease.clone(), log)
    }

    type Operate = fn(&ShippedFolder, &ShippedFile) -> io::Result<()>;

    const CHANGES: [&str; 3] = ["rename", "write_at", "truncate"];

    #[test]
    fn a_failure_of_the_local_copy_ends_the_lease_except_a_full_disk_and_a_missing_file() {
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
                let (shipper, lease, log) = active();
                let folder = ShippedFolder { folder: Arc::new(Broken(kind)), shipper: shipper.clone() };
                let (name_of_file, broken) = ("segment.1".to_owned(), Arc::new(Broken(kind)));
                let file = ShippedFile { name: name_of_file, file: broken, shipper: shipper.clone() };
                let is_full = kind == ErrorKind::StorageFull;
                // On a full disk, only the shared log stores the change.
                let is_shared = is_full && CHANGES.contains(&name);
                assert_eq!(operate(&folder, &file).is_ok(), is_shared, "{name} failed: {kind}");
                let goes_on = is_full || kind == ErrorKind::NotFound;
                assert_eq!(lease.is_over(), !goes_on, "{name} failed: {kind}");
                if is_shared {
                    file.sync().expect("an active server");
                    assert_eq!((log.entries().len(), shipper.copied()), (2, (0, None)), "{name}");
                }
            }
        }
    }

    #[test]
    fn several_threads_append_in_order_and_without_gaps() {
        for seed in 1..20 {
            let faults = Faults { lost_requests: 20, lost_answers: 20, late_requests: 20, ..Faults::default() };
            let (shipper, lease, log) = active_with(faults, seed);
            let next = Mutex::<u64, REPORTING>::new(0);
            std::thread::scope(|scope| {
                for _ in 0..WINDOW {
                    scope.spawn(|| {
                        for _ in 0..10 {
                            {
                                let mut offset = next.lock();
                                shipper.push(&Operation::Write("segment.1", *offset, &[7; ENTRY / 2]));
                                *offset += 1;
                            }
                            shipper.flush().expect("an active server");
                        }
                    });
                }
            });
            let entries = log.entries();
            let mut offset = 0;
            for (at, (seq, entry)) in entries.iter().enumerate().skip(1) {
                let (head, mut operations) = Head::open(entry).expect("an entry");
                assert_eq!((*seq, head.number), (at as u64 + 1, at as u64));
                while let Some(Operation::Write(_, at, _)) = Operation::decode(&mut operations) {
                    assert_eq!(at, offset);
                    offset += 1;
                }
            }
            assert_eq!((offset, shipper.last().0), (*next.lock(), entries.len() as u64));
            assert!(!lease.is_over());
        }
    }

    #[test]
    fn an_entry_after_one_of_another_client_is_not_confirmed() {
        for lost_answers in [0, 255] {
            let (shipper, lease, log) = active_with(Faults { lost_answers, ..Faults::default() }, 1);
            let entries = {
                let mut position = shipper.position.lock();
                (0..2).for_each(|_| position.push(EntryKind::Operations, b""));
                position.ahead.clone()
            };
            let _ = log.append(1, 1, b"of another client");
            assert!(shipper.send(&entries[1]).is_err() && lease.is_over());
            assert_eq!((shipper.last().0, log.entries().len()), (1, 3));
        }
    }

    #[test]
    fn a_restored_log_of_the_same_epoch_ends_the_lease() {
        let (shipper, lease, log) = active();
        let (_, _, backup) = active();
        shipper.push(&Operation::Write("segment.1", 0, b"promised"));
        shipper.flush().expect("an active server");
        log.replace(&backup);
        shipper.push(&Operation::Write("segment.1", 8, b"promised"));
        let (sender, answers) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(shipper.flush()));
        let flushed = answers.recv_timeout(Duration::from_secs(20)).expect("an answer");
        assert!(flushed.is_err() && lease.is_over() && log.entries().len() == 1);
    }

    #[test]
    fn a_failed_local_write_is_not_appended() {
        let (shipper, lease, log) = active();
        let broken = Arc::new(Broken(ErrorKind::Other));
        let file = ShippedFile { name: "segment.1".to_owned(), file: broken, shipper: shipper.clone() };
        assert!(file.write_at(0, b"promised").is_err() && lease.is_over());
        assert!(shipper.flush().is_ok() && log.entries().len() == 1);
    }
}
