//! A standby's copy of the active server's binlog, in an ordinary directory. The position is saved after the binlog
//! files are synced, so the only effect of a crash is that operations are repeated. Must not claim the shared log.
//! Enforces promise P35 of beanpole-promises(7).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;

use super::entry::{note_created, note_file, EntryKind, Head, Operation, STAGE};
use super::shared_log::{Epoch, Seq};
use crate::binlog::{is_binlog_file, is_no_space, Folder, Storage};

/// The position file: the last applied entry, the [`Origin`], and a line for each binlog file. Each line has the oldest
/// entry that the file needs, the file's name, and the [`Checksum`] if it could be computed.
const POSITION: &str = "journal.position";
/// This file exists while the local server is active, and remains after a crash.
const ACTIVE: &str = "journal.active";
/// Replaces the file [`ACTIVE`] when the copy lacks changes for which the disk had no space.
const INCOMPLETE: &str = "journal.incomplete";
/// Contains the old copy, if any. While this subdirectory exists, the new copy may be incomplete.
pub const ASIDE: &str = "journal.aside";
/// Contains the old copy while its files are being moved.
const MOVING: &str = "journal.moving";
/// Contains the old copy while its files are being deleted.
const DROPPED: &str = "journal.dropped";
const CHUNK: usize = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// A random number that identifies the journal, or 0 if unknown.
    pub journal: u64,
    pub epoch: Epoch,
    /// The writer of the last applied entry, and the number that the writer gave to it. Together, they are unique.
    pub last: Option<(u64, u64)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Position {
    pub done: Seq,
    pub origin: Origin,
    /// The oldest entry that each file needs (see [`note_created`]).
    pub created: BTreeMap<String, Seq>,
    pub checksums: Checksums,
}

#[derive(Default)]
pub struct Mirror {
    folder: PathBuf,
    pub position: Position,
    /// `true` if the files may be incomplete or contain changes that the journal lacks, so a new copy must be made.
    pub is_stale: bool,
    pub has_aside: bool,
    /// `true` if the directory contains a binlog that does not come from a shared log.
    pub is_foreign: bool,
    /// `true` if the files have been verified since the last sign of activity of the active server.
    pub is_verified: bool,
    dirty: BTreeMap<String, File>,
    /// `true` if the directory may contain files with the prefix [`STAGE`] that are no longer needed.
    has_stages: bool,
}

impl Mirror {
    pub fn open(folder: &Path) -> io::Result<Mirror> {
        settle(folder)?;
        let exists = |name| folder.join(name).exists();
        let (is_stale, has_aside) = (exists(ACTIVE) || exists(INCOMPLETE), exists(ASIDE));
        let mut mirror = Mirror { folder: folder.into(), is_stale, has_aside, has_stages: true, ..Mirror::default() };
        match fs::read_to_string(mirror.folder.join(POSITION)).ok().map(|text| Position::read(&text)) {
            // An active server lists no files, and its directory may have been emptied. If the saved position is 0,
            // existing binlog files are from an interrupted copy.
            Some(Some(position)) => {
                mirror.is_stale |=
                    position.created.is_empty() && (position.done > 0 || !binlog_files(folder)?.is_empty());
                mirror.position = position;
            }
            Some(None) => mirror.is_stale = true,
            None if mirror.is_stale => {}
            None if !binlog_files(folder)?.is_empty() => mirror.is_foreign = true,
            // On a full disk, the position is saved when the disk has space.
            None => mirror.save().or_else(allow_full)?,
        }
        Ok(mirror)
    }

    /// Returns the total size of the binlog files in bytes, without trailing zeros.
    pub fn size(&self) -> io::Result<u64> {
        let named = |name: &str, error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
        let sum = |name: &String| Checksum::of(&self.folder.join(name), u64::MAX).map_err(|error| named(name, error));
        binlog_files(&self.folder)?.iter().map(|name| Ok(sum(name)?.length)).sum()
    }

    /// Starts an empty copy, which will receive the entries after `done`. Moves any old files to a subdirectory or, if
    /// the subdirectory already exists, deletes the files, because they are then an incomplete copy.
    pub fn start_over(&mut self, done: Seq) -> io::Result<()> {
        self.dirty.clear();
        settle(&self.folder)?;
        if !self.has_aside {
            let moving = self.folder.join(MOVING);
            fs::create_dir(&moving)?;
            for name in binlog_files(&self.folder)?.iter().map(String::as_str).chain([POSITION, ACTIVE, INCOMPLETE]) {
                allow_missing(fs::rename(self.folder.join(name), moving.join(name)))?;
            }
            File::open(&moving)?.sync_all()?;
            fs::rename(moving, self.folder.join(ASIDE))?;
            self.has_aside = true;
        }
        for name in binlog_files(&self.folder)?.iter().map(String::as_str).chain([ACTIVE, INCOMPLETE]) {
            allow_missing(fs::remove_file(self.folder.join(name)))?;
        }
        self.position = Position { origin: Origin { last: None, ..self.position.origin }, ..Position::default() };
        self.position.write(&self.folder)?;
        (self.is_stale, self.is_verified, self.has_stages) = (false, false, true);
        self.position.done = done;
        Ok(())
    }

    /// Deletes the old copy. First renames the subdirectory, so that no partially deleted copy is ever restored.
    pub fn drop_aside(&mut self) -> io::Result<()> {
        self.save()?;
        fs::rename(self.folder.join(ASIDE), self.folder.join(DROPPED))?;
        // Damage that occurs later must be detected before a claim, even if the active server shows no activity.
        (self.has_aside, self.is_verified) = (false, false);
        File::open(&self.folder)?.sync_all()?;
        settle(&self.folder)
    }

    /// Executes the operations of an entry. Skips a missing file: its creation was purged, because it is removed later.
    pub fn apply(&mut self, seq: Seq, head: &Head, operations: &[u8]) -> io::Result<()> {
        let mut rest = operations;
        while !rest.is_empty() {
            self.execute(&Operation::decode(&mut rest).ok_or_else(|| damaged(seq))?)?;
        }
        note_created(&mut self.position.created, operations, seq);
        self.position.done = seq;
        let epoch = head.epoch.saturating_add(u64::from(head.kind == EntryKind::Claim));
        let origin = &mut self.position.origin;
        (origin.epoch, origin.last) = (epoch.max(origin.epoch), Some((head.writer, head.number)));
        Ok(())
    }

    /// Returns the name of a missing or damaged file. Does nothing if the files are verified already.
    pub fn verify(&mut self) -> Option<String> {
        if self.is_verified {
            return None;
        }
        let damaged = self.position.checksums.damaged(&self.folder);
        self.is_verified = damaged.is_none();
        damaged
    }

    /// If the source is damaged, removes the target, which [`Mirror::verify`] then reports. A source without a checksum
    /// may be missing: it was purged, or it was removed before a merged entry repeats this operation.
    fn copy(&mut self, name: &str, offset: u64, from: &str, start: u64) -> io::Result<()> {
        let path = self.folder.join(from);
        if self.position.checksums.get(from).is_some_and(|sum| !sum.matches(&path)) {
            return self.discard(name);
        }
        let Some(source) = File::open(path).map(Some).or_else(absent)? else { return Ok(()) };
        let (mut bytes, mut done) = (vec![0; CHUNK], 0);
        while let count @ 1.. = source.read_at(&mut bytes, start + done)? {
            self.execute(&Operation::Write(name, offset + done, &bytes[..count]))?;
            done += count as u64;
        }
        Ok(())
    }

    fn execute(&mut self, operation: &Operation) -> io::Result<()> {
        if let Operation::Write(name, from, _) | Operation::Truncate(name, from) = *operation {
            self.check(name, from)?;
        }
        match *operation {
            Operation::Create(name, size) => {
                let path = self.folder.join(name);
                let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
                file.set_len(size)?;
                self.dirty.insert(name.to_owned(), file);
            }
            Operation::Write(name, at, data) => self.file(name)?.map_or(Ok(()), |file| file.write_all_at(data, at))?,
            Operation::Truncate(name, length) => self.file(name)?.map_or(Ok(()), |file| file.set_len(length))?,
            Operation::Rename(name, to) => {
                self.dirty.remove(name);
                let target = self.folder.join(to);
                target.parent().map_or(Ok(()), fs::create_dir_all)?;
                allow_missing(fs::rename(self.folder.join(name), target))?;
            }
            // After a crash, earlier operations that need the file may be repeated, so only `save` removes the file.
            Operation::Remove(name) if name.starts_with(STAGE) => self.has_stages = true,
            Operation::Copy(name, offset, from, start) => self.copy(name, offset, from, start)?,
            Operation::Remove(name) => self.discard(name)?,
        }
        self.position.checksums.note(operation);
        Ok(())
    }

    /// Called before a change of the bytes from the offset `from` onward. Removes a damaged file if its checksum will
    /// have to be computed again, for example after a repeated operation: the new checksum would hide the damage.
    fn check(&mut self, name: &str, from: u64) -> io::Result<()> {
        let is_damaged = |sum: &Checksum| from < sum.length && !sum.matches(&self.folder.join(name));
        self.position.checksums.get(name).filter(is_damaged).map_or(Ok(()), |_| self.discard(name))
    }

    /// Removes a file that must not be used, so that [`Mirror::verify`] reports the file.
    fn discard(&mut self, name: &str) -> io::Result<()> {
        self.dirty.remove(name);
        allow_missing(fs::remove_file(self.folder.join(name)))
    }

    /// Opens a file for writing. Returns `None` if the file is missing, which [`Mirror::verify`] reports later.
    fn file(&mut self, name: &str) -> io::Result<Option<&File>> {
        if !self.dirty.contains_key(name) {
            let file = File::options().write(true).open(self.folder.join(name)).map(Some).or_else(absent)?;
            self.dirty.extend(file.map(|file| (name.to_owned(), file)));
        }
        Ok(self.dirty.get(name))
    }

    pub fn sync(&mut self) -> io::Result<()> {
        self.dirty.values().try_for_each(File::sync_all)?;
        self.dirty.clear();
        Ok(())
    }

    pub fn save(&mut self) -> io::Result<()> {
        self.sync()?;
        self.position.checksums.complete(&self.folder);
        self.position.write(&self.folder)?;
        if std::mem::take(&mut self.has_stages) {
            let is_unused = |name: &String| name.starts_with(STAGE) && !self.position.created.contains_key(name);
            let mut unused = files(&self.folder)?.into_iter().filter(is_unused);
            unused.try_for_each(|name| allow_missing(fs::remove_file(self.folder.join(name))))?;
        }
        Ok(())
    }

    /// Records that the local server has claimed the journal `origin` with the entry `seq`. On a full disk, marks the
    /// copy as incomplete if this position cannot be saved: the old position does not show how recent the copy is.
    pub fn save_active(&mut self, seq: Seq, origin: Origin) -> io::Result<()> {
        (self.position.done, self.position.origin) = (seq, origin);
        let name = self.save().map(|()| ACTIVE).or_else(|error| allow_full(error).map(|()| INCOMPLETE))?;
        let (position, mark) = (self.folder.join(POSITION), self.folder.join(name));
        // The mark may already be another name of the position, so it must not be truncated.
        let created = File::options().append(true).create(true).open(&mark).and_then(|file| file.sync_all());
        // A full disk may have no space for a new file, but for another name of an existing file.
        created.or_else(|error| allow_full(error).and_then(|()| fs::hard_link(position, mark)))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// Restores the old copy if the new copy is incomplete. Called before a server without a shared log opens the binlog.
pub fn restore_aside(folder: &Path) -> io::Result<()> {
    if !is_copying(folder) {
        return Ok(());
    }
    // A standby may be using the directory.
    let lock = Folder::new(folder);
    lock.lock()?;
    if folder.join(ASIDE).exists() {
        if binlog_files(&folder.join(ASIDE))?.is_empty() {
            return Err(io::Error::other("the copy of the journal is incomplete; use the copy of another server"));
        }
        log::warn!("{}: the new copy of the journal is incomplete; using the old one", folder.display());
        binlog_files(folder)?.iter().try_for_each(|name| fs::remove_file(folder.join(name)))?;
        // A repetition after an interruption must not delete files that were already moved back.
        fs::rename(folder.join(ASIDE), folder.join(MOVING))?;
    }
    settle(folder)
}

/// Returns `true` if the copy may be incomplete, because it is being made again or the disk was full.
pub fn is_copying(folder: &Path) -> bool {
    [MOVING, ASIDE, INCOMPLETE].iter().any(|name| folder.join(name).exists())
}

/// Returns `false` if the directory was emptied or replaced after the local server became active.
pub fn is_marked(folder: &Path) -> bool {
    [ACTIVE, INCOMPLETE].iter().any(|name| folder.join(name).exists())
}

/// Records that the active server's copy lacks changes. Needs no space, because no file is created.
pub fn mark_incomplete(folder: &Path) -> io::Result<()> {
    fs::rename(folder.join(ACTIVE), folder.join(INCOMPLETE))?;
    File::open(folder)?.sync_all()
}

/// Moves files back, or deletes files, if moving or deleting the old copy was interrupted.
fn settle(folder: &Path) -> io::Result<()> {
    let moving = folder.join(MOVING);
    if moving.exists() {
        files(&moving)?.iter().try_for_each(|name| fs::rename(moving.join(name), folder.join(name)))?;
        File::open(folder)?.sync_all()?;
        fs::remove_dir(moving)?;
    }
    allow_missing(fs::remove_dir_all(folder.join(DROPPED)))
}

fn files(folder: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn binlog_files(folder: &Path) -> io::Result<Vec<String>> {
    Ok(files(folder)?.into_iter().filter(|name| is_binlog_file(name)).collect())
}

pub fn leave_cluster(folder: &Path) -> io::Result<()> {
    allow_missing(fs::remove_dir_all(folder.join(DROPPED)))?;
    let mut known = files(folder)?;
    known.retain(|name| [POSITION, ACTIVE, INCOMPLETE, STAGE].iter().any(|known| name.starts_with(known)));
    if !known.is_empty() {
        log::info!("{}: using this binlog without the journal", folder.display());
        known.iter().try_for_each(|name| fs::remove_file(folder.join(name)))?;
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Saves the position at a clean shutdown, when the shared log contains all changes up to the entry `done`.
pub fn save_end(folder: &Path, done: Seq, origin: Origin, files: (BTreeMap<String, Seq>, Checksums)) -> io::Result<()> {
    let (created, mut checksums) = files;
    let sync = |name: &String| allow_missing(File::open(folder.join(name)).and_then(|file| file.sync_all()));
    created.keys().try_for_each(sync)?;
    checksums.complete(folder);
    Position { done, origin, created, checksums }.write(folder)?;
    allow_missing(fs::remove_file(folder.join(ACTIVE)))?;
    File::open(folder)?.sync_all()
}

pub fn damaged(seq: Seq) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("entry {seq} of the journal is damaged, or of a newer version"))
}

pub fn allow_full(error: io::Error) -> io::Result<()> {
    Some(error).filter(|error| !is_no_space(error)).map_or(Ok(()), Err)
}

fn allow_missing(done: io::Result<()>) -> io::Result<()> {
    done.map(Some).or_else(absent).map(drop)
}

fn absent<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(None),
        _ => Err(error),
    }
}

impl Position {
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let Origin { journal, epoch, last } = self.origin;
        let last = last.map_or(String::new(), |(writer, number)| format!(" entry {writer:016x} {number}"));
        let mut text = format!("{}\njournal {journal:016x} epoch {epoch}{last}\n", self.done);
        for (name, seq) in &self.created {
            let sum = self.checksums.get(name).map_or(String::new(), |sum| format!(" {} {:08x}", sum.length, sum.crc));
            text += &format!("{seq} {name}{sum}\n");
        }
        text += "end\n";
        let (path, new) = (folder.join(POSITION), folder.join(format!("{POSITION}.new")));
        match File::create(&new).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all())) {
            // Overwriting the old file usually needs no space. An interruption makes the file invalid.
            Err(error) if is_no_space(&error) => {
                let file = File::options().write(true).open(path).map_err(|_| error)?;
                file.write_all_at(text.as_bytes(), 0).and_then(|()| file.set_len(text.len() as u64))?;
                file.sync_all()
            }
            written => written.and_then(|()| fs::rename(new, path)).and_then(|()| File::open(folder)?.sync_all()),
        }
    }

    fn read(text: &str) -> Option<Position> {
        let (done, rest) = text.strip_suffix("end\n")?.split_once('\n')?;
        let (origin, rest) = rest.split_once('\n')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (journal, epoch, last) = match origin.split(' ').collect::<Vec<_>>()[..] {
            ["journal", journal, "epoch", epoch] => (journal, epoch, None),
            ["journal", journal, "epoch", epoch, "entry", writer, count] => {
                (journal, epoch, Some((number(writer)?, count.parse().ok()?)))
            }
            _ => return None,
        };
        let origin = Origin { journal: number(journal)?, epoch: epoch.parse().ok()?, last };
        let mut position = Position { done: done.parse().ok()?, origin, ..Position::default() };
        for line in rest.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (seq, name, sum) = match words[..] {
                [seq, name] => (seq, name, None),
                [seq, name, length, crc] => {
                    let (length, crc) = (length.parse().ok()?, u32::from_str_radix(crc, 16).ok()?);
                    (seq, name, Some(Checksum { length, crc }))
                }
                _ => return None,
            };
            // An active server stores no large bodies outside its segments.
            let is_stored = sum.is_some() || !name.starts_with(STAGE);
            let sum = sum.unwrap_or(Checksum::UNKNOWN);
            position.checksums.files.extend(is_stored.then(|| (name.to_owned(), Some(sum))));
            position.created.insert(name.to_owned(), seq.parse().ok()?);
        }
        Some(position)
    }
}

/// The CRC-32 of a file's first `length` bytes. All later bytes are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checksum {
    pub length: u64,
    pub crc: u32,
}

impl Checksum {
    /// The checksum of an unreadable file, which matches no file.
    const UNKNOWN: Checksum = Checksum { length: u64::MAX, crc: 0 };

    /// Returns `false` if the checksum already covers the offset and must be recomputed.
    fn extend(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let follows = offset >= self.length;
        let Some(last) = bytes.iter().rposition(|byte| *byte != 0).filter(|_| follows) else { return follows };
        let mut hasher = Hasher::new_with_initial(self.crc);
        let gap = offset - self.length;
        for done in (0..gap).step_by(CHUNK) {
            hasher.update(&[0; CHUNK][..(gap - done).min(CHUNK as u64) as usize]);
        }
        hasher.update(&bytes[..=last]);
        *self = Checksum { length: offset + last as u64 + 1, crc: hasher.finalize() };
        true
    }

    fn of(path: &Path, length: u64) -> io::Result<Checksum> {
        let (mut file, mut sum, mut offset) = (File::open(path)?.take(length), Checksum::default(), 0);
        let mut bytes = vec![0; CHUNK];
        while let count @ 1.. = file.read(&mut bytes)? {
            sum.extend(offset, &bytes[..count]);
            offset += count as u64;
        }
        Ok(sum)
    }

    fn matches(self, path: &Path) -> bool {
        Checksum::of(path, self.length).is_ok_and(|found| found == self)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checksums {
    /// By file name. `None` means that covered bytes were overwritten or truncated: recompute the checksum.
    files: BTreeMap<String, Option<Checksum>>,
}

impl Checksums {
    pub fn note(&mut self, operation: &Operation) {
        match *operation {
            Operation::Write(name, offset, bytes) => self.change(name, |sum| sum.extend(offset, bytes)),
            Operation::Truncate(name, length) => self.change(name, |sum| length >= sum.length),
            _ => note_file(&mut self.files, operation, Some(Checksum::default())),
        }
    }

    fn get(&self, name: &str) -> Option<Checksum> {
        self.files.get(name).copied().flatten()
    }

    /// Changes the checksum of a file. `change` returns `false` if the checksum must be recomputed.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Checksum) -> bool) {
        if let Some(slot) = self.files.get_mut(name) {
            *slot = slot.take().and_then(|mut sum| change(&mut sum).then_some(sum));
        }
    }

    pub fn complete(&mut self, folder: &Path) {
        for (name, slot) in self.files.iter_mut().filter(|(_, slot)| slot.is_none()) {
            *slot = Some(Checksum::of(&folder.join(name), u64::MAX).unwrap_or(Checksum::UNKNOWN));
        }
    }

    pub fn damaged(&mut self, folder: &Path) -> Option<String> {
        self.complete(folder);
        let is_damaged = |name: &str, sum: &Option<Checksum>| sum.is_none_or(|sum| !sum.matches(&folder.join(name)));
        self.files.iter().find(|(name, sum)| is_damaged(name, sum)).map(|(name, _)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_position_reads_back_and_a_truncated_one_does_not() {
        let folder = std::env::temp_dir().join(format!("mirror-position-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory");
        let created = [("segment.1", 4), ("segment.2", 9), ("stage.3.1", 8)];
        let created: BTreeMap<_, _> = created.map(|(name, seq)| (name.to_owned(), seq)).into();
        let mut checksums = Checksums::default();
        checksums.files.insert("segment.1".to_owned(), Some(Checksum::UNKNOWN));
        checksums.files.insert("segment.2".to_owned(), Some(Checksum { length: 80, crc: 0xabc }));
        for last in [None, Some((u64::MAX, 7))] {
            let origin = Origin { journal: 0xabc, epoch: 3, last };
            let position = Position { done: 12, origin, created: created.clone(), checksums: checksums.clone() };
            position.write(&folder).expect("a position");
            let text = fs::read_to_string(folder.join(POSITION)).expect("a position");
            assert_eq!(Position::read(&text), Some(position));
            assert!((0..text.len()).all(|length| Position::read(&text[..length]).is_none()));
        }
        fs::remove_dir_all(folder).expect("a directory");
    }

    #[test]
    fn a_position_is_saved_on_a_full_disk() {
        let several = Several::new("full");
        let position = |done, journal| {
            let origin = Origin { journal, epoch: done, last: Some((journal, done)) };
            Position { done, origin, ..Position::default() }
        };
        position(1_000_000, 7).write(&several.0).expect("a position");
        // Writing to this device fails as on a full disk.
        std::os::unix::fs::symlink("/dev/full", several.0.join("journal.position.new")).expect("a link");
        for position in [position(2, 8), position(3_000_000_000, 9)] {
            position.write(&several.0).expect("a position in the old file");
            let text = fs::read_to_string(several.0.join(POSITION)).expect("a position");
            assert_eq!(Position::read(&text), Some(position));
        }
        fs::remove_file(several.0.join(POSITION)).expect("a position");
        let failed = position(4, 7).write(&several.0).expect_err("no space");
        assert!(is_no_space(&failed), "{failed}");
        Mirror::open(&several.0).expect("a copy without a position");
    }

    /// Overwriting a position can be interrupted. All mixtures of two positions are invalid.
    #[test]
    fn a_partially_overwritten_position_is_invalid() {
        let several = Several::new("partial");
        let created = BTreeMap::from([("segment.1".to_owned(), 4)]);
        let texts = [9, 1_000_000].map(|done| {
            let origin = Origin { journal: done, epoch: 3, last: Some((5, done)) };
            let position = Position { done, origin, created: created.clone(), ..Position::default() };
            position.write(&several.0).expect("a position");
            fs::read_to_string(several.0.join(POSITION)).expect("a position")
        });
        for (old, new) in [(&texts[0], &texts[1]), (&texts[1], &texts[0])] {
            // The new text is written, but the file still has its old length.
            let mixed = new.clone() + old.get(new.len()..).unwrap_or_default();
            assert!(mixed == *new || Position::read(&mixed).is_none(), "{mixed}");
        }
    }

    #[test]
    fn an_incomplete_copy_is_replaced_by_the_old_one() {
        let folder = std::env::temp_dir().join(format!("mirror-aside-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory");
        let mut mirror = Mirror::open(&folder).expect("a copy");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("a file");
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        write("segment.0000000001", "complete");
        write("segment.0000000001.bak", "unrelated");
        mirror.position.done = 7;
        mirror.save().expect("a position");
        mirror.start_over(0).expect("a new copy");
        assert!(read("segment.0000000001").is_none() && mirror.has_aside);
        // The incomplete copy must not replace the complete copy in the subdirectory.
        write("segment.0000000001", "partial");
        mirror.start_over(0).expect("a new copy");
        write("segment.0000000002", "partial");
        restore_aside(&folder).expect("the previous copy");
        assert_eq!((read("segment.0000000001").as_deref(), read("segment.0000000002")), (Some("complete"), None));
        let mut mirror = Mirror::open(&folder).expect("a copy");
        assert_eq!((mirror.position.done, mirror.has_aside), (7, false));
        mirror.start_over(0).expect("a new copy");
        mirror.drop_aside().expect("a complete copy");
        restore_aside(&folder).expect("nothing to do");
        assert!(read("segment.0000000001").is_none());
        assert_eq!(read("segment.0000000001.bak").as_deref(), Some("unrelated"));
        fs::remove_dir_all(folder).expect("a directory");
    }

    #[test]
    fn the_mark_of_an_import_belongs_to_the_copy() {
        let folder = std::env::temp_dir().join(format!("mirror-mark-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory");
        let mark = |text: &str| fs::write(folder.join("import.begun"), text).expect("a file");
        let mut mirror = Mirror::open(&folder).expect("a copy");
        fs::write(folder.join("segment.0000000001"), "old").expect("a file");
        mark("old");
        mirror.start_over(0).expect("a new copy");
        assert!(!folder.join("import.begun").exists(), "the mark would make the new segments invalid");
        mark("new");
        restore_aside(&folder).expect("the previous copy");
        assert_eq!(fs::read_to_string(folder.join("import.begun")).ok().as_deref(), Some("old"));
        fs::remove_dir_all(folder).expect("a directory");
    }

    /// A directory whose copy has several segments with the same content.
    struct Several(PathBuf);

    impl Several {
        fn new(name: &str) -> Several {
            let folder = std::env::temp_dir().join(format!("mirror-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a directory");
            Several(folder)
        }

        fn paths(&self) -> impl Iterator<Item = PathBuf> + '_ {
            (1..=20).map(|number| self.0.join(format!("segment.{number:010}")))
        }

        fn write(&self, text: &str) {
            self.paths().for_each(|path| fs::write(path, text).expect("a file"));
        }

        fn contains(&self, text: &str) -> bool {
            self.paths().all(|path| fs::read_to_string(path).is_ok_and(|found| found == text))
        }
    }

    impl Drop for Several {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_copy_can_be_replaced_after_an_earlier_attempt_has_failed() {
        let several = Several::new("again");
        let mut mirror = Mirror::open(&several.0).expect("a copy");
        several.write("old");
        let moving = several.0.join(MOVING);
        fs::create_dir(&moving).expect("a directory");
        fs::rename(several.0.join("segment.0000000007"), moving.join("segment.0000000007")).expect("a file");
        mirror.start_over(0).expect("a new copy");
        several.write("new");
        restore_aside(&several.0).expect("the previous copy");
        assert!(several.contains("old"));
    }

    #[test]
    fn an_interrupted_restoration_is_completed() {
        let several = Several::new("restoration");
        let mut mirror = Mirror::open(&several.0).expect("a copy");
        several.write("old");
        mirror.start_over(0).expect("a new copy");
        several.write("new");
        // A directory with the name of a file makes the restoration fail, usually after some of the files.
        fs::remove_file(several.0.join(POSITION)).expect("a position");
        fs::create_dir(several.0.join(POSITION)).expect("a directory");
        assert!(restore_aside(&several.0).is_err());
        fs::remove_dir(several.0.join(POSITION)).expect("a directory");
        restore_aside(&several.0).expect("the previous copy");
        assert!(several.contains("old") && several.0.join(POSITION).exists());
    }

    /// Only the superuser can delete a file in a read-only directory, so for other users, the deletion fails.
    #[test]
    fn a_partially_deleted_copy_is_not_restored() {
        let several = Several::new("deletion");
        let mut mirror = Mirror::open(&several.0).expect("a copy");
        several.write("old");
        mirror.start_over(0).expect("a new copy");
        several.write("new");
        let places = ["journal.aside", "journal.dropped"].map(|name| several.0.join(name).join("fixed"));
        let fix = |mode| {
            for place in places.iter().filter(|place| place.exists()) {
                fs::set_permissions(place, fs::Permissions::from_mode(mode)).expect("a directory");
            }
        };
        fs::create_dir(&places[0]).and_then(|()| fs::write(places[0].join("x"), "")).expect("a directory");
        fix(0o500);
        let _ = mirror.drop_aside();
        fix(0o700);
        restore_aside(&several.0).expect("nothing to do");
        assert!(several.contains("new"));
        drop(Mirror::open(&several.0).expect("a copy"));
        assert!(several.contains("new") && !places.iter().any(|place| place.exists()));
    }

    const HEAD: Head = Head { kind: EntryKind::Operations, epoch: 1, writer: 1, number: 1 };

    fn encode(operations: &[Operation]) -> Vec<u8> {
        operations.iter().flat_map(Operation::encode).collect()
    }

    #[test]
    fn damage_to_a_large_body_is_detected() {
        let folder = std::env::temp_dir().join(format!("mirror-stage-{}", std::process::id()));
        let stage = "stage.1.1";
        let pieces = [Operation::Create(stage, 8), Operation::Write(stage, 0, b"the body")];
        let copies = [Operation::Create("segment.1", 99), Operation::Copy("segment.1", 10, stage, 0)];
        for damage in ["none", "none, and the copy is repeated", "a changed byte", "a removal"] {
            fs::create_dir_all(&folder).expect("a directory");
            let mut mirror = Mirror::open(&folder).expect("a copy");
            mirror.apply(1, &HEAD, &encode(&pieces)).expect("an entry");
            match damage {
                "a changed byte" => fs::write(folder.join(stage), b"the b0dy").expect("a file"),
                "a removal" => fs::remove_file(folder.join(stage)).expect("a file"),
                _ => {}
            }
            mirror.apply(2, &HEAD, &encode(&copies)).expect("an entry");
            mirror.apply(3, &HEAD, &encode(&[Operation::Remove(stage)])).expect("an entry");
            if damage.starts_with("none") {
                mirror.save().expect("a position");
                assert!(!folder.join(stage).exists());
                if damage != "none" {
                    mirror.apply(4, &HEAD, &encode(&copies[1..])).expect("a merged entry");
                }
                assert!(fs::read(folder.join("segment.1")).expect("a file")[10..].starts_with(b"the body\0"));
            }
            assert_eq!(mirror.verify().is_none(), damage.starts_with("none"), "{damage}");
            fs::remove_dir_all(&folder).expect("a directory");
        }
    }

    #[test]
    fn a_file_without_a_checksum_is_verified_after_a_restart() {
        for is_missing in [false, true] {
            let several = Several::new("missing");
            let mut mirror = Mirror::open(&several.0).expect("a copy");
            let write = |bytes| Operation::Write("segment.1", 0, bytes);
            let operations = [Operation::Create("segment.1", 99), write(b"one"), write(b"two")];
            mirror.apply(1, &HEAD, &encode(&operations)).expect("an entry");
            if is_missing {
                fs::remove_file(several.0.join("segment.1")).expect("a file");
            }
            mirror.save().expect("a position");
            let found = Mirror::open(&several.0).expect("a copy").verify();
            assert_eq!(found.as_deref(), is_missing.then_some("segment.1"));
        }
    }

    /// The checksum is computed again after a change of bytes that it covers, and must not cover damage.
    #[test]
    fn a_repeated_operation_does_not_hide_damage() {
        let create = Operation::Create("segment.1", 99);
        let write = |offset, bytes| Operation::Write("segment.1", offset, bytes);
        let repeated = [vec![write(0, b"one"), write(3, b"two")], vec![Operation::Truncate("segment.1", 5)]];
        for (operations, is_damaged) in repeated.iter().flat_map(|it| [(it, false), (it, true)]) {
            let several = Several::new("repeated");
            let mut mirror = Mirror::open(&several.0).expect("a copy");
            mirror.apply(1, &HEAD, &encode(&[create.clone(), write(0, b"one")])).expect("an entry");
            mirror.apply(2, &HEAD, &encode(&[write(3, b"two"), write(50, b"kept")])).expect("an entry");
            mirror.save().expect("a position");
            if is_damaged {
                let file = File::options().write(true).open(several.0.join("segment.1")).expect("a file");
                file.write_all_at(b"K", 50).expect("damage");
            }
            mirror.apply(3, &HEAD, &encode(operations)).expect("an entry");
            mirror.save().expect("a position");
            let mut reopened = Mirror::open(&several.0).expect("a copy");
            for mirror in [&mut mirror, &mut reopened] {
                assert_eq!(mirror.verify().as_deref(), is_damaged.then_some("segment.1"), "{operations:?}");
            }
        }
    }

    /// What an unreadable file contains when it can be read again is unknown.
    #[test]
    fn a_file_that_was_unreadable_counts_as_damaged() {
        let several = Several::new("unreadable");
        let (path, elsewhere) = (several.0.join("segment.1"), several.0.join("elsewhere"));
        let mut mirror = Mirror::open(&several.0).expect("a copy");
        let write = |bytes| Operation::Write("segment.1", 0, bytes);
        let operations = [Operation::Create("segment.1", 99), write(b"one"), write(b"two")];
        mirror.apply(1, &HEAD, &encode(&operations)).expect("an entry");
        fs::rename(&path, &elsewhere).and_then(|()| fs::create_dir(&path)).expect("a directory");
        mirror.save().expect("a position");
        fs::remove_dir(&path).and_then(|()| fs::rename(&elsewhere, &path)).expect("a file");
        for mirror in [&mut Mirror::open(&several.0).expect("a copy"), &mut mirror] {
            assert_eq!(mirror.verify().as_deref(), Some("segment.1"));
        }
    }

    #[test]
    fn a_server_without_a_journal_deletes_the_remains_of_a_copy() {
        let several = Several::new("remains");
        let dropped = several.0.join(DROPPED);
        fs::create_dir(&dropped).and_then(|()| fs::write(dropped.join("segment.1"), "old")).expect("a directory");
        several.write("new");
        restore_aside(&several.0).expect("nothing to do");
        leave_cluster(&several.0).expect("a binlog without a journal");
        assert!(several.contains("new") && !dropped.exists());
    }

    #[test]
    fn an_unknown_operation_is_refused() {
        let folder = std::env::temp_dir().join(format!("mirror-unknown-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory");
        let mut mirror = Mirror::open(&folder).expect("a copy");
        let unknown = [encode(&[Operation::Create("segment.1", 9)]), b"?".to_vec()].concat();
        let refused = mirror.apply(9, &HEAD, &unknown).expect_err("an unknown operation");
        assert_eq!((refused.kind(), mirror.position.done), (io::ErrorKind::InvalidData, 0));
        fs::remove_dir_all(&folder).expect("a directory");
    }

    #[test]
    fn an_incremental_checksum_covers_the_file_and_detects_damage() {
        let folder = std::env::temp_dir().join(format!("checksums-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory");
        let path = folder.join("segment.1");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        file.set_len(300_000).expect("a file");
        let mut sums = Checksums::default();
        sums.note(&Operation::Create("segment.1", 300_000));
        // Covers appends, a gap, trailing zeros, a write of zeros only, an overwrite, and a subsequent append.
        let pieces: [(u64, &[u8]); 6] =
            [(0, b"head"), (4, b"more"), (200_000, b"gap\0\0"), (200_005, &[0; 9]), (2, b"middle"), (200_020, b"end")];
        for (offset, bytes) in pieces {
            file.write_all_at(bytes, offset).expect("a write");
            sums.note(&Operation::Write("segment.1", offset, bytes));
            assert_eq!(sums.files["segment.1"].is_none(), offset == 2, "{offset}");
            sums.complete(&folder);
            assert_eq!(sums.files["segment.1"], Checksum::of(&path, u64::MAX).ok(), "{offset}");
        }
        assert_eq!(sums.damaged(&folder), None);
        let good = fs::read(&path).expect("a file");
        let mut bad = [good[..200_021].to_vec(), good.clone(), good.clone(), good.clone()];
        bad[1][5] ^= 1;
        bad[2][100_000] = 1;
        bad[3][..8].fill(0);
        for (number, bytes) in bad.iter().enumerate() {
            fs::write(&path, bytes).expect("a file");
            assert_eq!(sums.damaged(&folder).as_deref(), Some("segment.1"), "{number}");
        }
        fs::write(&path, &good[..200_023]).expect("a file");
        assert_eq!(sums.damaged(&folder), None);
        fs::remove_file(&path).expect("a file");
        assert_eq!(sums.damaged(&folder).as_deref(), Some("segment.1"));
        // A file that the queue itself has renamed or removed does not count as missing.
        sums.note(&Operation::Rename("segment.1", "old/segment.1"));
        assert_eq!(sums.damaged(&folder), None);
        fs::remove_dir_all(folder).expect("a directory");
    }
}
